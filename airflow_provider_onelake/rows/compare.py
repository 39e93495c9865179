"""The rows that differ between two versions of a table: only files that differ are read.

A table is a multiset: a row that is there three times and was there once counts twice as added. Rows are compared by
the columns of the second version, as its readers would read the files of the first one: a column by another name is the
same column, a narrower type is widened, a column that came since is NULL, and one that is gone does not count.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import InvalidReadError, ReadRefusedError
from airflow_provider_onelake.log.actions import Add, total_rows
from airflow_provider_onelake.log.difference import Compared, matching_columns
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.log.schema import MAPPING_ID, PHYSICAL_NAME
from airflow_provider_onelake.log.types import is_wider, sql_name
from airflow_provider_onelake.log.values import FarTime, Partition, micros_in
from airflow_provider_onelake.rows.arrow import constant_column
from airflow_provider_onelake.rows.data_file import DataFile
from airflow_provider_onelake.rows.layout import Layout
from airflow_provider_onelake.storage.at_once import few

if TYPE_CHECKING:
    import pyarrow as pa


MOST_ROWS = 20_000_000
"""How many rows are compared at most: the rows of a partition's files that differ are held in memory."""
_AHEAD = 8
_BEFORE, _AFTER, _ROW = "before", "after", "row"


@attrs.frozen(kw_only=True)
class RowDifference:
    """The rows that differ between two versions.

    :param columns: by which rows were compared.
    :param key: the columns by which a row of the one version is the same as one of the other; none without a key.
    :param added: rows that the later version has more often, each as often as it was added.
    :param removed: rows that it has less often.
    :param rows_changed: of these, how many are rows of one key in both; ``None`` without a key.
    :param rows_read: how many rows were compared.
    :param files_read: of how many files.
    """

    table: str
    before: int
    after: int
    columns: tuple[str, ...]
    key: tuple[str, ...]
    added: pa.Table = attrs.field(repr=False)
    removed: pa.Table = attrs.field(repr=False)
    rows_changed: int | None
    rows_read: int
    files_read: int

    @property
    def rows_added(self) -> int:
        """How many rows were added; with a key, without those that were changed."""
        return int(self.added.num_rows) - (self.rows_changed or 0)

    @property
    def rows_removed(self) -> int:
        """How many rows were removed; with a key, without those that were changed."""
        return int(self.removed.num_rows) - (self.rows_changed or 0)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers for programs, such as XCom."""
        return {
            **{name: getattr(self, name) for name in ("table", "before", "after", "rows_added", "rows_removed")},
            **{name: getattr(self, name) for name in ("rows_changed", "rows_read", "files_read")},
            "columns": list(self.columns),
            "key": list(self.key),
        }


@attrs.frozen(kw_only=True)
class ShownRows:
    """Some of the rows that differ, each as a dict.

    :param added: of the rows that :attr:`RowDifference.rows_added` counts.
    :param removed: of those that :attr:`RowDifference.rows_removed` counts.
    :param changed: of those that :attr:`RowDifference.rows_changed` counts: as they were, and as they are.
    """

    added: list[dict[str, Any]]
    removed: list[dict[str, Any]]
    changed: list[tuple[dict[str, Any], dict[str, Any]]]


def compare_rows(
    compared: Compared, columns: Sequence[str] | None = None, key: Sequence[str] = (), most_rows: int = MOST_ROWS
) -> RowDifference:
    """Compare the rows of two versions.

    :param compared: the versions, and the files that differ.
    :param columns: to compare rows by. Default: all of the later version.
    :param key: columns by which a row of the one version is one of the other.
    :param most_rows: how many rows to compare at most.
    :raises InvalidReadError: a column is unknown, or the key is not among the columns.
    :raises ReadRefusedError: a file is gone or damaged, a column is of another type, or there are too many rows.
    :raises UnsupportedFeatureError: a column is of a type that cannot be read.
    """
    table = compared.log.table
    layout = Layout.of(compared.after.metadata)
    names = layout.chosen(columns, table)
    keys = layout.chosen(key, table) if key else []
    if outside := [name for name in keys if name not in names]:
        raise InvalidReadError(f"key={list(key)!r}: {outside[0]} is not among the columns. Nothing was read.")
    _check_types(compared, names)
    sides = (_layout_of_before(compared, layout), layout)
    files = (compared.gone.different, compared.come.different)
    _check_rows(compared, files, most_rows)
    schema = layout.schema(names)
    added, removed, rows = [schema.empty_table()], [schema.empty_table()], 0
    for group in _groups(compared, files, names):
        both = [_read(compared, each, side, names, schema) for each, side in zip(group, sides, strict=True)]
        rows += sum(found.num_rows for found in both)
        gone, come = _multiset_difference(*both)
        removed.append(gone)
        added.append(come)
    found = _joined(removed), _joined(added)
    return RowDifference(
        table=table,
        before=compared.before.version,
        after=compared.after.version,
        columns=tuple(names),
        key=tuple(keys),
        removed=found[0],
        added=found[1],
        rows_changed=_changed(*found, keys) if keys else None,
        rows_read=rows,
        files_read=sum(map(len, files)),
    )


def shown_rows(difference: RowDifference, most: int) -> ShownRows:
    """Return some of the rows that differ, as :func:`as_told` returns them.

    :param most: how many of each kind at most.
    """
    removed, added = difference.removed, difference.added
    pairs = _pairs(removed, added, difference.key) if difference.key else []
    old, new = [was for was, _ in pairs], [now for _, now in pairs]
    changed = zip(_at(removed, old[:most]), _at(added, new[:most]), strict=True)
    return ShownRows(
        added=_at(added, _others(added, new, most)),
        removed=_at(removed, _others(removed, old, most)),
        changed=list(changed),
    )


def as_told(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows for people: times and dates as texts, because Python does not know all of Spark's years."""
    import pyarrow as pa

    told = [column.cast(_without_times(column.type, lambda _: pa.string())) for column in rows.columns]
    return list(pa.table(told, rows.column_names).to_pylist())


def _without_times(kind: pa.DataType, instead: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with another one in the place of each type of dates or times, also inside of nested types.

    :param instead: returns the type that stands in the place of one.
    """
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type, instead)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_without_times(kind.key_type, instead), _without_times(kind.item_type, instead))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_times(kind.value_type, instead)))
    return instead(kind) if pa.types.is_temporal(kind) else kind


# -- what is compared --------------------------------------------------------------------------------------------------


def _check_types(compared: Compared, names: Sequence[str]) -> None:
    """Refuse columns whose values of then are no values of now."""
    before, after = compared.before, compared.after
    if before.column_mapping != after.column_mapping and before.column_mapping != "none":
        raise ReadRefusedError(
            f"The column mapping of {compared.log.table} was {before.column_mapping} in version {before.version} and "
            f"is {after.column_mapping} in version {after.version}, so rows of the one are not read by the columns of "
            "the other. Compare versions of one mapping."
        )
    same, old, new = matching_columns(before, after), Layout.of(before.metadata), Layout.of(after.metadata)
    for name in names:
        if name not in same:
            continue
        was, now = old.columns[same[name]].type, new.columns[name].type
        if isinstance(was, str) and isinstance(now, str):
            fits = was == now or is_wider(was, now)
        else:
            fits = isinstance(was, Mapping) and isinstance(now, Mapping) and was["type"] == now["type"]
        if not fits:
            others = ", ".join(other for other in names if other != name)
            raise ReadRefusedError(
                f"Column {name} of {compared.log.table} was {sql_name(was)} in version {before.version} and is "
                f"{sql_name(now)} in version {after.version}, so its values cannot be compared. Leave it out: "
                f"columns={others}."
            )


def _layout_of_before(compared: Compared, layout: Layout) -> Layout:
    """Return how the files of the earlier version are read into the columns of the later one."""
    same = matching_columns(compared.before, compared.after)
    old = Layout.of(compared.before.metadata)
    fields = {}
    for name, field in layout.fields.items():
        was = old.columns[same[name]] if name in same else None
        told = {k: v for k, v in (field.get("metadata") or {}).items() if k not in (PHYSICAL_NAME, MAPPING_ID)}
        if was is not None:
            told |= {k: v for k, v in was.metadata.items() if k in (PHYSICAL_NAME, MAPPING_ID)}
        # A column that came since, or is another of the same name, has a name that no file has.
        told.setdefault(PHYSICAL_NAME, same[name] if was is not None else "\0")
        fields[name] = {**field, "metadata": told}
    now = {was: name for name, was in same.items()}
    kept = [was for was in old.partitioning.types if was in now]
    split = Partitioning(
        {now[was]: layout.columns[now[was]].type for was in kept},
        {now[was]: old.columns[was].physical_name for was in kept if old.columns[was].physical_name != now[was]},
    )
    mapping = old.mapping if old.mapping == "id" else "name"
    return attrs.evolve(layout, fields=fields, partitioning=split, mapping=mapping)


def _check_rows(compared: Compared, files: Sequence[Sequence[Add]], most: int) -> None:
    rows = [total_rows(each) for each in files]
    many = sum(count or 0 for count in rows)
    if many > most:
        raise ReadRefusedError(
            f"{many:,} rows of {compared.log.table} stand in files that differ between version "
            f"{compared.before.version} and version {compared.after.version}, and at most {most:,} are compared. "
            "Narrow it: give a condition on partition columns (where), or versions that lie closer together."
        )


def _groups(
    compared: Compared, files: tuple[Sequence[Add], Sequence[Add]], names: Sequence[str]
) -> Iterator[tuple[list[Add], list[Add]]]:
    """Yield the files that differ, so that no row of a group can equal a row of another: partition by partition.

    :param names: of the columns by which rows are compared. Other partition columns tell no rows apart.
    """
    splits = compared.before.partitioning, compared.after.partitioning
    if tuple(splits[0].physical.get(n, n) for n in splits[0].types) != tuple(
        splits[1].physical.get(n, n) for n in splits[1].types
    ):
        yield list(files[0]), list(files[1])
        return
    groups: dict[Any, tuple[list[Add], list[Add]]] = {}
    for at, each in enumerate(files):
        for file in each:
            partition = _as_read(splits[1], splits[1].partition(file["partitionValues"]), names)
            groups.setdefault(partition, ([], []))[at].append(file)
    yield from groups.values()


def _as_read(split: Partitioning, partition: Partition, names: Sequence[str]) -> tuple[Any, ...]:
    """Return some values of a partition as its rows have them: an instant without a zone is read as one in UTC."""
    return tuple(
        micros_in(value) if kind == "timestamp" and isinstance(value, datetime | FarTime) else value
        for value, (name, kind) in zip(partition, split.types.items(), strict=True)
        if name in names
    )


def _read(
    compared: Compared, files: Sequence[Add], layout: Layout, names: Sequence[str], schema: pa.Schema
) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet

    log = compared.log

    def rows_of(file: Add) -> pa.Table:
        partition = layout.partition_of(file)
        layout.check_partition(partition, log.table)
        data = DataFile.open(log.store, file, log.table)
        inside = [name for name in names if name not in partition]
        parts = []
        for group in data.groups:
            rows, kept = data.rows_of(group), data.kept_of(group)
            found: dict[str, Any] = data.columns(group, inside, layout)[0] if inside else {}
            for name in names:
                if name in partition:
                    found[name] = constant_column(partition[name], layout.columns[name].type, rows)
            part = pa.Table.from_arrays([found[name] for name in names], schema=schema)
            parts.append(part if kept is None else part.filter(kept))
        return pa.concat_tables([schema.empty_table(), *parts])

    return pa.concat_tables([schema.empty_table(), *few(log.store, rows_of, files, _AHEAD)])


# -- multisets ---------------------------------------------------------------------------------------------------------


def _multiset_difference(before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows that the first table has more often, and those that the second has more often."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.concat_tables([before, after])
    # Names of columns may be anything, so columns are counted.
    keyed = {f"c{at}": _comparable(column) for at, column in enumerate(rows.columns)}
    names = list(keyed)
    for name, ones in ((_BEFORE, (1, 0)), (_AFTER, (0, 1))):
        both = zip(ones, (before.num_rows, after.num_rows), strict=True)
        keyed[name] = pa.chunked_array([pa.repeat(pa.scalar(one, pa.int64()), count) for one, count in both])
    keyed[_ROW] = pa.array(range(rows.num_rows), pa.int64())
    grouped = pa.table(keyed).group_by(names).aggregate([(_BEFORE, "sum"), (_AFTER, "sum"), (_ROW, "min")])
    more = pc.subtract(grouped.column(f"{_AFTER}_sum"), grouped.column(f"{_BEFORE}_sum"))
    at = grouped.column(f"{_ROW}_min")
    return _repeated(rows, at, pc.negate(more)), _repeated(rows, at, more)


def _repeated(rows: pa.Table, at: Any, times: Any) -> pa.Table:
    """Return rows, each as often as is said; less than once is not at all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pc.greater(times, 0)
    at, times = at.filter(wanted), times.filter(wanted)
    if pc.any(pc.greater(times, 1)).as_py():
        counted = zip(at.to_pylist(), times.to_pylist(), strict=True)
        at = pa.array([row for row, count in counted for _ in range(count)], pa.int64())
    return rows.take(at.take(pc.sort_indices(at)))


def _comparable(column: pa.ChunkedArray) -> Any:
    """Return a column by whose values rows can be grouped: equal values are equal there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column.cast(_without_times(column.type, lambda t: pa.int32() if pa.types.is_date32(t) else pa.int64()))
    kind = column.type
    if pa.types.is_nested(kind):
        texts = [None if value is None else json.dumps(_plain(value), default=str) for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_floating(kind):
        # As in Spark, 0.0 equals -0.0, and NaN equals NaN.
        plain = pc.add(column, pa.scalar(0.0, kind))
        return pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), kind), plain)
    return column


def _plain(value: Any) -> Any:
    """Return a nested value as JSON has it; a map is the list of its entries, whose order counts."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        # As in a column that is not nested, 0.0 equals -0.0, and NaN equals NaN.
        return repr(value + 0.0)
    return value if isinstance(value, str | int | bool) or value is None else repr(value)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables(tables)


def _changed(removed: pa.Table, added: pa.Table, key: Sequence[str]) -> int:
    """Return how many rows of one key were removed and added again."""
    gone, come = (Counter(_keys(rows, key)) for rows in (removed, added))
    return (gone & come).total()


def _pairs(removed: pa.Table, added: pa.Table, key: Sequence[str]) -> list[tuple[int, int]]:
    """Return where the rows of one key stand that were removed and added again."""
    new: dict[str, list[int]] = {}
    for at, value in enumerate(_keys(added, key)):
        new.setdefault(value, []).append(at)
    # The first of a key goes with the first.
    waiting = {value: iter(places) for value, places in new.items()}
    gone = enumerate(_keys(removed, key))
    return [(at, other) for at, value in gone if (other := next(waiting.get(value, iter(())), None)) is not None]


def _others(rows: pa.Table, paired: Sequence[int], most: int) -> list[int]:
    """Return where the first rows stand that are in no pair."""
    known = set(paired)
    return list(islice((at for at in range(rows.num_rows) if at not in known), most))


def _at(rows: pa.Table, places: Sequence[int]) -> list[dict[str, Any]]:
    import pyarrow as pa

    # Arrow gives an empty list no type of its own.
    return as_told(rows.take(pa.array(places, pa.int64())))


def _keys(rows: pa.Table, key: Sequence[str]) -> list[str]:
    return [repr(each) for each in zip(*(_comparable(rows.column(name)).to_pylist() for name in key), strict=True)]
