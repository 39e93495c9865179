"""What a writer does in its turn before it uses Spark: see whether its rows are in the table, or staged, already."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer, OpenBuffer, open_buffer
from airflow_provider_onelake.buffers.claims import Turn
from airflow_provider_onelake.buffers.identity import WriterIdentity
from airflow_provider_onelake.buffers.layout import skipped_path
from airflow_provider_onelake.buffers.markers import set_aside
from airflow_provider_onelake.buffers.reuse import staged_before
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.exceptions import InvalidWriteError, RerunRefusedError
from airflow_provider_onelake.history.reruns import Skip, in_table
from airflow_provider_onelake.history.writers import WriterHistory
from airflow_provider_onelake.log.schema import CHAR_OR_VARCHAR, columns
from airflow_provider_onelake.log.snapshot import interval_days
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.writes.conflicts import overtaken_by

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)

_RETENTION = "delta.deletedFileRetentionDuration"
TXN_RETENTION = "delta.setTransactionRetentionDuration"


def prepare(
    log: DeltaLog,
    spec: WriteSpec,
    turn: Turn[WriterIdentity],
    evolve: Callable[[Snapshot], Snapshot] | None = None,
    *,
    footers: bool = False,
    scan: str | None = None,
) -> Skip | Buffer | OpenBuffer:
    """Apply the rerun rules, and open a buffer if one is needed.

    An attempt that comes back from the triggerer finds its own buffer, even if its source has changed since. An earlier
    attempt of the generation that staged other work is fenced off: its buffer is set aside, complete or not.

    :param turn: of the writer, who has claimed its key. Where the turn has found no table, it is looked for again.
    :param evolve: called before a buffer is opened. It may change the table, and returns the snapshot that the buffer
        becomes the twin of.
    :param footers: whether the files will have footers that say their statistics, as Spark's have.
    :param scan: the directory of the shared scan whose rows the writer may take. Default: none.
    :returns: what is left to do. Where a complete buffer is there, of an earlier attempt of the same work or of this
        attempt where it comes back, that buffer: Spark has nothing to do. The same where the shared scan has the
        writer's rows. Of an earlier attempt, or of the scan, the buffer may be ``unchecked``: then Spark has the
        checks to do. It may be ``refused``, so that no try of the same work publishes anything. Else an open buffer,
        to which Spark is to append rows.
    :raises TableNotFoundError: there is no table; it is created before its writers start.
    :raises UnsupportedFeatureError: the table uses a feature outside the allow-list.
    :raises InvalidWriteError: the terms do not fit the table.
    :raises ZombieWriterError: a newer generation of the writer is in the table.
    :raises BufferSetAsideError: this attempt comes back, and its buffer was set aside meanwhile.
    :raises RerunRefusedError: skipping would lose rows, or appending would repeat them.
    :raises BufferInvalidError: the buffer of this very attempt is damaged.
    """
    snapshot, begun = turn.snapshot or log.snapshot(), turn.directory
    snapshot.check_supported(log.table)
    _check_terms(log, spec, snapshot)
    done = _rerun(WriterHistory(log, turn.identity, snapshot), spec)
    if done is not None:
        log.store.put(skipped_path(begun.path, turn.generation), json.dumps(attrs.asdict(done)).encode())
        return done
    if (skipped := begun.skipped.get(turn.generation)) is not None:
        # An earlier attempt found its rows in the table; this one has other terms, and its rows are to be published.
        log.store.delete(skipped)
    # Where columns may come, a scan's rows, which are of the table's, are not taken.
    for buffer in staged_before(log, spec, begun.buffers, snapshot, None if evolve else scan):
        if not _is_overtaken(log, buffer, snapshot):
            return buffer
    return open_buffer(log.store, spec, evolve(snapshot) if evolve else snapshot, log.clock, footers=footers)


def _check_terms(log: DeltaLog, spec: WriteSpec, snapshot: Snapshot) -> None:
    spec.range(snapshot)
    if spec.reads is not None:
        spec.reads.range(snapshot.partitioning)
    spec.mode.replaced((), snapshot.partitioning, spec.identity.key)
    if snapshot.retention_days <= 0:
        raise InvalidWriteError(
            f"{log.table} sets {_RETENTION}={snapshot.configuration.get(_RETENTION)}, so a VACUUM may delete staged "
            "files at once, and nothing could be published. Nothing was staged: set it to a time "
            "that is more than twice as long as a writer and its reconcile take."
        )
    if snapshot.append_only and (spec.mode.replaces or spec.takes_back):
        removing = f"mode={spec.mode.name!r}" if spec.mode.replaces else "on_rerun='replace', which takes rows back,"
        raise InvalidWriteError(
            f"{log.table} is append-only (delta.appendOnly), so {removing} is refused. Nothing was staged."
        )
    keys = {key.strip().lower() for key in spec.mode.keys} if isinstance(spec.mode, Merge) else ()
    for name, column in columns(snapshot.metadata).items() if keys else ():
        if name.lower() in keys and str(column.metadata.get(CHAR_OR_VARCHAR, "")).startswith("char("):
            raise InvalidWriteError(
                f"Writer {spec.identity.key!r} has the key {name}, which is CHAR in {log.table}, and Delta's own MERGE "
                "fails where it compares a CHAR column. Nothing was staged: use another key, or a STRING column."
            )
    if spec.mode.by_partition and not snapshot.partitioning.types:
        raise InvalidWriteError(
            f"mode={spec.mode.name!r} needs a partitioned table, and {log.table} has no partition columns. Nothing "
            "was staged: the mode overwrite replaces a whole table."
        )


def _rerun(history: WriterHistory, spec: WriteSpec) -> Skip | None:
    if history.stored is None:
        _check_txn_retention(history.log, spec, history.snapshot)
        return None
    done = in_table(history, spec)
    if done is None and spec.takes_back:
        history.files_to_take_back()
    return done


def _check_txn_retention(log: DeltaLog, spec: WriteSpec, snapshot: Snapshot) -> None:
    text = snapshot.configuration.get(TXN_RETENTION)
    if text is None:
        return
    expires = "an expired txn is unknown to every engine, so reruns may repeat rows."
    logger.warning("%s sets %s=%s: %s", log.table, TXN_RETENTION, text, expires)
    if not spec.mode.repeats:
        return
    try:
        run = datetime.fromisoformat(spec.identity.load.run)
    except ValueError:
        return
    run = run if run.tzinfo else run.replace(tzinfo=UTC)
    if log.clock.now() - run > timedelta(days=interval_days(text, 0)):
        raise RerunRefusedError(
            f"The run {spec.identity.load.run} is older than {TXN_RETENTION}={text} of {log.table}, so nobody knows "
            f"whether writer {spec.identity.key!r} was appended before. Nothing was staged: unset the property, or use "
            "a mode that replaces."
        )


def _is_overtaken(log: DeltaLog, buffer: OpenBuffer, snapshot: Snapshot) -> bool:
    """Set rows of a shared scan aside that others have overtaken, and say whether they have.

    A writer may wait for hours for its slot. By its own scan it reads the source after what others changed.
    """
    if not isinstance(buffer, Buffer) or buffer.scanned is None:
        return False
    why = overtaken_by(log, buffer, snapshot)
    if why is not None:
        logger.info("%s: writer %s does not use the shared scan: %s", log.table, buffer.spec.identity.key, why)
        set_aside(log.store, buffer.path, f"since the shared scan, {why}")
    return why is not None
