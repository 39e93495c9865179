"""What stands below ``staged``: who is at work there, and which logs are no longer needed.

Only the ``_delta_log`` of a buffer or a compaction is ever deleted here. The data files of a published buffer are the
table's. A full VACUUM of the table takes the files of an abandoned one after the table's retention.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import CorruptLogError, InvalidWriteError, ObjectNotFoundError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, StagedRecord, of_kind, parse_actions, version_path
from airflow_provider_onelake.log.commits import COMPACTION, FORMAT, STAGED
from airflow_provider_onelake.staging.buffers import close
from airflow_provider_onelake.staging.layout import attempt_directory, is_staged, marker_path
from airflow_provider_onelake.staging.published import find_published
from airflow_provider_onelake.staging.spec import WriteSpec
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import ObjectInfo, Store

logger = logging.getLogger(__name__)


class State(StrEnum):
    """How far a buffer or a compaction has come."""

    IN_FLIGHT = "in flight"
    CLOSED = "closed"
    ABANDONED = "abandoned"
    STRANGE = "not ours"


@attrs.frozen
class Staged:
    """A buffer, or the shadow of a compaction, as a listing shows it.

    :param path: relative to the table.
    :param owner: ``writer <key>``, ``compaction <name>``, or what is known of a strange one.
    :param state: how far it has come.
    :param age: time since the last of its objects was written; for a closed one, that object is the marker.
    :param began: the store's time of its version 0, ``None`` where there is none.
    :param ended: the store's time of its version 1, ``None`` where there is none.
    :param entries: the objects of its log.
    :param unmarked: the terms of a writer whose ``txn`` is in the table, where the buffer's marker is missing.
    """

    path: str
    owner: str
    state: State
    age: timedelta
    began: datetime | None
    ended: datetime | None
    entries: tuple[str, ...] = attrs.field(repr=False)
    unmarked: WriteSpec | None = attrs.field(default=None, repr=False)


@attrs.frozen
class Remains:
    """A buffer or a compaction whose own log was deleted.

    :param path: relative to the table.
    :param writer: the writer's key, or ``compaction <name>``.
    :param age: time since the last of its objects was written; for a closed one, that object is the marker.
    :param abandoned: whether it was neither published nor set aside; its files wait for a full VACUUM.
    """

    path: str
    writer: str
    age: timedelta
    abandoned: bool


def clean_up(log: DeltaLog, older_than: timedelta) -> list[Remains]:
    """Delete the logs of closed buffers and compactions, and of open or complete ones that were abandoned.

    The markers of closed buffers stay, and a missing one is written, as a rerun reads from them where its rows are.
    Calling again is safe.

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
    cleaned = []
    for staged in survey(log, snapshot, listing, older_than):
        if staged.age < older_than or staged.state is State.IN_FLIGHT:
            continue
        if staged.state is State.STRANGE:
            logger.info("%s: %s is left alone: %s", log.table, staged.path, staged.owner)
            continue
        if staged.unmarked is not None:
            _mark(log, snapshot, staged.path, staged.unmarked)
        # Delete version 0 last, so that the next clean-up can carry on an interrupted one.
        for entry in sorted(staged.entries, reverse=True):
            log.store.delete(entry)
        abandoned = staged.state is State.ABANDONED
        cleaned.append(Remains(staged.path, staged.owner.removeprefix("writer "), staged.age, abandoned))
        if abandoned:
            logger.warning(
                "%s: %s of %s was abandoned %s ago; a full VACUUM takes its files",
                log.table,
                staged.path,
                staged.owner,
                staged.age,
            )
    return cleaned


def check_age(older_than: timedelta) -> None:
    """Refuse an age that does not tell abandoned buffers from work in progress.

    :param older_than: the age after which a buffer that is not closed counts as abandoned.
    :raises InvalidWriteError: it is not above zero.
    """
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
    below = (info for info in listing if is_staged(info.path))
    found: list[Staged] = []
    compactions: set[str] = set()
    for path, objects in groupby(below, lambda info: attempt_directory(info.path)):
        present = {info.path: info for info in objects}
        entries = tuple(entry for entry in present if entry.startswith(f"{path}/{LOG_DIRECTORY}/"))
        if not entries:
            continue
        began, ended = present.get(f"{path}/{version_path(0)}"), present.get(f"{path}/{version_path(1)}")
        # The last object of a closed buffer is its marker; of any other buffer, what its writer wrote last.
        age = now - max(info.modified for info in present.values())
        marked = marker_path(path) in present
        # Common case: closed recently. Skip reading version 0 for the owner.
        owner, state, spec = (
            (path, State.CLOSED, None) if marked and age < abandoned_after else _state(log.store, path, snapshot)
        )
        unmarked = spec if state is State.CLOSED and not marked else None
        if state is State.IN_FLIGHT and marked:
            state = State.CLOSED
        elif state is State.IN_FLIGHT and age >= abandoned_after:
            state = State.ABANDONED
            compactions.update({path} if spec is None else ())
        times = (began.modified if began else None, ended.modified if ended else None)
        found.append(Staged(path, owner, state, age, *times, entries, unmarked))
    live = _with_live_files(log, snapshot, compactions)
    return [attrs.evolve(staged, state=State.CLOSED) if staged.path in live else staged for staged in found]


def _with_live_files(log: DeltaLog, snapshot: Snapshot, compactions: Collection[str]) -> set[str]:
    """Return the compactions with live files: they were published, but their marker was not written."""
    if not compactions:
        return set()
    files = log.live_files(lambda add: attempt_directory(add["path"]) in compactions, snapshot.version)
    return {attempt_directory(file["path"]) for file in files}


def _mark(log: DeltaLog, snapshot: Snapshot, path: str, spec: WriteSpec) -> None:
    """Write the marker that a committer could not write, if the log still says where the rows are."""
    found = find_published(log, spec.identity, spec.generation, snapshot)
    if found is not None and found.record.buffer == path:
        close(log.store, path, found.marker(snapshot.table_id))


def _state(store: Store, path: str, snapshot: Snapshot) -> tuple[str, State, WriteSpec | None]:
    """Return the owner, the state by the table's ``txn``, and the terms of a writer."""
    try:
        actions = parse_actions(store.get(f"{path}/{version_path(0)}"), f"Version 0 of {path}")
        infos = of_kind(actions, "commitInfo")
        record: StagedRecord = (infos[0].get(STAGED) if infos else None) or {}
        if record.get("format") != FORMAT:
            return f"no buffer of this format (wanted {FORMAT})", State.STRANGE, None
        if COMPACTION in record:
            return f"compaction {record[COMPACTION].get('name') or path}", State.IN_FLIGHT, None
        spec = WriteSpec.from_json(record["spec"])
    except ObjectNotFoundError:
        return "it has a log without a version 0", State.STRANGE, None
    except (CorruptLogError, KeyError, TypeError, ValueError, AttributeError, InvalidWriteError) as error:
        return f"its version 0 cannot be read: {error}", State.STRANGE, None
    # The marker may be missing because the store did not answer. The txn is what counts.
    settled = snapshot.txns.get(spec.identity.app_id, 0) >= spec.generation
    return f"writer {spec.identity.key}", State.CLOSED if settled else State.IN_FLIGHT, spec
