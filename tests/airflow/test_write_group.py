"""A write group in Airflow: mapped writers, reconcile, the gate, and what becomes of failures. Without Spark."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task
from deltalake import DeltaTable

from airflow_provider_onelake.exceptions import SparkQueryError, SparkUnavailableError
from airflow_provider_onelake.notifications.onelake import OneLakeLoadNotifier
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.airflow_dags import JANUARY, run_again, run_dag, states, xcom
from tests.support.engines import FakeEngine
from tests.support.tables import foreign_append, ids, local_log, make_table

pytestmark = pytest.mark.promise

VENDORS = [{"writer": "vendor-1", "where": "vendor_id = 1"}, {"writer": "vendor-2", "where": "vendor_id = 2"}]
ALL = [1, 2, 3, 11, 12, 13]
GREEN = {
    "load.scan": "success",
    "load.write[0]": "success",
    "load.write[1]": "success",
    "load.reconcile": "success",
    "load.committed": "success",
}
APART = {name: state for name, state in GREEN.items() if name != "load.scan"}
"""The same where each writer reads for itself."""


def taxi(writers: list[dict[str, str]] = VENDORS, retries: int = 0, **group: Any) -> DAG:
    settings = {"table": "Tables/trips", "partition_by": ["month"], **group}
    with DAG("taxi", schedule=None, start_date=JANUARY) as dag, OneLakeWriteTaskGroup(group_id="load", **settings):
        OneLakeWriteOperator.partial(
            task_id="write",
            source=FileSource("/data/{{ ds }}.json", format="json"),
            retries=retries,
            retry_delay=timedelta(0),
        ).expand_kwargs(writers)
    return dag


def trips(lakehouse: Path) -> Path:
    return lakehouse / "Tables" / "trips"


def fail_for(where: str, error: Exception) -> Any:
    def before(job: Any) -> None:
        if job.where == where:
            raise error

    return before


def fail_once(error: Exception) -> Any:
    errors = [error]

    def before(job: Any) -> None:
        if errors:
            raise errors.pop()

    return before


def test_both_writers_rows_are_in_the_table(lakehouse: Path, engine: FakeEngine) -> None:
    run = run_dag(taxi(), logical_date=JANUARY)

    assert states(run) == GREEN
    assert ids(trips(lakehouse)) == ALL
    # One job tells the columns of the new table, and one reads for both.
    assert [job.source["path"] for job in engine.staged] == [["/data/2019-01-01.json"]]
    assert len(engine.analyzed) == 1


def test_where_rows_were_set_aside_the_run_is_red_if_the_author_asks_for_it(
    lakehouse: Path, engine: FakeEngine
) -> None:
    told: list[Any] = []
    notifier = OneLakeLoadNotifier(lambda context: told.append(context["load"]))
    dag = taxi(mode="overwrite_partitions", on_set_aside="fail", notifiers=[notifier])
    run = run_dag(dag, logical_date=JANUARY)

    assert states(run) == {**GREEN, "load.reconcile": "failed", "load.committed": "upstream_failed"}
    # Whichever writer came second has replaced rows of the other. The report is there though the task is red.
    report = xcom(run, "load.reconcile")
    assert {writer["writer"] for writer in report["writers"]} == {"vendor-1", "vendor-2"}
    (loser,) = report["left_out"]
    (load,) = told
    assert load.summary == f"Tables/trips (version 1): left out: {loser}"
    assert load.error.startswith("RowsSetAsideError: ")
    assert load.task == f"taxi.load.reconcile, run {run.run_id}"


def test_a_writer_whose_rows_were_set_aside_is_skipped_if_the_author_asks_for_it_and_all_behind_the_group_runs(
    lakehouse: Path, engine: FakeEngine
) -> None:
    def another_appends(job: Any) -> None:
        if job.where == "vendor_id = 1":
            foreign_append(local_log(trips(lakehouse)), {"2019-01": [92]})

    make_table(trips(lakehouse))
    engine.before = another_appends
    terms = {"mode": "overwrite_partitions", "on_conflict": "first_writer_wins", "on_set_aside": "skip"}
    dag = taxi(VENDORS[:1], **terms, vacuum=True)
    with dag:
        task(lambda: None, task_id="behind")().operator.set_upstream(dag.task_group.children["load"])
    run = run_dag(dag, logical_date=JANUARY)

    ends = ("load.reconcile", "load.committed", "load.vacuum", "behind")
    assert states(run) == {"load.write[0]": "skipped", **dict.fromkeys(ends, "success")}
    assert xcom(run, "load.write", map_index=0)["status"] == "set_aside"
    labels = {ti.task_id: ti.rendered_map_index for ti in run.get_task_instances()}
    assert labels["load.write"] == "vendor-1 · set aside: version 1 (WRITE) came first"
    assert labels["load.reconcile"] == "0 of 3 rows in the table; left out: vendor-1"
    assert list(xcom(run, "load.reconcile")["left_out"]) == ["vendor-1"]
    assert ids(trips(lakehouse)) == [92]


def test_each_task_is_labelled_and_tells_xcom_what_it_did(lakehouse: Path, engine: FakeEngine) -> None:
    run = run_dag(taxi(), logical_date=JANUARY)

    labels = {ti.rendered_map_index for ti in run.get_task_instances() if ti.task_id == "load.write"}
    assert {label.partition(" in version ")[0] for label in labels} == {
        "vendor-1 · published 3 rows",
        "vendor-2 · published 3 rows",
    }
    said = xcom(run, "load.write", "writer", 1)
    # The start is called after the try that began it.
    assert said.pop("deed") in {str(ti.id) for ti in run.get_task_instances()}
    assert said == {
        "writer": "vendor-2",
        "dag": "taxi",
        "group": "load",
        "run": "2019-01-01T00:00:00+00:00",
        "task": "load.write[1]",
        "clears": 0,
        "map_index": 1,
    }
    result = xcom(run, "load.write", map_index=1)
    assert (result["status"], result["rows"], result["rows_published"]) == ("published", 3, 3)
    assert result["partitions"] == ["month=2019-01", "month=2019-02"]
    report = xcom(run, "load.reconcile")
    assert {w["writer"]: (w["status"], w["version"]) for w in report["writers"]} == {
        f"vendor-{n + 1}": ("already_published", xcom(run, "load.write", map_index=n)["version"]) for n in (0, 1)
    }
    assert xcom(run, "load.reconcile", "txns") == {
        f"onelake/test/taxi/load/2019-01-01T00:00:00+00:00/vendor-{n}": 1 for n in (1, 2)
    }


def static(where: str = "") -> None:
    for number in (1, 2):
        OneLakeWriteOperator(
            task_id=f"vendor-{number}",
            writer=f"v{number}",
            source=FileSource("/data/{{ ds }}.json", format="json"),
            where=where or f"vendor_id = {number}",
        )


def test_filters_that_only_their_writers_can_render_fail_no_scan(lakehouse: Path, engine: FakeEngine) -> None:
    make_table(trips(lakehouse))
    with (
        DAG("taxi", schedule=None, start_date=JANUARY) as dag,
        OneLakeWriteTaskGroup(group_id="load", table="Tables/trips"),
    ):
        static("vendor_id = {{ task.writer[-1] }}")
    run = run_dag(dag, logical_date=JANUARY)

    assert set(states(run).values()) == {"success"}
    assert "a template cannot be rendered" in xcom(run, "load.scan")["reason"]
    assert ids(trips(lakehouse)) == ALL


def test_a_branch_before_the_group_chooses_a_writer(lakehouse: Path, engine: FakeEngine) -> None:
    make_table(trips(lakehouse))
    with DAG("taxi", schedule=None, start_date=JANUARY) as dag:
        with OneLakeWriteTaskGroup(group_id="load", table="Tables/trips") as group:
            static()
        task.branch(lambda: "load.vendor-1", task_id="chosen")() >> group
    run = run_dag(dag, logical_date=JANUARY)

    assert "load.scan" not in states(run)
    assert (states(run)["load.vendor-1"], states(run)["load.vendor-2"]) == ("success", "skipped")
    assert ids(trips(lakehouse)) == [1, 2, 3]


def test_a_run_that_is_deleted_and_made_again_repeats_nothing(lakehouse: Path, engine: FakeEngine) -> None:
    run_dag(taxi(), logical_date=JANUARY)
    run = run_dag(taxi(), logical_date=JANUARY)

    assert states(run) == GREEN
    assert xcom(run, "load.write", map_index=0)["status"] == "skipped"
    assert xcom(run, "load.reconcile")["skipped"] == ["vendor-1", "vendor-2"]
    assert len(engine.staged) == 1
    assert ids(trips(lakehouse)) == ALL


def test_an_overwrite_of_a_run_that_is_deleted_and_made_again_is_written_again(
    lakehouse: Path, engine: FakeEngine
) -> None:
    run_dag(taxi(mode="overwrite", publish="together"), logical_date=JANUARY)
    DeltaTable(str(trips(lakehouse))).delete()
    run = run_dag(taxi(mode="overwrite", publish="together"), logical_date=JANUARY)

    assert states(run) == GREEN
    assert ids(trips(lakehouse)) == ALL
    assert set(xcom(run, "load.reconcile", "txns").values()) == {2}


def test_a_clear_of_a_committed_append_is_skipped(lakehouse: Path, engine: FakeEngine) -> None:
    dag = taxi()
    run = run_dag(dag, logical_date=JANUARY)
    assert run_again(dag, run, "load.write", 0) == "success"

    assert xcom(run, "load.write", map_index=0)["status"] == "skipped"
    assert ids(trips(lakehouse)) == ALL


def test_every_clear_of_an_overwrite_is_a_generation_and_a_retry_is_none(lakehouse: Path, engine: FakeEngine) -> None:
    dag = taxi(VENDORS[:1], retries=1, mode="overwrite")
    engine.before = fail_once(SparkUnavailableError("no Spark answers"))
    run = run_dag(dag, logical_date=JANUARY)
    for generation in (1, 2, 3):
        found = local_log(trips(lakehouse)).snapshot()
        assert set(found.txns.values()) == {generation}
        assert run_again(dag, run, "load.write", 0) == "success"


def test_airflows_clear_raises_max_tries_and_gives_a_new_id(lakehouse: Path, engine: FakeEngine) -> None:
    """The ground that the start and the attempt stand on (protocol: attempt id, generation)."""
    from airflow.models.taskinstance import clear_task_instances
    from airflow.utils.session import create_session

    run = run_dag(taxi(VENDORS[:1], retries=2), logical_date=JANUARY)
    with create_session() as session:
        (ti,) = [ti for ti in run.get_task_instances(session=session) if ti.task_id == "load.write"]
        before = (ti.id, ti.try_number, ti.max_tries)
        clear_task_instances([ti], session)
        after = (ti.id, ti.try_number, ti.max_tries)

    assert before[1:] == (1, 2)
    assert after[1:] == (1, 3)
    assert after[0] != before[0]


def test_a_failed_writer_makes_the_run_red_with_the_others_published(lakehouse: Path, engine: FakeEngine) -> None:
    engine.before = fail_for("vendor_id = 2", SparkQueryError("no such column: vendor"))
    run = run_dag(taxi(retries=3, shared_scan=False), logical_date=JANUARY)

    # A query does not get better: no retry.
    assert len(engine.staged) == 2
    assert str(run.state) == "failed"
    assert states(run) == {
        **APART,
        "load.write[1]": "failed",
        "load.reconcile": "failed",
        "load.committed": "upstream_failed",
    }
    assert xcom(run, "load.reconcile")["missing"] == ["vendor-2"]
    assert ids(trips(lakehouse)) == [1, 2, 3]


def test_running_the_failed_writer_again_heals_the_run(lakehouse: Path, engine: FakeEngine) -> None:
    engine.before = fail_for("vendor_id = 2", SparkQueryError("no such column: vendor"))
    run_dag(taxi(shared_scan=False), logical_date=JANUARY)
    engine.before = lambda job: None
    run = run_dag(taxi(shared_scan=False), logical_date=JANUARY)

    assert states(run) == APART
    assert sorted(job.where for job in engine.staged) == ["vendor_id = 1", "vendor_id = 2", "vendor_id = 2"]
    assert ids(trips(lakehouse)) == ALL


def test_a_missing_writer_can_hold_back_the_others(lakehouse: Path, engine: FakeEngine) -> None:
    engine.before = fail_for("vendor_id = 2", SparkQueryError("no such column: vendor"))
    dag = taxi(publish="together", on_missing_writer="publish_nothing", shared_scan=False)
    run = run_dag(dag, logical_date=JANUARY)

    assert str(run.state) == "failed"
    assert not (trips(lakehouse) / "_delta_log").exists()
    report = xcom(run, "load.reconcile")
    assert {w["writer"]: w["status"] for w in report["writers"]} == {"vendor-1": "held_back", "vendor-2": "missing"}

    engine.before = lambda job: None
    for task_id, map_index in (("load.write", 1), ("load.reconcile", -1), ("load.committed", -1)):
        assert run_again(dag, run, task_id, map_index) == "success"
    # The complete buffer was found: its Spark job did not run again.
    assert sorted(job.where for job in engine.staged) == ["vendor_id = 1", "vendor_id = 2", "vendor_id = 2"]
    assert ids(trips(lakehouse)) == ALL


def test_a_writer_that_never_began_is_named_by_its_task(lakehouse: Path, engine: FakeEngine) -> None:
    run = run_dag(taxi([VENDORS[0], {**VENDORS[1], "mode": "sideways"}]), logical_date=JANUARY)

    assert states(run)["load.write[1]"] == "failed"
    assert xcom(run, "load.reconcile")["missing"] == ["load.write[1] (failed)"]
    assert ids(trips(lakehouse)) == [1, 2, 3]


def test_a_writer_settles_its_conflict_itself_without_spark(lakehouse: Path, engine: FakeEngine) -> None:
    log = make_table(trips(lakehouse))
    foreign_append(log, {"2019-01": [91]})

    def another_appends(job: Any) -> None:
        if job.where == "vendor_id = 1":
            foreign_append(local_log(trips(lakehouse)), {"2019-01": [92]})

    engine.before = another_appends
    run = run_dag(taxi(VENDORS[:1], mode="overwrite_partitions"), logical_date=JANUARY)

    assert states(run) == {k: v for k, v in GREEN.items() if k not in ("load.scan", "load.write[1]")}
    written = xcom(run, "load.write", map_index=0)
    assert (written["status"], written["version"]) == ("published", 3)
    assert written["decisions"]
    (outcome,) = xcom(run, "load.reconcile")["writers"]
    assert (outcome["status"], outcome["version"]) == ("already_published", 3)
    assert len(engine.staged) == 1
    assert ids(trips(lakehouse))[:3] == [1, 2, 3]
    assert 91 not in ids(trips(lakehouse))


def test_a_table_partitioned_otherwise_is_refused_before_spark(lakehouse: Path, engine: FakeEngine) -> None:
    make_table(trips(lakehouse))
    run = run_dag(taxi(partition_by=["vendor_id"]), logical_date=JANUARY)

    assert str(run.state) == "failed"
    assert engine.staged == []
    assert engine.analyzed == []
