"""The context of a task that runs, as far as operators look at it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import attrs

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
    pulled: dict[str, list[Any]] = attrs.field(factory=dict)
    states: dict[str, Any] = attrs.field(factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: Any, key: str) -> Any:
        return self.pulled.get(key)

    def get_task_states(self, **_: Any) -> dict[str, Any]:
        return {self.run_id: self.states}


class Kept(dict[str, Any]):
    """Airflow's store for one task."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


def context_of(task: Any, logical_date: datetime | None = JANUARY, **ti: Any) -> Any:
    """The context of a try of a task."""
    return {
        "task": task,
        "ti": FakeTaskInstance(task_id=task.task_id, **ti),
        "dag_run": SimpleNamespace(
            logical_date=logical_date, run_id="manual__1", partition_date=None, partition_key=None
        ),
        "task_state_store": Kept(),
    }


def connect(monkeypatch: Any, hook: type, **extra: Any) -> None:
    """Give a hook a connection."""
    from airflow.sdk import Connection

    connection = Connection(conn_id="onelake_default", conn_type="onelake", extra=_json(extra))
    monkeypatch.setattr(hook, "get_connection", classmethod(lambda cls, conn_id: connection))

    async def aget_connection(cls: type, conn_id: str) -> Connection:
        return connection

    monkeypatch.setattr(hook, "aget_connection", classmethod(aget_connection))


def _json(value: Any) -> str:
    import json

    return json.dumps(value)
