"""A table's columns, read from the JSON of its ``metaData``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import attrs

from airflow_provider_onelake.log.actions import Metadata
from airflow_provider_onelake.log.types import JsonType

GENERATION = "delta.generationExpression"
DEFAULT = "CURRENT_DEFAULT"
CONSTRAINT = "delta.constraints."
PHYSICAL_NAME = "delta.columnMapping.physicalName"
# Delta stores CHAR, VARCHAR and collated columns as plain strings, and keeps the real type in the column's metadata.
CHAR_OR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
COLLATIONS = "__COLLATIONS"
MAPPING_ID = "delta.columnMapping.id"
TYPE_CHANGES = "delta.typeChanges"


@attrs.frozen
class Column:
    """One column of a table, or one field of a nested one.

    :param name: the name as users write it.
    :param type: Spark's name of a primitive type, or the JSON of a nested one.
    :param nullable: whether NULL is allowed.
    :param metadata: the field's metadata: generation expression, default, invariants, physical name, ….
    """

    name: str
    type: JsonType
    nullable: bool
    metadata: Mapping[str, Any]

    @property
    def generation(self) -> str | None:
        """The expression that generates the column, if any."""
        return self.metadata.get(GENERATION)

    @property
    def default(self) -> str | None:
        """The column's default expression, if any."""
        return self.metadata.get(DEFAULT)

    @property
    def physical_name(self) -> str:
        """The column's name in files and ``partitionValues``; under column mapping, a rename does not change it."""
        return str(self.metadata.get(PHYSICAL_NAME) or self.name)

    @property
    def field_id(self) -> int | None:
        """The column's number under column mapping."""
        found = self.metadata.get(MAPPING_ID)
        return int(found) if found is not None else None


def columns(metadata: Metadata) -> Mapping[str, Column]:
    """Return a table's columns by name.

    :param metadata: a ``metaData`` action's body.
    """
    return _columns(metadata["schemaString"], column_mapping(metadata) != "none")


# Every attempt of a commit reads the schema again, and the schema hardly ever changes, so cache the parsed columns.
@lru_cache(maxsize=64)
def _columns(schema: str, mapped: bool) -> Mapping[str, Column]:
    struct = json.loads(schema, object_hook=None if mapped else _without_mapping)
    return MappingProxyType({column.name: column for column in fields(struct)})


def _without_mapping(value: dict[str, Any]) -> dict[str, Any]:
    # A table without column mapping may have names and ids left over from an earlier one. Its files do not use them.
    return {key: item for key, item in value.items() if key not in (PHYSICAL_NAME, MAPPING_ID)}


def fields(struct: Mapping[str, Any]) -> list[Column]:
    """Return the fields of a struct, in order.

    :param struct: the JSON of its type.
    """
    return [Column(f["name"], f["type"], f["nullable"], f.get("metadata") or {}) for f in struct["fields"]]


def partition_columns(metadata: Metadata) -> tuple[str, ...]:
    """Return the names of a table's partition columns, in their order.

    :param metadata: a ``metaData`` action's body.
    """
    return tuple(metadata.get("partitionColumns") or ())


def column_mapping(metadata: Metadata) -> str:
    """Return a table's column mapping mode, by which its files identify columns: ``none``, ``name`` or ``id``.

    :param metadata: a ``metaData`` action's body.
    """
    return setting(metadata, "delta.columnMapping.mode") or "none"


def setting(metadata: Metadata, name: str) -> str:
    """Return the value of a table's property in lower case; an empty text where it is not set."""
    return str((metadata.get("configuration") or {}).get(name) or "").lower()


def flag(metadata: Metadata, name: str) -> bool:
    """Say whether a table's property is switched on."""
    return setting(metadata, name) == "true"


def constraints(metadata: Metadata) -> dict[str, str]:
    """Return a table's CHECK constraints: their expressions by name.

    :param metadata: a ``metaData`` action's body.
    """
    configuration = metadata.get("configuration") or {}
    return {k.removeprefix(CONSTRAINT): v for k, v in configuration.items() if k.startswith(CONSTRAINT)}
