"""A writer in the mode merge: what it refuses early, what it tells, and what a retry and a clear do."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred
from airflow.sdk import DAG

from airflow_provider_onelake.buffers.buffer import read_open_buffer
from airflow_provider_onelake.buffers.markers import read_marker, set_aside
from airflow_provider_onelake.checks import rows_like_last
from airflow_provider_onelake.exceptions import BufferSetAsideError, InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.in_flight import writers_in_flight
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import ChangeJob, SparkResult
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.merges import MergeByHand
from tests.support.stores import KilledError, killed
from tests.support.tables import commit_of, foreign_append, ids, make_table, newest


@attrs.define
class Merging(FakeEngine):
    """Stages rows as other modes do, and merges them by hand."""

    by_hand: MergeByHand = attrs.field(factory=MergeByHand)

    def change(self, job: ChangeJob) -> SparkResult:
        return self.by_hand.change(job)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Merging:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    return use_engine(monkeypatch, Merging({None: {"x": [1, 2]}}))


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = make_table(tmp_path / "Tables" / "trips")
    foreign_append(log, {"y": [2, 3]})
    return log


def merge(**arguments: Any) -> OneLakeWriteOperator:
    own = {name: arguments.pop(name) for name in attrs.fields_dict(Merge) if name in arguments}
    terms = own if "on" in own else {"keys": ["id"], **own}
    given = {"task_id": "merge", "table": "Tables/trips", "source": SqlSource("SELECT 1"), "mode": Merge(**terms)}
    return OneLakeWriteOperator(**given | arguments)


def test_the_result_says_what_was_merged_and_a_clear_merges_again(engine: Merging, log: DeltaLog) -> None:
    task = merge(commit_message="hourly")
    context = context_of(task)
    result = task.execute(context)
    assert ids(Path(log.table)) == [1, 2, 3]
    assert json.loads(json.dumps(result)) == result
    told = [result[name] for name in ("status", "version", "mode", "rows", "rounds", "decisions", "reruns")]
    assert told == ["published", 2, "merge", 2, 1, [], 0]
    assert [result[f"rows_{what}"] for what in ("inserted", "updated", "deleted")] == [1, 1, 0]
    assert context["writer_outcome"] == "merged 2 rows in version 2"
    commit = commit_of(log, 2)
    assert "taxi.merge" in str(commit.info["userMetadata"])
    assert str(commit.info["userMetadata"]).endswith(": MERGE ON target.`id` = source.`id`. Message: hourly")
    retried = task.execute(context_of(task, try_number=2))
    assert (retried["status"], newest(log).version, len(engine.staged)) == ("skipped", 2, 1)
    cleared = task.execute(context_of(task, clears=1, try_number=3, max_tries=2))
    assert (cleared["status"], cleared["version"], cleared["rows_updated"]) == ("published", 3, 2)


def test_a_source_is_compared_with_those_of_the_last_merges(engine: Merging, log: DeltaLog) -> None:
    usual = {"usual": rows_like_last()}
    merge(checks=usual).execute(context_of(merge()))
    engine.rows = {None: {"x": [1]}}
    february = {"logical_date": datetime(2019, 2, 1, tzinfo=UTC), "run_id": "manual__2"}
    assert merge(checks=usual).execute(context_of(merge(), **february))["checks"][0]["passed"]
    engine.rows = {None: {"x": list(range(50))}}
    march = {"logical_date": datetime(2019, 3, 1, tzinfo=UTC), "run_id": "manual__3"}
    with pytest.raises(
        AirflowFailException, match=r"50 rows, where 1 to 3 would be like its last 2 loads \(1, 2 rows\)"
    ):
        merge(checks=usual).execute(context_of(merge(), **march))
    assert ids(Path(log.table)) == [1, 2, 3]


def test_a_retry_merges_what_an_earlier_try_has_staged(engine: Merging, log: DeltaLog) -> None:
    engine.by_hand.after = killed
    task = merge()
    with pytest.raises(KilledError):
        task.execute(context_of(task))
    engine.by_hand.after = lambda job: None
    result = task.execute(context_of(task, try_number=2))
    assert (result["status"], result["reused"], len(engine.staged)) == ("published", True, 1)
    assert ids(Path(log.table)) == [1, 2, 3]


def test_rounds_on_rows_set_aside_keep_no_file_from_a_compaction(engine: Merging, log: DeltaLog) -> None:
    def stage_other_work(job: ChangeJob) -> None:
        set_aside(log.store, str(job.source_uri).partition("/Tables/trips/")[2], "its writer was staged again")

    engine.by_hand.after = stage_other_work
    task = merge()
    with pytest.raises(BufferSetAsideError):
        task.execute(context_of(task))
    assert writers_in_flight(log, newest(log)).changing == frozenset()
    engine.by_hand.after = lambda job: None
    assert task.execute(context_of(task, try_number=2))["status"] == "published"
    assert ids(Path(log.table)) == [1, 2, 3]


def test_a_task_that_waited_for_its_driver_merges_what_that_has_staged(engine: Merging, log: DeltaLog) -> None:
    def leave(_: object) -> None:
        raise TaskDeferred(trigger=None, method_name="resume")

    stage, engine.before = engine.stage, lambda job: None
    task = merge(when=["MATCHED THEN DELETE"], deferrable=True)
    context = context_of(task)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Merging, "stage", lambda _, job: leave(stage(job)))
        with pytest.raises(TaskDeferred):
            task.execute(context)
    assert engine.by_hand.jobs == []
    result = task.resume(context_of(task), {"reason": "the driver has ended", "attempt": "x"})
    assert (result["status"], result["rows_deleted"], result["rounds"], len(engine.staged)) == ("published", 1, 1, 1)
    assert ids(Path(log.table)) == [3]


def test_a_source_that_reads_the_table_is_computed_again_when_rows_change(engine: Merging, log: DeltaLog) -> None:
    engine.reads_target = True
    engine.by_hand.after = lambda job: foreign_append(log, {"z": [100]}) if len(engine.by_hand.jobs) == 1 else None
    task = merge()
    result = task.execute(context_of(task))
    assert (result["status"], result["reruns"], len(engine.staged)) == ("published", 1, 2)
    engine.by_hand.after = lambda job: foreign_append(log, {"z": [100 + len(engine.by_hand.jobs)]})
    task = merge(task_id="again")
    with pytest.raises(AirflowFailException, match="Nothing was merged"):
        task.execute(context_of(task))


def test_with_clauses_the_source_has_its_own_columns(engine: Merging, log: DeltaLog) -> None:
    grown = json.loads(engine.schema)
    grown["fields"].append({"name": "op", "type": "string", "nullable": True, "metadata": {}})
    engine.schema = json.dumps(grown)
    task = merge(on="target.id = source.id", when=["MATCHED THEN DELETE"])
    result = task.execute(context_of(task))
    assert (result["rows_deleted"], result["partitions"], ids(Path(log.table))) == (1, [], [3])
    source = read_open_buffer(log.store, result["buffer"])
    assert source.metadata["schemaString"] == engine.schema
    assert source.metadata["partitionColumns"] == []
    assert [job.keys for job in engine.by_hand.jobs] == [()]


def test_a_table_is_made_with_the_columns_of_the_rows(engine: Merging, tmp_path: Path) -> None:
    task = merge(table="Tables/new")
    assert task.execute(context_of(task))["rows_inserted"] == 2
    assert ids(tmp_path / "Tables" / "new") == [1, 2]
    task = merge(task_id="second", table="Tables/newer", when=["NOT MATCHED THEN INSERT *"])
    with pytest.raises(AirflowFailException, match="give `schema`"):
        task.execute(context_of(task))
    assert not (tmp_path / "Tables" / "newer" / "_delta_log").exists()


def test_a_key_that_is_char_in_the_table_is_refused_before_anything_is_staged(engine: Merging, tmp_path: Path) -> None:
    """Delta's own MERGE fails there: tests/integration/spark/test_merge.py."""
    schema = json.loads(engine.schema)
    month = next(one for one in schema["fields"] if one["name"] == "month")
    month["metadata"] = {"__CHAR_VARCHAR_TYPE_STRING": "char(7)"}
    make_table(tmp_path / "Tables" / "chars", json.dumps(schema))
    task = merge(table="Tables/chars", keys=["id", "MONTH"])
    with pytest.raises(AirflowFailException, match=r"the key month, which is CHAR in .*chars, and Delta's own MERGE"):
        task.execute(context_of(task))
    assert engine.staged == []


def test_a_source_without_rows(engine: Merging, log: DeltaLog) -> None:
    engine.rows = {None: {}}
    task = merge()
    result = task.execute(context_of(task))
    assert (result["status"], result["version"], engine.by_hand.jobs) == ("nothing_to_do", None, [])
    marker = read_marker(log.store, result["buffer"])
    assert marker is not None
    assert "version" not in marker


def test_a_retry_of_a_source_without_rows_makes_a_commit_that_older_tries_see(engine: Merging, log: DeltaLog) -> None:
    engine.rows = {None: {}}
    task, before = merge(), newest(log).version
    task.execute(context_of(task))
    assert newest(log).version == before
    result = task.execute(context_of(task, try_number=2))
    assert (result["status"], result["version"], newest(log).version) == ("nothing_to_do", None, before + 1)
    task.execute(context_of(task, try_number=3))
    assert newest(log).version == before + 1


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"keys": None}, "either `keys`"),
        ({"when": ["DELETE"]}, "no clause of a MERGE"),
        ({"expected_partitions": "month = 'x'"}, "takes neither expected_partitions"),
        ({"publish": "together"}, "nor publish='together'"),
        ({"when": ["MATCHED THEN DELETE"], "schema_evolution": "add_columns"}, "takes no schema_evolution"),
    ],
)
def test_what_is_refused_when_the_dag_is_parsed(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidWriteError, match=words):
        merge(**terms)


def test_how_it_meets_others_is_no_other_work(engine: Merging, log: DeltaLog) -> None:
    engine.by_hand.after = lambda job: foreign_append(log, {"y": [1]})
    task = merge(max_rounds=1)
    with pytest.raises(AirflowFailException, match="1 times"):
        task.execute(context_of(task))
    engine.by_hand.after = lambda job: None
    task = merge(max_rounds=2)
    result = task.execute(context_of(task, try_number=2))
    assert (result["status"], result["reused"], len(engine.staged)) == ("published", True, 1)
    task = merge(covers="month = 'y'")
    with pytest.raises(AirflowFailException, match="covers"):
        task.execute(context_of(task, clears=1, try_number=3, max_tries=2))
    for terms in ({"max_rounds": 0}, {"isolation": "write_serializable"}):
        with pytest.raises(InvalidWriteError, match=next(iter(terms))):
            merge(**terms)


@pytest.mark.parametrize("own", [{}, {"publish": "each"}])
def test_nobody_publishes_it_together_with_others(own: dict[str, str]) -> None:
    with (
        pytest.raises(InvalidWriteError, match=r"nor publish='together'|in a write group it is the group's"),
        DAG("d"),
        OneLakeWriteTaskGroup(group_id="load", table="Tables/trips", publish="together"),
    ):
        merge(**own)


def reconciled(dag: DAG, contexts: list[Any]) -> dict[str, Any]:
    """What the group's reconciliation says once its writers have run, or have failed."""
    task: Any = dag.get_task("load.reconcile")
    pulled = {key: [c["ti"].pushed[key] for c in contexts if key in c["ti"].pushed] for key in ("writer",)}
    context = context_of(task, states={f"load.merge_{n}": "success" for n in range(len(contexts))}, pulled=pulled)
    try:
        task.execute(context)
    except AirflowFailException as error:
        return {"error": str(error), **context["ti"].pushed["return_value"]}
    return dict(context["ti"].pushed["return_value"])


def test_in_a_group_each_mapped_writer_merges_and_reconcile_says_so(engine: Merging, log: DeltaLog) -> None:
    engine.rows = {"a": {"x": [1, 2]}, "b": {"x": [2, 4]}, "c": {"x": [2]}}
    with DAG("taxi", schedule=None) as dag, OneLakeWriteTaskGroup(group_id="load", table="Tables/trips"):
        OneLakeWriteOperator.partial(
            task_id="merge", source=SqlSource("SELECT 1"), mode=Merge(keys=["id"])
        ).expand_kwargs([{"writer": key, "where": key} for key in "abc"])
    assert "load.scan" not in dag.task_ids
    mapped: Any = dag.get_task("load.merge")
    contexts = []
    for number, key in enumerate("abc"):
        task = mapped.unmap({"writer": key, "where": key})
        contexts.append(context_of(task, map_index=number))
        if key == "c":
            engine.by_hand.after = lambda job: foreign_append(log, {"x": [2]})
            with pytest.raises(AirflowFailException, match="5 times"):
                task.execute(contexts[-1])
        else:
            result = task.execute(contexts[-1])
            assert result["status"] == "published"
    report = reconciled(dag, contexts)
    statuses = {one["writer"]: one["status"] for one in report["writers"]}
    assert statuses == {"a": "deleted", "b": "already_published", "c": "waiting"}
    assert "clear it with its downstream tasks" in report["error"]
    engine.by_hand.after = lambda job: None
    task = mapped.unmap({"writer": "c", "where": "c"})
    contexts[-1] = context_of(task, map_index=2, clears=1, try_number=2, max_tries=1)
    assert task.execute(contexts[-1])["status"] == "published"
    report = reconciled(dag, contexts)
    assert "error" not in report
    assert report["version"] == newest(log).version
