"""Decide which files of which partitions are worth rewriting. Nothing here touches a store.

A partition is worth rewriting for many small files, for files whose rows a deletion vector hides, and, where a sort
order is wanted, for files that are not in that order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.actions import Add, is_absolute, row_count
from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate
from airflow_provider_onelake.log.schema import columns
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.values import FarTime, Partition, Unreadable, typed_value
from airflow_provider_onelake.texts import counted

TARGET_FILE_SIZE = 128 << 20
"""Bytes of a file after compaction, where neither the caller nor the table says. Delta's own auto-compaction aims at
this size. Such a file is so large that opening it costs little compared with reading it, and so small that Spark
rewrites it in seconds. So little is lost where a writer comes in between."""

ZORDER_TAG = "onelake.zorder"
"""The tag of a Z-ordered file. It names the columns and the run by which we sorted it; OPTIMIZE records neither."""

# Files outside of the sort order wait while they are less than this share of a partition's bytes. The rest of the
# partition would be rewritten with them, which costs more than they slow down readers.
_UNORDERED_SHARE = 0.25


@attrs.frozen(kw_only=True)
class CompactionTerms:
    """When compaction pays.

    :param target_file_size: in bytes. Default: the table's ``delta.targetFileSize``, else 128 MiB.
    :param min_files: from how many small files on a partition is rewritten. Default: 4.
    :param min_deleted: from which share of deleted rows on a file is rewritten even alone; 0 to 1. Default: 0.1.
    :param zorder_by: columns to sort along. Default: none.
    :raises InvalidWriteError: a value is out of its range, or a column comes twice.
    """

    target_file_size: int | None = None
    min_files: int = 4
    min_deleted: float = 0.1
    zorder_by: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        if self.target_file_size is not None and self.target_file_size <= 0:
            raise InvalidWriteError(f"target_file_size={self.target_file_size!r} must be a size in bytes, above 0.")
        if self.min_files < 2:
            raise InvalidWriteError(
                f"min_files={self.min_files!r} must be at least 2, as one file merges with nothing."
            )
        if not 0 < self.min_deleted <= 1:
            raise InvalidWriteError(f"min_deleted={self.min_deleted!r} must be a share of rows, above 0 and up to 1.")
        if len({name.lower() for name in self.zorder_by}) != len(self.zorder_by):
            raise InvalidWriteError(f"zorder_by={list(self.zorder_by)!r}: a column comes twice.")

    def size_for(self, snapshot: Snapshot) -> int:
        """Return the size that files should have, in bytes.

        :raises InvalidWriteError: the table's property is no size.
        """
        if self.target_file_size is not None:
            return self.target_file_size
        text = snapshot.configuration.get("delta.targetFileSize")
        return _bytes(text) if text else TARGET_FILE_SIZE

    def check(self, snapshot: Snapshot, table: str) -> None:
        """Refuse a sort order that the table cannot have.

        :param table: what messages call the table.
        :raises InvalidWriteError: a column is missing or a partition column, or the table is clustered.
        """
        if not self.zorder_by:
            return
        if snapshot.clustering_columns:
            raise InvalidWriteError(
                f"{table} is clustered, which sorts its files by itself, so zorder_by={list(self.zorder_by)!r} is "
                "refused. Nothing was changed: leave it out."
            )
        split = {name.lower() for name in snapshot.partitioning.types}
        known = {name.lower() for name in columns(snapshot.metadata)}
        for name in self.zorder_by:
            if name.lower() not in known or name.lower() in split:
                what = "a partition column" if name.lower() in split else "no column"
                raise InvalidWriteError(f"zorder_by: {name!r} is {what} of {table}. Nothing was changed.")


@attrs.frozen
class Group:
    """The files of one partition that are rewritten together.

    :param partition: typed.
    :param name: as people write it.
    :param inputs: the raw ``add`` actions.
    :param reason: why they are worth rewriting.
    """

    partition: Partition
    name: str
    inputs: tuple[Add, ...] = attrs.field(repr=False)
    reason: str

    @property
    def bytes(self) -> int:
        """Bytes of the files."""
        return bytes_of(self.inputs)


@attrs.frozen
class LeftOut:
    """Files of a partition that are not rewritten, and why.

    :param partition: as people write it.
    :param files: how many.
    :param reason: why they are not rewritten, in words.
    """

    partition: str
    files: int
    reason: str


@attrs.frozen
class CompactionPlan:
    """What a compaction does.

    :param groups: one for every partition that is rewritten.
    :param left_out: the files that stay, and why.
    :param target_file_size: in bytes.
    :param zorder_by: columns to sort along.
    """

    groups: tuple[Group, ...]
    left_out: tuple[LeftOut, ...]
    target_file_size: int
    zorder_by: tuple[str, ...] = ()


def selection(
    snapshot: Snapshot, where: str | None = None, partitions: Iterable[Mapping[str, Any]] | None = None
) -> Callable[[Partition], bool]:
    """Return a function that says whether a partition is looked at.

    :param where: a predicate on partition columns. Default: all.
    :param partitions: an explicit list, each as values by column, spelled as in the log or as people write them. A
        column that is left out may have any value. Default: all partitions; an empty list stands for none.
    :raises InvalidWriteError: a column is no partition column, or a value does not have the column's type.
    """
    predicate = PartitionPredicate.parse(where, snapshot.partitioning) if where else None
    listed = None if partitions is None else [_listed(snapshot.partitioning, item) for item in partitions]

    def chosen(partition: Partition) -> bool:
        if predicate is not None and predicate.judge(partition) is not True:
            return False
        return listed is None or any(all(partition[at] == value for at, value in item.items()) for item in listed)

    return chosen


def plan(
    files: Iterable[Add],
    snapshot: Snapshot,
    terms: CompactionTerms,
    why_needed: Callable[[Add], str | None] = lambda file: None,
) -> CompactionPlan:
    """Decide which files are worth rewriting.

    :param files: the live files of the partitions that are looked at, as raw ``add`` actions.
    :param why_needed: returns why a writer in flight needs a file as it is, or ``None`` where none does.
    :returns: what to rewrite, which may be nothing.
    """
    target, split = terms.size_for(snapshot), snapshot.partitioning
    is_sorted = bool(terms.zorder_by or snapshot.clustering_columns)
    groups: list[Group] = []
    left_out: list[LeftOut] = []
    for partition, present in split.divided(files).items():
        name = split.describe(partition)
        free: list[Add] = []
        stay: Counter[str] = Counter()
        for file in present:
            reason = _why_untouched(file, partition, split) or why_needed(file)
            if reason is None:
                free.append(file)
            else:
                stay[reason] += 1
        left_out += (LeftOut(name, count, reason) for reason, count in stay.items())
        unordered = _unordered(free, terms) if is_sorted else None
        inputs, reason = unordered or _small_or_deleted(free, terms, target)
        if inputs:
            groups.append(Group(partition, name, tuple(inputs), reason))
        elif free:
            left_out.append(LeftOut(name, len(free), reason))
    return CompactionPlan(tuple(groups), tuple(left_out), target, terms.zorder_by)


def _small_or_deleted(files: list[Add], terms: CompactionTerms, target: int) -> tuple[list[Add], str]:
    """Return the files that are worth rewriting, and why; or no file, and why not."""
    deleted = [file for file in files if deleted_share(file) >= terms.min_deleted]
    # Two files of half the target or more may not fit into one file of the target, so such a file is large enough.
    small = [file for file in files if 2 * int(file["size"]) < target and deleted_share(file) < terms.min_deleted]
    small.sort(key=lambda file: (int(file["size"]), file["path"]))
    found = len(small)
    # A file more than twice as large as all the others together waits until they have grown. Else it would be written
    # again for every few small files. So a rewrite makes every file at least half as large again, and the number
    # of times that a byte is written grows only with the logarithm of the target.
    total = bytes_of((*small, *deleted))
    while small and 3 * int(small[-1]["size"]) > 2 * total:
        total -= int(small.pop()["size"])
    if len(small) < terms.min_files:
        small = []
    reasons = [f"{len(small)} small files"] * bool(small)
    share = "deleted rows"
    if terms.min_deleted >= 0.01:
        share = f"at least {terms.min_deleted:.0%} of {'its' if len(deleted) == 1 else 'their'} rows deleted"
    reasons += [f"{counted(len(deleted), 'file')} with {share}"] * bool(deleted)
    if reasons:
        return [*small, *deleted], " and ".join(reasons)
    if found < terms.min_files:
        return [], f"{counted(found, 'small file')}, and it takes {terms.min_files}"
    why = "but the largest are more than twice as large as the others together, so they wait"
    return [], f"{found} small files, {why}"


def _unordered(files: list[Add], terms: CompactionTerms) -> tuple[list[Add], str] | None:
    """Return all files if enough bytes lie outside the largest run of files sorted together, else ``None``."""
    if len(files) < 2:
        return None
    runs: Counter[str] = Counter()
    for file in files:
        if (run := _sorted_in(file, terms)) is not None:
            runs[run] += int(file["size"])
    total = bytes_of(files)
    share = (total - max(runs.values(), default=0)) / total if total else 0.0
    return (files, f"{share:.0%} of its bytes lie outside the sort order") if share >= _UNORDERED_SHARE else None


def _sorted_in(file: Add, terms: CompactionTerms) -> str | None:
    """Return the run that a file was sorted in, or ``None``."""
    tags = file.get("tags") or {}
    if not terms.zorder_by:
        return tags.get("ZCUBE_ID") if file.get("clusteringProvider") == "liquid" else None
    said = json.loads(tags.get(ZORDER_TAG) or "{}")
    return said.get("run") if said.get("by") == [name.lower() for name in terms.zorder_by] else None


def zorder_tag(zorder_by: Sequence[str], run: str) -> str:
    """Return what the tag of a Z-ordered file says.

    :param zorder_by: the columns.
    :param run: id of the run in which it was sorted with others.
    """
    return json.dumps({"by": [name.lower() for name in zorder_by], "run": run})


def deleted_share(file: Add) -> float:
    """Return the share of a file's rows that its deletion vector hides.

    :param file: an ``add``.
    """
    vector = file.get("deletionVector")
    left = row_count(file)
    if not vector or left is None:
        return 0.0
    gone = int(vector["cardinality"])
    return gone / (left + gone) if left + gone else 0.0


def _why_untouched(file: Add, partition: Partition, split: Partitioning) -> str | None:
    if is_absolute(file["path"]):
        return "its path is absolute, as shallow clones have it"
    if row_count(file) is None:
        return "its statistics have no row count, so nobody could check that a rewrite kept every row"
    if split.ambiguous(partition):
        return "the partition is spelled without a time zone, so a rewrite could move it"
    if any(isinstance(value, (FarTime, Unreadable)) for value in partition):
        return "Spark may spell the partition in another way, so a rewrite could move it"
    return None


def bytes_of(files: Iterable[Add]) -> int:
    """Return how many bytes files have together.

    :param files: raw ``add`` actions.
    """
    return sum(int(file["size"]) for file in files)


def _listed(split: Partitioning, item: Mapping[str, Any]) -> dict[int, Any]:
    names = list(split.types)
    wanted = {}
    for name, spelling in item.items():
        if name not in names:
            raise InvalidWriteError(
                f"partitions: {name!r} is no partition column (the table's are: {', '.join(names) or 'none'}). Nothing "
                "was changed."
            )
        try:
            wanted[names.index(name)] = typed_value(None if spelling is None else str(spelling), split.types[name])
        except ValueError:
            raise InvalidWriteError(
                f"partitions: {spelling!r} is no {split.types[name]}, which {name} is. Nothing was changed."
            ) from None
    return wanted


_UNITS = {"b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30, "t": 1 << 40}


def _bytes(text: str) -> int:
    """Return the bytes that a size in a table's property stands for: ``134217728``, ``128mb``, ``1g``."""
    plain = text.strip().lower()
    digits = plain.rstrip("bkmgt")
    try:
        size = int(float(digits) * _UNITS[plain[len(digits) :] or "b"])
    except (ValueError, KeyError, OverflowError):
        size = 0
    if size <= 0:
        raise InvalidWriteError(f"The table's delta.targetFileSize={text!r} is no size. Nothing was changed.")
    return size
