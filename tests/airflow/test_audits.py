"""Audits of a write group: tasks between staging and publishing, whatever they say and whenever somebody clears."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.airflow_dags import JANUARY, run_again, run_dag, states, xcom
from tests.support.engines import FakeEngine
from tests.support.tables import ids

VENDORS = [{"writer": "vendor-1", "where": "vendor_id = 1"}, {"writer": "vendor-2", "where": "vendor_id = 2"}]
ALL = [1, 2, 3, 11, 12, 13]


def audited(most: int, publish: str = "together", **group: Any) -> DAG:
    """A load whose first audit refuses ids above a number, and whose second one comes after it."""
    with (
        DAG("audited", schedule=None, start_date=JANUARY) as dag,
        OneLakeWriteTaskGroup(
            group_id="load", table="Tables/trips", partition_by=["month"], publish=publish, shared_scan=False, **group
        ) as load,
    ):
        OneLakeWriteOperator.partial(task_id="write", source=FileSource("/data", format="json")).expand_kwargs(VENDORS)

        @task
        def look(staged: list[dict[str, Any]]) -> list[int]:
            found = []
            for rows_of in staged:
                with OneLakeHook().table("Tables/trips").staged(rows_of["buffer"]).read(["id"]) as rows:
                    found += [number for batch in rows for number in batch.column("id").to_pylist()]
                assert len(found) >= rows_of["rows"]
            assert max(found) <= most
            return sorted(found)

        @task
        def sign(seen: list[int]) -> int:
            return len(seen)

        sign(look(load.staged()))
    return dag


def rows(lakehouse: Path) -> list[int]:
    return ids(lakehouse / "Tables" / "trips")


def is_there(lakehouse: Path) -> bool:
    return (lakehouse / "Tables" / "trips" / "_delta_log").exists()


def test_audits_see_the_staged_rows_before_anybody_else(lakehouse: Path, engine: FakeEngine) -> None:
    dag = audited(most=13)
    reconcile = dag.get_task("load.reconcile")
    # An audit that stands before another one is not asked itself: the last one ends well only if it did.
    assert reconcile.upstream_task_ids == {"load.write", "load.staged", "load.sign"}
    run = run_dag(dag)
    assert set(states(run).values()) == {"success"}
    assert xcom(run, "load.look") == ALL == rows(lakehouse)
    assert [(one["writer"], one["rows"]) for one in xcom(run, "load.staged")] == [("vendor-1", 3), ("vendor-2", 3)]


def test_an_audit_that_fails_holds_the_load_back_until_it_agrees(lakehouse: Path, engine: FakeEngine) -> None:
    run = run_dag(audited(most=12))
    ended = states(run)
    assert (ended["load.look"], ended["load.sign"]) == ("failed", "upstream_failed")
    assert (ended["load.reconcile"], ended["load.committed"]) == ("failed", "upstream_failed")
    assert {one["status"] for one in xcom(run, "load.reconcile")["writers"]} == {"held_back"}
    # Nobody saw a row, and so no table either.
    assert not is_there(lakehouse)

    # A person corrects the audit, and clears it with its downstream tasks. Spark is not asked again.
    mended = audited(most=13)
    for task_id in ("load.look", "load.sign", "load.reconcile"):
        assert run_again(mended, run, task_id) == "success"
    assert (rows(lakehouse), len(engine.staged)) == (ALL, 2)


def test_rows_that_no_audit_has_looked_at_are_not_published(
    lakehouse: Path, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    run = run_dag(audited(most=12))
    # A person corrects the source and clears the writer alone, and marks the audits as successful.
    engine.rows = {"vendor_id = 1": {"2019-01": [1]}, "vendor_id = 2": {"2019-01": [7]}}
    dag = audited(most=12)
    assert run_again(dag, run, "load.write", 1) == "success"
    assert run_again(dag, run, "load.reconcile") == "failed"
    assert not is_there(lakehouse)

    for task_id in ("load.staged", "load.look", "load.sign", "load.reconcile"):
        assert run_again(dag, run, task_id) == "success"
    assert rows(lakehouse) == [1, 2, 3, 7]


def test_where_the_rows_are_in_the_table_nobody_is_asked(lakehouse: Path, engine: FakeEngine) -> None:
    dag = audited(most=13)
    run = run_dag(dag)
    assert run_again(dag, run, "load.write", 0) == "success"
    assert run_again(dag, run, "load.staged") == "skipped"
    assert run_again(dag, run, "load.reconcile") == "success"
    assert rows(lakehouse) == ALL


def test_what_writers_publish_by_themselves_cannot_be_audited() -> None:
    with pytest.raises(InvalidWriteError, match="publish='each' has writers publish as soon as they have staged"):
        audited(most=13, publish="each")
