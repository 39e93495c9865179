"""What a writer does in its turn before it uses Spark: see whether its rows are in the table, or staged, already."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.buffer import (
    Buffer,
    OpenBuffer,
    open_buffer,
    read_open_buffer,
    read_rows,
)
from airflow_provider_onelake.buffers.claims import Turn, check_newest
from airflow_provider_onelake.buffers.layout import is_share, skipped_path
from airflow_provider_onelake.buffers.markers import read_marker, set_aside
from airflow_provider_onelake.buffers.reads import read_changed
from airflow_provider_onelake.buffers.scan import adopt
from airflow_provider_onelake.buffers.spec import WriteSpec, equal_terms
from airflow_provider_onelake.exceptions import (
    BufferIncompleteError,
    BufferInvalidError,
    BufferLostError,
    InvalidWriteError,
    LogGapError,
    RerunRefusedError,
)
from airflow_provider_onelake.history.published import files_to_take_back
from airflow_provider_onelake.history.reruns import Skip, check_not_set_aside, in_table
from airflow_provider_onelake.log.compatibility import incompatibilities
from airflow_provider_onelake.log.schema import CHAR_OR_VARCHAR, columns
from airflow_provider_onelake.log.snapshot import NO_VERSION, interval_days
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.writes.publish import overtaken_by

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)

_OTHER_WORK = "its source, code or terms are others now"
_RETENTION = "delta.deletedFileRetentionDuration"
TXN_RETENTION = "delta.setTransactionRetentionDuration"


def prepare(
    log: DeltaLog,
    spec: WriteSpec,
    turn: Turn,
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
    :raises ZombieWriterError: a newer generation of the writer has begun.
    :raises BufferSetAsideError: this attempt comes back, and its buffer was set aside meanwhile.
    :raises RerunRefusedError: skipping would lose rows, or appending would repeat them.
    :raises BufferInvalidError: the buffer of this very attempt is damaged.
    """
    snapshot, begun = turn.snapshot or log.snapshot(), turn.directory
    snapshot.check_supported(log.table)
    _check_terms(log, spec, snapshot)
    check_newest(turn, spec.identity.key)
    done = _rerun(log, spec, snapshot)
    if done is not None:
        log.store.put(skipped_path(begun.path, spec.generation), json.dumps(attrs.asdict(done)).encode())
        return done
    if spec.buffer in begun.buffers:
        return _come_back(log.store, spec.buffer)
    if (skipped := begun.skipped.get(spec.generation)) is not None:
        # An earlier attempt found its rows in the table; this one has other terms, and its rows are to be published.
        log.store.delete(skipped)
    for path in begun.buffers:
        buffer = _reusable(log, path, spec, snapshot)
        if buffer is not None and not _is_overtaken(log, buffer, snapshot):
            return buffer
    if scan is not None and evolve is None:
        adopted = adopt(log, spec, snapshot, scan)
        if adopted is not None and not _is_overtaken(log, adopted, snapshot):
            return adopted
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


def _rerun(log: DeltaLog, spec: WriteSpec, snapshot: Snapshot) -> Skip | None:
    stored = snapshot.txns.get(spec.identity.app_id)
    if stored is None:
        _check_txn_retention(log, spec, snapshot)
        return None
    done = in_table(log, spec, snapshot)
    if done is None and spec.takes_back:
        files_to_take_back(log, spec.identity, stored, snapshot)
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


def _come_back(store: Store, path: str) -> Buffer | OpenBuffer:
    """Return the buffer of this very attempt, which comes back: an open one where Spark has something left to do."""
    mine = read_open_buffer(store, path)
    check_not_set_aside(store, mine)
    with suppress(BufferIncompleteError):
        buffer = read_rows(store, mine)
        return mine if buffer.unchecked else buffer
    return mine


def _reusable(log: DeltaLog, path: str, spec: WriteSpec, snapshot: Snapshot) -> Buffer | None:
    try:
        earlier = read_open_buffer(log.store, path)
        if earlier.spec.generation == spec.generation and spec.fingerprint and not same_work(earlier.spec, spec):
            # Fence off the earlier attempt: its Spark job may go on long after its task is dead. Without a fingerprint,
            # work cannot be compared, so nothing is set aside.
            set_aside(log.store, path, f"its writer was staged again, as {_OTHER_WORK}")
        buffer = read_rows(log.store, earlier)
    except (BufferIncompleteError, BufferInvalidError, BufferLostError) as error:
        logger.info("The buffer %s is not reused: %s", path, error)
        return None
    if buffer.refused and same_work(buffer.spec, spec):
        # The same rows would fail the same checks again.
        return buffer
    if read_marker(log.store, path) is not None:
        return None
    why_not = _why_not_reusable(log, buffer, spec, snapshot)
    if why_not is None:
        return buffer
    logger.info("The buffer %s is not reused: %s", path, why_not)
    if buffer.spec.generation == spec.generation and spec.fingerprint:
        # Close this buffer: it is not what is wanted now, and reconcile takes the first complete one of a generation.
        set_aside(log.store, path, f"its writer was staged again, as {why_not}")
    return None


def _is_overtaken(log: DeltaLog, buffer: Buffer, snapshot: Snapshot) -> bool:
    """Set rows of a shared scan aside that others have overtaken, and say whether they have.

    A writer may wait for hours for its slot. By its own scan it reads the source after what others changed.
    """
    why = overtaken_by(log, buffer, snapshot) if is_share(buffer.path) else None
    if why is not None:
        logger.info("%s: writer %s does not use the shared scan: %s", log.table, buffer.spec.identity.key, why)
        set_aside(log.store, buffer.path, f"since the shared scan, {why}")
    return why is not None


def _why_not_reusable(log: DeltaLog, buffer: Buffer, spec: WriteSpec, snapshot: Snapshot) -> str | None:
    if not same_work(buffer.spec, spec):
        return _OTHER_WORK
    if buffer.read_version != NO_VERSION and buffer.table_id != snapshot.table_id:
        return "the table was replaced by another"
    comparable = () if spec.mode.own_columns else incompatibilities(buffer.metadata, snapshot.metadata)
    if incompatibility := next(iter(comparable), None):
        return f"the table changed: {incompatibility}"
    try:
        buffer.check_age(log.clock.now(), snapshot.retention_days)
    except BufferLostError as error:
        return f"it is too old: {error}"
    if buffer.reads_target and _is_stale(log, buffer, snapshot):
        return "the table that it was computed from has changed since"
    return None


def _is_stale(log: DeltaLog, buffer: Buffer, snapshot: Snapshot) -> bool:
    try:
        commits = log.commits_between(buffer.read_version, snapshot.version)
    except LogGapError:
        return True
    return bool(read_changed(buffer.reads, commits, snapshot.partitioning))


def same_work(earlier: WriteSpec, now: WriteSpec) -> bool:
    """Say whether two attempts have equal terms and source (protocol: same source).

    :param now: of the later attempt. If it has no fingerprint, no work equals it but that of the same attempt.
    """
    return equal_terms(earlier, now) and (bool(now.fingerprint) or earlier.attempt == now.attempt)
