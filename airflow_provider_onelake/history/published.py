"""What became of published rows, by following their files through the commits since.

Protocol: skip only what is there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.layout import changes_directory
from airflow_provider_onelake.exceptions import InvalidWriteError, LogGapError
from airflow_provider_onelake.history.undone import MAKING_ANEW, UNDOING, targets
from airflow_provider_onelake.log.actions import Add, FileKey, Remove, file_key, object_path, row_count, total_rows
from airflow_provider_onelake.log.commits import PublishedWriter
from airflow_provider_onelake.log.directories import Below
from airflow_provider_onelake.log.partitions import PartitionPredicate
from airflow_provider_onelake.storage.clock import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_onelake.buffers.identity import Identity
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import Partitioning
    from airflow_provider_onelake.log.snapshot import Snapshot

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


def record_of(writer: Identity, winners: Sequence[Commit]) -> Publishing | None:
    """Return the newest publishing of a writer among some commits, or ``None``.

    :param winners: in the order of versions.
    """
    records = (
        Publishing(winner.version, record)
        for winner in reversed(winners)
        for record in winner.all_writers
        if record.app_id == writer.app_id
    )
    return next(records, None)


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
            if commit.operation in MAKING_ANEW:
                # Where there were no rows any more, none have gone.
                back = [now if rows == 0 or now.gone else None]
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
