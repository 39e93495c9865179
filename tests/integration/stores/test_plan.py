"""A plan over a source in the lakehouse, on every kind of store: listed there, kept there."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.planning.record import DIRECTORY
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.storage.addresses import TableAddress
from tests.support.contexts import context_of
from tests.support.object_stores import Lake


@pytest.fixture
def source(hook: OneLakeHook, lake: Lake) -> str:
    """A directory of files by day, as Spark spells it."""
    for day, size in (("2019-01-01", 5), ("2019-01-02", 4), ("2019-01-03 late", 3)):
        hook.get_conn().put(f"Files/in/day={day}/part-0.json", b"x" * size)
    hook.get_conn().put("Files/in/_SUCCESS", b"")
    hook.get_conn().put("Files/in2/day=2019-01-09/part-0.json", b"x")
    return f"{TableAddress.parse_root(lake.root).spark_uri.removeprefix('file://')}/Files/in"


def plan(path: str, dag: str = "taxi", **arguments: Any) -> list[dict[str, Any]]:
    task = OneLakePlanOperator(task_id="plan", table="Tables/t", source=FileSource(path), by="day", **arguments)
    return task.execute(context_of(task, dag_id=dag))


def test_files_are_listed_balanced_and_named_as_spark_reads_them(source: str) -> None:
    first, second = plan(source, writers=2)
    assert first == {"writer": "2019-01-01", "files": [f"{source}/day=2019-01-01/part-0.json"]}
    assert second["files"] == [f"{source}/day={day}/part-0.json" for day in ("2019-01-02", "2019-01-03 late")]
    assert [entry["files"] for entry in plan(f"{source}/day=*[12]/*.json", dag="glob")] == [
        first["files"],
        second["files"][:1],
    ]


def test_a_rerun_finds_the_plan_and_adds_what_is_new(source: str, hook: OneLakeHook, lake: Lake) -> None:
    before = plan(source, writers=2)
    hook.get_conn().put("Files/in/day=2019-01-04/part-0.json", b"x" * 100)
    after = plan(source, writers=2)

    assert after[:2] == before
    assert [entry["writer"] for entry in after[2:]] == ["2019-01-04"]
    assert plan(source, writers=5) == after
    assert len(list(lake.log().store.list(DIRECTORY))) == 2
