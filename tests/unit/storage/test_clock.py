"""Time as Delta writes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from airflow_provider_onelake.storage.clock import SystemClock, from_milliseconds, milliseconds


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


def test_the_machines_clock_is_in_utc() -> None:
    assert SystemClock().now().utcoffset() == timedelta(0)
