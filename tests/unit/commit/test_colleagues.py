"""Writers of one load that are published together, and what they are to each other and to others.

Their lists need not agree: a person shortens one and runs a load again, while a reconciliation that still has the longer
one goes on. And another load's write may count between theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.commit.report import Report
from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.commits import FORMAT
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.buffers import Buffer, set_aside
from airflow_provider_onelake.staging.modes import Mode, Overwrite, OverwritePartitions, ReplaceWhere
from airflow_provider_onelake.staging.prepare import Stage, complete, prepare
from tests.support.commits import statuses
from tests.support.stores import LoserHeld, through
from tests.support.tables import (
    LOAD,
    OVERWRITE,
    append_files,
    finish,
    finished_at,
    foreign_append,
    foreign_commit,
    landed_at,
    of_attempt,
    writer_spec,
)

OTHERS = attrs.evolve(LOAD, dag="other")
BASE = datetime.now(UTC) - timedelta(hours=5)
_Finish = Callable[[dict[str | None, list[int]], float], Buffer]


def begun(log: DeltaLog, key: str, load: Any = LOAD, **terms: Any) -> _Finish:
    """Begin a writer at the newest version, and return what finishes it: with some ids by month, at some hour."""
    spec = writer_spec(key, load, **{**OVERWRITE, **terms})
    task = prepare(log, spec)
    assert isinstance(task, Stage)
    return lambda rows, hour: finished_at(log, finish(log, task, spec, rows), BASE + timedelta(hours=hour))


def appended(log: DeltaLog, month: str, number: int, hour: float) -> None:
    landed_at(log, foreign_append(log, {month: [number]}), BASE + timedelta(hours=hour))


def replaced(log: DeltaLog, month: str, number: int, hour: float) -> None:
    """Another engine's dynamic overwrite of an empty partition."""
    said = {"mode": "Overwrite", "isDynamicPartitionOverwrite": "true"}
    added = append_files(log.store, "", {month: [number]}, operationParameters=said, isBlindAppend=False)
    landed_at(log, foreign_commit(log, added), BASE + timedelta(hours=hour))


def together(log: DeltaLog, *writers: str, on_conflict: Policy = Policy.LAST_WRITER_WINS) -> Report:
    committer = Committer(through(log.store, log))
    return reconcile(committer, LOAD, list(writers), publish=PublishMode.TOGETHER, on_conflict=on_conflict)


def publish(log: DeltaLog, buffer: Buffer) -> None:
    committer = Committer(through(log.store, log))
    committer.publish([buffer], Policy.LAST_WRITER_WINS)


def by_month(log: DeltaLog) -> dict[str, list[int]]:
    read = DeltaTable(log.table).to_pyarrow_table().to_pydict()
    found: dict[str, list[int]] = {}
    for month, number in sorted(zip(read["month"], read["id"], strict=True)):
        found.setdefault(month, []).append(number)
    return found


# -- another load's write between theirs ---------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [("a", "c"), ("a",)])
def test_rows_do_not_outlive_a_write_that_counts_later_and_was_superseded_by_a_colleague(
    log: DeltaLog, listed: tuple[str, ...]
) -> None:
    """The order is a, theirs, c. Theirs takes both months of a, also where c has taken the month of theirs since."""
    a, c, theirs = begun(log, "a"), begun(log, "c"), begun(log, "theirs", OTHERS)
    c({"01": [30]}, 5)
    together(log, "a", "c")
    publish(log, theirs({"01": [40], "03": [41]}, 3))
    a({"01": [10], "03": [11]}, 1)
    report = together(log, *listed)
    assert by_month(log) == {"01": [30], "03": [41]}
    (outcome,) = (outcome for outcome in report.outcomes if outcome.writer == "a")
    said = "version 2 (theirs) replaced the partition later, so this writer's rows there are not published"
    assert {f"month=01: {said}", f"month=03: {said}"} <= set(outcome.decisions)


def test_rows_of_which_a_superseded_write_knew_only_one_writer_are_refused(log: DeltaLog) -> None:
    a, b, c, d = (begun(log, key) for key in "abcd")
    c({"01": [30]}, 5)
    together(log, "a", "c", "d")
    b({"01": [40], "02": [41]}, 3)
    together(log, "a", "b")
    a({"01": [10], "02": [11]}, 1)
    d({"01": [12]}, 1)
    report = together(log, "a", "c", "d")
    with pytest.raises(ConflictError, match="would have left the rows of only some of them alone"):
        report.raise_for_failures()
    assert by_month(log) == {"01": [30], "02": [41]}


@pytest.mark.parametrize("mode", [Overwrite(), OverwritePartitions()])
@pytest.mark.parametrize("range_", [Overwrite(), ReplaceWhere("month in ('01','02')")])
def test_a_write_that_was_superseded_whole_counts_nowhere(log: DeltaLog, mode: Mode, range_: Mode) -> None:
    """Nothing of theirs was ever seen. If it counted, a would have neither month."""
    a, c = begun(log, "a", mode=mode), begun(log, "c", mode=range_)
    theirs = begun(log, "theirs", OTHERS, mode=range_)
    appended(log, "01", 1, 2)
    c({"01": [30]}, 5)
    together(log, "a", "c")
    publish(log, theirs({"01": [40]}, 3))
    a({"01": [10], "02": [11]}, 1)
    together(log, "a", "c")
    assert by_month(log) in ({"01": [30]}, {"01": [10, 30], "02": [11]})


@pytest.mark.parametrize(
    ("staged", "parameters"),
    [
        pytest.param({"settlements": [{"outcome": "superseded", "values": [["01"]]}]}, {}, id="values in values"),
        pytest.param({"settlements": ["superseded"]}, {}, id="settlements"),
        pytest.param({"replaces": ["month = '01'"]}, {"partitionBy": "month"}, id="no JSON"),
        pytest.param({"replaces": ["month = '01'"]}, {"partitionBy": '{"month": 1}'}, id="no list"),
        pytest.param({"replaces": ["month = '01'"]}, {"partitionBy": '["day", "month"]'}, id="other columns"),
    ],
)
def test_an_odd_record_of_a_commit_is_no_error(
    log: DeltaLog, staged: dict[str, Any], parameters: dict[str, str]
) -> None:
    """Nobody knows what such a commit replaced, but it touched no file of the batch."""
    a = begun(log, "a")
    said = {"format": FORMAT, "load": "other", "mode": "replace_where", "writers": [], **staged}
    info = {"timestamp": 1, "operation": "WRITE", "operationParameters": parameters, "staged": said}
    foreign_commit(log, [{"commitInfo": info}])
    a({"02": [10]}, 1)
    assert statuses(together(log, "a")) == {"a": "published"}
    assert by_month(log) == {"02": [10]}


def test_a_null_for_the_version_that_a_write_counts_before_is_none(log: DeltaLog) -> None:
    a = begun(log, "a")
    appended(log, "01", 1, 2)
    staged = {"format": FORMAT, "load": LOAD.id, "mode": "overwrite_partitions", "writers": [], "before": None}
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "WRITE", "staged": staged}}])
    a({"01": [10]}, 1)
    together(log, "a")
    assert by_month(log) == {"01": [1, 10]}


# -- lists that do not agree ---------------------------------------------------------------------------------------


def test_a_colleague_that_did_not_know_a_writer_matters_only_where_it_replaced_rows(log: DeltaLog) -> None:
    a = begun(log, "a")
    appended(log, "01", 12, 1)
    begun(log, "b")({"03": [11]}, 2)
    together(log, "b")
    a({"01": [10]}, 0)
    assert statuses(together(log, "a", "b")) == {"a": "published", "b": "already_published"}
    assert by_month(log) == {"01": [10, 12], "03": [11]}


def test_a_colleague_that_was_set_aside_does_not_matter_though_it_did_not_know_a_writer(log: DeltaLog) -> None:
    a, b = begun(log, "a"), begun(log, "b")
    appended(log, "01", 12, 1)
    b({"01": [11]}, 2)
    together(log, "b", on_conflict=Policy.FIRST_WRITER_WINS)
    a({"01": [10]}, 0)
    assert statuses(together(log, "a", "b")) == {"a": "published", "b": "set_aside"}
    assert by_month(log) == {"01": [10, 12]}


def test_where_a_later_rival_knew_one_of_two_writers_of_a_partition_both_are_refused(log: DeltaLog) -> None:
    a = begun(log, "a")
    begun(log, "c")({"01": [12]}, 0)
    begun(log, "b")({"01": [11]}, 1)
    together(log, "a", "b")
    a({"01": [10]}, 0)
    report = together(log, "a", "c")
    with pytest.raises(ConflictError, match="would have left the rows of only some of them alone"):
        report.raise_for_failures()
    assert by_month(log) == {"01": [11]}


def test_rows_that_were_read_before_a_colleague_that_did_not_know_their_writer_are_out_of_date(log: DeltaLog) -> None:
    spec = writer_spec("a", **OVERWRITE)
    task = prepare(log, spec)
    assert isinstance(task, Stage)
    begun(log, "c")({"01": [30]}, 5)
    together(log, "c")
    staged = append_files(log.store, task.path, {"01": [10]}, **of_attempt(spec.attempt, reads_target=True))
    log.store.create(f"{task.path}/{version_path(1)}", dump_actions(staged))
    buffer = complete(log, task.path, True)
    assert buffer.reads_target
    report = together(log, "a", "c")
    with pytest.raises(ConflictError, match="computed their rows from"):
        report.raise_for_failures()
    assert by_month(log) == {"01": [30]}


# -- a rerun that is set aside at the last moment ------------------------------------------------------------------


def test_rows_of_a_rerun_that_a_person_sets_aside_at_the_last_moment_are_looked_for(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What b published before is in a file of another engine by now, and so cannot be left alone."""
    begun(log, "b")({"01": [11]}, 0)
    together(log, "b")
    DeltaTable(log.table).update({"id": "id + 100"})
    rerun = begun(log, "b", generation=2)({"01": [12]}, 1)
    begun(log, "a", mode=OverwritePartitions())({"01": [10]}, 2)

    def held(self: Committer, *arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        set_aside(log.store, rerun.path, "a person did")
        return self.publish(*arguments, **named)

    monkeypatch.setattr(Committer, "publish", held)
    report = together(log, "a", "b")
    with pytest.raises(ConflictError, match="its files were rewritten since"):
        report.raise_for_failures()
    assert by_month(log) == {"01": [111]}


# -- colleagues' rows in other files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("month", "status"), [("01", "refused"), ("02", "published")])
def test_a_late_writer_is_refused_only_where_it_replaces_the_files_into_which_its_colleagues_rows_were_moved(
    log: DeltaLog, month: str, status: str
) -> None:
    begun(log, "b")({"01": [11], "02": [12]}, 0)
    together(log, "a", "b")
    DeltaTable(log.table).update({"id": "id + 100"}, predicate="month = '01'")
    appended(log, "02", 13, 0)
    begun(log, "a")({month: [10]}, 1)
    assert statuses(together(log, "a", "b"))["a"] == status
    assert by_month(log) == {"01": [111], "02": [12, 13] if status == "refused" else [10, 12]}


@pytest.mark.parametrize(("month", "status"), [("01", "refused"), ("02", "published")])
def test_a_late_writer_is_refused_where_an_overwrite_by_a_data_column_moved_its_colleagues_rows(
    log: DeltaLog, month: str, status: str
) -> None:
    """Such an overwrite keeps the rows outside of its predicate: it writes them into new files."""
    begun(log, "b")({"01": [11, 12]}, 0)
    together(log, "a", "b")
    rows = pa.table({"id": [12], "month": ["01"]})
    write_deltalake(log.table, rows, mode="overwrite", predicate="id = 12")
    assert by_month(log) == {"01": [11, 12]}
    begun(log, "a")({month: [10]}, 1)
    assert statuses(together(log, "a", "b"))["a"] == status
    assert by_month(log) == ({"01": [11, 12]} if status == "refused" else {"01": [11, 12], "02": [10]})


def test_a_late_writer_is_refused_where_an_update_moved_its_colleagues_row_into_its_partition(log: DeltaLog) -> None:
    begun(log, "b")({"01": [11]}, 0)
    together(log, "a", "b")
    DeltaTable(log.table).update({"month": "'02'"}, predicate="id = 11")
    begun(log, "a")({"02": [10]}, 1)
    assert statuses(together(log, "a", "b"))["a"] == "refused"
    assert by_month(log) == {"02": [11]}


def test_an_overwrite_by_a_partition_column_moves_no_rows_and_refuses_nobody(log: DeltaLog) -> None:
    begun(log, "b")({"01": [11, 12]}, 0)
    together(log, "a", "b")
    rows = pa.table({"id": [13], "month": ["01"]})
    write_deltalake(log.table, rows, mode="overwrite", predicate="month = '01'")
    begun(log, "a")({"01": [10]}, 1)
    assert statuses(together(log, "a", "b"))["a"] == "published"
    assert by_month(log) == {"01": [10]}


def test_rows_that_a_winner_moves_while_a_late_writer_publishes_are_looked_for(log: DeltaLog) -> None:
    """The compaction comes between its first look and its put."""
    begun(log, "b")({"01": [11]}, 0)
    together(log, "a", "b")
    appended(log, "01", 13, 0)
    begun(log, "a")({"01": [10]}, 1)
    store = LoserHeld(log.store, lambda: DeltaTable(log.table).optimize.compact())
    committer = Committer(through(store, log))
    report = reconcile(committer, LOAD, ["a", "b"], publish=PublishMode.TOGETHER)
    assert statuses(report)["a"] == "refused"
    assert by_month(log) == {"01": [11, 13]}


def test_an_error_refuses_only_the_writers_that_nobody_else_has_published_or_set_aside(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(log, "a")({"01": [10]}, 0)
    b = begun(log, "b")({"02": [11]}, 1)
    begun(log, "c")({"03": [12]}, 2)

    def held(*arguments: Any, **named: Any) -> None:
        monkeypatch.undo()
        together(log, "a")
        set_aside(log.store, b.path, "a person did")
        raise ConflictError("cannot be settled")

    monkeypatch.setattr(Committer, "publish", held)
    report = together(log, "a", "b", "c")
    assert statuses(report) == {"a": "already_published", "b": "set_aside", "c": "refused"}
    with pytest.raises(ConflictError, match="cannot be settled"):
        report.raise_for_failures()
    assert by_month(log) == {"01": [10]}


def test_an_append_in_a_partition_that_another_replaced_later_is_said_to_be_kept(log: DeltaLog) -> None:
    a, b = begun(log, "a"), begun(log, "b", OTHERS)
    appended(log, "01", 1, 2)
    publish(log, b({"01": [30]}, 3))
    appended(log, "01", 2, 4)
    a({"01": [10], "02": [11]}, 1)
    (outcome,) = together(log, "a").outcomes
    assert outcome.decisions == (
        "month=01: version 1 (WRITE) is kept: it appended later",
        "month=01: version 2 (b) replaced the partition later, so this writer's rows there are not published",
        "month=01: version 3 (WRITE) is kept: it appended later",
    )
    assert by_month(log) == {"01": [2, 30], "02": [11]}
