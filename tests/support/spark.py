"""A Spark Connect server that tests may kill, and buffers as staging leaves them for Spark.

The buffers are written by hand, so that what Spark does is tested without the core.
"""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.connect import ConnectEngine
from include.local.connect_server import ConnectServer, listens
from tests.support.object_stores import Lake
from tests.support.schemas import field
from tests.support.server_process import ServerError, ServerProcess
from tests.support.spark_homes import let_tests_speak_to_old_servers
from tests.support.tables import Stage, complete, prepare

GENERATED = "delta.generationExpression"


def generated(name: str, kind: str, expression: str) -> dict[str, Any]:
    """A generated column of a table."""
    return {**field(name, kind), "metadata": {GENERATED: expression}}


@attrs.frozen
class Target:
    """A table's directory with one open buffer in it."""

    path: Path
    buffer: Path

    @property
    def versions(self) -> list[int]:
        """Versions in the buffer's log."""
        return sorted(int(file.stem) for file in (self.buffer / "_delta_log").glob("*.json"))

    def actions(self, kind: str, version: int = 1) -> list[dict[str, Any]]:
        """Actions of one kind in a version of the buffer's log."""
        lines = (self.buffer / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
        return [action[kind] for action in map(json.loads, lines) if kind in action]

    @property
    def rows(self) -> int:
        """Rows in the buffer, by its statistics."""
        return sum(json.loads(add["stats"])["numRecords"] for add in self.actions("add"))

    def data(self, spark: Any) -> list[dict[str, Any]]:
        """The buffer's rows as Spark reads them."""
        return [row.asDict() for row in spark.read.format("delta").load(str(self.buffer)).collect()]


def open_buffer(
    table: Path, fields: Sequence[dict[str, Any]], partition_by: Sequence[str] = (), **configuration: str
) -> Target:
    """Make a table's directory with a buffer that has version 0 only."""
    buffer = table / "staged" / "w-1a2b" / str(uuid.uuid4())
    log = buffer / "_delta_log"
    log.mkdir(parents=True)
    features = ["appendOnly", "invariants", "checkConstraints", "generatedColumns", "allowColumnDefaults"]
    actions = [
        {"commitInfo": {"timestamp": 1, "operation": "OPEN BUFFER", "operationParameters": {}}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": list(fields)}),
                "partitionColumns": list(partition_by),
                "configuration": configuration,
                "createdTime": 1,
            }
        },
    ]
    (log / f"{0:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    return Target(table, buffer)


def sql_job(target: Target, query: str, **fields: Any) -> StageJob:
    """A job that writes a query's rows into a buffer."""
    return make_job(target, {"kind": "sql", "query": query}, **fields)


def make_job(target: Target, source: Mapping[str, Any], **fields: Any) -> StageJob:
    """A job that writes a source's rows into a buffer."""
    return StageJob(
        source=source,
        table_uri=str(target.path),
        buffer_uri=str(target.buffer),
        metadata=target.actions("metaData", 0)[0],
        **{"attempt": str(uuid.uuid4()), **fields},
    )


class Server(ConnectServer, ServerProcess):
    """The server, with what its status tells. A test that kills it starts it again."""

    def start(self) -> None:
        for port, name in ((self.port, "Spark Connect"), (self.ui_port, "Spark's UI")):
            if listens(port):
                raise ServerError(f"Port {port}, wanted for {name}, is taken by another process.")
        let_tests_speak_to_old_servers()
        super().start()

    def status(self, path: str, timeout: float = 10) -> Any:
        """Return what Spark's status API says.

        :param path: below ``/api/v1/``; ``{app}`` stands for the id of the running application.
        :param timeout: seconds.
        :raises OSError: nobody answers.
        """
        if "{app}" in path:
            path = path.replace("{app}", self.status("applications", timeout)[0]["id"])
        with urllib.request.urlopen(f"{self.ui_url}/api/v1/{path}", timeout=timeout) as answer:
            return json.load(answer)

    def jobs(self, status: str | None = None, tag: str = "") -> list[dict[str, Any]]:
        """Return the Spark jobs of the running application, the newest first, with their tags.

        :param status: only those: ``running``, ``succeeded``, ``failed`` or ``unknown``.
        :param tag: only those whose client named them so. Spark Connect puts a prefix before it.
        """
        answer: list[dict[str, Any]] = self.status("applications/{app}/jobs" + (f"?status={status}" if status else ""))
        return [job for job in answer if not tag or any(name.endswith(tag) for name in job["jobTags"])]

    def plans(self) -> list[str]:
        """Return the physical plans of the running application's queries that Spark still remembers."""
        answer = self.status("applications/{app}/sql?details=false&length=10000")
        return [query["planDescription"] for query in answer]

    def jobs_begun(self) -> int:
        """Return how many Spark jobs have begun. Spark forgets old ones, so the number of the newest counts."""
        return max((job["jobId"] for job in self.jobs()), default=-1) + 1

    def active_tasks(self) -> int:
        """Tasks that Spark executes now, by its own status."""
        return sum(executor["activeTasks"] for executor in self.status("applications/{app}/executors"))


def stage_with(
    engine: ConnectEngine, log: DeltaLog, spec: WriteSpec, query: str, uri: str = "", *, footers: bool = False
) -> Buffer:
    """Stage what a query says, as a writer's task does until its buffer is complete.

    :param uri: of the table, as Spark knows it. Default: that of a directory.
    """
    task, uri = prepare(log, spec, footers=footers), uri or log.table
    assert isinstance(task, Stage)
    job = StageJob(
        source={"kind": "sql", "query": query},
        table_uri=uri,
        buffer_uri=f"{uri}/{task.path}",
        metadata=task.metadata,
        attempt=spec.attempt,
    )
    return complete(log, task.path, engine.stage(job).reads_target)


def stage_by_spark(remote: str, lake: Lake, spec: WriteSpec, query: str, table: str = "Tables/t") -> Buffer:
    """Stage what a query says by a Spark Connect server, into a buffer of a lake's table."""
    return stage_with(ConnectEngine(remote), lake.log(table), spec, query, lake.address(table).spark_uri)
