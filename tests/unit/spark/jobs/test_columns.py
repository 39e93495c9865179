from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_onelake.spark.jobs.columns import RowsDoNotFitError, check_creatable, ddl, fit, lossless, nullable
from tests.support.schemas import array
from tests.support.schemas import field as column
from tests.support.schemas import map_of as mapping


def schema(**columns: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [column(name, kind) for name, kind in columns.items()]}


# A pair a word: what rows have, and what the table has.
SAFE = """byte>short short>integer integer>long short>float integer>double float>double date>timestamp void>string
integer>decimal(10,0) integer>decimal(12,2) long>decimal(19,0) decimal(5,2)>decimal(7,2) decimal(5,2)>decimal(7,4)"""
UNSAFE = """long>integer long>double integer>float double>float long>string string>long timestamp>date
timestamp_ntz>timestamp boolean>integer integer>decimal(9,0) integer>decimal(10,2) decimal(5,2)>decimal(5,1)
double>decimal(38,10)"""


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        *(pair.split(">") for pair in SAFE.split()),
        ("void", array("long")),
        (array("integer"), array("long")),
        (mapping("string", "integer"), mapping("string", "long")),
        (schema(a="integer"), schema(a="long")),
    ],
)
def test_what_loses_nothing(given: Any, wanted: Any) -> None:
    assert lossless(given, wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        *(pair.split(">") for pair in UNSAFE.split()),
        (array("long"), array("integer")),
        (array("long"), "long"),
        (schema(a="long", b="long"), schema(b="long", a="long")),
        (schema(a="long"), schema(a="long", b="long")),
    ],
)
def test_what_may_lose_something(given: Any, wanted: Any) -> None:
    assert not lossless(given, wanted)


@pytest.mark.parametrize(
    ("given", "wanted", "told"),
    [
        ("long", "integer", True),
        ("double", "float", True),
        ("decimal(12,2)", "decimal(10,2)", True),
        ("double", "integer", True),
        ("decimal(12,2)", "integer", True),
        # Narrower ones, and ones of which digits would be lost.
        ("decimal(12,1)", "decimal(10,2)", False),
        ("string", "integer", False),
        (array("long"), array("integer"), False),
    ],
)
def test_a_wider_number_says_how_the_table_may_take_it(given: Any, wanted: Any, told: bool) -> None:
    with pytest.raises(RowsDoNotFitError, match=r"column n is .* in the rows") as caught:
        fit(schema(n=given), schema(n=wanted), "t")
    assert ("OneLakeAlterOperator(column_types=…)" in str(caught.value)) is told


def test_rows_that_fit_are_written_as_they_are() -> None:
    table = schema(id="long", tags=array("string"))
    assert fit(schema(id="long", tags={**array("string"), "containsNull": False}), table, "t") == ["`id`", "`tags`"]


def test_casts_and_the_tables_spelling() -> None:
    found = fit(schema(ID="integer", odd="long"), schema(id="long", odd="long"), "t")
    assert found == ["CAST(`ID` AS BIGINT) AS `id`", "`odd`"]
    assert fit(schema(ID="long"), schema(id="long"), "t") == ["`ID` AS `id`"]


def test_generated_columns_and_defaults_may_be_missing() -> None:
    table = schema(id="long")
    table["fields"].append(column("month", "string", **{"delta.generationExpression": "x"}))
    table["fields"].append(column("state", "string", CURRENT_DEFAULT="'new'"))
    assert fit(schema(id="long"), table, "t") == ["`id`"]


def test_all_that_is_wrong_is_named_at_once() -> None:
    table = schema(id="long", amount="double", note="string")
    with pytest.raises(RowsDoNotFitError) as caught:
        fit({"fields": [*schema(id="long", amount="string", extra="date")["fields"], column("ID", "long")]}, table, "t")
    said = str(caught.value)
    for wrong in ("amount is STRING in the rows and DOUBLE", "extra DATE is not", "ID is there twice", "note STRING"):
        assert f"column {wrong}" in said
    assert said.endswith(" schema_evolution='add_columns' adds columns that are not in the table.")


def test_a_missing_nullable_column_is_refused_too() -> None:
    with pytest.raises(RowsDoNotFitError, match="column b") as caught:
        fit(schema(a="long"), schema(a="long", b="long"), "t")
    assert "schema_evolution" not in str(caught.value)


def test_where_a_table_evolves_rows_may_lack_what_may_be_null() -> None:
    table = schema(a="long", b="long")
    table["fields"].append(column("c", "long", nullable=False))
    assert fit(schema(a="long", c="long"), table, "t", missing_as_null=True) == ["`a`", "`c`"]
    with pytest.raises(RowsDoNotFitError, match="column c BIGINT of the table is missing") as caught:
        fit(schema(a="long"), table, "t", missing_as_null=True)
    assert "column b" not in str(caught.value)
    with pytest.raises(RowsDoNotFitError, match=r"column d BIGINT is not in the table\.$"):
        fit(schema(a="long", c="long", d="long"), table, "t", missing_as_null=True)
    # Rows without it would all go to the partition of NULL.
    with pytest.raises(RowsDoNotFitError, match="column b BIGINT of the table is missing"):
        fit(schema(a="long", c="long"), table, "t", missing_as_null=True, partition_columns=["B"])


def test_rows_for_a_column_without_a_type_are_refused_with_what_can_be_done() -> None:
    assert fit(schema(v="void"), schema(v="void"), "t") == ["`v`"]
    with pytest.raises(
        RowsDoNotFitError, match=r"column v is BIGINT in the rows, and VOID in .* select NULL AS v in a step"
    ):
        fit(schema(v="long"), schema(v="void"), "t")


def test_a_table_needs_types_and_unique_names() -> None:
    check_creatable(schema(a="long", void="string"))
    with pytest.raises(RowsDoNotFitError, match="column b has no type"):
        check_creatable(schema(a="long", b=array("void")))
    with pytest.raises(RowsDoNotFitError, match="column a is there twice"):
        check_creatable(schema(a="long", A="long"))


def test_that_the_rows_of_one_query_are_never_null_is_no_rule_for_a_table() -> None:
    never = {**array("long"), "containsNull": False}
    inner = {"type": "struct", "fields": [column("a", never, nullable=False, comment="of a")]}
    kind = {"type": "struct", "fields": [column("m", {**mapping(inner, inner), "valueContainsNull": False}, False)]}
    open_ = {"type": "struct", "fields": [column("a", array("long"), comment="of a")]}
    assert nullable(kind) == {"type": "struct", "fields": [column("m", mapping(open_, open_))]}
    assert kind["fields"][0]["nullable"] is False
    assert nullable({"type": "udt", "class": "x"}) == {"type": "udt", "class": "x"}


def test_ddl() -> None:
    kind = schema(a=array("integer"), **{"b`c": mapping("string", "decimal(5,2)")})
    assert ddl(kind) == "STRUCT<`a`: ARRAY<INT>, `b``c`: MAP<STRING, DECIMAL(5,2)>>"
