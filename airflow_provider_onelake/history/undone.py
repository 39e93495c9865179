"""Whether a statement stands: a RESTORE takes back what its commit did, and leaves the commit and its ``txn``."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from airflow_provider_onelake.history.published import UNDOING
from airflow_provider_onelake.log.actions import FileKey, Metadata, file_key, object_path
from airflow_provider_onelake.log.commits import Commit


def is_undone(ours: Commit, later: Sequence[Commit]) -> bool:
    """Say whether the table is as it was before a commit, but for what came after a RESTORE.

    :param ours: the commit.
    :param later: all commits after it, in order.
    """
    gone = {object_path(file) for file in ours.removes}
    # The states of these files that came after the commit: a RESTORE to one of them does not undo it.
    since = {file_key(file) for file in ours.adds}
    stayed = {object_path(file) for file in ours.adds}
    undone_at = {ours.version - 1: True, ours.version: False}
    undone = False
    contents = _Contents.of(ours) if any(map(_names_a_time, later)) else None
    for commit in later:
        if contents is not None:
            contents.apply(commit)
        target = commit.restored_to
        if target is not None:
            undone = undone_at.get(target, True)
        elif contents is not None and _names_a_time(commit):
            # Versions with the same contents are one, so if one of them has the statement, the table has it.
            undone = all(undone_at[version] for version in contents.versions_like(commit.version))
        else:
            for add in commit.adds:
                if object_path(add) not in gone or file_key(add) in since:
                    continue
                if commit.operation in UNDOING or object_path(add) not in stayed:
                    undone = True
                else:
                    since.add(file_key(add))
        undone_at[commit.version] = undone
    return undone


def _names_a_time(commit: Commit) -> bool:
    """Say whether a commit is a RESTORE that was asked for a time: Spark and deltalake do not log the version then."""
    return commit.operation == "RESTORE" and commit.restored_to is None


@attrs.define
class _Contents:
    """What every version since a statement holds: how its files differ from before the statement, and its definition.

    :param _before: whether the version before the statement had a file, of the files that were touched since.
    :param _now: whether the newest version has it.
    :param _differ: a digest of the files in which the two differ.
    :param _definition: the definition, if a commit since has set it.
    :param _versions: the contents of every version.
    """

    _before: dict[FileKey, bool]
    _now: dict[FileKey, bool]
    _differ: int
    _definition: Metadata | None
    _versions: dict[int, tuple[int, Metadata | None]]

    @classmethod
    def of(cls, statement: Commit) -> _Contents:
        """Begin with the version before a statement, and the statement.

        :param statement: its commit.
        """
        contents = cls({}, {}, 0, None, {statement.version - 1: (0, None)})
        contents.apply(statement)
        return contents

    def apply(self, commit: Commit) -> None:
        """Take in the next commit."""
        # Commits that only describe files anew, such as with row ids, add files that are there.
        again = not commit.removes and not commit.data_change
        for remove in commit.removes:
            self._set(file_key(remove), True, False)
        for add in commit.adds:
            self._set(file_key(add), again, True)
        if commit.metadata is not None:
            known = [definition for _, definition in self._versions.values()]
            taken_back = _names_a_time(commit) and commit.metadata not in known
            self._definition = None if taken_back else commit.metadata
        self._versions[commit.version] = self._differ, self._definition

    def _set(self, key: FileKey, before: bool, now: bool) -> None:
        before = self._before.setdefault(key, before)
        if self._now.get(key, before) != now:
            self._differ ^= hash(key)
        self._now[key] = now

    def versions_like(self, version: int) -> list[int]:
        """Return the versions before one that have its contents; none if only older ones may have."""
        return [other for other, has in self._versions.items() if other < version and has == self._versions[version]]
