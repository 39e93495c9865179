"""The plan of new files as tasks see it: what writers are given, files that change meanwhile, runs taken over."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.storage.stores import ObjectStore
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import JANUARY, connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.stores import KilledError, killed
from tests.support.tables import ids, make_table


class ReadsFiles(FakeEngine):
    """An engine whose rows are those of the files that a job names: each file is one number."""

    def _appended(self, store: ObjectStore, job: StageJob) -> list[dict[str, Any]]:
        files = [Path(path.replace("\\", "")) for path in job.source["path"]]
        self.rows = {job.where: {"2019-01": [int(file.read_text()) for file in files]}}
        return super()._appended(store, job)


@attrs.define
class Load:
    """Runs of one DAG, whose writers are given what its plan says."""

    lake: Path
    engine: ReadsFiles
    said: dict[tuple[int, int], dict[str, Any]] = attrs.field(factory=dict)
    dag_id: str = "taxi"
    load_name: str | None = None

    def put(self, name: str, row: int) -> None:
        file = self.lake / "Files" / "in" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(row))
        os.utime(file, ns=(row * 10**9, row * 10**9))

    @property
    def source(self) -> FileSource:
        return FileSource(f"{self.lake}/Files/in/*", format="text")

    def plan(self, day: int, **arguments: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        dag = self._dag([], **arguments)
        task: Any = dag.get_task("load.plan")
        context = context_of(task, JANUARY + timedelta(days=day), run_id=f"run {day}", dag_id=self.dag_id)
        task.render_template_fields(context)
        entries = task.execute(context)
        return entries, context["ti"].pushed.get("new_files")

    def write(self, day: int, entries: list[dict[str, Any]], number: int, **ti: Any) -> dict[str, Any]:
        task: Any = self._dag(entries).get_task("load.write")
        unmapped = task.unmap(entries[number])
        of = {"run_id": f"run {day}", "dag_id": self.dag_id, "map_index": number, **ti}
        context = context_of(unmapped, JANUARY + timedelta(days=day), **of)
        try:
            return unmapped.execute(context)
        finally:
            self.said[day, number] = context["ti"].pushed["writer"]

    def reconcile(self, day: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
        task: Any = self._dag(entries).get_task("load.reconcile")
        said = [self.said[day, number] for number in range(len(entries))]
        states = {f"load.write_{number}": "failed" for number in range(len(entries))}
        pulled = {"writer": said, "return_value": []}
        context = context_of(task, JANUARY + timedelta(days=day), run_id=f"run {day}", pulled=pulled, states=states)
        return task.execute(context)

    def _dag(self, entries: list[dict[str, Any]], **arguments: Any) -> DAG:
        group: Any = {"group_id": "load", "table": "Tables/trips", "load_name": self.load_name}
        given = {"only_new": True, "writers": 2, **arguments}
        with DAG(self.dag_id, schedule=None) as dag, OneLakeWriteTaskGroup(**group, partition_by=["month"]):
            plan = OneLakePlanOperator(task_id="plan", source=self.source, **given)
            mapped = OneLakeWriteOperator.partial(task_id="write", source=self.source)
            plan >> mapped.expand_kwargs(entries or [{"writer": "none"}])
        return dag


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Load:
    lake = tmp_path / "lake"
    connect(monkeypatch, OneLakeHook, lakehouse=str(lake), namespace="test")
    make_table(lake / "Tables" / "trips")
    load = Load(lake, use_engine(monkeypatch, ReadsFiles({})))
    for row, name in enumerate(("a", "b", "[c]"), 1):
        load.put(name, row)
    return load


def outcome(write: Callable[[], dict[str, Any]]) -> str:
    """The status of a writer, or why it has none."""
    try:
        return str(write()["status"])
    except AirflowFailException as error:
        return str(error)


def in_table(load: Load) -> list[int]:
    return ids(load.lake / "Tables" / "trips")


def test_writers_load_what_is_new_and_a_plan_without_new_files_has_none(load: Load) -> None:
    entries, counts = load.plan(1, max_bytes=10)
    assert sorted(Path(path).name for entry in entries for path in entry["files"]) == [r"\[c\]", "a", "b"]
    assert {entry["planned"]["max_bytes"] for entry in entries} == {10}
    assert (counts["new"], counts["loaded"]) == (3, 0)
    for number in range(2):
        load.write(1, entries, number)
    assert in_table(load) == [1, 2, 3]
    assert load.plan(2) == ([], {**counts, "planned": 0, "new": 0, "loaded": 3})
    assert load.reconcile(2, [])["writers"] == []


def test_a_dag_that_was_renamed_goes_on_with_its_ledger_by_its_load_name(load: Load) -> None:
    entries, _ = load.plan(1)
    load.write(1, entries, 0)
    load.dag_id = "taxi_v2"
    with pytest.raises(AirflowFailException, match=r"PlanError: .* say ledger='test/taxi/load\.plan'"):
        load.plan(2)
    load.load_name = "taxi"
    load.put("d", 4)
    _, counts = load.plan(2)
    assert (counts["new"], counts["left_to_others"]) == (1, {"2019-01-02T00:00:00+00:00": 1})
    # The run that the old name began ends under the new one.
    again = load.plan(1)[0]
    assert [(e["writer"], e["files"]) for e in again] == [(e["writer"], e["files"]) for e in entries]
    assert load.write(1, entries, 1)["status"] == "published"
    assert in_table(load) == [1, 2, 3]


def test_a_clear_after_a_file_was_moved_away_or_changed_is_skipped(load: Load) -> None:
    entries, _ = load.plan(1, writers=1)
    load.write(1, entries, 0)
    (load.lake / "Files/in/a").unlink()
    load.put("b", 9)
    assert load.plan(1, writers=1)[0] == entries
    assert outcome(lambda: load.write(1, entries, 0, max_tries=1, try_number=2)) == "skipped"
    assert in_table(load) == [1, 2, 3]


@pytest.mark.parametrize("gone", [False, True], ids=["changed", "gone"])
def test_a_file_that_changes_before_spark_reads_it_is_not_loaded(load: Load, gone: bool) -> None:
    entries, _ = load.plan(1, writers=1)
    if gone:
        (load.lake / "Files/in/a").unlink()
    else:
        load.put("a", 9)
    with pytest.raises(AirflowFailException, match=r"SourceChangedError: The 3 files .* are not as they were"):
        load.write(1, entries, 0)
    assert load.engine.staged == []
    again, counts = load.plan(1, writers=1)
    assert counts["taken_over"] == (2 if gone else 3)
    assert load.write(1, again, 0)["status"] == "published"
    assert in_table(load) == ([2, 3] if gone else [2, 3, 9])


def test_a_file_that_changes_while_spark_reads_it_is_not_published_by_anybody(load: Load) -> None:
    entries, _ = load.plan(1, writers=1)
    load.engine.before = lambda job: load.put("a", 9)
    with pytest.raises(AirflowFailException, match="SourceChangedError"):
        load.write(1, entries, 0)
    with pytest.raises(AirflowFailException, match="MissingWritersError"):
        load.reconcile(1, entries)
    assert in_table(load) == []
    again, _ = load.plan(1, writers=1)
    load.write(1, again, 0)
    assert in_table(load) == [2, 3, 9]


def test_rows_staged_before_a_file_changed_are_not_published(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_provider_onelake.steps.write import _Writing

    entries, _ = load.plan(1, writers=1)
    with monkeypatch.context() as patch:
        patch.setattr(_Writing, "_publish", killed)
        with pytest.raises(KilledError):
            load.write(1, entries, 0)
    load.put("a", 9)
    with pytest.raises(AirflowFailException, match="SourceChangedError"):
        load.write(1, entries, 0)
    load.write(1, load.plan(1, writers=1)[0], 0)
    assert in_table(load) == [2, 3, 9]


def test_a_run_that_was_taken_over_publishes_nothing(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    entries, _ = load.plan(1)
    load.write(1, entries, 0)
    _, counts = load.plan(2)
    (run,) = counts["left_to_others"]
    assert "If a RESTORE took them back, or the run is never to load them, start a run with" in caplog.text
    assert f"start a run with take_over='{run}'" in caplog.text
    taken, counts = load.plan(2, take_over=f" {run}, ")
    assert (counts["taken_over"], counts["left_to_others"]) == (len(entries[1]["files"]), {})
    with pytest.raises(AirflowFailException, match=r"ZombieWriterError: The files of writer .* were taken over by"):
        load.write(1, entries, 1)
    load.write(2, taken, 0)
    assert in_table(load) == [1, 2, 3]
    with pytest.raises(AirflowFailException, match=r"ZombieWriterError: The files of writer .* were taken over by"):
        load.reconcile(1, entries)
    assert in_table(load) == [1, 2, 3]


def test_a_merge_takes_no_plan_of_new_files(load: Load) -> None:
    entries, _ = load.plan(1, writers=1)
    given = {"task_id": "merge", "table": "Tables/trips", "source": load.source, **entries[0]}
    with pytest.raises(InvalidWriteError, match="takes no plan of new files"):
        OneLakeWriteOperator(**given, mode=Merge(keys=["id"]))


def test_the_writers_stand_behind_the_plan(load: Load) -> None:
    with DAG("taxi", schedule=None):
        task = OneLakePlanOperator(task_id="plan", table="Tables/trips", source=load.source, only_new=True)
    with pytest.raises(AirflowFailException, match=r"the writers of the plan stand directly behind it.*here are 0"):
        task.execute(context_of(task))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"only_new": False, "max_files": 3}, "belong to a plan with only_new=True"),
        ({"only_new": False, "take_over": ["x"]}, "belong to a plan with only_new=True"),
        ({"source": None, "sizes": {1: 2}, "column": "x"}, "only_new=True is about files"),
        ({"max_files": 0}, "max_files=0"),
        ({"on_changed": "replace"}, "on_changed='replace' is unknown; it is one of refuse, load_again, ignore"),
    ],
)
def test_what_contradicts_itself_is_refused_at_parse(load: Load, arguments: dict[str, Any], message: str) -> None:
    given = {"only_new": True, "source": load.source, **arguments}
    with pytest.raises(InvalidWriteError, match=message):
        OneLakePlanOperator(task_id="plan", table="Tables/trips", **given)
