"""Whose rows a RESTORE took back, and whose it brought back: it leaves each ``txn`` as it is.

Where the log since a writer's rows were published is complete, they are followed from file to file. Where it was
cleaned up, nobody can do that: they may have been compacted. But an earlier plan has noted whether they were in the
table at some version, and only a RESTORE changes that. So the commits since then are enough.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.identity import RETIRED
from airflow_provider_onelake.buffers.layout import writer_directory
from airflow_provider_onelake.exceptions import LogGapError
from airflow_provider_onelake.history.published import (
    Publishing,
    aftermath,
    moved,
    publishings,
    rows_left,
)
from airflow_provider_onelake.history.undone import REPLACING_TABLE, UNDOING
from airflow_provider_onelake.log.actions import object_path
from airflow_provider_onelake.log.directories import Below
from airflow_provider_onelake.planning.ledger import Ledger, Looked

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.identity import WriterIdentity
    from airflow_provider_onelake.log.actions import Add, Remove
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import Partitioning
    from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)


def look_for_restores(log: DeltaLog, ledger: Ledger, snapshot: Snapshot) -> Looked | None:
    """Return what RESTOREs have done to rows that writers of a ledger have loaded.

    :param snapshot: the newest of the table.
    :returns: ``None`` if there was none since a plan has looked.
    """
    if not ledger.writers:
        return None
    try:
        since = log.commits_between(ledger.version, snapshot.version)
    except LogGapError:
        logger.warning(
            "%s: the log since version %d was cleaned up, so nobody knows whether a RESTORE took back rows that "
            "were loaded; they count as loaded",
            log.table,
            ledger.version,
        )
        return None
    if not any(commit.operation in UNDOING for commit in since):
        return None
    look = _Look(log, ledger, snapshot, since)
    gone, back = {}, set()
    for identity in (writer.identity for writer in ledger.writers):
        stored = snapshot.txns.get(identity.app_id)
        if stored is None:
            continue
        why_not = look.why_not_there(identity, stored)
        if why_not is None and stored == RETIRED:
            back.add(identity.app_id)
        elif why_not is not None and stored != RETIRED:
            gone[identity.app_id] = (stored, why_not)
    return Looked(gone, frozenset(back))


@attrs.define(eq=False, slots=False)
class _Look:
    """One look for RESTOREs.

    :param _since: the commits after the newest version in which a plan has looked.
    """

    _log: DeltaLog
    _ledger: Ledger
    _snapshot: Snapshot
    _since: Sequence[Commit]

    def why_not_there(self, identity: WriterIdentity, stored: int) -> str | None:
        """Say why no rows of a writer are in the table; ``None`` if some are, or if no RESTORE took them.

        :param stored: the writer's ``txn``. Of a writer that is retired, nobody reads the words, only whether there are
            some.
        """
        log, snapshot = self._log, self._snapshot
        known = publishings(log, identity, snapshot)
        found = next((each for each in known if each.record.generation == stored), None)
        first = min((each.version for each in known), default=None)
        if first is None or not self._is_logged_since(first):
            # A writer that died before it marked its buffer has its files in the table, and no publishing that is
            # known.
            if identity.directory in self._live or any(rows_left(log, each, snapshot) for each in known):
                return None
            return self._why_not_by_notes(identity, stored, known, first)
        why_not = aftermath(log, found, snapshot).undone if found is not None else "it is retired"
        # To call rows gone that may be there could double them.
        there = why_not is None or any(rows_left(log, each, snapshot) is not False for each in known)
        return None if there else why_not

    def _why_not_by_notes(
        self, identity: WriterIdentity, stored: int, known: Sequence[Publishing], first: int | None
    ) -> str | None:
        """Say the same by what an earlier plan has noted: a RESTORE that left the rows alone changes nothing.

        :param known: where rows of the writer were published, as far as that is known.
        :param first: the first of these versions.
        """
        ledger, app_id = self._ledger, identity.app_id
        generation, noted = ledger.gone.get(app_id, (None, ""))
        had_rows = any(each.record.rows != 0 and not each.record.set_aside for each in known)
        if not had_rows and (known or stored == RETIRED):
            # A writer that waited until it was retired has none that a RESTORE could bring back.
            return noted if stored == RETIRED and app_id not in ledger.back else None
        there = app_id in ledger.back if stored == RETIRED else generation != stored
        if any(app_id in commit.txns for commit in self._since):
            # The notes are of an older generation.
            there = generation is None or any(
                each.record.generation > generation and each.version <= ledger.version for each in known
            )
        rows = _RowsAfterRestore(self._log, identity, self._snapshot.partitioning, first, ledger.version, there)
        rows.through(self._since)
        if rows.there:
            return None
        by = rows.by
        return f"{by.operation} in version {by.version} took its rows back" if by is not None else noted

    @cached_property
    def _live(self) -> set[str]:
        """Directories of the writers of which files are in the table."""
        own = Below(tuple(f"{writer.identity.directory}/" for writer in self._ledger.writers))
        return {writer_directory(file["path"]) for file in self._log.live_files(own, self._snapshot.version)}

    def _is_logged_since(self, version: int) -> bool:
        try:
            self._log.commits_between(version - 1, self._snapshot.version)
        except LogGapError:
            return False
        return True


@attrs.define
class _RowsAfterRestore:
    """Whether rows of a writer are in the table, from commit to commit.

    :param first: the first version with rows of the writer; ``None`` if nobody knows.
    :param noted: the version at which an earlier plan has looked.
    :param there: whether rows of the writer were in the table then.
    :param by: the RESTORE that took them back since; ``None`` if there was none.
    """

    _log: DeltaLog
    _writer: WriterIdentity
    _partitioning: Partitioning
    _first: int | None
    _noted: int
    there: bool
    by: Commit | None = None

    def through(self, since: Sequence[Commit]) -> None:
        """Follow them through the commits after the version that was noted, in order."""
        at = {self._noted: self.there}
        below, moved_into = Below((f"{self._writer.directory}/",)), set[str]()
        # The files of which the commits say whose rows they have.
        known = set[str]()

        def is_among(file: Add | Remove) -> bool:
            return file["path"].startswith(below.directories) or object_path(file) in moved_into

        for commit in since:
            taken = [file for file in commit.removes if is_among(file)]
            if commit.operation in UNDOING:
                there = self._at_target(commit, at)
                if there is None:
                    # Where the rows were there, a file that it removes may have held them.
                    files = [*commit.adds, *commit.removes] if self.there else commit.adds
                    unknown = any(object_path(file) not in known for file in files)
                    there = self._by_files(commit, bool(taken), any(map(is_among, commit.adds)), unknown)
                if self.there and not there:
                    self.by = commit
                self.there = there
            else:
                moved_into.update(map(object_path, moved(commit, taken, self._partitioning)))
                if self._is_published_by(commit):
                    self.there = True
            if commit.operation not in UNDOING and all(object_path(file) in known for file in commit.removes):
                known.update(map(object_path, commit.adds))
            at[commit.version] = self.there

    def _at_target(self, commit: Commit, at: Mapping[int, bool]) -> bool | None:
        """Say whether the rows were there in the version to which a commit took the table back.

        ``None`` if nobody knows.
        """
        if commit.operation in REPLACING_TABLE and commit.operation != "CLONE":
            return False
        target = commit.restored_to
        if target is None:
            return None
        if self._first is not None and target < self._first:
            return False
        if target not in at and target < self._noted:
            try:
                between = self._log.commits_between(target, self._noted)
            except LogGapError:
                return None
            quiet = not any(other.operation in UNDOING or self._is_published_by(other) for other in between)
            return at[self._noted] if quiet else None
        return at.get(target)

    def _by_files(self, commit: Commit, takes: bool, brings: bool, unknown: bool) -> bool:
        """Say whether the rows are there after a commit of which nobody knows to which version it took the table back.

        :param takes: whether it removes a file that is known to hold rows of the writer.
        :param brings: whether it adds one.
        :param unknown: whether it has a file of which nobody knows whether rows of the writer are in it.
        """
        if brings or (self.there and not takes and not unknown):
            return True
        if unknown:
            # The rows may have been compacted into that file. To call them gone could have them loaded twice.
            logger.warning(
                "%s: the log was cleaned up, so nobody knows whether %s in version %d took back, or brought back, rows "
                "of writer %r of run %s; they count as loaded",
                self._log.table,
                commit.operation,
                commit.version,
                self._writer.key,
                self._writer.load.run,
            )
        return unknown

    def _is_published_by(self, commit: Commit) -> bool:
        return commit.txns.get(self._writer.app_id, RETIRED) != RETIRED
