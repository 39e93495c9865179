"""What a table holds: rows by statistics, and how fresh they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError, MissingStatisticsError
from airflow_provider_onelake.following import state
from airflow_provider_onelake.following.state import Freshness, RowsHeld
from airflow_provider_onelake.log.actions import row_count
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.tables import append_files, foreign_append, foreign_commit, local_log, make_table

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        raise AssertionError


def milliseconds(ago: timedelta) -> int:
    return int((NOW - ago).timestamp() * 1000)


def reader(path: Path) -> DeltaLog:
    log = local_log(path)
    log.clock = Clock()
    return log


def test_a_table_that_does_not_exist_has_no_rows_and_is_not_fresh(tmp_path: Path) -> None:
    assert RowsHeld(local_log(tmp_path), 0, None).look() is None
    assert Freshness(local_log(tmp_path), timedelta(days=1)).look() is None


def test_rows_are_counted_where_the_predicate_holds(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1, 2], "2019-02": [3]})
    january = RowsHeld(local_log(tmp_path), 4, "month = '2019-01'")
    assert january.look() is None
    assert RowsHeld(local_log(tmp_path), 3, None).look() == {"version": 1, "rows": 3}
    foreign_append(log, {"2019-02": [4, 5]})
    assert january.look() is None
    foreign_append(log, {"2019-01": [6, 7]})
    assert january.look() == {"version": 3, "rows": 4}


def test_each_file_is_counted_once_and_without_a_new_version_nothing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []

    def counting(add: Any) -> int | None:
        counted.append(add["path"])
        return row_count(add)

    monkeypatch.setattr(state, "row_count", counting)
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1, 2], "2019-02": [3]})
    held = RowsHeld(local_log(tmp_path), 6, None)
    for _ in range(3):
        assert held.look() is None
    foreign_append(log, {"2019-03": [4, 5]})
    assert held.look() is None
    foreign_append(log, {"2019-03": [6]})
    assert held.look() == {"version": 3, "rows": 6}
    assert held.look() == {"version": 3, "rows": 6}
    assert len(counted) == len(set(counted)) == 4
    # A sensor may hold the files of a large table for hours.
    assert held._files is not None
    assert [list(kept) for kept in held._files] == [["rows"]] * 4


def test_removed_rows_and_rows_in_a_deletion_vector_do_not_count(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1, 2, 3]})
    held = RowsHeld(local_log(tmp_path), 3, "month = '2019-01'")
    assert held.look() == {"version": 1, "rows": 3}
    commit = log.commit(1)
    assert commit is not None
    add = commit.adds[0]
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 1, "cardinality": 2}
    foreign_commit(
        log,
        [
            {"commitInfo": {"operation": "DELETE"}},
            {"remove": {"path": add["path"], "dataChange": True}},
            {"add": {**add, "deletionVector": vector}},
        ],
    )
    assert held.look() is None
    assert RowsHeld(local_log(tmp_path), 1, "month = '2019-01'").look() == {"version": 2, "rows": 1}
    foreign_append(log, {"2019-01": [4, 5]})
    assert held.look() == {"version": 3, "rows": 3}


def test_files_without_statistics_are_said_unless_the_others_have_enough(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1, 2]})
    actions = append_files(log.store, "", {"2019-01": [3]})
    del actions[-1]["add"]["stats"]
    foreign_commit(log, actions)
    assert RowsHeld(local_log(tmp_path), 2, None).look() == {"version": 2, "rows": 2}
    with pytest.raises(MissingStatisticsError, match=r"1 of 2 files of .* where month = '2019-01' in version 2"):
        RowsHeld(local_log(tmp_path), 3, "month = '2019-01'").look()


def test_a_predicate_on_no_partition_column_is_refused(tmp_path: Path) -> None:
    make_table(tmp_path)
    with pytest.raises(InvalidWriteError):
        RowsHeld(local_log(tmp_path), 3, "id = 1").look()


def append_at(log: DeltaLog, ago: timedelta, **info: Any) -> None:
    foreign_append(log, {"2019-01": [1]}, timestamp=milliseconds(ago), **info)


def test_a_table_is_as_fresh_as_its_newest_change_of_rows(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    append_at(log, timedelta(hours=3))
    info = {"operation": "OPTIMIZE", "timestamp": milliseconds(timedelta(minutes=1))}
    add = {"path": "month=2019-01/x", "partitionValues": {"month": "2019-01"}, "size": 1, "dataChange": False}
    foreign_commit(log, [{"commitInfo": info}, {"add": add}])
    assert Freshness(reader(tmp_path), timedelta(hours=4)).look() == {
        "version": 1,
        "time": (NOW - timedelta(hours=3)).isoformat(),
    }
    stale = Freshness(reader(tmp_path), timedelta(hours=2))
    assert stale.look() is None
    append_at(log, timedelta(hours=1))
    found = stale.look()
    assert found is not None
    assert found["version"] == 3


def test_what_was_fresh_grows_old(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    append_at(log, timedelta(minutes=1))
    seen = reader(tmp_path)
    fresh = Freshness(seen, timedelta(minutes=5))
    assert fresh.look() is not None
    assert fresh.look() is not None
    seen.clock.time = NOW + timedelta(minutes=5)  # type: ignore[attr-defined]
    assert fresh.look() is None


def test_an_in_commit_timestamp_is_the_time_that_counts(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    append_at(log, timedelta(days=9), inCommitTimestamp=milliseconds(timedelta(minutes=1)))
    assert Freshness(reader(tmp_path), timedelta(minutes=5)).look() is not None
