"""What a task keeps over its tries: in Airflow's store, or below 3.3 in files of the table (protocol: tries)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.layout import try_path
from airflow_provider_onelake.exceptions import CorruptLogError, ObjectNotFoundError, TransientError
from airflow_provider_onelake.hooks.context import task_run_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.storage.stores import Store


@attrs.define(slots=False)
class TaskState:
    """What a task instance keeps over its tries, each value by a key.

    Airflow may be upgraded to 3.3 in the middle of a run. So where Airflow's store has no value yet, what earlier tries
    have left in files counts.

    :param context: of the running task.
    :param namespace: the deployment's name, from the connection.
    :param store: returns the store of the table. It is asked only where a file is read or written.
    :param came_back: whether the try is back from the triggerer.
    """

    _context: Context
    _namespace: str
    _store: Callable[[], Store]
    _came_back: bool = False

    def get(self, key: str) -> Any:
        """Return a value; ``None`` if there is none.

        :raises TransientError: the store of the table did not answer, or the run has no start at this moment.
        :raises CorruptLogError: a file is damaged.
        """
        airflows: Any = self._context.get("task_state_store")
        if airflows is None:
            return self._file.get(key)
        value = airflows.get(key)
        if value is None and (self._came_back or self._context["ti"].try_number > 1):
            value = self._file.get(key)
            if value is not None:
                airflows.set(key, value)
        return value

    def set(self, key: str, value: Any) -> None:
        """Keep a value.

        :param value: as JSON takes it.
        :raises TransientError: the store of the table did not answer, or the run has no start at this moment.
        """
        airflows: Any = self._context.get("task_state_store")
        if airflows is not None:
            airflows.set(key, value)
            return
        self._file[key] = value
        self._store().put(self._path(self._context["ti"].try_number), json.dumps(self._file).encode())

    @cached_property
    def _file(self) -> dict[str, Any]:
        """What the newest try up to this one has left."""
        for number in range(self._context["ti"].try_number, 0, -1):
            path = self._path(number)
            try:
                found: dict[str, Any] = json.loads(self._store().get(path))
            except ObjectNotFoundError:
                continue
            except ValueError as error:
                raise CorruptLogError(
                    f"The file {path} is damaged, so it is not known what an earlier try of this task has begun. "
                    "Nothing was touched: delete the file and clear the task, which begins anew."
                ) from error
            return found
        return {}

    def _path(self, number: int) -> str:
        """Return the path of the file of a try.

        The start of the run is part of it: a run that is deleted and made again has another start, and so has a
        finished run that is cleared, whose tasks begin anew in any case.
        """
        began = self._context["dag_run"].start_date
        if began is None:
            raise TransientError(
                f"The run {self._context['ti'].run_id} has no start, as it was queued again just now: nothing was "
                "touched; a retry goes on."
            )
        owner = task_run_of(self._context).owner(self._namespace)
        return try_path(f"{owner} {began.timestamp()}", number)
