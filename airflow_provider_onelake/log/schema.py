"""A table's columns, read from the JSON that Delta keeps of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import attrs

_GENERATION = "delta.generationExpression"
_DEFAULT = "CURRENT_DEFAULT"
_CONSTRAINT = "delta.constraints."


@attrs.frozen
class Column:
    """One column of a table.

    :param name: as users write it.
    :param type: Spark's name of a primitive type, or the JSON of a nested one.
    :param nullable: whether NULL is allowed.
    :param metadata: field metadata: generation expression, default, invariants, ….
    """

    name: str
    type: Any
    nullable: bool
    metadata: Mapping[str, Any]

    @property
    def generation(self) -> str | None:
        """The expression that generates the column, if any."""
        return self.metadata.get(_GENERATION)

    @property
    def default(self) -> str | None:
        """The column's default expression, if any."""
        return self.metadata.get(_DEFAULT)


def columns(metadata: Mapping[str, Any]) -> Mapping[str, Column]:
    """Return a table's columns by name.

    :param metadata: a ``metaData`` action's body.
    """
    return _columns(metadata["schemaString"])


# Every attempt of a commit looks at the schema anew, and it hardly ever changes.
@lru_cache(maxsize=64)
def _columns(schema: str) -> Mapping[str, Column]:
    fields = json.loads(schema)["fields"]
    return MappingProxyType(
        {f["name"]: Column(f["name"], f["type"], f["nullable"], f.get("metadata") or {}) for f in fields}
    )


def partition_columns(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of a table's partition columns, in their order.

    :param metadata: a ``metaData`` action's body.
    """
    return tuple(metadata.get("partitionColumns") or ())


def constraints(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return a table's CHECK constraints: their expressions by name.

    :param metadata: a ``metaData`` action's body.
    """
    configuration = metadata.get("configuration") or {}
    return {k.removeprefix(_CONSTRAINT): v for k, v in configuration.items() if k.startswith(_CONSTRAINT)}


def misfits(staged: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ways in which files staged under one metadata no longer fit another (protocol, rule 17).

    :param staged: the ``metaData`` that the buffer was opened with, but for its id.
    :param current: the table's ``metaData`` on the snapshot that is committed against.
    """
    if partition_columns(staged) != partition_columns(current):
        yield f"it is partitioned by {_list(partition_columns(current))}, not by {_list(partition_columns(staged))}"
    before, now = columns(staged), columns(current)
    for name, column in before.items():
        if name not in now:
            yield f"column {name} is gone"
        elif now[name].type != column.type:
            yield f"column {name} is {now[name].type}, not {column.type}"
        elif column.nullable and not now[name].nullable:
            yield f"column {name} is NOT NULL now"
        elif _meaning(now[name]) != _meaning(column):
            yield f"column {name} has another generation expression, default or identity"
    for name in now.keys() - before.keys():
        if not now[name].nullable or now[name].generation or now[name].default:
            yield f"the new column {name} is NOT NULL, generated, or has a default, and the staged files lack it"
    for name, expression in constraints(current).items():
        if constraints(staged).get(name) != expression:
            yield f"CHECK {name} ({expression}) was added"


def _meaning(column: Column) -> dict[str, Any]:
    return {key: value for key, value in column.metadata.items() if key != "comment"}


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"
