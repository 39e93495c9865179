"""Jobs of items in Fabric: table maintenance of a lakehouse, and runs of a Spark job definition.

https://learn.microsoft.com/rest/api/fabric/core/job-scheduler

The id of a maintenance is kept as soon as it is known, so a retry finds it. Where the answer with the id was lost, the
job is asked for again: what it finds done already it leaves as it is, and while the first one is at work, Fabric skips
the second, which is then asked for once more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import (
    MaintenanceFailedError,
    MaintenanceRefusedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_provider_onelake.fabric.operations import Item, Note, Operation, State, Waiting

logger = logging.getLogger(__name__)

SHORTEST_RETENTION = timedelta(days=7)
"""Fabric's vacuum fails with a shorter one."""


@attrs.frozen
class Upkeep:
    """A table, and what is to be done to it.

    :param table: its name.
    :param schema: of the table. Default: none, as in a lakehouse without schemas.
    :param optimize: whether small files are compacted.
    :param z_order_by: columns whose values are to lie together. Default: none.
    :param v_order: whether the new files are written in V-Order. Default: as Fabric does it.
    :param retention: files that no version needs for longer than this are deleted. Default: nothing is deleted.
    """

    table: str
    schema: str | None = None
    optimize: bool = True
    z_order_by: Sequence[str] = ()
    v_order: bool | None = None
    retention: timedelta | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as Fabric's REST takes it."""
        said: dict[str, Any] = {"tableName": self.table} | ({"schemaName": self.schema} if self.schema else {})
        if self.optimize:
            order = {} if self.v_order is None else {"vOrder": str(self.v_order).lower()}
            said["optimizeSettings"] = {**order, **({"zOrderBy": list(self.z_order_by)} if self.z_order_by else {})}
        if self.retention is not None:
            said["vacuumSettings"] = {"retentionPeriod": _period(self.retention)}
        return said


@attrs.frozen
class ItemJobs(Item):
    """The jobs of an item."""

    def look(self, operation: str) -> Operation | None:
        """Return a job; ``None`` if Fabric knows nothing of it."""
        try:
            return _job(self.rest.ask("GET", self._at(operation), self).json())
        except ObjectNotFoundError:
            return None

    def _end(self, operation: str) -> None:
        self.rest.ask("POST", f"{self._at(operation)}/cancel", self)

    def _begin(self, path: str, execution: Mapping[str, Any]) -> str:
        """Ask for a job, and return its id. The request is sent once, because each one that is obeyed is a job."""
        answer = self.rest.ask("POST", path, self, once=True, json={"executionData": dict(execution)})
        return str(answer.headers["location"]).rstrip("/").rpartition("/")[2]

    def _at(self, job: str = "") -> str:
        return f"/workspaces/{self.workspace}/items/{self.id}/jobs/instances/{job}".rstrip("/")


@attrs.frozen
class TableMaintenance(ItemJobs):
    """The table maintenance of a lakehouse: https://learn.microsoft.com/fabric/data-engineering/lakehouse-api."""

    noun = "table maintenance of the lakehouse"

    def begin(self, upkeep: Upkeep) -> str:
        """Ask for a job. The request is sent once, because each one that is obeyed is a job.

        :param upkeep: the table, and what is to be done.
        :returns: the id of the job.
        :raises StoreUnavailableError: there was no answer, so it may have begun.
        :raises OneLakeError: it is refused.
        """
        path = f"/workspaces/{self.workspace}/lakehouses/{self.id}/jobs/TableMaintenance/instances"
        return self._begin(path, upkeep.to_json())


@attrs.frozen
class SparkJobRuns(ItemJobs):
    """The runs of a Spark job definition.

    https://learn.microsoft.com/rest/api/fabric/sparkjobdefinition/background-jobs/run-on-demand-spark-job-definition
    """

    noun = "Spark job definition"

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
        return any(_job(each).state is State.RUNNING for each in self.rest.all(self._at(), {}, self))


def maintain(fabric: TableMaintenance, note: Note, upkeep: Upkeep, waited: str | None = None) -> Operation | Waiting:
    """See to it that Fabric maintains a table once for a start of a task.

    :param fabric: of the lakehouse.
    :param note: of the task.
    :param upkeep: the table, and what is to be done.
    :param waited: the job that this try has waited for. If it has failed, the try fails; in the place of one that an
        earlier try left behind, another one is asked for. Default: none.
    :returns: the job that has ended, completed or skipped by Fabric; or one at work. Then call this again later.
    :raises MaintenanceFailedError: the job that was waited for failed. A retry asks for another one.
    :raises MaintenanceRefusedError: Fabric refuses it.
    :raises StoreUnavailableError: Fabric does not answer.
    """
    try:
        if (own := note.get("own")) is not None:
            found = fabric.look(own)
            if found is not None and found.state is State.RUNNING:
                return Waiting(own, own=True)
            if found is not None and found.state is State.COMPLETED:
                return found
            note.keep(own=None)
            if found is not None and found.state is State.DEDUPED:
                if not note.get("lost"):
                    return found
                # The job at work may be ours, whose answer was lost; and it may be another table's.
                logger.info("Fabric skipped the job %s beside one at work", own)
                return Waiting(None, own=False)
            if found is not None and own == waited:
                raise MaintenanceFailedError(
                    f"Fabric did not maintain {upkeep.table}: its job {own} ended so: {found.words}. The table's rows "
                    "are as they were; a retry or a clear asks for another job."
                )
            logger.warning("The job %s %s. Another one is asked for", own, found.words if found else "is not known")
        try:
            own = fabric.begin(upkeep)
        except StoreUnavailableError:
            note.keep(lost=True)
            raise
        note.keep(own=own)
        logger.info("Fabric maintains %s: job %s", upkeep.table, own)
        return Waiting(own, own=True)
    except (ObjectNotFoundError, ObjectExistsError, StoreRefusedError) as error:
        raise MaintenanceRefusedError(f"Fabric does not maintain {upkeep.table}. {error}") from error


def _job(said: Mapping[str, Any]) -> Operation:
    status, why = str(said.get("status", "")), said.get("failureReason") or {}
    words = f"{status}: {why.get('errorCode')}: {why.get('message')}" if why else status
    return Operation(str(said.get("id")), State.of(status), words)


def _period(length: timedelta) -> str:
    """Return a length of time as d.hh:mm:ss."""
    seconds = length.seconds
    return f"{length.days}.{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
