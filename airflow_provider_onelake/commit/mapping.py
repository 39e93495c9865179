"""Physical names and ids of new columns, which column mapping requires."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from airflow_provider_onelake.commit.transaction import random_id
from airflow_provider_onelake.log.schema import MAPPING_ID, PHYSICAL_NAME

MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"


def map_columns(fields: list[dict[str, Any]], newest: int, random: Random) -> int:
    """Give columns, and the fields inside them, an id and a physical name each.

    :param fields: as the JSON of a schema has them; changed in place.
    :param newest: the highest id that the table has given out.
    :param random: for the names.
    :returns: the highest id now.
    """
    for newest, field in enumerate(fields_within({"type": "struct", "fields": fields}), start=newest + 1):  # noqa: B020
        name = f"col-{random_id(random)}"
        field["metadata"] = {**(field.get("metadata") or {}), MAPPING_ID: newest, PHYSICAL_NAME: name}
    return newest


def fields_within(kind: Any) -> Iterator[dict[str, Any]]:
    """Yield every field of a struct, and of the structs inside it.

    :param kind: a type, as the JSON of a schema has it.
    """
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        yield field
        yield from fields_within(field["type"])
    for key in ("elementType", "keyType", "valueType"):
        yield from fields_within(kind.get(key))
