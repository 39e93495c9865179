"""The DAGs of the docs' first pages: tables from CSV, Parquet and JSON files, and two writers that meet."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.airflow_dags import load_dag, run_dag, states, xcom
from tests.support.spark import Server

pytestmark = pytest.mark.promise

DAGS = Path(__file__).parents[2] / "dags"
MARCH = datetime(2026, 3, 1, tzinfo=UTC)


def rows(table: Path) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    found: list[dict[str, Any]] = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["order_id"])


def order(number: int, customer: str, ordered_on: date, paid_at: datetime | None, amount: str) -> dict[str, Any]:
    made = {"order_id": number, "customer": customer, "ordered_on": ordered_on, "paid_at": paid_at}
    return {**made, "amount": Decimal(amount), "month": f"{ordered_on:%Y-%m}"}


NORTH = [
    order(1, "Ana", date(2026, 1, 5), datetime(2026, 1, 5, 9, 12, tzinfo=UTC), "1250.00"),
    order(2, "Ben", date(2026, 1, 17), datetime(2026, 1, 18, 14, 3, tzinfo=UTC), "19.90"),
    order(3, "Ana", date(2026, 2, 2), None, "7.25"),
]
SOUTH = [
    order(4, "Carla", date(2026, 1, 11), datetime(2026, 1, 11, 20, 45, tzinfo=UTC), "310.40"),
    order(5, "Dev", date(2026, 2, 28), datetime(2026, 3, 1, 8, tzinfo=UTC), "0.99"),
]


def test_csv_files_with_dates_and_decimals_become_a_table(
    lakehouse: Path, spark_connection: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for status in ("published", "skipped"):
        # The second time it is the same run, as where `airflow dags test` is given the same date.
        run = run_dag(load_dag(DAGS / "orders_from_csv.py", "orders_from_csv"), logical_date=MARCH)
        assert set(states(run).values()) == {"success"}
        assert [xcom(run, "load.write", map_index=at)["status"] for at in (0, 1)] == [status, status]
        assert f"north {status} " in capsys.readouterr().out
        assert xcom(run, "report") == "3 orders of 1580.30 in January"
        assert rows(lakehouse / "Tables" / "orders") == [*NORTH, *SOUTH]


def test_a_parquet_and_a_json_file_become_one_table(lakehouse: Path, spark_connection: Server) -> None:
    run = run_dag(load_dag(DAGS / "orders_from_parquet_and_json.py", "orders_from_parquet_and_json"))
    assert set(states(run).values()) == {"success"}
    found = [tuple(row.values()) for row in rows(lakehouse / "Tables" / "orders_of_shops")]
    assert found == [
        (6, "Eve", date(2026, 1, 30), Decimal("15.00")),
        (7, "Fay", date(2026, 2, 3), Decimal("8.75")),
        (8, "Ana", date(2026, 1, 9), Decimal("42.50")),
        (9, "Hal", date(2026, 2, 14), Decimal("1000.00")),
    ]


@pytest.mark.parametrize(
    ("on_conflict", "on_set_aside", "stands", "second", "reconciled"),
    [
        ("last_writer_wins", "warn", 1, "success", "success"),
        ("last_writer_wins", "fail", 1, "success", "failed"),
        ("first_writer_wins", "skip", 0, "skipped", "success"),
        ("fail", "warn", 0, "failed", "failed"),
    ],
)
def test_two_writers_replace_the_same_partitions(
    lakehouse: Path,
    spark_connection: Server,
    on_conflict: str,
    on_set_aside: str,
    stands: int,
    second: str,
    reconciled: str,
) -> None:
    conf = {"on_conflict": on_conflict, "on_set_aside": on_set_aside}
    run = run_dag(load_dag(DAGS / "first_conflict.py", "first_conflict"), run_conf=conf)
    labels = {ti.task_id: ti.rendered_map_index for ti in run.get_task_instances()}
    # dag.test() runs one after the other, in the order that its database has them.
    keys = sorted(("north", "south"), key=lambda key: not labels[f"load.{key}"].endswith("in version 0"))
    names, count = {"north": NORTH, "south": SOUTH}, {"north": "3 rows", "south": "2 rows"}
    assert rows(lakehouse / "Tables" / "first_conflict") == names[keys[stands]]

    ended = states(run)
    assert [ended[f"load.{key}"] for key in keys] == ["success", second]
    assert ended["load.reconcile"] == reconciled
    assert ended["load.committed"] == ("success" if reconciled == "success" else "upstream_failed")
    first, left = keys[0], keys[1 - stands]
    assert labels[f"load.{first}"] == f"{first} · published {count[first]} in version 0"
    assert (
        labels[f"load.{keys[1]}"]
        == {
            "last_writer_wins": f"{keys[1]} · published {count[keys[1]]} in version 1",
            "first_writer_wins": f"{keys[1]} · set aside: version 0 ({first} of first_conflict.load) came first",
            "fail": f"{keys[1]} · refused",
        }[on_conflict]
    )
    how = "refused" if on_conflict == "fail" else "left out"
    assert labels["load.reconcile"] == f"{count[keys[stands]][0]} of 5 rows in the table; {how}: {left}"
    statuses = {one["writer"]: one["status"] for one in xcom(run, "load.reconcile")["writers"]}
    assert (
        statuses[left]
        == {"last_writer_wins": "superseded", "first_writer_wins": "set_aside", "fail": "refused"}[on_conflict]
    )
