"""What differs between two versions of a table, from the log and its statistics alone: no data file is opened.

Files that a compaction has only packed anew hold the same rows, so they count apart from files that came or went. Of
any other file all rows count: one that was rewritten for one row counts as removed, and what took its place as added.
Which rows these are, only the rows themselves tell (``rows/compare.py``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import LogGapError
from airflow_provider_onelake.log.actions import Add, FileKey, Remove, file_key, row_count, total_rows
from airflow_provider_onelake.log.features import all_features_of
from airflow_provider_onelake.log.partitions import InPartitions, PartitionPredicate
from airflow_provider_onelake.log.schema import Column, column_mapping, columns, partition_columns
from airflow_provider_onelake.log.types import sql_name

if TYPE_CHECKING:
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot


@attrs.frozen(kw_only=True)
class Files:
    """The files of one version that another version does not have, or has under another deletion vector.

    :param whole: that the other version does not have.
    :param vectored: that the other version has with another deletion vector.
    :param packed: that a compaction has packed anew: the other version has the same rows in other files.
    """

    whole: tuple[Add, ...] = attrs.field(default=(), repr=False)
    vectored: tuple[Add, ...] = attrs.field(default=(), repr=False)
    packed: tuple[Add, ...] = attrs.field(default=(), repr=False)

    @property
    def different(self) -> tuple[Add, ...]:
        """The files whose rows the other version may not have."""
        return (*self.whole, *self.vectored)


@attrs.frozen(kw_only=True)
class Counts:
    """What differs in numbers.

    :param files_added: that only the later version has, and ``bytes_added`` in them.
    :param files_removed: that only the earlier version has, and ``bytes_removed`` in them.
    :param files_changed: that both have, under different deletion vectors.
    :param rows_added: in files that were added, or shown again by a deletion vector; ``None`` where statistics do not
        say. A row that was only rewritten counts as removed and as added.
    :param rows_removed: in files that were removed, or hidden by a deletion vector.
    """

    files_added: int = 0
    files_removed: int = 0
    files_changed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    rows_added: int | None = 0
    rows_removed: int | None = 0


@attrs.frozen(kw_only=True)
class Difference:
    """What differs between two versions of a table.

    :param before: the version that is compared.
    :param after: the version that it is compared with.
    :param rows_before: how many rows it has; ``None`` where statistics do not say. ``rows_after`` as well.
    :param counts: over all partitions.
    :param files_packed: how many files of the one version a compaction has packed into others, with the same rows.
    :param files_packed_into: into how many.
    :param partitions: the same by partition, as people write it; only those with a difference.
    :param definition: what differs in columns, properties and protocol, a sentence each.
    :param operations: how many commits of each operation lie between them; ``None`` where the log was cleaned up.
    """

    table: str
    before: int
    after: int
    rows_before: int | None
    rows_after: int | None
    counts: Counts
    files_packed: int
    files_packed_into: int
    partitions: Mapping[str, Counts]
    definition: tuple[str, ...]
    operations: Mapping[str, int] | None

    @property
    def is_empty(self) -> bool:
        """Whether both versions have the same files and the same definition."""
        return self.counts == Counts() and not self.files_packed and not self.definition

    def to_json(self) -> dict[str, Any]:
        """Return it for programs, such as XCom."""
        return {**attrs.asdict(self), "definition": list(self.definition)}


@attrs.frozen
class Compared:
    """Two versions side by side.

    :param gone: files of the earlier one, and ``come`` of the later one, that the other does not have so.
    """

    log: DeltaLog
    before: Snapshot
    after: Snapshot
    gone: Files
    come: Files
    rows_before: int | None
    rows_after: int | None
    commits: tuple[Commit, ...] | None = attrs.field(repr=False)

    @classmethod
    def of(cls, log: DeltaLog, before: Snapshot, after: Snapshot, where: str | None = None) -> Compared:
        """Find the files that differ.

        :param before: the version that is compared; it may be the later one.
        :param after: the version that it is compared with. Its partition columns are those of ``where``.
        :param where: a predicate on partition columns: other files are not looked at. Default: all are.
        :raises InvalidWriteError: ``where`` is no predicate on partition columns.
        :raises LogGapError: the log no longer reaches back to a version.
        """
        wanted: Callable[[Add], bool] = _everything
        if where is not None:
            split = after.partitioning
            covers = PartitionPredicate.parse(where, split).covers
            wanted = InPartitions(lambda values: covers(split.partition(values)))
        old = {file_key(file): file for file in log.live_files(wanted, before.version)}
        new = {file_key(file): file for file in log.live_files(wanted, after.version)}
        first, last = sorted((before.version, after.version))
        try:
            commits: tuple[Commit, ...] | None = tuple(log.commits_between(first, last))
        except LogGapError:
            commits = None
        gone = {key: file for key, file in old.items() if key not in new}
        come = {key: file for key, file in new.items() if key not in old}
        there = (gone, come) if before.version <= after.version else (come, gone)
        packed = _packed(commits or (), *there)
        rows = total_rows(old.values()), total_rows(new.values())
        return cls(log, before, after, _split(gone, come, packed), _split(come, gone, packed), *rows, commits)

    def difference(self) -> Difference:
        """Return what differs."""
        split = self.after.partitioning
        same = _physical_split(self.before) == _physical_split(self.after)

        def partition(file: Add) -> str:
            return split.describe(split.partition(file["partitionValues"])) if same else "the table"

        names = dict.fromkeys(map(partition, (*self.gone.different, *self.come.different)))
        of = {name: ([], []) for name in names}  # type: dict[str, tuple[list[Add], list[Add]]]
        for at, files in enumerate((self.gone.different, self.come.different)):
            for file in files:
                of[partition(file)][at].append(file)
        operations = None if self.commits is None else dict(Counter(c.operation or "unknown" for c in self.commits))
        return Difference(
            table=self.log.address,
            before=self.before.version,
            after=self.after.version,
            rows_before=self.rows_before,
            rows_after=self.rows_after,
            counts=_count(self.gone.different, self.come.different),
            files_packed=len(self.gone.packed),
            files_packed_into=len(self.come.packed),
            partitions={name: _count(*of[name]) for name in sorted(of)} if split.types and same else {},
            definition=tuple(definition_difference(self.before, self.after)),
            operations=operations,
        )


def _everything(_: Add) -> bool:
    return True


def _packed(commits: Iterable[Commit], gone: Mapping[FileKey, Add], come: Mapping[FileKey, Add]) -> set[FileKey]:
    """Return the files of compactions that lie wholly between two versions, partition by partition."""
    found: set[FileKey] = set()
    for commit in commits:
        for removed, added in () if commit.data_change else _rewritten(commit):
            if removed and added and removed <= gone.keys() and added <= come.keys():
                found |= removed | added
    return found


def _rewritten(commit: Commit) -> Iterable[tuple[set[FileKey], set[FileKey]]]:
    """Return the files that a compaction removed, and those with the same rows: of each partition, if it names them."""
    found: dict[Any, tuple[set[FileKey], set[FileKey]]] = {}
    both: tuple[Sequence[Add | Remove], ...] = (commit.removes, commit.adds)
    for at, files in enumerate(both):
        for file in files:
            values = file.get("partitionValues")
            partition = None if values is None else frozenset(values.items())
            found.setdefault(partition, (set(), set()))[at].add(file_key(file))
    if all(removed and added for removed, added in found.values()):
        return found.values()
    # A partition that is spelled in two ways looks like two, one of which loses its files.
    return [({file_key(file) for file in commit.removes}, {file_key(file) for file in commit.adds})]


def _split(files: Mapping[FileKey, Add], others: Mapping[FileKey, Add], packed: set[FileKey]) -> Files:
    paths = {path for path, _ in others}
    rest = {key: file for key, file in files.items() if key not in packed}
    return Files(
        whole=tuple(file for (path, _), file in rest.items() if path not in paths),
        vectored=tuple(file for (path, _), file in rest.items() if path in paths),
        packed=tuple(file for key, file in files.items() if key in packed),
    )


def _count(gone: Iterable[Add], come: Iterable[Add]) -> Counts:
    old = {file["path"]: file for file in gone}
    new = {file["path"]: file for file in come}
    both = old.keys() & new.keys()
    shown, hidden = _by_vectors([(old[path], new[path]) for path in both])
    added = [file for path, file in new.items() if path not in both]
    removed = [file for path, file in old.items() if path not in both]
    return Counts(
        files_added=len(added),
        files_removed=len(removed),
        files_changed=len(both),
        bytes_added=sum(int(file["size"]) for file in added),
        bytes_removed=sum(int(file["size"]) for file in removed),
        rows_added=_sum(total_rows(added), shown),
        rows_removed=_sum(total_rows(removed), hidden),
    )


def _by_vectors(files: Iterable[tuple[Add, Add]]) -> tuple[int | None, int | None]:
    """Return how many rows deletion vectors have shown again, and how many they have hidden."""
    shown, hidden = 0, 0
    for before, after in files:
        old, new = row_count(before), row_count(after)
        if old is None or new is None:
            return None, None
        shown += max(new - old, 0)
        hidden += max(old - new, 0)
    return shown, hidden


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


# -- the definition ----------------------------------------------------------------------------------------------------


def definition_difference(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Yield what differs between the definitions of two versions, a sentence each."""
    if before.table_id != after.table_id:
        yield "the table was replaced by another"
    yield from _columns_difference(before, after)
    if _physical_split(before) != _physical_split(after):
        yield f"it is partitioned by {_listed(partition_columns(after.metadata))}, not by " + _listed(
            partition_columns(before.metadata)
        )
    old, new = dict(before.configuration), dict(after.configuration)
    for name in sorted({*old, *new}):
        if name not in new:
            yield f"the property {name} is unset (was {old[name]})"
        elif name not in old:
            yield f"the property {name} is {new[name]}"
        elif old[name] != new[name]:
            yield f"the property {name} is {new[name]} (was {old[name]})"
    if before.clustering_columns != after.clustering_columns:
        yield "its clustering columns are others"
    had, has = all_features_of(before.protocol), all_features_of(after.protocol)
    if has - had:
        yield f"its protocol has {_listed(sorted(has - had))}"
    if had - has:
        yield f"its protocol no longer has {_listed(sorted(had - has))}"
    if (before.metadata.get("description") or "") != (after.metadata.get("description") or ""):
        yield "its comment is another"


def matching_columns(before: Snapshot, after: Snapshot) -> dict[str, str]:
    """Return which column of the earlier version is which of the later one: its names by their names now.

    Under column mapping they are told by their physical names, so a column that was dropped and added again is another.
    """
    old, new = columns(before.metadata), columns(after.metadata)
    if before.table_id == after.table_id and column_mapping(after.metadata) != "none":
        by_physical = {column.physical_name: name for name, column in old.items()}
        found = {name: by_physical.get(column.physical_name) for name, column in new.items()}
        return {name: was for name, was in found.items() if was is not None}
    by_small = {name.lower(): name for name in old}
    return {name: by_small[name.lower()] for name in new if name.lower() in by_small}


def _columns_difference(before: Snapshot, after: Snapshot) -> Iterator[str]:
    old, new = columns(before.metadata), columns(after.metadata)
    same = matching_columns(before, after)
    for name, column in new.items():
        was = same.get(name)
        if was is None:
            yield f"column {name} ({sql_name(column.type)}) is new"
            continue
        if was != name:
            yield f"column {was} is called {name}"
        if _type(old[was]) != _type(column):
            yield f"column {name} is {_shown(column)}, not {_shown(old[was])}"
        elif old[was].nullable != column.nullable:
            yield f"column {name} {'may be' if column.nullable else 'is never'} NULL"
    for name, column in old.items():
        if name not in same.values():
            yield f"column {name} ({sql_name(column.type)}) is gone"


def _type(column: Column) -> str:
    return json.dumps(column.type, sort_keys=True)


def _shown(column: Column) -> str:
    return sql_name(column.type) if isinstance(column.type, str) else _type(column)


def _physical_split(snapshot: Snapshot) -> tuple[str, ...]:
    by_name = columns(snapshot.metadata)
    return tuple(by_name[name].physical_name for name in partition_columns(snapshot.metadata))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
