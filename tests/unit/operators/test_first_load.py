"""The first load of a table: its first commit of rows makes the table, and a load that fails leaves none behind."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk import DAG, XComArg
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.markers import set_aside
from airflow_provider_onelake.exceptions import BufferSetAsideError, SparkQueryError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.schema import columns
from airflow_provider_onelake.modes import Merge, Overwrite
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.tables import SCHEMA, commit_of, ids, local_log

BY_MONTH = {"partition_by": ["month"]}


def schema(**kinds: str) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return json.dumps({"type": "struct", "fields": fields})


OF_TEXT = schema(id="string", month="string")
GROWN = schema(id="long", month="string", note="string")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    return use_engine(monkeypatch, FakeEngine({None: {"2019-01": [1]}, "a": {"2019-01": [1]}, "b": {"2019-02": [2]}}))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "Tables" / "trips"


def write(**terms: Any) -> dict[str, Any]:
    given = {"task_id": "write", "table": "Tables/trips", "source": SqlSource("SELECT 1"), **BY_MONTH, **terms}
    task = OneLakeWriteOperator(**given)
    return task.execute(context_of(task))


def group(of_writers: Any = None, **terms: Any) -> DAG:
    given = {"group_id": "load", "table": "Tables/trips", **BY_MONTH, **terms}
    with DAG("taxi", schedule=None) as dag, OneLakeWriteTaskGroup(**given):
        for key in "ab":
            own = (of_writers or {}).get(key, {})
            OneLakeWriteOperator(task_id=key, source=SqlSource("SELECT 1"), where=key, **own)
    return dag


class Run:
    """A run of a group's DAG, task by task."""

    def __init__(self, dag: DAG) -> None:
        self.dag = dag
        self.named: list[Any] = []
        self.states: dict[str, str] = {}
        self.left: dict[str, Any] = {}

    def write(self, *keys: str) -> list[dict[str, Any]]:
        return [self._write(key) for key in keys]

    def _write(self, key: str) -> dict[str, Any]:
        task: Any = self.dag.get_task(f"load.{key}")
        context = context_of(task)
        self.states[task.task_id] = "failed"
        try:
            result: dict[str, Any] = task.execute(context)
        finally:
            self.named.append(context["ti"].pushed.get("writer"))
        self.states[task.task_id] = "success"
        return result

    def after(self, task_id: str = "reconcile") -> Any:
        task: Any = self.dag.get_task(f"load.{task_id}")
        for name in task.template_fields:
            if isinstance(value := getattr(task, name), XComArg):
                setattr(task, name, self.left[value.key])
        context = context_of(task, states=self.states, pulled={**self.left, "writer": self.named})
        result = task.execute(context)
        self.left |= context["ti"].pushed
        return result


def is_there(path: Path) -> bool:
    return (path / "_delta_log").exists()


def killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def refused(job: StageJob) -> None:
    raise SparkQueryError("Spark refused it")


def staged_only(monkeypatch: pytest.MonkeyPatch, **terms: Any) -> None:
    """Let a writer be killed when its rows are staged, before it publishes them."""
    from airflow_provider_onelake.writes.publish import Committer

    with monkeypatch.context() as context:
        context.setattr(Committer, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            write(**terms)


@pytest.mark.parametrize(
    ("before", "terms"),
    [
        pytest.param(killed, {}, id="killed-while-staging"),
        pytest.param(refused, {}, id="refused-by-spark"),
        pytest.param(lambda job: None, {"checks": {"few": "id < 1"}}, id="refused-by-a-check"),
        pytest.param(killed, {"mode": Merge(keys=["id"])}, id="killed-while-staging-what-is-merged"),
        pytest.param(killed, {"mode": "overwrite_partitions"}, id="killed-overwrite"),
    ],
)
def test_a_first_load_that_fails_leaves_no_table_and_the_corrected_one_is_green(
    engine: FakeEngine, path: Path, before: Callable[[StageJob], None], terms: dict[str, Any]
) -> None:
    """The columns were wrong, as of a CSV file without its header, and nobody has to drop a table for the right ones."""
    engine.schema, engine.before = OF_TEXT, before
    with suppress(AirflowException, KeyboardInterrupt):
        write(**terms)
    assert not is_there(path)
    engine.schema, engine.before = SCHEMA, lambda job: None
    result = write()
    assert (result["status"], result["version"], ids(path)) == ("published", 0, [1])
    assert columns(local_log(path).snapshot().metadata)["id"].type == "long"


def test_a_source_of_a_merge_that_was_set_aside_meanwhile_makes_no_table(engine: FakeEngine, path: Path) -> None:
    def aside(job: StageJob) -> None:
        set_aside(local_log(path).store, job.buffer_uri.partition("trips/")[2], "by other work")

    engine.before = aside
    for rows in ({"2019-01": [1]}, {}):
        engine.rows = {None: rows}
        with pytest.raises(BufferSetAsideError, match="by other work"):
            write(mode=Merge(keys=["id"]))
    assert not is_there(path)


def test_one_commit_makes_the_table_with_its_rows_and_the_log_says_so(
    engine: FakeEngine, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        write(new_table=NewTable(properties={"delta.logRetentionDuration": "interval 9 days"}), commit_message="fix 7")
    (made,) = DeltaTable(path).history()
    assert made["userMetadata"].endswith("write 1 row. Message: fix 7")
    commit = commit_of(local_log(path), 0)
    assert commit.metadata is not None
    assert commit.metadata["configuration"] == {"delta.logRetentionDuration": "interval 9 days"}
    assert (len(commit.adds), list(commit.txns.values())) == (1, [1])
    assert "Tables/trips is not there yet; the first commit of rows makes it, partitioned by month" in caplog.text
    assert write()["status"] == "skipped"


def test_engines_that_read_symlink_manifests_see_the_rows_that_make_the_table(engine: FakeEngine, path: Path) -> None:
    write(new_table=NewTable(properties={"delta.compatibility.symlinkFormatManifest.enabled": "true"}))
    (file,) = DeltaTable(path).file_uris()
    manifest = path / "_symlink_format_manifest" / "month=2019-01" / "manifest"
    assert manifest.read_text().strip().endswith(Path(file).name)


def test_an_author_who_gives_the_columns_asks_for_the_table(engine: FakeEngine, path: Path) -> None:
    engine.before = killed
    with suppress(KeyboardInterrupt):
        write(new_table=NewTable(schema="id BIGINT, month STRING"))
    assert (ids(path), list(columns(local_log(path).snapshot().metadata))) == ([], ["id", "month"])
    engine.before = lambda job: None
    assert write()["version"] == 1


def meanwhile(engine: FakeEngine, schema_json: str, **terms: Any) -> None:
    mine = engine.schema

    def before(job: StageJob) -> None:
        engine.before, engine.schema = lambda job: None, schema_json
        write(task_id="other", where="b", **terms)
        engine.schema = mine

    engine.before = before


@pytest.mark.parametrize("properties", [{}, {"delta.columnMapping.mode": "name"}], ids=["plain", "mapped"])
def test_who_loses_the_race_with_the_same_columns_appends_without_staging_again(
    engine: FakeEngine, path: Path, properties: dict[str, str]
) -> None:
    meanwhile(engine, SCHEMA, new_table=NewTable(properties=properties))
    result = write(new_table=NewTable(properties=properties))
    assert (result["status"], result["version"], result["reruns"], len(engine.staged)) == ("published", 1, 0, 2)
    assert local_log(path).snapshot().version == 1
    assert write(new_table=NewTable(properties=properties))["status"] == "skipped"


def test_who_loses_the_race_with_other_columns_stages_again(engine: FakeEngine, path: Path) -> None:
    engine.schema = GROWN
    meanwhile(engine, SCHEMA)
    result = write(schema_evolution="add_columns")
    assert (result["status"], result["version"], result["reruns"]) == ("published", 2, 1)
    assert ids(path) == [1, 2]
    assert list(columns(local_log(path).snapshot().metadata)) == ["id", "month", "note"]


def test_who_loses_the_race_with_other_partition_columns_is_told(engine: FakeEngine, path: Path) -> None:
    meanwhile(engine, SCHEMA, partition_by=[])
    with pytest.raises(AirflowFailException, match="is partitioned by nothing, and partition_by asks for month"):
        write()


def test_a_retry_takes_what_was_staged_on_no_table(
    engine: FakeEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged_only(monkeypatch)
    assert not is_there(path)
    result = write()
    assert (result["status"], result["version"], result["reused"], len(engine.staged)) == ("published", 0, True, 1)


def test_an_append_that_made_the_table_meanwhile_is_a_conflict_to_who_overwrites_it(
    engine: FakeEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged_only(monkeypatch, mode="overwrite")
    assert write(task_id="other", where="b")["version"] == 0
    with pytest.raises(AirflowFailException, match=r"replace these rows, and were formed on no table. Nothing of them"):
        write(mode="overwrite", on_conflict="fail")
    result = write(mode="overwrite")
    assert (result["status"], result["version"], result["reruns"]) == ("published", 1, 1)
    assert ids(path) == [1]


def test_a_task_that_is_back_from_the_triggerer_has_asked_spark_for_the_columns(engine: FakeEngine, path: Path) -> None:
    task = OneLakeWriteOperator(task_id="write", table="Tables/trips", source=SqlSource("SELECT 1"), **BY_MONTH)
    context, engine.before = context_of(task), killed
    with suppress(KeyboardInterrupt):
        task.execute(context)
    engine.before = lambda job: None
    assert task.execute(context)["version"] == 0
    assert (len(engine.analyzed), ids(path)) == (1, [1])


def test_writers_that_are_published_together_make_the_table_in_one_version(engine: FakeEngine, path: Path) -> None:
    run = Run(group(publish="together", on_missing_writer="publish_nothing"))
    run.write("a")
    assert not is_there(path)
    run.write("b")
    report = run.after()
    assert (report["version"], [one["status"] for one in report["writers"]]) == (0, ["published", "published"])
    assert (ids(path), local_log(path).snapshot().version) == ([1, 2], 0)


def test_a_load_that_is_not_complete_leaves_no_table(engine: FakeEngine, path: Path) -> None:
    run = Run(group(publish="together", on_missing_writer="publish_nothing"))
    run.write("a")
    engine.before = refused
    with pytest.raises(AirflowFailException):
        run.write("b")
    with pytest.raises(AirflowFailException, match="b"):
        run.after()
    assert not is_there(path)
    with pytest.raises(AirflowFailException, match="none of the writers left rows that would make it"):
        run_without_rows(group())


def run_without_rows(dag: DAG) -> None:
    run = Run(dag)
    run.states = {"load.a": "failed", "load.b": "failed"}
    run.named = [{"task": "load.a", "writer": "z", "deed": "load.a first"}, None]
    run.after()


@pytest.mark.parametrize("properties", [{}, {"delta.columnMapping.mode": "name"}], ids=["plain", "mapped"])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_of_writers_published_together_the_one_with_most_columns_makes_the_table(
    engine: FakeEngine, path: Path, order: str, properties: dict[str, str]
) -> None:
    run = Run(group(publish="together", new_table=NewTable(properties=properties)))
    for key in order:
        engine.schema = GROWN if key == "b" else SCHEMA
        run.write(key)
    assert run.after()["version"] == 0
    assert list(columns(local_log(path).snapshot().metadata)) == ["id", "month", "note"]
    assert len(local_log(path).live_files(lambda _: True, 0)) == 2


def test_columns_of_writers_published_together_that_do_not_fit_need_to_be_given(engine: FakeEngine, path: Path) -> None:
    def write_both(dag: DAG) -> Run:
        run = Run(dag)
        for key, schema_json in {"a": schema(id="long", month="string", other="string"), "b": GROWN}.items():
            engine.schema = schema_json
            run.write(key)
        return run

    evolving = {"publish": "together", "schema_evolution": "add_columns"}
    with pytest.raises(AirflowFailException, match=r"column \w+ is gone.*If there is none yet, give `schema`"):
        write_both(group(**evolving)).after()
    assert not is_there(path)
    engine.schema = SCHEMA
    write_both(group(**evolving, new_table=NewTable(schema="id BIGINT, month STRING"))).after()
    assert (list(columns(local_log(path).snapshot().metadata)), ids(path)) == (["id", "month", "other", "note"], [1, 2])


@pytest.mark.parametrize("terms", [{}, {"mode": Overwrite(allow_empty=True)}, {"mode": Merge(keys=["id"])}], ids=str)
def test_without_rows_there_is_no_table_unless_it_has_columns(
    engine: FakeEngine, path: Path, terms: dict[str, Any]
) -> None:
    engine.rows = {None: {}}
    result = write(**terms)
    assert (result["status"], result["version"]) == ("nothing_to_do", None)
    assert result["without_rows"].startswith("its source gave no row")
    assert not is_there(path)
    write(**terms, new_table=NewTable(schema="id BIGINT, month STRING"))
    assert list(columns(local_log(path).snapshot().metadata)) == ["id", "month"]


@pytest.mark.parametrize("publish", ["each", "together"])
def test_a_writer_without_rows_beside_one_with_rows(engine: FakeEngine, path: Path, publish: str) -> None:
    """Of a file that has its header only, Spark takes every column for text."""
    engine.rows = {"a": {}, "b": {"2019-02": [2]}}
    run = Run(group(publish=publish))
    engine.schema = OF_TEXT
    run.write("a")
    engine.schema = SCHEMA
    run.write("b")
    report = run.after()
    assert ids(path) == [2]
    assert columns(local_log(path).snapshot().metadata)["id"].type == "long"
    # Who has no rows, and finds no table, leaves nothing to be done.
    assert len(local_log(path).snapshot().txns) == (2 if publish == "together" else 1)
    statuses = {one["writer"]: one["status"] for one in report["writers"]}
    assert statuses["a"] == ("published" if publish == "together" else "nothing_to_do")


def emptied(engine: FakeEngine, **terms: Any) -> Run:
    """A run of a group whose writers have no rows, up to its reconciliation, which is green."""
    engine.rows = {"a": {}, "b": {}}
    run = Run(group(**terms))
    run.write("a", "b")
    report = run.after()
    assert [one["status"] for one in report["writers"]] == ["nothing_to_do", "nothing_to_do"]
    assert report["version"] is None
    return run


@pytest.mark.parametrize("publish", ["each", "together"])
def test_a_whole_load_without_rows_makes_no_table(engine: FakeEngine, path: Path, publish: str) -> None:
    emptied(engine, publish=publish)
    assert not is_there(path)


MODEL = {"semantic_model": "Trips"}


@pytest.mark.parametrize(
    ("task_id", "terms"),
    [("optimize", True), ("refresh_sql_endpoint", True), ("refresh_semantic_model", MODEL), ("vacuum", {})],
)
def test_behind_a_whole_load_without_rows_there_is_nothing_to_do(
    engine: FakeEngine, path: Path, task_id: str, terms: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Green, not skipped: else whatever stands behind the group would be skipped too, such as another load."""
    run = emptied(engine, **{task_id: terms})
    with caplog.at_level(logging.INFO):
        assert run.after("committed") is run.after(task_id) is None
    assert "There is no table at Tables/trips, as the load that the task follows committed nothing" in caplog.text
    assert not is_there(path)


@pytest.mark.parametrize("task_id", ["optimize", "vacuum"])
def test_a_table_that_the_load_should_have_made_is_missed(engine: FakeEngine, path: Path, task_id: str) -> None:
    lost = emptied(engine, **{task_id: True})
    lost.left["txns"] = {"onelake/test/taxi/load/r/a": 1}
    mistyped = emptied(engine, **{task_id: {"table": "Tables/trisp"}})
    for run, table in ((lost, "trips"), (mistyped, "trisp")):
        with pytest.raises(AirflowFailException, match=f"There is no Delta table at Tables/{table}"):
            run.after(task_id)


def test_what_waits_is_listed_before_there_is_a_table(engine: FakeEngine, path: Path) -> None:
    from airflow_provider_onelake.operators.staged import OneLakeStagedOperator

    dag = group(publish="together")
    with dag:
        listing = OneLakeStagedOperator(task_id="listing", table="Tables/trips")
        [dag.get_task("load.a"), dag.get_task("load.b")] >> listing
    run = Run(dag)
    with pytest.raises(AirflowSkipException, match="trips yet, and nothing is staged for it"):
        listing.execute(context_of(listing, states={"load.a": "failed"}, pulled={"writer": [None]}))
    run.write("a")
    found = listing.execute(context_of(listing, states=run.states, pulled={"writer": run.named}))
    assert [(one["writer"], one["rows"]) for one in found] == [("a", 1)]


def test_a_retry_makes_it_with_other_properties(
    engine: FakeEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged_only(monkeypatch, new_table=NewTable(properties={"delta.appendOnly": "true"}))
    assert (write()["version"], len(engine.staged)) == (0, 1)
    assert local_log(path).snapshot().configuration == {}
