"""Columns by their paths: ``fare``, ``address.city``, ``` `a.b` ```; and which columns an SQL expression names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

Path = tuple[str, ...]
Field = dict[str, Any]

_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_TEXT = re.compile(r"""[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*\"""", re.DOTALL)
# Spark takes these words for a column if there is one. sqlglot always takes the functions for functions, and takes the
# keywords for keywords in places such as `values IS NOT NULL`.
_FUNCTIONS_WITHOUT_BRACKETS = (
    *("current_catalog", "current_database", "current_date", "current_schema", "current_time", "current_timestamp"),
    *("current_user", "localtimestamp", "session_user", "user"),
)
_KEYWORDS = frozenset(
    ["all", "any", "array", "as", "describe", "distinct", "fetch", "from", "interval", "list", "select", "values"]
)
_WORD = re.compile(r"`(?:[^`]|``)+`|\w+")


@attrs.frozen
class FieldAt:
    """A field of a schema.

    :param path: with the names as the schema spells them.
    :param field: the field itself.
    """

    path: Path
    field: Field = attrs.field(repr=False)


def parse_path(text: str) -> Path:
    """Return the names of which a path consists. A name with a dot in it stands in backticks.

    :raises ValueError: the text is no path.
    """
    names: list[str] = []
    at = 0
    while match := _PART.match(text, at):
        names.append(match[1].replace("``", "`") if match[1] is not None else match[2].strip())
        at = match.end()
        if at == len(text) and all(names):
            return tuple(names)
        if text[at : at + 1] != ".":
            break
        at += 1
    raise ValueError(text)


def written(path: Path) -> str:
    """Return a path as people write it."""
    return ".".join(name if re.fullmatch(r"\w+", name) else f"`{name.replace('`', '``')}`" for name in path)


def find(schema: Mapping[str, Any], path: Path) -> FieldAt | None:
    """Return the field at a path; ``None`` where there is none. Names are compared as Spark does, whatever their case.

    Inside arrays and maps a path goes on with ``element``, ``key`` or ``value``, as in Spark.

    :param schema: the JSON of a table's schema.
    """
    kind: Any = schema
    found: Field | None = None
    names: list[str] = []
    for name in path:
        inside = kind.get("type") if isinstance(kind, Mapping) else None
        step = {"element": "elementType", "key": "keyType", "value": "valueType"}.get(name.lower())
        if inside == "struct":
            same = [field for field in kind["fields"] if field["name"].lower() == name.lower()]
            found = next((field for field in same if field["name"] == name), same[0] if same else None)
            if found is None:
                return None
            names.append(found["name"])
            kind = found["type"]
        elif inside in ("array", "map") and step in kind:
            found = None
            names.append(name.lower())
            kind = kind[step]
        else:
            return None
    return None if found is None else FieldAt(tuple(names), found)


def unknown_in(expression: str, schema: Mapping[str, Any]) -> list[str]:
    """Return the columns that an SQL expression names for certain, and that a schema does not have.

    :param expression: in Spark SQL; one that cannot be read here names none for certain.
    :param schema: the JSON of a table's schema.
    """
    # `as` stands in every CAST, and is no column there.
    if any(word.lower() in _KEYWORDS and word.lower() != "as" for word in _words(expression)):
        return []
    try:
        named = sorted(_parsed(expression))
    except Exception:
        return []
    return [
        written(path)
        for path in named
        if find(schema, path[:1]) is None and path[0].lower() not in _FUNCTIONS_WITHOUT_BRACKETS
    ]


def _parsed(expression: str) -> set[Path]:
    import sqlglot
    from sqlglot import exp

    # A bare expression that begins with `comment` or `load` would be taken for a statement.
    tree: Any = sqlglot.parse_one(f"SELECT 1 WHERE (\n{expression}\n)", dialect="spark")
    return {tuple(part.name for part in column.parts) for column in tree.find_all(exp.Column)}


def _words(expression: str) -> Iterator[str]:
    for match in _WORD.finditer(_TEXT.sub(" ", expression)):
        yield match[0].strip("`").replace("``", "`")
