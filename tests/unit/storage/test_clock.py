"""Time as Delta writes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pendulum
import pytest

from airflow_provider_onelake.exceptions import InvalidReadError, InvalidWriteError, TerminalError
from airflow_provider_onelake.storage.clock import (
    from_milliseconds,
    instant_given,
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


@pytest.mark.parametrize(
    ("value", "instant"),
    [
        ("2019-01-31T12:00:00+01:00", datetime(2019, 1, 31, 11, tzinfo=UTC)),
        (" 2019-01-31 12:00:00.25Z ", datetime(2019, 1, 31, 12, 0, 0, 250000, tzinfo=UTC)),
        ("20190131T1200Z", datetime(2019, 1, 31, 12, tzinfo=UTC)),
        (pendulum.datetime(2019, 1, 31, tz="Europe/Berlin"), datetime(2019, 1, 30, 23, tzinfo=UTC)),
    ],
)
def test_a_time_with_its_zone_is_an_instant(value: datetime | str, instant: datetime) -> None:
    assert instant_given(value) == instant


@pytest.mark.parametrize(
    "value",
    [
        *(
            "2019",
            "2019-01",
            "2019-01-31",
            "2019-01-31T12:00",
            "12:00",
            "now",
            " now ",
            "P1D",
            "2019-01-31/2019-02-01",
            "31/01/2019",
            "7",
        ),
        pendulum.naive(2019, 1, 31),
    ],
)
@pytest.mark.parametrize("refused", [InvalidWriteError, InvalidReadError])
def test_what_may_mean_several_instants_is_refused(value: datetime | str, refused: type[TerminalError]) -> None:
    with pytest.raises(refused, match=r"must be a time with its zone, .* Nothing was changed\."):
        instant_given(value, refused)
