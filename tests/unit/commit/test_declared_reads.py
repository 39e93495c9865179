"""Of a writer that says which part of its own table it reads, only changes there count.

Protocol: reads its target.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.commit.publish import Committer, Status
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.exceptions import ConflictError, InvalidWriteError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.buffers import Buffer
from airflow_provider_onelake.staging.modes import Append, Mode, OverwritePartitions
from airflow_provider_onelake.staging.prepare import Stage, complete, prepare
from airflow_provider_onelake.staging.reads import Reads
from airflow_provider_onelake.staging.spec import WriteSpec
from tests.support.stores import LoserHeld, through
from tests.support.tables import (
    EARLIER_LOAD,
    LOAD,
    append_files,
    begun,
    commit_of,
    finish,
    foreign_append,
    foreign_commit,
    ids,
    make_table,
    newest,
    of_attempt,
    stage,
    writer_spec,
)

JANUARY = Reads("month = '2019-01'")


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = make_table(tmp_path / "t")
    foreign_append(log, {"2019-01": [1], "2019-02": [2]})
    return log


def stage_reading(
    log: DeltaLog, reads: Reads = JANUARY, writer: str = "w", *, at_large: bool = False, **terms: Any
) -> Buffer:
    """A complete buffer of a writer that declares what it reads, and may have read more."""
    spec = writer_spec(writer, reads=reads, **terms)
    task = begun(log, spec)
    actions = append_files(log.store, task.path, {"2019-03": [10]}, **of_attempt(spec.attempt, reads_target=at_large))
    log.store.create(f"{task.path}/{version_path(1)}", dump_actions(actions))
    return complete(log, task.path)


def append_to(month: str | None, row: int = 9, **info: Any) -> Callable[[DeltaLog], None]:
    return lambda log: void(foreign_append(through(log.store, log), {month: [row]}, **info))


def void(_: object) -> None:
    return None


def remove_from(month: str) -> Callable[[DeltaLog], None]:
    def delete(log: DeltaLog) -> None:
        newest_log = through(log.store, log)
        files = newest_log.live_files(
            lambda add: add["partitionValues"]["month"] == month, newest_log.snapshot().version
        )
        removes = [{"remove": {**file, "deletionTimestamp": 1, "dataChange": True}} for file in files]
        foreign_commit(newest_log, [{"commitInfo": {"operation": "DELETE"}}, *removes])

    return delete


def remove_without_partition(log: DeltaLog) -> None:
    foreign_commit(
        through(log.store, log),
        [{"commitInfo": {"operation": "DELETE"}}, {"remove": {"path": "x", "dataChange": True}}],
    )


def set_a_property(log: DeltaLog) -> None:
    metadata = newest(through(log.store, log)).metadata
    foreign_commit(
        through(log.store, log),
        [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}, {"metaData": {**metadata, "configuration": {"a": "b"}}}],
    )


def compact(log: DeltaLog) -> None:
    newest_log = through(log.store, log)
    (file,) = newest_log.live_files(
        lambda add: add["partitionValues"]["month"] == "2019-01", newest_log.snapshot().version
    )
    actions: list[Any] = [
        {"commitInfo": {"operation": "OPTIMIZE"}},
        {"remove": {**file, "deletionTimestamp": 1, "dataChange": False}},
        {"add": {**file, "path": f"compacted-{uuid4()}.parquet", "dataChange": False}},
    ]
    foreign_commit(newest_log, actions)


def several(*changes: Callable[[DeltaLog], None]) -> Callable[[DeltaLog], None]:
    def all_of_them(log: DeltaLog) -> None:
        for change in changes:
            change(log)

    return all_of_them


def published_beside(log: DeltaLog, buffer: Buffer, winners: Callable[[DeltaLog], None]) -> Status:
    """What becomes of the buffer, when its put is held until the winners have committed."""
    held = LoserHeld(log.store, lambda: winners(log))
    ended = Committer(through(held, log)).publish([buffer])
    assert held.refused == 1
    return ended.status


@pytest.mark.parametrize("mode", [Append(), OverwritePartitions()], ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    "winners",
    [
        pytest.param(append_to("2019-02"), id="append elsewhere"),
        pytest.param(append_to(None), id="append to NULL"),
        pytest.param(remove_from("2019-02"), id="delete elsewhere"),
        pytest.param(compact, id="compaction of what is read"),
        pytest.param(set_a_property, id="a property"),
    ],
)
def test_what_others_do_elsewhere_does_not_matter(
    log: DeltaLog, mode: Mode, winners: Callable[[DeltaLog], None]
) -> None:
    assert published_beside(log, stage_reading(log, mode=mode), winners) is Status.PUBLISHED
    assert not newest_commit(log).blind_append


def newest_commit(log: DeltaLog) -> Commit:
    return commit_of(log, newest(through(log.store, log)).version)


@pytest.mark.parametrize("mode", [Append(), OverwritePartitions()], ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    "winners",
    [
        pytest.param(append_to("2019-01"), id="blind append"),
        pytest.param(append_to("2019-01", isBlindAppend=False), id="append"),
        pytest.param(remove_from("2019-01"), id="delete"),
        pytest.param(remove_without_partition, id="a remove that names no partition"),
        pytest.param(several(append_to("2019-02"), append_to("2019-01")), id="the second winner"),
        pytest.param(several(set_a_property, append_to("2019-02")), id="another definition, and a change elsewhere"),
    ],
)
def test_a_change_of_what_was_read_is_settled_by_no_policy(
    log: DeltaLog, mode: Mode, winners: Callable[[DeltaLog], None]
) -> None:
    buffer = stage_reading(log, mode=mode)
    assert published_beside(log, buffer, winners) is Status.CONFLICTED
    for policy in Policy:
        with pytest.raises(
            ConflictError, match=r"computed their rows from .* itself, and version \d.*fewer partitions"
        ):
            Committer(through(log.store, log)).publish([buffer], policy)


def test_a_job_that_read_the_table_by_another_name_may_have_read_anything(log: DeltaLog) -> None:
    buffer = stage_reading(log, at_large=True)
    assert (buffer.reads_target, buffer.reads) == (True, None)
    assert published_beside(log, buffer, append_to("2019-02")) is Status.CONFLICTED
    with pytest.raises(ConflictError, match=r"name them by `reads`"):
        Committer(through(log.store, log)).publish([buffer], Policy.LAST_WRITER_WINS)


def test_two_that_read_what_the_other_has_not_written_are_both_published(log: DeltaLog) -> None:
    first, second = stage_reading(log), stage_reading(log, Reads("month = '2019-02'"), "v")
    for buffer in (first, second):
        assert Committer(through(log.store, log)).publish([buffer]).status is Status.PUBLISHED
    assert ids(Path(log.table)) == [1, 2, 10, 10]


def test_of_two_that_read_what_both_write_the_second_is_left(log: DeltaLog) -> None:
    reads = Reads("month >= '2019-01'")
    first, second = stage_reading(log, reads), stage_reading(log, reads, "v")
    assert Committer(through(log.store, log)).publish([first]).status is Status.PUBLISHED
    assert Committer(through(log.store, log)).publish([second]).status is Status.CONFLICTED


@pytest.mark.parametrize("at", ["2019-01", "2019-02"])
def test_a_retry_takes_over_rows_whose_ground_is_as_it_was(log: DeltaLog, at: str) -> None:
    buffer = stage_reading(log)
    append_to(at)(log)
    again = prepare(through(log.store, log), writer_spec(reads=JANUARY))
    assert isinstance(again, Stage if at == "2019-01" else Buffer)
    if isinstance(again, Buffer):
        assert again.path == buffer.path


@pytest.mark.parametrize("other", [Reads("month = '2019-02'"), None], ids=str)
def test_a_retry_takes_nothing_over_from_one_that_reads_something_else(log: DeltaLog, other: Reads | None) -> None:
    stage_reading(log)
    assert isinstance(prepare(through(log.store, log), writer_spec(reads=other)), Stage)


@pytest.mark.parametrize(("at", "status"), [("2019-02", "published"), ("2019-01", "refused")])
def test_published_together_it_is_refused_where_what_was_read_has_changed(log: DeltaLog, at: str, status: str) -> None:
    stage_reading(log, publish=PublishMode.TOGETHER)
    append_to(at)(log)
    report = reconcile(Committer(through(log.store, log)), LOAD, ["w"], publish=PublishMode.TOGETHER)
    assert [outcome.status for outcome in report.outcomes] == [status]
    if status == "refused":
        with pytest.raises(ConflictError, match=r"clear the writers to compute them from the newest version"):
            report.raise_for_failures()


def reader_of_all(log: DeltaLog) -> None:
    fresh = through(log.store, log)
    Committer(fresh).publish([stage_reading(fresh, Reads("true"), "reader", load=EARLIER_LOAD)])


@pytest.mark.parametrize(("at", "told"), [("2019-02", "published"), ("2019-01", "refused")])
@pytest.mark.parametrize("between", [void, append_to("2019-02"), reader_of_all], ids=["none", "append", "reader"])
def test_published_together_a_late_one_is_refused_where_a_colleague_changed_what_it_has_read(
    log: DeltaLog, at: str, told: str, between: Callable[[DeltaLog], None]
) -> None:
    late = writer_spec("late", mode=OverwritePartitions(), reads=JANUARY, publish=PublishMode.TOGETHER)
    task = begun(log, late)
    stage(log, writer_spec("early", mode=OverwritePartitions(), publish=PublishMode.TOGETHER), {at: [5]})

    def told_of_late() -> str:
        committer = Committer(through(log.store, log))
        report = reconcile(committer, LOAD, ["early", "late"], publish=PublishMode.TOGETHER)
        return report.outcomes[1].status

    assert told_of_late() == "missing"
    between(log)
    finish(log, task, late, {"2019-03": [10]})
    assert told_of_late() == told


@pytest.mark.parametrize("where", ["id = 1", "month LIKE '2019%'", "month ="])
def test_a_predicate_that_no_partition_decides_is_refused_before_anything_is_staged(log: DeltaLog, where: str) -> None:
    with pytest.raises(InvalidWriteError):
        prepare(log, writer_spec(reads=Reads(where)))
    assert not list(log.store.list("staged"))


@pytest.mark.parametrize("reads", [None, JANUARY], ids=str)
def test_a_spec_says_what_it_reads_when_it_is_read_back(reads: Reads | None) -> None:
    spec = writer_spec(reads=reads)
    assert WriteSpec.from_json(spec.to_json()).reads == reads
    older = spec.to_json()
    del older["reads"]
    assert WriteSpec.from_json(older).reads is None


@pytest.mark.parametrize(("reads", "has_seen"), [(JANUARY, True), (Reads("month = '2019-02'"), False)])
def test_a_write_counts_before_a_reader_of_other_partitions(log: DeltaLog, reads: Reads, has_seen: bool) -> None:
    late = stage(log, writer_spec("late", mode=OverwritePartitions()), {"2019-01": [5]})
    append_to("2019-01")(log)
    fresh = through(log.store, log)
    assert Committer(fresh).publish([stage_reading(fresh, reads, "reader")]).status is Status.PUBLISHED
    if has_seen:
        with pytest.raises(ConflictError, match=r"version 3 \(reader\), which came after that, computed its rows from"):
            Committer(log).publish([late], Policy.LAST_WRITER_WINS)
        return
    assert Committer(log).publish([late], Policy.LAST_WRITER_WINS).status is Status.PUBLISHED
    assert ids(Path(log.table)) == [2, 5, 9, 10]
