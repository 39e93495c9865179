"""Whether rows are in the table after a RESTORE, where the log since they were published was cleaned up.

Then nobody can follow the rows from file to file: they may have been compacted. But an earlier plan has noted whether
they were in the table at some version, and only a RESTORE changes that. So the commits since then are enough.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import LogGapError
from airflow_provider_onelake.log.actions import object_path
from airflow_provider_onelake.log.directories import Below
from airflow_provider_onelake.staging.identity import RETIRED
from airflow_provider_onelake.staging.published import REPLACING_TABLE, UNDOING, moved

if TYPE_CHECKING:
    from airflow_provider_onelake.log.actions import Add, Remove
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import Partitioning
    from airflow_provider_onelake.staging.identity import WriterIdentity

logger = logging.getLogger(__name__)


def is_logged(log: DeltaLog, version: int, until: int) -> bool:
    """Say whether the log has an entry for each version from one to another."""
    try:
        log.commits_between(version - 1, until)
    except LogGapError:
        return False
    return True


@attrs.define
class Followed:
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

        def holds(file: Add | Remove) -> bool:
            return file["path"].startswith(below.directories) or object_path(file) in moved_into

        for commit in since:
            taken = [file for file in commit.removes if holds(file)]
            if commit.operation in UNDOING:
                there = self._at_target(commit, at)
                if there is None:
                    # Where the rows were there, a file that it removes may have held them.
                    files = [*commit.adds, *commit.removes] if self.there else commit.adds
                    unknown = any(object_path(file) not in known for file in files)
                    there = self._by_files(commit, bool(taken), any(map(holds, commit.adds)), unknown)
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
                self._log.name,
                commit.operation,
                commit.version,
                self._writer.key,
                self._writer.load.run,
            )
        return unknown

    def _is_published_by(self, commit: Commit) -> bool:
        return commit.txns.get(self._writer.app_id, RETIRED) != RETIRED
