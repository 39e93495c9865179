"""One run of the DAG ``held``, and what a test does to it and sees of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from include.local.api import wait_for
from tests.support import event_log

if TYPE_CHECKING:
    from tests.live.harness import LiveStack

WRITE, RECONCILE = "load.write", "load.reconcile"
WRITERS = ("vendor-1", "vendor-2")
ROWS = {"vendor-1": 100, "vendor-2": 150}
AN_HOUR = 3_600_000
_ENTRY = "_delta_log/{:020d}.json"


class HeldLoad:
    """A run of some writers, ``vendor-1``, ``vendor-2`` and so on, and of reconcile.

    Points where it can be held: ``<who>.before-commit``, ``<who>.before-put`` and ``<who>.after-commit``, where ``<who>``
    is a writer that publishes for itself, or ``reconcile``.

    :param given: how many rows each writer has.
    """

    def __init__(
        self,
        stack: LiveStack,
        flags: Path,
        name: str,
        dag_id: str = "held",
        given: Mapping[str, int] = ROWS,
        **params: str,
    ) -> None:
        self.stack = stack
        self.api = stack.api
        self.dag_id = dag_id
        self.run_id = ""
        self.table = stack.lakehouse / "Tables" / name
        self.given = given
        self._flags = flags
        self._params = {"flags": str(flags), "table": f"Tables/{name}", **params}
        self.give()

    # -- what a test does ------------------------------------------------------------------------------------------

    def give(self, *, slow: str | None = None) -> None:
        """Write the input: a writer may take an hour in Spark."""
        lines = []
        for writer, rows in self.given.items():
            work = {"vendor_id": int(writer[-1]), "month": "2019-01", "rows": rows}
            lines.append(json.dumps({**work, "milliseconds": AN_HOUR if writer == slow else 0}))
        fresh = self._flags / ".input"
        fresh.write_text("\n".join(lines))
        fresh.replace(self._flags / "input.jsonl")

    def hold(self, *points: str) -> None:
        """Hold the run at points from now on."""
        for point in points:
            (self._flags / f"{point}.reached").unlink(missing_ok=True)
            (self._flags / f"{point}.hold").touch()

    def release(self, point: str) -> None:
        """Let go."""
        (self._flags / f"{point}.hold").unlink()

    def start(self) -> None:
        """Start the run."""
        self.api.unpause(self.dag_id)
        self.run_id = self.api.trigger(self.dag_id, conf=self._params)

    def clear(self, writer: str | None = None) -> None:
        """Clear all tasks of the run, so that it is run again; or a writer with its downstream tasks."""
        what = {"task_ids": [[WRITE, self._index(writer)]], "include_downstream": True} if writer else {}
        how = {"dry_run": False, "dag_run_id": self.run_id, "only_failed": False, "reset_dag_runs": True}
        self.api.request("POST", f"dags/{self.dag_id}/clearTaskInstances", json={**how, **what})

    def let_go(self) -> None:
        """Hold nothing any more, also in Spark, from the next try on."""
        for held in self._flags.glob("*.hold"):
            held.unlink()
        self.give()

    def kill(self, task_id: str, writer: str | None = None) -> int:
        """Kill a task's process as ``kill -9`` does; returns its pid."""
        return self.stack.kill_task(self.dag_id, self.run_id, task_id, self._index(writer))

    def end(self, timeout: float = 240) -> str:
        """Wait until the run has ended; returns its state."""
        return str(self.api.wait_for_run(self.dag_id, self.run_id, timeout)["state"])

    def wait_until_at(self, point: str, timeout: float = 120) -> int:
        """Wait until a point is reached; returns the pid of the process that is there."""
        return wait_for(lambda: self.at(point), f"{point} to be reached", timeout, 0.1)

    def at(self, point: str) -> int | None:
        """The pid of the process that reached a point last."""
        told = self._flags / f"{point}.reached"
        return int(said) if told.exists() and (said := told.read_text()) else None

    def wait_until_ended(self, writer: str, timeout: float = 120) -> None:
        """Wait until a writer's task has ended, well or badly."""
        ended = ("success", "skipped", "failed")
        wait_for(lambda: self.task(WRITE, writer)["state"] in ended, f"{writer} to end", timeout)

    def finished(self, writer: str) -> int:
        """Wait until a writer that is held has staged its rows; returns when Spark had, in nanoseconds."""
        self.wait_until_at(f"{writer}.before-commit")
        return (self.buffers(writer)[-1] / _ENTRY.format(1)).stat().st_mtime_ns

    def wait_until_in_spark(self, writer: str, timeout: float = 120) -> Path:
        """Wait until Spark's own status shows a running job of a writer; returns the buffer, which is open."""

        def found() -> Path | None:
            return next((buffer for buffer in self.buffers(writer) if self.runs_in_spark(buffer)), None)

        return wait_for(found, f"a Spark job of {writer}", timeout)

    # -- what a test sees ------------------------------------------------------------------------------------------

    def task(self, task_id: str, writer: str | None = None) -> dict[str, Any]:
        """A task as Airflow knows it now."""
        index = self._index(writer)
        tasks = self.api.task_instances(self.dag_id, self.run_id, task_id)
        # A mapped task is there once and unmapped before it is expanded.
        return next((task for task in tasks if task["map_index"] == index), {"state": None, "try_number": 0})

    def tries(self, task_id: str, writer: str | None = None) -> list[str]:
        """How each try of a task ended."""
        index = self._index(writer)
        return [str(one["state"]) for one in self.api.tries(self.dag_id, self.run_id, task_id, index)]

    def _index(self, writer: str | None) -> int:
        return list(self.given).index(writer) if writer else -1

    def result(self, writer: str) -> dict[str, Any]:
        """What a writer left in XCom."""
        found: dict[str, Any] = self.api.xcom(self.dag_id, self.run_id, WRITE, map_index=self._index(writer))
        return found

    def report(self) -> dict[str, Any]:
        """What reconcile left in XCom, also when it failed; its writers by key."""
        found: dict[str, Any] = self.api.xcom(self.dag_id, self.run_id, RECONCILE, "return_value")
        return {**found, "writers": {outcome["writer"]: outcome for outcome in found["writers"]}}

    def log(self, task_id: str, writer: str | None = None, try_number: int | None = None) -> str:
        """The log of a try of a task."""
        index = self._index(writer)
        return self.api.log(self.dag_id, self.run_id, task_id, index, try_number)

    def buffers(self, writer: str) -> list[Path]:
        """The buffers of a writer of this table, oldest first."""
        entries = self.table.glob(f"staged/{writer}-*/*/{_ENTRY.format(0)}")
        return [entry.parents[1] for entry in sorted(entries, key=lambda entry: entry.stat().st_mtime_ns)]

    def runs_in_spark(self, buffer: Path) -> bool:
        """Whether Spark's own status shows that the attempt of a buffer is at its hour of work.

        Not just at one of the short jobs around it: the query that sleeps.
        """
        server = self.stack.connect_server
        queries = server.status("applications/{app}/sql?length=100000")
        asleep = {
            job
            for query in queries
            if query["status"] == "RUNNING" and "sleep" in query["planDescription"]
            for job in query["runningJobIds"]
        }
        tags = [tag for job in server.jobs("running") if job["jobId"] in asleep for tag in job["jobTags"]]
        return any(tag.endswith(f"onelake attempt {buffer.name}") for tag in tags)

    def spark_jobs(self, *writers: str) -> list[event_log.Job]:
        """The Spark jobs of all attempts of these writers, by Spark's event log."""
        marks = {f"onelake attempt {buffer.name}" for writer in writers for buffer in self.buffers(writer)}
        return [job for job in event_log.jobs(self.stack.spark_events) if job.tags & marks]

    def all_spark_jobs(self) -> list[tuple[str, int]]:
        """Every Spark job by now, whoever's, by application and number."""
        return [(job.application, job.id) for job in event_log.jobs(self.stack.spark_events)]

    def versions(self) -> list[int]:
        """The table's versions."""
        return sorted(int(entry.stem) for entry in (self.table / "_delta_log").glob("*.json"))

    def rows(self) -> dict[str, int]:
        """The table's rows by writer, as deltalake reads them; none of them is there twice, nor anywhere without a table."""
        if not self.versions():
            return {}
        rows = DeltaTable(str(self.table)).to_pyarrow_table(columns=["vendor_id", "id"]).to_pylist()
        twice = {
            row: count for row, count in Counter((row["vendor_id"], row["id"]) for row in rows).items() if count > 1
        }
        assert not twice
        return dict(sorted(Counter(f"vendor-{row['vendor_id']}" for row in rows).items()))


def is_complete(buffer: Path) -> bool:
    """Whether a buffer is complete."""
    return (buffer / _ENTRY.format(1)).exists()
