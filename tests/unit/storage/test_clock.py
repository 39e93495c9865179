"""Time as Delta writes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from airflow_provider_onelake.storage.clock import (
    from_milliseconds,
    instant_of,
    milliseconds,
    whole_number,
)


@pytest.mark.parametrize(
    "instant",
    [
        datetime(2019, 1, 1, tzinfo=UTC),
        datetime(2019, 1, 1, 0, 0, 0, 1000, UTC),
        datetime(2026, 11, 21, 11, 8, 5, 846000, UTC),
        datetime(2019, 7, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_milliseconds_there_and_back_are_the_same_instant_in_utc(instant: datetime) -> None:
    back = from_milliseconds(milliseconds(instant))
    assert back == instant
    assert back.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("value", "number"),
    [(17, 17), ("17", 17), (17.0, 17), (True, None), (None, None), ("x", None), (float("inf"), None), ({}, None)],
)
def test_a_whole_number_of_another_engine_may_be_anything(value: object, number: int | None) -> None:
    assert whole_number(value) == number


def test_milliseconds_beyond_the_years_of_the_calendar_are_no_instant() -> None:
    assert instant_of(1_000) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    for value in (1_549_000_000_123_000, -(10**15), 10**30, "2019-01-01"):
        assert instant_of(value) is None
