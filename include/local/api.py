"""Airflow's REST API v2, as far as the demo and the live tests need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from json import dumps
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

Json = dict[str, Any]
T = TypeVar("T")


class ApiError(RuntimeError):
    """Airflow's API refused a request; the message has its answer."""


class AirflowApi:
    """A client at the address of Airflow's web UI, logged in as a user of the simple auth manager."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url
        self._login = {"username": user, "password": password}
        # trust_env=False: a proxy of the environment is of no use for this machine's own address.
        self._client = httpx.Client(
            base_url=url, timeout=60, trust_env=False, headers={"Content-Type": "application/json"}
        )

    def request(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, json: object = None) -> Any:
        """Send a request, logging in when needed, and return the decoded answer, None when there is none.

        :param path: below ``/api/v2/``.
        :param json: body; moments may be in it.
        :raises ApiError: the answer is an error.
        :raises httpx.TransportError: nobody answers.
        """
        body = dumps(json, default=datetime.isoformat) if json is not None else None
        answer = self._client.request(method, f"/api/v2/{path}", params=params, content=body)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            token = self._client.post("/auth/token", json=self._login).raise_for_status().json()["access_token"]
            self._client.headers["Authorization"] = f"Bearer {token}"
            answer = self._client.request(method, f"/api/v2/{path}", params=params, content=body)
        if answer.is_error:
            raise ApiError(f"{method} {path} was answered {answer.status_code}: {answer.text}")
        return answer.json() if answer.content else None

    def get(self, path: str, **params: Any) -> Json:
        """Return the answer to a GET request; arguments are query parameters."""
        answer: Json = self.request("GET", path, params=params)
        return answer

    def pages(self, path: str, key: str, **params: Any) -> Iterator[Json]:
        """Return all entries of the list ``key`` of an answer, page by page; further arguments are query parameters."""
        offset, total = 0, 1
        while offset < total:
            answer = self.get(path, limit=100, offset=offset, **params)
            yield from answer[key]
            offset, total = offset + len(answer[key]), answer["total_entries"]

    def health(self) -> Json:
        """Return the health of the database, scheduler, triggerer and DAG processor."""
        return self.get("monitor/health")

    def serves_tasks(self) -> bool:
        """Whether the API that tasks ask is ready, and make it ready: its first answer costs seconds of a core."""
        return self._client.get("/execution/health").is_success

    def import_errors(self) -> list[Json]:
        """Return the DAG files that cannot be imported: ``filename`` and ``stack_trace``."""
        return list(self.pages("importErrors", "import_errors"))

    def dags(self) -> list[Json]:
        """Return the DAGs that are known now."""
        return list(self.pages("dags", "dags", exclude_stale=True))

    def unpause(self, dag_id: str) -> None:
        """Let a DAG's runs start: those of a paused one stay queued."""
        self.request("PATCH", f"dags/{quote(dag_id)}", params={"update_mask": "is_paused"}, json={"is_paused": False})

    def trigger(self, dag_id: str, **fields: Any) -> str:
        """Start a run by hand, and return its id; fields are those of the API's body, such as ``conf``."""
        body = {"logical_date": None, **fields}
        return str(self.request("POST", f"dags/{quote(dag_id)}/dagRuns", json=body)["dag_run_id"])

    def create_backfill(self, dag_id: str, first: datetime, last: datetime, **fields: Any) -> int:
        """Start a backfill from one logical date to another, and return its id; fields are those of the API's body."""
        body = {"dag_id": dag_id, "from_date": first, "to_date": last, "dag_run_conf": {}, **fields}
        return int(self.request("POST", "backfills", json=body)["id"])

    def run(self, dag_id: str, run_id: str) -> Json:
        """Return a run."""
        return self.get(_run(dag_id, run_id))

    def runs(self, dag_id: str, **params: Any) -> list[Json]:
        """Return a DAG's runs; arguments are query parameters of the API."""
        return list(self.pages(f"dags/{quote(dag_id)}/dagRuns", "dag_runs", **params))

    def wait_for_run(self, dag_id: str, run_id: str, timeout: float = 300) -> Json:
        """Wait some seconds until a run has ended, well or badly, and return it."""
        wait_for(lambda: self.run(dag_id, run_id)["state"] in ("success", "failed"), f"{run_id} to end", timeout)
        return self.run(dag_id, run_id)

    def task_instances(self, dag_id: str, run_id: str, task_id: str | None = None) -> list[Json]:
        """Return the task instances of a run (``~`` for all runs), each mapped one for itself."""
        found = self.pages(f"{_run(dag_id, run_id)}/taskInstances", "task_instances")
        return [task for task in found if task_id in (None, task["task_id"])]

    def tries(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> list[Json]:
        """Return every attempt of a task instance, in order."""
        path = _run(dag_id, run_id, task_id)
        answer = self.get(f"{path}/tries" if map_index < 0 else f"{path}/{map_index}/tries")
        return sorted(answer["task_instances"], key=lambda task: int(task["try_number"]))

    def log(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1, try_number: int | None = None) -> str:
        """Return the log of an attempt, by default of the last one, one event a line."""
        number = try_number or self.tries(dag_id, run_id, task_id, map_index)[-1]["try_number"]
        path = f"{_run(dag_id, run_id, task_id)}/logs/{number}"
        return "\n".join(map(_line, self.get(path, map_index=map_index, full_content=True)["content"]))

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Return a value that a task has pushed."""
        path = f"{_run(dag_id, run_id, task_id)}/xcomEntries/{quote(key)}"
        return self.get(path, map_index=map_index, deserialize=False, stringify=False)["value"]


def wait_for(found: Callable[[], T | None], what: str, timeout: float, every: float = 0.5) -> T:
    """Ask again and again, ``every`` so many seconds, and return the first result that is not None or False.

    :raises TimeoutError: there was none within ``timeout`` seconds; the message says ``what`` was waited for.
    """
    no_result = retry_if_result(lambda result: not result)
    retrying = Retrying(retry=no_result, stop=stop_after_delay(timeout), wait=wait_fixed(every))
    try:
        return retrying(found)  # type: ignore[return-value]  # it goes on while there is none
    except RetryError:
        raise TimeoutError(f"Waited {timeout:.0f} s for {what}.") from None


def _run(dag_id: str, run_id: str, task_id: str | None = None) -> str:
    path = f"dags/{quote(dag_id)}/dagRuns/{quote(run_id)}"
    return path if task_id is None else f"{path}/taskInstances/{quote(task_id)}"


def _line(event: Json | str) -> str:
    if isinstance(event, str):
        return event
    rest = [f"{key}={value}" for key, value in event.items() if key not in ("timestamp", "event", "level", "logger")]
    return " ".join(str(part) for part in (event.get("timestamp"), event.get("level"), event["event"], *rest) if part)
