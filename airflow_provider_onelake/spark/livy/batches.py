"""A Livy server as a cluster: how a job's batch is made, found again, looked at and deleted.

A batch is found by its name if nobody has learnt its id: because the answer that has it was lost, or because the worker
died before it wrote the id down. A server takes no name twice, and keeps a batch that has ended for a while. So the
name is the submission's own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import OneLakeError, SparkSetUpError
from airflow_provider_onelake.spark.livy.client import LivyBatch, LivyClient, NotThereError, UnansweredError
from airflow_provider_onelake.spark.submit.package import MAIN_FILE, job_files, job_package
from airflow_provider_onelake.spark.submit.spool import JOB, RESULT

if TYPE_CHECKING:
    from airflow_provider_onelake.spark.submit.spool import JobSpool

logger = logging.getLogger(__name__)

_LONGEST_LOG = 2000
_LAST_LINES = 30


class Batches:
    """The batches of one engine; see :class:`~airflow_provider_onelake.spark.submit.clusters.Cluster`.

    :param client: of the server.
    :param body: what every batch says beside its files.
    """

    appears_seconds = 120.0
    """Fabric may not show a new batch yet."""

    def __init__(self, client: LivyClient, body: Mapping[str, Any]) -> None:
        self._client = client
        self._body = body
        self._told: dict[str, str] = {}

    def files(self) -> Mapping[str, bytes]:
        """See :meth:`Cluster.files`."""
        return job_files()

    def check(self) -> None:
        """See :meth:`Cluster.check`: Livy answers, and lets this identity see its batches."""
        try:
            self._client.ask("GET", "/batches")
        except NotThereError as error:
            raise SparkSetUpError(
                f"There is no Livy at {self._client.address}: correct the host of the connection. Nothing was "
                f"submitted. ({error})"
            ) from error

    def submit(self, spool: JobSpool) -> str | None:
        """Make a job's batch, whose files are in the spool.

        :returns: its id; ``None`` if it is not known whether there is a batch.
        :raises OneLakeError: there is none, and the error says why.
        """
        body = {
            "name": spool.own_name,
            "file": spool.address(MAIN_FILE.name),
            "pyFiles": [spool.address(job_package().name)],
            "args": [spool.address(JOB), spool.address(RESULT), spool.name],
            **self._body,
        }
        try:
            return LivyBatch(self._client.ask("POST", "/batches", once=True, json=body)).id
        except UnansweredError as error:
            logger.warning("%s The batch %s is looked for by its name, and not asked for again", error, spool.name)
            return None
        except NotThereError as error:
            raise SparkSetUpError(f"{error} Correct the host of the connection. Nothing was submitted.") from error

    def look(self, spool: JobSpool) -> bool | None:
        """See :meth:`Cluster.look`."""
        if (batch := self._id(spool)) is None:
            return None
        try:
            found = self._get(batch)
        except NotThereError:
            return None
        if self._told.get(batch) != found.words:
            self._told[batch] = found.words
            logger.info("Livy at %s: batch %s: %s", self._client.address, batch, found.words)
        return found.is_over

    def kill(self, spool: JobSpool) -> None:
        """See :meth:`Cluster.kill`."""
        if (batch := self._id(spool)) is not None:
            self._client.ask("DELETE", f"/batches/{batch}")

    def last_words(self, spool: JobSpool) -> str | None:
        """See :meth:`Cluster.last_words`."""
        try:
            if (batch := self._id(spool)) is None:
                return None
            said, log = self._get(batch).words, ""
            with suppress(OneLakeError):
                found = self._client.ask("GET", f"/batches/{batch}/log", params={"size": _LAST_LINES}).get("log") or []
                log = "\n".join(map(str, found[-_LAST_LINES:]))[-_LONGEST_LOG:]
        except OneLakeError:
            return None
        return f"Livy says of its batch {batch}: {said}." + (f" The end of its log:\n{log}" if log else "")

    def _get(self, batch: str) -> LivyBatch:
        return LivyBatch(self._client.ask("GET", f"/batches/{batch}"))

    def _id(self, spool: JobSpool) -> str | None:
        """Return a job's batch; of several, one that still runs comes before one that has ended."""
        # A driver writes down the name of its job's spool, because it does not know the id.
        if (driver := spool.driver) not in (None, spool.name):
            return driver
        name = spool.own_name
        named = sorted((each for each in self._client.all() if each.name == name), key=lambda each: each.is_over)
        return named[0].id if named else None
