"""What a vacuum may delete, decided before Spark is asked to (docs/concepts/how-it-works.md).

Spark's VACUUM knows the table. It knows neither the writers that stage nor the versions that people asked to keep. So
we list the table's directory, leave out what must be spared, and hand Spark the rest as an inventory. Spark deletes a
file only if it is in the inventory *and* unknown to the table by Spark's own rule. So two guards protect every live
file, and each is enough.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.buffer import lifetime
from airflow_provider_onelake.buffers.layout import attempt_directory, is_staged
from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    SparkQueryError,
    SparkSetUpError,
    VacuumRefusedError,
)
from airflow_provider_onelake.log.schema import partition_columns
from airflow_provider_onelake.maintenance.clean_up import Staged, StagedState, check_age, survey
from airflow_provider_onelake.maintenance.inventory import INVENTORY, inventory
from airflow_provider_onelake.maintenance.pinned_versions import PinnedVersion, files_of, pinned_versions
from airflow_provider_onelake.maintenance.referenced import ReferencedFiles, RetentionHorizon, lost_files, referenced
from airflow_provider_onelake.texts import counted

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import ObjectInfo

logger = logging.getLogger(__name__)

SAFE_DAYS = 7.0
"""Delta's default retention, in days. A table with a shorter one is vacuumed only if the caller says so."""

# VACUUM looks into these directories although their names begin with _: they hold files of a version.
_VACUUMED = ("_change_data",)
_ICEBERG_METADATA = "metadata"
_INVENTORY_AGE = timedelta(days=1)
_MOST_AHEAD = timedelta(hours=1)
# Errors by which Spark says that it does nothing more. After any other one, its job may go on without us.
_REFUSED_BY_SPARK = (SparkQueryError, SparkSetUpError)


@attrs.frozen(kw_only=True)
class VacuumTerms:
    """How far a vacuum may go.

    :param lite: take only files that the log says were removed. Default: also files that no commit ever named.
    :param keep_days: spare what was part of the table in the last so many days, if that exceeds its retention.
    :param keep_versions: versions to keep in this vacuum, in addition to those with a record.
    :param release_versions: versions whose record does not count in this vacuum.
    :param abandoned_after: a buffer that is not closed and wrote nothing for this long is abandoned. Default: 7 days,
        or half of the table's retention if that is longer: so long a buffer may be published (protocol: young).
    :param allow_retention_below_seven_days: whether a table with a shorter retention may be vacuumed. Default: no.
    :raises InvalidWriteError: an age is not above zero.
    """

    lite: bool = False
    keep_days: float | None = None
    keep_versions: tuple[int, ...] = ()
    release_versions: tuple[int, ...] = ()
    abandoned_after: timedelta | None = None
    allow_retention_below_seven_days: bool = False

    def __attrs_post_init__(self) -> None:
        if self.abandoned_after is not None:
            check_age(self.abandoned_after)
        if self.keep_days is not None and self.keep_days <= 0:
            raise InvalidWriteError(f"keep_days={self.keep_days!r}: days, above 0. Nothing was deleted.")


@attrs.frozen
class VacuumPlan:
    """What a vacuum is to delete.

    :param table: what messages call it.
    :param now: when it was decided.
    :param version: of the table that it was decided on.
    :param lite: whether only files named by the log are taken.
    :param retention_days: of the table's property.
    :param before: nothing that was part of the table at this instant or later, or was written since, is deleted.
    :param held_by: what determined ``before``, if not the property; in words.
    :param candidates: the objects to delete.
    :param in_flight: buffers and compactions that are spared whole.
    :param abandoned: buffers and compactions that will not be published; their files go once they are old enough.
    :param pinned: versions that stay readable.
    :param spared_files: how many files are spared only for a kept version, or for a buffer or compaction in flight.
    :param spared_bytes: bytes of the spared files.
    :param abandoned_after: the time that was applied, which is at least as long as the slowest writer took.
    :param notes: what people should know.
    """

    table: str
    now: datetime
    version: int
    lite: bool
    retention_days: float
    before: datetime
    held_by: str | None
    candidates: tuple[ObjectInfo, ...] = attrs.field(repr=False)
    in_flight: tuple[Staged, ...] = ()
    abandoned: tuple[Staged, ...] = ()
    pinned: tuple[PinnedVersion, ...] = ()
    spared_files: int = 0
    spared_bytes: int = 0
    abandoned_after: timedelta = timedelta(days=SAFE_DAYS)
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of the candidates."""
        return sum(info.size for info in self.candidates)


@attrs.frozen
class VacuumOutcome:
    """What a vacuum did.

    :param deleted: candidates that are gone.
    :param left: candidates that Spark left, by its own rule.
    """

    deleted: tuple[ObjectInfo, ...] = attrs.field(repr=False)
    left: tuple[ObjectInfo, ...] = attrs.field(repr=False)

    @property
    def bytes(self) -> int:
        """Bytes that were freed."""
        return sum(info.size for info in self.deleted)


def check_clock(log: DeltaLog, name: str) -> None:
    """Refuse a vacuum by a clock that is far ahead of the store's: to it, all that lies there is older than it is.

    :param name: of the inventory: an empty one is put, for the store's time, and deleted.
    :raises VacuumRefusedError: the clock is more than an hour ahead.
    :raises StoreUnavailableError: the store did not answer.
    """
    log.store.put(_path(name), inventory(()))
    theirs, ours = log.store.head(_path(name)).modified, log.clock.now()
    log.store.delete(_path(name))
    if ours - theirs > _MOST_AHEAD:
        raise VacuumRefusedError(
            f"{log.table}: this worker's clock is ahead of its store's: a new object is of {theirs.isoformat()}, and "
            f"the worker says {ours.isoformat()}. A vacuum would take work that is about to be published. Nothing was "
            "deleted: set the worker's clock, and clear this task."
        )


def plan(log: DeltaLog, terms: VacuumTerms | None = None) -> VacuumPlan:
    """Decide what a vacuum may delete. Nothing is changed.

    :param terms: how far it may go.
    :raises TableNotFoundError: there is no table.
    :raises VacuumRefusedError: the retention is too short, a kept version cannot be kept, or the log does not say
        enough to keep what was asked for.
    :raises StoreUnavailableError: the store did not answer.
    """
    terms = terms or VacuumTerms()
    # List before the snapshot is read: then a published buffer that is closed in the listing is in the snapshot.
    listing = list(log.store.list(""))
    now = log.clock.now()
    snapshot = log.snapshot()
    retention = _retention(snapshot, terms, log.table)
    present, abandoned_after = _survey(log, snapshot, listing, terms)
    horizons = _horizons(now, retention, present, terms)
    horizon = min(horizons, key=lambda horizon: horizon.before)
    pinned = _pinned(log, terms)
    in_log = ReferencedFiles(log, snapshot, listing)
    alive = in_log.alive(horizon.before)
    notes = in_log.check_reaches(horizons, now - timedelta(days=retention))
    removed = in_log.ever_removed() if terms.lite else None
    in_flight = [staged for staged in present if staged.state in (StagedState.IN_FLIGHT, StagedState.STRANGE)]
    notes += [f"{staged.path} is spared: {staged.owner}" for staged in in_flight if staged.state is StagedState.STRANGE]
    listed = {info.path for info in listing}
    needed: set[str] = set()
    for version in pinned:
        files = files_of(log, version.version)
        needed.update(referenced(files))
        if lost := lost_files(files, listed):
            notes.append(f"{version} can no longer be read: {len(lost)} of its files are gone, such as {lost[0]}")
    visible, placeholders = _visibility(snapshot), _placeholders(listing)
    at_work = {staged.path for staged in in_flight}
    candidates: list[ObjectInfo] = []
    spared: list[ObjectInfo] = []
    for info in listing:
        if info.modified >= horizon.before or info.path in alive or info.path in placeholders:
            continue
        if not visible(info.path) or (removed is not None and info.path not in removed):
            continue
        is_needed = attempt_directory(info.path) in at_work or info.path in needed
        (spared if is_needed else candidates).append(info)
    if linked := _linked(log.address, candidates):
        candidates = [info for info in candidates if info.path not in linked]
        which = f"{min(linked)} and {counted(len(linked) - 1, 'other')} are" if len(linked) > 1 else f"{min(linked)} is"
        notes.append(f"{which} spared: symbolic links lead there, so it may be somebody's live file. Remove the links")
    return VacuumPlan(
        table=log.address,
        now=now,
        version=snapshot.version,
        lite=terms.lite,
        retention_days=retention,
        before=horizon.before,
        held_by=horizon.held_by,
        candidates=tuple(candidates),
        in_flight=tuple(in_flight),
        abandoned=tuple(staged for staged in present if staged.state is StagedState.ABANDONED),
        pinned=tuple(pinned),
        spared_files=len(spared),
        spared_bytes=sum(info.size for info in spared),
        abandoned_after=abandoned_after,
        notes=tuple(notes),
    )


def carry_out(log: DeltaLog, todo: VacuumPlan, name: str, spark_vacuum: Callable[[str], object]) -> VacuumOutcome:
    """Have Spark delete the candidates of a plan, and see which of them are gone.

    Somebody may pin a version between the plan and the inventory. So look at the pinned versions again once the
    inventory is there: whoever pins one later finds the inventory, and waits until Spark is done. After a failure,
    Spark may go on without us. Then the inventory stays, for :func:`forget` or for the first vacuum a day later.

    :param todo: a plan with candidates.
    :param name: of the inventory: new for every attempt.
    :param spark_vacuum: runs VACUUM with the inventory at a path, relative to the table.
    :raises StoreUnavailableError: the store did not answer; planning again is safe.
    :raises VacuumRefusedError: the log of a version that was pinned meanwhile is gone.
    """
    store, candidates = log.store, todo.candidates
    for left in store.list(INVENTORY):
        # A task that was killed or failed left this inventory. A younger one may still be in use.
        if left.modified < todo.now - _INVENTORY_AGE:
            store.delete(left.path)
    path = _path(name)
    store.put(path, inventory(candidates))
    may_go_on = False
    try:
        if needed := _pinned_since(log, todo):
            candidates = tuple(info for info in candidates if info.path not in needed)
            store.put(path, inventory(candidates))
        if candidates:
            may_go_on = True
            spark_vacuum(path)
            may_go_on = False
    except _REFUSED_BY_SPARK:
        may_go_on = False
        raise
    finally:
        if not may_go_on:
            store.delete(path)
    present = {info.path for info in store.list("")}
    deleted = tuple(info for info in candidates if info.path not in present)
    return VacuumOutcome(deleted, tuple(info for info in candidates if info.path in present))


def forget(log: DeltaLog, name: str) -> None:
    """Delete the inventory of an earlier attempt, whose Spark job is known to have ended.

    :param name: of the inventory.
    """
    log.store.delete(_path(name))


def _path(name: str) -> str:
    return f"{INVENTORY}/{name}.parquet"


def _pinned_since(log: DeltaLog, todo: VacuumPlan) -> set[str]:
    """Return the paths of the files of versions that were pinned after a plan was made."""
    planned = {pinned.version for pinned in todo.pinned}
    late = {pinned.version for pinned in pinned_versions(log)} - planned
    return {path for version in late for path in referenced(files_of(log, version))}


def _retention(snapshot: Snapshot, terms: VacuumTerms, table: str) -> float:
    days = snapshot.retention_days
    if days < SAFE_DAYS and not terms.allow_retention_below_seven_days:
        raise VacuumRefusedError(
            f"{table} keeps deleted files for {days:g} days only (delta.deletedFileRetentionDuration), which is below "
            f"{SAFE_DAYS:g}: readers and other engines' writers that take longer would lose files. Nothing was "
            "deleted: raise the property, or say allow_retention_below_seven_days=True if nobody takes that long."
        )
    return days


def _survey(
    log: DeltaLog, snapshot: Snapshot, listing: list[ObjectInfo], terms: VacuumTerms
) -> tuple[list[Staged], timedelta]:
    """Return the buffers and compactions, and after how long without a write they count as abandoned."""
    usual = max(timedelta(days=SAFE_DAYS), lifetime(snapshot.retention_days))
    silence = usual if terms.abandoned_after is None else terms.abandoned_after
    present = survey(log, snapshot, listing, silence)
    longest = _longest(present)
    if longest <= silence:
        return present, silence
    # Writers of this table are known to take longer, so such a short silence does not show that one is dead.
    return survey(log, snapshot, listing, longest), longest


def _longest(present: Iterable[Staged]) -> timedelta:
    """Return how long the slowest writer took, of those whose beginning and end are known."""
    ours = (staged for staged in present if staged.state is not StagedState.STRANGE)
    took = (staged.ended - staged.began for staged in ours if staged.began and staged.ended)
    return max(took, default=timedelta(0))


def _horizons(now: datetime, retention: float, present: list[Staged], terms: VacuumTerms) -> list[RetentionHorizon]:
    horizons = [RetentionHorizon(now - timedelta(days=retention), None, None)]
    if terms.keep_days is not None:
        asked = f"keep_days={terms.keep_days:g}"
        horizons.append(RetentionHorizon(now - timedelta(days=terms.keep_days), asked, "ask for fewer days"))
    longest = _longest(present)
    # A writer that begins now may take as long as the slowest one we saw. Best effort: never refuse because of it.
    slowest = f"the longest writer took {timedelta(seconds=round(longest.total_seconds()))}"
    horizons.append(RetentionHorizon(now - longest, slowest, None))
    # A writer in flight reads the table as it was when the writer began.
    horizons += (
        RetentionHorizon(
            staged.began,
            f"{staged.owner} is in flight in {staged.path} since {staged.began.isoformat()}",
            "vacuum again when it is settled; if its task is dead, clear it, or give a shorter abandoned_after",
        )
        for staged in present
        if staged.state is StagedState.IN_FLIGHT and staged.began is not None
    )
    return horizons


def _pinned(log: DeltaLog, terms: VacuumTerms) -> list[PinnedVersion]:
    # A person releases what people keep, and not what a task needs while it runs.
    released = terms.release_versions
    recorded = {
        pinned.version: pinned for pinned in pinned_versions(log) if pinned.held or pinned.version not in released
    }
    kept = set(terms.keep_versions).difference(released)
    both = {**{version: PinnedVersion(version, "this vacuum", log.clock.now()) for version in kept}, **recorded}
    return [both[version] for version in sorted(both)]


def _placeholders(listing: Sequence[ObjectInfo]) -> set[str]:
    """Return the empty objects that stand for directories; Hadoop makes them on stores without directories.

    Spark's VACUUM leaves them. Where the files of such a directory are gone, its name tells: it is the name of a
    partition, or it has no suffix.
    """
    empty = [info.path for info in listing if not info.size]
    if not empty:
        return set()
    parents = {info.path[:at] for info in listing for at, letter in enumerate(info.path) if letter == "/"}
    names = {path: path.rpartition("/")[2] for path in empty}
    return {path for path, name in names.items() if path in parents or "=" in name or "." not in name}


def _linked(table: str, candidates: Iterable[ObjectInfo]) -> set[str]:
    """Return the candidates on a local disk to which a symbolic link below the table leads.

    They lie elsewhere: they are files of another table, or of this one by another name, so they may be live.
    """
    if not table.startswith("/"):
        return set()
    home = os.path.realpath(table)
    paths = (info.path for info in candidates)
    return {path for path in paths if os.path.realpath(f"{home}/{path}") != f"{home}/{path}"}


def _visibility(snapshot: Snapshot) -> Callable[[str], bool]:
    """Return a function that says whether VACUUM looks at a path: it does if no name in the path is hidden.

    Spark checks every directory that it lists. It checks a path of an inventory only as a whole, so we check its names.
    """
    split = [*partition_columns(snapshot.metadata), *snapshot.partitioning.types]
    partitions = tuple(f"{name}=" for name in split)
    iceberg = "iceberg" in str(snapshot.configuration.get("delta.universalFormat.enabledFormats", "")).lower()
    hidden = re.compile(r"[._]")

    def visible(path: str) -> bool:
        staged = is_staged(path)
        for depth, name in enumerate(path.split("/")):
            # Below staged, a round of a statement has a directory of changes of its own.
            is_changes = name in _VACUUMED and (depth == 0 or staged)
            if hidden.match(name) and not name.startswith(partitions) and not is_changes:
                return False
            if iceberg and depth == 0 and name == _ICEBERG_METADATA:
                return False
        return True

    return visible
