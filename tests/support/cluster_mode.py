"""Stand-ins for what cluster mode asks: a standalone master, YARN's ResourceManager, Kubernetes."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import attrs

from airflow_provider_onelake.spark.base import SparkJob, StageJob, StageResult
from airflow_provider_onelake.spark.submit.spool import JobSpool
from airflow_provider_onelake.storage.stores import ObjectStore

Answer = tuple[int, bytes]

DRIVER = "driver-20261121-0007"
APPLICATION = "application_1700000000000_0042"
NAME = re.compile("onelake-a1-staging-[0-9a-f]{8}")
RESULT = {"reads_target": False, "application_id": "app-1"}
ERROR = {"class": "X", "message": "lost", "condition": None, "state": None, "stack": "", "starting": False}


@contextmanager
def rest_server(answer: Callable[[str, str, bytes], Answer]) -> Iterator[str]:
    """A server on this machine; takes what answers a method, a path and a body, and yields host and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, said = answer(self.command, self.path, body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_PUT = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def ok(said: Any) -> Answer:
    return 200, json.dumps(said).encode()


@attrs.define
class Master:
    """The REST server of a standalone master with one driver."""

    state: str | None = "RUNNING"
    asked: list[str] = attrs.field(factory=list)
    when_asked: Callable[[], None] = lambda: None
    url: str = ""
    down: bool = False
    recovering: bool = False
    kills_to_lose: int = 0

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        if self.down:
            return 200, b"<html>"
        if self.recovering:
            # As Spark's Master answers while it stands by or recovers, whatever it is asked.
            self.asked.append(f"{method} {path}")
            self.when_asked()
            return ok(
                {"success": False, "message": "Exception from the cluster: current state is not alive: RECOVERING"}
            )
        self.asked.append(f"{method} {path}")
        _, _, _, what, driver = path.split("/")
        if driver != DRIVER:
            return ok({"success": False})
        if what == "kill" and self.kills_to_lose:
            self.kills_to_lose -= 1
            return ok({"success": False, "message": "Can only kill drivers in ALIVE state."})
        if what == "kill":
            self.state = "KILLED"
            return ok({"success": True})
        self.when_asked()
        return ok({"success": self.state is not None, "driverState": self.state})


@attrs.define
class Manager:
    """YARN's REST API with one application, which is found by its submission's tag once it is there."""

    state: str = "RUNNING"
    there: bool = False
    url: str = ""
    down: bool = False
    when_asked: Callable[[], None] = lambda: None

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        if self.down:
            return 503, b"standby"
        asked = path.removeprefix("/ws/v1/cluster/apps")
        if method == "PUT":
            assert asked == f"/{APPLICATION}/state"
            self.state = json.loads(body)["state"]
            return 202, b"{}"
        app = {"id": APPLICATION, "state": self.state}
        if asked == f"/{APPLICATION}" and not self.there:
            return 404, b'{"RemoteException": {}}'
        if asked != f"/{APPLICATION}" and not NAME.fullmatch(asked.removeprefix("?applicationTags=")):
            return ok({"apps": None})
        self.when_asked()
        return ok({"app": app} if asked == f"/{APPLICATION}" else {"apps": {"app": [app]} if self.there else None})


class Pods:
    """The client of the Kubernetes provider, with one pod or none."""

    class ApiException(Exception):  # noqa: N818
        def __init__(self, status: int) -> None:
            super().__init__(f"status {status}")
            self.status = status

    def __init__(self) -> None:
        self.phase: str | None = None
        self.when_asked: Callable[[], None] = lambda: None

    def get_kube_client(self) -> Pods:
        return self

    def read_namespaced_pod(self, name: str, namespace: str) -> Any:
        assert (NAME.fullmatch(name) is not None, namespace) == (True, "jobs")
        self.when_asked()
        if self.phase is None:
            raise self.ApiException(404)
        return SimpleNamespace(status=SimpleNamespace(phase=self.phase))

    def delete_namespaced_pod(self, name: str, namespace: str) -> None:
        assert (NAME.fullmatch(name) is not None, namespace) == (True, "jobs")
        if self.phase is None:
            raise self.ApiException(404)
        self.phase = None


def spool(store: ObjectStore, job: SparkJob, kind: str = "staging") -> JobSpool:
    """A job's."""
    return JobSpool.at(store, job.table_uri, job.attempt, kind)


def submitted(store: ObjectStore, job: SparkJob, driver: str | None = None, kind: str = "staging") -> JobSpool:
    """As a worker leaves it that submitted a job and died."""
    found = spool(store, job, kind)
    assert found.send(kind, job.as_dict(), owner=job.owner)
    if driver is not None:
        found.remember(driver=driver)
    return found


def says(store: ObjectStore, job: SparkJob, kind: str = "staging", **fields: Any) -> None:
    """Let a driver say something."""
    store.put(f"{spool(store, job, kind).path}/result.json", json.dumps({"format": 1, **fields}).encode())


@attrs.define(kw_only=True)
class OneJob:
    """A job, the store of its table, and what makes engines for it. Each test file adds where its Spark is."""

    store: ObjectStore
    job: StageJob
    new_engine: Callable[..., Any]

    def stage(self) -> StageResult:
        """Have it staged by a new engine."""
        result: StageResult = self.new_engine().stage(self.job)
        return result

    def spool(self) -> JobSpool:
        return spool(self.store, self.job)

    def submitted(self, driver: str | None = None) -> JobSpool:
        return submitted(self.store, self.job, driver)

    def says(self, **fields: Any) -> None:
        says(self.store, self.job, **fields)
