"""Checks over staged rows: what is published, what is refused, and what a try that is killed leaves for the next one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.buffer import Buffer, read_open_buffer, read_staged
from airflow_provider_onelake.buffers.markers import read_marker
from airflow_provider_onelake.buffers.verdict import Verdict
from airflow_provider_onelake.checks import rows_like_last
from airflow_provider_onelake.choices import PublishMode
from airflow_provider_onelake.exceptions import BufferIncompleteError, ChecksFailedError, SparkJobError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import StageJob, StageResult
from airflow_provider_onelake.steps import write as work
from airflow_provider_onelake.storage.stores import Store
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.reconcile import reconcile
from airflow_provider_onelake.writes.report import Report
from tests.support.contexts import before_reconcile, context_of
from tests.support.engines import FakeEngine
from tests.support.stores import KilledError, killed
from tests.support.tables import ids, local_log

CLEAR: dict[str, Any] = {"clears": 1, "max_tries": 1, "try_number": 2}
GOOD = {"small ids": "id < 10", "some rows": "count(*) > 1"}
BAD = {"small ids": "id < 2", "some rows": "count(*) > 1"}


def write(**arguments: Any) -> OneLakeWriteOperator:
    given = {"task_id": "write", "table": "Tables/trips", "source": SqlSource("SELECT 1"), **arguments}
    return OneLakeWriteOperator(**given)


def run(*, of_load: bool = False, context: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    task = before_reconcile(lambda: write(**arguments)) if of_load else write(**arguments)
    return task.execute(context_of(task, **(context or {})))


def refused(**arguments: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """What a writer whose rows fail a check says, its result in XCom, and its context."""
    return refused_task(before_reconcile(lambda: write(**arguments)))


def refused_task(task: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    context = context_of(task)
    with pytest.raises(AirflowFailException) as error:
        task.execute(context)
    return str(error.value), context["ti"].pushed["return_value"], context


def settled(log: DeltaLog, **terms: Any) -> Report:
    path = next(Path(log.table).glob("staged/*/*/_delta_log")).parent
    load = read_open_buffer(log.store, str(path.relative_to(log.table))).spec.identity.load
    return reconcile(Committer(local_log(Path(log.table))), load, terms.pop("writers", ["write"]), **terms)


def versions(log: DeltaLog) -> list[str]:
    return [entry.get("userMetadata", "") for entry in DeltaTable(log.table).history()]


def test_rows_that_pass_are_published(engine: FakeEngine, log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    result = run(checks=GOOD)
    assert (result["status"], len(engine.staged), engine.checked) == ("published", 1, [])
    assert result["checks"] == [
        {"name": "small ids", "sql": "id < 10", "each_row": True, "met": True, "failed": 0, "passed": True},
        {"name": "some rows", "sql": "count(*) > 1", "each_row": False, "met": True, "failed": None, "passed": True},
    ]
    assert "write 2 rows (2 checks passed)" in versions(log)[0]
    at = caplog.messages.index("check      about     rows failed  result")
    assert [line.split() for line in caplog.messages[at + 1 : at + 3]] == [
        ["small", "ids", "each", "row", "0", "passed"],
        ["some", "rows", "all", "rows", "-", "passed"],
    ]


def test_without_checks_nothing_is_kept_or_asked(engine: FakeEngine, log: DeltaLog) -> None:
    result = run()
    assert "checks" not in result
    assert not list(Path(log.table).glob("staged/*/*/_checked.json"))
    assert engine.staged[0].checks == {}


def test_rows_that_fail_are_warned_of(engine: FakeEngine, log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    task = write(checks=BAD, on_failed_check="warn")
    context = context_of(task)
    result = task.execute(context)
    assert (result["status"], ids(Path(log.table))) == ("published", [1, 2])
    assert [check["passed"] for check in result["checks"]] == [False, True]
    assert context["writer_outcome"] == "published 2 rows in version 1, 1 of 2 checks failed: small ids"
    assert "write 2 rows (1 of 2 checks failed: small ids)" in versions(log)[0]
    assert "fail checks, and are published: 'small ids' (id < 2): not true of 1 row" in caplog.text


def test_rows_that_fail_a_check_are_refused_for_good(engine: FakeEngine, log: DeltaLog) -> None:
    said, result, context = refused(checks=BAD)
    assert said.startswith(
        f"ChecksFailedError: The 2 rows of writer 'write' for Tables/trips fail 1 of 2 checks: 'small ids' (id < 2): "
        "not true of 1 row. Nothing of the writer was published. To look at the rows, read the Delta table "
        f"'{log.table}/staged/write-"
    )
    assert "clear write with its downstream tasks." in said
    assert said.endswith(f"Tables/trips is {log.table}. More: docs/reference/errors.md#checksfailederror")
    assert (result["status"], result["rows"], result["version"]) == ("refused", 2, None)
    assert context["writer_outcome"] == "refused, 1 of 2 checks failed: small ids"
    assert log.snapshot().version == 0
    assert sorted(DeltaTable(f"{log.table}/{result['buffer']}").to_pyarrow_table().column("id").to_pylist()) == [1, 2]
    marker = read_marker(log.store, result["buffer"])
    assert marker is not None
    assert "1 of 2 checks failed: small ids, and on_failed_check is 'refuse'" in marker["reason"]


def test_null_is_not_true(engine: FakeEngine, log: DeltaLog) -> None:
    engine.rows = {None: {}}
    said, result, _ = refused(checks={"large": "max(id) > 0", "each": "id < 0"})
    assert "fail 1 of 2 checks: 'large' (max(id) > 0): it is NULL, which is not true." in said
    assert [(check["met"], check["failed"]) for check in result["checks"]] == [(None, None), (True, 0)]


def test_nobody_publishes_what_is_refused(engine: FakeEngine, log: DeltaLog) -> None:
    _, result, _ = refused(checks=BAD)
    with pytest.raises(ChecksFailedError, match="fail 1 of 2 checks"):
        Committer(local_log(Path(log.table))).publish([read_staged(log.store, result["buffer"])])
    assert log.snapshot().version == 0


def test_rows_without_a_verdict_are_published_by_nobody(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_by(before_the_verdict, monkeypatch, checks=GOOD)
    path = next(Path(log.table).glob("staged/*/*/_delta_log")).parent
    with pytest.raises(BufferIncompleteError, match=r"were not evaluated over .* a retry evaluates them"):
        Committer(local_log(Path(log.table))).publish([read_staged(log.store, str(path.relative_to(log.table)))])
    assert log.snapshot().version == 0


def test_a_later_try_that_passed_counts_beside_one_that_was_refused(engine: FakeEngine, log: DeltaLog) -> None:
    """Its author has corrected the check while the task waited for a retry."""
    refused(publish="together", checks=BAD)
    run(of_load=True, publish="together", checks=GOOD)
    assert settled(log, publish=PublishMode.TOGETHER).outcomes[0].status == "published"
    assert ids(Path(log.table)) == [1, 2]


def test_a_retry_of_what_is_refused_is_refused_without_spark(engine: FakeEngine, log: DeltaLog) -> None:
    first = refused(checks=BAD)[1]
    again = refused(checks=BAD)[1]
    assert (again["buffer"], again["reused"], len(engine.staged), engine.checked) == (first["buffer"], True, 1, [])


def test_a_clear_stages_and_checks_the_rows_again(engine: FakeEngine, log: DeltaLog) -> None:
    refused(checks=BAD)
    engine.rows = {None: {"2019-01": [0, 1]}}
    cleared = run(of_load=True, checks=BAD, context=CLEAR)
    assert (cleared["status"], cleared["reused"]) == ("published", False)
    assert ids(Path(log.table)) == [0, 1]


def test_other_checks_are_other_work(engine: FakeEngine, log: DeltaLog) -> None:
    """In a retry after the author has changed the DAG, and in a clear of rows that are in the table."""
    engine.tells = False
    run(of_load=True, publish="together", checks=GOOD)
    assert refused(publish="together", checks=BAD)[1]["reused"] is False
    assert settled(log, publish=PublishMode.TOGETHER).outcomes[0].status == "refused"
    published = run(of_load=True, checks=GOOD, writer="b")
    assert published["status"] == "published"
    with pytest.raises(AirflowFailException, match="RerunRefusedError: Writer 'b' is in"):
        run(of_load=True, checks=BAD, writer="b", context=CLEAR)
    same = run(of_load=True, checks=GOOD, writer="b", context=CLEAR)
    assert same["status"] == "skipped"


LIKE = {"as many as usual": rows_like_last(3)}
FEBRUARY = {"logical_date": datetime(2019, 2, 1, tzinfo=UTC), "run_id": "manual__2"}


def test_later_loads_are_compared(engine: FakeEngine, log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    engine.rows = {None: {"2019-01": [1, 2, 3, 4]}}
    first = run(checks=LIKE)
    assert (first["status"], first["checks"][0]["passed"]) == ("published", True)
    assert "as many as usual: no earlier load of this writer" in caplog.text
    engine.rows = {None: {"2019-02": [5]}}
    task = write(checks=LIKE)
    context = context_of(task, **FEBRUARY)
    with pytest.raises(AirflowFailException) as error:
        task.execute(context)
    said = "1 row, where 2 to 8 would be like its last load (4 rows)"
    sql = "rows_like_last(3, at_least=0.5, at_most=2.0)"
    assert f"fail 1 of 1 checks: 'as many as usual' ({sql}): {said}. " in str(error.value)
    failed = {"each_row": False, "met": False, "failed": None, "found": said, "passed": False, "done": "refused"}
    (check,) = context["ti"].pushed["return_value"]["checks"]
    assert check == {"name": "as many as usual", "sql": sql, **failed}
    assert (ids(Path(log.table)), [job.checks for job in engine.staged], engine.checked) == ([1, 2, 3, 4], [{}, {}], [])


def test_spark_evaluates_the_conditions_beside_it(engine: FakeEngine, log: DeltaLog) -> None:
    result = run(checks={"small ids": "id < 10", **LIKE, "some rows": "count(*) > 1"})
    assert [check["name"] for check in result["checks"]] == ["small ids", "as many as usual", "some rows"]
    assert engine.staged[0].checks == {"small ids": "id < 10", "some rows": "count(*) > 1"}
    assert "write 2 rows (3 checks passed)" in versions(log)[0]


def test_a_clear_is_not_compared_with_itself(engine: FakeEngine, log: DeltaLog) -> None:
    engine.rows = {None: {"2019-01": [1, 2, 3, 4]}}
    run(of_load=True, checks=LIKE, on_rerun="replace")
    engine.rows = {None: {"2019-01": [1]}}
    assert run(of_load=True, checks=LIKE, on_rerun="replace", context=CLEAR)["status"] == "published"
    assert ids(Path(log.table)) == [1]


def test_the_verdict_of_before_counts_when_loads_came_since(engine: FakeEngine, log: DeltaLog) -> None:
    """A load that another run publishes between two tries must not make the second one decide otherwise."""
    engine.rows = {None: {"2019-01": [1, 2, 3, 4]}}
    run(checks=LIKE)
    engine.rows = {None: {"2019-02": [5, 6]}}
    task = before_reconcile(lambda: write(checks=LIKE, publish="together"))
    assert task.execute(context_of(task, **FEBRUARY))["status"] == "staged"
    engine.rows = {None: {"2019-03": list(range(10, 20))}}
    march = {"logical_date": datetime(2019, 3, 1, tzinfo=UTC), "run_id": "manual__3"}
    run(context=march)
    again = task.execute(context_of(task, try_number=2, **FEBRUARY))
    assert (again["status"], again["reused"], again["checks"][0]["passed"]) == ("staged", True, True)


def test_without_statistics_spark_counts(engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Buffer, "rows", None)
    result = run(checks=LIKE)
    assert (result["status"], [job.checks for job in engine.checked]) == ("published", [{}])


def after(function: Callable[..., Any]) -> Callable[..., Any]:
    def killed(*given: Any, **named: Any) -> Any:
        function(*given, **named)
        raise KilledError

    return killed


def after_staging(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FakeEngine, "stage", after(FakeEngine.stage))


def before_the_verdict(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(work, "audited", killed)


def after_the_verdict(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(work, "audited", after(work.audited))


def after_the_marker(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(work, "set_aside", after(work.set_aside))


def before_it_publishes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Committer, "publish", killed)


def killed_by(kill: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, **terms: Any) -> None:
    with monkeypatch.context() as patch:
        kill(patch)
        with pytest.raises(KilledError):
            run(**terms)


KILLS = [after_staging, before_the_verdict, after_the_verdict]


@pytest.mark.parametrize("kill", [*KILLS, before_it_publishes], ids=lambda kill: kill.__name__)
def test_good_rows_of_a_killed_try_are_checked_before_they_are_published_once(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch, kill: Callable[[pytest.MonkeyPatch], None]
) -> None:
    killed_by(kill, monkeypatch, of_load=True, checks=GOOD)
    has_verdict = kill in (after_the_verdict, before_it_publishes)
    assert log.snapshot().version == 0
    result = run(of_load=True, checks=GOOD)
    assert (result["status"], result["reused"]) == ("published", True)
    # The rows are not staged again; without a verdict, the checks are evaluated over what is there.
    assert (len(engine.staged), len(engine.checked)) == (1, 0 if has_verdict else 1)
    assert ids(Path(log.table)) == [1, 2]


@pytest.mark.parametrize("kill", [*KILLS, after_the_marker], ids=lambda kill: kill.__name__)
def test_bad_rows_of_a_killed_try_are_published_by_nobody(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch, kill: Callable[[pytest.MonkeyPatch], None]
) -> None:
    killed_by(kill, monkeypatch, of_load=True, checks=BAD)
    has_verdict = kill in (after_the_verdict, after_the_marker)
    report = settled(log)
    assert report.outcomes[0].status == ("refused" if has_verdict else "missing")
    assert log.snapshot().version == 0
    said, result, _ = refused(checks=BAD)
    assert "'small ids' (id < 2): not true of 1 row" in said
    assert (result["reused"], len(engine.staged), len(engine.checked)) == (True, 1, 0 if has_verdict else 1)
    assert settled(log).outcomes[0].status == "refused"
    assert log.snapshot().version == 0


@pytest.mark.parametrize("checks", [GOOD, BAD], ids=["good", "bad"])
def test_reconcile_publishes_the_rows_of_a_dead_writer_only_if_they_passed(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch, checks: dict[str, str]
) -> None:
    killed_by(after_the_verdict, monkeypatch, of_load=True, checks=checks)
    assert settled(log).outcomes[0].status == ("published" if checks is GOOD else "refused")
    assert ids(Path(log.table)) == ([1, 2] if checks is GOOD else [])


def test_of_two_verdicts_the_first_counts(engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check such as rand() < 0.5 must not make two processes decide otherwise."""
    real = work.audited

    def late(store: Store, buffer: Buffer, verdict: Verdict) -> Buffer:
        other = [attrs.evolve(check, met=False, failed=2) for check in verdict.results]
        assert real(store, buffer, attrs.evolve(verdict, results=tuple(other))).refused
        return real(store, buffer, verdict)

    monkeypatch.setattr(work, "audited", late)
    said, _, _ = refused(checks=GOOD)
    assert "fail 2 of 2 checks" in said


def test_a_job_without_verdict_is_asked(engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.tells = False
    assert run(checks=GOOD)["status"] == "published"
    (job,) = engine.checked
    assert (job.checks, job.by, job.metadata["partitionColumns"]) == (GOOD, None, ["month"])
    monkeypatch.setattr(
        FakeEngine, "audit", lambda self, job: StageResult(engine="x", reads_target=False, checks={"": {"rows": 2}})
    )
    with pytest.raises(SparkJobError, match="did not say whether the rows of writer other of task"):
        run(checks=GOOD, writer="other", on_rerun="append")


def test_checks_of_other_rows_are_no_verdict(engine: FakeEngine, log: DeltaLog) -> None:
    """Such as of a Spark that sees another store."""
    stage = engine.stage

    def elsewhere(job: StageJob) -> StageResult:
        done = stage(job)
        done.checks[""]["rows"] = 5  # type: ignore[index]
        return done

    engine.stage = elsewhere  # type: ignore[method-assign]
    with pytest.raises(AirflowFailException, match=r"were evaluated over 5 rows, and its buffer .* has 2"):
        run(checks=GOOD)
    assert log.snapshot().version == 0


def two_writers(**group: Any) -> DAG:
    """A load of which one writer's rows are refused."""
    with DAG("taxi", schedule=None) as dag, OneLakeWriteTaskGroup(group_id="load", table="Tables/trips", **group):
        OneLakeWriteOperator(task_id="good", source=SqlSource("SELECT 1"), checks={"small ids": "id < 10"})
        OneLakeWriteOperator(task_id="bad", source=SqlSource("SELECT 1"), checks={"small ids": "id < 2"})
    good: Any = dag.get_task("load.good")
    good.execute(context_of(good))
    refused_task(dag.get_task("load.bad"))
    return dag


def test_a_refused_writer_does_not_stop_others_that_publish_for_themselves(engine: FakeEngine, log: DeltaLog) -> None:
    two_writers()
    report = settled(log, writers=["good", "bad"])
    assert [outcome.status for outcome in report.outcomes] == ["already_published", "refused"]
    assert (report.missing, ids(Path(log.table))) == ((), [1, 2])
    assert report.outcomes[1].rows_staged == 2
    with pytest.raises(ChecksFailedError, match=r"writer 'bad' .* clear load.bad with its downstream tasks"):
        report.raise_for_failures()


def test_a_refused_writer_stops_a_load_that_is_published_together(engine: FakeEngine, log: DeltaLog) -> None:
    dag = two_writers(publish="together")
    report = settled(log, writers=["good", "bad"], publish=PublishMode.TOGETHER)
    assert [outcome.status for outcome in report.outcomes] == ["held_back", "refused"]
    assert log.snapshot().version == 0
    with pytest.raises(ChecksFailedError):
        report.raise_for_failures()
    # The source is mended and the bad one cleared: both are published, and the good one does not run again.
    engine.rows = {None: {"2019-01": [0, 1]}}
    bad: Any = dag.get_task("load.bad")
    assert bad.execute(context_of(bad, **CLEAR))["status"] == "staged"
    report = settled(log, writers=["good", "bad"], publish=PublishMode.TOGETHER)
    assert [outcome.status for outcome in report.outcomes] == ["published", "published"]
    assert ids(Path(log.table)) == [0, 1, 1, 2]
