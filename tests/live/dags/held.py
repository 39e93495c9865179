"""A load that a test can hold: its Spark work by the input, its commits by flag files.

Nothing of the package is replaced. ``HeldTable`` waits before and after a commit, and before each put of one, and
around that runs what always runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import attrs
import pendulum
from airflow.sdk import DAG, Param, TaskGroup

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.modes import Merge, Mode
from airflow_provider_onelake.operators.reconcile import OneLakeReconcileOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.table import Table

# A query, so that the input may change between two tries: it is no part of a query's fingerprint.
INPUT = """
    SELECT work.* FROM (
        SELECT from_json(value, 'vendor_id INT, month STRING, rows INT, milliseconds BIGINT') AS work
        FROM text.`{{ params.flags }}/input.jsonl`
    )
"""
# Sleeps in the middle of the Spark job, where it costs no core.
STEPS = {
    "slept": "SELECT * FROM source WHERE reflect('java.lang.Thread', 'sleep', milliseconds) = 'null'",
    "trips": "SELECT vendor_id, month, explode(sequence(1, rows)) AS id FROM slept",
}
_LONGEST = 300


def pass_through(flags: str, point: str) -> None:
    """Say that a point is reached, and by which process; wait there as long as a file tells to."""
    Path(flags, f"{point}.reached").write_text(str(os.getpid()))
    deadline = time.monotonic() + _LONGEST
    while Path(flags, f"{point}.hold").exists() and time.monotonic() < deadline:
        time.sleep(0.05)


@attrs.frozen
class HeldTable(Table):
    """Its committers pass through the points ``<who>.before-commit``, ``<who>.before-put`` and ``<who>.after-commit``."""

    flags: str = attrs.field(kw_only=True)
    who: str = attrs.field(kw_only=True)

    def committer(self, *observer: Any) -> Any:
        committer = super().committer(*observer)
        as_always, store = committer.after_commit, cast("Any", self.log.store)
        create = store.create

        def put(path: str, data: bytes) -> None:
            if path.startswith("_delta_log/"):
                pass_through(self.flags, f"{self.who}.before-put")
            create(path, data)

        def after_commit(snapshot: Any, version: int) -> None:
            as_always(snapshot, version)
            pass_through(self.flags, f"{self.who}.after-commit")

        store.create, committer.after_commit = put, after_commit
        pass_through(self.flags, f"{self.who}.before-commit")
        return committer


class HeldHook(OneLakeHook):
    """Its tables are held."""

    def __init__(self, onelake_conn_id: str, flags: str, who: str) -> None:
        super().__init__(onelake_conn_id)
        self._flags, self._who = flags, who

    def table(self, name: str) -> Table:
        fields = attrs.asdict(super().table(name), recurse=False)
        return HeldTable(**fields, flags=self._flags, who=self._who)


class HeldWriter(OneLakeWriteOperator):
    """A writer that can be held when its rows are staged, and when they are published."""

    template_fields: Collection[str] = (*OneLakeWriteOperator.template_fields, "flags")

    def __init__(self, *, flags: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.flags = flags

    @cached_property
    def hook(self) -> OneLakeHook:
        return HeldHook(self.onelake_conn_id, self.flags, str(self.writer))


class HeldReconcile(OneLakeReconcileOperator):
    """A reconciliation that can be held before its first commit, and after each."""

    template_fields: Collection[str] = (*OneLakeReconcileOperator.template_fields, "flags")

    def __init__(self, *, flags: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.flags = flags

    @cached_property
    def hook(self) -> OneLakeHook:
        return HeldHook(self.onelake_conn_id, self.flags, "reconcile")


def held(dag_id: str, vendors: int = 2, mode: str | Mode = "{{ params.mode }}", **writers: Any) -> DAG:
    """A load of some writers."""
    given = {name: Param("", type="string") for name in ("flags", "table")}
    terms = {"publish": "each", "mode": "append", "on_conflict": "last_writer_wins", "on_set_aside": "warn"}
    settled = {name: f"{{{{ params.{name} }}}}" for name in terms if name != "mode"}
    with (
        DAG(
            dag_id, schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC"), params={**given, **terms}
        ) as dag,
        TaskGroup("load"),
    ):
        write = HeldWriter.partial(
            task_id="write",
            flags="{{ params.flags }}",
            table="{{ params.table }}",
            mode=mode,
            **settled,
            partition_by=["month"],
            source=SqlSource(INPUT),
            steps=STEPS,
            # A server that was killed is away for a while.
            retries=10,
            retry_delay=timedelta(seconds=2),
            **writers,
        ).expand_kwargs(
            [{"writer": f"vendor-{vendor}", "where": f"vendor_id = {vendor}"} for vendor in range(1, vendors + 1)]
        )
        write >> HeldReconcile(
            task_id="reconcile",
            flags="{{ params.flags }}",
            table="{{ params.table }}",
            **settled,
            on_missing_writer="publish_others",
            retries=1,
            retry_delay=timedelta(seconds=1),
        )
    return dag


dag_held = held("held")
dag_narrow = held("held_in_a_narrow_pool", pool="narrow")
dag_four = held("held_four", vendors=4)
dag_four_in_one_slot = held("held_four_in_one_slot", vendors=4, pool="one_slot")
# All vendors have the same ids.
dag_held_inserts = held("held_inserts", mode=Merge(keys=["id"], when=["NOT MATCHED THEN INSERT *"]))
