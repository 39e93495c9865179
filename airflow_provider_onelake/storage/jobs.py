"""Jobs of items in Fabric: table maintenance of a lakehouse, and runs of a Spark job definition.

https://learn.microsoft.com/rest/api/fabric/core/job-scheduler
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import ObjectNotFoundError

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.fabric import Fabric

SHORTEST_RETENTION = timedelta(days=7)
"""Fabric's vacuum fails with a shorter one."""


class JobState(StrEnum):
    """How far a job has come."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    DEDUPED = "deduped"
    """Another job of the kind was at work, so this one did nothing."""


_STATES = {
    "completed": JobState.COMPLETED,
    "failed": JobState.FAILED,
    "cancelled": JobState.FAILED,
    "canceled": JobState.FAILED,
    "deduped": JobState.DEDUPED,
}


@attrs.frozen
class Job:
    """A job.

    :param id: by which it is looked at.
    :param state: how far it has come.
    :param words: what Fabric says of its end.
    """

    id: str
    state: JobState
    words: str = ""


@attrs.frozen
class Upkeep:
    """What is to be done to a table.

    :param optimize: whether small files are compacted.
    :param z_order_by: columns whose values are to lie together. Default: none.
    :param v_order: whether the new files are written in V-Order. Default: as Fabric does it.
    :param retention: files that no version needs for longer than this are deleted. Default: nothing is deleted.
    """

    optimize: bool = True
    z_order_by: Sequence[str] = ()
    v_order: bool | None = None
    retention: timedelta | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as Fabric's REST takes it."""
        said: dict[str, Any] = {}
        if self.optimize:
            order = {} if self.v_order is None else {"vOrder": str(self.v_order).lower()}
            said["optimizeSettings"] = {**order, **({"zOrderBy": list(self.z_order_by)} if self.z_order_by else {})}
        if self.retention is not None:
            said["vacuumSettings"] = {"retentionPeriod": _period(self.retention)}
        return said


@attrs.frozen
class ItemJobs:
    """The jobs of an item.

    :param rest: Fabric's REST.
    :param workspace: its GUID.
    :param id: the item's GUID.
    """

    rest: Fabric = attrs.field(repr=False, eq=False)
    workspace: str
    id: str

    path = ""

    def look(self, job: str) -> Job | None:
        """Return a job; ``None`` if Fabric knows nothing of it."""
        try:
            return _job(self.rest.ask("GET", self._at(job), self).json())
        except ObjectNotFoundError:
            return None

    def has_ended(self, job: str) -> bool:
        """Say whether a job is not at work any more, or not known."""
        found = self.look(job)
        return found is None or found.state is not JobState.RUNNING

    def cancel(self, job: str) -> None:
        """End a job. It is no error if there is none.

        :raises OneLakeError: it is refused, for instance because the job has ended.
        """
        try:
            self.rest.ask("POST", f"{self._at(job)}/cancel", self)
        except ObjectNotFoundError:
            return

    def _begin(self, path: str, execution: Mapping[str, Any]) -> str:
        """Ask for a job, and return its id. The request is sent once, because each one that is obeyed is a job."""
        answer = self.rest.ask("POST", path, self, once=True, json={"executionData": dict(execution)})
        return str(answer.headers["location"]).rstrip("/").rpartition("/")[2]

    def _at(self, job: str = "") -> str:
        return f"/workspaces/{self.workspace}/items/{self.id}/jobs/instances/{job}".rstrip("/")


@attrs.frozen
class TableMaintenance(ItemJobs):
    """The table maintenance of a lakehouse: https://learn.microsoft.com/fabric/data-engineering/lakehouse-api."""

    def __str__(self) -> str:
        return f"the table maintenance of the lakehouse {self.id} in the workspace {self.workspace}"

    def begin(self, schema: str | None, table: str, upkeep: Upkeep) -> str:
        """Ask for a job. The request is sent once, because each one that is obeyed is a job.

        :param schema: of the table; ``None`` in a lakehouse without schemas.
        :param table: its name.
        :param upkeep: what is to be done.
        :returns: the id of the job.
        :raises StoreUnavailableError: there was no answer, so it may have begun.
        :raises OneLakeError: it is refused.
        """
        named = {"tableName": table} | ({"schemaName": schema} if schema else {})
        path = f"/workspaces/{self.workspace}/lakehouses/{self.id}/jobs/TableMaintenance/instances"
        return self._begin(path, {**named, **upkeep.to_json()})


@attrs.frozen
class SparkJobRuns(ItemJobs):
    """The runs of a Spark job definition.

    https://learn.microsoft.com/rest/api/fabric/sparkjobdefinition/background-jobs/run-on-demand-spark-job-definition
    """

    def __str__(self) -> str:
        return f"the Spark job definition {self.id} in the workspace {self.workspace}"

    def check(self) -> None:
        """Ask whether there is such a definition.

        :raises ObjectNotFoundError: there is none, or something else is there.
        :raises OneLakeError: Fabric does not answer, or the identity may not look at it.
        """
        said = self.rest.ask("GET", f"/workspaces/{self.workspace}/items/{self.id}", self).json()
        if said.get("type") != "SparkJobDefinition":
            raise ObjectNotFoundError(f"{self.id} is no Spark job definition: it is of the type {said.get('type')}.")

    def begin(self, file: str, arguments: Sequence[str], libraries: Sequence[str]) -> str:
        """Run the definition with a file of one's own in place of its main file.

        :param file: the address of the file, ``abfss://…``.
        :param arguments: of the program. Fabric takes them as one text with blanks between, so none may have a blank.
        :param libraries: addresses of further files.
        :returns: the id of the run.
        :raises StoreUnavailableError: there was no answer, so it may have begun.
        :raises OneLakeError: it is refused.
        """
        said = {
            "executableFile": file,
            "commandLineArguments": " ".join(arguments),
            "additionalLibraryUris": list(libraries),
        }
        return self._begin(f"/workspaces/{self.workspace}/items/{self.id}/jobs/instances?jobType=sparkjob", said)

    def at_work(self) -> bool:
        """Say whether any run of the definition is at work, whoever has asked for it."""
        return any(_job(each).state is JobState.RUNNING for each in self.rest.all(self._at(), {}, self))


def _job(said: Mapping[str, Any]) -> Job:
    status, why = str(said.get("status", "")), said.get("failureReason") or {}
    words = f"{status}: {why.get('errorCode')}: {why.get('message')}" if why else status
    return Job(str(said.get("id")), _STATES.get(status.lower(), JobState.RUNNING), words)


def _period(length: timedelta) -> str:
    """Return a length of time as d.hh:mm:ss."""
    seconds = length.seconds
    return f"{length.days}.{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
