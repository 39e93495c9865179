"""The vacuum operator: what it refuses early, what it asks of Spark, what it tells."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_onelake.exceptions import InvalidWriteError, SparkJobError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.pinned_versions import pinned_versions
from airflow_provider_onelake.operators.vacuum import OneLakeVacuumOperator
from airflow_provider_onelake.spark.base import Engine, VacuumJob
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.clock import SystemClock
from airflow_provider_onelake.table import Table
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from tests.support.ages import files, grow_old
from tests.support.contexts import connect, context_of
from tests.support.engines import use_engine
from tests.support.tables import foreign_append, foreign_commit, make_table, stage, writer_spec


@attrs.define
class Sweeper(Engine):
    """An engine that deletes what is in the inventory, without asking any table."""

    jobs: list[VacuumJob] = attrs.field(factory=list)
    spares: str = "nothing"
    listens_only: bool = False
    stopped: int = 0

    def vacuum(self, job: VacuumJob) -> None:
        import pyarrow.parquet as pq

        self.jobs.append(job)
        if self.listens_only:
            return
        table = Path(job.table_uri.removeprefix("file://"))
        for path in pq.read_table(job.inventory_uri.removeprefix("file://")).column("path").to_pylist():
            if self.spares not in path:
                (table / path).unlink()

    def stop(self) -> None:
        self.stopped += 1


@attrs.define
class Cluster(Sweeper):
    """An engine in cluster mode, whose first driver outlives its task's worker."""

    outlives_the_task: bool = True
    asked: list[tuple[str, str]] = attrs.field(factory=list)
    awaited: list[tuple[str, str]] = attrs.field(factory=list)
    inventory: bytes = b""

    def vacuum(self, job: VacuumJob) -> None:
        self.jobs.append(job)
        # The driver has read it, whatever becomes of the object.
        self.inventory = Path(job.inventory_uri.removeprefix("file://")).read_bytes()
        raise SparkJobError("the worker was killed")

    def left_at_work(self, table_uri: str, owner: str, doing: str) -> list[str]:
        self.asked.append((owner, doing))
        return [job.attempt for job in self.jobs]

    def wait_for(self, table_uri: str, attempt: str, doing: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.awaited.append((attempt, doing))
        for path in pq.read_table(pa.BufferReader(self.inventory)).column("path").to_pylist():
            Path(table_uri.removeprefix("file://"), path).unlink()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return use_engine(monkeypatch, Cluster())


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Sweeper:
    return use_engine(monkeypatch, Sweeper())


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaLog:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    log = make_table(tmp_path / "Tables" / "t")
    foreign_append(log, {"a b": [1]})
    log.store.put("month=a b/nobody's 1", b"abc")
    log.store.put("month=a b/nobody's 2", b"defg")
    grow_old(log, "month=a b")
    return log


def run(**terms: Any) -> dict[str, Any]:
    task = OneLakeVacuumOperator(task_id="vacuum", table="Tables/t", **terms)
    return task.execute(context_of(task))


def test_a_clock_ahead_takes_no_young_buffer(log: DeltaLog, engine: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    young = stage(log, writer_spec("young"), {"2019-01": [1]})
    before = files(log)
    monkeypatch.setattr(SystemClock, "now", lambda _: datetime.now(UTC) + timedelta(days=30))
    with pytest.raises(AirflowFailException, match="clock is ahead"):
        run()
    assert files(log) == before
    assert engine.jobs == []
    monkeypatch.undo()
    assert Committer(log).publish([young]).status is PublishStatus.PUBLISHED


def test_a_dry_run_changes_nothing(log: DeltaLog, engine: Sweeper, caplog: pytest.LogCaptureFixture) -> None:
    dead = stage(log, writer_spec("dead"), {"2019-01": [1]})
    grow_old(log, dead.path)
    before = files(log)
    caplog.set_level(logging.INFO)
    result = run(dry_run=True, keep_versions=[1])
    assert files(log) == before
    assert engine.jobs == []
    assert (result["dry_run"], result["files"], result["kept_versions"]) == (True, 3, [1])
    assert result["bytes"] == 7 + dead.bytes
    assert result["abandoned"] == [{"path": dead.path, "owner": "writer dead"}]
    assert "month=a b/nobody's 1" in result["examples"]
    assert result["oldest"] <= result["newest"] < result["before"]
    assert json.loads(json.dumps(result)) == result
    said = caplog.text
    assert f"; to delete: 3 files of {result['bytes']} bytes\n" in said
    assert "was abandoned 8 days" in said


def test_what_would_go_goes_and_spark_is_asked_once(log: DeltaLog, engine: Sweeper) -> None:
    dead = stage(log, writer_spec("dead"), {"2019-01": [1]})
    grow_old(log, dead.path)
    result = run()
    (job,) = engine.jobs
    assert (result["files"], result["bytes"], result["left"]) == (3, 7 + dead.bytes, 0)
    assert result["logs_deleted"] == 1
    assert (job.table_uri, job.log_entries) == (f"file://{log.table}", False)
    assert job.inventory_uri == f"file://{log.table}/_vacuum/{job.attempt}.parquet"
    assert files(log, dead.path) == set()
    assert not files(log, "_vacuum")
    assert run()["files"] == 0
    assert len(engine.jobs) == 1


@pytest.mark.parametrize(
    ("address", "logged"),
    [
        ("onelake://ws/lake.Lakehouse/Tables/t", True),
        ("abfss://cont@account.dfs.core.windows.net/t", True),
        ("s3://bucket/t", False),
        ("/lake/t", False),
    ],
)
def test_spark_records_it_only_where_its_commit_is_safe(
    log: DeltaLog, engine: Sweeper, monkeypatch: pytest.MonkeyPatch, address: str, logged: bool
) -> None:
    engine.listens_only = True
    table = Table(TableAddress.parse(address), None, patience=0)
    monkeypatch.setattr(Table, "log", log)
    monkeypatch.setattr(OneLakeHook, "table", lambda *_: table)
    run()
    assert [job.log_entries for job in engine.jobs] == [logged]


@pytest.mark.parametrize("spelling", [[1], ["1"], "1", " 1 ,", "[1]", 1, (1, 1)])
def test_a_version_is_kept_on_record_however_it_is_spelled(log: DeltaLog, engine: Sweeper, spelling: Any) -> None:
    assert run(keep_versions=spelling)["kept_versions"] == [1]
    assert [(kept.version, kept.by) for kept in pinned_versions(log)] == [(1, "taxi.vacuum")]
    assert run()["kept_versions"] == [1]
    assert run(release_versions=spelling)["kept_versions"] == []
    assert pinned_versions(log) == []


@pytest.mark.parametrize(
    "terms",
    [
        {"keep_versions": "latest"},
        {"keep_versions": [-1]},
        {"keep_versions": [1.5, None]},
        {"release_versions": "[1"},
        {"keep_versions": [1], "release_versions": "1"},
        {"keep_days": 0},
        {"keep_days": "7"},
        {"keep_days": float("nan")},
        {"abandoned_after": timedelta(0)},
        {"abandoned_after": 7},
        {"table": None},
    ],
)
def test_what_is_wrong_is_refused_when_the_dag_is_parsed(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidWriteError):
        OneLakeVacuumOperator(**{"task_id": "vacuum", "table": "Tables/t", **terms})


@pytest.mark.parametrize("wrong", ["false", "no", "{{ params.x }}", 1, None])
@pytest.mark.parametrize("name", ["dry_run", "lite", "allow_retention_below_seven_days", "through_shortcut"])
def test_what_is_no_boolean_says_neither_yes_nor_no(name: str, wrong: Any) -> None:
    arguments: dict[str, Any] = {name: wrong}
    with pytest.raises(InvalidWriteError, match=f"{name}={wrong!r} must be True or False"):
        OneLakeVacuumOperator(task_id="vacuum", table="Tables/t", **arguments)


def test_a_guard_that_refuses_fails_for_good(log: DeltaLog, engine: Sweeper) -> None:
    snapshot = log.snapshot()
    short = {"configuration": {"delta.deletedFileRetentionDuration": "interval 1 days"}}
    foreign_commit(log, [{"metaData": {**snapshot.metadata, **short}}])
    before = files(log)
    with pytest.raises(AirflowFailException, match="allow_retention_below_seven_days=True"):
        run()
    assert files(log) == before
    assert run(allow_retention_below_seven_days=True)["files"] == 2


def test_a_task_that_was_stopped_deletes_nothing_more(log: DeltaLog, engine: Sweeper) -> None:
    task = OneLakeVacuumOperator(task_id="vacuum", table="Tables/t")
    task.on_kill()
    before = files(log)
    with pytest.raises(AirflowException, match="stopped"):
        task.execute(context_of(task))
    assert files(log) == before
    task = OneLakeVacuumOperator(task_id="vacuum", table="Tables/t")
    task.execute(context_of(task))
    task.on_kill()
    assert engine.stopped == 1


def test_a_driver_that_outlived_its_try_is_waited_for(log: DeltaLog, cluster: Cluster) -> None:
    with pytest.raises(SparkJobError):
        run()
    (job,) = cluster.jobs
    assert files(log, "_vacuum") == {f"_vacuum/{job.attempt}.parquet"}
    result = run()
    assert cluster.awaited == [(job.attempt, "vacuuming")]
    assert (cluster.jobs, result["files"]) == ([job], 0)
    assert not files(log, "_vacuum")
    assert not [name for name in files(log) if "nobody" in name]
    # A try asks for what its own task left, in its own run.
    assert cluster.asked == [(job.owner, "vacuuming")] * 2
    assert job.owner.endswith("/taxi/vacuum/manual__1")


def test_a_dry_run_waits_for_nobody(log: DeltaLog, cluster: Cluster) -> None:
    run(dry_run=True)
    assert cluster.asked == []
