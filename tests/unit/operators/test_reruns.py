"""What a rerun does, case by case as docs/concepts/reruns.md has them: clears, deleted runs, lists that grow, new names."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.claims import Start
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators._writers_of_run import rivals
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import JANUARY, connect, context_of, delete_runs
from tests.support.engines import FakeEngine, use_engine
from tests.support.tables import foreign_append, ids, local_log

ROWS = {"a": [1], "b": [2], "c": [3], "x": [4]}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    return use_engine(
        monkeypatch, FakeEngine({key: {"2019-01": found} for key, found in ROWS.items()} | {None: {"2019-01": [1, 2]}})
    )


@pytest.fixture
def trips(log: DeltaLog) -> Path:
    return Path(log.table)


@attrs.define
class Airflow:
    """What Airflow keeps of one run: states, XComs and counters of its task instances."""

    states: dict[str, str | None] = attrs.field(factory=dict)
    xcoms: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    tries: dict[str, tuple[int, int]] = attrs.field(factory=dict)
    clears: int = 0
    days: int = 0
    dag_id: str = "taxi"

    def clear(self, *names: str) -> None:
        """As its web UI does: XComs stay until the next try begins."""
        self.clears += 1
        for name in names or list(self.states):
            number, _ = self.tries[name]
            self.tries[name] = (number + 1, number)
            self.states[name] = None

    def delete(self) -> Airflow:
        delete_runs()
        return Airflow(days=self.days + 1)

    def context(self, task: Any, map_index: int = -1) -> Any:
        name = self.name(task, map_index)
        number, max_tries = self.tries.setdefault(name, (1, task.retries))
        self.states[name] = "running"
        self.xcoms[name] = {}
        context = context_of(
            task,
            dag_id=self.dag_id,
            map_index=map_index,
            try_number=number,
            max_tries=max_tries,
            clears=self.clears,
            states=self.states,
            pulled={key: [x[key] for x in self.xcoms.values() if key in x] for key in ("writer", "return_value")},
        )
        context["dag_run"].start_date = JANUARY + timedelta(days=self.days)
        self.xcoms[name] = context["ti"].pushed
        return context

    def name(self, task: Any, map_index: int) -> str:
        return task.task_id if map_index < 0 else f"{task.task_id}_{map_index}"

    def run(self, task: Any, map_index: int = -1) -> Any:
        name, context = self.name(task, map_index), self.context(task, map_index)
        self.states[name] = "failed"
        try:
            self.xcoms[name]["return_value"] = task.execute(context)
            self.states[name] = "success"
        except AirflowSkipException:
            self.states[name] = "skipped"
        return self.xcoms[name]["return_value"]


def write(**arguments: Any) -> OneLakeWriteOperator:
    given = {"task_id": "load", "table": "Tables/trips", "source": SqlSource("SELECT 1"), **arguments}
    with DAG("taxi", schedule=None):
        return OneLakeWriteOperator(**given)


def load(*keys: str, group: str = "load", **given: Any) -> DAG:
    """A load whose writers a list names; each reads what its ``where`` says."""
    with DAG("taxi", schedule=None) as dag, OneLakeWriteTaskGroup(group_id=group, table="Tables/trips", **given):
        mapped = OneLakeWriteOperator.partial(task_id="write", source=SqlSource("SELECT 1"))
        mapped.expand_kwargs([{"writer": key, "where": key} for key in keys])
    return dag


def run_load(airflow: Airflow, dag: DAG, *keys: str, reads: Mapping[str, str] | None = None) -> list[str]:
    mapped: Any = next(task for task in dag.tasks if task.task_id.endswith(".write"))
    tasks = [mapped.unmap({"writer": key, "where": (reads or {}).get(key, key)}) for key in keys]
    return [airflow.run(task, index)["status"] for index, task in enumerate(tasks)]


def reconcile(airflow: Airflow, dag: DAG) -> Any:
    return airflow.run(dag.get_task("load.reconcile"))


OVERWRITE = {"mode": "overwrite_partitions"}


def test_the_log_says_where_the_table_is(engine: FakeEngine, trips: Path, caplog: pytest.LogCaptureFixture) -> None:
    airflow, dag = Airflow(), load("a")
    caplog.set_level(logging.INFO)
    for run in (lambda: run_load(airflow, dag, "a"), lambda: reconcile(airflow, dag)):
        caplog.clear()
        run()
        lines = [record.getMessage() for record in caplog.records if "airflow_provider_onelake" in record.pathname]
        assert lines[0] == f"Tables/trips is {trips}"
        assert not any(str(trips) in line for line in lines[1:])


def test_an_overwrite_of_a_run_made_again_is_written_again(engine: FakeEngine, trips: Path) -> None:
    airflow = Airflow()
    airflow.run(write(**OVERWRITE))
    airflow.clear()
    airflow.run(write(**OVERWRITE))
    airflow = airflow.delete()
    for _ in range(3):
        DeltaTable(str(trips)).delete()
        assert airflow.run(write(**OVERWRITE))["status"] == "published"
        assert ids(trips) == [1, 2]
        airflow.clear()


def test_an_append_of_a_run_made_again_is_skipped(engine: FakeEngine, trips: Path) -> None:
    airflow = Airflow()
    airflow.run(write())
    assert airflow.delete().run(write())["status"] == "skipped"
    assert (ids(trips), len(engine.staged)) == ([1, 2], 1)


@pytest.mark.parametrize("now", [0, 9])
def test_a_retry_is_one_whatever_the_dag_s_retries_are_by_then(engine: FakeEngine, trips: Path, now: int) -> None:
    """The worker died after it had published, before it said so."""
    airflow = Airflow()
    airflow.run(write(on_rerun="append", retries=2))
    airflow.tries["load"] = (2, 2)
    assert airflow.run(write(on_rerun="append", retries=now))["status"] == "skipped"
    assert ids(trips) == [1, 2]


@pytest.mark.parametrize("given", [{}, OVERWRITE, {"on_rerun": "replace"}], ids=["skip", "overwrite", "replace"])
def test_a_list_that_grows_at_its_front_moves_keys(engine: FakeEngine, trips: Path, given: dict[str, str]) -> None:
    engine.rows = {key: {f"2019-0{found[0]}": found} for key, found in ROWS.items()}
    airflow = Airflow()
    run_load(airflow, load("a", "b", **given), "a", "b")
    grown = load("x", "a", "b", **given)
    airflow.clear()
    old = "published" if given else "skipped"
    assert run_load(airflow, grown, "x", "a", "b") == ["published", old, old]
    assert ids(trips) == [1, 2, 4]
    assert reconcile(airflow, grown)["orphans"] == []


def test_a_list_that_grows_in_another_order_of_tasks_is_no_duplicate_either(engine: FakeEngine, trips: Path) -> None:
    airflow = Airflow()
    run_load(airflow, load("a", "b"), "a", "b")
    airflow.clear()
    mapped: Any = load("x", "a", "b").get_task("load.write")
    for index, key in ((2, "b"), (1, "a"), (0, "x")):
        airflow.run(mapped.unmap({"writer": key, "where": key}), index)
    assert ids(trips) == [1, 2, 4]


def test_two_writers_with_one_key_are_two(engine: FakeEngine, trips: Path) -> None:
    airflow, dag = Airflow(), load("a", "a")
    for _ in range(2):
        with pytest.raises(AirflowFailException, match=r"DuplicateWriterError: .* load.write\[0\] and load.write\[1\]"):
            run_load(airflow, dag, "a", "a")
        airflow.clear("load.write_1")
        airflow.states.pop("load.write_0")
        airflow.states["load.write_0"] = "success"
    assert ids(trips) == [1]


def stale(airflow: Airflow, engine: FakeEngine) -> tuple[Any, Start]:
    """A task that was cleared and whose new try reads the DAG, and the start by which it had the key `b`."""
    run_load(airflow, load("a", "b"), "a", "b")
    airflow.clear()
    airflow.states["load.write_1"] = "running"
    mapped: Any = load("x", "a", "b").get_task("load.write")
    context = airflow.context(mapped.unmap({"writer": "b", "where": "b"}), 2)
    said = airflow.xcoms["load.write_1"]["writer"]
    return context, Start(id=said["deed"], task=said["task"], run_id=context["ti"].run_id, chain="any")


def test_what_a_task_said_before_it_was_cleared_is_waited_for_to_go(engine: FakeEngine, log: DeltaLog) -> None:
    """Airflow calls it running while it reads the DAG, and takes away what it said after that."""
    airflow = Airflow()
    context, task_start = stale(airflow, engine)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            context["ti"].pulled["writer"].clear()

    assert not rivals(context, wait)(task_start)
    assert len(waited) == 3


def test_a_task_that_says_so_still_has_the_key(engine: FakeEngine, log: DeltaLog) -> None:
    airflow = Airflow()
    context, task_start = stale(airflow, engine)
    waited: list[float] = []
    assert rivals(context, waited.append)(task_start)
    assert 20 < sum(waited) < 60
    # What has ended or waits for a retry is not about to say something else.
    ends = (("success", True), ("failed", False), ("up_for_retry", False), ("removed", False), ("skipped", False))
    for state, rival in ends:
        airflow.states["load.write_1"] = state
        assert rivals(context, pytest.fail)(task_start) is rival
    airflow.xcoms["load.write_1"]["writer"]["left_out"] = True
    assert rivals(context, pytest.fail)(task_start)


def test_a_list_that_grew_and_was_not_cleared_as_a_whole_is_refused(engine: FakeEngine, trips: Path) -> None:
    """The first task has the key still: `x` would never be loaded."""
    airflow = Airflow()
    run_load(airflow, load("a"), "a")
    mapped: Any = load("x", "a").get_task("load.write")
    with pytest.raises(AirflowFailException, match="DuplicateWriterError"):
        airflow.run(mapped.unmap({"writer": "a", "where": "a"}), 1)


SKIPS = {**OVERWRITE, "on_conflict": "first_writer_wins", "on_set_aside": "skip"}


def appends_during(engine: FakeEngine, log: DeltaLog, where: str) -> None:
    """Let another append a row of the partition while Spark first stages the rows of a writer."""

    def before(job: Any) -> None:
        if job.where == where and [staged.where for staged in engine.staged].count(where) == 1:
            foreign_append(local_log(Path(log.table)), {"2019-01": [91]})

    engine.before = before


def test_a_skipped_writer_is_known_to_reconcile_which_is_green(engine: FakeEngine, log: DeltaLog) -> None:
    airflow, dag = Airflow(), load("a", "b", **SKIPS)
    engine.rows = {"a": {"2019-02": [1]}, "b": {"2019-01": [2]}}
    appends_during(engine, log, "b")
    assert run_load(airflow, dag, "a", "b") == ["published", "set_aside"]
    assert airflow.states == {"load.write_0": "success", "load.write_1": "skipped"}

    report = reconcile(airflow, dag)
    statuses = {writer["writer"]: writer["status"] for writer in report["writers"]}
    assert statuses == {"a": "already_published", "b": "set_aside"}
    assert list(report["left_out"]) == ["b"]
    # The sensor behind it waits for both.
    assert len(airflow.xcoms["load.reconcile"]["txns"]) == 2


def test_a_skipped_writer_says_to_people_whose_rows_stand(engine: FakeEngine, log: DeltaLog) -> None:
    appends_during(engine, log, None)
    task = write(**SKIPS)
    # The commit stands, so a try after a worker died between the commit and the end must be skipped as well.
    for _ in range(2):
        with pytest.raises(AirflowSkipException, match=r"'load' are not .* set aside, .*='skip'.*Clear the writer to"):
            task.execute(context_of(task))
    assert ids(Path(log.table)) == [91]


def test_a_writer_that_was_renamed_is_refused_before_spark(engine: FakeEngine, trips: Path) -> None:
    airflow = Airflow()
    run_load(airflow, load("a", "b"), "a", "b")
    airflow.clear()
    renamed = load("a", "c")
    with pytest.raises(AirflowFailException) as caught:
        run_load(airflow, renamed, "a", "c", reads={"c": "b"})
    said = "OrphanWriterError: This run has published 'b' (group load, task load.write[1], version 2, 1 rows) in"
    assert said in str(caught.value)
    assert "give the writer, or its group, the old name again; or delete those rows" in str(caught.value)
    assert (ids(trips), len(engine.staged)) == ([1, 2], 2)
    with pytest.raises(AirflowFailException, match="MissingWritersError"):
        reconcile(airflow, renamed)
    # What the message says: the old name, or the rows deleted, or rows that are there twice.
    airflow.clear()
    assert run_load(airflow, load("a", "b"), "a", "b") == ["skipped", "skipped"]
    DeltaTable(str(trips)).delete("id = 2")
    airflow.clear()
    assert run_load(airflow, renamed, "a", "c") == ["skipped", "published"]
    assert ids(trips) == [1, 3]


def test_a_renamed_task_without_a_group_is_another_load_and_is_refused_too(engine: FakeEngine, trips: Path) -> None:
    airflow = Airflow()
    airflow.run(write())
    with pytest.raises(AirflowFailException, match=r"OrphanWriterError: .*'load' \(group load, task load, version 1"):
        airflow.run(write(task_id="ingest"))
    # So is a renamed group.
    with pytest.raises(AirflowFailException, match="OrphanWriterError"):
        run_load(airflow, load("load", group="ingest"), "load", reads={"load": "a"})
    assert ids(trips) == [1, 2]


def test_other_groups_of_the_dag_are_no_orphans_nor_are_other_runs(engine: FakeEngine, trips: Path) -> None:
    with DAG("taxi", schedule=None):
        for name in ("one", "two"):
            OneLakeWriteOperator(task_id=name, table="Tables/trips", source=SqlSource("SELECT 1"))
    airflow = Airflow()
    dag: Any = load("a")
    run_load(airflow, dag, "a")
    with dag:
        other = OneLakeWriteOperator(task_id="other", table="Tables/trips", source=SqlSource("SELECT 1"))
    assert airflow.run(other)["status"] == "published"
    february = context_of(write(task_id="ingest"), JANUARY + timedelta(days=31), run_id="february")
    assert february["task"].execute(february)["status"] == "published"


def test_a_writer_that_was_taken_out_is_reported_and_stops_nobody(engine: FakeEngine, trips: Path) -> None:
    airflow = Airflow()
    run_load(airflow, load("a", "b"), "a", "b")
    airflow.clear()
    airflow.states["load.write_1"] = "removed"
    left = load("a")
    assert run_load(airflow, left, "a") == ["skipped"]
    (orphan,) = reconcile(airflow, left)["orphans"]
    assert (orphan["writer"], orphan["task"], orphan["version"], orphan["rows"]) == ("b", "load.write[1]", 2, 1)


def told_late(template: str) -> DAG:
    """A load whose keys only its tasks can say."""
    with DAG("taxi", schedule=None) as dag, OneLakeWriteTaskGroup(group_id="load", table="Tables/trips"):
        for name in ("one", "two"):
            OneLakeWriteOperator(task_id=name, writer=template, source=SqlSource("SELECT 1"))
    return dag


def test_where_keys_are_known_late_reconcile_finds_what_was_doubled(engine: FakeEngine, trips: Path) -> None:
    def run(**keys: str) -> None:
        for name, key in keys.items():
            task: Any = told_late("{{ key }}").get_task(f"load.{name}")
            task.writer, task.where = key, {"c": "b"}.get(key, key)
            airflow.run(task)

    airflow, dag = Airflow(), told_late("{{ key }}")
    run(one="a", two="b")
    assert reconcile(airflow, dag)["orphans"] == []
    airflow.clear()
    # While the first one runs, the second has not begun: 'b' may be what it will say again.
    run(one="c", two="a")
    assert ids(trips) == [1, 2, 2]
    with pytest.raises(AirflowFailException) as caught:
        reconcile(airflow, dag)
    assert "OrphanWriterError: Writer 'c' appended" in str(caught.value)
    assert "the same rows as 'b' (group load, task load.two, version 2, 1 rows)" in str(caught.value)
    assert [orphan["writer"] for orphan in airflow.xcoms["load.reconcile"]["return_value"]["orphans"]] == ["b"]


def test_a_dag_that_was_renamed_is_refused_before_spark(engine: FakeEngine, trips: Path) -> None:
    Airflow().run(write())
    renamed = Airflow(dag_id="taxi_v2")
    with pytest.raises(AirflowFailException, match="OrphanWriterError: DAG 'taxi' has appended the same rows"):
        renamed.run(write())
    assert (ids(trips), len(engine.staged)) == ([1, 2], 1)
    # What the message says: the same load by its name; or rows that are there twice.
    with DAG("taxi_v2", schedule=None), OneLakeWriteTaskGroup(group_id="load", table="Tables/trips", load_name="taxi"):
        named = OneLakeWriteOperator(task_id="load", source=SqlSource("SELECT 1"))
    assert Airflow(dag_id="taxi_v2").run(named)["status"] == "skipped"
    assert renamed.run(write(on_rerun="append"))["status"] == "published"
    assert ids(trips) == [1, 1, 2, 2]


def test_a_run_by_hand_under_a_new_name_is_another_load(engine: FakeEngine, trips: Path) -> None:
    Airflow().run(write())
    by_hand = context_of(write(), JANUARY + timedelta(seconds=1), dag_id="taxi_v2", run_id="by hand")
    assert by_hand["task"].execute(by_hand)["status"] == "published"
    assert ids(trips) == [1, 1, 2, 2]


def test_a_load_name_goes_on_with_the_loads_of_the_dag_that_had_it(engine: FakeEngine, trips: Path) -> None:
    before = Airflow()
    run_load(before, load("a", "b"), "a", "b")
    reconcile(before, load("a", "b"))
    renamed, dag = Airflow(dag_id="taxi_v2", days=1), load("a", "c", load_name="taxi")
    with pytest.raises(AirflowFailException, match="OrphanWriterError: This run has published 'b'"):
        run_load(renamed, dag, "a", "c")
    grown = load("a", "b", "c", load_name="taxi")
    renamed.clear()
    assert run_load(renamed, grown, "a", "b", "c") == ["skipped", "skipped", "published"]
    report = reconcile(renamed, grown)
    assert (report["orphans"], [one["writer"] for one in report["writers"]]) == ([], ["a", "b", "c"])
    assert [xcoms["writer"]["dag"] for xcoms in renamed.xcoms.values() if "writer" in xcoms] == ["taxi"] * 3
    assert ids(trips) == [1, 2, 3]
    # The first of two that work at once is a zombie, as with two runs of one partition.
    with pytest.raises(AirflowFailException, match="ZombieWriterError"):
        run_load(before, load("a", "b"), "a", "b")


def test_a_cleared_writer_that_fails_before_it_begins_is_missing(engine: FakeEngine, trips: Path) -> None:
    """What it published before is not what it was to write now."""
    airflow, dag = Airflow(), load("a", **OVERWRITE)
    run_load(airflow, dag, "a")
    assert reconcile(airflow, dag)["missing"] == []
    airflow.clear()
    mapped: Any = dag.get_task("load.write")
    with pytest.raises(AirflowFailException):
        airflow.run(mapped.unmap({"writer": "a", "where": "a", "table": "/elsewhere"}), 0)
    with pytest.raises(AirflowFailException, match=r"MissingWritersError: .*load.write\[0\] \(failed\)"):
        reconcile(airflow, dag)


@pytest.mark.parametrize("again", ["a retry", "a clear"])
def test_a_corrected_try_that_is_refused_leaves_the_run_red(engine: FakeEngine, trips: Path, again: str) -> None:
    """Its last task is reconcile, and an earlier try has published the rows of the source that was wrong."""
    airflow, dag = Airflow(tries={"load.write_0": (1, 2)}), load("a", "b")
    run_load(airflow, dag, "a", "b")
    assert reconcile(airflow, dag)["missing"] == []
    if again == "a clear":
        airflow.clear("load.write_0")
    else:
        airflow.tries["load.write_0"] = (2, 2)
    with pytest.raises(AirflowFailException, match="RerunRefusedError"):
        run_load(airflow, dag, "a", reads={"a": "c"})
    for _ in range(2):
        with pytest.raises(AirflowFailException, match="MissingWritersError: 1 of 2 writers") as error:
            reconcile(airflow, dag)
        for said in ("buffer: a. Published: b.", "What a published before, in version 1, is still in the table."):
            assert said in str(error.value)
    assert ids(trips) == [1, 2]
    # Whoever takes the correction back is done with it.
    airflow.clear("load.write_0")
    assert run_load(airflow, dag, "a") == ["skipped"]
    assert reconcile(airflow, dag)["missing"] == []


def test_the_rows_of_one_whose_rerun_is_refused_are_still_those_of_a_colleague(engine: FakeEngine, trips: Path) -> None:
    airflow, dag = Airflow(tries={"load.write_0": (1, 2)}), load("a", "b", publish="together", **OVERWRITE)
    run_load(airflow, dag, "a", "b")
    reconcile(airflow, dag)
    airflow.tries["load.write_0"] = (2, 2)
    with pytest.raises(AirflowFailException, match="RerunRefusedError"):
        run_load(airflow, dag, "a", reads={"a": "c"})
    airflow.clear("load.write_1")
    mapped: Any = dag.get_task("load.write")
    airflow.run(mapped.unmap({"writer": "b", "where": "x"}), 1)
    with pytest.raises(AirflowFailException, match=r"buffer: a\. Published: b\."):
        reconcile(airflow, dag)
    assert ids(trips) == [1, 4]
