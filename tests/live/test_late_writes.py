"""Late writes, by real Spark and a live Airflow: what becomes of rows that a task staged and did not publish.

Each table has the rows 1 and 2 in p1, and 3 in p2. A writer of its own replaces p1 and p2 by 10 and 11, or p9 by 10.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import Overwrite
from airflow_provider_onelake.writes.publish import Committer
from include.local.api import wait_for
from tests.live.harness import LiveStack
from tests.support.tables import (
    OVERWRITE,
    finished_at,
    foreign_append,
    ids,
    local_log,
    make_table,
    stage,
    writer_spec,
)

DAG = "late_writes"
NOT_BY_TASK = "published now; its task had not published its rows"
# What each writer's table has in the end, and what its reconciliation says of it.
HISTORIES: list[tuple[str, list[int], str, str]] = [
    ("nobody", [10, 11], "published", NOT_BY_TASK),
    ("earlier", [10, 11], "published", "put 1 row into month=p1, and is replaced there"),
    ("all", [20, 21], "superseded", "superseded now; its task had not published its rows"),
    ("half", [3, 20], "refused", "put 1 row into month=p1, and finished later"),
    ("append", [1, 2, 3, 20], "refused", "put 1 row into month=p1, and finished later"),
    ("elsewhere", [10, 11, 20], "published", NOT_BY_TASK),
    ("reads", [1, 2, 3, 20, 30], "refused", "put 1 row into month=p1, and finished later"),
    ("overwritten", [20], "superseded", "superseded now; its task had not published its rows"),
    ("restored", [1, 2, 3], "refused", "and finished later"),
    ("lost_race", [10, 11, 30], "published", NOT_BY_TASK),
    ("gave_up", [10, 11, 30], "published", "published now; its task gave up after lost races"),
    ("refused", [20, 21], "superseded", "superseded now; its task was refused"),
]


@attrs.frozen
class Late:
    """A run whose writers' tasks have ended, and what others do before its reconciliations begin."""

    stack: LiveStack
    run_id: str

    def log(self, name: str) -> DeltaLog:
        """The log of a writer's table."""
        return local_log(table_of(self.stack, name))

    def b(self, name: str, earlier: bool = False, **rows: int) -> None:
        """A writer of another load replaces partitions; it finished after the late one, or an hour before."""
        log = self.log(name)
        spec = writer_spec("b", **({"mode": Overwrite()} if name == "overwritten" else OVERWRITE))
        buffer = stage(log, spec, {month: [row] for month, row in rows.items()})
        if earlier:
            (late,) = staged(Path(log.table))
            buffer = finished_at(log, buffer, datetime.fromtimestamp(late.stat().st_mtime, UTC) - timedelta(hours=1))
        assert Committer(log).publish([buffer], Policy.LAST_WRITER_WINS).version is not None

    def append(self, name: str, **rows: int) -> None:
        """deltalake appends rows."""
        written = pa.table({"id": list(rows.values()), "month": list(rows)})
        write_deltalake(self.log(name).table, written, mode="append")

    def others_commit(self) -> None:
        """Do what the table of late writes calls *meanwhile*."""
        self.b("earlier", earlier=True, p1=20)
        self.b("all", p1=20, p2=21)
        self.b("half", p1=20)
        self.append("append", p1=20)
        self.append("elsewhere", p3=20)
        self.append("reads", p1=20)
        foreign_append(self.log("reads"), {"p3": [30]}, isBlindAppend=False)
        self.b("overwritten", p1=20)
        self.b("restored", p1=20, p2=21)
        DeltaTable(self.log("restored").table).restore(1)
        # What refused the task is gone since.
        self.b("refused", p1=20, p2=21)

    def said(self, name: str) -> dict[str, Any]:
        """What a reconciliation reports of its writer."""
        (found,) = self.stack.api.xcom(DAG, self.run_id, f"{name}.reconcile")["writers"]
        return {**found, "said": " ".join([*found["decisions"], found["error"] or ""])}


def staged(table: Path) -> list[Path]:
    """What Spark has staged of a late writer: the entries by which the buffers finished."""
    return list(table.glob("staged/write-*/*/_delta_log/00000000000000000001.json"))


def table_of(stack: LiveStack, name: str) -> Path:
    return stack.lakehouse / "Tables" / f"late_{name}"


@pytest.fixture(scope="module")
def late(live_stack: LiveStack) -> Late:
    """One run for all histories: Spark works once."""
    api = live_stack.api
    for name, *_ in HISTORIES:
        foreign_append(make_table(table_of(live_stack, name)), {"p1": [1, 2], "p2": [3]})
    api.unpause(DAG)
    late = Late(live_stack, api.trigger(DAG))

    def states() -> list[str]:
        tasks = api.task_instances(DAG, late.run_id)
        return [task["state"] for task in tasks if task["task_id"].endswith(".write")]

    wait_for(lambda: states() == ["failed"] * len(HISTORIES), "every writer's task to have failed", 400)
    late.others_commit()
    jobs = len(live_stack.connect_server.jobs())
    api.request("POST", "pools", json={"name": "late", "slots": 2, "description": "for reconciliations"})
    assert api.wait_for_run(DAG, late.run_id, 400)["state"] == "failed"
    assert len(live_stack.connect_server.jobs()) == jobs
    return late


@pytest.mark.costs("Spark stages the rows of twelve writers")
@pytest.mark.parametrize(("name", "rows", "status", "said"), HISTORIES)
def test_reconcile_settles_what_a_task_staged_and_did_not_publish(
    late: Late, name: str, rows: list[int], status: str, said: str
) -> None:
    api, found = late.stack.api, late.said(name)
    assert (ids(table_of(late.stack, name)), found["status"]) == (rows, status)
    assert said in found["said"]
    assert said in api.log(DAG, late.run_id, f"{name}.reconcile")
    (reconcile,) = api.task_instances(DAG, late.run_id, f"{name}.reconcile")
    assert reconcile["state"] == ("failed" if status == "refused" else "success")


@pytest.mark.parametrize(("name", "said"), [("gave_up", "CommitContentionError"), ("refused", "OutOfDateError")])
def test_the_log_of_a_task_says_why_it_did_not_publish(late: Late, name: str, said: str) -> None:
    assert said in late.stack.api.log(DAG, late.run_id, f"{name}.write")
    # One whose rows came too late has staged them anew three times.
    assert len(staged(table_of(late.stack, name))) == (4 if name == "refused" else 1)
