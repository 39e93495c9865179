"""The optimize operator: when Spark is asked, what is told, and how it is stopped."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.markers import read_marker
from airflow_provider_onelake.exceptions import InvalidWriteError, SparkJobError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.optimize import OneLakeOptimizeOperator
from airflow_provider_onelake.spark.base import OptimizeJob
from tests.support.contexts import connect, context_of
from tests.support.engines import use_engine
from tests.support.shadows import OptimizeByHand
from tests.support.tables import foreign_append, foreign_commit, ids, local_log, make_table


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    return tmp_path


@pytest.fixture
def log(lake: Path) -> DeltaLog:
    log = make_table(lake / "Tables" / "trips")
    for row in range(4):
        foreign_append(log, {"2019-01": [row], "2019-02": [10 + row]})
    return log


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> OptimizeByHand:
    return use_engine(monkeypatch, OptimizeByHand())


def optimize(**arguments: Any) -> OneLakeOptimizeOperator:
    return OneLakeOptimizeOperator(**{"task_id": "optimize", "table": "Tables/trips", **arguments})


def run(**arguments: Any) -> dict[str, Any]:
    task = optimize(**arguments)
    return task.execute(context_of(task))


ROWS = [0, 1, 2, 3, 10, 11, 12, 13]


def test_the_fate_of_every_partition(log: DeltaLog, engine: OptimizeByHand, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    result = run(commit_message="before the audit")
    counts = {"version": 5, "read_version": 4, "files_before": 8, "files_after": 2, "lost_races": 0}
    counts |= {"partitions_compacted": 2, "partitions_dropped": 0, "partitions_left_out": 0}
    assert {name: result[name] for name in counts} == counts
    assert [result[name] for name in ("table", "status", "dropped")] == [log.table, "published", []]
    found = [(p["partition"], p["reason"], p["files_before"], p["files_after"]) for p in result["partitions"]]
    assert found == [(f"month=2019-0{month}", "4 small files", 4, 1) for month in (1, 2)]
    assert result["bytes_before"] > result["bytes_after"] > 0
    json.dumps(result)
    assert ids(Path(log.table)) == ROWS
    assert "version 5: 8 files of" in caplog.text
    [job] = engine.jobs
    assert (job.table_uri, job.target_file_size) == (f"file://{log.table}", 128 << 20)
    assert job.label == "compaction of task optimize"
    (newest,) = DeltaTable(log.table).history(1)
    assert newest["operation"] == "OPTIMIZE"
    assert newest["userMetadata"].startswith("taxi.optimize, run ")
    assert newest["userMetadata"].endswith(" (test): 8 files became 2. Message: before the audit")
    assert job.shadow_uri.startswith(f"file://{log.table}/staged/compaction-")


def test_where_nothing_pays_spark_is_not_asked(log: DeltaLog, engine: OptimizeByHand) -> None:
    result = run(min_files=5)
    assert (result["status"], result["version"], engine.jobs) == ("nothing_to_do", None, [])
    assert [left["reason"] for left in result["left_out"]] == ["4 small files, and it takes 5"] * 2
    assert not Path(log.table, "staged").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        {"where": "month = '2019-01'"},
        {"where": " "} | {"partitions": [{"month": "2019-01"}]},
        {"partitions": '[{"month": "2019-01"}]'},
    ],
)
def test_only_some_partitions(log: DeltaLog, engine: OptimizeByHand, arguments: dict[str, Any]) -> None:
    assert [found["partition"] for found in run(**arguments)["partitions"]] == ["month=2019-01"]


@pytest.mark.parametrize("value", ["{{ no template }}", "{% raw", "{# 1"])
def test_a_partitions_value_may_look_like_a_template(log: DeltaLog, engine: OptimizeByHand, value: str) -> None:
    for row in range(4):
        foreign_append(log, {value: [100 + row]})
    assert [found["partition"] for found in run(partitions=[{"month": value}])["partitions"]] == [f"month={value}"]


def test_what_went_meanwhile(log: DeltaLog, engine: OptimizeByHand, caplog: pytest.LogCaptureFixture) -> None:
    def remove_one(job: Any) -> None:
        for month in ("2019-01", "2019-02"):
            file = next(iter(log.live_files(lambda add, m=month: add["partitionValues"]["month"] == m, 4)))
            gone = {key: file[key] for key in ("path", "partitionValues", "size")}
            remove = {"remove": {**gone, "deletionTimestamp": 2, "dataChange": True}}
            foreign_commit(log, [{"commitInfo": {"timestamp": 2, "operation": "DELETE"}}, remove])

    engine.before = remove_one
    caplog.set_level(logging.INFO)
    result = run()
    assert (result["status"], result["version"], result["partitions_dropped"]) == ("dropped", None, 2)
    assert "DELETE) removed it" in result["dropped"][0]["reason"]
    assert "the result is dropped" in caplog.text
    assert len(ids(Path(log.table))) == 6


def test_a_stop_reaches_spark_and_nothing_is_published(log: DeltaLog, engine: OptimizeByHand) -> None:
    task = optimize()
    engine.before = lambda job: task.on_kill()
    with pytest.raises(AirflowException, match="was stopped"):
        task.execute(context_of(task))
    assert engine.stopped == 1
    assert local_log(Path(log.table)).commit(5) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"table": "Tables/none"}, "There is no Delta table"),
        ({"where": "id = 1"}, "no partition column"),
        ({"where": "month = '{{ ds }}'"}, "still holds a template"),
        ({"partitions": [{"day": "1"}]}, "no partition column"),
        ({"partitions": "2019-01"}, "no JSON"),
        ({"partitions": {"month": "2019-01"}}, "a list of partitions"),
        ({"zorder_by": "month"}, "a partition column"),
    ],
)
def test_what_is_wrong_is_final(log: DeltaLog, engine: OptimizeByHand, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        run(**arguments)
    assert engine.jobs == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"target_file_size": 0},
        {"min_files": 1},
        {"min_deleted": 2},
        {"zorder_by": "a, A"},
        {"commit_message": "x" * 1001},
    ],
)
def test_terms_are_checked_when_the_dag_is_parsed(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidWriteError, match=next(iter(arguments))):
        optimize(**arguments)


def test_columns_to_sort_by_come_as_text_too(log: DeltaLog, engine: OptimizeByHand) -> None:
    run(zorder_by=" id ")
    assert engine.jobs[0].zorder_by == ("id",)
    assert run(zorder_by=["id"])["status"] == "nothing_to_do"


class Cluster(OptimizeByHand):
    """An engine in cluster mode, whose first driver outlives its task's worker."""

    outlives_the_task = True

    def __init__(self) -> None:
        super().__init__(self.dies)
        self.asked: list[tuple[str, str]] = []
        self.killed: list[tuple[str, str]] = []

    def dies(self, job: OptimizeJob) -> None:
        if len(self.jobs) == 1:
            raise SparkJobError("the worker was killed")

    def left_at_work(self, table_uri: str, owner: str, doing: str) -> list[str]:
        self.asked.append((owner, doing))
        return [self.jobs[0].attempt] if self.jobs else []

    def kill(self, table_uri: str, attempt: str, doing: str) -> None:
        self.killed.append((attempt, doing))

    def wait_for(self, *_: Any) -> None:
        raise AssertionError("It is taken over or killed.")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, log: DeltaLog) -> Cluster:
    """With a try behind it whose driver is at work."""
    found = Cluster()
    use_engine(monkeypatch, found)
    with pytest.raises(SparkJobError):
        run()
    return found


@pytest.mark.parametrize("pays", [True, False])
def test_the_next_try_kills_the_driver_and_compacts_what_pays_now(log: DeltaLog, cluster: Cluster, pays: bool) -> None:
    (first,) = cluster.jobs
    foreign_append(log, {"2019-01": [4]})
    result = run() if pays else run(min_files=9)
    owner = ("test/taxi/optimize/manual__1", "compacting")
    assert cluster.asked == [owner, owner]
    assert first.owner == owner[0]
    assert cluster.killed == [(first.attempt, "compacting")]
    shadow = first.shadow_uri.removeprefix(f"file://{log.table}/")
    assert "another try" in str((read_marker(log.store, shadow) or {})["reason"])
    assert [job.attempt == first.attempt for job in cluster.jobs[1:]] == ([False] if pays else [])
    assert (result["status"], result["files_before"]) == (("published", 9) if pays else ("nothing_to_do", 0))
    assert sorted(ids(Path(log.table))) == sorted([*ROWS, 4])
