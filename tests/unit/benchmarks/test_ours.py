"""Our way to load executes a write group in the order that Airflow would, without its scheduler."""

from __future__ import annotations

from collections.abc import Sequence
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

    def execute(task: Any, run: str, map_index: int, left: Sequence[Any] = ()) -> dict[str, Any]:
        done.append((task, map_index))
        # A writer sees what each task before it has left.
        assert [each["of"] for each in left] == [each.task_id for each, index in done if index == -1] * (map_index >= 0)
        return {"of": task.task_id, "status": "shared"}

    monkeypatch.setattr(ours, "_execute", execute)
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


def test_writers_that_share_no_scan_though_they_could_are_not_measured(
    executed: list[tuple[Any, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ours, "_execute", lambda task, run, map_index, left=(): {"status": "not_shared", "reason": "of its columns"}
    )
    with pytest.raises(RuntimeError, match="do not share a scan: of its columns"):
        ours.load(Path("/lake/t"), [Share(name, Path("/x"), f"x = '{name}'") for name in "ab"])


@pytest.mark.parametrize("where", [None, "x = 1"])
def test_a_writer_has_its_file_or_its_filter(executed: list[tuple[Any, int]], where: str | None) -> None:
    paths = [Path("/x.parquet"), Path("/x.parquet" if where else "/y.parquet")]
    ours.load(Path("/lake/t"), [Share(f"w{number}", path, where) for number, path in enumerate(paths)])
    writers = {task.writer: task for task, index in executed if index >= 0}
    assert [writers[f"w{number}"].source.path for number in (0, 1)] == [path.as_uri() for path in paths]
    assert {task.where for task in writers.values()} == {where}
