"""Keeps writers, a backfill, compaction, other engines and a reader at two tables, for some minutes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs

from include.local.api import wait_for
from include.local.settings import REPOSITORY
from tests.live.stress.foreign import ForeignWriter
from tests.live.stress.meddler import Meddler
from tests.live.stress.shape import (
    ALL_DAGS,
    BLOCK,
    EACH,
    LONE,
    NARROW,
    OPTIMIZE,
    POLICIES,
    POOL,
    RIVAL_DAGS,
    RIVALS,
    RIVALS_OPTIMIZE,
    TOGETHER,
    VACUUM,
    Load,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.live.harness import LiveStack

TABLE = "Tables/stress"
CONTESTED_TABLE = "Tables/rivals"
# With deletion vectors the foreign writer's deletes leave the files where they are; row ids tell a row that was rewritten
# from one that was written anew; frequent checkpoints bring both kinds, Spark's and ours.
PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.checkpointInterval": "20",
}
# deltalake does not write to tables with row ids.
CONTESTED_PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "20"}
# Runs at the same time.
_AT_ONCE = {EACH: 1, TOGETHER: 1, OPTIMIZE: 1, RIVALS: 1, NARROW: 1, BLOCK: 1, LONE: 2, RIVALS_OPTIMIZE: 1}
_VACUUM_AFTER = 3
_ENDED = ("success", "failed")
_EVERY = 2.0
# How long the runs may take that are under way when the time is over, and how long something that must be seen.
_PATIENCE = 900.0


@attrs.define
class Stress:
    """What was started, and what it left.

    :param minutes: for how long new work is started; at least until a compaction was published, a backfill ended, and each
        policy and each kind of statement of other engines was tried.
    :param months: of each backfill; the next one starts when one has ended.
    """

    stack: LiveStack
    minutes: float
    directory: Path
    months: int = 3
    loads: list[Load] = attrs.field(factory=list)
    runs: dict[str, list[str]] = attrs.field(factory=lambda: {dag: [] for dag in ALL_DAGS})
    backfills: list[int] = attrs.field(factory=list)
    answers: list[dict[str, Any]] = attrs.field(factory=list)
    seconds: float = 0.0
    foreign: ForeignWriter = attrs.field(init=False)
    meddler: Meddler = attrs.field(init=False)
    _active: dict[str, set[str]] = attrs.field(factory=lambda: {dag: set() for dag in ALL_DAGS})

    @property
    def table(self) -> Path:
        """The directory of the table whose writers leave each other alone."""
        return self.stack.lakehouse / TABLE

    @property
    def contested_table(self) -> Path:
        """The directory of the table whose loads replace the same partitions."""
        return self.stack.lakehouse / CONTESTED_TABLE

    @property
    def appends(self) -> list[Load]:
        """The loads of the first table, whose rows stay but for those of a slot."""
        return [load for load in self.loads if load.dag_id not in RIVAL_DAGS]

    @property
    def rivals(self) -> list[Load]:
        """The loads that replace the same partitions."""
        return [load for load in self.loads if load.dag_id in RIVAL_DAGS]

    def run(self) -> None:
        """Start work until the time is over, and return when all of it has ended."""
        self.stack.api.request("POST", "pools", json={"name": POOL, "slots": 1, "description": "for one at a time"})
        for dag_id in ALL_DAGS:
            self.stack.api.unpause(dag_id)
        self.foreign = ForeignWriter(self.stack.connect_server.remote, self.table, PROPERTIES)
        self.meddler = Meddler(self.stack.connect_server.remote, self.contested_table, CONTESTED_PROPERTIES)
        others = (self.foreign, self.meddler)
        for other in others:
            other.create()
        begun = time.monotonic()
        with self._reader():
            for other in others:
                other.start()
            try:
                self._load(begun + 60 * self.minutes)
                self._wait_for_all()
            finally:
                for other in others:
                    other.end()
        self.seconds = time.monotonic() - begun

    def _load(self, until: float) -> None:
        while time.monotonic() < until or not self._seen_enough():
            assert time.monotonic() < until + _PATIENCE, (
                "no compaction was published, no backfill ended, or a policy or a kind of statement lacks"
            )
            for other in (self.foreign, self.meddler):
                assert other.is_alive(), f"{other.name} failed: {other.error!r}"
            self._forget_ended()
            for dag_id, count in _AT_ONCE.items():
                if len(self._active[dag_id]) < count:
                    self._trigger(dag_id)
            if len(self.runs[OPTIMIZE]) > _VACUUM_AFTER * (len(self.runs[VACUUM]) + 1):
                self._trigger(VACUUM)
            if not self.backfills or self._backfill_ended():
                self._start_backfill()
            # The scheduler needs the cores too.
            time.sleep(_EVERY)

    def _trigger(self, dag_id: str) -> None:
        number = len(self.runs[dag_id])
        load, slot = f"{dag_id}-{number:04d}", str(number % 2)
        conf = {"table": TABLE, "load": load, "slot": slot}
        policy = POLICIES[0]
        if dag_id in (*RIVAL_DAGS, RIVALS_OPTIMIZE):
            # Each kind of load by each policy, and at no moment all of them by one.
            slot = str(number % 3)
            policy = POLICIES[(number + list(_AT_ONCE).index(dag_id)) % len(POLICIES)]
            conf |= {"table": CONTESTED_TABLE, "slot": slot, "policy": policy}
        run_id = self.stack.api.trigger(dag_id, conf=conf, dag_run_id=load)
        self.runs[dag_id].append(run_id)
        self._active[dag_id].add(run_id)
        if dag_id in (EACH, TOGETHER, *RIVAL_DAGS):
            self.loads.append(Load(dag_id, run_id, load, slot, policy))

    def _start_backfill(self) -> None:
        """Backfill the months after those of the last one: they replace one slot, and so does every other run of ours."""
        first = self.months * len(self.backfills)
        months = [datetime(2019 + n // 12, n % 12 + 1, 1, tzinfo=UTC) for n in (first, first + self.months - 1)]
        self.backfills.append(
            self.stack.api.create_backfill(
                EACH, *months, max_active_runs=2, dag_run_conf={"table": TABLE, "load": "", "slot": "1"}
            )
        )

    def _backfill_ended(self) -> bool:
        return self.stack.api.get(f"backfills/{self.backfills[-1]}")["completed_at"] is not None

    def _seen_enough(self) -> bool:
        compacted = any(result["status"] == "published" for result in self.results(OPTIMIZE, "optimize"))
        ended = {load.policy for load in self.rivals if load.run_id not in self._active[load.dag_id]}
        tried = self.foreign.seen_enough and self.meddler.seen_enough
        return compacted and tried and len(self._backfilled(_ENDED)) >= self.months and ended >= set(POLICIES)

    def _forget_ended(self) -> None:
        for dag_id, active in self._active.items():
            active -= {run_id for run_id in active if self.stack.api.run(dag_id, run_id)["state"] in _ENDED}

    def _wait_for_all(self) -> None:
        def ended() -> bool:
            states = {run["state"] for dag_id in ALL_DAGS for run in self.stack.api.runs(dag_id)}
            return states <= set(_ENDED) and len(self._backfilled(_ENDED)) == self.months * len(self.backfills)

        wait_for(ended, "every run to end", _PATIENCE, _EVERY)
        for run in self._backfilled(_ENDED):
            name = str(run["logical_date"])[:7]
            self.loads.append(Load(EACH, str(run["dag_run_id"]), name, "1"))

    def _backfilled(self, states: tuple[str, ...]) -> list[dict[str, Any]]:
        return [run for run in self.stack.api.runs(EACH, run_type="backfill") if run["state"] in states]

    @contextmanager
    def _reader(self) -> Iterator[None]:
        """Let another process read the table; afterwards there are its answers."""
        stop, said = self.directory / "stop", self.directory / "answers.jsonl"
        with said.open("w") as out:
            reader = subprocess.Popen(
                [sys.executable, "-m", "tests.live.stress.reader", str(self.table), str(stop)],
                cwd=REPOSITORY,
                stdout=out,
            )
        try:
            yield
        finally:
            stop.touch()
            assert reader.wait(60) == 0
        self.answers = [json.loads(line) for line in said.read_text().splitlines()]

    # -- what Airflow says of it -----------------------------------------------------------------------------------

    def tasks(self, dag_id: str) -> list[dict[str, Any]]:
        """Every task of a DAG's runs."""
        return self.stack.api.task_instances(dag_id, "~")

    def results(self, dag_id: str, *task_ids: str, key: str = "return_value") -> list[dict[str, Any]]:
        """What tasks that succeeded left in XCom, with ``run_id`` and ``task_id``."""
        return [
            {
                **self.stack.api.xcom(dag_id, task["dag_run_id"], task["task_id"], key),
                "run_id": task["dag_run_id"],
                "task_id": task["task_id"],
            }
            for task in self.tasks(dag_id)
            if task["task_id"] in task_ids and task["state"] == "success"
        ]
