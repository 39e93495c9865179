"""Where the rows of a load's other writers are.

Writers that are published together are colleagues: none of them replaces the rows of another. Other writers of the load
are rivals, whose rows a policy weighs. Either way their rows are in files of their own directories, until a compaction
or a statement moves them into files that may hold others' rows as well (protocol: whole writes).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime

import attrs

from airflow_provider_onelake.commit.transaction import View
from airflow_provider_onelake.exceptions import ConflictError, LogGapError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, Add, Remove, object_path, total_rows
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.log.replay import ENTRY
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.staging.buffers import markers
from airflow_provider_onelake.staging.identity import WriterIdentity
from airflow_provider_onelake.staging.layout import WriterDirectory, writer_directory
from airflow_provider_onelake.staging.published import MOST_FOLLOWED, Publishing, find_published, moved
from airflow_provider_onelake.storage.at_once import each


@attrs.define(eq=False)
class RowsOfLoad:
    """Knows from attempt to attempt where the rows of a load's writers are, and follows each commit once.

    :param _rows: by the directories of the writers; ``None`` for one whose rows nobody can follow.
    """

    _log: DeltaLog
    _rows: dict[str, _Rows | None] = attrs.field(factory=dict)

    def check_apart(
        self, colleagues: Iterable[WriterIdentity], removable: Collection[Add], names: str, view: View
    ) -> None:
        """Refuse to remove a file that holds rows of a colleague, or may hold them.

        :param colleagues: writers whose rows are to stay.
        :param removable: the files that a batch would remove, without those in the colleagues' directories.
        :param names: of the batch's writers, as messages list them.
        :param view: that is decided on; it has all winners.
        :raises ConflictError: there is such a file.
        """
        if not removable:
            return
        published = [identity for identity in colleagues if identity.app_id in view.snapshot.txns]
        self._begin([identity for identity in published if identity.directory not in self._rows], view.snapshot)
        paths = frozenset(map(object_path, removable))
        for identity in published:
            rows = self._followed(identity, view)
            mixed = min(paths & rows.elsewhere, default=None) if rows is not None else None
            if rows is None or mixed is not None:
                where = f"its files were rewritten since: {mixed} may hold rows of it now"
                raise ConflictError(
                    f"Writer {identity.key!r} of load {identity.load.id} was published in {self._log.table} before, "
                    f"and {where if mixed else 'the log no longer says which files hold its rows now'}. They cannot "
                    f"be told from the rows that {names} replace. Nothing was published: clear all writers of the load."
                )

    def _followed(self, identity: WriterIdentity, view: View) -> _Rows | None:
        rows = self._rows[identity.directory]
        if rows is not None:
            rows.follow(view.winners)
        return rows

    def _begin(self, colleagues: Collection[WriterIdentity], snapshot: Snapshot) -> None:
        landed: dict[int, datetime] | None = None
        read = each(self._log.store, lambda identity: tuple(markers(self._log.store, identity.directory)), colleagues)
        for identity, known in zip(colleagues, read, strict=True):
            rows = None
            found = find_published(self._log, identity, snapshot.txns[identity.app_id], snapshot, known)
            if found is not None:
                # The commit that merged rows tells where they are.
                since: int | None = found.version - found.record.merged
                if found.record.generation > 1:
                    landed = _landed(self._log) if landed is None else landed
                    since = _before_first_claim(self._log, identity, found.version, landed)
                rows = _follow_from(self._log, identity, found, since, snapshot)
            # It comes last: where the store does not answer before, the next attempt asks again.
            self._rows[identity.directory] = rows


@attrs.define(eq=False)
class _Rows:
    """The files outside of a writer's directory that hold its rows, where they are live, or may hold them.

    The writer's older generations count too: where a newer one was set aside, their rows are still in the table. Rows
    that were merged are in files of the commit that merged them, with rows of others.

    :param version: up to which commits were followed.
    :param elsewhere: the paths, as the store names them, of all files that ever did. A RESTORE may bring each of them
        back; and a file stays live if a ``remove`` spells its path otherwise.
    """

    _writer: WriterIdentity
    _partitioning: Partitioning
    version: int
    elsewhere: frozenset[str] = frozenset()

    def follow(self, commits: Iterable[Commit]) -> None:
        """Follow the rows through those commits that were not followed before.

        :param commits: in the order of versions.
        """
        for commit in commits:
            if commit.version <= self.version:
                continue
            taken = [file for file in commit.removes if self._is_own(file) or object_path(file) in self.elsewhere]
            added = moved(commit, taken, self._partitioning)
            if commit.merger is not None and commit.merger.app_id == self._writer.app_id:
                added += filter(Publishing(commit.version, commit.merger).has, commit.adds)
            self.elsewhere |= {object_path(add) for add in added if not self._is_own(add)}
            self.version = commit.version

    def _is_own(self, file: Add | Remove) -> bool:
        return writer_directory(file["path"]) == self._writer.directory


def _follow_from(
    log: DeltaLog, identity: WriterIdentity, found: Publishing, since: int | None, snapshot: Snapshot
) -> _Rows | None:
    """Follow a writer's rows up to a snapshot, or return ``None`` if nobody can.

    Where the log does not reach back, the rows of a writer's only generation have not moved if all of them are live
    where they were.

    :param since: a version that is older than all that the writer published; ``None`` if there is none that is known.
    """
    if since is not None and snapshot.version - since <= MOST_FOLLOWED:
        with suppress(LogGapError):
            rows = _Rows(identity, snapshot.partitioning, since)
            rows.follow(log.commits_between(since, snapshot.version))
            return rows
    own = log.live_files(lambda add: writer_directory(add["path"]) == identity.directory, snapshot.version)
    alone = found.record.generation == 1 and not found.record.merged
    if not alone or found.record.rows is None or total_rows(own) != found.record.rows:
        return None
    return _Rows(identity, snapshot.partitioning, snapshot.version)


def _before_first_claim(
    log: DeltaLog, identity: WriterIdentity, version: int, landed: Mapping[int, datetime]
) -> int | None:
    """Return a version that is older than all that a writer published, by the store's clock.

    :param version: in which the writer published something.
    :param landed: when the log's entries came into the store, by version.
    :returns: ``None`` where the first claim is gone, the log does not reach back to it, or the times do not say.
    """
    directory = WriterDirectory.read(log.store, identity.directory)
    if 1 not in directory.claims:
        return None
    claimed = directory.objects[directory.claims[1]].modified
    if version not in landed or landed[version] < claimed:
        # The times do not fit, as in a table that was copied.
        return None
    earlier = [number for number, modified in landed.items() if modified < claimed]
    return max(earlier, default=-1 if 0 in landed else None)


def _landed(log: DeltaLog) -> dict[int, datetime]:
    entries = ((ENTRY.match(info.path), info.modified) for info in log.store.list(LOG_DIRECTORY))
    return {int(entry[1]): modified for entry, modified in entries if entry}
