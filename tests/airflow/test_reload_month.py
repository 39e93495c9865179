"""The example that loads a month again."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pendulum
import pytest
from deltalake import DeltaTable

from tests.support.airflow_dags import load_dag, run_dag, xcom
from tests.support.spark import Server

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def reload(spark_connection: Server, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Loads a month whose file has trips of these ids; returns what the writer left in XCom."""
    runs = iter(range(100))

    def load(month: str, trips: dict[int, str]) -> dict[str, Any]:
        lines = [
            json.dumps({"id": id_, "pickup_datetime": int(pendulum.parse(day).timestamp() * 1000)})  # type: ignore[union-attr]
            for id_, day in trips.items()
        ]
        (tmp_path / f"yellow_tripdata_{month}.json.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        dag = load_dag(ROOT / "dags" / "reload_month.py", "reload_month")
        conf = {"input": str(tmp_path), "month": month}
        when = pendulum.datetime(2020, 1, 1, tz="UTC").add(days=next(runs))
        found: dict[str, Any] = xcom(run_dag(dag, logical_date=when, run_conf=conf), "reload")
        return found

    return load


@pytest.mark.promise
def test_a_month_is_replaced_and_the_others_stay(reload: Callable[..., dict[str, Any]], lakehouse: Path) -> None:
    reload("2019-01", {1: "2019-01-05", 2: "2019-01-06"})
    reload("2019-02", {3: "2019-02-07"})
    again = reload("2019-01", {4: "2019-01-08", 5: "2019-02-09"})

    table = DeltaTable(str(lakehouse / "Tables" / "trips_by_month"))
    rows = {(row["month"], row["id"]) for row in table.to_pyarrow_table().to_pylist()}
    assert rows == {("2019-01", 4), ("2019-02", 3)}
    # Both were staged; the one of another month was set aside.
    assert (again["rows"], again["rows_unexpected"]) == (2, 1)
