"""Bounds on a writer's rows against its last loads: what passes, and which loads count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.checks import RowsLikeLast, rows_like_last
from airflow_provider_onelake.choices import OnRerun, Policy
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.steps import last_loads
from airflow_provider_onelake.steps.last_loads import judge, rows_before
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from tests.support import tables
from tests.support.restores import restored_by_time
from tests.support.stores import Counted


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return tables.make_table(tmp_path / "trips")


def of_run(day: int, **other: str) -> Load:
    return attrs.evolve(tables.LOAD, run=f"2018-12-{day:02}", **other)


def publish(log: DeltaLog, rows: int, load: Load, writer: str = "w", **terms: Any) -> int:
    spec: WriteSpec = tables.writer_spec(writer, load, **terms)
    done = Committer(log).publish([tables.stage(log, spec, {"2019-01": list(range(1, rows + 1))} if rows else {})])
    assert done.status is PublishStatus.PUBLISHED
    assert done.version is not None
    return done.version


def before(log: DeltaLog, loads: int = 5) -> list[int]:
    return rows_before(tables.local_log(Path(log.table)), tables.LOAD.writer("w"), loads)


@pytest.mark.parametrize(
    ("given", "loads", "passes", "fails"),
    [
        pytest.param({}, [100], [50, 100, 200], [0, 49, 201], id="one"),
        # One odd load does not move the median.
        pytest.param({}, [100, 1, 100], [50, 200], [49, 201], id="three"),
        pytest.param({}, [100, 200], [75, 300], [74, 301], id="two"),
        # As a binary fraction, 0.55 of 100 is a little more than 55.
        pytest.param({"at_least": 0.55, "at_most": 1.1}, [100], [55, 110], [54, 111], id="as-they-are-written"),
        pytest.param({"at_least": 1, "at_most": None}, [100], [100, 10**9], [99], id="no-most"),
        pytest.param({"at_least": 0}, [100], [0, 200], [201], id="no-least"),
        pytest.param({}, [0, 0], [0], [1], id="never-any"),
        pytest.param({"at_least": 1, "at_most": 1}, [], [0, 10**9], [], id="first-load"),
    ],
)
def test_the_median_is_the_bound(given: dict[str, Any], loads: list[int], passes: list[int], fails: list[int]) -> None:
    asked = RowsLikeLast(**given)
    judged = {rows: judge(asked, "usual", "the text", rows, loads) for rows in (*passes, *fails)}
    assert [rows for rows, result in judged.items() if result.passed] == passes
    assert not any(result.each_row for result in judged.values())


def test_what_was_compared_is_said() -> None:
    result = judge(RowsLikeLast(), "usual", rows_like_last(), 1, [10, 12, 9])
    assert str(result) == (
        "'usual' (rows_like_last(5, at_least=0.5, at_most=2.0)): 1 row, where 5 to 20 would be like its last 3 loads "
        "(10, 12, 9 rows)"
    )
    assert result.to_json()["found"] == result.found
    many = judge(RowsLikeLast(20), "usual", "text", 1, [10] * 20)
    assert str(many).endswith(f"its last 20 loads ({', '.join(['10'] * 10)}, … rows)")
    first = judge(RowsLikeLast(), "usual", "text", 1, [])
    assert first.found == "no earlier load of this writer is in the table's log, so there is nothing to compare with"


def test_the_last_loads_are_those_that_were_published_last(log: DeltaLog) -> None:
    assert before(log) == []
    # A backfill of older months is newer.
    for day, rows in ((3, 3), (4, 4), (1, 1), (2, 2)):
        publish(log, rows, of_run(day))
        tables.foreign_append(log, {"2019-01": [100] * 50})
    assert before(log) == [2, 1, 4, 3]
    assert before(log, loads=2) == [2, 1]


def test_loads_before_a_restore_that_names_a_time_do_not_count(log: DeltaLog) -> None:
    for day in (1, 2):
        publish(log, day, of_run(day))
    restored_by_time(log, 1)
    publish(log, 3, of_run(3))
    assert before(log) == [3]


def test_only_the_same_writer_in_other_runs_counts(log: DeltaLog) -> None:
    publish(log, 3, of_run(1))
    publish(log, 4, of_run(1), "other")
    publish(log, 5, of_run(1, group="other"))
    publish(log, 6, of_run(1, dag="other"))
    publish(log, 7, of_run(1, namespace="other"))
    # A clear would be compared with itself.
    publish(log, 8, tables.LOAD)
    assert before(log) == [3]


def test_a_run_that_published_again_counts_once_by_what_it_published_last(log: DeltaLog) -> None:
    publish(log, 3, of_run(1))
    publish(log, 4, of_run(2))
    publish(log, 5, of_run(1), generation=2, on_rerun=OnRerun.APPEND)
    assert before(log) == [5, 4]


def test_writers_of_one_commit_count_each_for_itself(log: DeltaLog) -> None:
    ours: dict[str, dict[str | None, list[int]]] = {"w": {"2019-01": [1]}, "other": {"2019-01": [2, 3]}}
    Committer(log).publish([tables.stage(log, tables.writer_spec(w, of_run(1)), rows) for w, rows in ours.items()])
    assert before(log) == [1]


def test_a_load_without_rows_counts_and_one_that_was_set_aside_does_not(log: DeltaLog) -> None:
    publish(log, 0, of_run(1))
    late = tables.stage(log, tables.writer_spec("w", of_run(2), **tables.OVERWRITE), {"2019-01": [1, 2]})
    foreign = tables.writer_spec("x", of_run(3), **tables.OVERWRITE)
    Committer(log).publish([tables.stage(log, foreign, {"2019-01": [7]})])
    done = Committer(log).publish([late], Policy.FIRST_WRITER_WINS)
    assert done.status is PublishStatus.SET_ASIDE
    assert before(log) == [0]


def test_a_load_that_a_restore_took_back_does_not_count(log: DeltaLog) -> None:
    good = publish(log, 3, of_run(1))
    publish(log, 900, of_run(2))
    publish(log, 800, of_run(3))
    DeltaTable(log.table).restore(good)
    assert before(log) == [3]
    publish(log, 4, of_run(4))
    assert before(log) == [4, 3]


def test_the_log_that_is_left_after_a_clean_up_tells(log: DeltaLog) -> None:
    publish(log, 3, of_run(1))
    kept = publish(log, 4, of_run(2))
    publish(log, 5, of_run(3))
    tables.cleaned_up(log, *range(kept))
    assert before(log) == [5, 4]
    # An entry that nobody needs any more fails no load.
    Path(log.table, version_path(kept)).write_text("{")
    assert before(log) == [5]


def test_a_merge_counts_by_the_rows_of_its_source(log: DeltaLog) -> None:
    for day, rows in ((1, "7"), (2, "many"), (3, None)):
        metrics = {"numSourceRows": rows} if rows else None
        info = {"timestamp": 1, "operation": "MERGE", "operationMetrics": metrics}
        txn = {"appId": of_run(day).writer("w").app_id, "version": 1}
        tables.foreign_commit(log, [{"commitInfo": info}, {"txn": txn}])
    assert before(log) == [7]


def test_no_more_of_the_log_is_read_than_is_needed(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in (1, 2, 3):
        publish(log, day, of_run(day))
        tables.foreign_append(log, {"2019-01": [1]})
    store = Counted(log.store)
    counted = DeltaLog(store, log.table)
    counted.snapshot()

    def read(writer: str, loads: int) -> tuple[list[int], int]:
        store.calls.clear()
        found = rows_before(counted, tables.LOAD.writer(writer), loads)
        return found, store.calls["get"]

    # Whether the snapshot is the newest.
    nothing, once = read("new", 2)
    assert nothing == []
    assert read("w", 2) == ([3, 2], once + 4)
    assert read("w", 9) == ([3, 2, 1], once + 6)
    monkeypatch.setattr(last_loads, "_MOST_VERSIONS", 3)
    assert read("w", 9) == ([3], once + 3)
