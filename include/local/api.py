"""Airflow's REST API v2, as far as the demo and the live tests need it."""

from __future__ import annotations

from datetime import datetime
from json import dumps
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote

import httpx
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Json = dict[str, Any]
T = TypeVar("T")
_PAGE = 100
_ENDED = frozenset({"success", "failed"})


class ApiError(RuntimeError):
    """Airflow's API refused a request; the message has its answer."""


class WaitTimeoutError(ApiError):
    """What was waited for did not come in time."""


class AirflowApi:
    """A client that is logged in.

    :param url: address of Airflow's web UI, such as ``http://127.0.0.1:8080``.
    :param user: user of the simple auth manager.
    :param password: its password.
    :param transport: what carries the requests; for tests.
    """

    def __init__(self, url: str, user: str, password: str, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url
        self._login = {"username": user, "password": password}
        # trust_env=False: a proxy of the environment is of no use for this machine's own address.
        headers = {"Content-Type": "application/json"}
        self._client = httpx.Client(base_url=url, timeout=60, trust_env=False, transport=transport, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def request(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, json: object = None) -> Any:
        """Send a request, logging in when needed.

        :param method: HTTP method.
        :param path: below ``/api/v2/``.
        :param params: query parameters; None values are left out.
        :param json: body; moments may be in it.
        :returns: the decoded answer, None when there is none.
        :raises ApiError: the answer is an error.
        :raises httpx.TransportError: nobody answers.
        """
        given = {key: value for key, value in (params or {}).items() if value is not None}
        body = dumps(json, default=datetime.isoformat) if json is not None else None
        answer = self._client.request(method, f"/api/v2/{path}", params=given, content=body)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self._log_in()
            answer = self._client.request(method, f"/api/v2/{path}", params=given, content=body)
        if answer.is_error:
            raise ApiError(f"{method} {path} was answered {answer.status_code}: {answer.text}")
        return answer.json() if answer.content else None

    def get(self, path: str, **params: Any) -> Json:
        """Return the answer to a GET request; arguments are query parameters."""
        answer: Json = self.request("GET", path, params=params)
        return answer

    def pages(self, path: str, key: str, **params: Any) -> Iterator[Json]:
        """Return all entries of a list, page by page.

        :param path: below ``/api/v2/``.
        :param key: name of the list in the answer.
        :param params: query parameters.
        """
        offset = 0
        while True:
            answer = self.get(path, limit=_PAGE, offset=offset, **params)
            yield from answer[key]
            offset += len(answer[key])
            if not answer[key] or offset >= answer["total_entries"]:
                return

    def _log_in(self) -> None:
        answer = self._client.post("/auth/token", json=self._login)
        if answer.is_error:
            raise ApiError(f"Airflow refused the log-in of {self._login['username']}: {answer.text}")
        self._client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    # -- the installation ------------------------------------------------------------------------------------------

    def health(self) -> Json:
        """Return the health of the database, scheduler, triggerer and DAG processor. Needs no log-in."""
        answer: Json = self._client.get("/api/v2/monitor/health").raise_for_status().json()
        return answer

    def serves_tasks(self) -> bool:
        """Whether the API that tasks ask is ready, and make it ready: its first answer costs seconds of a core."""
        try:
            return self._client.get("/execution/health").is_success
        except httpx.TransportError:
            return False

    def import_errors(self) -> list[Json]:
        """Return the DAG files that cannot be imported: ``filename`` and ``stack_trace``."""
        return list(self.pages("importErrors", "import_errors"))

    # -- DAGs and runs ---------------------------------------------------------------------------------------------

    def dags(self) -> list[Json]:
        """Return the DAGs that are known now."""
        return list(self.pages("dags", "dags", exclude_stale=True))

    def unpause(self, dag_id: str) -> None:
        """Let a DAG's runs start: those of a paused one stay queued."""
        self.request("PATCH", f"dags/{quote(dag_id)}", params={"update_mask": "is_paused"}, json={"is_paused": False})

    def trigger(self, dag_id: str, **fields: Any) -> str:
        """Start a run by hand.

        :param dag_id: the DAG.
        :param fields: of the API's body, such as ``conf``, ``logical_date``, ``dag_run_id``, ``partition_key``.
        :returns: the run's id.
        """
        body = {"logical_date": None, **fields}
        return str(self.request("POST", f"dags/{quote(dag_id)}/dagRuns", json=body)["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> Json:
        """Return a run."""
        return self.get(_run(dag_id, run_id))

    def runs(self, dag_id: str, **params: Any) -> list[Json]:
        """Return a DAG's runs; arguments are query parameters of the API."""
        return list(self.pages(f"dags/{quote(dag_id)}/dagRuns", "dag_runs", **params))

    def wait_for_run(self, dag_id: str, run_id: str, timeout: float = 300) -> Json:
        """Wait until a run has ended, well or badly, and return it.

        :param dag_id: the DAG.
        :param run_id: the run.
        :param timeout: seconds.
        :raises WaitTimeoutError: it has not ended in time; the message has the states of its tasks.
        """

        def ended() -> Json | None:
            run = self.run(dag_id, run_id)
            return run if run["state"] in _ENDED else None

        try:
            return wait_for(ended, f"run {run_id} of {dag_id} to end", timeout)
        except WaitTimeoutError as error:
            tasks = self.task_instances(dag_id, run_id)
            states = {f"{task['task_id']}[{task['map_index']}]": task["state"] for task in tasks}
            raise WaitTimeoutError(f"{error} States of its tasks: {states}") from None

    # -- tasks -----------------------------------------------------------------------------------------------------

    def task_instances(self, dag_id: str, run_id: str, task_id: str | None = None) -> list[Json]:
        """Return the task instances of a run (``~`` for all runs), each mapped one for itself.

        They have ``state``, ``start_date``, ``end_date``, ``pid``, ``map_index``, ``try_number``.
        """
        found = self.pages(f"{_run(dag_id, run_id)}/taskInstances", "task_instances")
        return [task for task in found if task_id in (None, task["task_id"])]

    def tries(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> list[Json]:
        """Return every attempt of a task instance, in order."""
        path = _run(dag_id, run_id, task_id)
        answer = self.get(f"{path}/tries" if map_index < 0 else f"{path}/{map_index}/tries")
        return sorted(answer["task_instances"], key=lambda task: int(task["try_number"]))

    def log(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1, try_number: int | None = None) -> str:
        """Return the log of an attempt, one event a line.

        :param dag_id: the DAG.
        :param run_id: the run.
        :param task_id: the task.
        :param map_index: of a mapped task.
        :param try_number: default: the last attempt.
        """
        number = try_number or max(int(task["try_number"]) for task in self.tries(dag_id, run_id, task_id, map_index))
        path = f"{_run(dag_id, run_id, task_id)}/logs/{number}"
        answer = self.get(path, map_index=map_index, full_content=True)
        return "\n".join(_line(event) for event in answer["content"])

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Return a value that a task has pushed.

        :raises ApiError: it has pushed none with that key.
        """
        path = f"{_run(dag_id, run_id, task_id)}/xcomEntries/{quote(key)}"
        return self.get(path, map_index=map_index, deserialize=False, stringify=False)["value"]

    # -- backfills -------------------------------------------------------------------------------------------------

    def create_backfill(self, dag_id: str, first: datetime, last: datetime, **fields: Any) -> int:
        """Start a backfill, by the call that the UI's dialog makes, and return its id.

        :param dag_id: the DAG; its schedule must be periodic.
        :param first: first logical date.
        :param last: last logical date.
        :param fields: further ones of the API's body: ``dag_run_conf``, ``max_active_runs`` (the DAG's own limit does
            not count), ``reprocess_behavior`` (of runs that exist: ``none``, ``failed`` or ``completed``),
            ``run_backwards``.
        """
        body = {"dag_id": dag_id, "from_date": first, "to_date": last, "dag_run_conf": {}, **fields}
        return int(self.request("POST", "backfills", json=body)["id"])

    def backfill(self, backfill_id: int) -> Json:
        """Return a backfill. Its ``completed_at`` is set by a timer, up to 30 s after the last run."""
        return self.get(f"backfills/{backfill_id}")

    def backfill_runs(self, dag_id: str, backfill_id: int) -> list[Json]:
        """Return the runs of a backfill that exist by now."""
        runs = self.runs(dag_id, run_type="backfill")
        return [run for run in runs if run.get("backfill_id", backfill_id) == backfill_id]

    def cancel_backfill(self, backfill_id: int) -> None:
        """Start none of a backfill's queued runs any more. One that has ended stays as it is."""
        try:
            self.request("PUT", f"backfills/{backfill_id}/cancel")
        except ApiError:
            # Airflow's timer may have ended it since the caller looked; to cancel it then is refused.
            if self.backfill(backfill_id)["completed_at"] is None:
                raise


def wait_for(found: Callable[[], T | None], what: str, timeout: float, every: float = 0.5) -> T:
    """Return the first result that is not None or False.

    :param found: asked again and again.
    :param what: what is waited for, for the message.
    :param timeout: seconds.
    :param every: seconds between two questions.
    :raises WaitTimeoutError: there was none in time.
    """
    retrying = Retrying(
        retry=retry_if_result(lambda result: not result), stop=stop_after_delay(timeout), wait=wait_fixed(every)
    )
    try:
        return retrying(found)  # type: ignore[return-value]  # it goes on while there is none
    except RetryError:
        raise WaitTimeoutError(f"Waited {timeout:.0f} s for {what}.") from None


def _run(dag_id: str, run_id: str, task_id: str | None = None) -> str:
    path = f"dags/{quote(dag_id)}/dagRuns/{quote(run_id)}"
    return path if task_id is None else f"{path}/taskInstances/{quote(task_id)}"


def _line(event: Json | str) -> str:
    if isinstance(event, str):
        return event
    rest = {key: value for key, value in event.items() if key not in ("timestamp", "event", "level", "logger")}
    parts = [event.get("timestamp"), event.get("level"), event["event"], *(f"{k}={v}" for k, v in rest.items())]
    return " ".join(str(part) for part in parts if part)
