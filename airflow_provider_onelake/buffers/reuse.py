"""What a writer staged before: the rows that its attempt takes over, instead of staging them anew."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_provider_onelake.buffers.buffer import Buffer, OpenBuffer, read_open_buffer, read_rows
from airflow_provider_onelake.buffers.markers import check_not_set_aside, read_marker, set_aside
from airflow_provider_onelake.buffers.reads import read_changed
from airflow_provider_onelake.buffers.scan import adopt
from airflow_provider_onelake.buffers.spec import WriteSpec, equal_terms
from airflow_provider_onelake.exceptions import (
    BufferIncompleteError,
    BufferInvalidError,
    BufferLostError,
    LogGapError,
)
from airflow_provider_onelake.log.compatibility import incompatibilities
from airflow_provider_onelake.log.snapshot import NO_VERSION

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)

_OTHER_WORK = "its source, code or terms are others now"


def at_work(store: Store, spec: WriteSpec, buffers: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield the earlier attempts of a writer whose Spark jobs may still stage rows, and whether it is the same work.

    :param spec: of this attempt.
    :param buffers: the paths of the writer's buffers.
    """
    for path in buffers:
        try:
            earlier = read_open_buffer(store, path).spec
        except BufferInvalidError:
            continue  # It holds no spec that counts, so it is never published.
        # A buffer that was adopted from a shared scan has no Spark job of its own.
        is_own = path == earlier.buffer
        if is_own and read_marker(store, path) is None and earlier.attempt != spec.attempt:
            yield earlier.attempt, same_work(earlier, spec)


def staged_before(
    log: DeltaLog, spec: WriteSpec, buffers: Iterable[str], snapshot: Snapshot, scan: str | None
) -> Iterator[Buffer | OpenBuffer]:
    """Yield what an attempt need not stage. An earlier attempt of its generation that staged other work is fenced off.

    :param spec: of the attempt.
    :param buffers: the paths of the writer's buffers.
    :param snapshot: the newest of the table.
    :param scan: the directory of the shared scan whose rows the writer may take; ``None`` for none.
    :returns: first, and alone, the buffer of the attempt itself, where it comes back: an open one where Spark has
        something left to do. Else what has the rows of the same work: buffers of earlier attempts, then the scan's.
    :raises BufferSetAsideError: this attempt comes back, and its buffer was set aside meanwhile.
    :raises BufferInvalidError: the buffer of this very attempt is damaged.
    """
    if spec.buffer in buffers:
        yield _come_back(log.store, spec.buffer)
        return
    for path in buffers:
        if (buffer := _reusable(log, path, spec, snapshot)) is not None:
            yield buffer
    if scan is not None and (adopted := adopt(log, spec, snapshot, scan)) is not None:
        yield adopted


def _come_back(store: Store, path: str) -> Buffer | OpenBuffer:
    mine = read_open_buffer(store, path)
    check_not_set_aside(store, mine)
    with suppress(BufferIncompleteError):
        buffer = read_rows(store, mine)
        return mine if buffer.unchecked else buffer
    return mine


def _reusable(log: DeltaLog, path: str, spec: WriteSpec, snapshot: Snapshot) -> Buffer | None:
    try:
        earlier = read_open_buffer(log.store, path)
        same = same_work(earlier.spec, spec)
        # Without a fingerprint, work cannot be compared, so nothing is set aside.
        fenced = earlier.spec.generation == spec.generation and bool(spec.fingerprint)
        if fenced and not same:
            # Fence off the earlier attempt: its Spark job may go on long after its task is dead.
            set_aside(log.store, path, f"its writer was staged again, as {_OTHER_WORK}")
        buffer = read_rows(log.store, earlier)
    except (BufferIncompleteError, BufferInvalidError, BufferLostError) as error:
        logger.info("The buffer %s is not reused: %s", path, error)
        return None
    if buffer.refused and same:
        # The same rows would fail the same checks again.
        return buffer
    if read_marker(log.store, path) is not None:
        return None
    why_not = _why_not_reusable(log, buffer, snapshot) if same else _OTHER_WORK
    if why_not is None:
        return buffer
    logger.info("The buffer %s is not reused: %s", path, why_not)
    if fenced:
        # Close this buffer: it is not what is wanted now, and reconcile takes the first complete one of a generation.
        set_aside(log.store, path, f"its writer was staged again, as {why_not}")
    return None


def _why_not_reusable(log: DeltaLog, buffer: Buffer, snapshot: Snapshot) -> str | None:
    """Say why rows of the same work are staged anew all the same."""
    if buffer.read_version != NO_VERSION and buffer.table_id != snapshot.table_id:
        return "the table was replaced by another"
    comparable = () if buffer.spec.mode.own_columns else incompatibilities(buffer.metadata, snapshot.metadata)
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
