"""Rows that fail a check of their writer go to a table of their own, with the reason; the others are published.

The rows are staged already, so Spark reads them there and not from the source. The rows that fail are committed to the
quarantine before there is anything that could be published of the others (protocol: audited).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

import attrs

from airflow_provider_onelake.choices import OnRerun, Policy, SchemaEvolution
from airflow_provider_onelake.exceptions import (
    BufferIncompleteError,
    BufferInvalidError,
    BufferLostError,
    InvalidWriteError,
    RerunRefusedError,
)
from airflow_provider_onelake.log.schema import columns
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark_jobs.columns import quoted
from airflow_provider_onelake.staging.buffers import read_open_buffer, read_staged
from airflow_provider_onelake.staging.claims import check_newest
from airflow_provider_onelake.staging.layout import WriterDirectory
from airflow_provider_onelake.staging.modes import Append, ReplaceWhere
from airflow_provider_onelake.staging.prepare import check_not_set_aside
from airflow_provider_onelake.staging.published import aftermath, find_published
from airflow_provider_onelake.staging.spec import WriteSpec
from airflow_provider_onelake.staging.verdict import Quarantined, Verdict
from airflow_provider_onelake.work.terms import WriteTerms

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.metrics import Metrics
    from airflow_provider_onelake.staging.buffers import Buffer
    from airflow_provider_onelake.storage.stores import Store
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.work.results import Written
    from airflow_provider_onelake.work.spark import SparkWork

    class Write(Protocol):
        """Stages and publishes the rows of one writer."""

        def __call__(
            self,
            spec: WriteSpec,
            terms: WriteTerms,
            table: Table,
            spark: SparkWork,
            metrics: Metrics,
            policy: Policy,
            *,
            check_files: Callable[[], None],
            makes_first: bool,
        ) -> Written:
            """See :func:`~airflow_provider_onelake.work.write.write`."""


logger = logging.getLogger(__name__)

LOAD, WRITER, CHECKS, AT = "quarantine_load", "quarantine_writer", "quarantine_checks", "quarantined_at"
"""The columns of a quarantine beside those of the rows: whose they are, which checks they fail, and since when."""


@attrs.frozen
class Quarantine:
    """A table for rows that fail a check.

    :param table: which is created, and gets the columns of the rows, if need be.
    :param spark: the task's work on that table.
    :param metrics: of that table.
    """

    table: Table
    spark: SparkWork
    metrics: Metrics

    def check_fits(self, snapshot: Snapshot, table: Table) -> None:
        """Refuse a table with a column that the quarantine has for itself.

        :param snapshot: of the writer's table.
        :param table: the writer's.
        :raises InvalidWriteError: there is such a column.
        """
        own = (LOAD, WRITER, CHECKS, AT)
        taken = [name for name in columns(snapshot.metadata) if name.lower() in own]
        if taken:
            raise InvalidWriteError(
                f"{table.name} has the column {', '.join(taken)}, which a quarantine has for itself. Nothing was "
                "staged: rename the column, or use on_failed_check='refuse'."
            )

    def take(self, buffer: Buffer, log: DeltaLog, uri: str, verdict: Verdict, write: Write) -> Verdict:
        """Commit the rows that fail a check, once for each generation of the writer, and say where they are.

        A rerun of the writer replaces what an earlier generation left there, unless it appends its rows once more to
        those that are in the writer's table. Where an older generation may still be at work, or an earlier try of other
        work, it commits there without a row too (protocol: generation).

        :param buffer: with all rows of the writer.
        :param log: of the writer's table, where the generations are claimed.
        :param uri: the buffer's address for Spark.
        :param verdict: on all rows.
        :param write: stages and publishes the rows of a writer.
        :returns: the verdict, which names the quarantine if rows are there.
        :raises RerunRefusedError: an earlier try of the same generation has put rows there, which were of other staged
            files, or of which none fails a check now; or it has said there that none of its rows fails, and was of
            other staged files. Or rows of an earlier generation, whose other rows never came into the writer's table,
            are not there as they were.
        :raises ZombieWriterError: a newer generation of the writer has begun, or another run has its files.
        """
        spec, key = buffer.spec, buffer.spec.identity.key
        published = log.snapshot().txns.get(spec.identity.app_id, 0)
        snapshot = self.table.log.snapshot_or_none()
        stored = snapshot.txns.get(spec.identity.app_id, 0) if snapshot is not None else 0
        # Where the writer's table has nothing of it, what is in quarantine is of generations that never came there. The
        # first generation finds nothing to replace, so it appends, which an append-only quarantine allows.
        replaces = _replaces(spec) or (not published and spec.generation > 1)
        takes_back = False
        if snapshot is not None and not replaces and published < stored < spec.generation:
            # The same holds of the last generation there, if the table has only older ones. A person may have deleted
            # its rows.
            last = find_published(self.table.log, spec.identity, stored, snapshot)
            takes_back = last is None or aftermath(self.table.log, last, snapshot).gone is not True
        earlier: int | None = None
        if snapshot is not None and stored == spec.generation:
            found = find_published(self.table.log, spec.identity, stored, snapshot)
            earlier = found.record.rows if found is not None else None
            if not verdict.rows_failed and earlier == 0:
                return verdict
            if not verdict.rows_failed:
                raise self._refused(spec, "none of the writer's rows fails a check now")
        elif not verdict.rows_failed:
            older = _may_have_older(stored, spec.generation, replaces=replaces or takes_back)
            if snapshot is None or not (older or _follows_other_work(log.store, buffer)):
                return verdict
        terms = self._terms(spec, uri, verdict, replaces=replaces)
        own = WriteSpec(
            identity=spec.identity,
            attempt=spec.attempt,
            generation=spec.generation,
            task=spec.task,
            mode=ReplaceWhere(terms.replace_where) if terms.replace_where else Append(),
            allow_empty=True,
            on_rerun=OnRerun.REPLACE if replaces or takes_back else OnRerun.APPEND,
            # Rows of other staged files are other rows, even if the same work staged them.
            fingerprint=f"{spec.fingerprint} {buffer.path}",
            message=spec.message,
        )
        try:
            done = write(
                own,
                terms,
                self.table,
                self.spark,
                self.metrics,
                Policy.LAST_WRITER_WINS,
                # A newer generation, or a retry of other work, leaves nothing without bad rows where there is no table
                # yet, and this one may have made the table since. This is asked when the table is there, so one of both
                # sees the other.
                makes_first=True,
                check_files=partial(_check_wanted, log, buffer),
            )
        except RerunRefusedError as error:
            if takes_back:
                raise RerunRefusedError(
                    f"Generation {stored} of writer {key!r} put rows into the quarantine {self.table.name}, and its "
                    f"other rows never came into {log.table}; so they are replaced, but they are not there as they "
                    "were. Nothing of the writer was published: on_rerun='replace' replaces all that it has in both "
                    f"tables. ({error})"
                ) from error
            if earlier == 0:
                raise RerunRefusedError(
                    f"Rows of writer {key!r} fail checks now, and an earlier try found no row that fails: it has said "
                    f"so in the quarantine {self.table.name}, where a start of the task commits once. Nothing of the "
                    f"writer was published: clear {spec.task or 'it'}. ({error})"
                ) from error
            raise self._refused(spec, str(error)) from error
        if not verdict.rows_failed:
            return verdict
        rows = done.buffer.rows if done.buffer is not None else earlier
        failed = {check.name: check.failed or 0 for check in verdict.rows_failed}
        logger.warning(
            "%s: rows of writer %s that fail checks are in quarantine, in version %s",
            self.table.name,
            key,
            done.version,
        )
        return attrs.evolve(
            verdict, quarantined=Quarantined(table=str(self.table), version=done.version, rows=rows, failed=failed)
        )

    def check_goes_with(self, published: int, spec: WriteSpec, table: str) -> None:
        """Refuse to call rows published whose bad rows a newer generation has replaced in quarantine.

        An old process may publish its good rows after a newer generation has put its own bad rows there. That one finds
        the same work in the table then, and its other good rows would be nowhere. A newer generation that neither put
        nor replaced rows there does no harm. One that is newer than the writer's own was counted before the writer's
        table was dropped and made again, or publishes the writer's rows itself.

        :param published: the generation of the writer that is in its table; 0 for none.
        :param spec: of a writer whose rows count as published.
        :param table: what messages call the writer's table.
        :raises RerunRefusedError: a newer generation has replaced them.
        """
        snapshot = self.table.log.snapshot_or_none()
        there = snapshot.txns.get(spec.identity.app_id, 0) if snapshot is not None else 0
        if snapshot is None or not published < there <= spec.generation:
            return
        if self._changed_after(published, spec, snapshot):
            raise RerunRefusedError(
                f"Writer {spec.identity.key!r} is in {table} with generation {published}, and what it has in the "
                f"quarantine {self.table.name} is of generation {there}, so a row may be in neither or in both. "
                f"Nothing more was published: clear {spec.task or 'it'} with on_rerun='replace', which replaces its "
                "rows in both."
            )

    def _changed_after(self, generation: int, spec: WriteSpec, snapshot: Snapshot) -> bool:
        """Say whether commits of generations of the writer after one have changed rows, as far as the log says."""
        for version in range(snapshot.version, -1, -1):
            commit = self.table.log.commit(version)
            if commit is None:
                return True
            committed = commit.txns.get(spec.identity.app_id)
            if committed is not None and committed <= generation:
                return False
            if committed is not None and commit.data_change:
                return True
        return False

    def _refused(self, spec: WriteSpec, why: str) -> RerunRefusedError:
        return RerunRefusedError(
            f"An earlier try of writer {spec.identity.key!r} put rows into the quarantine {self.table.name}, and its "
            "other rows are not there any more or are others now, so nobody can tell which rows are missing. Nothing "
            f"of the writer was published: clear {spec.task or 'it'}, which replaces its rows in the quarantine. "
            f"({why})"
        )

    def _terms(self, spec: WriteSpec, uri: str, verdict: Verdict, *, replaces: bool) -> WriteTerms:
        load, writer = _literal(spec.identity.load.id), _literal(spec.identity.key)
        names = [f"IF({_met(check.sql)}, NULL, {_literal(check.name)})" for check in verdict.results if check.each_row]
        own = f"{load} AS {LOAD}, {writer} AS {WRITER}, array_compact(array({', '.join(names)})) AS {CHECKS}"
        rows = f"delta.{quoted(uri)} VERSION AS OF 1 WHERE NOT ({passing(verdict)})"
        query = f"SELECT *, {own}, current_timestamp() AS {AT} FROM {rows}"  # noqa: S608 - the author's SQL
        # A rerun that appends its rows once more leaves those of before, in the quarantine as well.
        replaced = f"{LOAD} = {load} AND {WRITER} = {writer}" if replaces else None
        return WriteTerms(
            table=str(self.table),
            source=SqlSource(query),
            mode=ReplaceWhere.name if replaced else Append.name,
            replace_where=replaced,
            allow_empty=True,
            partition_by=[LOAD, WRITER],
            schema_evolution=SchemaEvolution.ADD_AND_WIDEN,
        )


def passing(verdict: Verdict) -> str:
    """Return the condition of the rows that pass all checks which are about each row, in Spark SQL."""
    return " AND ".join(_met(check.sql) for check in verdict.results if check.each_row)


def check_divided(whole: Buffer, rest: Buffer, table: str) -> None:
    """Refuse rows that were divided in two ways, so that a row is in both parts or in none.

    One query finds the rows for the quarantine and another one the rest. A condition that is not the same twice, such
    as one with ``current_timestamp()``, may divide the rows otherwise each time.

    :param whole: with all rows of the writer, and a verdict that says how many are in quarantine.
    :param rest: with the rows that pass.
    :param table: what messages call the table.
    :raises InvalidWriteError: the rows of the two parts are not all rows.
    """
    quarantined = whole.verdict.quarantined if whole.verdict is not None else None
    if quarantined is None or whole.rows is None or rest.rows is None:
        return
    apart, failed = whole.rows - rest.rows, quarantined.failed.values()
    # A row may fail several checks, so without the number of rows their counts give only its bounds.
    known = quarantined.rows is not None
    least, most = (quarantined.rows, quarantined.rows) if known else (max(failed), sum(failed))
    there = str(least) if least == most else f"{least} to {most}"
    if apart not in range(least or 0, (most or 0) + 1):
        raise InvalidWriteError(
            f"Of the {whole.rows} rows of writer {whole.spec.identity.key!r} for {table}, {rest.rows} pass the checks, "
            f"but {there} are in the quarantine {quarantined.table}. A check "
            "is not the same twice, so a row would be in both tables or in none. Nothing of the writer was published: "
            "write the check without functions such as current_timestamp() or rand(), and clear the writer, which "
            "replaces its rows in the quarantine."
        )


def _check_wanted(log: DeltaLog, buffer: Buffer) -> None:
    """Refuse to put rows into quarantine if those that pass will never be published.

    :param log: of the writer's table.
    :param buffer: with all rows of the writer.
    :raises ZombieWriterError: a newer generation of the writer has begun, or another run has its files.
    :raises BufferSetAsideError: a later try of other work has set the buffer aside.
    """
    check_newest(log, buffer.spec)
    check_not_set_aside(log.store, buffer)


def _follows_other_work(store: Store, buffer: Buffer) -> bool:
    """Say whether buffers of earlier tries of the same generation were set aside, as one of them may be at work.

    Rows that were computed from the table itself are put into quarantine by nobody, such as those that this very try
    has given up to compute them once more.
    """
    spec = buffer.spec
    attempts = WriterDirectory.read(store, spec.identity.directory).attempts
    for path in (each.path for each in attempts if each.opened and each.marker and each.path != buffer.path):
        try:
            if read_open_buffer(store, path).spec.generation != spec.generation:
                continue
            if not read_staged(store, path).reads_target:
                return True
        except (BufferIncompleteError, BufferInvalidError, BufferLostError):
            return True  # Nobody knows whose it is, and a commit without a row does no harm.
    return False


def _may_have_older(stored: int, generation: int, *, replaces: bool) -> bool:
    """Say whether an earlier generation has rows in quarantine, which this one replaces, or may still put some there.

    It cannot put any where the quarantine has its ``txn`` or that of a newer one.

    :param stored: the generation that the quarantine's ``txn`` of the writer names; 0 for none.
    :param replaces: whether this one replaces rows of an earlier one.
    """
    return stored < generation - 1 or (replaces and 0 < stored < generation)


def _replaces(spec: WriteSpec) -> bool:
    return not (spec.mode.repeats and spec.on_rerun is OnRerun.APPEND)


def _met(sql: str) -> str:
    # Line ends, as the condition may end in a comment.
    return f"coalesce((\n{sql}\n), false)"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
