"""What stands below ``staged``: who is at work there, and which logs are no longer needed.

Only the ``_delta_log`` of a buffer or a compaction, and what old tries kept, is ever deleted here. The data files of a
published buffer are the table's. A full VACUUM of the table takes the files of an abandoned one after the table's
retention.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.buffer import record_in
from airflow_provider_onelake.buffers.layout import (
    TRIES,
    AttemptDirectory,
    WriterDirectory,
    attempt_directory,
    is_share,
)
from airflow_provider_onelake.buffers.markers import write_marker
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.exceptions import CorruptLogError, InvalidWriteError, ObjectNotFoundError
from airflow_provider_onelake.history.writers import WriterHistory
from airflow_provider_onelake.log.actions import parse_actions, version_path
from airflow_provider_onelake.log.commits import CHANGE, COMPACTION, FORMAT, SCAN
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import ObjectInfo, Store

logger = logging.getLogger(__name__)

_COMPACTION_OF, _CHANGE_OF, _SCAN_OF = "compaction ", "statement ", "shared scan "


class StagedState(StrEnum):
    """How far a buffer or a compaction has come."""

    IN_FLIGHT = "in flight"
    CLOSED = "closed"
    ABANDONED = "abandoned"
    STRANGE = "not ours"


@attrs.frozen
class Staged:
    """A buffer, or the shadow of a compaction or a statement, and how far it has come.

    :param directory: as a listing shows it.
    :param owner: ``writer <key>``, ``compaction <name>``, ``statement <name>``, or what is known of a strange one.
    :param state: how far it has come.
    :param age: time since the last of its objects was written; for a closed one, that object is the marker.
    :param unmarked: the terms of a writer whose ``txn`` is in the table, where the buffer's marker is missing.
    """

    directory: AttemptDirectory = attrs.field(repr=False)
    owner: str
    state: StagedState
    age: timedelta
    unmarked: WriteSpec | None = attrs.field(default=None, repr=False)

    @property
    def path(self) -> str:
        """Where it lies, relative to the table."""
        return self.directory.path

    @property
    def began(self) -> datetime | None:
        """The store's time of its version 0, ``None`` where there is none."""
        return self.directory.opened.modified if self.directory.opened else None

    @property
    def ended(self) -> datetime | None:
        """The store's time of its version 1, ``None`` where there is none."""
        return self.directory.completed.modified if self.directory.completed else None


def clean_up(log: DeltaLog, older_than: timedelta) -> list[Staged]:
    """Delete the logs of closed buffers and compactions, and of open or complete ones that were abandoned.

    The markers of closed buffers stay, and a missing one is written, as a rerun reads from them where its rows are.
    Calling again is safe. What tries kept for the next ones goes once it is older than the table's retention too.

    :param older_than: nothing younger is touched. It must exceed the longest time that a writer takes from its first to
        its last file and until its load is reconciled.
    :returns: what was cleaned up, including what was abandoned, so that people know of it.
    :raises InvalidWriteError: the age is not above zero.
    :raises StoreUnavailableError: the store did not answer; calling again carries on.
    """
    check_age(older_than)
    listing = list(log.store.list(STAGED_DIRECTORY))
    snapshot = log.snapshot_or_none()
    if snapshot is None:
        return []
    # A task may be retried or cleared for as long as its rows count as being written.
    ends = log.clock.now() - max(older_than, timedelta(days=snapshot.retention_days))
    for info in listing:
        if info.path.startswith(TRIES) and info.modified < ends:
            log.store.delete(info.path)
    cleaned = []
    for staged in survey(log, snapshot, listing, older_than):
        if staged.age < older_than or staged.state is StagedState.IN_FLIGHT:
            continue
        if staged.state is StagedState.STRANGE:
            logger.info("%s: %s is left alone: %s", log.table, staged.path, staged.owner)
            continue
        if staged.unmarked is not None:
            _mark(log, snapshot, staged.path, staged.unmarked)
        # Delete version 0 last, so that the next clean-up can carry on an interrupted one.
        for entry in sorted(staged.directory.log, reverse=True):
            log.store.delete(entry)
        cleaned.append(staged)
        if staged.state is StagedState.ABANDONED:
            text = "%s: %s of %s was abandoned %s ago; a full VACUUM takes its files"
            logger.warning(text, log.table, staged.path, staged.owner, staged.age)
    return cleaned


def check_age(older_than: timedelta) -> None:
    """Refuse an age that does not tell abandoned buffers from work in progress.

    :param older_than: the age after which a buffer that is not closed counts as abandoned.
    :raises InvalidWriteError: it is no ``timedelta``, or not above zero.
    """
    if not isinstance(older_than, timedelta):
        raise InvalidWriteError(f"An age must be a timedelta, and {older_than!r} is none. Nothing changed.")
    if older_than <= timedelta(0):
        raise InvalidWriteError(f"An age of {older_than} would take buffers that are being written. Nothing changed.")


def survey(
    log: DeltaLog, snapshot: Snapshot, listing: Iterable[ObjectInfo], abandoned_after: timedelta
) -> list[Staged]:
    """Say how far each buffer and each compaction below ``staged`` has come, if it has a log of its own.

    The listing must be older than the snapshot. Then the snapshot has every published buffer that the listing shows as
    closed.

    :param listing: of ``staged``, in the order of paths; objects elsewhere are skipped.
    :param abandoned_after: a buffer that is not closed and wrote nothing for this long is abandoned.
    """
    now = log.clock.now()
    found: list[Staged] = []
    shadows: set[str] = set()
    for attempt in (attempt for writer in WriterDirectory.all_in(listing) for attempt in writer.attempts):
        # The last object of a closed buffer is its marker; of any other buffer, what its writer wrote last.
        age = now - attempt.newest
        if not attempt.log:
            if is_share(attempt.path) and not attempt.marker and age < abandoned_after:
                found.append(Staged(attempt, "a shared scan, for a writer", StagedState.IN_FLIGHT, age))
            continue
        if attempt.marker and age < abandoned_after:
            # Common case: closed recently. Skip reading version 0 for the owner.
            owner, state, spec = attempt.path, StagedState.CLOSED, None
        else:
            owner, state, spec = _state(log.store, attempt.path, snapshot)
        if owner.startswith(_SCAN_OF) and attempt.completed and state is StagedState.IN_FLIGHT:
            state = StagedState.CLOSED  # Its files are its writers', who need its log only to adopt them.
        unmarked = spec if state is StagedState.CLOSED and not attempt.marker else None
        if state is StagedState.IN_FLIGHT and attempt.marker:
            state = StagedState.CLOSED
        elif state is StagedState.IN_FLIGHT and age >= abandoned_after:
            state = StagedState.ABANDONED
            shadows.update({attempt.path} if owner.startswith((_COMPACTION_OF, _CHANGE_OF)) else ())
        found.append(Staged(attempt, owner, state, age, unmarked))
    live = _with_live_files(log, snapshot, shadows)
    return [attrs.evolve(staged, state=StagedState.CLOSED) if staged.path in live else staged for staged in found]


def _with_live_files(log: DeltaLog, snapshot: Snapshot, shadows: Collection[str]) -> set[str]:
    """Return the shadows with live files: they were published, but their marker was not written."""
    if not shadows:
        return set()
    files = log.live_files(lambda add: attempt_directory(add["path"]) in shadows, snapshot.version)
    return {attempt_directory(file["path"]) for file in files}


def _mark(log: DeltaLog, snapshot: Snapshot, path: str, spec: WriteSpec) -> None:
    """Write the marker that a committer could not write, if the log still says where the rows are."""
    found = WriterHistory(log, spec.identity, snapshot).find(spec.generation)
    if found is not None and found.record.buffer == path:
        write_marker(log.store, path, found.marker(snapshot.table_id))


def _state(store: Store, path: str, snapshot: Snapshot) -> tuple[str, StagedState, WriteSpec | None]:
    """Return the owner, the state by the table's ``txn``, and the terms of a writer."""
    try:
        record = record_in(parse_actions(store.get(f"{path}/{version_path(0)}"), f"Version 0 of {path}"))
        if record.get("format") != FORMAT:
            return f"no buffer of this format (wanted {FORMAT})", StagedState.STRANGE, None
        if COMPACTION in record:
            return f"{_COMPACTION_OF}{record[COMPACTION].get('name') or path}", StagedState.IN_FLIGHT, None
        if CHANGE in record:
            return f"{_CHANGE_OF}{record[CHANGE].get('name') or path}", StagedState.IN_FLIGHT, None
        if SCAN in record:
            return f"{_SCAN_OF}{record[SCAN].get('task') or path}", StagedState.IN_FLIGHT, None
        spec = WriteSpec.from_json(record["spec"])
    except ObjectNotFoundError:
        return "it has a log without a version 0", StagedState.STRANGE, None
    except (CorruptLogError, KeyError, TypeError, ValueError, AttributeError, InvalidWriteError) as error:
        return f"its version 0 cannot be read: {error}", StagedState.STRANGE, None
    # The marker may be missing because the store did not answer. The txn is what counts.
    settled = snapshot.txns.get(spec.identity.app_id, 0) >= spec.generation
    return f"writer {spec.identity.key}", StagedState.CLOSED if settled else StagedState.IN_FLIGHT, spec
