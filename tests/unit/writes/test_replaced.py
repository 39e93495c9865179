"""What a batch removes: whole tables, and what a writer appended before (protocol: take back whole)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import attrs
import pyarrow.parquet as pq
import pytest

from airflow_provider_onelake.choices import OnRerun
from airflow_provider_onelake.exceptions import InvalidWriteError, RerunRefusedError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import Overwrite, OverwritePartitions, ReplaceWhere
from airflow_provider_onelake.writes.publish import PublishStatus
from tests.support import tables
from tests.support.commits import committer
from tests.support.stores import LoserHeld, through
from tests.support.tables import prepare
from tests.support.vectors import delete_rows

REPLACE = {"on_rerun": OnRerun.REPLACE, "fingerprint": "mended"}


def live_ids(log: DeltaLog) -> list[int]:
    """The ids in the files themselves, as Python's readers have not all of Spark's years."""
    files = log.live_files(lambda _: True, tables.newest(log).version)
    return sorted(n for add in files for n in pq.read_table(Path(log.table, unquote(add["path"])))["id"].to_pylist())


@pytest.mark.parametrize("strange", ["+10000-01-01", "-0044-03-15"])
def test_a_partition_of_a_strange_year_is_left_alone_or_replaced_like_any_other(tmp_path: Path, strange: str) -> None:
    log = tables.make_table(tmp_path / "t", tables.SCHEMA.replace('"string"', '"date"'))
    tables.foreign_append(log, {strange: [1], "2019-01-01": [2], None: [3]})
    buffer = tables.stage(log, tables.writer_spec(mode=OverwritePartitions()), {"2019-01-01": [10]})
    assert committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    assert live_ids(log) == [1, 3, 10]
    where = f"month <= DATE '{strange}' AND month >= DATE '{strange}'"
    buffer = tables.stage(log, tables.writer_spec("where", mode=ReplaceWhere(where)), {strange: [20, 21]})
    assert committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    assert live_ids(log) == [3, 10, 20, 21]


def test_an_overwrite_replaces_the_whole_table(log: DeltaLog) -> None:
    tables.foreign_append(log, {"2019-01": [1], "2019-02": [2], None: [3]})
    buffer = tables.stage(log, tables.writer_spec(mode=Overwrite()), {"2019-03": [10]})
    assert committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    assert tables.table_ids(log) == [10]
    commit = log.commits_since(1)[0]
    assert commit.info["operationParameters"] == {"mode": "Overwrite", "partitionBy": '["month"]'}
    assert commit.info["isBlindAppend"] is False


@pytest.mark.parametrize(("allow_empty", "left"), [(False, [1]), (True, [])])
def test_an_overwrite_without_rows_empties_where_allowed(log: DeltaLog, allow_empty: bool, left: list[int]) -> None:
    tables.foreign_append(log, {"2019-01": [1]})
    buffer = tables.stage(log, tables.writer_spec(mode=Overwrite(allow_empty=allow_empty)), {})
    assert committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    assert tables.table_ids(log) == left


def test_an_overwrite_of_a_table_without_partitions(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "t", partition_by=())
    before = attrs.evolve(tables.LOAD, run="before")
    first = tables.stage(log, tables.writer_spec("first", before, mode=Overwrite()), {None: [1]})
    committer(log).publish([first])
    late = tables.stage(log, tables.writer_spec("late", mode=Overwrite()), {None: [2]})
    winner = tables.stage(log, tables.writer_spec("winner", mode=Overwrite()), {None: [3]})
    held = LoserHeld(log.store, lambda: committer(log).publish([winner]))
    settled = committer(log, held).publish([late])
    assert (settled.status, [s.outcome for s in settled.settlements]) == (PublishStatus.SUPERSEDED, ["superseded"])
    assert tables.table_ids(log) == [3]


def appended(log: DeltaLog) -> None:
    tables.foreign_append(log, {"2019-01": [1]})
    committer(log).publish([tables.stage(log, tables.writer_spec(), {"2019-01": [10, 11], "2019-02": [12]})])
    tables.foreign_append(log, {"2019-01": [2]})


def test_a_rerun_replaces_what_its_writer_appended_and_nothing_else(log: DeltaLog) -> None:
    appended(log)
    again = tables.stage(log, tables.writer_spec(generation=2, **REPLACE), {"2019-01": [20]})
    assert committer(log).publish([again]).status is PublishStatus.PUBLISHED
    assert tables.table_ids(log) == [1, 2, 20]
    assert log.commits_since(3)[0].info["isBlindAppend"] is False
    # And what the rerun published can be replaced in its turn.
    third = tables.stage(log, tables.writer_spec(generation=3, **REPLACE), {"2019-01": [30]})
    assert committer(log).publish([third]).status is PublishStatus.PUBLISHED
    assert tables.table_ids(log) == [1, 2, 30]


def test_a_rerun_without_rows_takes_the_earlier_ones_back(log: DeltaLog) -> None:
    appended(log)
    committer(log).publish([tables.stage(log, tables.writer_spec(generation=2, **REPLACE), {})])
    assert tables.table_ids(log) == [1, 2]


def test_a_writer_that_never_published_has_nothing_to_take_back(log: DeltaLog) -> None:
    tables.foreign_append(log, {"2019-01": [1]})
    committer(log).publish([tables.stage(log, tables.writer_spec(generation=2, **REPLACE), {"2019-01": [20]})])
    assert tables.table_ids(log) == [1, 20]


def test_after_a_restore_an_empty_generation_is_not_taken_for_the_newest_state(log: DeltaLog) -> None:
    committer(log).publish([tables.stage(log, tables.writer_spec(), {"2019-01": [10, 11]})])
    committer(log).publish([tables.stage(log, tables.writer_spec(generation=2, **REPLACE), {})])
    (add,) = log.commits_since(0)[0].adds
    tables.foreign_commit(log, [{"commitInfo": {"operation": "RESTORE"}}, {"add": {**add, "dataChange": True}}])
    again = tables.writer_spec(generation=3, **{**REPLACE, "fingerprint": "third"})
    with pytest.raises(RerunRefusedError, match="RESTORE in version 3 took its rows back"):
        tables.stage(log, again, {"2019-01": [10, 11]})
    assert tables.table_ids(log) == [10, 11]


def test_an_append_only_table_gives_nothing_back(log: DeltaLog) -> None:
    appended(log)
    again = tables.stage(log, tables.writer_spec(generation=2, **REPLACE), {"2019-01": [20]})
    metadata = tables.newest(log).metadata
    tables.foreign_commit(log, [{"metaData": {**metadata, "configuration": {"delta.appendOnly": "true"}}}])
    with pytest.raises(RerunRefusedError, match="append-only"):
        committer(log).publish([again])
    with pytest.raises(InvalidWriteError, match=r"append-only .* on_rerun='replace'"):
        prepare(log, tables.writer_spec("other", on_rerun=OnRerun.REPLACE))
    assert tables.table_ids(log) == [1, 2, 10, 11, 12]


def test_a_lost_race_looks_again(log: DeltaLog) -> None:
    appended(log)
    again = tables.stage(log, tables.writer_spec(generation=2, **REPLACE), {"2019-01": [20]})
    held = LoserHeld(log.store, lambda: tables.foreign_append(through(log.store, log), {"2019-01": [3]}))
    assert committer(log, held).publish([again]).status is PublishStatus.PUBLISHED
    assert held.refused == 1
    assert tables.table_ids(log) == [1, 2, 3, 20]


def deleted_by_vector(log: DeltaLog) -> None:
    add = next(add for add in log.commits_since(1)[0].adds if add["partitionValues"] == {"month": "2019-01"})
    delete_rows(log, add, [0])


def rewritten(log: DeltaLog) -> None:
    """As an UPDATE without deletion vectors, or a compaction, leaves it."""
    add = log.commits_since(1)[0].adds[0]
    gone = {key: add[key] for key in ("path", "partitionValues", "size")}
    remove = {"remove": {**gone, "deletionTimestamp": 1, "dataChange": True}}
    tables.foreign_commit(log, [{"commitInfo": {"operation": "UPDATE"}}, remove])


CHANGES = pytest.mark.parametrize(
    ("change", "words"), [(deleted_by_vector, "deleted or updated since"), (rewritten, "of version 2 is gone")]
)


@CHANGES
def test_what_has_changed_cannot_be_taken_back(log: DeltaLog, change: Callable[[DeltaLog], None], words: str) -> None:
    appended(log)
    change(log)
    with pytest.raises(RerunRefusedError, match=f"be taken back: .*{words}.*overwrite_partitions or replace"):
        prepare(log, tables.writer_spec(generation=2, **REPLACE))


@CHANGES
def test_what_changes_meanwhile_is_left_alone(log: DeltaLog, change: Callable[[DeltaLog], None], words: str) -> None:
    appended(log)
    again = tables.stage(log, tables.writer_spec(generation=2, **REPLACE), {"2019-01": [20]})
    held = LoserHeld(log.store, lambda: change(through(log.store, log)))
    with pytest.raises(RerunRefusedError, match=words):
        committer(log, held).publish([again])
    assert held.refused == 1
    assert log.snapshot().version == 4  # type: ignore[union-attr]


def test_files_are_known_by_the_marker_where_the_log_was_cleaned_up(log: DeltaLog) -> None:
    from deltalake import DeltaTable

    appended(log)
    DeltaTable(log.table).create_checkpoint()
    for version in range(3):
        log.store.delete(f"_delta_log/{version:020d}.json")
    fresh = through(log.store, log)
    committer(fresh).publish([tables.stage(fresh, tables.writer_spec(generation=2, **REPLACE), {"2019-01": [20]})])
    assert tables.table_ids(log) == [1, 2, 20]
