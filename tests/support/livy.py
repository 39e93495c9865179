"""Two Livys: the local OneLake's, whose batches run on this machine's Spark or a script, and a stand-in of Apache's."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs

from include.local import jars
from local_onelake.batches import Batches, joined
from local_onelake.instructions import livy_connection, spark_settings, write_hosts
from tests.support import spark_jvms
from tests.support.cluster_mode import OneJob
from tests.support.onelake import LAKEHOUSE, LAKEHOUSE_GUID, TOKEN, WORKSPACE, WORKSPACE_GUID, OneLake

LAKE_TABLE = "Tables/trips"
"""The table of jobs in the lakehouse of a local OneLake."""

SMALL = {
    **spark_jvms.INTERPRETED,
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    "spark.driver.memory": "768m",
    # Jobs of a second: what the second compiler costs never comes back.
    "spark.driver.extraJavaOptions": spark_jvms.options(),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@contextmanager
def batches_on(server: OneLake, state: Path, spark_submit: str, settings: Mapping[str, str]) -> Iterator[Batches]:
    """Let the server's Livy run batches by a script, until the block ends.

    :param settings: of Spark, beside those by which it reaches the server.
    """
    hosts = state / "hosts"
    write_hosts(hosts)
    port = int(server.url.rpartition(":")[2])
    made = Batches(
        state / "batches",
        spark_submit,
        lambda token: joined(spark_settings(port, token, hosts), settings),
        jars.environment(),
    )
    server.served.batches = made
    try:
        yield made
    finally:
        server.served.batches = None
        made.close()


@contextmanager
def spark_batches(server: OneLake, state: Path, jar_files: list[Path]) -> Iterator[Batches]:
    """Let the server's Livy run batches by this machine's Spark."""
    # The launcher itself reads the batch's file, before Spark has loaded any JAR.
    path = {"spark.driver.extraClassPath": ":".join(map(str, jar_files))}
    with batches_on(server, state, str(jars.spark_home() / "bin/spark-submit"), {**SMALL, **_DELTA, **path}) as made:
        yield made


def script(directory: Path, server: OneLake, body: str) -> str:
    """A ``spark-submit`` without Spark. It runs ``body``, where ``say(result={…})`` writes the result of its job."""
    lakehouse = server.directory / WORKSPACE / f"{LAKEHOUSE}.Lakehouse"
    lines = f"""#!{sys.executable}
import json, os, sys, time
from pathlib import Path
def say(**fields):
    address = next(each for each in sys.argv if each.endswith("/result.json"))
    at = Path({str(lakehouse)!r}, address.split("/", 4)[4])
    at.with_suffix(".part").write_text(json.dumps({{"format": 1, **fields}}))
    at.with_suffix(".part").rename(at)
{body}
"""
    made = directory / "spark-submit"
    made.write_text(lines)
    made.chmod(0o755)
    return str(made)


def connection(server: OneLake, **extra: Any) -> str:
    """Airflow's connection to Livy of the server's lakehouse, as an environment variable holds it."""
    said = json.loads(livy_connection(int(server.url.rpartition(":")[2]), TOKEN, WORKSPACE_GUID, LAKEHOUSE_GUID))
    return json.dumps({**said, "extra": {**said["extra"], **extra}})


@attrs.define
class PlainLivy:
    """The REST of an Apache Livy, strict: ids are numbers, names are unique, changes need ``X-Requested-By``.

    :param full: answers to the next requests for a batch, each a status and what ``Retry-After`` says.
    :param unseen: how many questions about a batch get 404 although it is there.
    :param lose: ``done`` or ``undone``: the next new batch gets no answer, and is made or is not.
    """

    batches: dict[int, dict[str, Any]] = attrs.field(factory=dict)
    asked: list[tuple[str, str]] = attrs.field(factory=list)
    bodies: list[dict[str, Any]] = attrs.field(factory=list)
    signed: list[str | None] = attrs.field(factory=list)
    full: list[tuple[int, str]] = attrs.field(factory=list)
    unseen: int = 0
    lose: str = ""
    refuse: tuple[int, str] | None = None
    when_asked: Callable[[], None] = lambda: None
    url: str = ""

    def made(self, name: str, state: str = "running") -> int:
        """Have a batch."""
        number = max(self.batches, default=-1) + 1
        self.batches[number] = {"id": number, "name": name, "state": state, "appId": None, "log": []}
        return number

    def count(self, method: str) -> int:
        return sum(asked == method for asked, _ in self.asked)

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any, str] | None:
        """Status, body and ``Retry-After``; ``None`` for a connection that is closed without an answer."""
        url = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.asked.append((method, url.path))
        self.signed.append(headers.get("Authorization"))
        if self.refuse is not None:
            return self.refuse[0], {"msg": self.refuse[1]}, ""
        if method != "GET" and not headers.get("X-Requested-By"):
            return 400, {"msg": "Missing Required Header for CSRF protection."}, ""
        match method, url.path.strip("/").split("/"):
            case "POST", ["batches"]:
                return self._create(json.loads(body))
            case "GET", ["batches"]:
                first, size = int(query.get("from", 0)), int(query.get("size", 100))
                shown = list(self.batches.values())[first : first + size]
                return 200, {"from": first, "total": len(self.batches), "sessions": shown}, ""
            case method, ["batches", number, *rest]:
                self.when_asked()
                if self.unseen or int(number) not in self.batches:
                    self.unseen = max(0, self.unseen - 1)
                    return 404, {"msg": f"Session '{number}' not found."}, ""
                if method == "DELETE":
                    del self.batches[int(number)]
                    return 200, {"msg": "deleted"}, ""
                if rest == ["log"]:
                    return 200, {"id": int(number), "log": ["first line", "Exception: no JARs"]}, ""
                return 200, self.batches[int(number)], ""
        return 405, {"msg": "not served"}, ""

    def _create(self, body: dict[str, Any]) -> tuple[int, Any, str] | None:
        self.bodies.append(body)
        if self.full:
            status, after = self.full.pop(0)
            return status, {"msg": "Rejected, too many sessions are being created!"}, after
        lose, self.lose = self.lose, ""
        if lose == "undone":
            return None
        if any(each["name"] == body["name"] for each in self.batches.values()):
            return 400, {"msg": f"Duplicate session name: {body['name']}"}, ""
        made = self.batches[self.made(body["name"], "starting")]
        return None if lose else (201, made, "")


@contextmanager
def plain_livy() -> Iterator[PlainLivy]:
    """A Livy on this machine."""
    livy = PlainLivy()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = livy.answer(self.command, self.path, self.headers, body)
            if answer is None:
                self.close_connection = True
                return
            status, said, after = answer
            content = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if after:
                self.send_header("Retry-After", after)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        livy.url = f"http://127.0.0.1:{server.server_port}"
        yield livy
        server.shutdown()


@attrs.define(kw_only=True)
class InFabric(OneJob):
    """A job of a table in a local OneLake, and what its Spark does."""

    server: OneLake
    spark: Callable[[str], Batches]
