"""Whether rows have the columns of a table, decided before anything is written.

Spark's append fills a missing column with NULL and casts what it can; a writer that lost a column would never notice.
Here a column is missing, unknown or of the wrong type before Spark works, and all of them are named at once.

What is cast without being asked is what loses nothing, whatever the value: wider integers, ``float`` to ``double``,
integers of up to four bytes to ``double``, integers and decimals to a decimal that holds them all, ``date`` to
``timestamp`` (sessions are in UTC), and ``void`` to anything. This is narrower than Spark's store assignment (ANSI
lets a ``bigint`` into an ``int`` and a ``timestamp`` into a ``date``), and than Spark's up-cast (``bigint`` to
``float``). Whoever wants those writes the cast into a step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

# Spark's JSON form of a type: a name such as "long", or an object for struct, array and map.
JsonType = str | dict[str, Any]

_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_WIDER = {
    "byte": {"short", "integer", "long", "float", "double"},
    "short": {"integer", "long", "float", "double"},
    "integer": {"long", "double"},
    "float": {"double"},
    "date": {"timestamp", "timestamp_ntz"},
}
_DDL = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")

GENERATED = "delta.generationExpression"
DEFAULT = "CURRENT_DEFAULT"


class RowsDoNotFitError(ValueError):
    """The rows do not have the columns or types of the table."""


def fit(
    rows: dict[str, Any],
    table: dict[str, Any],
    where: str,
    *,
    missing_as_null: bool = False,
    partition_columns: Sequence[str] = (),
) -> list[str]:
    """Return the expressions that turn rows into the table's columns.

    :param rows: schema of the rows, as Spark's JSON.
    :param table: schema of the table, as its log has it, with generation expressions and defaults.
    :param where: the table's name for messages.
    :param missing_as_null: whether rows may lack a nullable column, which Spark then fills with NULL: writers of an
        old and of a new shape work side by side where a table's schema evolves. Default: no.
    :param partition_columns: of the table, which are never filled so: a misspelt one would put every row into the
        partition of NULL, and replace what is there. Default: none.
    :returns: one SQL expression for each column of the rows, with the table's spelling of its name.
    :raises RowsDoNotFitError: names every column that is missing, unknown, there twice or of the wrong type.
    """
    columns = {field["name"].lower(): field for field in table["fields"]}
    problems: list[str] = []
    expressions: list[str] = []
    unknown = wider = False
    seen: set[str] = set()
    for field in rows["fields"]:
        key = field["name"].lower()
        column = columns.get(key)
        if key in seen:
            problems.append(f"column {field['name']} is there twice")
        elif column is None:
            unknown = not missing_as_null
            problems.append(f"column {field['name']} {ddl(field['type'])} is not in the table")
        elif _same(field["type"], column["type"]):
            expressions.append(_named(quoted(field["name"]), field["name"], column["name"]))
        elif lossless(field["type"], column["type"]):
            cast = f"CAST({quoted(field['name'])} AS {ddl(column['type'])})"
            expressions.append(f"{cast} AS {quoted(column['name'])}")
        elif column["type"] == "void":
            problems.append(
                f"column {column['name']} is {ddl(field['type'])} in the rows, and VOID in the table, which keeps NULL "
                f"alone there: select NULL AS {column['name']} in a step, or have the table's column made anew with a "
                "type"
            )
        else:
            wider = wider or (isinstance(field["type"], str) and lossless(column["type"], field["type"]))
            problems.append(
                f"column {column['name']} is {ddl(field['type'])} in the rows and {ddl(column['type'])} in the table: "
                "cast it in a step"
            )
        seen.add(key)
    needed = {name.lower() for name in partition_columns}
    for key, column in columns.items():
        null = missing_as_null and column["nullable"] and key not in needed
        filled = {GENERATED, DEFAULT} & set(column.get("metadata") or ()) or null
        if key not in seen and not filled:
            problems.append(f"column {column['name']} {ddl(column['type'])} of the table is missing in the rows")
    if problems:
        # Where a table takes new columns, they are there by now.
        way = " schema_evolution='add_columns' adds columns that are not in the table." if unknown else ""
        if wider:
            way += " OneLakeAlterOperator(column_types=…) widens columns of a table with delta.enableTypeWidening."
        raise RowsDoNotFitError(f"The rows do not fit {where}: {'; '.join(problems)}.{way}")
    return expressions


def check_creatable(rows: dict[str, Any]) -> None:
    """Refuse rows from whose columns no table can be made.

    :param rows: schema of the rows, as Spark's JSON.
    :raises RowsDoNotFitError: a column is there twice, or has no type because all its values are NULL.
    """
    names = [field["name"].lower() for field in rows["fields"]]
    problems = [f"column {name} is there twice" for name in sorted({name for name in names if names.count(name) > 1})]
    problems += [
        f"column {field['name']} has no type, as all its values are NULL: cast it in a step"
        for field in rows["fields"]
        if _has_void(field["type"])
    ]
    if problems:
        raise RowsDoNotFitError(f"No table can be made from the rows: {'; '.join(problems)}.")


def nullable(kind: JsonType) -> JsonType:
    """Return a type all of whose parts may be NULL, as Spark's own writer makes the columns of a new table.

    That a value is never NULL is true of the rows of one query (of every literal, say), not of all that are to come.

    :param kind: type as Spark's JSON.
    """
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return {**kind, "fields": [nullable_field(field) for field in kind["fields"]]}
    if kind["type"] == "array":
        return {**kind, "elementType": nullable(kind["elementType"]), "containsNull": True}
    if kind["type"] == "map":
        inner = {key: nullable(kind[key]) for key in ("keyType", "valueType")}
        return {**kind, **inner, "valueContainsNull": True}
    return kind


def nullable_field(field: dict[str, Any]) -> dict[str, Any]:
    """Return a column that may be NULL, in all its parts.

    :param field: of a schema, as Spark's JSON.
    """
    return {**field, "type": nullable(field["type"]), "nullable": True}


def lossless(given: JsonType, wanted: JsonType) -> bool:
    """Whether every value of one type is exactly a value of the other.

    :param given: type of the rows.
    :param wanted: type of the table.
    """
    if _same(given, wanted) or given == "void":
        return True
    if isinstance(given, dict) and isinstance(wanted, dict):
        inner, outer = _parts(given), _parts(wanted)
        # Spark casts structs by position, so the names must stand in the same order.
        alike = given["type"] == wanted["type"] and [name for name, _ in inner] == [name for name, _ in outer]
        return (
            alike
            and bool(inner)
            and all(lossless(one, other) for (_, one), (_, other) in zip(inner, outer, strict=True))
        )
    if not isinstance(given, str) or not isinstance(wanted, str):
        return False
    target = _DECIMAL.fullmatch(wanted)
    if target is not None:
        whole = _whole_digits(given)
        scale = int(source[2]) if (source := _DECIMAL.fullmatch(given)) else 0
        return whole is not None and int(target[1]) - int(target[2]) >= whole and int(target[2]) >= scale
    return wanted in _WIDER.get(given, ())


def _parts(kind: JsonType) -> list[tuple[str, JsonType]]:
    """Return the types inside a struct, an array or a map, with their names; empty for any other type."""
    if isinstance(kind, str):
        return []
    if kind["type"] == "struct":
        return [(field["name"].lower(), field["type"]) for field in kind["fields"]]
    return [(name, kind[name]) for name in ("elementType", "keyType", "valueType") if name in kind]


def _whole_digits(name: str) -> int | None:
    """Return how many digits stand before the point, at most; None when it is no exact number."""
    decimal = _DECIMAL.fullmatch(name)
    return int(decimal[1]) - int(decimal[2]) if decimal else _DIGITS.get(name)


def _same(one: JsonType, other: JsonType) -> bool:
    """Whether types are equal but for nullability and comments, which Spark and Delta check row by row."""
    return bool(_bare(one) == _bare(other))


def _bare(kind: JsonType) -> Any:
    parts = _parts(kind)
    return (kind["type"], *((name, _bare(part)) for name, part in parts)) if isinstance(kind, dict) and parts else kind


def _has_void(kind: JsonType) -> bool:
    return kind == "void" or any(_has_void(part) for _, part in _parts(kind))


def ddl(kind: JsonType) -> str:
    """Return a type as Spark's DDL.

    :param kind: type as Spark's JSON.
    """
    if isinstance(kind, str):
        return _DDL.get(kind, kind.upper())
    if kind["type"] == "array":
        return f"ARRAY<{ddl(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"MAP<{ddl(kind['keyType'])}, {ddl(kind['valueType'])}>"
    if kind["type"] == "struct":
        return "STRUCT<" + ", ".join(f"{quoted(f['name'])}: {ddl(f['type'])}" for f in kind["fields"]) + ">"
    return str(kind["type"]).upper()


def ended(expression: str) -> str:
    """Return an author's expression in parentheses of its own lines, as it may end in a comment."""
    return f"(\n{expression}\n)"


def unmet(condition: str) -> str:
    """Return SQL for the number of rows for which a condition is not true: for NULL it is not met."""
    return f"count_if(NOT coalesce({ended(condition)}, false))"


def quoted(name: str) -> str:
    """Return an identifier as it stands in SQL.

    :param name: of a column or view.
    """
    return "`" + name.replace("`", "``") + "`"


def _named(expression: str, given: str, wanted: str) -> str:
    return expression if given == wanted else f"{expression} AS {quoted(wanted)}"
