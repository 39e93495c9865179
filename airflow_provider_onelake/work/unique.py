"""Comparing the unique keys of a writer's staged rows with the rows that stay beside them, by Spark."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.commit.unique import key_columns, to_compare
from airflow_provider_onelake.engines.base import AuditJob
from airflow_provider_onelake.exceptions import CommitContentionError, SparkJobError
from airflow_provider_onelake.staging.footers import with_statistics
from airflow_provider_onelake.staging.read_shadow import open_keys_shadow
from airflow_provider_onelake.staging.verdict import CheckResult, with_comparisons, write_comparison

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_onelake.exceptions import UncomparedKeysError
    from airflow_provider_onelake.staging.buffers import Buffer
    from airflow_provider_onelake.staging.spec import WriteSpec
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.work.spark import SparkWork

logger = logging.getLogger(__name__)

MOST_COMPARISONS = 10
"""How many times the keys of a writer are compared in one task, unless ``max_rounds`` says otherwise."""


@attrs.define
class Comparisons:
    """The comparisons of the unique keys of one writer, in one try of its task.

    :param table: that the writer writes.
    :param spark: the task's work on it.
    :param first: of this try, whose Spark jobs do the comparing.
    :param most: how many comparisons are made before the task fails.
    """

    table: Table
    spark: SparkWork
    first: WriteSpec
    most: int
    _made: int = attrs.field(default=0, init=False)

    def judged(self, buffer: Buffer, since: int | None = None) -> dict[str, CheckResult]:
        """Compare the keys of staged rows with each other, and with those of the rows that stay beside them.

        :param buffer: with the staged rows.
        :param since: the version with which they were compared before, so that only what came after it is new.
            Default: they were not.
        :returns: one result for each check of unique keys, by its name; none if the writer has no such check.
        """
        spec, log = buffer.spec, self.table.log
        columns = key_columns(spec, buffer.metadata, str(self.table))
        if not columns:
            return {}
        self._made += 1
        snapshot = log.snapshot()
        (complete,) = with_statistics(log, [buffer])
        files = to_compare(log, complete, snapshot, since)
        counts: Mapping[str, Mapping[str, int]] = {}
        if buffer.adds and (files or since is None):
            uri = self.table.address.spark_uri
            beside = open_keys_shadow(log, buffer.path, files, snapshot, uri) if files else None
            counts = self.spark.engine().audit(self._job(buffer, columns, beside, snapshot.version)).keys
            if counts.keys() != columns.keys():
                raise SparkJobError(
                    f"Spark did not say whether the keys of writer {spec.identity.key!r} for {self.table} are unique. "
                    "Nothing was published; a retry asks again."
                )
        newer = f" that came after version {since}" if since is not None else ""
        where = f"{len(files)} file{'' if len(files) == 1 else 's'} of version {snapshot.version}{newer}"
        return {
            name: _result(name, spec.checks[name], counts.get(name, {}), where, snapshot.version) for name in columns
        }

    def again(self, buffer: Buffer, error: UncomparedKeysError) -> Buffer:
        """Compare the keys with what has come since they were compared, and keep what that says.

        :param buffer: whose rows were not published.
        :param error: says what has come.
        :returns: the buffer with the verdict that counts now.
        :raises CommitContentionError: this try has made enough.
        """
        spec = buffer.spec
        if self._made >= self.most:
            raise CommitContentionError(
                f"Writer {spec.identity.key!r} must have unique keys, and others brought rows to {self.table} after "
                f"each of {self._made} comparisons. Nothing was published and nothing was lost: a retry compares with "
                "what came last, without staging again. If this happens often, raise max_rounds, or name a partition "
                f"column among the columns of unique(…). ({error})"
            ) from error
        logger.info("%s: the keys of writer %s are compared again: %s", self.table.name, spec.identity.key, error)
        assert buffer.verdict is not None
        results = self.judged(buffer, buffer.compared).values()
        self.spark.check_not_stopped()
        compared = next(result.compared for result in results if result.compared is not None)
        write_comparison(self.table.log.store, buffer.path, compared, results)
        return attrs.evolve(buffer, verdict=with_comparisons(self.table.log.store, buffer.path, buffer.verdict))

    def _job(
        self, buffer: Buffer, columns: Mapping[str, tuple[str, ...]], beside: str | None, version: int
    ) -> AuditJob:
        return AuditJob(
            table_uri=self.table.address.spark_uri,
            buffer_uri=self.table.address.child(buffer.path).spark_uri,
            metadata=buffer.metadata,
            checks={},
            unique=columns,
            beside_uri=self.table.address.child(beside).spark_uri if beside is not None else None,
            # An engine may return the result of an earlier job of the same attempt. Rows that were computed once more
            # may be compared with the same version, so the buffer counts too.
            attempt=f"{self.first.attempt}-keys-{version}-{uuid.uuid5(uuid.NAMESPACE_URL, buffer.path).hex[:8]}",
            label=f"writer {self.first.identity.key} of task {self.first.task}",
            owner=self.first.identity.app_id,
        )


def _result(name: str, check: str, counts: Mapping[str, int], where: str, version: int) -> CheckResult:
    failed = counts.get("failed", 0)
    found = f"no key is there twice, also in {where}"
    if failed:
        sides = (
            (counts["staged"], "another row of the writer"),
            (counts["beside"], f"a row of the table, in {where}"),
        )
        shared = [f"{count} share{'s' if count == 1 else ''} it with {whom}" for count, whom in sides if count]
        rows = f"{failed} row{' has' if failed == 1 else 's have'}"
        found = f"{rows} a key that another row has as well: {' and '.join(shared)}"
    return CheckResult(
        name=name, sql=check, each_row=True, met=not failed, failed=failed, found=found, compared=version
    )
