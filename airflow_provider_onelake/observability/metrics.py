"""Reports to Airflow's metrics; its ``[metrics]`` configuration says whether they go to StatsD or OpenTelemetry.

All names begin with ``onelake.``; :data:`METRICS` has them. The tags are ``table``, ``dag_id`` and ``task_id``, and
some metrics have further tags.
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
class Metric:
    """What one metric says, for the docs.

    :param kind: ``counter``, or a timer with its unit.
    :param text: what it counts or measures.
    :param tag: a tag that it has beside those of every metric, with the values.
    """

    kind: str
    text: str
    tag: str = ""


_COUNTER, _TIMER = "counter", "timer, ms"

METRICS: Mapping[str, Metric] = {
    "write.writers": Metric(
        _COUNTER,
        "Writers that ended without an error.",
        "`status`: `published`, `already_published`, `staged`, `skipped`, `set_aside`, `superseded`. Also "
        "`nothing_to_do`, of a MERGE and of a writer without rows where there is no table.",
    ),
    "write.staged_rows": Metric(_COUNTER, "Rows that Spark staged."),
    "write.staged_bytes": Metric(_COUNTER, "Bytes of the files that Spark staged."),
    "write.staged_files": Metric(_COUNTER, "Files that Spark staged."),
    "write.reused": Metric(_COUNTER, "Complete buffers that a retry found. Spark did not run again."),
    "write.reruns": Metric(_COUNTER, "Spark jobs that ran again because their rows came too late."),
    "commit.commits": Metric(_COUNTER, "Versions that put rows into the table."),
    "commit.rows": Metric(_COUNTER, "Rows that these versions added."),
    "commit.attempts": Metric(_COUNTER, "Puts that were tried."),
    "commit.lost_races": Metric(
        _COUNTER, "Puts that found their version taken by another commit. Each is tried again at once."
    ),
    "commit.unanswered": Metric(_COUNTER, "Times that the store did not answer. The put is tried again."),
    "commit.conflicts": Metric(_COUNTER, "Commits with which a write was in conflict, and that its policy settled."),
    "commit.rebase_time": Metric(_TIMER, "From the first lost race to the end of the commit."),
    "commit.buffer_age": Metric(_TIMER, "From the completion of a buffer to its commit."),
    "reconcile.writers": Metric(
        _COUNTER,
        "What became of the writers of a load.",
        "`status`: `published`, `already_published`, `superseded`, `deleted`, `restored_away`, `set_aside`, `missing`, "
        "`held_back`, `refused`, `retired`. Of a MERGE also `nothing_to_do` and `waiting`, and `nothing_to_do` of a "
        "writer without rows where there is no table.",
    ),
    "optimize.runs": Metric(_COUNTER, "Compactions.", "`status`: `published`, `dropped`, `nothing_to_do`."),
    "optimize.files_before": Metric(_COUNTER, "Files that were compacted."),
    "optimize.files_after": Metric(_COUNTER, "Files that they became."),
    "optimize.bytes_before": Metric(_COUNTER, "Bytes of the files that were compacted."),
    "optimize.bytes_after": Metric(_COUNTER, "Bytes of the files that they became."),
    "optimize.partitions_compacted": Metric(_COUNTER, "Partitions that were compacted."),
    "optimize.partitions_dropped": Metric(
        _COUNTER, "Partitions whose compaction was given up because others changed their files."
    ),
    "optimize.lost_races": Metric(_COUNTER, "Puts of compactions that found their version taken by another commit."),
    "vacuum.runs": Metric(_COUNTER, "Vacuums. A dry run does not count, here and below."),
    "vacuum.files": Metric(_COUNTER, "Files that were deleted."),
    "vacuum.bytes": Metric(_COUNTER, "Bytes of the files that were deleted."),
    "vacuum.left": Metric(_COUNTER, "Files that were to be deleted, and that Spark left."),
    "vacuum.logs_deleted": Metric(_COUNTER, "Logs of buffers that were deleted."),
}
"""All metrics by name, without the prefix. docs/reference/metrics.md is made from it."""


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
