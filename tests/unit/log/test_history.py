from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_onelake.exceptions import LogGapError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.history import version_at
from airflow_provider_onelake.storage.clock import milliseconds
from tests.support.stores import Counted, through
from tests.support.tables import cleaned_up, foreign_append, foreign_commit, landed_at, local_log, make_table, newest

NOON = datetime(2019, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def at(log: DeltaLog, instant: datetime) -> int:
    return version_at(log, newest(log), instant)


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Version n came into the store n minutes after noon."""
    log = make_table(tmp_path / "t")
    for number in range(1, 4):
        foreign_append(log, {"x": [number]})
    for version in range(4):
        landed_at(log, version, NOON + version * MINUTE)
    return log


@pytest.mark.parametrize(("minutes", "version"), [(0, 0), (0.5, 0), (1, 1), (2.9, 2), (3, 3), (1e6, 3)])
def test_the_newest_version_up_to_the_instant(log: DeltaLog, minutes: float, version: int) -> None:
    assert at(log, NOON + minutes * MINUTE) == version


def test_before_the_first_version(log: DeltaLog) -> None:
    with pytest.raises(LogGapError, match=r"does not reach back to 2019-01-31T11:59:00\+00:00"):
        at(log, NOON - MINUTE)


def test_versions_rise_in_time_even_where_clocks_do_not(log: DeltaLog) -> None:
    landed_at(log, 2, NOON - 60 * MINUTE)
    # As in Delta, version 2 counts as a millisecond after version 1.
    assert at(log, NOON + 1.5 * MINUTE) == 2
    assert at(log, NOON + MINUTE) == 1
    assert at(log, NOON) == 0


def test_times_are_whole_milliseconds_as_delta_tells_them(log: DeltaLog) -> None:
    landed_at(log, 2, NOON + 2 * MINUTE + timedelta(microseconds=586))
    assert at(log, NOON + 2 * MINUTE) == 2


def test_a_log_that_was_cleaned_up(log: DeltaLog) -> None:

    cleaned_up(log, *range(3))
    log = local_log(Path(log.table))
    assert at(log, NOON + 3 * MINUTE) == 3
    with pytest.raises(LogGapError, match="does not reach back"):
        at(log, NOON + 2 * MINUTE)


def stamped(path: Path, count: int, since: int = 0) -> DeltaLog:
    """A table whose versions carry the instants n minutes after noon, from one of them on."""
    log = make_table(path, **{} if since else {"delta.enableInCommitTimestamps": "true"})
    for number in range(1, count):
        info = {"inCommitTimestamp": milliseconds(NOON + number * MINUTE)}
        if number == since:
            metadata = newest(log).metadata
            properties = {
                "delta.enableInCommitTimestamps": "true",
                "delta.inCommitTimestampEnablementVersion": str(since),
                "delta.inCommitTimestampEnablementTimestamp": str(info["inCommitTimestamp"]),
            }
            protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
            foreign_commit(
                log,
                [
                    {"commitInfo": {**info, "timestamp": 1, "operation": "SET TBLPROPERTIES"}},
                    {"protocol": protocol},
                    {"metaData": {**metadata, "configuration": properties}},
                ],
            )
        else:
            foreign_append(log, {"x": [number]}, **info if number >= since else {})
        landed_at(log, number, NOON + (number - since) * MINUTE if number < since else NOON - MINUTE)
    return log


def test_in_commit_timestamps_count_and_few_are_read(tmp_path: Path) -> None:
    log = stamped(tmp_path / "t", 40)
    snapshot, store = newest(log), Counted(log.store)
    fresh = through(store, log)
    assert version_at(fresh, snapshot, NOON + 17.5 * MINUTE) == 17
    assert store.calls["get"] <= 6
    assert at(log, NOON + 1000 * MINUTE) == 39


def test_versions_from_before_the_timestamps_have_the_store_s_times(tmp_path: Path) -> None:
    log = stamped(tmp_path / "t", 8, since=4)
    landed_at(log, 0, NOON - 4 * MINUTE)
    assert at(log, NOON + 6.5 * MINUTE) == 6
    assert at(log, NOON + 4 * MINUTE) == 4
    assert at(log, NOON - 1.5 * MINUTE) == 2
    # The first versions with timestamps have an earlier time in the store, which does not count.
    assert at(log, NOON + 3.5 * MINUTE) == 3


def test_a_version_without_its_timestamp(tmp_path: Path) -> None:
    log = stamped(tmp_path / "t", 3)
    foreign_append(log, {"x": [9]})
    with pytest.raises(LogGapError, match=r"Version 3 .* does not tell when it was committed"):
        at(log, NOON + 2 * MINUTE)
