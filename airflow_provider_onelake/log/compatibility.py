"""Whether files staged under one definition of a table can be read correctly under another.

Protocol: compatible definition.

Publishing staged files after an ALTER has the same effect as if they had been in the table before it. So a change is
harmless if an ALTER makes it without touching existing files: it renames, widens or adds a column. A new constraint is
not: the ALTER checks every row of the table against it, but it could not see the rows that were only staged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_onelake.log.actions import Metadata
from airflow_provider_onelake.log.schema import (
    CHAR_OR_VARCHAR,
    COLLATIONS,
    DEFAULT,
    TYPE_CHANGES,
    Column,
    column_mapping,
    columns,
    constraints,
    fields,
    flag,
    partition_columns,
)
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.types import JsonType, is_wider, name_of

# Prefixes of the keys in a field's metadata by which Delta and Spark say what its values must be.
_MEANINGFUL = ("delta.", DEFAULT, "EXISTS_DEFAULT", CHAR_OR_VARCHAR, COLLATIONS)
# Prefixes of keys that are compared separately, or that do not matter to a reader.
_APART = ("delta.columnMapping.", TYPE_CHANGES)


def incompatibilities(staged: Metadata, current: Metadata) -> Iterator[str]:
    """Yield the ways in which files staged under one metadata no longer fit another (protocol: compatible definition).

    Columns are matched by their physical names, so a rename under column mapping fits.

    :param staged: the ``metaData`` that the buffer was opened with; its id is not compared.
    :param current: the table's ``metaData`` on the snapshot that is committed against.
    """
    before, now = column_mapping(staged), column_mapping(current)
    # A table may switch from no column mapping to mapping by name: readers still find the columns of older files, which
    # have no field ids, by name.
    if before != now and (before, now) != ("none", "name"):
        yield f"its column mapping is {now}, not {before}"
    if _partitioning(staged) != _partitioning(current):
        yield f"it is partitioned by {_list(partition_columns(current))}, not by {_list(partition_columns(staged))}"
    yield from _fields(
        list(columns(staged).values()), list(columns(current).values()), "", frozenset(partition_columns(current))
    )
    for name, expression in constraints(current).items():
        if constraints(staged).get(name) != expression:
            yield f"CHECK {name} ({expression}) was added"
    compatible = "delta.enableIcebergCompatV2"
    if flag(current, compatible) and not flag(staged, compatible):
        yield "it must be readable as Iceberg now (icebergCompatV2), which the staged files were not written for"


def _fields(
    staged: list[Column], current: list[Column], prefix: str, partitioned_by: frozenset[str] = frozenset()
) -> Iterator[str]:
    now = {column.physical_name: column for column in current}
    for column in staged:
        name = f"{prefix}{column.name}"
        found = now.pop(column.physical_name, None)
        if found is None:
            yield f"column {name} is gone"
        elif None not in (column.field_id, found.field_id) and column.field_id != found.field_id:
            yield f"column {name} is another column of the same name"
        else:
            yield from _column(column, found, name, found.name in partitioned_by, bool(prefix))
    for column in now.values():
        if not column.nullable or column.generation or column.default:
            yield (
                f"the new column {prefix}{column.name} is NOT NULL, generated, or has a default, and the staged files "
                "lack it"
            )


def _column(staged: Column, current: Column, name: str, partition: bool, nested: bool) -> Iterator[str]:
    if staged.nullable and not current.nullable:
        yield f"column {name} is NOT NULL now"
    meant = _meaning(staged)
    if any(meant.get(key) != value for key, value in _meaning(current).items()):
        yield f"column {name} has another generation expression, default, length, rule or identity"
    if isinstance(staged.type, str) and isinstance(current.type, str) and staged.type != current.type:
        changed = f"column {name} is {current.type}, not {staged.type}"
        if not _widened(staged.type, current):
            yield changed
        elif partition or nested:
            where = "a partition column" if partition else "a nested field"
            yield f"{changed}, and staged files follow a wider type of {where} only when staged again"
    else:
        yield from _type(staged.type, current.type, name)


def _type(staged: JsonType, current: JsonType, name: str) -> Iterator[str]:
    """Compare two types; messages name a nested field by its path."""
    if isinstance(staged, str) or isinstance(current, str) or staged["type"] != current["type"]:
        if staged != current:
            yield f"column {name} is {name_of(current)}, not {name_of(staged)}"
        return
    if staged["type"] == "struct":
        yield from _fields(fields(staged), fields(current), f"{name}.")
        return
    for part, nulls in (("elementType", "containsNull"), ("keyType", ""), ("valueType", "valueContainsNull")):
        if part in staged:
            yield from _type(staged[part], current[part], f"{name}.{part.removesuffix('Type')}")
        if nulls and staged.get(nulls) and not current.get(nulls):
            yield f"column {name} may hold no NULL now"


def _widened(staged: str, current: Column) -> bool:
    """Say whether the type changes that the table records lead from the staged type to the current one."""
    kind = staged
    for change in current.metadata.get(TYPE_CHANGES) or ():
        if not change.get("fieldPath") and change["fromType"] == kind and is_wider(kind, change["toType"]):
            kind = change["toType"]
    return bool(kind == current.type)


def _partitioning(metadata: Metadata) -> list[str]:
    by_name = columns(metadata)
    return [by_name[name].physical_name for name in partition_columns(metadata)]


def _meaning(column: Column) -> dict[str, Any]:
    return {k: v for k, v in column.metadata.items() if k.startswith(_MEANINGFUL) and not k.startswith(_APART)}


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


def unfit(before: Snapshot, now: Snapshot) -> str | None:
    """Say why files that Spark rewrote in a shadow no longer fit the table, or ``None``.

    :param before: the snapshot from which the shadow was made.
    :param now: the newest one.
    """
    if now.table_id != before.table_id:
        return "the table was replaced by another"
    if _protocol(now) != _protocol(before):
        return f"the table's protocol was changed (seen at version {now.version})"
    reasons = list(incompatibilities(before.metadata, now.metadata))
    # If row tracking was switched on since, rows in the rewritten files would get new ids.
    if _row_tracking(before) != _row_tracking(now):
        reasons.append("row tracking was switched")
    return f"the table changed: {'; '.join(reasons)} (seen at version {now.version})" if reasons else None


def _protocol(snapshot: Snapshot) -> tuple[Any, ...]:
    versions = (snapshot.protocol["minReaderVersion"], snapshot.protocol["minWriterVersion"])
    return (*versions, snapshot.writer_features)


def _row_tracking(snapshot: Snapshot) -> Mapping[str, str]:
    return {
        key: value
        for key, value in snapshot.configuration.items()
        if key == "delta.enableRowTracking" or key.startswith("delta.rowTracking.")
    }
