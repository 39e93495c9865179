"""One person is deleted from all earlier days, while today is loaded and old days are compacted: three tasks at once."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from tests.live.harness import LiveStack
from tests.live.trips import log_of, overlap

DAG = "forget_while_loading"
TASKS = ("load_today", "forget", "compact_old_days")
PERSON = 7
OLD, RECENT, TODAY = ("2019-01-01", "2019-01-02"), "2019-02-27", "2019-02-28"
# Each file of a day has the rows of ten persons in a row.
FILES = 6

Row = tuple[int, int, str]


def make_table(table: Path, properties: dict[str, str]) -> list[Row]:
    """Write the earlier days, in small files; returns the rows."""
    ids = itertools.count()
    made: list[Row] = []
    for number in range(FILES):
        persons = range(10 * number, 10 * number + 10)
        rows = [(next(ids), person, day) for day in (*OLD, RECENT) for person in persons]
        columns = {
            name: list(values) for name, values in zip(("id", "person", "day"), zip(*rows, strict=True), strict=True)
        }
        write_deltalake(str(table), pa.table(columns), mode="append", partition_by=["day"], configuration=properties)
        made += rows
    return made


def rows_of(table: Path) -> list[Row]:
    """The rows as deltalake reads them, also where deletion vectors hide some."""
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT id, person, day FROM t")
    return sorted((row["id"], row["person"], row["day"]) for row in pa.table(found.read_all()).to_pylist())


@pytest.fixture
def table(live_stack: LiveStack) -> Path:
    return live_stack.lakehouse / "Tables" / "daily_visits"


@pytest.mark.nightly
def test_all_succeed_at_once_and_nobody_sees_a_retry(live_stack: LiveStack, table: Path, tmp_path: Path) -> None:
    before = make_table(table, {})
    # The person comes today, too.
    today = [(10_000 + number, person, TODAY) for number, person in enumerate((1, PERSON, 60))]
    lines = [json.dumps({"id": row, "person": person, "day": day}) for row, person, day in today]
    (tmp_path / "today.json").write_text("\n".join(lines))

    live_stack.api.unpause(DAG)
    conf = {"today": TODAY, "visits": str(tmp_path / "today.json"), "person": PERSON}
    run = live_stack.run_dag(DAG, conf=conf)
    assert run["state"] == "success"
    run_id = str(run["dag_run_id"])

    # All of them were at work at one time, and each had one try.
    instances = [live_stack.api.task_instances(DAG, run_id, task)[0] for task in TASKS]
    assert all(overlap(one, other) for one, other in itertools.combinations(instances, 2))
    assert [[one["state"] for one in live_stack.api.tries(DAG, run_id, task)] for task in TASKS] == [["success"]] * 3
    assert [instance["try_number"] for instance in instances] == [1, 1, 1]

    def result(task: str) -> dict[str, Any]:
        found: dict[str, Any] = live_stack.api.xcom(DAG, run_id, task)
        return found

    loaded, forgotten, compacted = map(result, TASKS)
    assert (loaded["status"], loaded["rows"]) == ("published", len(today))
    assert (forgotten["status"], forgotten["rows_deleted"]) == ("done", 3)
    # It leaves alone what the DELETE is reading, which may be all of its files.
    assert compacted["status"] in ("published", "dropped", "nothing_to_do")
    assert {each["partition"] for each in compacted.get("partitions") or ()} <= {f"day={day}" for day in OLD}

    # The person's rows of the earlier days are gone, and every other row is there once.
    expected = [row for row in before if row[1] != PERSON] + today
    assert rows_of(table) == sorted(expected)
    # One commit each, in one order or another.
    operations = sorted(entry["commitInfo"][0]["operation"] for entry in log_of(table)[FILES:])
    assert operations == ["DELETE", *(["OPTIMIZE"] if compacted["status"] == "published" else []), "WRITE"]
