"""Checks over the rows of all writers of a load, which are published together or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task
from deltalake import DeltaTable

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.airflow_dags import JANUARY, run_again, run_dag, states, xcom
from tests.support.engines import FakeEngine
from tests.support.tables import ids

VENDORS = [{"writer": "vendor-1", "where": "vendor_id = 1"}, {"writer": "vendor-2", "where": "vendor_id = 2"}]
ALL = [1, 2, 3, 11, 12, 13]
# Each writer has three rows: only together they are more than five.
TOGETHER = {"enough rows": "count(*) > 5", "small ids": "id < 99"}


def load(
    checks: Mapping[str, str] = TOGETHER,
    *,
    writers: list[dict[str, Any]] = VENDORS,
    mode: str = "append",
    audits: bool = False,
    publish: str = "together",
    **group: Any,
) -> DAG:
    with (
        DAG("checked", schedule=None, start_date=JANUARY) as dag,
        OneLakeWriteTaskGroup(
            group_id="load",
            table="Tables/trips",
            partition_by=["month"],
            publish=publish,
            checks=checks,
            mode=mode,
            **{"shared_scan": False, **group},
        ) as inside,
    ):
        OneLakeWriteOperator.partial(task_id="write", source=FileSource("/data", format="json")).expand_kwargs(writers)
        if audits:

            @task
            def look(staged: list[dict[str, Any]]) -> int:
                return len(staged)

            look(inside.staged())
    return dag


def table(lakehouse: Path) -> DeltaTable:
    return DeltaTable(str(lakehouse / "Tables" / "trips"))


def rows(lakehouse: Path) -> list[int]:
    return ids(lakehouse / "Tables" / "trips")


def written(run: Any) -> list[dict[str, Any]]:
    return [xcom(run, "load.write", "return_value", number) for number in (0, 1)]


def labels(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {check["name"]: (check["passed"], check.get("done")) for check in found}


@pytest.mark.parametrize("shared_scan", [pytest.param(False, id="own-scans"), pytest.param(True, id="shared-scan")])
def test_a_check_about_all_rows_sees_those_of_all_writers(
    lakehouse: Path, engine: FakeEngine, shared_scan: bool
) -> None:
    run = run_dag(load(shared_scan=shared_scan))
    assert set(states(run).values()) == {"success"}
    assert rows(lakehouse) == ALL
    found = xcom(run, "load.checked")
    assert (found["status"], found["rows"], found["writers"]) == ("passed", 6, ["vendor-1", "vendor-2"])
    assert labels(found["checks"]) == {"enough rows": (True, None)}
    # The writers alone have decided the check about each row, and left the other one.
    assert [labels(one["checks"]) for one in written(run)] == [
        {"enough rows": (None, None), "small ids": (True, None)}
    ] * 2
    assert labels(xcom(run, "load.reconcile")["checks"]) == {"enough rows": (True, None), "small ids": (True, None)}
    told = table(lakehouse).history()[0]["userMetadata"]
    assert "vendor-1 3 rows (1 check passed)" in told
    assert ". All writers together: 1 check passed" in told


def test_one_that_fails_refuses_the_whole_load(lakehouse: Path, engine: FakeEngine) -> None:
    dag = load({"enough rows": "count(*) > 6"})
    run = run_dag(dag)
    ended = states(run)
    assert (ended["load.checked"], ended["load.reconcile"]) == ("failed", "failed")
    log = lakehouse / "Tables" / "trips" / "_delta_log"
    assert not log.exists()
    found = xcom(run, "load.checked")
    assert (found["status"], labels(found["checks"])) == ("refused", {"enough rows": (False, "refused")})
    report = xcom(run, "load.reconcile")
    assert {one["status"] for one in report["writers"]} == {"held_back"}
    assert labels(report["checks"]) == {"enough rows": (False, "refused")}
    # Whoever clears the check, or marks it as successful, publishes nothing by that. Spark is not asked again.
    assert run_again(dag, run, "load.checked") == "failed"
    assert run_again(dag, run, "load.reconcile") == "failed"
    assert (log.exists(), len(engine.checked)) == (False, 1)
