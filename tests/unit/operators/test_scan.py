"""The task of a shared scan: what it gives to Spark, what the writers then do, and when it leaves them alone."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.sdk import DAG
from obstore.store import LocalStore

from airflow_provider_onelake.engines.base import StageJob, StageResult
from airflow_provider_onelake.exceptions import (
    ConstraintViolatedError,
    InvalidWriteError,
    SparkJobError,
    SparkUnavailableError,
)
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.scan import OneLakeScanOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.spark_jobs.stage import CLAIMED_TWICE
from airflow_provider_onelake.storage.stores import ObjectStore
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.tables import append_files, ids, make_table, of_attempt

SOURCE = SqlSource("SELECT * FROM trips")
WRITERS = [{"writer": "a", "where": "id = 1"}, {"writer": "b", "where": "id = 2"}]


@attrs.define
class ScanEngine(FakeEngine):
    """Appends the rows of each writer of a shared scan, by its filter."""

    def stage(self, job: StageJob) -> StageResult:
        if not job.routes:
            return super().stage(job)
        self.staged.append(job)
        self.before(job)
        if self.reads_target:
            return StageResult(reads_target=True, engine="fake")
        path = Path(str(job.buffer_uri).removeprefix("file://"))
        store = ObjectStore(LocalStore(prefix=path), str(path))
        actions: list[Any] = []
        said = of_attempt(job.attempt)
        for name, where in job.routes.items():
            info, *adds = append_files(store, f"onelake_writer={name}", self.rows[where], **said)
            for each in adds:
                each["add"]["path"] = f"onelake_writer={name}/{each['add']['path']}"
                each["add"]["partitionValues"]["onelake_writer"] = name
            actions += adds if actions else [info, *adds]
        store.create(version_path(1), dump_actions(actions))
        return StageResult(reads_target=False, engine="fake")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScanEngine:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    return use_engine(monkeypatch, ScanEngine({"id = 1": {"2019-01": [1]}, "id = 2": {"2019-02": [2, 3]}}))


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return make_table(tmp_path / "Tables" / "trips")


def mapped(items: Any = None, **partial: Any) -> Callable[[], Any]:
    def inside() -> Any:
        task = OneLakeWriteOperator.partial(**{"task_id": "write", "source": SOURCE, **partial})
        return task.expand_kwargs(WRITERS if items is None else items)

    return inside


def both(**each: Any) -> Callable[[], Any]:
    def inside() -> Any:
        for writer in WRITERS:
            OneLakeWriteOperator(task_id=writer["writer"], source=SOURCE, **{"where": writer["where"], **each})

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


def write(dag: DAG, key: str) -> dict[str, Any]:
    task: Any = dag.get_task(f"load.{key}")
    return task.execute(context_of(task))


def test_writers_publish_what_one_job_has_read(log: DeltaLog, engine: ScanEngine, tmp_path: Path) -> None:
    dag = build(both())
    done = scan(dag)
    assert {name: done[name] for name in ("status", "rows", "files", "writers", "reused")} == {
        "status": "shared",
        "rows": 3,
        "files": 2,
        "writers": 2,
        "reused": False,
    }
    for key in "ab":
        written = write(dag, key)
        assert (written["status"], written["buffer"].startswith(done["scan"])) == ("published", True)
    assert ids(tmp_path / "Tables" / "trips") == [1, 2, 3]
    job, *others = engine.staged
    assert others == []
    assert (list(job.routes.values()), job.where) == (["id = 1", "id = 2"], "(\nid = 1\n) OR (\nid = 2\n)")


def test_a_retry_finds_what_an_earlier_try_did_and_a_clear_scans_again(log: DeltaLog, engine: ScanEngine) -> None:
    dag = build(both())
    first = scan(dag)
    again = scan(dag, try_number=2)
    assert (again["reused"], again["scan"], len(engine.staged)) == (True, first["scan"], 1)
    cleared = scan(dag, try_number=3, max_tries=2, clears=1)
    assert (cleared["reused"], cleared["scan"] != first["scan"], len(engine.staged)) == (False, True, 2)


def test_a_driver_that_an_earlier_try_left_at_work_is_ended(
    log: DeltaLog, engine: ScanEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, killed = uuid.uuid4(), []
    monkeypatch.setattr(ScanEngine, "outlives_the_task", True)
    monkeypatch.setattr(ScanEngine, "left_at_work", lambda *_: ["earlier", str(own)])
    monkeypatch.setattr(ScanEngine, "kill", lambda self, table_uri, attempt, doing: killed.append((attempt, doing)))
    assert scan(build(both()), id=own)["status"] == "shared"
    assert killed == [("earlier", StageJob.doing)]
    assert engine.staged[0].attempt == str(own)


def test_a_task_that_is_back_from_the_triggerer_takes_its_drivers_result(
    log: DeltaLog, engine: ScanEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, waited = uuid.uuid4(), []
    monkeypatch.setattr(ScanEngine, "wait_for", lambda self, table_uri, attempt, doing: waited.append(attempt))
    dag = build(both())
    scan(dag, id=own)
    assert waited == []
    assert scan(dag, id=own)["reused"]
    assert waited == [str(own)]
    assert scan(dag, try_number=2)["reused"]
    assert waited == [str(own)]


def test_a_mapped_writer_gives_the_scan_its_list(log: DeltaLog, engine: ScanEngine) -> None:
    done = scan(build(mapped()))
    assert (done["status"], done["writers"]) == ("shared", 2)


def test_what_the_group_expects_counts_for_mapped_writers_too(log: DeltaLog, engine: ScanEngine) -> None:
    dag = build(mapped(), mode="replace_where", replace_where="month > '{{ ds }}'", expected_partitions="month > 'a'")
    task: Any = dag.get_task("load.scan")
    assert task.writers[0]["equal"] == {"replace_where": "month > '{{ ds }}'", "expected_partitions": "month > 'a'"}
    assert not task.skips


def test_what_a_writer_is_for_is_the_same_for_both(log: DeltaLog, engine: ScanEngine) -> None:
    dag = build(both(expected_partitions="month > '2018-12'"), mode="overwrite_partitions")
    assert scan(dag)["status"] == "shared"
    assert [write(dag, key)["status"] for key in "ab"] == ["published", "published"]
    assert len(engine.staged) == 1


def test_a_load_whose_rows_are_all_in_the_table_is_not_read_again(log: DeltaLog, engine: ScanEngine) -> None:
    dag = build(both())
    scan(dag)
    for key in "ab":
        write(dag, key)
    again = scan(dag, try_number=2, max_tries=1, clears=1)
    assert (again["status"], len(engine.staged)) == ("not_shared", 1)


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        pytest.param([{**WRITERS[0], "files": ["x"]}, WRITERS[1]], "differ in files", id="files"),
        pytest.param([{"writer": "a"}, WRITERS[1]], "no filter", id="no-filter"),
        pytest.param([WRITERS[0], WRITERS[0]], "same key", id="one-key"),
        pytest.param([WRITERS[0]], "1 of 1", id="one-writer"),
        pytest.param([WRITERS[0], {"writer": "b", "where": "id < 2"}], "rows in common", id="overlap"),
    ],
)
def test_what_a_list_says_at_run_time_may_not_be_shared(
    log: DeltaLog, engine: ScanEngine, items: list[Any], reason: str
) -> None:
    dag = build(mapped())
    task: Any = dag.get_task("load.scan")
    task.writers = [{"task_id": "load.write", "equal": {}, "items": items}]
    done = scan(dag)
    assert done["status"] == "not_shared"
    assert reason in done["reason"]
    assert engine.staged == []


def test_without_a_table_the_first_writer_makes_it(engine: ScanEngine) -> None:
    assert "no table" in scan(build(both()))["reason"]


def test_a_source_that_only_the_writers_wait_for_is_not_read(log: DeltaLog, engine: ScanEngine) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    dag = build(both())
    with dag:
        EmptyOperator(task_id="extract") >> dag.get_task("load.b")
    assert "waits for extract" in scan(dag)["reason"]


def raising(error: Exception) -> Callable[[StageJob], None]:
    def before(job: StageJob) -> None:
        raise error

    return before


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ConstraintViolatedError("small"), id="a-bad-row"),
        pytest.param(SparkJobError(f"USER_RAISED_EXCEPTION {CLAIMED_TWICE}"), id="a-row-of-two"),
    ],
)
def test_what_a_retry_would_not_mend_is_left_to_the_writers(
    log: DeltaLog, engine: ScanEngine, error: Exception
) -> None:
    engine.before = raising(error)
    assert scan(build(both()))["status"] == "not_shared"


def test_what_may_pass_is_retried(log: DeltaLog, engine: ScanEngine) -> None:
    engine.before = raising(SparkUnavailableError("away"))
    with pytest.raises(SparkUnavailableError):
        scan(build(both()))


def test_a_source_that_reads_the_table_is_not_shared(log: DeltaLog, engine: ScanEngine) -> None:
    engine.reads_target = True
    assert "reads the table" in scan(build(both()))["reason"]
    assert [info for info in log.store.list("staged") if info.path.endswith("_scan.json")] == []


# -- which groups get the task ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inside", "group"),
    [
        pytest.param(mapped(), {"shared_scan": "off"}, id="switched-off"),
        pytest.param(both(steps={"s": "SELECT * FROM source"}), {}, id="steps"),
        pytest.param(both(where=None), {}, id="no-filters"),
        pytest.param(both(trigger_rule="all_done"), {}, id="trigger-rule"),
        pytest.param(both(max_bytes=5), {}, id="max-bytes"),
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


def test_a_task_of_that_name_keeps_it() -> None:
    def inside() -> None:
        for number, name in enumerate(("scan", "other")):
            OneLakeWriteOperator(task_id=name, source=SOURCE, where=f"id = {number}")

    dag = build(inside)
    assert isinstance(dag.get_task("load.scan"), OneLakeWriteOperator)


def test_a_word_that_is_no_choice_is_refused() -> None:
    with pytest.raises(InvalidWriteError, match="shared_scan"):
        build(both(), shared_scan="always")


def test_the_scan_stands_where_its_writers_stood() -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    with DAG("taxi", schedule=None) as dag:
        extract = EmptyOperator(task_id="extract")
        with OneLakeWriteTaskGroup(group_id="load", table="/t", pool="spark", spark_timeout=60, target_file_size=9):
            for writer in WRITERS:
                extract >> OneLakeWriteOperator(task_id=writer["writer"], source=SOURCE, where=writer["where"])
            OneLakeWriteOperator(task_id="other", source=SqlSource("SELECT 1"))
    task: Any = dag.get_task("load.scan")
    assert isinstance(task, OneLakeScanOperator)
    assert (task.upstream_task_ids, task.downstream_task_ids) == ({"extract"}, {"load.a", "load.b"})
    assert (task.pool, task.spark_timeout, task.target_file_size, task.skips) == ("spark", 60, 9, True)
    assert dag.get_task("load.other").upstream_task_ids == set()


def test_a_group_behind_another_task_reads_after_it() -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    with DAG("taxi", schedule=None) as dag:
        with OneLakeWriteTaskGroup(group_id="load", table="/t") as group:
            both()()
        EmptyOperator(task_id="extract") >> group
    assert dag.get_task("load.scan").upstream_task_ids == {"extract"}


def test_a_list_that_another_task_makes_comes_to_both() -> None:
    from airflow.sdk import task

    with DAG("taxi", schedule=None) as dag:
        listed = task(lambda: WRITERS, task_id="listed")()
        with OneLakeWriteTaskGroup(group_id="load", table="/t"):
            mapped(listed)()
    assert dag.get_task("load.scan").upstream_task_ids == {"listed"}
    assert dag.get_task("load.write").upstream_task_ids == {"listed", "load.scan"}


def test_it_says_why_in_its_log(log: DeltaLog, engine: ScanEngine, caplog: pytest.LogCaptureFixture) -> None:
    dag = build(mapped())
    task: Any = dag.get_task("load.scan")
    task.writers = []
    with caplog.at_level(logging.WARNING):
        assert scan(dag)["status"] == "not_shared"
