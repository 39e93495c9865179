"""Takes a table back to an older version, in one commit that every engine reads as a RESTORE.

The commit adds the files that the version had and the table no longer has, and removes the files that came since. No
file is written or copied, so Spark is not needed. A file counts with its deletion vector: one whose rows were deleted
since is removed with the new vector, and added with the old one.

What the commit leaves as it is now: the protocol, which may only be raised; the ``txn`` of every writer, so a rerun of
a writer whose rows were taken back is refused and not skipped; row ids that were given out; in-commit timestamps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import attrs

from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.entry import Entry, check_paths_relative
from airflow_provider_onelake.commit.loop import Put, Tally, Transactions, View
from airflow_provider_onelake.commit.words import of_task
from airflow_provider_onelake.exceptions import (
    LogGapError,
    OneLakeError,
    RestoreRefusedError,
    VacuumRefusedError,
)
from airflow_provider_onelake.log.actions import Action, Add, FileKey, Metadata, file_key, total_rows
from airflow_provider_onelake.log.commits import Commit, digest_of
from airflow_provider_onelake.log.features import all_features_of, check_supported, features_of
from airflow_provider_onelake.log.schema import column_mapping, constraints
from airflow_provider_onelake.log.snapshot import CLUSTERING_DOMAIN, Snapshot
from airflow_provider_onelake.maintenance.compaction import bytes_of
from airflow_provider_onelake.maintenance.pinned_versions import (
    pin_version,
    record_path,
    records_held,
    release_version,
)
from airflow_provider_onelake.statements.asker import Asker, Earlier
from airflow_provider_onelake.statements.proposal import StatementProposal

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog

logger = logging.getLogger(__name__)

Anchor = tuple[int, str | None]
"""A version, and the digest of its entry; ``None`` where the entry is gone."""

_OPERATION = "RESTORE"
_LASTS = timedelta(days=7)
"""For how long a version stays kept for a try that was killed: for as long as a vacuum spares a silent writer."""
_MOST_COLUMN_ID = "delta.columnMapping.maxColumnId"
# Properties that say what the table has handed out, or since when. They stay as they are now.
_AS_NOW = (
    "delta.enableInCommitTimestamps",
    "delta.inCommitTimestampEnablement",
    "delta.enableRowTracking",
    "delta.rowTracking.",
)


class RestoreStatus(StrEnum):
    """How a restore ended."""

    RESTORED = "restored"
    ALREADY = "already_restored"
    NOTHING_TO_DO = "nothing_to_do"


@attrs.frozen(kw_only=True)
class Restored:
    """How a restore ended.

    :param status: restored now, restored by an earlier try, or nothing to do as the table is as it was.
    :param version: of the table in which the restore stands; ``None`` where nothing was put, or the log no longer says.
    :param restored_to: the version that the table is as.
    :param files_restored: how many files came back, and ``rows_restored`` and ``bytes_restored`` in them. Rows are
        ``None`` where statistics do not say.
    :param files_removed: how many files went, and ``rows_removed`` and ``bytes_removed`` in them.
    :param undone: the versions that came after the restored one, up to the newest that was undone; ``None`` for none.
    """

    status: RestoreStatus
    version: int | None
    restored_to: int
    files_restored: int = 0
    rows_restored: int | None = 0
    bytes_restored: int = 0
    files_removed: int = 0
    rows_removed: int | None = 0
    bytes_removed: int = 0
    undone: tuple[int, int] | None = None
    lost_races: int = 0


def restore(
    transactions: Transactions,
    version: int,
    seen: Snapshot,
    asker: Asker,
    *,
    on_newer_commit: OnNewerCommit,
    decided_on: Anchor | None = None,
) -> Restored:
    """Take a table back to a version.

    While it works, the version is pinned, so that no vacuum of ours takes its files.

    :param version: to go back to.
    :param seen: the snapshot on which the caller decided to go back.
    :param asker: who asks, and which start of the task it is. A start that finds its ``txn`` in the table does nothing.
    :param on_newer_commit: what happens if commits came after that: they are undone too, or the restore is refused.
    :param decided_on: what an earlier try saw when it decided to go back. Default: ``seen``.
    :raises RestoreRefusedError: the table is not taken back; the message says why.
    :raises ZombieWriterError: a newer start of the task is in the table.
    :raises RerunRefusedError: an earlier try of the start did it, and that was taken back since.
    :raises UnsupportedFeatureError: the table has a feature outside the allow-list, or files with absolute paths.
    :raises CommitContentionError: others were faster in every attempt; nothing was changed.
    :raises VacuumAtWorkError: a vacuum is deleting files of the version. A retry sees what is left.
    :raises StoreUnavailableError: the store did not answer until the budget was used up. A retry settles it.
    """
    log = transactions.log
    holder = digest_of(f"{asker.app_id} {asker.generation}".encode())
    own = f"{holder}{uuid4().hex}"
    if (before_us := asker.done_before(log, _name(version), seen)) is not None:
        # A try that was killed after its commit left its record.
        _release(log, version, holder)
        return _already(before_us, version)
    anchor = anchor_of(log, seen)
    decided_on = decided_on or anchor
    if not 0 <= version <= seen.version:
        raise RestoreRefusedError(
            f"{log.table} has no version {version}; its newest is {seen.version}. Nothing was changed."
        )
    try:
        before = log.snapshot_at(version)
        # Two tries may be at work. The one that ends first must not let go of what the other one keeps.
        pin_version(log, version, asker.by, holder=own, lasts=_LASTS)
    except (LogGapError, VacuumRefusedError) as error:
        raise RestoreRefusedError(
            f"{log.table} cannot be taken back to version {version}: {error} Nothing was changed."
        ) from error
    done = None
    try:
        files = log.live_files(lambda add: True, version)
        anchors = decided_on, anchor
        done = transactions.commit(_Restore(transactions, before, files, anchors, asker, on_newer_commit))
        return done
    finally:
        # Once the txn is in the table, no try of this start puts anything more.
        is_in_table = done is not None and done.status is not RestoreStatus.NOTHING_TO_DO
        _release(log, version, holder if is_in_table else own)


def _release(log: DeltaLog, version: int, holder: str) -> None:
    """Release the version. A failure is only logged, because it says nothing about the restore.

    :param holder: of one try, or what the holders of all tries of a start begin with.
    """
    try:
        for name, pinned in records_held(log, holder):
            release_version(log, pinned.version, holder=name)
    except OneLakeError as error:
        logger.warning(
            "%s: version %d stays kept for %d days, as the record of this restore was not removed: %s. Delete %s to "
            "end it sooner; release_versions of a vacuum leaves it alone, as the task may be running.",
            log.table,
            version,
            _LASTS.days,
            error,
            record_path(version, f"{holder}*"),
        )


class _Restore(StatementProposal[Restored]):
    """One call of :func:`restore`.

    :param anchors: of the table to restore. Commits after the first came after the restore was decided on.
    """

    def __init__(
        self,
        transactions: Transactions,
        before: Snapshot,
        files: Iterable[Add],
        anchors: tuple[Anchor, ...],
        asker: Asker,
        on_newer_commit: OnNewerCommit,
    ) -> None:
        super().__init__(transactions, asker, _OPERATION, _name(before.version))
        self._before, self._anchors, self._on_newer_commit = before, anchors, on_newer_commit
        self._then: Mapping[FileKey, Add] = {file_key(file): file for file in files}
        check_paths_relative(self._then.values(), self._log.table)
        self._since, _ = anchors[0]
        # A table that was made again may not have that version. It is refused when it is looked at.
        self.read_version = min(version for version, _ in anchors)
        self._nothing = Restored(status=RestoreStatus.NOTHING_TO_DO, version=None, restored_to=before.version)
        self._put = self._nothing

    def decide(self, view: View) -> Put | Restored:
        """Put what differs between the newest snapshot and the version to go back to."""
        snapshot, table = view.snapshot, self._log.table
        if (earlier := self.done_before(snapshot)) is not None:
            return _already(earlier, self._before.version)
        self._check_same_table(snapshot)
        snapshot.check_supported(table)
        self._check_nothing_newer(view)
        self._check_definition(snapshot)
        now = {file_key(file): file for file in self.files(view)}
        back = [file for key, file in self._then.items() if key not in now]
        gone = [file for key, file in now.items() if key not in self._then]
        definition = list(_definition(self._before, snapshot))
        for action in definition:
            if "metaData" in action:
                # A property of then may need a feature that the protocol of now does not have.
                check_supported(
                    snapshot.protocol,
                    action["metaData"],
                    f"{table} as it was in version {self._before.version}",
                    iceberg_may_be_stale=snapshot.iceberg_may_be_stale,
                )
        if not (back or gone or definition):
            self._put = self._nothing
            return self.nothing(self._says(), snapshot) or self._put
        if snapshot.append_only and gone:
            raise RestoreRefusedError(
                f"{table} is append-only (delta.appendOnly), and files came since version {self._before.version}. "
                "Nothing was changed: unset the property first."
            )
        check_paths_relative(gone, table)
        self._put = self._result(back, gone, snapshot)
        return Put(self._entry(back, gone, definition, snapshot), snapshot)

    def committed(self, version: int, tally: Tally) -> Restored:
        """Return what was restored.

        :param version: in which the restore stands.
        """
        found = self._put.status is not RestoreStatus.NOTHING_TO_DO
        return attrs.evolve(self._put, version=version if found else None, lost_races=tally.lost_races)

    def _check_same_table(self, snapshot: Snapshot) -> None:
        """Refuse to put a version's files into another table that was made at the same place (protocol: same table)."""
        for version, digest in self._anchors:
            now = self._log.digest(version)
            # An entry that was cleaned up behind a checkpoint tells nothing.
            if snapshot.version < version or (digest is not None and now is not None and now != digest):
                raise RestoreRefusedError(
                    f"{self._log.table} was dropped and made again while it was taken back to version "
                    f"{self._before.version}. The new table was not changed."
                )

    def _check_nothing_newer(self, view: View) -> None:
        if self._on_newer_commit is OnNewerCommit.UNDO:
            return
        ways = "Nothing was changed: look at it, and clear this task; or set on_newer_commit='undo'."
        if not view.complete:
            raise RestoreRefusedError(
                f"The log of {self._log.table} after version {self._since}, which this restore was decided on, was "
                f"cleaned up, so nobody knows what it would undo. {ways}"
            )
        # What an earlier try of this task did is not in the way. What somebody has undone of it since is.
        newer = next(
            (commit for commit in view.winners if _changes(commit) and self.asker.app_id not in commit.txns), None
        )
        if newer is not None:
            raise RestoreRefusedError(
                f"Version {newer.version} of {self._log.table}, by {newer.author}, came after this restore was decided "
                f"on version {self._since}, and would be undone by it. {ways}"
            )

    def _check_definition(self, snapshot: Snapshot) -> None:
        before, table = self._before, self._log.table
        needed = features_of(before.protocol).union(["checkConstraints"] if constraints(before.metadata) else [])
        dropped = needed - all_features_of(snapshot.protocol)
        if dropped:
            raise RestoreRefusedError(
                f"{table} cannot be taken back to version {before.version}: the feature {', '.join(sorted(dropped))} "
                "was dropped since, and files of that version may need it. Nothing was changed: read that version by "
                "time travel, and overwrite the table with it."
            )
        if column_mapping(before.metadata) != column_mapping(snapshot.metadata):
            raise RestoreRefusedError(
                f"{table} cannot be taken back to version {before.version}: its column mapping was "
                f"{column_mapping(before.metadata)!r} then and is {column_mapping(snapshot.metadata)!r} now, so files "
                "written since could not be told by their columns. Nothing was changed."
            )

    def _result(self, back: list[Add], gone: list[Add], snapshot: Snapshot) -> Restored:
        undone = (self._before.version + 1, snapshot.version)
        return Restored(
            status=RestoreStatus.RESTORED,
            version=None,
            restored_to=self._before.version,
            files_restored=len(back),
            rows_restored=total_rows(back),
            bytes_restored=bytes_of(back),
            files_removed=len(gone),
            rows_removed=total_rows(gone),
            bytes_removed=bytes_of(gone),
            undone=undone if undone[0] <= undone[1] else None,
        )

    def _entry(self, back: list[Add], gone: list[Add], definition: list[Action], snapshot: Snapshot) -> Entry:
        returned: list[Add] = [{**file, "dataChange": True} for file in back]
        # Files that come back keep their row ids. Those from before the table tracked rows get some.
        kept = [file for file in returned if snapshot.has_row_tracking and "baseRowId" in file]
        return self._says(
            metrics={
                "tableSizeAfterRestore": bytes_of(self._then.values()),
                "numOfFilesAfterRestore": len(self._then),
                "numRestoredFiles": len(back),
                "restoredFilesSize": bytes_of(back),
                "numRemovedFiles": len(gone),
                "removedFilesSize": bytes_of(gone),
            },
            definition=definition,
            removed=gone,
            with_row_ids=kept,
            added=[file for file in returned if not snapshot.has_row_tracking or "baseRowId" not in file],
        )

    def _says(self, **what: Any) -> Entry:
        version = self._before.version
        told = of_task(self.asker.by, f"back to version {version}", self.asker.message)
        return self.entry({}, parameters={"version": str(version)}, message=told, **what)


def anchor_of(log: DeltaLog, snapshot: Snapshot) -> Anchor:
    """Return what tells a table from one that is made again at the same place.

    :param snapshot: the newest.
    """
    return snapshot.version, log.digest(snapshot.version)


def _changes(commit: Commit) -> bool:
    """Say whether a commit changes rows or the definition. A compaction does not, nor does what we keep as it is."""
    return bool(commit.data_change or commit.metadata or commit.protocol or CLUSTERING_DOMAIN in commit.domains)


def _name(version: int) -> str:
    return f"the restore of version {version}"


def _already(earlier: Earlier, restored_to: int) -> Restored:
    if earlier.nothing:
        return Restored(status=RestoreStatus.NOTHING_TO_DO, version=None, restored_to=restored_to)
    # Nobody knows in which version it was done if the log since then was cleaned up.
    version = earlier.commit.version if earlier.commit is not None else None
    return Restored(status=RestoreStatus.ALREADY, version=version, restored_to=restored_to)


def _definition(before: Snapshot, now: Snapshot) -> Iterable[Action]:
    """Yield the actions that bring the columns, the properties and the clustering columns back."""
    metadata = _metadata(before.metadata, now.metadata)
    if metadata != now.metadata:
        yield {"metaData": metadata}
    then, current = before.domains.get(CLUSTERING_DOMAIN), now.domains.get(CLUSTERING_DOMAIN)
    if then is not None and then != current:
        yield {"domainMetadata": then}
    elif then is None and current is not None:
        yield {"domainMetadata": {**current, "removed": True}}


def _metadata(before: Metadata, now: Metadata) -> Metadata:
    then, current = before.get("configuration") or {}, now.get("configuration") or {}
    configuration = {name: value for name, value in then.items() if not name.startswith(_AS_NOW)}
    configuration |= {name: value for name, value in current.items() if name.startswith(_AS_NOW)}
    # A number that was ever given to a column must not be given to another one.
    # Spark lets a person set the property to anything where the table has no column mapping.
    given = [most for properties in (then, current) if (most := properties.get(_MOST_COLUMN_ID, "")).isdecimal()]
    if given:
        configuration[_MOST_COLUMN_ID] = max(given, key=int)
    return {**before, "configuration": configuration}
