"""The plan operator: what each writer is given, and that a clear gives the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from obstore.store import MemoryStore

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.storage.stores import ObjectStore
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import connect, context_of
from tests.support.engines import FakeEngine


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
    assert first == {"writer": "2019-01", "files": [f"{lake}/Files/in/trips_2019-01.json"], "max_bytes": 10}
    assert second["writer"].startswith("2019-02+1-")
    assert [Path(path).name for path in second["files"]] == ["trips_2019-02.json", "trips_2019-03.json"]


def test_a_local_address_is_listed_as_a_path_is(lake: Path) -> None:
    source = FileSource(f"file://{lake}/Files/in/*.json")
    assert [entry["writer"] for entry in plan(lake, source=source)] == ["2019-01", "2019-02", "2019-03"]


def test_an_address_in_the_lakehouse_is_listed_through_its_store(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(MemoryStore(), "s3://bucket/lake")
    connect(monkeypatch, OneLakeHook, lakehouse="s3://bucket/lake", namespace="test")
    monkeypatch.setattr(OneLakeHook, "get_conn", lambda self: store)
    monkeypatch.setattr(OneLakeHook, "delta_log", lambda self, table: SimpleNamespace(store=store))
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


def test_another_dag_plans_for_itself(lake: Path) -> None:
    assert len(plan(lake, writers=2)) == 2
    assert len(plan(lake, writers=3)) == 2
    assert len(plan(lake, dag="other", writers=3)) == 3


def test_a_partition_that_is_gone_is_left_out_and_said(lake: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan(lake)
    (lake / "Files" / "in" / "trips_2019-02.json").unlink()
    assert [entry["writer"] for entry in plan(lake)] == ["2019-01", "2019-03"]
    assert any("2019-02, planned for writer 2019-02, is not in the source any more" in text for text in caplog.messages)


def test_no_files_are_no_writers(lake: Path) -> None:
    assert plan(lake, source=FileSource(f"{lake}/Files/missing/*")) == []


@pytest.mark.parametrize(
    ("sizes", "where"),
    [
        ({1: 5}, "`vendor` IN (1)"),
        ({1: 5, 2: 6}, "`vendor` IN (1, 2)"),
        ({"O'Hare\\": 1}, "`vendor` IN ('O\\'Hare\\\\')"),
        ({None: 1}, "`vendor` IS NULL"),
        ({None: 1, 4: 2}, "`vendor` IN (4) OR `vendor` IS NULL"),
    ],
    ids=str,
)
def test_values_become_a_filter(lake: Path, sizes: dict[Any, int], where: str) -> None:
    ((entry),) = plan(lake, source=None, by=None, sizes=sizes, column="vendor", writers=1)
    assert entry["where"] == where


def test_a_writers_plan_can_be_expanded_over(lake: Path) -> None:
    with (
        DAG("taxi", schedule=None) as dag,
        OneLakeWriteTaskGroup(group_id="load", table="Tables/trips", onelake_conn_id="lake"),
    ):
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
        ({"max_bytes": 6}, r"2019-01 \(7 bytes\): above max_bytes=6"),
        ({"by": "month"}, "belongs to no partition"),
        ({"source": None, "by": None, "sizes": {1: 2, "1": 3}, "column": "x"}, "two partitions have one name"),
    ],
)
def test_what_cannot_be_planned_is_not_retried(lake: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(AirflowFailException, match=f"PlanError: .*{message}"):
        plan(lake, **arguments)
    assert not list((lake / "Tables").glob("trips/_plans/**/*.json"))


# -- the writer ----------------------------------------------------------------------------------------------------


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine({None: {"2019-01": [1]}})
    monkeypatch.setattr("airflow_provider_onelake.operators.spark_task.engine_for", lambda *_: fake)
    return fake


def write(lake: Path, entry: dict[str, Any]) -> dict[str, Any]:
    source = FileSource(f"{lake}/Files/in/*.json", format="json", view="trips")
    task = OneLakeWriteOperator(task_id="write", table="Tables/trips", partition_by=["month"], source=source, **entry)
    return task.execute(context_of(task))


def test_a_writer_reads_the_files_that_it_was_planned_for(lake: Path, engine: FakeEngine) -> None:
    entry = plan(lake, max_bytes=10, writers=2)[1]
    assert write(lake, entry)["writer"] == entry["writer"]
    source = engine.staged[-1].source
    assert (source["path"], source["format"], source["view"]) == (entry["files"], "json", "trips")


def test_a_source_that_grew_between_plan_and_write_is_refused_before_spark(lake: Path, engine: FakeEngine) -> None:
    entry = plan(lake, max_bytes=10, writers=2)[1]
    put(lake, "2019-03", 8)
    with pytest.raises(AirflowFailException, match=r"SourceGrewError: .* has 11 bytes now, above max_bytes=10"):
        write(lake, entry)
    assert engine.analyzed == []


def test_files_are_those_of_a_file_source() -> None:
    with pytest.raises(InvalidWriteError, match="`files` are the paths of a FileSource"):
        OneLakeWriteOperator(task_id="write", table="/t", source=SqlSource("SELECT 1"), files=["/a"])
