"""Rows that fail a check go to a table of their own, once, and the others are published, whoever is killed when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from deltalake import DeltaTable

from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.commit.report import Report
from airflow_provider_onelake.commit.retire import retire
from airflow_provider_onelake.engines.base import AuditJob, AuditResult, StageJob
from airflow_provider_onelake.exceptions import BufferSetAsideError, ChecksFailedError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.staging.buffers import Buffer, read_marker, read_open_buffer, read_staged
from airflow_provider_onelake.work import write as work
from airflow_provider_onelake.work.quarantine import Quarantine
from tests.support.contexts import JANUARY, before_reconcile, connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.stores import KilledError, killed
from tests.support.tables import foreign_append, ids, local_log

CHECKS = {"small ids": "id < 3", "large ids": "id > 0", "some rows": "count(*) > 1"}
CLEARED = {"clears": 1, "max_tries": 1, "try_number": 2}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    return use_engine(monkeypatch, FakeEngine({None: {"2019-01": [1, 2, 5], "2019-02": [2, 0]}}))


def write(**arguments: Any) -> OneLakeWriteOperator:
    given = {"task_id": "write", "table": "Tables/trips", "source": SqlSource("SELECT 1"), "checks": CHECKS}
    return OneLakeWriteOperator(**{**given, "on_failed_check": "quarantine", **arguments})


def run(context: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    task = before_reconcile(lambda: write(**arguments))
    result: dict[str, Any] = task.execute(context_of(task, **(context or {})))
    return result


def settled(log: DeltaLog, **terms: Any) -> Report:
    """What the reconciliation of the load that is staged says, in another process."""
    path = next(Path(log.table).glob("staged/*/*/_delta_log")).parent
    load = read_open_buffer(log.store, str(path.relative_to(log.table))).spec.identity.load
    return reconcile(Committer(local_log(Path(log.table))), load, ["write"], **terms)


def apart(log: DeltaLog, name: str = "trips_quarantine") -> list[tuple[int, str, str]]:
    """The rows in quarantine: id, writer, reason."""
    table = DeltaTable(str(Path(log.table).parent / name)).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["quarantine_writer"], row["quarantine_checks"]) for row in table)


BAD = [(0, "write", "large ids"), (5, "write", "small ids")]


def test_rows_that_fail_go_to_a_table_of_their_own_and_the_others_are_published(
    engine: FakeEngine, log: DeltaLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    task = before_reconcile(write)
    context = context_of(task)
    result = task.execute(context)
    assert (result["status"], result["rows"], ids(Path(log.table))) == ("published", 3, [1, 2, 2])
    assert apart(log) == BAD
    quarantine = str(Path(log.table).parent / "trips_quarantine")
    assert result["quarantine"] == {
        "table": quarantine,
        "version": 1,
        "rows": 2,
        "failed": {"small ids": 1, "large ids": 1},
    }
    assert (
        context["writer_outcome"]
        == "published 3 rows in version 1, 2 of 3 checks failed: small ids, large ids, 2 rows in quarantine"
    )
    told = DeltaTable(log.table).history(1)[0]["userMetadata"]
    assert "write 3 rows (2 of 3 checks failed: small ids, large ids, 2 rows in quarantine)" in told
    # A check that rows fail has failed, also where the others are published. What became of the rows stands beside it.
    assert [(check["name"], check["passed"], check["failed"], check.get("done")) for check in result["checks"]] == [
        ("small ids", False, 1, "quarantined"),
        ("large ids", False, 1, "quarantined"),
        ("some rows", True, None, None),
    ]
    assert "small ids  each row            1  failed, in quarantine" in caplog.messages
    assert "some rows  all rows            -  passed" in caplog.messages
    # The source was read once.
    assert [job.source["kind"] for job in engine.staged] == ["sql", "sql", "staged"]
    whole = read_staged(log.store, result["buffer"].removesuffix("-passed"))
    marker = read_marker(log.store, whole.path)
    assert marker is not None
    assert f"those that pass the checks are in {result['buffer']}" in marker["reason"]
    with pytest.raises(ChecksFailedError):
        Committer(local_log(Path(log.table))).publish([whole])


def test_a_check_of_all_rows_is_about_those_that_are_published(engine: FakeEngine, log: DeltaLog) -> None:
    engine.rows = {None: {"2019-01": [1, 5, 6]}}
    with pytest.raises(AirflowFailException, match=r"The 1 row of writer 'write' .* fail 1 of 3 checks: 'some rows'"):
        run()
    assert log.snapshot().version == 0
    assert [row for row, _, _ in apart(log)] == [5, 6]
    assert settled(log).outcomes[0].status == "refused"
    with pytest.raises(AirflowFailException, match="'some rows'"):
        run()
    assert len(engine.staged) == 3


def test_rows_computed_from_the_table_itself_are_refused(engine: FakeEngine, log: DeltaLog) -> None:
    engine.reads_target = True
    with pytest.raises(AirflowFailException, match="computed from the table itself, so none of them is put into quar"):
        run()
    assert not (Path(log.table).parent / "trips_quarantine").exists()


def test_a_replacing_write_is_in_conflict_with_what_came_since_its_rows_were_staged(
    engine: FakeEngine, log: DeltaLog
) -> None:
    """Though its good rows come into a buffer of their own later on."""

    def before(job: StageJob) -> None:
        if job.source["kind"] == "staged":
            foreign_append(local_log(Path(log.table)), {"2019-01": [100]})

    engine.before = before
    with pytest.raises(AirflowFailException, match=r"version 1 \(WRITE\) put 1 row .* formed on version 0"):
        run(mode="overwrite_partitions", on_conflict="fail")


# -- again ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[1, 2, 7], [1, 2]], ids=["other-bad-rows", "no-bad-rows"])
def test_a_clear_replaces_what_is_in_quarantine(engine: FakeEngine, log: DeltaLog, rows: list[int]) -> None:
    run(on_rerun="replace")
    engine.rows = {None: {"2019-01": rows}}
    result = run(CLEARED, on_rerun="replace")
    assert (result["status"], ids(Path(log.table))) == ("published", [1, 2])
    assert apart(log) == [(7, "write", "small ids")][: len(rows) - 2]


@pytest.mark.parametrize("of_quarantine", [False, True], ids=["while-it-stages", "while-its-bad-rows-are-staged"])
def test_a_writer_whose_files_were_taken_over_puts_nothing_into_quarantine(
    engine: FakeEngine, log: DeltaLog, of_quarantine: bool
) -> None:
    def taken_over(job: StageJob) -> None:
        path = next(Path(log.table).glob("staged/*/*/_delta_log")).parent
        app_id = read_open_buffer(log.store, str(path.relative_to(log.table))).spec.identity.app_id
        if ("quarantine_checks" in job.source.get("query", "")) is of_quarantine:
            retire(Committer(local_log(Path(log.table))), {app_id: None}, "the plan of another run")

    engine.before = taken_over
    with pytest.raises(AirflowFailException, match="were taken over by another run"):
        run()
    assert (ids(Path(log.table)), apart(log)) == ([], [])


def test_other_rows_of_a_later_try_are_not_lost_between_the_two_tables(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source has changed while the task waited for its retry, which its first try left with rows in quarantine."""
    with monkeypatch.context() as patch:
        patch.setattr(work, "audited", killed)
        with pytest.raises(KilledError):
            run()
    engine.rows = {None: {"2019-01": [1, 2, 9]}}
    with pytest.raises(AirflowFailException, match="nobody can tell which rows are missing"):
        run(source=SqlSource("SELECT 2"))
    assert log.snapshot().version == 0
    assert run(CLEARED, source=SqlSource("SELECT 2"))["status"] == "published"
    assert (ids(Path(log.table)), apart(log)) == ([1, 2], [(9, "write", "small ids")])


def killed_after_the_quarantine(
    monkeypatch: pytest.MonkeyPatch, context: dict[str, Any] | None = None, **arguments: Any
) -> None:
    """A try that dies when its bad rows are in quarantine, before it has put its verdict."""
    with monkeypatch.context() as patch:
        patch.setattr(work, "audited", killed)
        with pytest.raises(KilledError):
            run(context, **arguments)


def test_rows_in_quarantine_are_not_published_too_by_a_retry_with_corrected_checks(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row fails the checks that the DAG has by the time of the retry."""
    killed_after_the_quarantine(monkeypatch)
    lenient = {"small ids": "id < 9"}
    for _ in range(2):
        with pytest.raises(AirflowFailException, match="none of the writer's rows fails a check now"):
            run(checks=lenient)
    assert (log.snapshot().version, apart(log)) == (0, BAD)
    assert run(CLEARED, checks=lenient)["status"] == "published"
    assert (ids(Path(log.table)), apart(log)) == ([0, 1, 2, 2, 5], [])


def test_rows_of_which_none_was_in_quarantine_are_not_lost_by_a_check_that_they_fail_the_second_time(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try without bad rows has committed to the quarantine all the same, as it follows another generation."""
    old = {"not too old": "id < 9"}
    run(on_rerun="replace")
    killed_after_the_quarantine(monkeypatch, CLEARED, on_rerun="replace", checks=old)
    audit = FakeEngine.audit

    def later(self: FakeEngine, job: AuditJob) -> AuditResult:
        object.__setattr__(job, "checks", dict.fromkeys(job.checks, "id < 5"))
        return audit(self, job)

    def before(job: StageJob) -> None:
        if job.source["kind"] == "staged":
            object.__setattr__(job, "where", "id < 5")

    monkeypatch.setattr(FakeEngine, "audit", later)
    engine.before = before
    with pytest.raises(AirflowFailException, match="4 pass the checks, but 0 are in the quarantine"):
        run(CLEARED, on_rerun="replace", checks=old)
    assert (ids(Path(log.table)), apart(log)) == ([1, 2, 2], [])


@pytest.mark.parametrize("there", [True, False], ids=["a-quarantine-of-others", "no-quarantine-yet"])
@pytest.mark.parametrize("held_at", ["take", "put"])
@pytest.mark.parametrize("cleared", [True, False], ids=["a-clear", "a-retry-with-corrected-checks"])
def test_an_old_process_puts_nothing_into_quarantine_after_a_newer_one_had_no_bad_rows(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch, cleared: bool, held_at: str, there: bool
) -> None:
    """It is held after it has found its bad rows; then it makes the quarantine, or finds it."""
    terms = {"on_rerun": "replace"} if cleared else {}
    if there:
        run({"logical_date": JANUARY.replace(month=2)}, **terms)
    before = ids(Path(log.table)), apart(log) if there else []
    take, publish, held = Quarantine.take, Committer.publish, [True]

    def newer() -> None:
        if not (held.pop() if held else False):
            return
        if cleared:
            engine.rows = {None: {"2019-01": [1, 2]}}
            assert run(CLEARED, **terms)["status"] == "published"
            engine.rows = {None: {"2019-01": [1, 2, 5]}}
        else:
            assert run(checks={"small ids": "id < 9"})["status"] == "published"

    def takes(self: Quarantine, *args: Any) -> Any:
        if held_at == "take":
            newer()
        return take(self, *args)

    def publishes(self: Committer, buffers: Any, *args: Any) -> Any:
        if held_at == "put" and self.log.table.endswith("quarantine"):
            newer()
        return publish(self, buffers, *args)

    monkeypatch.setattr(Quarantine, "take", takes)
    monkeypatch.setattr(Committer, "publish", publishes)
    with pytest.raises((AirflowException, BufferSetAsideError)):
        run(**terms)
    good = [1, 2] if cleared else [0, 1, 2, 2, 5]
    assert (ids(Path(log.table)), apart(log)) == (sorted([*before[0], *good]), before[1])


@pytest.mark.parametrize("dies", [True, False], ids=["died", "was-refused"])
def test_a_clear_that_appends_replaces_bad_rows_whose_good_ones_never_came_into_the_table(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    if dies:
        killed_after_the_quarantine(monkeypatch, on_rerun="append")
    else:
        with pytest.raises(AirflowFailException, match="'some rows'"):
            run(on_rerun="append", checks={**CHECKS, "some rows": "count(*) > 3"})
    assert (ids(Path(log.table)), apart(log)) == ([], BAD)
    assert run(CLEARED, on_rerun="append")["status"] == "published"
    assert (ids(Path(log.table)), apart(log)) == ([1, 2, 2], BAD)


@pytest.mark.parametrize("rows", [[1, 2, 5, 2, 0], [1, 2, 2]], ids=["bad-rows-again", "no-bad-rows"])
def test_a_second_clear_that_appends_replaces_bad_rows_of_the_first_whose_good_ones_never_came_into_the_table(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch, rows: list[int]
) -> None:
    run(on_rerun="append")
    killed_after_the_quarantine(monkeypatch, CLEARED, on_rerun="append")
    engine.rows = {None: {"2019-01": rows}}
    again = {"clears": 2, "max_tries": 2, "try_number": 3}
    assert run(again, on_rerun="append")["status"] == "published"
    assert (ids(Path(log.table)), apart(log)) == ([1, 1, 2, 2, 2, 2], sorted(BAD * (2 if 5 in rows else 1)))


def test_bad_rows_that_cannot_be_taken_back_from_the_quarantine_are_not_put_there_twice(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(on_rerun="append")
    killed_after_the_quarantine(monkeypatch, CLEARED, on_rerun="append")
    DeltaTable(str(Path(log.table).parent / "trips_quarantine")).optimize.compact()
    again = {"clears": 2, "max_tries": 2, "try_number": 3}
    with pytest.raises(AirflowFailException, match=r"never came into .* on_rerun='replace' replaces all"):
        run(again, on_rerun="append")
    assert (ids(Path(log.table)), apart(log)) == ([1, 2, 2], sorted(2 * BAD))
    assert run({"clears": 3, "max_tries": 3, "try_number": 4}, on_rerun="replace")["status"] == "published"
    assert (ids(Path(log.table)), apart(log)) == ([1, 2, 2], BAD)


# -- a task that is killed -----------------------------------------------------------------------------------------


def at_call(number: int, function: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """The function, whose call of a number ends the process, before or after it has done its work."""
    calls: Iterator[int] = iter(range(1, 100))

    def called(*given: Any, **named: Any) -> Any:
        dies = next(calls) == number
        if dies and not after:
            raise KilledError
        result = function(*given, **named)
        if dies:
            raise KilledError
        return result

    return called


def published_just_before(log: DeltaLog, old: Buffer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old process publishes its buffer when the next one is about to publish into the writer's table."""
    publish, held = Committer.publish, [True]

    def publishes(self: Committer, buffers: Any, *args: Any) -> Any:
        if not self.log.table.endswith("quarantine") and (held.pop() if held else False):
            publish(Committer(local_log(Path(log.table))), [old])
        return publish(self, buffers, *args)

    monkeypatch.setattr(Committer, "publish", publishes)


def test_rows_of_an_old_process_are_not_called_published_once_their_bad_rows_are_replaced_in_quarantine(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It publishes its good rows when a clear, for which the bad rows were mended, is about to publish."""
    with monkeypatch.context() as patch:
        patch.setattr(Committer, "publish", at_call(2, Committer.publish, after=False))
        with pytest.raises(KilledError):
            run()
    path = next(Path(log.table).glob("staged/*/*-passed/_delta_log")).parent
    old = read_staged(log.store, str(path.relative_to(log.table)))
    published_just_before(log, old, monkeypatch)
    engine.rows = {None: {"2019-01": [1, 2, 2, 1, 1]}}
    for clears in (1, 2):
        with pytest.raises(AirflowFailException, match="so a row may be in neither or in both"):
            run({"clears": clears, "max_tries": clears, "try_number": clears + 1})
    assert run({"clears": 3, "max_tries": 3, "try_number": 4}, on_rerun="replace")["status"] == "published"
    assert (ids(Path(log.table)), apart(log)) == ([1, 1, 1, 2, 2], [])


KILLS = [
    *(pytest.param(FakeEngine, "stage", n, after, id=f"stage-{n}-{after}") for n in (1, 2, 3) for after in (0, 1)),
    pytest.param(FakeEngine, "analyze", 1, 0, id="before-the-quarantine-is-made"),
    pytest.param(FakeEngine, "analyze", 1, 1, id="while-the-quarantine-is-made"),
    pytest.param(Quarantine, "take", 1, 1, id="after-the-quarantine"),
    *(pytest.param(work, "audited", n, after, id=f"audited-{n}-{after}") for n in (1, 2) for after in (0, 1)),
    pytest.param(work, "open_beside", 1, 0, id="before-the-rows-are-divided"),
    pytest.param(work, "open_beside", 1, 1, id="after-the-second-buffer-is-opened"),
    *(pytest.param(work, "set_aside", 1, after, id=f"set-aside-{after}") for after in (0, 1)),
    *(pytest.param(Committer, "publish", n, after, id=f"publish-{n}-{after}") for n in (1, 2) for after in (0, 1)),
]


@pytest.mark.parametrize(("place", "name", "number", "after"), KILLS)
@pytest.mark.parametrize("reconciles", [False, True], ids=["retry", "reconcile-then-retry"])
def test_whoever_is_killed_when_each_row_is_in_one_of_the_tables_once(
    engine: FakeEngine,
    log: DeltaLog,
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    number: int,
    after: bool,
    reconciles: bool,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(place, name, at_call(number, getattr(place, name), after=after))
        with pytest.raises(KilledError):
            run()
    if reconciles:
        # Nothing is published of which the rest is not in quarantine.
        settled(log)
        assert ids(Path(log.table)) in ([], [1, 2, 2])
        assert ids(Path(log.table)) == [] or apart(log) == BAD
    result = run()
    assert result["status"] in ("published", "skipped", "already_published")
    assert ids(Path(log.table)) == [1, 2, 2]
    assert apart(log) == BAD
    assert settled(log).outcomes[0].status == "already_published"


@pytest.mark.parametrize("dies", [False, True], ids=["first-try", "retry-that-does-not-know-how-many"])
def test_a_check_that_is_not_the_same_twice_neither_loses_nor_doubles_rows(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """As by now the clock has passed the time in it, a row that is in quarantine passes, too."""
    now = {"some rows": CHECKS["some rows"], "not of the future": "id < 3"}

    def before(job: StageJob) -> None:
        if job.source["kind"] == "staged":
            object.__setattr__(job, "where", "true")

    if dies:
        with monkeypatch.context() as patch:
            patch.setattr(work, "audited", killed)
            with pytest.raises(KilledError):
                run(checks=now)
    engine.before = before
    for _ in range(2):
        with pytest.raises(AirflowFailException, match="5 pass the checks, but 1 are in the quarantine"):
            run(checks=now)
    assert [row for row, _, _ in apart(log)] == [5]
    assert settled(log).outcomes[0].status == "missing"
    assert log.snapshot().version == 0
