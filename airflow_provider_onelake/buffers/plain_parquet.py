"""Whether Spark may read what a writer has staged as plain Parquet, without the log of its buffer.

Before Spark reads a row of a Delta table, it reads the table's log and lists the files by it, in several Spark jobs.
The files of a complete buffer are known and never change. So where a file says all of its rows, as Delta would read
them, Spark is given the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.log.actions import object_path
from airflow_provider_onelake.log.schema import DEFAULT, GENERATION, column_mapping
from airflow_provider_onelake.log.types import JsonType, fields_within, is_primitive, name_of, struct_of, types_within

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.buffer import Buffer

MOST_FILES = 32
"""Spark lists so many files by itself, and more of them by a Spark job (``parallelPartitionDiscovery.threshold``)."""

_NESTED = ("struct", "array", "map")
# Metadata of a column by which the values in a file are read in no other way.
_OF_WRITERS = frozenset({"comment", GENERATION, DEFAULT})
# Spark passes over files whose names begin with an underscore or a dot, and takes some characters for a pattern.
_PLAIN_NAME = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_.-]*/)*[A-Za-z0-9][A-Za-z0-9_.-]*")


@attrs.frozen
class PlainFiles:
    """Files that Spark may read as plain Parquet.

    :param paths: relative to the table.
    :param schema: of the rows, as Spark's JSON: without metadata, and nullable.
    """

    paths: tuple[str, ...]
    schema: str


def plain_files(buffer: Buffer) -> PlainFiles | None:
    """Return the files of a complete buffer, if Spark reads the same rows from them as from the Delta table.

    This is so if the buffer has no partition columns, whose values are in the log alone, and no column mapping, and if
    all types are primitive ones, or nested ones whose parts may be NULL. What is said in the metadata of a column, such
    as CHAR, VARCHAR, a collation or a widened type, is not in the file. An append has no deletion vectors
    (protocol: exactly version 1). Beyond ``MOST_FILES`` files, the log is cheaper.

    :param buffer: the source of a MERGE, for example.
    :returns: ``None`` if Spark must read the log.
    """
    metadata = buffer.metadata
    paths = [object_path(add) for add in buffer.adds]
    if not 1 <= len(paths) <= MOST_FILES or not all(map(_PLAIN_NAME.fullmatch, paths)):
        return None
    if metadata.get("partitionColumns") or column_mapping(metadata) != "none":
        return None
    schema = json.loads(metadata["schemaString"])
    if not all(map(_is_plain, fields_within(schema))):
        return None
    return PlainFiles(tuple(f"{buffer.path}/{path}" for path in paths), json.dumps(_bare(schema)))


def _is_plain(field: Mapping[str, Any]) -> bool:
    known = set(field.get("metadata") or ()) <= _OF_WRITERS
    return known and all(map(_is_plain_type, types_within(field["type"])))


def _is_plain_type(kind: JsonType) -> bool:
    if not isinstance(kind, Mapping):
        return is_primitive(kind)
    # A value that has NULL where the table's type has none is of another type for Spark.
    within = [field["nullable"] for field in kind.get("fields", ())]
    within += [kind[part] for part in ("containsNull", "valueContainsNull") if part in kind]
    return name_of(kind) in _NESTED and all(within)


def _bare(kind: Any) -> Any:
    """Return a type without the metadata of its fields, all of which may be NULL."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return struct_of(
            [
                {"name": field["name"], "type": _bare(field["type"]), "nullable": True, "metadata": {}}
                for field in kind["fields"]
            ]
        )
    return {**kind, **{part: _bare(kind[part]) for part in ("elementType", "keyType", "valueType") if part in kind}}
