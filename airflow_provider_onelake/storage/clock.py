"""The clock is a parameter, so that a simulation can control time."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol

import pendulum

from airflow_provider_onelake.exceptions import InvalidWriteError, TerminalError


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


def instant_given(value: datetime | str, refused: type[TerminalError] = InvalidWriteError) -> datetime:
    """Return the instant that a person gave as ``timestamp``.

    :param value: a ``datetime`` with a time zone, or its text in ISO 8601.
    :param refused: the error.
    :raises TerminalError: the value is no time in ISO 8601, or may mean several instants, as one without a zone does.
    """
    found: object = value
    if not isinstance(value, datetime) and (text := str(value).strip()) != "now":
        with suppress(ValueError):
            found = pendulum.parse(text, exact=True, tz=None)
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise refused(
            f"timestamp={value!r} must be a time with its zone, such as 2019-01-31T12:00:00+00:00. Nothing was changed."
        )
    return found
