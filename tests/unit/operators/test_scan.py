"""The task of a shared scan: what it gives to Spark, what the writers then do, and when it leaves them alone."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, TaskDeferred
from airflow.sdk import DAG, Asset, Label, chain

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.buffers.layout import share_path
from airflow_provider_onelake.buffers.markers import read_marker
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import ReplaceWhere
from airflow_provider_onelake.operators.scan import OneLakeScanOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable, Tuning
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.spark.base import StageJob, StageResult
from airflow_provider_onelake.spark.jobs.stage import CLAIMED_TWICE
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from airflow_provider_onelake.writes.publish import Committer
from tests.support import tables
from tests.support.contexts import JANUARY, connect, context_of, delete_runs
from tests.support.engines import FakeEngine, use_engine

SOURCE = SqlSource("SELECT * FROM trips")
WRITERS = [{"writer": "a", "where": "id = 1"}, {"writer": "b", "where": "id = 2"}]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    return use_engine(monkeypatch, FakeEngine({"id = 1": {"2019-01": [1]}, "id = 2": {"2019-02": [2, 3]}}))


def mapped(items: Any = None, **partial: Any) -> Callable[[], Any]:
    def inside() -> Any:
        task = OneLakeWriteOperator.partial(**{"task_id": "write", "source": SOURCE, **partial})
        return task.expand_kwargs(WRITERS if items is None else items)

    return inside


def both(**each: Any) -> Callable[[], Any]:
    def inside() -> Any:
        for writer in WRITERS:
            OneLakeWriteOperator(task_id=writer["writer"], **{"source": SOURCE, "where": writer["where"], **each})

    return inside


def build(inside: Callable[[], Any], **group: Any) -> DAG:
    settings = {"group_id": "load", "table": "Tables/trips", **group}
    with DAG("taxi", schedule=None) as dag, OneLakeWriteTaskGroup(**settings):
        inside()
    return dag


def scan(dag: DAG, **context: Any) -> dict[str, Any]:
    task: Any = dag.get_task("load.scan")
    result: dict[str, Any] = task.execute(context_of(task, **context))
    return result


def write(dag: DAG, key: str, scanned: dict[str, Any] | None = None, **context: Any) -> dict[str, Any]:
    """Run a writer in a run in which the scan has left a result, or none."""
    task: Any = dag.get_task(f"load.{key}")
    return task.execute(context_of(task, pulled={"return_value": [scanned] if scanned else []}, **context))


def test_writers_publish_what_one_job_has_read(log: DeltaLog, engine: FakeEngine) -> None:
    dag = build(both())
    done = scan(dag)
    told = [done[name] for name in ("status", "rows", "files", "writers", "reused")]
    assert told == ["shared", 3, 2, 2, False]
    for key in "ab":
        written = write(dag, key, done)
        assert (written["status"], written["buffer"].startswith(done["scan"])) == ("published", True)
    assert tables.ids(log.table) == [1, 2, 3]
    job, *others = engine.staged
    assert others == []
    assert (list(job.routes.values()), job.where) == (["id = 1", "id = 2"], "(\nid = 1\n) OR (\nid = 2\n)")


CHECKS = {"small ids": "id < 3", "some": "count(*) > 0"}


def test_the_scan_checks_the_rows_of_each_writer(log: DeltaLog, engine: FakeEngine) -> None:
    dag = build(both(), checks=CHECKS)
    done = scan(dag)
    assert (engine.staged[0].checks, engine.checked) == (CHECKS, [])
    found = {"name": "small ids", "sql": "id < 3", "each_row": True, "met": True, "failed": 0, "passed": True}
    assert write(dag, "a", done)["checks"][0] == found
    with pytest.raises(AirflowFailException, match=r"2 rows of writer 'b' .*'small ids' \(id < 3\): not true of 1 row"):
        write(dag, "b", done)
    # Neither the scan's nor the writers' tasks asked Spark for anything else, and a retry finds the same verdict.
    with pytest.raises(AirflowFailException, match="not true of 1 row"):
        write(dag, "b", done, try_number=2)
    assert (len(engine.staged), engine.checked, tables.ids(log.table)) == (1, [], [1])


def test_a_writer_without_rows_is_checked_too(log: DeltaLog, engine: FakeEngine) -> None:
    engine.rows = {"id = 1": {"2019-01": [1]}, "id = 2": {}}
    dag = build(both(), checks=CHECKS)
    done = scan(dag)
    assert write(dag, "a", done)["status"] == "published"
    with pytest.raises(AirflowFailException, match=r"0 rows of writer 'b' .*'some' \(count\(\*\) > 0\): it is false"):
        write(dag, "b", done)
    assert engine.checked == []


def test_a_retry_of_the_scan_evaluates_the_checks_of_what_is_there(log: DeltaLog, engine: FakeEngine) -> None:
    dag = build(both(), checks=CHECKS)
    engine.tells = False
    scan(dag)
    done = scan(dag, try_number=2)
    assert (done["reused"], len(engine.staged), [job.by for job in engine.checked]) == (True, 1, ["onelake_writer"])
    assert write(dag, "a", done)["status"] == "published"
    assert len(engine.checked) == 1


def test_a_retry_finds_what_an_earlier_try_did_and_a_clear_scans_again(log: DeltaLog, engine: FakeEngine) -> None:
    dag = build(both())
    first = scan(dag)
    again = scan(dag, try_number=2)
    assert (again["reused"], again["scan"], len(engine.staged)) == (True, first["scan"], 1)
    cleared = scan(dag, try_number=3, max_tries=2, clears=1)
    assert (cleared["reused"], cleared["scan"] != first["scan"], len(engine.staged)) == (False, True, 2)


def test_a_driver_left_at_work_is_ended(log: DeltaLog, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    own, killed = uuid.uuid4(), []
    monkeypatch.setattr(FakeEngine, "outlives_the_task", True)
    monkeypatch.setattr(FakeEngine, "left_at_work", lambda *_: ["earlier", str(own)])
    monkeypatch.setattr(FakeEngine, "kill", lambda self, table_uri, attempt, doing: killed.append((attempt, doing)))
    assert scan(build(both()), id=own)["status"] == "shared"
    assert killed == [("earlier", StageJob.doing)]
    assert engine.staged[0].attempt == str(own)


def test_what_the_group_expects_counts_for_mapped_writers_too(log: DeltaLog, engine: FakeEngine) -> None:
    dag = build(mapped(), mode=ReplaceWhere("month > '{{ ds }}'"), expected_partitions="month > 'a'")
    task: Any = dag.get_task("load.scan")
    mode = ReplaceWhere("month > '{{ ds }}'")
    assert task.writers[0]["equal"] == {"mode": mode, "expected_partitions": "month > 'a'"}
    assert not task.skips


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        pytest.param([{**WRITERS[0], "files": ["x"]}, WRITERS[1]], "differ in files", id="files"),
        pytest.param([{"writer": "a"}, WRITERS[1]], "no filter", id="no-filter"),
        pytest.param([WRITERS[0], WRITERS[0]], "same key", id="one-key"),
        pytest.param([WRITERS[0]], "only 1", id="one-writer"),
        pytest.param([WRITERS[0], {"writer": "b", "where": "id < 2"}], "rows in common", id="overlap"),
    ],
)
def test_what_a_list_says_may_not_be_shared(engine: FakeEngine, tmp_path: Path, items: list[Any], reason: str) -> None:
    dag = build(mapped())
    task: Any = dag.get_task("load.scan")
    task.writers = [{"task_id": "load.write", "equal": {}, "items": items}]
    for there in (False, True):
        if there:
            tables.make_table(tmp_path / "Tables" / "trips")
        done = scan(dag)
        assert done["status"] == "not_shared"
        assert reason in done["reason"]
        assert (engine.analyzed, engine.staged) == ([], [])
        assert (tmp_path / "Tables" / "trips" / "_delta_log").exists() == there


def test_without_a_table_the_scan_makes_it_as_its_writers_would(engine: FakeEngine, tmp_path: Path) -> None:
    properties = {"delta.logRetentionDuration": "interval 9 days"}
    dag = build(both(), partition_by="month", new_table=NewTable(schema="x INT", properties=properties))
    done = scan(dag)
    assert (done["status"], done["rows"]) == ("shared", 3)
    (analyzed,) = engine.analyzed
    assert (analyzed.schema, analyzed.buffer_uri, analyzed.routes) == ("x INT", None, {})
    assert [write(dag, key, done)["status"] for key in "ab"] == ["published", "published"]
    assert (len(engine.analyzed), len(engine.staged), tables.ids(tmp_path / "Tables" / "trips")) == (1, 1, [1, 2, 3])
    made = tables.commit_of(tables.local_log(tmp_path / "Tables" / "trips"), 0)
    assert made.metadata is not None
    assert made.metadata["partitionColumns"] == ["month"]
    assert made.metadata["configuration"] == properties
    assert (made.user_metadata or "").endswith(": shared scan")


def test_without_a_table_the_first_writer_of_a_scan_makes_it(engine: FakeEngine, tmp_path: Path) -> None:
    dag = build(both(), partition_by="month")
    done = scan(dag)
    assert not (tmp_path / "Tables" / "trips" / "_delta_log").exists()
    assert scan(dag, try_number=2)["reused"]
    assert [write(dag, key, done)["version"] for key in "ab"] == [0, 1]
    # The table's columns are those that the scan has seen, so no writer asks Spark for them.
    assert (len(engine.analyzed), len(engine.staged), tables.ids(tmp_path / "Tables" / "trips")) == (2, 1, [1, 2, 3])


def upstream() -> Any:
    from airflow.providers.standard.operators.empty import EmptyOperator

    return EmptyOperator(task_id="before")


STEPS = {"dated": "SELECT *, id + 1 AS next FROM source"}


def test_steps_that_see_other_rows(log: DeltaLog, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    why = "a step does not treat every row by itself: Spark plans Window for it"

    def refused(job: StageJob) -> StageResult:
        return StageResult(engine="fake", reads_target=False, why_not_shared=why)

    with monkeypatch.context() as patched:
        patched.setattr(engine, "stage", refused)
        assert scan(build(both(steps=STEPS)))["reason"] == why
    assert write(build(both(steps=STEPS)), "a")["rows"] == 1


def test_a_source_that_only_the_writers_wait_for_is_not_read(log: DeltaLog, engine: FakeEngine) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    dag = build(both())
    with dag:
        EmptyOperator(task_id="extract") >> dag.get_task("load.b")
    assert "waits for extract" in scan(dag)["reason"]


def raising(error: Exception) -> Callable[..., None]:
    def before(*_: Any) -> None:
        raise error

    return before


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(errors.ConstraintViolatedError("small"), id="a-bad-row"),
        pytest.param(errors.SparkQueryError(CLAIMED_TWICE), id="a-row-of-two"),
        pytest.param(errors.SparkJobTimeoutError("too long"), id="longer-than-a-writer-may-take"),
    ],
)
def test_what_no_retry_mends_is_left_to_the_writers(log: DeltaLog, engine: FakeEngine, error: Exception) -> None:
    engine.before = raising(error)
    assert scan(build(both()), max_tries=2)["status"] == "not_shared"


@pytest.mark.parametrize("retries", [0, 2])
def test_the_last_try_is_for_a_worker_that_dies(log: DeltaLog, engine: FakeEngine, retries: int) -> None:
    dag = build(both(retries=retries))
    tries = dag.get_task("load.scan").retries
    assert tries == retries + 1
    engine.before = raising(errors.SparkUnavailableError("away"))
    for attempt in range(1, retries + 1):
        with pytest.raises(errors.SparkUnavailableError):
            scan(dag, max_tries=tries, try_number=attempt)
    for attempt in (retries + 1, retries + 2):
        assert scan(dag, max_tries=tries, try_number=attempt)["reason"] == "away"


@pytest.mark.parametrize("where", ["id = {{ task.writer }}", "id = {{ [1][ti.map_index + 5] }}", "{% broken"])
def test_a_template_that_only_a_writer_can_render(log: DeltaLog, engine: FakeEngine, where: str) -> None:
    dag = build(both())
    task: Any = dag.get_task("load.scan")
    task.writers[1]["items"][0]["where"] = where
    context = context_of(task)
    task.render_template_fields(context)
    done = task.execute(context)
    assert (done["status"], done["table"], engine.staged) == ("not_shared", "Tables/trips", [])
    assert "cannot be rendered" in done["reason"]


@pytest.mark.parametrize("table", ["Tables/{{ trips", "ftp://nowhere", "Tables/trips"])
def test_an_error_is_the_writers(
    engine: FakeEngine, capfd: pytest.CaptureFixture[str], log: DeltaLog, table: str
) -> None:
    engine.before = raising(ZeroDivisionError("once"))
    done = scan(build(both(), table=table), max_tries=2)
    assert done["status"] == "not_shared"
    if table == "Tables/trips":
        assert done["reason"] == "ZeroDivisionError: once"
        assert "Traceback" in "".join(capfd.readouterr())


@pytest.mark.parametrize("error", [errors.SparkJobError("Stopped, as asked."), RuntimeError("closed")])
def test_a_scan_that_is_stopped_does_not_succeed(log: DeltaLog, engine: FakeEngine, error: Exception) -> None:
    dag = build(both())
    task: Any = dag.get_task("load.scan")

    def stopped(job: StageJob) -> None:
        task.on_kill()
        raise error

    engine.before = stopped
    with pytest.raises(AirflowException, match="was stopped"):
        scan(dag)


RUN = {"began": JANUARY.isoformat(), "clears": 0}
NEWER = {"id = 1": {"2019-01": [10]}, "id = 2": {"2019-02": [20, 30]}}
# The run was cleared once: the second start of a task without retries.
CLEARED: dict[str, Any] = {"try_number": 2, "max_tries": 1, "clears": 1}


@attrs.define
class Cluster(FakeEngine):
    """Leaves the wait for a job to the triggerer; asked again by the same attempt, it returns the job's result."""

    results: dict[str, StageResult] = attrs.field(factory=dict)

    def stage(self, job: StageJob) -> StageResult:
        if job.attempt in self.results:
            return self.results[job.attempt]
        self.results[job.attempt] = super().stage(job)
        raise TaskDeferred(trigger=None, method_name="resume")


def not_shared(log: DeltaLog, dag: DAG, **context: Any) -> dict[str, Any]:
    """The scan, after the table has got a column that one more partition column would meet."""
    schema = json.loads(tables.newest(log).metadata["schemaString"])
    schema["fields"].append({"name": "onelake_writer", "type": "string", "nullable": True, "metadata": {}})
    tables.change_metadata(log, schemaString=json.dumps(schema))
    done = scan(dag, **context)
    assert done["status"] == "not_shared"
    return done


@pytest.mark.parametrize("rows", [pytest.param(1, id="rows"), pytest.param(0, id="no-rows")])
def test_a_file_that_comes_while_the_driver_is_at_work_loses_no_rows(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: int, engine: FakeEngine
) -> None:
    before = engine.rows if rows else {key: {} for key in engine.rows}
    cluster = use_engine(monkeypatch, Cluster(before))
    (tmp_path / "first.json").touch()
    dag, own = build(both(source=FileSource(str(tmp_path / "*.json"), format="json"))), uuid.uuid4()
    with pytest.raises(TaskDeferred):
        scan(dag, id=own)
    (tmp_path / "second.json").touch()
    done = scan(dag, id=own)
    assert done["status"] == "not_shared"
    assert "changed while Spark was at work" in done["reason"]
    writing = use_engine(monkeypatch, FakeEngine(NEWER))
    for key in "ab":
        assert write(dag, key, done)["status"] == "published"
    assert tables.ids(tmp_path / "Tables" / "trips") == [10, 20, 30]
    assert (len(cluster.staged), len(writing.staged)) == (1, 2)


def test_a_driver_without_rows_has_a_result(log: DeltaLog, monkeypatch: pytest.MonkeyPatch, engine: FakeEngine) -> None:
    use_engine(monkeypatch, Cluster({key: {} for key in engine.rows}))
    dag, own = build(both()), uuid.uuid4()
    with pytest.raises(TaskDeferred):
        scan(dag, id=own)
    done = scan(dag, id=own)
    assert (done["status"], done["rows"]) == ("shared", 0)
    assert write(dag, "a", done)["rows"] == 0


def test_what_an_engine_says_or_not(log: DeltaLog, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.reads_target = True
    assert "reads the table" in scan(build(both()))["reason"]
    assert [info for info in log.store.list("staged") if info.path.endswith("_scan.json")] == []
    monkeypatch.setattr(FakeEngine, "stage", lambda self, job: StageResult(reads_target=False, engine="another"))
    assert scan(build(both()), **CLEARED)["status"] == "not_shared"


@pytest.mark.parametrize("cleared", [True, False], ids=["cleared", "run-made-again"])
def test_a_scan_that_shares_nothing_now_takes_its_offer_back(log: DeltaLog, engine: FakeEngine, cleared: bool) -> None:
    dag = build(both())
    scan(dag)
    if not cleared:
        delete_runs()
    engine.rows = NEWER
    done = not_shared(log, dag, **(CLEARED if cleared else {}))
    for key in "ab":
        # Writers that had not begun: their first start.
        assert "onelake_writer" not in write(dag, key, done, **({"clears": 1} if cleared else {}))["buffer"]
    assert tables.ids(log.table) == [10, 20, 30]


def test_a_retry_of_a_writer_scans_for_itself_if_the_cleared_scan_shares_nothing(
    log: DeltaLog, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = build(both())
    first = scan(dag)
    with monkeypatch.context() as broken:
        away = raising(errors.StoreUnavailableError("away"))
        broken.setattr("airflow_provider_onelake.buffers.scan.read_rows", away)
        with pytest.raises(errors.StoreUnavailableError):
            write(dag, "a", first, max_tries=1)
    engine.rows = NEWER
    done = not_shared(log, dag, **CLEARED)
    write(dag, "a", done, max_tries=1, try_number=2, clears=1)
    assert tables.ids(log.table) == [10]


@pytest.mark.parametrize("whole", [True, False], ids=["the whole load", "one writer"])
def test_what_is_cleared_is_read_again_a_load_by_one_job(log: DeltaLog, engine: FakeEngine, whole: bool) -> None:
    dag = build(both(on_rerun="replace"))
    done = scan(dag)
    for key in "ab":
        write(dag, key, done)
    engine.rows = NEWER
    again = scan(dag, **CLEARED) if whole else done
    for key in "ab" if whole else "a":
        assert write(dag, key, again, **CLEARED)["buffer"].startswith(again["scan"]) is whole
    assert (tables.ids(log.table), len(engine.staged)) == ([10, 20, 30] if whole else [2, 3, 10], 2)


@pytest.mark.parametrize(
    ("keeps", "clears"), [pytest.param(False, 0, id="skipped"), pytest.param(True, 1, id="marked-by-hand")]
)
def test_a_scan_not_run_since_the_clear_offers_nothing(
    log: DeltaLog, engine: FakeEngine, keeps: bool, clears: int
) -> None:
    dag = build(both())
    done = scan(dag)
    engine.rows = NEWER
    for key in "ab":
        write(dag, key, done if keeps else None, clears=clears)
    assert tables.ids(log.table) == [10, 20, 30]


def test_a_zombie_scan_that_ends_last_gives_nothing(log: DeltaLog, engine: FakeEngine) -> None:
    dag, newer = build(both()), []

    def overtaken(job: StageJob) -> None:
        engine.before, engine.rows = (lambda job: None), NEWER
        newer.append(scan(dag, **CLEARED))
        engine.rows = {"id = 1": {"2019-01": [1]}, "id = 2": {"2019-02": [2, 3]}}

    engine.before = overtaken
    older = scan(dag)
    assert older["scan"] != newer[0]["scan"]
    for key in "ab":
        assert write(dag, key, newer[0], clears=1)["buffer"].startswith(newer[0]["scan"])
    assert tables.ids(log.table) == [10, 20, 30]


def test_a_zombie_scan_of_a_deleted_run_gives_nothing(log: DeltaLog, engine: FakeEngine) -> None:
    dag = build(both())
    older = scan(dag, began=JANUARY - timedelta(hours=1))
    delete_runs()
    engine.rows = NEWER
    assert scan(dag)["status"] == "shared"
    for key in "ab":
        # What the zombie pushed last is what the new run's writers pull.
        write(dag, key, older)
    assert tables.ids(log.table) == [10, 20, 30]


def test_writers_of_a_mapped_task_adopt_each_its_own(log: DeltaLog, engine: FakeEngine) -> None:
    dag = build(mapped())
    done = scan(dag)
    task: Any = dag.get_task("load.write")
    for index, item in enumerate(WRITERS):
        context = context_of(task, map_index=index, pulled={"return_value": [done]})
        context["task"] = task.unmap(item)
        assert context["task"].execute(context)["buffer"].startswith(done["scan"])
    assert tables.ids(log.table) == [1, 2, 3]
    assert len(engine.staged) == 1


def test_a_file_after_the_scan_is_read_by_each_writer(log: DeltaLog, engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "first.json").touch()
    dag = build(both(source=FileSource(str(tmp_path / "*.json"), format="json")))
    done = scan(dag)
    write(dag, "a", done)
    (tmp_path / "second.json").touch()
    engine.rows = NEWER
    write(dag, "b", done)
    assert tables.ids(tmp_path / "Tables" / "trips") == [1, 20, 30]


POLICIES = ["last_writer_wins", "first_writer_wins", "fail"]


def of_another_load(log: DeltaLog) -> None:
    """It finishes later than everything else, and replaces the partition of a."""
    buffer = tables.stage(log, tables.writer_spec("x", tables.EARLIER_LOAD, **tables.OVERWRITE), {"2019-01": [100]})
    Committer(log).publish([tables.finished_at(log, buffer, datetime.now(UTC) + timedelta(hours=1))])


@pytest.mark.parametrize("policy", POLICIES)
def test_a_writer_that_waited_while_another_load_wrote_reads_the_source_again_and_has_no_conflict(
    log: DeltaLog, engine: FakeEngine, policy: str
) -> None:
    dag = build(both(), mode="overwrite_partitions", on_conflict=policy)
    done = scan(dag)
    of_another_load(log)
    engine.rows = NEWER
    first, other = write(dag, "a", done), write(dag, "b", done)
    assert (first["status"], first["decisions"]) == ("published", [])
    assert "onelake_writer" not in first["buffer"]
    assert "since the shared scan, version 1 (x of " in str(read_marker(log.store, share(done, "a")))
    assert (other["status"], other["buffer"]) == ("published", share(done, "b"))
    assert tables.ids(log.table) == [2, 3, 10]


def share(done: dict[str, Any], key: str) -> str:
    """The buffer of a writer that adopts its rows of the scan."""
    return share_path(done["scan"], Load("test", "taxi", "load", JANUARY.isoformat()).writer(key).directory)


@pytest.mark.parametrize(
    "result",
    [
        pytest.param({"status": "shared", "run": RUN}, id="no-path"),
        pytest.param({"status": "shared", "run": RUN, "scan": 7}, id="no-text"),
        pytest.param({"status": "shared", "run": RUN, "scan": "staged/scan-0"}, id="nothing-there"),
        pytest.param({"status": "shared", "run": RUN, "scan": "../trips"}, id="elsewhere"),
    ],
)
def test_a_result_that_names_no_scan_offers_nothing(log: DeltaLog, engine: FakeEngine, result: dict[str, Any]) -> None:
    dag = build(both())
    scan(dag)
    assert "onelake_writer" not in write(dag, "a", result)["buffer"]


def of_other_steps() -> None:
    for n, name in enumerate("ab"):
        steps = {"s": f"SELECT *, {n} AS n FROM source"}
        OneLakeWriteOperator(task_id=name, source=SOURCE, where=f"id = {n}", steps=steps)


@pytest.mark.parametrize(
    ("inside", "group"),
    [
        pytest.param(mapped(), {"shared_scan": False}, id="switched-off"),
        pytest.param(both(steps={"s": "SELECT id FROM source"}), {}, id="steps-without-all-columns"),
        pytest.param(both(steps={"s": "SELECT *, count(*) OVER (PARTITION BY id) AS n FROM source"}), {}, id="window"),
        pytest.param(of_other_steps, {}, id="other-steps"),
        pytest.param(lambda: both(steps=upstream().output)(), {}, id="steps-of-a-task"),
        pytest.param(mapped([{**WRITERS[0], "checks": CHECKS}, WRITERS[1]]), {}, id="other-checks"),
        pytest.param(mapped([{**WRITERS[0], "checks": {}}, WRITERS[1]]), {"checks": CHECKS}, id="checks-but-for-one"),
        pytest.param(both(where=None), {}, id="no-filters"),
        pytest.param(both(trigger_rule="all_done"), {}, id="trigger-rule"),
        pytest.param(both(planned={"max_bytes": 5}), {}, id="max-bytes"),
        pytest.param(both(params={"country": "DE"}), {}, id="params"),
        pytest.param(mapped(params={"country": "DE"}), {}, id="params-of-a-mapped-task"),
        pytest.param(both(depends_on_past=True), {}, id="depends-on-past"),
        pytest.param(both(), {"schema_evolution": "add_columns"}, id="evolution"),
        pytest.param(mapped([WRITERS[0]]), {}, id="one-writer"),
        pytest.param(mapped([{**WRITERS[0], "source": SOURCE}, WRITERS[1]]), {}, id="sources"),
        pytest.param(
            lambda: [OneLakeWriteOperator(task_id=name, source=FileSource(f"/{name}"), where="x = 1") for name in "ab"],
            {},
            id="other-sources",
        ),
    ],
)
def test_no_scan(inside: Callable[[], Any], group: dict[str, Any]) -> None:
    assert "load.scan" not in build(inside, **group).task_ids


def before_the_group(kind: Callable[[Any], Any], before: Callable[[Any, Any], Any], inside: Any = both) -> DAG:
    from airflow.providers.standard.operators.empty import EmptyOperator

    with DAG("taxi", schedule=None) as dag:
        with OneLakeWriteTaskGroup(group_id="load", table="/t") as group:
            inside()()
        EmptyOperator(task_id="extract") >> group
        before(kind(lambda: ["load.a"]), group)
        EmptyOperator(task_id="late") >> group
    return dag


def branch_operator(choose: Any) -> Any:
    from airflow.providers.standard.operators.python import BranchPythonOperator

    return BranchPythonOperator(task_id="chosen", python_callable=choose)


def branch_function(choose: Any) -> Any:
    from airflow.sdk import task

    return task.branch(choose, task_id="chosen")()


def branch_group(choose: Any) -> Any:
    from airflow.sdk import TaskGroup

    with TaskGroup("first", prefix_group_id=False) as group:
        branch_operator(choose)
    return group


@pytest.mark.parametrize("kind", [branch_operator, branch_function, branch_group])
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(lambda branch, group: branch >> group, id="downstream"),
        pytest.param(lambda branch, group: group << branch, id="upstream"),
        pytest.param(lambda branch, group: branch >> [group], id="list"),
        pytest.param(lambda branch, group: branch >> Label("some") >> group, id="label"),
        pytest.param(lambda branch, group: chain(branch, group), id="chain"),
    ],
)
def test_behind_a_branch_each_writer_scans_for_itself(kind: Any, before: Any) -> None:
    dag = before_the_group(kind, before)
    assert "load.scan" not in dag.task_ids
    for task in dag.tasks:
        assert {*task.upstream_task_ids, *task.downstream_task_ids} <= set(dag.task_ids)
    for name in "ab":
        assert dag.get_task(f"load.{name}").upstream_task_ids == {"extract", "chosen", "late"}
        assert f"load.{name}" in dag.get_task("chosen").downstream_task_ids
    dag.check_cycle()


@pytest.mark.parametrize("outside", [True, False])
def test_writers_in_a_mapped_task_group_do_not_share(outside: bool) -> None:
    from airflow.sdk import task_group

    def load(day: Any) -> None:
        for writer in WRITERS:
            OneLakeWriteOperator(task_id=writer["writer"], source=SOURCE, where=f"{writer['where']} AND day = '{day}'")

    with DAG("taxi", schedule=None) as dag:
        if outside:

            @task_group(group_id="days")
            def days(day: Any) -> None:
                with OneLakeWriteTaskGroup(group_id="load", table="/t"):
                    load(day)

            days.expand(day=["1", "2"])
        else:
            with OneLakeWriteTaskGroup(group_id="load", table="/t"):
                task_group(group_id="days")(load).expand(day=["1", "2"])
    assert [name for name in dag.task_ids if name.endswith("scan")] == []
    assert len([name for name in dag.task_ids if name.endswith((".a", ".b"))]) == 2


MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("spark_timeout", "execution_timeout", "longest"),
    [(None, None, None), (60, None, 60), (2 * MINUTE, MINUTE, 60), (None, 3 * MINUTE, 180)],
)
def test_a_writers_time_limits_the_scans_job(spark_timeout: Any, execution_timeout: Any, longest: float | None) -> None:
    dag = build(both(execution_timeout=execution_timeout), spark_timeout=spark_timeout)
    task: Any = dag.get_task("load.scan")
    assert (task.spark_timeout, task.execution_timeout) == (longest, None)


@pytest.mark.parametrize("inside", [both, mapped])
def test_airflow_runs_the_scan_where_it_runs_the_writers(inside: Any) -> None:
    given = {"queue": "spark", "pool_slots": 2, "retry_delay": timedelta(seconds=9), "run_as_user": "etl"}
    task: Any = build(inside(**given, retries=4, executor_config={"x": 1})).get_task("load.scan")
    assert {name: getattr(task, name) for name in given} == given
    assert (task.executor_config, task.retries) == ({"x": 1}, 5)


def test_the_scan_has_nothing_of_what_the_dags_default_args_say_of_its_tasks() -> None:
    def call(*_: Any) -> None:
        raise AssertionError

    events = [f"on_{event}_callback" for event in ("execute", "failure", "success", "retry", "skipped")]
    own: dict[str, Any] = {"trigger_rule": "all_success", "depends_on_past": False, "wait_for_downstream": False}
    given: dict[str, Any] = {"trigger_rule": "all_done", "depends_on_past": True, "wait_for_downstream": True}
    given |= {"outlets": [Asset("x")], "do_xcom_push": False, "multiple_outputs": True}
    given |= dict.fromkeys(("pre_execute", "post_execute", *events), call)
    with DAG("taxi", schedule=None, default_args=given) as dag, OneLakeWriteTaskGroup(group_id="load", table="/t"):
        both(**own)()
    task: Any = dag.get_task("load.scan")
    writer: Any = dag.get_task("load.a")
    assert writer.outlets
    assert {name: getattr(task, name) for name in own} == own
    assert [task.outlets, task.do_xcom_push, task.multiple_outputs] == [[], True, False]
    assert [getattr(task, name) for name in events] == [[]] * len(events)
    assert (task._pre_execute_hook, task._post_execute_hook) == (None, None)


def test_the_scan_stands_where_its_writers_stood() -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    with DAG("taxi", schedule=None) as dag:
        extract = EmptyOperator(task_id="extract")
        tuning = Tuning(target_file_size=9)
        with OneLakeWriteTaskGroup(group_id="load", table="/t", pool="spark", spark_timeout=60, tuning=tuning):
            for writer in WRITERS:
                extract >> OneLakeWriteOperator(task_id=writer["writer"], source=SOURCE, where=writer["where"])
            OneLakeWriteOperator(task_id="other", source=SqlSource("SELECT 1"))
    task: Any = dag.get_task("load.scan")
    assert isinstance(task, OneLakeScanOperator)
    assert (task.upstream_task_ids, task.downstream_task_ids) == ({"extract"}, {"load.a", "load.b"})
    assert (task.pool, task.spark_timeout, task.tuning.target_file_size, task.skips) == ("spark", 60, 9, True)
    assert dag.get_task("load.other").upstream_task_ids == set()


def test_a_list_that_another_task_makes_comes_to_both() -> None:
    from airflow.sdk import task

    with DAG("taxi", schedule=None) as dag:
        listed = task(lambda: WRITERS, task_id="listed")()
        with OneLakeWriteTaskGroup(group_id="load", table="/t"):
            mapped(listed)()
    assert dag.get_task("load.scan").upstream_task_ids == {"listed"}
    assert dag.get_task("load.write").upstream_task_ids == {"listed", "load.scan"}
