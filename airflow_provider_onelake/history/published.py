"""Where a writer's rows were published before, and whether they are still there as they were.

Protocol: skip only what is there, take back whole.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.identity import RETIRED
from airflow_provider_onelake.buffers.layout import changes_directory
from airflow_provider_onelake.buffers.markers import markers
from airflow_provider_onelake.exceptions import InvalidWriteError, LogGapError, RerunRefusedError
from airflow_provider_onelake.history.undone import REPLACING_TABLE, UNDOING, targets
from airflow_provider_onelake.log.actions import Add, FileKey, Remove, file_key, object_path, row_count, total_rows
from airflow_provider_onelake.log.commits import PublishedWriter
from airflow_provider_onelake.log.directories import Below
from airflow_provider_onelake.log.partitions import PartitionPredicate
from airflow_provider_onelake.storage.clock import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

_AFRESH = ("WRITE", *UNDOING)
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


def find_published(log: DeltaLog, identity: WriterIdentity, generation: int, snapshot: Snapshot) -> Publishing | None:
    """Return where a writer's rows were published, or ``None`` where neither a marker nor the log says.

    :param generation: to look for.
    :param snapshot: the newest of the table.
    """
    found = publishings(log, identity, snapshot, generation)
    return next((each for each in found if each.record.generation == generation), None)


def publishings(
    log: DeltaLog, identity: WriterIdentity, snapshot: Snapshot, generation: int | None = None
) -> list[Publishing]:
    """Return where the rows of all generations of a writer were published, the newest first, as far as it is known.

    The markers of its buffers say it. A writer that died before it marked its buffer is looked for in the log.

    :param snapshot: the newest of the table.
    :param generation: that is looked for. Default: the one that its ``txn`` names.
    """
    stored = snapshot.txns.get(identity.app_id) if generation is None else generation
    found = []
    for marker in markers(log.store, identity.directory):
        if marker.get("version") is None or "writer" not in marker:
            continue
        each = Publishing(int(marker["version"]), PublishedWriter.from_json(marker["writer"]))
        # A marker lies beside the table, so it may be older than the table. A rerun may come after the snapshot.
        if each.record.app_id != identity.app_id or each.version > snapshot.version:
            continue
        if marker.get("table") == snapshot.table_id or _is_logged(log, each):
            found.append(each)
    if stored is not None and stored not in (RETIRED, *(each.record.generation for each in found)):
        commit = commit_that_set(log, identity.app_id, stored, snapshot)
        found += [last] if commit is not None and (last := record_of(identity, [commit])) is not None else []
    return sorted(found, key=lambda each: each.version, reverse=True)


def still_there(log: DeltaLog, identity: WriterIdentity, snapshot: Snapshot) -> Publishing | None:
    """Return the newest publishing of a writer whose rows are in the table, as far as markers and the log say.

    It need not be of the generation that the writer's ``txn`` names: a RESTORE leaves each ``txn`` as it is, and a
    newer generation may have added its rows beside the older ones.

    :param snapshot: the newest of the table.
    """
    found = publishings(log, identity, snapshot)
    return next((each for each in found if rows_left(log, each, snapshot)), None)


def restored_away(
    log: DeltaLog, identity: WriterIdentity, snapshot: Snapshot, restore: Commit
) -> tuple[bool | None, str]:
    """Say whether a writer has no rows in the table as a RESTORE took them, and what took them.

    ``None`` where nobody can tell. Of a writer that is retired it says whether it has no rows, whatever took them.

    :param snapshot: the newest of the table.
    :param restore: the newest commit that took the table back.
    """
    generation, target = snapshot.txns[identity.app_id], restore.restored_to
    known = publishings(log, identity, snapshot)
    left = [rows_left(log, each, snapshot) for each in known]
    found = next((each for each in known if each.record.generation == generation), None)
    if True in left:
        return False, ""
    if known and known[0].version < restore.version and target is not None and target < known[-1].version:
        return True, f"{restore.operation} in version {restore.version} took its rows back"
    if None in left or (found is None and generation != RETIRED):
        return None, ""
    why = aftermath(log, found, snapshot).undone if found is not None else "it is retired"
    return why is not None, why or ""


def rows_left(log: DeltaLog, found: Publishing, snapshot: Snapshot) -> bool | None:
    """Say whether rows of a publishing are in the table; ``None`` where nobody can tell.

    :param snapshot: the newest of the table.
    """
    if found.record.rows == 0 or found.record.set_aside:
        return False
    gone = aftermath(log, found, snapshot).gone
    return None if gone is None else not gone


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
    """Say whether the log has a publishing. A table that was dropped and made again has another log."""
    commit = log.commit(found.version)
    return commit is not None and commit.txns.get(found.record.app_id) == found.record.generation


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
    """What became of rows after they were published, up to some version.

    :param story: sentences, in order: one for every commit that removed some of the rows, or what is not known.
    :param gone: whether none of the rows is left, as far as the log says; ``None`` where nobody can tell.
    :param rows: how many of the rows are in the table; ``None`` where nobody can tell.
    :param replaced: whether rows are not there because writers replaced them.
    :param files: the files that hold the rows, by their paths in the store, each with its key and with how many of the
        rows it has; ``None`` where it has rows of others too.
    :param least: how many of the rows are left at least.
    :param mixed: whether a statement has written some of the rows into other files.
    """

    fate: Fate
    story: tuple[str, ...] = ()
    gone: bool | None = False
    rows: int | None = None
    replaced: bool = False
    files: Mapping[str, tuple[FileKey, int | None]] = attrs.field(factory=dict, eq=False, repr=False)
    least: int = attrs.field(default=0, eq=False, repr=False)
    mixed: bool = attrs.field(default=False, eq=False, repr=False)

    @property
    def undone(self) -> str | None:
        """Why nobody may call the rows published, though their ``txn`` is in the table; ``None`` where one may.

        Protocol: skip only what is there. What other statements did to the rows does not count.
        """
        is_undone = self.fate is Fate.RESTORED_AWAY or (self.fate is Fate.LIVE and self.gone is None)
        return self.story[-1] if is_undone else None

    def after(self, commit: Commit, partitioning: Partitioning) -> Aftermath:
        """Return what is known after the next commit, which is none that takes the table back."""
        # A remove that spells a path otherwise leaves the file live for every engine.
        held = {path for (path, _), _ in self.files.values()}
        taken = [file for file in commit.removes if file["path"] in held]
        if not taken:
            return self
        into = {object_path(add) for add in _moved(commit, taken, partitioning)}
        files = dict(self.files)
        counts = {path: files.pop(path)[1] for path in {object_path(file) for file in taken}}
        for add in commit.adds:
            # A file that was taken is there again with another deletion vector.
            path = object_path(add)
            if path in into or path in counts:
                files[path] = file_key(add), None if counts.get(path) is None else row_count(add)
        if into and not any(file.get("dataChange", True) for file in taken):
            return attrs.evolve(self, files=files)
        known = [count for _, count in files.values()]
        there, deleted = sum(count or 0 for count in known), _deleted_by(commit)
        left = None if None in known else there
        # A compaction leaves rows in their partition, so where some partitions were replaced, the others hold some.
        least = 0 if self.mixed else 1
        if into:
            least = self.least - deleted if deleted is not None else 0
        least = max(least, there) if left is None else left
        gone = left == 0 or (None if least < 1 else False)
        fate, verb = _taken_by(commit)
        some = f"{self.rows - left} of its {self.rows}" if self.rows and left and left < self.rows else "some of its"
        if gone is None or (not gone and _keeps_rows(commit, partitioning)):
            fate, some = Fate.DELETED, "some or all of its"
        story = f"{'its' if gone else some} rows were {verb} by {commit.author} in version {commit.version}"
        return Aftermath(
            fate if gone or fate is Fate.DELETED else Fate.LIVE,
            (*self.story, story),
            gone,
            left,
            self.replaced or fate is Fate.SUPERSEDED,
            files,
            least,
            self.mixed or bool(into),
        )

    def taken_back(self, commit: Commit, reached: Sequence[Aftermath | None]) -> Aftermath:
        """Return what is known after a commit that took the table back.

        :param reached: what was known of the versions to one of which it went; ``None`` for one before the rows.
        """
        sure = all(each is reached[0] for each in reached)
        if sure and reached[0] is not None:
            return reached[0]
        doubt = "" if sure else ", or may have: its commit does not say which rows it left"
        story = f"{commit.operation} in version {commit.version} took its rows back{doubt}"
        return Aftermath(Fate.RESTORED_AWAY, (*self.story, story), sure or None, 0 if sure else None)


def aftermath(log: DeltaLog, found: Publishing, snapshot: Snapshot) -> Aftermath:
    """Say what became of published rows, by following their files through the commits since.

    Rows that a compaction or a statement moved into other files are followed there. A RESTORE makes of them what they
    were in the version to which it went. Where the log does not reach back, only the rows in files that are still live
    are counted. Where many commits follow, they are read only if not all of the rows are where they were published.

    :param found: where the rows were published.
    """
    rows, merged = found.record.rows, found.record.merged
    try:
        many = snapshot.version - found.version > MOST_FOLLOWED
        if many and not merged and rows is not None and _live_rows(log, found, snapshot) == rows:
            return Aftermath(Fate.LIVE, rows=rows)
        commits = log.commits_between(found.version - 1, snapshot.version)
    except LogGapError:
        return _without_log(log, found, snapshot)
    adds = [add for add in commits[0].adds if found.has(add)]
    files = {object_path(add): (file_key(add), None if merged else row_count(add)) for add in adds}
    now = Aftermath(Fate.LIVE, rows=rows, files=files, least=len(adds) if rows is None else rows)
    known = {found.version: now}
    for number, commit in enumerate(commits[1:], 1):
        if commit.operation in UNDOING:
            back = [known.get(version) for version in targets(commit, commits[:number])]
            if commit.operation in REPLACING_TABLE and commit.operation != "CLONE":
                # Where there were no rows, none have gone.
                back = [now if rows == 0 else None]
            now = now.taken_back(commit, back)
        else:
            now = now.after(commit, snapshot.partitioning)
        known[commit.version] = now
    return now


def _without_log(log: DeltaLog, found: Publishing, snapshot: Snapshot) -> Aftermath:
    """Say what became of published rows where the log since then was cleaned up."""
    rows, live = found.record.rows, list(log.live_files(found.has, snapshot.version))
    if not live and rows != 0:
        unknown = (
            "the log since then was cleaned up and none of its files is live: they were compacted, or deleted, and "
            "nobody knows which, so look before you append"
        )
        return Aftermath(Fate.LIVE, (unknown,), gone=None)
    left = total_rows(live)
    if rows is None or found.record.merged or left == rows:
        return Aftermath(Fate.LIVE, rows=left if left == rows else None)
    unknown = f"{left} of its {rows} rows are where they were; where the others are, nobody knows"
    return Aftermath(Fate.LIVE, (unknown,))


def _live_rows(log: DeltaLog, found: Publishing, snapshot: Snapshot) -> int | None:
    """Count the published rows that are where they were published; ``None`` where statistics do not say."""
    return total_rows(log.live_files(found.has, snapshot.version))


def _taken_by(commit: Commit) -> tuple[Fate, str]:
    if commit.writers or commit.operation == "WRITE":
        return Fate.SUPERSEDED, "replaced"
    return Fate.DELETED, "changed or deleted"


def _moved(commit: Commit, taken: Sequence[Remove], partitioning: Partitioning) -> list[Add]:
    """Return the files into which a commit wrote rows of the files that it took.

    :param taken: files that the commit removes.
    """
    afresh = commit.operation in _AFRESH and not _keeps_rows(commit, partitioning)
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
    if not live and (why := aftermath(log, found, snapshot).undone):
        # This generation had no files, so none can be missing. But a RESTORE may have brought back the rows of an older
        # generation, which this one had taken back.
        return why
    changed = next((file["path"] for file in live if file.get("deletionVector")), None)
    return f"rows of {changed} were deleted or updated since" if changed is not None else None
