"""The clock is a parameter, so that a simulation can control time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Protocol

import pendulum

from airflow_provider_onelake.exceptions import InvalidWriteError


class Clock(Protocol):
    """The operations on time that the core needs."""

    def now(self) -> datetime:
        """Return the present instant, in UTC."""

    def sleep(self, seconds: float) -> None:
        """Wait.

        :param seconds: how long.
        """


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the present instant, in UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait.

        :param seconds: how long.
        """
        time.sleep(seconds)


def milliseconds(instant: datetime) -> int:
    """Return an instant as Delta writes it: milliseconds since the epoch.

    :param instant: an aware datetime.
    """
    return round(instant.timestamp() * 1000)


def from_milliseconds(value: int) -> datetime:
    """Return the instant that Delta's milliseconds since the epoch name, in UTC.

    :param value: milliseconds since the epoch.
    """
    return datetime.fromtimestamp(value / 1000, UTC)


def whole_number(value: Any) -> int | None:
    """Return the whole number that another engine wrote, as a number or as text.

    :param value: the value as it stands in the log, where it may be anything.
    :returns: the number; ``None`` if the value is no number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def instant_of(value: Any) -> datetime | None:
    """Return the instant that another engine's milliseconds since the epoch name, in UTC.

    :param value: the value as it stands in the log, where it may be anything.
    :returns: the instant; ``None`` if the value is no number of milliseconds within the years 1 to 9999. It may be a
        text, or microseconds.
    """
    number = whole_number(value)
    try:
        return None if number is None else from_milliseconds(number)
    except (ValueError, OverflowError, OSError):
        return None


def time_given(value: datetime | str) -> datetime:
    """Return the time that a person gave; without a time zone if the person named none.

    :param value: a ``datetime``, or its text in ISO 8601. A day is its midnight.
    :raises ValueError: the text is no time in ISO 8601, or may mean several instants, as a month and a time of day do.
    """
    if isinstance(value, datetime):
        return value
    text = str(value).strip()
    found = pendulum.parse(text, exact=True, tz=None)
    if isinstance(found, pendulum.DateTime) and text != "now":
        return found
    if isinstance(found, pendulum.Date) and len(text) >= len("20190131"):
        return pendulum.naive(found.year, found.month, found.day)
    raise ValueError(f"{text!r} is no time")


def instant_given(value: datetime | str) -> datetime:
    """Return the instant that a person gave; in UTC if it has no time zone.

    :param value: a ``datetime``, or its text in ISO 8601. A day is its midnight.
    :raises InvalidWriteError: the text is no time in ISO 8601.
    """
    try:
        instant = time_given(value)
    except ValueError as error:
        raise InvalidWriteError(
            f"timestamp={value!r} must be a time in ISO format, such as 2019-01-31T12:00:00+00:00. Nothing was changed."
        ) from error
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
