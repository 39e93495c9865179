"""A writer with ``reads``: what Spark is shown of the table, when it runs again, and what is refused early."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from airflow_provider_onelake.buffers.layout import reads_path
from airflow_provider_onelake.buffers.markers import read_marker
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.clean_up import clean_up
from airflow_provider_onelake.operators.scan import OneLakeScanOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable, Tuning
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import StageJob, StageResult
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.ages import files, grow_old
from tests.support.contexts import connect, context_of
from tests.support.engines import use_engine
from tests.support.sql_by_hand import SqlByHand, table_rows
from tests.support.tables import foreign_append, local_log, make_table

JANUARY = "month = '2019-01'"
COUNT = "SELECT CAST(count(*) AS BIGINT) AS id, '2019-03' AS month FROM target"


class Disturbed(SqlByHand):
    """Lets others commit while Spark works.

    :param others: what each job finds done when it has ended.
    """

    def __init__(self, *others: Callable[[], object]) -> None:
        super().__init__()
        self.others = list(others)
        self.jobs: list[StageJob] = []

    def stage(self, job: StageJob) -> StageResult:
        self.jobs.append(job)
        result = super().stage(job)
        if self.others:
            self.others.pop(0)()
        return result


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DeltaLog:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    log = make_table(tmp_path / "Tables" / "trips")
    foreign_append(log, {"2019-01": [1, 2], "2019-02": [3]})
    return log


def use(monkeypatch: pytest.MonkeyPatch, *others: Callable[[], object]) -> Disturbed:
    engine = Disturbed(*others)
    use_engine(monkeypatch, engine)
    return engine


def write(**arguments: Any) -> OneLakeWriteOperator:
    terms = {"source": SqlSource(COUNT), "reads": JANUARY, "tuning": Tuning(preflight=False), **arguments}
    return OneLakeWriteOperator(**{"task_id": "write", "table": "Tables/trips", **terms})


def run(**arguments: Any) -> dict[str, Any]:
    task = write(**arguments)
    return task.execute(context_of(task))


def appends(log: DeltaLog, month: str, row: int = 9) -> Callable[[], object]:
    return lambda: foreign_append(local_log(Path(log.table)), {month: [row]})


@pytest.mark.parametrize(
    ("reads", "counted"), [(JANUARY, 2), ("month = '2019-02'", 1), (True, 3), ("month = '2020-01'", 0), ("true", 3)]
)
def test_spark_is_shown_the_rows_of_the_named_partitions_and_no_others(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch, reads: str | bool, counted: int
) -> None:
    engine = use(monkeypatch)
    result = run(reads=reads)
    assert (result["status"], result["reads_target"], result["reruns"]) == ("published", True, 0)
    assert (counted, "2019-03") in table_rows(Path(log.table))
    (job,) = engine.jobs
    assert job.target_uri is not None
    assert job.target_uri.endswith(f"/{reads_path(result['buffer'])}")


def test_a_change_elsewhere_does_not_let_it_run_again(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = use(monkeypatch, appends(log, "2019-02"))
    result = run()
    assert (result["version"], result["reruns"], len(engine.jobs)) == (3, 0, 1)
    assert (2, "2019-03") in table_rows(Path(log.table))


def test_a_change_of_what_it_read_lets_it_run_again_on_that(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = use(monkeypatch, appends(log, "2019-01", 8), appends(log, "2019-01"))
    result = run()
    assert (result["version"], result["reruns"], result["decisions"], len(engine.jobs)) == (4, 2, [], 3)
    assert [row for row in table_rows(Path(log.table)) if row[1] == "2019-03"] == [(4, "2019-03")]
    first = Path(str(engine.jobs[0].buffer_uri).removeprefix("file://")).relative_to(log.table)
    assert "version 2 (WRITE) changed rows" in str(read_marker(log.store, str(first)))


def test_each_run_reads_one_version_and_the_whole_of_it(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown is of the version on which the buffer was opened, whatever has been committed since."""

    class Late(Disturbed):
        def stage(self, job: StageJob) -> StageResult:
            if not self.jobs:
                appends(log, "2019-01")()
            return super().stage(job)

    engine = Late()
    use_engine(monkeypatch, engine)
    assert run()["reruns"] == 1
    shown = [table_rows(Path(str(job.buffer_uri).removeprefix("file://"))) for job in engine.jobs]
    assert shown == [[(2, "2019-03")], [(3, "2019-03")]]


def test_a_table_is_made_by_its_schema(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: DeltaLog) -> None:
    use(monkeypatch)
    with pytest.raises(AirflowFailException, match=r"no table at .*/new yet, and writer .* is to read it.*`schema`"):
        run(table="Tables/new")
    assert not list((tmp_path / "Tables").glob("new/staged/**/_delta_log"))
    result = run(table="Tables/new", new_table=NewTable(schema="id BIGINT, month STRING"), partition_by="month")
    assert result["status"] == "published"
    assert table_rows(tmp_path / "Tables" / "new") == [(0, "2019-03")]


def test_the_log_of_what_was_read_goes_with_the_buffers(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    buffer = run()["buffer"]
    assert f"{reads_path(buffer)}/{version_path(0)}" in files(log)
    grow_old(log, buffer)
    clean_up(local_log(Path(log.table)), timedelta(days=7))
    assert not [path for path in files(log) if path.startswith(buffer) and "_delta_log" in path]


def test_other_reads_are_other_work(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    assert run()["status"] == "published"
    task = write(reads=True)
    with pytest.raises(AirflowFailException, match="another source, code or mode"):
        task.execute(context_of(task, clears=1, try_number=2, max_tries=1))


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"reads": 7}, "neither True"),
        ({"reads": ["month = '2019-01'"]}, "neither True"),
        ({"steps": {"target": "SELECT 1"}}, "'target'.*give it another"),
        ({"steps": {"Target": "SELECT 1"}}, "'target'.*give it another"),
        ({"source": SqlSource("SELECT 1", view="target")}, "'target'.*give it another"),
        ({"on_rerun": "replace"}, "takes back.*'skip' or 'append'"),
        ({"max_rounds": 2}, r"mode=Merge\(max_rounds=…\)"),
    ],
)
def test_what_is_refused_when_the_dag_is_parsed(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidWriteError, match=words):
        write(**terms)


def test_writers_that_read_the_table_share_no_scan() -> None:
    for reads, shared in ((None, True), (JANUARY, False)):
        with DAG("taxi", schedule=None), OneLakeWriteTaskGroup("load", table="Tables/trips") as group:
            mapped = OneLakeWriteOperator.partial(task_id="write", source=SqlSource("SELECT * FROM x"), reads=reads)
            mapped.expand_kwargs([{"writer": w, "where": f"id = {w}"} for w in ("1", "2")])
        found = [task for task in group.children.values() if isinstance(task, OneLakeScanOperator)]
        assert bool(found) is shared
