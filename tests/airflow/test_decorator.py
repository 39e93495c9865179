"""``@task.onelake_write`` in Airflow, with real trips on a real Spark Connect server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import DAG, task
from deltalake import DeltaTable

from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.airflow_dags import JANUARY, load_dag, run_dag, states, xcom

pytestmark = pytest.mark.usefixtures("spark_connection")

ROOT = Path(__file__).resolve().parents[2]


def rows(lakehouse: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(lakehouse / "Tables" / table)).to_pyarrow_table().to_pylist()
    return found


@pytest.mark.costs("With the first of these tests Spark Connect starts")
@pytest.mark.promise
def test_the_example_loads_both_vendors(lakehouse: Path) -> None:
    dag = load_dag(ROOT / "dags" / "python_writers.py", "python_writers")
    run = run_dag(dag, logical_date=JANUARY)

    assert states(run) == {
        "load.cleaned[0]": "success",
        "load.cleaned[1]": "success",
        "load.reconcile": "success",
        "load.committed": "success",
    }
    labels = {ti.rendered_map_index for ti in run.get_task_instances() if ti.task_id == "load.cleaned"}
    assert {label.partition(" in version ")[0] for label in labels} == {
        "vendor-1 · published 3725 rows",
        "vendor-2 · published 6115 rows",
    }
    found = rows(lakehouse, "python_writers")
    # By zcat | jq: trips of these vendors with a distance above 0.
    assert {vendor: sum(row["vendor_id"] == vendor for row in found) for vendor in (1, 2)} == {1: 3_725, 2: 6_115}
    assert {row["picked_up"].year for row in found[:100]} == {2019}
    assert all(row["trip_distance"] > 0 for row in found)


def numbers(lakehouse: Path, *, skip: int | None = None, changed: bool = False) -> DAG:
    """Two mapped writers, published together; the second one adds to what the table has."""
    table = str(lakehouse / "Tables" / "numbers")

    def made(spark: Any, first: int, ds: str | None = None) -> Any:
        if first == skip:
            raise AirflowSkipException("nothing today")
        return spark.range(first, first + 3).selectExpr("id", f"'{ds}' AS day")

    def made_anew(spark: Any, first: int, ds: str | None = None) -> Any:
        return spark.range(first, first + 4).selectExpr("id", f"'{ds}' AS day")

    def doubled(spark: Any) -> Any:
        return spark.read.format("delta").load(table).selectExpr("id * 100 AS id", "day")

    with DAG("numbers", schedule=None, start_date=JANUARY) as dag:
        with OneLakeWriteTaskGroup(group_id="load", table="Tables/numbers", publish="together") as load:
            task.onelake_write(
                task_id="made",
                writer="from-{{ op_kwargs.first }}",
                steps={"last": "SELECT * FROM source WHERE id <> 1"},
            )(made_anew if changed else made).expand(first=[0, 10])
        with OneLakeWriteTaskGroup(group_id="more", table="Tables/numbers") as more:
            task.onelake_write(writer="doubled")(doubled)()
        load >> more
    return dag


def ids(lakehouse: Path) -> list[int]:
    return sorted(row["id"] for row in rows(lakehouse, "numbers"))


ONCE = [0, 2, 10, 11, 12, 0, 200, 1000, 1100, 1200]


def test_it_is_staged_published_and_settled_like_any_writer(lakehouse: Path) -> None:
    run = run_dag(numbers(lakehouse), logical_date=JANUARY)

    assert set(states(run).values()) == {"success"}
    assert ids(lakehouse) == sorted(ONCE)
    assert {row["day"] for row in rows(lakehouse, "numbers")} == {"2019-01-01"}
    assert xcom(run, "load.made", map_index=1)["writer"] == "from-10"
    assert xcom(run, "load.made", map_index=1)["status"] == "staged"
    assert xcom(run, "load.reconcile")["version"] == 0
    # It read the table that it wrote, and was found out.
    entry = (lakehouse / "Tables" / "numbers" / "_delta_log" / f"{1:020d}.json").read_text()
    assert '"isBlindAppend":false' in entry


def test_a_rerun_skips_the_same_function_and_refuses_a_changed_one(lakehouse: Path) -> None:
    run_dag(numbers(lakehouse), logical_date=JANUARY)

    same = run_dag(numbers(lakehouse), logical_date=JANUARY)
    assert {xcom(same, "load.made", map_index=n)["status"] for n in (0, 1)} == {"skipped"}
    changed = run_dag(numbers(lakehouse, changed=True), logical_date=JANUARY)
    assert states(changed)["load.made[0]"] == "failed"
    assert ids(lakehouse) == sorted(ONCE)


def test_a_function_can_skip_its_writer(lakehouse: Path) -> None:
    run = run_dag(numbers(lakehouse, skip=10), logical_date=JANUARY)

    assert states(run)["load.made[1]"] == "skipped"
    assert states(run)["load.reconcile"] == "success"
    assert ids(lakehouse)[:2] == [0, 0]
    assert ids(lakehouse) == [0, 0, 2, 200]
