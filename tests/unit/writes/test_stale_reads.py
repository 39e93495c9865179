"""Rows computed from the table itself are published only while what they were computed from is as it was.

Protocol: reads its target. A writer may declare which part of the table it reads; else every change of rows counts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.reads import Reads
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.exceptions import ConflictError, InvalidWriteError, OutOfDateError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import Append, Mode, Overwrite, OverwritePartitions
from airflow_provider_onelake.writes.publish import PublishStatus
from airflow_provider_onelake.writes.reconcile import reconcile
from tests.support import tables
from tests.support.commits import committer, statuses
from tests.support.stores import LoserHeld, through
from tests.support.tables import Stage, complete, prepare

JANUARY = Reads("month = '2019-01'")
ROWS: dict[str | None, list[int]] = {"2019-03": [10]}


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = tables.make_table(tmp_path / "t")
    tables.foreign_append(log, {"2019-01": [1], "2019-02": [2]})
    return log


def stage_reading(
    log: DeltaLog, reads: Reads | None = JANUARY, writer: str = "w", *, at_large: bool = False, **terms: Any
) -> Buffer:
    """A complete buffer of a writer that declares what it reads, or does not, or has read more."""
    spec = tables.writer_spec(writer, reads=reads, **terms)
    task = tables.begun(log, spec)
    told = tables.of_attempt(spec.attempt, reads_target=at_large or reads is None)
    appended = dump_actions(tables.append_files(log.store, task.path, ROWS, **told))
    log.store.create(f"{task.path}/{version_path(1)}", appended)
    return complete(log, task.path)


def append_to(month: str | None, row: int = 9, **info: Any) -> Callable[[DeltaLog], None]:
    return lambda log: void(tables.foreign_append(through(log.store, log), {month: [row]}, **info))


def void(_: object) -> None:
    return None


def files_of(log: DeltaLog, month: str) -> list[dict[str, Any]]:
    return [file for file in tables.live(through(log.store, log)) if file["partitionValues"]["month"] == month]


def remove_from(month: str) -> Callable[[DeltaLog], None]:
    def delete(log: DeltaLog) -> None:
        removes = [{"remove": {**file, "deletionTimestamp": 1, "dataChange": True}} for file in files_of(log, month)]
        tables.foreign_commit(through(log.store, log), [{"commitInfo": {"operation": "DELETE"}}, *removes])

    return delete


def remove_without_partition(log: DeltaLog) -> None:
    remove = {"remove": {"path": "x", "dataChange": True}}
    tables.foreign_commit(through(log.store, log), [{"commitInfo": {"operation": "DELETE"}}, remove])


def set_a_property(log: DeltaLog) -> None:
    tables.change_metadata(through(log.store, log), configuration={"a": "b"})


def compact(log: DeltaLog) -> None:
    (file,) = files_of(log, "2019-01")
    remove = {"remove": {**file, "deletionTimestamp": 1, "dataChange": False}}
    add = {"add": {**file, "path": f"compacted-{uuid4()}.parquet", "dataChange": False}}
    tables.foreign_commit(through(log.store, log), [{"commitInfo": {"operation": "OPTIMIZE"}}, remove, add])


def several(*changes: Callable[[DeltaLog], None]) -> Callable[[DeltaLog], None]:
    def all_of_them(log: DeltaLog) -> None:
        for change in changes:
            change(log)

    return all_of_them


def publish_beside(log: DeltaLog, buffer: Buffer, winners: Callable[[DeltaLog], None], policy: Policy) -> PublishStatus:
    """What becomes of the buffer, when its put is held until the winners have committed."""
    held = LoserHeld(log.store, lambda: winners(log))
    try:
        return committer(log, held).publish([buffer], policy).status
    finally:
        assert held.refused == 1


@pytest.mark.parametrize("mode", [Append(), OverwritePartitions()], ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("reads", "winners"),
    [
        pytest.param(JANUARY, append_to("2019-02"), id="append elsewhere"),
        pytest.param(JANUARY, append_to(None), id="append to NULL"),
        pytest.param(JANUARY, remove_from("2019-02"), id="delete elsewhere"),
        pytest.param(JANUARY, compact, id="compaction of what is read"),
        pytest.param(JANUARY, set_a_property, id="a property"),
        pytest.param(None, compact, id="compaction"),
    ],
)
def test_what_is_no_matter(log: DeltaLog, mode: Mode, reads: Reads | None, winners: Callable[[DeltaLog], None]) -> None:
    buffer = stage_reading(log, reads, mode=mode)
    assert publish_beside(log, buffer, winners, Policy.FAIL) is PublishStatus.PUBLISHED
    assert tables.last(through(log.store, log)).info["isBlindAppend"] is False


@pytest.mark.parametrize("mode", [Append(), Overwrite(), OverwritePartitions()], ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("reads", "at_large", "winners"),
    [
        pytest.param(JANUARY, False, append_to("2019-01"), id="blind append"),
        pytest.param(JANUARY, False, append_to("2019-01", isBlindAppend=False), id="append"),
        pytest.param(JANUARY, False, remove_from("2019-01"), id="delete"),
        pytest.param(JANUARY, False, remove_without_partition, id="a remove that names no partition"),
        pytest.param(JANUARY, False, several(append_to("2019-02"), append_to("2019-01")), id="the second winner"),
        pytest.param(JANUARY, False, several(set_a_property, append_to("2019-02")), id="another definition"),
        pytest.param(JANUARY, True, append_to("2019-09"), id="it has read more than it declares"),
        pytest.param(None, True, append_to("2019-09"), id="it declares nothing"),
    ],
)
def test_a_change_of_what_was_read_is_settled_by_no_policy(
    log: DeltaLog, mode: Mode, reads: Reads | None, at_large: bool, winners: Callable[[DeltaLog], None]
) -> None:
    buffer = stage_reading(log, reads, mode=mode, at_large=at_large)
    assert (buffer.reads_target, buffer.reads) == (True, None if at_large else reads)
    todo = "name them by `reads`" if at_large else "name fewer partitions by `reads`"
    said = rf"computed their rows from .* itself, and version \d.*No policy settles this.*{todo}"
    with pytest.raises(OutOfDateError, match=said):
        publish_beside(log, buffer, winners, Policy.LAST_WRITER_WINS)
    for policy in Policy:
        with pytest.raises(OutOfDateError, match=said):
            committer(log).publish([buffer], policy)


def test_an_older_generation_of_the_same_writer_counts_too(log: DeltaLog) -> None:
    first = tables.stage(log, tables.writer_spec(mode=Overwrite()), {"2019-01": [5]})
    again = stage_reading(log, None, mode=Overwrite(), generation=2)
    committer(log).publish([first])
    with pytest.raises(OutOfDateError, match=r"version 2 \(w of taxi"):
        committer(log).publish([again])


def test_two_that_read_what_the_other_has_not_written_are_both_published(log: DeltaLog) -> None:
    first, second = stage_reading(log), stage_reading(log, Reads("month = '2019-02'"), "v")
    for buffer in (first, second):
        assert committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    assert tables.ids(Path(log.table)) == [1, 2, 10, 10]


def test_of_two_that_read_what_both_write_the_second_is_out_of_date(log: DeltaLog) -> None:
    reads = Reads("month >= '2019-01'")
    first, second = stage_reading(log, reads), stage_reading(log, reads, "v")
    assert committer(log).publish([first]).status is PublishStatus.PUBLISHED
    with pytest.raises(OutOfDateError):
        committer(log).publish([second])


@pytest.mark.parametrize(
    ("reads", "at", "taken"),
    [(JANUARY, "2019-01", False), (JANUARY, "2019-02", True), (None, "2019-02", False), (None, None, True)],
)
def test_a_retry_takes_rows_that_hold_true(log: DeltaLog, reads: Reads | None, at: str | None, taken: bool) -> None:
    buffer = stage_reading(log, reads)
    if at is not None:
        append_to(at)(log)
    again = prepare(through(log.store, log), tables.writer_spec(reads=reads))
    assert (again.path == buffer.path) is isinstance(again, Buffer) is taken


@pytest.mark.parametrize("other", [Reads("month = '2019-02'"), None], ids=str)
def test_a_retry_takes_nothing_over_from_one_that_reads_something_else(log: DeltaLog, other: Reads | None) -> None:
    stage_reading(log)
    assert isinstance(prepare(through(log.store, log), tables.writer_spec(reads=other)), Stage)


@pytest.mark.parametrize(("at", "status"), [("2019-02", "published"), ("2019-01", "refused")])
def test_published_together_it_is_refused_where_what_was_read_has_changed(log: DeltaLog, at: str, status: str) -> None:
    stage_reading(log, publish=PublishMode.TOGETHER)
    append_to(at)(log)
    report = reconcile(committer(log), tables.LOAD, ["w"], publish=PublishMode.TOGETHER)
    assert [outcome.status for outcome in report.outcomes] == [status]
    if status == "refused":
        with pytest.raises(ConflictError, match=r"clear the writers to compute them from the newest version"):
            report.raise_for_failures()


def test_colleagues_of_one_commit_do_not_disturb_each_other(log: DeltaLog) -> None:
    stage_reading(log, None, "a")
    tables.stage(log, tables.writer_spec("b"), {"2019-01": [20]})
    report = reconcile(committer(log), tables.LOAD, ["a", "b"], publish=PublishMode.TOGETHER)
    assert set(statuses(report).values()) == {"published"}


@pytest.mark.parametrize(("at", "told"), [("2019-02", "published"), ("2019-01", "refused")])
def test_together_a_late_one_is_refused_where_a_colleague_changed_it(log: DeltaLog, at: str, told: str) -> None:
    together: dict[str, Any] = {"mode": OverwritePartitions(), "publish": PublishMode.TOGETHER}
    late = tables.writer_spec("late", reads=JANUARY, **together)
    task = tables.begun(log, late)
    tables.stage(log, tables.writer_spec("early", **together), {at: [5]})

    def told_of_late() -> str:
        report = reconcile(committer(log), tables.LOAD, ["early", "late"], publish=PublishMode.TOGETHER)
        return statuses(report)["late"]

    assert told_of_late() == "missing"
    tables.finish(log, task, late, ROWS)
    assert told_of_late() == told


def test_an_empty_buffer_remembers_that_it_has_read_the_table(log: DeltaLog) -> None:
    assert complete(log, tables.begun(log, tables.writer_spec()).path, reads_target=True).reads_target


@pytest.mark.parametrize("where", ["id = 1", "month LIKE '2019%'", "month ="])
def test_a_predicate_that_no_partition_decides_is_refused_before_anything_is_staged(log: DeltaLog, where: str) -> None:
    with pytest.raises(InvalidWriteError):
        prepare(log, tables.writer_spec(reads=Reads(where)))
    assert [info.path for info in log.store.list("staged")] == [f"{tables.LOAD.writer('w').directory}/_claim-1.json"]


@pytest.mark.parametrize("reads", [None, JANUARY], ids=str)
def test_a_spec_says_what_it_reads_when_it_is_read_back(reads: Reads | None) -> None:
    spec = tables.writer_spec(reads=reads)
    assert WriteSpec.from_json(spec.to_json()).reads == reads
    older = spec.to_json()
    del older["reads"]
    assert WriteSpec.from_json(older).reads is None
