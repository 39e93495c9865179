"""Where a writer's rows were published before, and whether they are still there as they were.

Protocol: skip only what is there, take back whole.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.layout import changes_directory
from airflow_provider_onelake.buffers.markers import markers
from airflow_provider_onelake.exceptions import InvalidWriteError, LogGapError, RerunRefusedError
from airflow_provider_onelake.history.undone import UNDOING
from airflow_provider_onelake.log.actions import Add, FileKey, Remove, file_key, object_path, row_count, total_rows
from airflow_provider_onelake.log.commits import PublishedWriter
from airflow_provider_onelake.log.directories import Below
from airflow_provider_onelake.log.partitions import PartitionPredicate
from airflow_provider_onelake.storage.clock import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from airflow_provider_onelake.buffers.identity import WriterIdentity
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import Partitioning
    from airflow_provider_onelake.log.snapshot import Snapshot

WAYS = (
    "on_rerun='append' adds the rows again, 'replace' takes the earlier ones back first, and the modes overwrite, "
    "overwrite_partitions and replace_where replace what is there"
)
"""What a person can do where a rerun cannot be skipped."""

AFRESH = ("WRITE", *UNDOING)
"""Operations whose new files hold no rows of the files that they remove.

Of ``WRITE`` this holds unless it replaced rows by a predicate on data columns.
"""

_WITHIN_PARTITIONS = ("WRITE", "DELETE", "OPTIMIZE", "REORG")
"""Operations that leave a row in its partition, wherever they write it."""

_DELETED_BY = {
    "DELETE": ("numDeletedRows", "num_deleted_rows"),
    "MERGE": ("numTargetRowsDeleted", "num_target_rows_deleted"),
}
"""What Spark, and deltalake, call the number of rows that a statement has deleted."""

_BRINGING_BACK = ("RESTORE", "CLONE")
"""Of these operations, the ones that may bring back rows that an older commit had."""

MOST_FOLLOWED = 1000
"""Through how many commits rows are followed without need: each commit costs a request to the store."""


@attrs.frozen
class Publishing:
    """Where a writer's rows were published.

    :param version: of the table.
    :param record: what the commit records of the writer.
    """

    version: int
    record: PublishedWriter

    @property
    def has(self) -> Below:
        """Says whether a file of the table came with the writer's rows.

        That is a file of the buffer that was published; of rows that were merged, one that a round of theirs wrote. A
        file of a round has rows of others too.
        """
        return Below((f"{changes_directory(self.record.app_id) if self.record.merged else self.record.buffer}/",))

    def marker(self, table_id: str) -> dict[str, object]:
        """Return what the marker of the writer's buffer says.

        :param table_id: of the table whose version it is: a table that is made again counts from 0 again.
        """
        return {"version": self.version, "table": table_id, "writer": self.record.to_json()}


def find_published(
    log: DeltaLog,
    identity: WriterIdentity,
    generation: int,
    snapshot: Snapshot,
    known: Iterable[Mapping[str, Any]] | None = None,
) -> Publishing | None:
    """Return where a writer's rows were published, or ``None`` where neither a marker nor the log says.

    :param generation: to look for.
    :param snapshot: the newest of the table.
    :param known: the markers of the writer's buffers. Default: they are read.
    """
    marked = _marked(log, identity, snapshot, markers(log.store, identity.directory) if known is None else known)
    found = next((each for each in marked if each.record.generation == generation), None)
    if found is None and (commit := commit_that_set(log, identity.app_id, generation, snapshot)) is not None:
        found = record_of(identity, [commit])
    return found


def publishings(
    log: DeltaLog, identity: WriterIdentity, snapshot: Snapshot, known: Iterable[Mapping[str, Any]] | None = None
) -> list[Publishing]:
    """Return where the rows of all generations of a writer were published, the newest first, as far as markers say.

    :param snapshot: the newest of the table.
    :param known: the markers of the writer's buffers. Default: they are read.
    """
    found = _marked(log, identity, snapshot, markers(log.store, identity.directory) if known is None else known)
    return sorted(found, key=lambda each: each.version, reverse=True)


def still_there(
    log: DeltaLog, identity: WriterIdentity, snapshot: Snapshot, known: Iterable[Mapping[str, Any]] | None = None
) -> Publishing | None:
    """Return the newest publishing of a writer whose rows are in the table, as far as markers and the log say.

    It need not be of the generation that the writer's ``txn`` names: a RESTORE leaves each ``txn`` as it is, and a
    newer generation may have added its rows beside the older ones.

    :param snapshot: the newest of the table.
    :param known: the markers of the writer's buffers. Default: they are read.
    """
    return next(
        (
            found
            for found in publishings(log, identity, snapshot, known)
            if found.record.rows != 0 and not found.record.set_aside and aftermath(log, found, snapshot).gone is False
        ),
        None,
    )


def _marked(
    log: DeltaLog, identity: WriterIdentity, snapshot: Snapshot, known: Iterable[Mapping[str, Any]]
) -> Iterator[Publishing]:
    """Yield where rows of a writer were published in this table.

    :param known: the markers of the writer's buffers.
    """
    for marker in known:
        if marker.get("version") is None or "writer" not in marker:
            continue
        record = PublishedWriter.from_json(marker["writer"])
        found = Publishing(int(marker["version"]), record)
        if found.version > snapshot.version:
            continue  # A rerun was published after the snapshot.
        if record.app_id == identity.app_id and (marker.get("table") == snapshot.table_id or _is_logged(log, found)):
            yield found


def record_of(identity: WriterIdentity, winners: Sequence[Commit]) -> Publishing | None:
    """Return the newest record of a writer among some commits, or ``None``.

    :param winners: in the order of versions.
    """
    records = (
        Publishing(winner.version, writer)
        for winner in reversed(winners)
        for writer in winner.all_writers
        if writer.app_id == identity.app_id
    )
    return next(records, None)


def commit_that_set(log: DeltaLog, app_id: str, generation: int, snapshot: Snapshot) -> Commit | None:
    """Return the commit that set a writer's ``txn`` to a generation; ``None`` where the log does not reach so far back.

    :param app_id: of the ``txn``.
    :param snapshot: the newest of the table.
    """
    version = snapshot.version
    while version >= 0 and (commit := log.commit(version)) is not None:
        if commit.txns.get(app_id) == generation:
            return commit
        version -= 1
    return None


def _is_logged(log: DeltaLog, found: Publishing) -> bool:
    """Say whether the log has a publishing. A table that was dropped and made again has another log.

    A marker lies beside the table, so it may be older than the table.
    """
    commit = log.commit(found.version)
    return commit is not None and commit.txns.get(found.record.app_id) == found.record.generation


def restored_away(
    log: DeltaLog, found: Publishing, snapshot: Snapshot, operations: Sequence[str] = UNDOING
) -> str | None:
    """Say which operation took published rows back without taking back their ``txn``, or ``None``.

    Protocol: skip only what is there. An operation that left the rows alone does not count, nor one after which all of
    them came back. One that took some of them counts. What other statements did is for :func:`aftermath` to say.

    :param found: where the rows were published.
    :param operations: that count.
    """
    try:
        since = log.commits_between(found.version, snapshot.version)
    except LogGapError:
        if not found.record.rows or len(log.live_files(found.has, snapshot.version)):
            return None
        return (
            "the log since then was cleaned up and none of its files is live: they were compacted, or deleted, and "
            "nobody knows which, so look before you append"
        )
    undoing = next((commit for commit in since if commit.operation in operations), None)
    if undoing is None:
        return None
    commit = log.commit(found.version)
    if commit is None:
        live = log.live_files(found.has, snapshot.version)
        if found.record.rows and total_rows(live) == found.record.rows:
            return None
    elif holders := _Holders.of(found, commit, snapshot.partitioning):
        undoing = _undoing_of(holders, since, operations)
        if undoing is None:
            return None
        if holders.now:
            return (
                f"{undoing.operation} in version {undoing.version} took at least some of its rows back, and 'append' "
                "would repeat those that are left"
            )
    else:
        undoing = _undoing_by_version(found.version, since, operations)
        if undoing is None:
            return None
    return f"{undoing.operation} in version {undoing.version} took its rows back"


def _undoing_of(holders: _Holders, since: Sequence[Commit], operations: Sequence[str]) -> Commit | None:
    """Return the last operation that took rows of some files and that no later one made good, or ``None``.

    :param since: the commits after the one that added the files.
    :param operations: that count.
    """
    # The files that held all of the rows at some time. Where they are live again, all of the rows are.
    complete = [holders.keys]
    is_complete, undoing = True, None
    for commit in since:
        taken = holders.follow(commit)
        if any(file.get("dataChange", True) for file in taken) or commit.operation in operations:
            is_complete = any(keys <= holders.keys for keys in complete)
        if is_complete:
            undoing = None
            if taken:
                complete.append(holders.keys)
        elif taken and commit.operation in operations:
            undoing = commit
    return undoing


def _undoing_by_version(version: int, since: Sequence[Commit], operations: Sequence[str]) -> Commit | None:
    """Return the operation that took the table back to before a version, or ``None``.

    Where a commit added no file of its own, as a MERGE does that only deletes rows, no file tells whether it is undone.

    :param since: the commits after that version.
    :param operations: that count. One that does not say to which version it goes back is taken to go back that far.
    """
    undoing: Commit | None = None
    after: dict[int, Commit | None] = {version: None}
    for commit in since:
        if commit.operation in operations:
            target = commit.restored_to
            undoing = after.get(target, commit) if target is not None else commit
        after[commit.version] = undoing
    return undoing


@attrs.define
class _Holders:
    """The files that hold some published rows, followed from commit to commit.

    :param now: their keys, by their paths in the store.
    :param _published: the paths of the files that were published. Any engine may give them other deletion vectors.
    :param _rows: what is known of the rows in them.
    :param _whole: what held the rows when they were published, and how many they were.
    :param _counts: how many of the rows each of the files that were published has now; ``None`` where nobody can tell.
    :param _moved_into: the keys of all files into which rows were moved since. A RESTORE may bring each of them back.
    :param _rows_of: what was known of the rows when these files held them.
    """

    _partitioning: Partitioning
    now: dict[str, FileKey]
    _published: frozenset[str]
    _rows: _FollowedRows
    _whole: tuple[frozenset[FileKey], int | None]
    _counts: dict[str, int | None]
    _moved_into: set[FileKey] = attrs.Factory(set)
    _rows_of: dict[frozenset[FileKey], _FollowedRows] = attrs.Factory(dict)

    @classmethod
    def of(cls, found: Publishing, commit: Commit, partitioning: Partitioning) -> _Holders | None:
        """Begin with the files that were published, or return ``None`` where there were none.

        :param commit: the one that published them.
        """
        adds, rows = [add for add in commit.adds if found.has(add)], found.record.rows
        if not adds:
            return None
        now = {object_path(add): file_key(add) for add in adds}
        # Of rows that were merged, a file has rows of others too.
        counts = {object_path(add): None if found.record.merged else row_count(add) for add in adds}
        return cls(partitioning, now, frozenset(now), _FollowedRows(rows), (frozenset(now.values()), rows), counts)

    @property
    def keys(self) -> frozenset[FileKey]:
        """Tell the files apart by their deletion vectors too."""
        return frozenset(self.now.values())

    @property
    def left(self) -> int | None:
        """How many of the rows are in the table; ``None`` where nobody can tell."""
        keys, rows = self._whole
        if self.keys == keys or (self.now and self._rows == _FollowedRows(rows)):
            return rows
        counts = [self._counts.get(path) for path in self.now]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def in_doubt(self) -> bool:
        """Whether the files may hold none of the rows, but only rows of others that a statement has left."""
        return bool(self.now) and self._published.isdisjoint(self.now) and self._rows.in_doubt

    def follow(self, commit: Commit) -> list[Remove]:
        """Follow the rows through one commit.

        :returns: the files that the commit took.
        """
        # A remove that spells a path otherwise leaves the file live for every engine.
        held = {path for path, _ in self.now.values()}
        taken = [file for file in commit.removes if file["path"] in held]
        into = moved(commit, taken, self._partitioning)
        self._rows_of.setdefault(self.keys, self._rows)
        self._moved_into.update(map(file_key, into))
        for file in taken:
            self.now.pop(object_path(file), None)
        for add in commit.adds:
            path, key = object_path(add), file_key(add)
            if path in self._published or key in self._moved_into:
                self.now[path] = key
                if self._counts.get(path) is not None:
                    self._counts[path] = row_count(add)
        if commit.operation in UNDOING:
            self._rows = self._rows_of.get(self.keys, _UNKNOWN)
        elif any(file.get("dataChange", True) for file in taken):
            self._rows = self._rows.rewritten_by(commit) if into else self._rows.partly_replaced()
        return taken


@attrs.frozen
class _FollowedRows:
    """What is known of some rows, wherever statements have written them.

    :param at_least: how many of them are left at least; ``None`` if nobody knows.
    :param rewritten: whether a statement has written some of them into other files.
    :param in_doubt: whether these files may hold none of them.
    """

    at_least: int | None
    rewritten: bool = False
    in_doubt: bool = False

    def rewritten_by(self, commit: Commit) -> _FollowedRows:
        """Return what is known after a commit that wrote the rows of their files, or some of these, into other files.

        :param commit: that changed rows.
        """
        deleted = _deleted_by(commit)
        if deleted == 0:
            return attrs.evolve(self, rewritten=True)
        if deleted is None or self.at_least is None:
            return _UNKNOWN
        left = max(0, self.at_least - deleted)
        return _FollowedRows(left, rewritten=True, in_doubt=self.in_doubt or not left)

    def partly_replaced(self) -> _FollowedRows:
        """Return what is known after a commit that replaced all rows of some partitions."""
        # A compaction leaves rows in their partition, so the files of the other partitions hold some.
        return _FollowedRows(None, rewritten=self.rewritten, in_doubt=self.in_doubt or self.rewritten)


_UNKNOWN = _FollowedRows(None, rewritten=True, in_doubt=True)


def _deleted_by(commit: Commit) -> int | None:
    """Return how many rows a statement has deleted, or ``None`` where the log does not tell."""
    if commit.operation == "UPDATE":
        return 0
    metrics: Any = commit.info.get("operationMetrics")
    names = _DELETED_BY.get(commit.operation or "", ()) if isinstance(metrics, dict) else ()
    return next((whole_number(metrics[name]) for name in names if name in metrics), None)


class Fate(StrEnum):
    """What became of rows after they were published.

    ``LIVE``: they are in the table, as far as the log says. ``SUPERSEDED``: writers replaced them. ``DELETED``: another
    engine's statement removed or changed some or all of them. ``RESTORED_AWAY``: the table was taken back to a version
    before them.
    """

    LIVE = "live"
    SUPERSEDED = "superseded"
    DELETED = "deleted"
    RESTORED_AWAY = "restored_away"


@attrs.frozen
class Aftermath:
    """What became of rows after they were published.

    :param story: sentences, in order: one for every commit that removed some of the rows, or what is not known.
    :param gone: whether none of the rows is left, as far as the log says; ``None`` where nobody can tell.
    :param rows: how many of the rows are in the table; ``None`` where nobody can tell.
    :param replaced: whether rows are not there because writers replaced them.
    """

    fate: Fate
    story: tuple[str, ...] = ()
    gone: bool | None = False
    rows: int | None = None
    replaced: bool = False


def aftermath(log: DeltaLog, found: Publishing, snapshot: Snapshot) -> Aftermath:
    """Say what became of published rows, by following their files through the commits since.

    Rows that a compaction or a statement moved into other files are followed there. Where the log does not reach back,
    only the rows in files that are still live are counted. Where many commits follow, they are read only if not all of
    the rows are where they were published.

    :param found: where the rows were published.
    """
    rows = found.record.rows
    try:
        many = snapshot.version - found.version > MOST_FOLLOWED
        if many and rows is not None and _live_rows(log, found, snapshot) == rows:
            return Aftermath(Fate.LIVE, rows=rows)
        commits = log.commits_between(found.version - 1, snapshot.version)
    except LogGapError:
        live = _live_rows(log, found, snapshot)
        if rows is None or found.record.merged or live == rows:
            return Aftermath(Fate.LIVE, rows=live if live == rows else None)
        unknown = f"{live} of its {rows} rows are where they were; where the others are, nobody knows"
        return Aftermath(Fate.LIVE, (unknown,), gone=None if live == 0 else False)
    holders, fate, story = _Holders.of(found, commits[0], snapshot.partitioning), Fate.LIVE, []
    if holders is None:
        return Aftermath(fate, rows=rows)
    left, replaced = holders.left, False
    for commit in commits[1:]:
        taken = holders.follow(commit)
        if any(file.get("dataChange", True) for file in taken):
            fate, verb = _taken_by(commit)
            before, left = left, holders.left
            lost = before - left if before is not None and left is not None else 0
            some = f"{lost} of its {rows}" if lost > 0 else "some of its"
            some = f"{some if holders.now else 'its'} rows were"
            if holders.in_doubt or (holders.now and _keeps_rows(commit, snapshot.partitioning)):
                fate, some = Fate.DELETED, "some or all of its rows were"
            replaced = replaced or fate is Fate.SUPERSEDED
            story.append(f"{some} {verb} by {commit.author} in version {commit.version}")
    if holders.now and fate in (Fate.SUPERSEDED, Fate.RESTORED_AWAY):
        fate = Fate.LIVE
    if not holders.now and fate is Fate.LIVE:
        story.append("its files are gone, and no commit says what became of its rows")
    left, gone = (None, None) if holders.in_doubt else (holders.left, not holders.now)
    return Aftermath(fate, tuple(story), gone, left, replaced and (left is None or left != rows))


def _live_rows(log: DeltaLog, found: Publishing, snapshot: Snapshot) -> int | None:
    """Count the published rows that are where they were published; ``None`` where statistics do not say."""
    return total_rows(log.live_files(found.has, snapshot.version))


def _taken_by(commit: Commit) -> tuple[Fate, str]:
    if commit.operation in UNDOING:
        return Fate.RESTORED_AWAY, "taken back"
    if commit.writers or commit.operation == "WRITE":
        return Fate.SUPERSEDED, "replaced"
    return Fate.DELETED, "changed or deleted"


def moved(commit: Commit, taken: Sequence[Remove], partitioning: Partitioning) -> list[Add]:
    """Return the files into which a commit wrote rows of the files that it took.

    :param taken: files that the commit removes.
    """
    afresh = commit.operation in AFRESH and not _keeps_rows(commit, partitioning)
    rewrites = not commit.writers and not afresh
    changes = {bool(file.get("dataChange", True)) for file in taken}
    # A file that goes without a change of data was compacted, so its rows were moved whatever the commit is called.
    if not rewrites and False not in changes:
        return []
    # An UPDATE or MERGE may give a row another value of a partition column.
    stays = True not in changes or commit.writers or commit.operation in _WITHIN_PARTITIONS
    if not stays or not all(partitioning.named_by(file) for file in taken):
        return list(commit.adds)
    partitions = {partitioning.partition(file["partitionValues"]) for file in taken}
    return [add for add in commit.adds if partitioning.partition(add["partitionValues"]) in partitions]


def _keeps_rows(commit: Commit, partitioning: Partitioning) -> bool:
    """Say whether a commit is an overwrite by data columns.

    Such an overwrite removes whole files and writes their rows that lie outside of its predicate into new ones, of the
    same partitions. Nothing in the log tells these files from those with the overwrite's own rows.
    """
    predicate = commit.parameters.get("predicate")
    if commit.writers or commit.operation != "WRITE" or not predicate:
        return False
    try:
        PartitionPredicate.parse(str(predicate), partitioning)
    except InvalidWriteError:
        return True
    return False


def files_to_take_back(log: DeltaLog, identity: WriterIdentity, generation: int, snapshot: Snapshot) -> list[Add]:
    """Return the live files of what a writer appended before, for a rerun that replaces it (protocol: take back whole).

    All of these files must be live and as they were. After an UPDATE, a DELETE or a compaction, the writer's rows are
    changed, erased or mixed with others, and staging them again would bring back rows that were changed or erased.

    :param generation: the one that is in the table.
    :param snapshot: that is committed against.
    :returns: the raw ``add`` actions; empty where that generation had no rows.
    :raises RerunRefusedError: a file is gone or has a deletion vector, or the log does not say which files they were.
    """
    found = find_published(log, identity, generation, snapshot)
    live = list(log.live_files(found.has, snapshot.version)) if found is not None else []
    why_not = _why_not_taken_back(log, found, live, snapshot)
    if why_not is not None:
        raise RerunRefusedError(
            f"What writer {identity.key!r} appended to {log.table} in generation {generation} cannot be taken back: "
            f"{why_not} (seen at version {snapshot.version}). Nothing was changed: use the mode overwrite_partitions "
            "or replace_where, which replace what is there, or on_rerun='append', which adds the rows beside it."
        )
    return live


def _why_not_taken_back(log: DeltaLog, found: Publishing | None, live: list[Add], snapshot: Snapshot) -> str | None:
    if found is None:
        return "neither a marker nor the log says which files they are"
    if found.record.merged:
        return f"version {found.version} has merged it into rows of others"
    commit = log.commit(found.version)
    if commit is not None:
        missing = {add["path"] for add in commit.adds if found.has(add)} - {file["path"] for file in live}
        if missing:
            return f"{min(missing)} of version {found.version} is gone"
    elif found.record.rows is None or total_rows(live) != found.record.rows:
        return f"version {found.version} was cleaned up, and not all of its {found.record.rows} rows are live"
    if not live and (why := restored_away(log, found, snapshot, _BRINGING_BACK)):
        # This generation had no files, so none can be missing. But a RESTORE may have brought back the rows of an older
        # generation, which this one had taken back.
        return why
    changed = next((file["path"] for file in live if file.get("deletionVector")), None)
    return f"rows of {changed} were deleted or updated since" if changed is not None else None
