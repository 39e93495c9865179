"""Delta's types, as the JSON of a schema spells them: a name for a primitive type, an object for a nested one.

Jobs on Spark are shipped without this package, so ``spark/jobs/columns.py`` says for itself what Spark casts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

JsonType = str | Mapping[str, Any]

INTEGERS: Mapping[str, int] = {"byte": 1, "short": 2, "integer": 4, "long": 8}
"""The names of the integer types, with their sizes in bytes."""

_PRIMITIVES = frozenset(
    (*INTEGERS, "float", "double", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
)
_SQL_NAMES = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
_CALLED = {**{sql.lower(): name for name, sql in _SQL_NAMES.items()}, "real": "float"}
_MOST_DIGITS = 38
_DECIMAL = re.compile(r"decimal(?:\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\))?")
_PARTS = ("elementType", "keyType", "valueType")
# The digits before the point that a decimal needs to hold each integer type, by Delta's rule for type widening.
_WHOLE = {"byte": 10, "short": 10, "integer": 10, "long": 20}
_WIDER = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
}


def name_of(kind: JsonType) -> str:
    """Return a type's name; of a nested type, only whether it is a struct, an array or a map."""
    return kind if isinstance(kind, str) else str(kind["type"])


def sql_name(kind: JsonType) -> str:
    """Return the name by which SQL calls a type."""
    name = name_of(kind)
    return _SQL_NAMES.get(name, name.upper())


def type_called(name: str) -> str:
    """Return the type that SQL, or a schema, calls by a name.

    :raises ValueError: it is no primitive type.
    """
    text = name.strip().lower()
    found = _CALLED.get(text, text)
    digits = precision_and_scale(found)
    if digits is not None:
        found = f"decimal({digits[0]},{digits[1]})"
        if not digits[1] <= digits[0] <= _MOST_DIGITS or not digits[0]:
            raise ValueError(name)
    if not is_primitive(found):
        raise ValueError(name)
    return found


def precision_and_scale(kind: JsonType) -> tuple[int, int] | None:
    """Return a decimal's number of digits, and how many of them are behind the point; ``None`` for another type."""
    match = _DECIMAL.fullmatch(name_of(kind))
    return (int(match[1] or 10), int(match[2] or 0)) if match else None


def is_primitive(kind: JsonType) -> bool:
    """Say whether a type is a primitive one that every Delta table may hold."""
    return name_of(kind) in _PRIMITIVES or precision_and_scale(kind) is not None


def is_wider(before: str, after: str) -> bool:
    """Say whether Delta's type widening may change one primitive type into another."""
    wide = precision_and_scale(after)
    if wide is None:
        return after in _WIDER.get(before, ())
    if before in _WHOLE:
        return wide[0] - wide[1] >= _WHOLE[before]
    narrow = precision_and_scale(before)
    return narrow is not None and wide[0] - narrow[0] >= wide[1] - narrow[1] >= 0


def struct_of(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the struct that has these fields; a table's schema is one."""
    return {"type": "struct", "fields": fields}


def types_within(kind: JsonType) -> Iterator[JsonType]:
    """Yield a type, and every type inside it."""
    yield kind
    if isinstance(kind, Mapping):
        inner = [field["type"] for field in kind.get("fields", ())]
        for one in (*inner, *(kind[part] for part in _PARTS if part in kind)):
            yield from types_within(one)


def fields_within(kind: JsonType) -> Iterator[dict[str, Any]]:
    """Yield every field of a struct, and of the structs inside it; a field stands before those inside it."""
    if isinstance(kind, Mapping):
        for field in kind.get("fields", ()):
            yield field
            yield from fields_within(field["type"])
        for part in _PARTS:
            yield from fields_within(kind.get(part, ""))
