"""The context of a task that runs, as far as operators look at it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

JANUARY = datetime(2019, 1, 1, tzinfo=UTC)


@attrs.define
class FakeTaskInstance:
    """A task instance that keeps its XComs."""

    task_id: str = "load.write"
    dag_id: str = "taxi"
    run_id: str = "manual__1"
    map_index: int | None = -1
    max_tries: int = 0
    try_number: int = 1
    id: uuid.UUID = attrs.field(factory=uuid.uuid4)
    pushed: dict[str, Any] = attrs.field(factory=dict)
    pulled: dict[str, Any] = attrs.field(factory=dict)
    states: dict[str, Any] = attrs.field(factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: Any, key: str = "return_value", *, map_indexes: Any = None) -> Any:
        return self.pulled.get(key)

    def get_task_states(self, task_ids: list[str], **_: Any) -> dict[str, Any]:
        named = {name: name if name in task_ids else name.rpartition("_")[0] for name in self.states}
        return {self.run_id: {name: state for name, state in self.states.items() if named[name] in task_ids}}


class Kept(dict[str, Any]):
    """Airflow's store for one task."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


_KEPT: dict[tuple[Any, ...], Kept] = {}
# How often the runs were deleted and made again; each life of a run has another start.
_LIVES = [0]


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    """What task instances keep, they keep for one test."""
    delete_runs()
    yield
    delete_runs()


def context_of(
    task: Any, logical_date: datetime | None = JANUARY, *, clears: int = 0, began: datetime | None = None, **ti: Any
) -> Any:
    """The context of a try of a task; what a task instance of a run keeps, its next try finds."""
    from airflow_provider_onelake._airflow import RELEASE

    fake = FakeTaskInstance(task_id=task.task_id, **ti)
    context = {
        "task": task,
        "ti": fake,
        "dag_run": SimpleNamespace(
            logical_date=logical_date,
            run_id=fake.run_id,
            partition_date=None,
            partition_key=None,
            start_date=JANUARY + _LIVES[0] * timedelta(seconds=1) if began is None else began,
            clear_number=clears,
        ),
    }
    return {**context, "task_state_store": kept_of(context)} if RELEASE >= (3, 3) else context


def kept_of(context: Any) -> Kept:
    """What the task instance of a context keeps, wherever that is."""
    ti = context["ti"]
    return _KEPT.setdefault((ti.dag_id, ti.task_id, ti.run_id, ti.map_index), Kept())


def before_reconcile(make: Callable[[], Any]) -> Any:
    """A writer of a DAG in which a reconciliation settles it."""
    from airflow.sdk import DAG

    from airflow_provider_onelake.operators.reconcile import OneLakeReconcileOperator

    with DAG("taxi", schedule=None):
        writer = make()
        policy = getattr(writer, "on_conflict", None) or "last_writer_wins"
        writer >> OneLakeReconcileOperator(task_id="reconcile", table="Tables/trips", on_conflict=policy)
    return writer


def delete_runs() -> None:
    """Delete every run: what its task instances kept goes with it."""
    _KEPT.clear()
    _LIVES[0] += 1


def connect(monkeypatch: Any, hook: type, **extra: Any) -> None:
    """Give a hook a connection."""
    from airflow.sdk import Connection

    connection = Connection(conn_id="onelake_default", conn_type="onelake", extra=_json(extra))
    monkeypatch.setattr(hook, "get_connection", classmethod(lambda cls, conn_id: connection))

    async def aget_connection(cls: type, conn_id: str) -> Connection:
        return connection

    monkeypatch.setattr(hook, "aget_connection", classmethod(aget_connection))


def signed_in_by(connection: Any, address: Any) -> Any:
    """Return the credentials that a connection has for the store of an address."""
    from airflow_provider_onelake.hooks.onelake import OneLakeHook

    hook = OneLakeHook()
    hook.__dict__["connection"] = connection
    return hook.credentials(address)


def _json(value: Any) -> str:
    import json

    return json.dumps(value)
