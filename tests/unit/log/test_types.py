"""Delta's types, as the JSON of a schema spells them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_onelake.log.types import (
    fields_within,
    is_primitive,
    is_wider,
    precision_and_scale,
    sql_name,
    struct_of,
    types_within,
)


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


INNER = struct_of([field("b", {"type": "array", "elementType": struct_of([field("c", "long")])}), field("d", "date")])
NESTED = struct_of([field("a", {"type": "map", "keyType": "string", "valueType": INNER}), field("e", "void")])


def test_a_field_stands_before_those_inside_it() -> None:
    assert [one["name"] for one in fields_within(NESTED)] == ["a", "b", "c", "d", "e"]


def test_every_type_inside_a_type_is_found() -> None:
    assert [kind for kind in types_within(NESTED) if isinstance(kind, str)] == ["string", "long", "date", "void"]
    assert list(types_within("long")) == ["long"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("decimal(10,2)", (10, 2)), ("decimal( 38 , 0 )", (38, 0)), ("decimal", (10, 0)), ("long", None), (INNER, None)],
)
def test_a_decimal_says_its_digits(kind: Any, expected: tuple[int, int] | None) -> None:
    assert precision_and_scale(kind) == expected


def test_only_what_every_table_may_hold_is_primitive() -> None:
    assert all(map(is_primitive, ("byte", "binary", "timestamp_ntz", "decimal(3,1)")))
    assert not any(map(is_primitive, ("void", "variant", "interval", INNER)))


def test_sql_calls_integers_otherwise() -> None:
    assert [sql_name(kind) for kind in ("byte", "long", "decimal(3,1)", INNER)] == [
        "TINYINT",
        "BIGINT",
        "DECIMAL(3,1)",
        "STRUCT",
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("byte", "long", True),
        ("long", "integer", False),
        ("integer", "double", True),
        ("long", "double", False),
        ("integer", "decimal(10,0)", True),
        ("integer", "decimal(10,1)", False),
        ("long", "decimal(20,0)", True),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(11,4)", False),
        ("decimal(10,2)", "decimal(10,1)", False),
        ("string", "decimal(38,0)", False),
    ],
)
def test_a_type_is_widened_only_where_every_value_fits(before: str, after: str, expected: bool) -> None:
    assert is_wider(before, after) is expected
