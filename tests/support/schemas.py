"""Columns and types of tables as Delta spells them."""

from __future__ import annotations

from typing import Any


def field(name: str, kind: Any = "long", nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    """A column, or a field of a struct."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    """A struct, or the columns of a table."""
    return {"type": "struct", "fields": list(fields)}


def array(of: Any, nulls: bool = True) -> dict[str, Any]:
    """A list of values, which may be NULL."""
    return {"type": "array", "elementType": of, "containsNull": nulls}


def map_of(keys: Any, values: Any, nulls: bool = True) -> dict[str, Any]:
    """Values by key, which may be NULL."""
    return {"type": "map", "keyType": keys, "valueType": values, "valueContainsNull": nulls}
