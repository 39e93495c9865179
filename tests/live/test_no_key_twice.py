"""No key twice, by real Spark and a live Airflow: two writers insert one key at once, or stage it for one load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.live.harness import LiveStack
from tests.live.held_load import WRITERS, HeldLoad

DAG = "no_key_twice"


def ids(table: Path) -> list[int]:
    """The keys in the table, each as often as it is there."""
    return sorted(row["id"] for row in DeltaTable(str(table)).to_pyarrow_table(columns=["id"]).to_pylist())


@pytest.mark.costs("Spark merges the rows of two writers, and those of one again")
def test_a_key_that_two_writers_insert_at_once_is_there_once(new_load: Callable[..., HeldLoad]) -> None:
    load = new_load(dag_id="held_inserts")
    columns = pa.schema([("vendor_id", pa.int32()), ("month", pa.string()), ("id", pa.int32())])
    write_deltalake(str(load.table), columns.empty_table(), partition_by=["month"])
    load.hold(*(f"{writer}.before-put" for writer in WRITERS))
    load.start()
    # Spark has merged the rows of both into the table without rows, so both are about to insert the ids 1 to 100.
    for writer in WRITERS:
        load.wait_until_at(f"{writer}.before-put", 240)
    assert load.versions() == [0]

    load.release("vendor-1.before-put")
    load.wait_until_ended("vendor-1")
    load.release("vendor-2.before-put")
    assert load.end() == "success"

    first, second = map(load.result, WRITERS)
    assert (first["rows_inserted"], first["lost_races"]) == (100, 0)
    assert (second["rows_inserted"], second["lost_races"]) == (50, 1)
    assert ids(load.table) == list(range(1, 151))


@pytest.mark.costs("Spark merges and stages the rows of two writers")
def test_a_key_that_two_writers_stage_for_one_load_is_not_published(live_stack: LiveStack, tmp_path: Path) -> None:
    members = [(1, "ann", "north"), (2, "bob", "north"), (2, "bert", "south"), (3, "cleo", "south")]
    rows = [json.dumps(dict(zip(("id", "name", "shop"), member, strict=True))) for member in members]
    (tmp_path / "members.json").write_text("\n".join(rows))
    live_stack.api.unpause(DAG)
    run = live_stack.run_dag(DAG, conf={"members": str(tmp_path / "members.json")})
    assert run["state"] == "failed"

    ended = {task["task_id"]: task["state"] for task in live_stack.api.task_instances(DAG, str(run["dag_run_id"]))}
    assert (ended["append.each_key_once"], ended["append.reconcile"]) == ("failed", "failed")
    assert not (live_stack.lakehouse / "Tables" / "new_members" / "_delta_log").exists()
    # By a MERGE, the key is there once, whoever came first.
    assert ended["insert.reconcile"] == "success"
    assert ids(live_stack.lakehouse / "Tables" / "members") == [1, 2, 3]
