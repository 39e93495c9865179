"""Keeps writers, compaction and other engines at one table, for some minutes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs

from include.local.api import wait_for
from tests.live.stress.meddler import Meddler
from tests.live.stress.shape import (
    ALL_DAGS,
    BLOCK,
    LONE,
    NARROW,
    OPTIMIZE,
    POLICIES,
    POOL,
    RIVAL_DAGS,
    RIVALS,
    Load,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.live.harness import LiveStack

TABLE = "Tables/rivals"
# With deletion vectors, deletes of others leave the files where they are; frequent checkpoints bring both kinds, Spark's
# and ours. deltalake does not write to tables with row ids.
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "20"}
# Runs at the same time.
_AT_ONCE = {RIVALS: 1, NARROW: 1, BLOCK: 1, LONE: 2, OPTIMIZE: 1}
_ENDED = ("success", "failed")
_EVERY = 2.0
# How long the runs may take that are under way when the time is over, and how long something that must be seen.
_PATIENCE = 900.0


@attrs.define
class Stress:
    """What was started, and what it left.

    :param minutes: for how long new work is started; at least until a compaction has ended, and each policy and each kind
        of statement of other engines was tried.
    """

    stack: LiveStack
    minutes: float
    loads: list[Load] = attrs.field(factory=list)
    seconds: float = 0.0
    meddler: Meddler = attrs.field(init=False)
    _active: dict[str, set[str]] = attrs.field(factory=lambda: {dag: set() for dag in ALL_DAGS})
    _started: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(ALL_DAGS, 0))

    @property
    def table(self) -> Path:
        """The directory of the table."""
        return self.stack.lakehouse / TABLE

    def run(self) -> None:
        """Start work until the time is over, and return when all of it has ended."""
        self.stack.api.request("POST", "pools", json={"name": POOL, "slots": 1, "description": "for one at a time"})
        for dag_id in ALL_DAGS:
            self.stack.api.unpause(dag_id)
        self.meddler = Meddler(self.stack.connect_server.remote, self.table, PROPERTIES)
        self.meddler.create()
        begun = time.monotonic()
        self.meddler.start()
        try:
            self._load(begun + 60 * self.minutes)
            wait_for(self._all_ended, "every run to end", _PATIENCE, _EVERY)
        finally:
            self.meddler.end()
        self.seconds = time.monotonic() - begun

    def _load(self, until: float) -> None:
        while time.monotonic() < until or not self._seen_enough():
            lacks = "no compaction has ended, or a policy or a kind of statement lacks"
            assert time.monotonic() < until + _PATIENCE, lacks
            assert self.meddler.is_alive(), f"{self.meddler.name} failed: {self.meddler.error!r}"
            for dag_id, active in self._active.items():
                active -= {run_id for run_id in active if self.stack.api.run(dag_id, run_id)["state"] in _ENDED}
            for dag_id, count in _AT_ONCE.items():
                if len(self._active[dag_id]) < count:
                    self._trigger(dag_id)
            # The scheduler needs the cores too.
            time.sleep(_EVERY)

    def _trigger(self, dag_id: str) -> None:
        number = self._started[dag_id]
        self._started[dag_id] += 1
        name, slot = f"{dag_id}-{number:04d}", str(number % 3)
        # Each kind of load by each policy, and at no moment all of them by one.
        policy = POLICIES[(number + list(_AT_ONCE).index(dag_id)) % len(POLICIES)]
        conf = {"table": TABLE, "load": name, "slot": slot, "policy": policy}
        run_id = self.stack.api.trigger(dag_id, conf=conf, dag_run_id=name)
        self._active[dag_id].add(run_id)
        if dag_id in RIVAL_DAGS:
            self.loads.append(Load(dag_id, run_id, name, slot, policy))

    def _seen_enough(self) -> bool:
        compacted = self._started[OPTIMIZE] > len(self._active[OPTIMIZE])
        ended = {load.policy for load in self.loads if load.run_id not in self._active[load.dag_id]}
        return compacted and self.meddler.seen_enough and ended >= set(POLICIES)

    def _all_ended(self) -> bool:
        return {run["state"] for dag_id in ALL_DAGS for run in self.stack.api.runs(dag_id)} <= set(_ENDED)

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
