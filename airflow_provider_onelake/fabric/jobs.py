"""Runs of a Spark job definition in Fabric: https://learn.microsoft.com/rest/api/fabric/core/job-scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import ObjectNotFoundError
from airflow_provider_onelake.fabric.operations import Item, Operation, State


@attrs.frozen
class SparkJobRuns(Item):
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

    def look(self, operation: str) -> Operation | None:
        """Return a run; ``None`` if Fabric knows nothing of it."""
        try:
            return _job(self.rest.ask("GET", self._at(operation), self).json())
        except ObjectNotFoundError:
            return None

    def _end(self, operation: str) -> None:
        self.rest.ask("POST", f"{self._at(operation)}/cancel", self)

    def begin(self, file: str, arguments: Sequence[str], libraries: Sequence[str]) -> str:
        """Run the definition with a file of one's own in place of its main file.

        The request is sent once, because each one that is obeyed is a run.

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
        path = f"{self._at()}?jobType=sparkjob"
        answer = self.rest.ask("POST", path, self, once=True, json={"executionData": said})
        return str(answer.headers["location"]).rstrip("/").rpartition("/")[2]

    def at_work(self) -> bool:
        """Say whether any run of the definition is at work, whoever has asked for it."""
        return any(_job(each).state is State.RUNNING for each in self.rest.all(self._at(), {}, self))

    def _at(self, job: str = "") -> str:
        return f"/workspaces/{self.workspace}/items/{self.id}/jobs/instances/{job}".rstrip("/")


def _job(said: Mapping[str, Any]) -> Operation:
    status, why = str(said.get("status", "")), said.get("failureReason") or {}
    words = f"{status}: {why.get('errorCode')}: {why.get('message')}" if why else status
    return Operation(str(said.get("id")), State.of(status), words)
