"""Columns by their paths, and the columns that an expression names."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_onelake.log.paths import find, parse_path, unknown_in, written
from airflow_provider_onelake.log.types import struct_of


def struct(**fields: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in fields.items()],
    }


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("fare", ("fare",)),
        ("address.city", ("address", "city")),
        ("`a.b`.c", ("a.b", "c")),
        ("`tick``s`", ("tick`s",)),
        ("with blank", ("with blank",)),
    ],
)
def test_a_path_is_read_and_written(text: str, path: tuple[str, ...]) -> None:
    assert parse_path(text) == path
    assert parse_path(written(path)) == path


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "`a", "`a`b", " "])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_path(text)


def test_fields_are_found_in_any_case_and_inside_of_arrays_and_maps() -> None:
    inner = struct(City="string")
    schema = struct(
        Address=inner,
        many={"type": "array", "elementType": inner, "containsNull": True},
        by_name={"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True},
        element="integer",
    )
    found = find(schema, ("address", "city"))
    assert found is not None
    assert (found.path, found.field["type"]) == (("Address", "City"), "string")
    assert find(schema, ("many", "element", "city")).path == ("many", "element", "City")  # type: ignore[union-attr]
    assert find(schema, ("by_name", "value", "city")) is not None
    assert find(schema, ("element",)) is not None
    # An element is no field, and what is not there is not found.
    for path in (("many", "element"), ("many", "city"), ("by_name", "key"), ("nope",), ("address", "city", "x")):
        assert find(schema, path) is None


def test_the_exact_name_goes_before_the_same_in_another_case() -> None:
    assert find(struct(ID="integer", id="long"), ("id",)).field["type"] == "long"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        ("idd + CAST(ID AS int)", ["idd"]),
        ("year(at.x)", ["at.x"]),
        ("current_date() > id", []),
        # Here sqlglot may take words for something else than Spark does.
        ("values IS NOT NULL", []),
        ("id > (", []),
    ],
)
def test_a_column_that_an_expression_names_for_certain_must_be_there(expression: str, unknown: list[str]) -> None:
    assert unknown_in(expression, struct(id="integer")) == unknown


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("month LIKE '0%'", False),
        ("`month` NOT RLIKE 'id' AND DAY > DATE '2019-01-31'", False),
        ("CAST(month AS INT) DIV 2 = 1 OR upper(Month) = 'A'", False),
        ("neither SQL ' nor a name", False),
        ("month LIKE '0%' AND id = 1", True),
        ("`like` = 1", True),
        ("length(id) = 3", True),
    ],
)
def test_columns_that_are_no_partition_columns_are_seen_in_a_predicate(text: str, named: bool) -> None:
    split = struct_of([{"name": name, "type": "string"} for name in ("month", "vendor_id", "day")])
    assert bool(unknown_in(text, split)) is named
