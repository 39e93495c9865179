"""The plan operator: what each writer is given, and that a clear gives the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG
from obstore.store import MemoryStore

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.context import task_run_of
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators._source_files import seen_files
from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.storage.stores import ObjectStore
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.tables import LOAD


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    lake = tmp_path / "lake"
    connect(monkeypatch, OneLakeHook, lakehouse=str(lake), namespace="test")
    for month, size in (("2019-01", 7), ("2019-02", 3), ("2019-03", 4)):
        put(lake, month, size)
    return lake


def put(lake: Path, month: str, size: int) -> Path:
    file = lake / "Files" / "in" / f"trips_{month}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    return file


def plan(lake: Path, dag: str = "taxi", **arguments: Any) -> list[dict[str, Any]]:
    given = {"table": "Tables/trips", "source": FileSource(f"{lake}/Files/in/*.json"), "by": r"trips_([\d-]+)"}
    task = OneLakePlanOperator(task_id="plan", **{**given, **arguments})
    context = context_of(task, dag_id=dag)
    task.render_template_fields(context)
    return task.execute(context)


def test_each_writer_gets_whole_partitions_and_the_limit(lake: Path) -> None:
    first, second = plan(lake, writers=2, max_bytes=10)
    files = [f"{lake}/Files/in/trips_2019-01.json"]
    assert first == {"writer": "2019-01", "files": files, "planned": {"max_bytes": 10}}
    assert second["writer"].startswith("2019-02+1-")
    assert [Path(path).name for path in second["files"]] == ["trips_2019-02.json", "trips_2019-03.json"]


def test_an_address_in_the_lakehouse_is_listed_through_its_store(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(MemoryStore(), "s3://bucket/lake")
    connect(monkeypatch, OneLakeHook, lakehouse="s3://bucket/lake", namespace="test")
    monkeypatch.setattr(OneLakeHook, "get_conn", lambda self: store)
    monkeypatch.setattr(OneLakeHook, "table", lambda self, name: SimpleNamespace(log=SimpleNamespace(store=store)))
    for month in ("2019-01", "2019-02"):
        store.put(f"Files/in/trips_{month}.json", b"x")

    planned = plan(lake, source=FileSource("s3a://bucket/lake/Files/in/*.json"))
    assert [entry["writer"] for entry in planned] == ["2019-01", "2019-02"]
    assert planned[0]["files"] == ["s3a://bucket/lake/Files/in/trips_2019-01.json"]


def test_a_clear_gives_the_same_writers_and_the_files_of_now(lake: Path) -> None:
    before = plan(lake, writers=2)
    put(lake, "2019-03", 400)
    again_in = put(lake, "2019-02", 3).rename(lake / "Files" / "in" / "trips_2019-02.0.json")
    put(lake, "2019-04", 1)
    after = plan(lake, writers=2)

    assert [entry["writer"] for entry in after] == [*(entry["writer"] for entry in before), "2019-04"]
    assert str(again_in) in after[1]["files"]


def test_a_partition_that_is_gone_is_left_out_and_said(lake: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan(lake)
    (lake / "Files" / "in" / "trips_2019-02.json").unlink()
    assert [entry["writer"] for entry in plan(lake)] == ["2019-01", "2019-03"]
    assert any("2019-02, planned for writer 2019-02, is not in the source any more" in text for text in caplog.messages)


def test_a_path_without_files_is_refused_unless_that_is_right(lake: Path) -> None:
    missing = f"{lake}/Files/missing/*"
    for paths in (missing, [f"{lake}/Files/in/*.json", missing]):
        with pytest.raises(AirflowFailException, match=r"PlanError: .*missing/\* stands for no file that Spark reads"):
            plan(lake, source=FileSource(paths))
    assert plan(lake, source=FileSource(missing), allow_empty=True) == []
    some = FileSource([f"{lake}/Files/in/*.json", missing])
    assert len(plan(lake, dag="other", source=some, allow_empty=True)) == 3
    # Spark reads what lies directly in it.
    with pytest.raises(AirflowFailException, match=r"/Files stands for no file that Spark reads"):
        plan(lake, source=FileSource(f"{lake}/Files"))


def test_nothing_measured_is_refused_unless_that_is_right(lake: Path) -> None:
    with pytest.raises(AirflowFailException, match=r"sizes=\[\] of plan: there is nothing to load"):
        plan(lake, source=None, by=None, sizes={}, column="vendor")
    assert plan(lake, source=None, by=None, sizes=[], column="vendor", allow_empty=True) == []


def test_a_source_that_spark_would_refuse_is_not_planned(lake: Path) -> None:
    for name in ("m=1", "done"):
        (lake / "Files" / name).mkdir()
        (lake / "Files" / name / "x.json").write_text("x")
    with pytest.raises(AirflowFailException, match="Spark would refuse to read the source of plan: columns would"):
        plan(lake, source=FileSource(f"{lake}/Files"), by=None)


def test_a_name_that_means_something_in_a_glob_is_this_file(lake: Path, engine: FakeEngine) -> None:
    for name in ("[1]", "1", "{1}"):
        put(lake, name, 5)
    planned = plan(lake, source=FileSource(f"{lake}/Files/in/*.json"), by=None)
    files = [entry["files"] for entry in planned]
    assert [rf"{lake}/Files/in/trips_\[1\].json"] in files
    for entry in planned:
        write(lake, {**entry, "planned": {"max_bytes": 7}})
    # By the bytes that a writer saw, each read its own file.
    assert sorted(job.source["path"] for job in engine.staged) == sorted(files)


@pytest.mark.parametrize(
    ("sizes", "where"),
    [
        ({1: 5}, "IF(typeof(`vendor`) LIKE 'string%', `vendor` = '1', `vendor` = 1)"),
        ({"O'Hare\\": 1, "b": 2}, "`vendor` = 'O\\'Hare\\\\' OR `vendor` = 'b'"),
        ({None: 1}, "`vendor` IS NULL"),
        ([[None, 1], ["x", 2]], "`vendor` = 'x' OR `vendor` IS NULL"),
        ([("None", 1), ("null", 2)], "`vendor` = 'None' OR `vendor` = 'null'"),
    ],
    ids=str,
)
def test_values_become_a_filter(lake: Path, sizes: Any, where: str) -> None:
    ((entry),) = plan(lake, source=None, by=None, sizes=sizes, column="vendor", writers=1)
    assert entry["where"] == where


def test_a_writers_plan_can_be_expanded_over(lake: Path) -> None:
    group = {"group_id": "load", "table": "Tables/trips", "onelake_conn_id": "lake"}
    with DAG("taxi", schedule=None) as dag, OneLakeWriteTaskGroup(**group):  # type: ignore[arg-type]
        planned = OneLakePlanOperator(task_id="plan", source=FileSource("/in"), prefix="n-")
        OneLakeWriteOperator.partial(task_id="write", source=FileSource("/in")).expand_kwargs(planned.output)

    assert (planned.table, planned.onelake_conn_id) == ("Tables/trips", "lake")
    assert dag.get_task("load.write").upstream_task_ids == {"load.plan"}
    assert dag.get_task("load.reconcile").upstream_task_ids == {"load.write"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"source": None},
        {"sizes": {"a": 1}, "column": "x"},
        {"source": None, "sizes": {"a": 1}},
        {"column": "x"},
        {"source": "/in"},
        {"table": ""},
        {"allow_empty": "no"},
        {"only_new": "no"},
        {"writers": "2"},
        {"writers": 0},
        {"max_bytes": "1GB"},
        {"max_bytes": -1},
        {"only_new": True, "max_files": "5"},
        {"only_new": True, "max_files": 0},
    ],
    ids=str,
)
def test_what_contradicts_itself_is_refused_when_the_dag_is_parsed(lake: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidWriteError):
        plan(lake, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": FileSource("s3a://elsewhere/in/*")}, "s3a://elsewhere/in/.* cannot be listed.*or give `sizes`"),
        ({"by": "month"}, "belongs to no partition"),
        ({"source": None, "by": None, "sizes": [[1, 2], [1, 3]], "column": "x"}, "two partitions have one name"),
        ({"source": None, "by": None, "sizes": [[1, 2], ["01", 3]], "column": "x"}, "1 and '01' are one value in some"),
        ({"source": None, "by": None, "sizes": [[(1, 2), 3]], "column": "x"}, r"\(1, 2\) is of the type tuple, of"),
        ({"source": None, "by": None, "sizes": {"None": 2, "4": 3}, "column": "x"}, "'None' may have been NULL"),
        ({"source": None, "by": None, "sizes": {"null": 2}, "column": "x"}, r"give a list of \[value, bytes\]"),
        ({"source": None, "by": None, "sizes": [1, 2], "column": "x"}, r"are a list of \[value, bytes\], or a dict"),
    ],
)
def test_what_cannot_be_planned_is_not_retried(lake: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(AirflowFailException, match=f"PlanError: .*{message}"):
        plan(lake, **arguments)
    assert not list((lake / "Tables").glob("trips/_plans/**/*.json"))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    return use_engine(monkeypatch, FakeEngine({None: {"2019-01": [1]}}))


def write(lake: Path, entry: dict[str, Any]) -> dict[str, Any]:
    source = FileSource(f"{lake}/Files/in/*.json", format="json", view="trips")
    task = OneLakeWriteOperator(task_id="write", table="Tables/trips", partition_by=["month"], source=source, **entry)
    return task.execute(context_of(task))


def test_a_writer_reads_the_files_that_it_was_planned_for(lake: Path, engine: FakeEngine) -> None:
    entry = plan(lake, max_bytes=10, writers=2)[1]
    assert write(lake, entry)["writer"] == entry["writer"]
    source = engine.staged[-1].source
    assert (source["path"], source["format"], source["view"]) == (entry["files"], "json", "trips")


def test_a_writer_has_the_columns_that_directories_spell(lake: Path, engine: FakeEngine) -> None:
    for month in ("2019-01", "2019-02"):
        (lake / "Files" / "hive" / f"month={month}").mkdir(parents=True)
        (lake / "Files" / "hive" / f"month={month}" / "a.json").write_text("x")
    whole = FileSource(f"{lake}/Files/hive", format="json", options={"multiLine": "true"})
    for source, base in (
        (whole, f"{lake}/Files/hive"),
        (attrs.evolve(whole, options={"BasePath": str(lake)}), None),
        (FileSource(f"{lake}/Files/hive/*", format="json"), None),
    ):
        first, _ = plan(lake, dag=f"{source}", source=source, by="month")
        task = OneLakeWriteOperator(task_id="write", table="Tables/t", partition_by=["month"], source=source, **first)
        task.execute(context_of(task, dag_id=f"{source}"))
        asked = engine.staged[-1].source
        assert asked["path"] == [f"{lake}/Files/hive/month=2019-01/a.json"]
        assert asked["options"] == {**source.options, **({} if base is None else {"basePath": base})}


def test_a_source_that_grew_between_plan_and_write_is_refused_before_spark(lake: Path, engine: FakeEngine) -> None:
    entry = plan(lake, max_bytes=10, writers=2)[1]
    put(lake, "2019-03", 8)
    with pytest.raises(AirflowFailException, match=r"SourceGrewError: .* has 11 bytes now, above max_bytes=10"):
        write(lake, entry)
    assert engine.analyzed == []


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, lake: Path) -> ObjectStore:
    """The lakehouse of files in a store; the table is on this machine, where the engine can write."""
    store = ObjectStore(MemoryStore(), "s3://bucket/lake")
    table = OneLakeHook().table("Tables/trips")
    connect(monkeypatch, OneLakeHook, lakehouse="s3://bucket/lake", namespace="test")
    monkeypatch.setattr(OneLakeHook, "get_conn", lambda self: store)
    monkeypatch.setattr(OneLakeHook, "table", lambda self, _: table)
    store.put("Files/in/a.json", b"first")
    return store


def stored_write(**arguments: Any) -> Any:
    source = FileSource("s3a://bucket/lake/Files/in/*.json", format="json")
    return OneLakeWriteOperator(task_id="write", table="Tables/trips", writer="w", source=source, **arguments)


def test_a_file_in_a_store_that_changed_is_noticed(bucket: ObjectStore, lake: Path) -> None:
    task = stored_write()

    def digest() -> str:
        files = seen_files(task.source, task.hook)
        return task.terms().spec(LOAD.writer("w"), task_run_of(context_of(task)), 1, files).fingerprint

    first = digest()
    assert digest() == first
    bucket.put("Files/in/a.json", b"mended!")
    second = digest()
    bucket.put("Files/in/b.json", b"more")
    assert len({first, second, digest()}) == 3


def test_files_in_a_store_that_grew_are_refused_before_spark(bucket: ObjectStore, engine: FakeEngine) -> None:
    task = stored_write(planned={"max_bytes": 4})
    context = context_of(task)
    with pytest.raises(AirflowFailException, match=r"SourceGrewError: .* has 5 bytes now, above max_bytes=4"):
        task.execute(context)
    assert engine.analyzed == []
    # Reconcile misses this writer by the name that it left.
    assert context["ti"].pushed["writer"]["writer"] == "w"


def test_files_are_those_of_a_file_source() -> None:
    with pytest.raises(InvalidWriteError, match="`files` are the paths of a FileSource"):
        OneLakeWriteOperator(task_id="write", table="/t", source=SqlSource("SELECT 1"), files=["/a"])
