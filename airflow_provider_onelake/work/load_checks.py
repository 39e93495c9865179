"""Have Spark evaluate the checks of a load over the staged rows of all its writers together."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.engines.base import AuditJob
from airflow_provider_onelake.exceptions import (
    BufferIncompleteError,
    BufferInvalidError,
    BufferLostError,
    SparkJobError,
)
from airflow_provider_onelake.staging.buffers import Buffer, read_staged
from airflow_provider_onelake.staging.load_verdict import (
    LoadVerdict,
    asked_of,
    awaited,
    read_load_verdict,
    write_load_verdict,
)
from airflow_provider_onelake.staging.published import find_published
from airflow_provider_onelake.staging.standing import standings
from airflow_provider_onelake.staging.verdict import Verdict

if TYPE_CHECKING:
    from airflow_provider_onelake.hooks.task_run import TaskRun
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.staging.identity import Load, WriterIdentity
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.work.spark import SparkWork

logger = logging.getLogger(__name__)


@attrs.frozen
class Judged:
    """What was found of a load.

    :param waiting: the buffers that are to be published, by writer's key.
    :param verdict: on the rows of all writers; ``None`` where the rows leave no check to their load.
    """

    waiting: Mapping[str, Buffer]
    verdict: LoadVerdict | None = None


@attrs.frozen(kw_only=True)
class LoadChecks:
    """The evaluation of a load's checks by one task.

    :param load: whose writers they are.
    :param run: the try of the task.
    :param namespace: of the deployment.
    """

    table: Table
    spark: SparkWork
    load: Load
    run: TaskRun
    namespace: str

    def judge(self, writers: Sequence[str], generations: Mapping[str, int]) -> Judged:
        """Say what the checks say of the rows of the load: of those that wait, and of those that are in the table.

        The verdict is kept beside the rows. The first one on the same rows counts, and Spark is not asked again.

        :param writers: keys of the load's writers.
        :param generations: by writer's key, the generation that the run began; see ``Standing.of``.
        :raises BufferLostError: the rows that a writer has brought into the table are not there any more as it staged
            them.
        :raises InvalidWriteError: Spark does not take a check, or it is not the same for all writers.
        """
        log = self.table.log
        snapshot = log.snapshot()
        identities = [self.load.writer(key) for key in writers]
        found = dict(zip(writers, standings(log, identities, snapshot, generations), strict=True))
        waiting = {key: one.complete[0] for key, one in found.items() if one.complete}
        checks = awaited(waiting.values())
        if not checks:
            return Judged(waiting)
        there: dict[str, Buffer] = {}
        for identity in identities:
            if identity.key not in waiting:
                there |= self._published(identity, snapshot)
        all_rows = {**there, **waiting}
        paths = {key: buffer.path for key, buffer in all_rows.items()}
        marks = [buffer.path for buffer in waiting.values()]
        if (known := read_load_verdict(log.store, marks, paths, checks)) is not None:
            logger.info("%s: the checks were evaluated over these rows before; Spark does not run", self.table.name)
            return Judged(waiting, known)
        told = self._evaluate(list(all_rows.values()), checks)
        asked = asked_of(waiting.values())
        verdict = LoadVerdict(rows=told.rows, buffers=paths, results=told.results, on_failed_check=asked)
        self.spark.check_not_stopped()
        write_load_verdict(log.store, marks, verdict)
        return Judged(waiting, read_load_verdict(log.store, marks, paths, checks))

    def _published(self, identity: WriterIdentity, snapshot: Snapshot) -> dict[str, Buffer]:
        """Return the buffer that a writer without waiting rows has in the table, if it has one."""
        stored = snapshot.txns.get(identity.app_id)
        if stored is None:
            return {}
        found = find_published(self.table.log, identity, stored, snapshot)
        if found is not None and found.record.set_aside:
            return {}
        why = "the table's log does not tell of them any more"
        if found is not None:
            try:
                return {identity.key: read_staged(self.table.log.store, found.record.buffer)}
            except (BufferIncompleteError, BufferLostError, BufferInvalidError) as error:
                why = str(error)
        raise BufferLostError(
            f"The checks of load {self.load.id} of {self.table.name} are about the rows of all its writers, and those "
            f"that writer {identity.key!r} has published before cannot be read as it staged them: {why} Nothing was "
            "published: clear all writers of the load with their downstream tasks."
        )

    def _evaluate(self, buffers: Sequence[Buffer], checks: Mapping[str, str]) -> Verdict:
        # The newest definition of the table has all columns that the others have; before there is one, the longest.
        first = max(buffers, key=lambda buffer: (buffer.read_version, len(buffer.metadata["schemaString"])))
        uris = [self.table.address.child(buffer.path).spark_uri for buffer in buffers if buffer is not first]
        job = AuditJob(
            table_uri=self.table.address.spark_uri,
            buffer_uri=self.table.address.child(first.path).spark_uri,
            others=tuple(uris),
            metadata=first.metadata,
            checks=checks,
            attempt=self.run.attempt,
            label=f"{len(buffers)} writers in task {self.run.label}",
            owner=self.run.owner(self.namespace),
        )
        verdict = Verdict.of(checks, self.spark.engine().audit(job).checks.get(""))
        counted = [buffer.rows for buffer in buffers]
        expected = None if None in counted else sum(rows or 0 for rows in counted)
        if verdict is None or (expected is not None and verdict.rows != expected):
            seen = "nothing" if verdict is None else f"{verdict.rows} rows of {expected}"
            raise SparkJobError(
                f"Spark did not say whether the rows of load {self.load.id} for {self.table.name} pass their checks: "
                f"it saw {seen}. Nothing was published; a retry asks again."
            )
        return verdict
