"""Reports to Airflow's metrics; its ``[metrics]`` configuration says whether they go to StatsD or OpenTelemetry.

All names begin with ``onelake.``; docs/operate/observability.md lists them. The tags are ``table``, ``dag_id`` and
``task_id``, and some metrics have further tags.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.buffer import Buffer
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.writes.publish import Publication
    from airflow_provider_onelake.writes.report import Report

logger = logging.getLogger(__name__)

PREFIX = "onelake"

# Replace all other characters in tags, because colons, commas and equals signs have a meaning in StatsD's protocol.
_NO_TAG = re.compile(r"[^A-Za-z0-9_./-]+")


@attrs.frozen
class Metrics:
    """One task's reports about one table. They never fail the task.

    :param tags: the tags of every report.
    """

    tags: Mapping[str, str]

    @classmethod
    def of(cls, ti: Any, address: TableAddress) -> Metrics:
        """Return the reports of a task instance about a table.

        :param ti: the task instance; ``None`` if there is none.
        """
        task = {"dag_id": ti.dag_id, "task_id": ti.task_id} if ti is not None else {}
        return cls({"table": _NO_TAG.sub("_", f"{address.authority}/{address.path}".strip("/")), **task})

    def staged(self, buffer: Buffer, *, reused: bool) -> None:
        """Report rows that are staged.

        :param buffer: a complete buffer.
        :param reused: whether an earlier try staged the rows; they are not counted again then.
        """
        if reused:
            self._count("write.reused", 1)
            return
        self._count("write.staged_rows", buffer.rows)
        self._count("write.staged_bytes", buffer.bytes)
        self._count("write.staged_files", buffer.files)

    def written(self, result: Mapping[str, Any]) -> None:
        """Report how a writer ended.

        :param result: the writer's result as it goes to XCom.
        """
        self._count("write.writers", 1, status=str(result["status"]))
        self._count("write.reruns", result.get("reruns"))

    def published(self, publication: Publication) -> None:
        """Report how publishing buffers ended."""
        self._count("commit.attempts", publication.tally.attempts)
        self._count("commit.lost_races", publication.tally.lost_races)
        self._count("commit.unanswered", publication.tally.unanswered)
        self._count("commit.conflicts", len(publication.settlements))
        if publication.tally.lost_races:
            self._time("commit.rebase_time", publication.tally.rebasing)
        if publication.entry is None or publication.batch is None:
            return
        self._count("commit.commits", 1)
        self._count("commit.rows", publication.entry.rows)
        now = datetime.now(UTC)
        for buffer in publication.batch.buffers:
            # Never report a negative age: the store's clock may be a little ahead of this machine's.
            self._time("commit.buffer_age", max(0.0, (now - buffer.finished).total_seconds()))

    def reconciled(self, report: Report) -> None:
        """Report what became of a load's writers.

        :param report: the report of the reconciliation.
        """
        for outcome in report.outcomes:
            self._count("reconcile.writers", 1, status=outcome.status)
        named = {outcome.writer for outcome in report.outcomes}
        self._count("reconcile.writers", sum(name not in named for name in report.missing), status="missing")

    def compacted(self, result: Mapping[str, Any]) -> None:
        """Report a compaction.

        :param result: its result as it goes to XCom.
        """
        self._count("optimize.runs", 1, status=str(result["status"]))
        self._counts("optimize", result, ("files_before", "files_after", "bytes_before", "bytes_after"))
        self._counts("optimize", result, ("partitions_compacted", "partitions_dropped", "lost_races"))

    def vacuumed(self, result: Mapping[str, Any]) -> None:
        """Report a vacuum; do not call it for a dry run.

        :param result: its result as it goes to XCom.
        """
        self._count("vacuum.runs", 1)
        self._counts("vacuum", result, ("files", "bytes", "left", "logs_deleted"))

    def _counts(self, about: str, result: Mapping[str, Any], names: Iterable[str]) -> None:
        for name in names:
            self._count(f"{about}.{name}", result.get(name))

    def _count(self, name: str, count: int | None, **tags: str) -> None:
        if count:
            self._emit(lambda stats: stats.incr(f"{PREFIX}.{name}", count, tags={**self.tags, **tags}))

    def _time(self, name: str, seconds: float) -> None:
        # Airflow reads a plain number as milliseconds.
        self._emit(lambda stats: stats.timing(f"{PREFIX}.{name}", seconds * 1000, tags=dict(self.tags)))

    @staticmethod
    def _emit(send: Callable[[Any], None]) -> None:
        from airflow.providers.common.compat.sdk import Stats

        try:
            send(Stats)
        except Exception as error:
            # Do not fail the task: what is reported has happened already, and rows may be in the table.
            logger.warning("A metric could not be sent: %s", error)
