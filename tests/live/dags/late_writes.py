"""Late writers: Spark stages their rows, and something keeps their tasks from publishing them.

Nothing of the package is replaced. ``LateTable`` does what others do before a commit, or between a lost race and the next
decision, and around that runs what always runs. Reconciliations wait for the pool ``late``, which a test makes.
"""

from __future__ import annotations

import os
import signal
from functools import cached_property
from typing import Any

import attrs
import pendulum
import pyarrow as pa
from airflow.sdk import DAG, TaskGroup
from deltalake import write_deltalake

from airflow_provider_onelake.commit.loop import Backoff
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.reconcile import OneLakeReconcileOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.table import Table

# What becomes of the writer's task: it is killed before its put, or where it has lost a race; it has no patience for
# another put; each time that it comes to commit, another engine has appended to p1 since.
FATES = {
    **dict.fromkeys(
        ["nobody", "earlier", "all", "half", "append", "elsewhere", "reads", "overwritten", "restored"], "killed"
    ),
    "lost_race": "killed after a lost race",
    "gave_up": "gives up",
    "refused": "is refused",
}


def die() -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class Killing(Backoff):
    """Its process does not survive a lost race."""

    def wait(self, *_: Any) -> float:
        die()
        return 0.0


@attrs.frozen
class LateTable(Table):
    """Something is in the way of its commits."""

    fate: str = attrs.field(kw_only=True)

    def append(self, month: str, row: int) -> None:
        """Append a row as another engine does."""
        write_deltalake(self.address.path, pa.table({"id": [row], "month": [month]}), mode="append")

    def committer(self, *observer: Any) -> Any:
        committer = super().committer(*observer)
        if self.fate == "killed":
            die()
        if self.fate == "is refused":
            self.append("p1", 20)
            return committer
        store: Any = self.log.store
        create = store.create

        def lose_race(path: str, data: bytes) -> None:
            if path.startswith("_delta_log/"):
                self.append("p3", 30)
            create(path, data)

        # After the decision, and before the put of it.
        store.create = lose_race
        committer.backoff = Killing() if self.fate == "killed after a lost race" else Backoff(budget=0)
        return committer


class LateWriter(OneLakeWriteOperator):
    """A writer whose rows do not come into the table by itself."""

    def __init__(self, *, fate: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fate = fate

    @cached_property
    def hook(self) -> OneLakeHook:
        fate = self.fate

        class Late(OneLakeHook):
            def table(self, name: str) -> Table:
                return LateTable(**attrs.asdict(super().table(name), recurse=False), fate=fate)

        return Late(self.onelake_conn_id)


with DAG(
    "late_writes", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC"), max_active_tasks=4
) as dag_late_writes:
    for name, fate in FATES.items():
        with TaskGroup(name):
            rows = "(10L, 'p9')" if name == "overwritten" else "(10L, 'p1'), (11L, 'p2')"
            LateWriter(
                task_id="write",
                fate=fate,
                table=f"Tables/late_{name}",
                mode="overwrite_partitions",
                source=SqlSource(f"SELECT * FROM VALUES {rows} AS t(id, month)"),
            ) >> OneLakeReconcileOperator(task_id="reconcile", table=f"Tables/late_{name}", pool="late")
