"""Our way to load executes a write group in the order that Airflow would, without its scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.benchmarks import ours
from tests.benchmarks.tpch import Share


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, int]]:
    done: list[tuple[Any, int]] = []
    monkeypatch.setattr(ours, "_execute", lambda task, run, map_index: done.append((task, map_index)))
    return done


def test_what_stands_before_the_writers_runs_first_and_what_stands_behind_them_does_not(
    executed: list[tuple[Any, int]],
) -> None:
    each = [{"writer": "a", "where": "x = 1"}, {"writer": "b", "where": "x = 2"}]
    with DAG("bench", schedule=None) as dag, OneLakeWriteTaskGroup(group_id="load", table="/t"):
        source = FileSource("/x.parquet")
        BaseOperator(task_id="before") >> OneLakeWriteOperator.partial(task_id="write", source=source).expand_kwargs(
            each
        )
    ours._run(dag, each)
    names = [task.task_id for task, _ in executed]
    assert names[0] == "load.before"
    assert names[-2:] == ["load.write"] * 2
    assert not {"load.reconcile", "load.committed"} & set(names)
    assert sorted((index, task.writer) for task, index in executed[-2:]) == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("where", [None, "x = 1"])
def test_a_writer_has_its_file_or_its_filter(executed: list[tuple[Any, int]], where: str | None) -> None:
    paths = [Path("/x.parquet"), Path("/x.parquet" if where else "/y.parquet")]
    ours.load(Path("/lake/t"), [Share(f"w{number}", path, where) for number, path in enumerate(paths)])
    writers = {task.writer: task for task, index in executed if index >= 0}
    assert [writers[f"w{number}"].source.path for number in (0, 1)] == [path.as_uri() for path in paths]
    assert {task.where for task in writers.values()} == {where}
