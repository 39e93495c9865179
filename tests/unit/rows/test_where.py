"""A condition says the same of partitions, of rows and of files, whatever the types and literals."""

from __future__ import annotations

import json
import math
from datetime import UTC, date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.exceptions import InvalidReadError
from airflow_provider_onelake.log.bounds import Bounds, bounds_of, exactly
from airflow_provider_onelake.log.comparisons import FALSE, NULL, TRUE
from airflow_provider_onelake.log.schema import Column
from airflow_provider_onelake.rows.arrow import arrow_type
from airflow_provider_onelake.rows.where import Where
from tests.support.conditions import EPOCH, VALUES, conditions, statistics

BITS = {True: TRUE, False: FALSE, None: NULL}


def parsed(text: str, kind: str) -> Where:
    try:
        return Where.parse(text, {"c": kind})
    except InvalidReadError:
        assume(False)
        raise


@pytest.mark.parametrize(
    "end", ["\ufffd", "?\ufffd", "\ud83d\ufffd"], ids=["whole", "cut in two", "cut in two, escaped"]
)
def test_no_text_is_lost_to_the_upper_bounds_of_earlier_deltas(end: str) -> None:
    # They end what they cut by U+FFFD, which is less than characters beyond the basic plane, and count in UTF-16.
    cut = "b" * (32 if len(end) == 1 else 31)
    add: Any = {
        "path": "a",
        "stats": json.dumps({"numRecords": 1, "minValues": {"c": cut}, "maxValues": {"c": f"{cut}{end}"}}),
    }
    (bounds,) = bounds_of(add, {0: Column("c", "string", True, {})}).values()
    value = f"{cut}\U0001f600"
    assert parsed(f"c = '{value}'", "string").outcomes([bounds]) & TRUE
    assert not parsed("c > 'c'", "string").outcomes([bounds]) & TRUE


@pytest.mark.parametrize("length", [16, 32, 64])
def test_no_text_is_lost_where_an_engine_cuts_the_greatest_without_raising_it(length: int) -> None:
    # Delta's protocol says no more than that texts "are cut off at a fixed prefix length".
    cut = "b" * length
    add: Any = {
        "path": "a",
        "stats": json.dumps({"numRecords": 1, "nullCount": {"c": 0}, "minValues": {"c": cut}, "maxValues": {"c": cut}}),
    }
    (bounds,) = bounds_of(add, {0: Column("c", "string", True, {})}).values()
    assert parsed(f"c = '{cut}b'", "string").outcomes([bounds]) & TRUE
    # Nor is it sure that all rows have the text that was cut.
    assert parsed(f"c = '{cut}'", "string").outcomes([bounds]) & FALSE
    assert not parsed("c > 'c'", "string").outcomes([bounds]) & TRUE


@pytest.mark.parametrize("kind", VALUES)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_partitions_rows_and_files_agree(kind: str, data: st.DataObject) -> None:
    text = data.draw(conditions(kind))
    values = data.draw(st.lists(VALUES[kind] | st.none(), min_size=1, max_size=5))
    where = parsed(text, kind)
    expected = [where.outcomes([exactly(value, kind)]) for value in values]
    array = pa.array(values, arrow_type(kind))
    assert [BITS[found] for found in where.evaluate({"c": array}, len(values)).to_pylist()] == expected, text
    add: Any = {"path": "a", "stats": json.dumps(statistics(kind, values))}
    bounds = bounds_of(add, {0: Column("c", kind, True, {})})[0]
    possible = where.outcomes([bounds])
    assert all(outcome & possible for outcome in expected), (text, bounds)


@pytest.mark.parametrize(
    ("kind", "values", "text"),
    [
        pytest.param("double", [1.0, math.nan], "c > 1.5e0", id="NaN is greater"),
        pytest.param("double", [math.inf], "c > 1.5e0", id="infinity"),
        pytest.param("float", [pa.scalar(0.7, pa.float32()).as_py()], "c < 0.7e0", id="a single is spelled shortly"),
        pytest.param("float", [9 * 2.0**-149], "c < 1.27e-44", id="a single close to zero, spelled 1.3E-44"),
        pytest.param("decimal(38,4)", [Decimal("12345678901234567890123.4567")], "c = 12345678901234567890123.4567", id="a decimal as a double"),
        pytest.param("timestamp", [EPOCH.replace(microsecond=999, tzinfo=UTC)], "c > TIMESTAMP '1970-01-01'", id="cut to milliseconds"),
        pytest.param("timestamp_ntz", [EPOCH.replace(microsecond=1)], "c > TIMESTAMP_NTZ '1970-01-01'", id="the same without a zone"),
        pytest.param("string", ["b" * 40], f"c > '{'b' * 32}'", id="a text that is cut"),
        pytest.param("string", ["b" * 40], f"c <= '{'b' * 40}'", id="a text that is cut, from below"),
    ],
)  # fmt: skip
def test_no_row_is_lost_to_what_statistics_leave_out(kind: str, values: list[Any], text: str) -> None:
    add: Any = {"path": "a", "stats": json.dumps(statistics(kind, values))}
    (bounds,) = bounds_of(add, {0: Column("c", kind, True, {})}).values()
    assert parsed(text, kind).outcomes([bounds]) & TRUE


@pytest.mark.parametrize(
    ("kind", "text", "bounds", "possible"),
    [
        pytest.param("long", "c > 9", Bounds(0, 9), NULL | FALSE, id="above all"),
        pytest.param("long", "c > 9", Bounds(0, 9, nulls=False), FALSE, id="without NULL"),
        pytest.param("long", "c <= 9", Bounds(0, 9, nulls=False), TRUE, id="all rows"),
        pytest.param("long", "c <> 3", Bounds(3, 3, nulls=False), FALSE, id="one value"),
        pytest.param("long", "NOT c IN (3, 4)", Bounds(3, 3, nulls=False), FALSE, id="one of a list"),
        pytest.param("long", "c IN (3, NULL)", Bounds(5, 6, nulls=False), NULL, id="none of a list with NULL"),
        pytest.param("long", "c IS NULL", Bounds(5, 6, nulls=False), FALSE, id="no NULL"),
        pytest.param("long", "c IS NOT NULL", Bounds(values=False), FALSE, id="NULL only"),
        pytest.param("long", "c <=> 1", Bounds(values=False), FALSE, id="NULL only, null-safe"),
        pytest.param("long", "c = 1 OR c = 7", Bounds(5, 6, nulls=False), FALSE, id="neither"),
        pytest.param("date", "c < DATE '2019-02-01'", Bounds(date(2019, 2, 1), None), NULL | FALSE, id="date"),
        pytest.param("double", "c > 5e0", Bounds(0.0, None, nulls=False), TRUE | FALSE, id="NaN may be there"),
        pytest.param("string", "c >= 'b'", Bounds("a", "az", nulls=False), FALSE, id="text"),
    ],
)
def test_what_bounds_leave_possible(kind: str, text: str, bounds: Bounds, possible: int) -> None:
    assert Where.parse(text, {"c": kind}).outcomes([bounds]) == possible


def test_partition_values_and_bounds_stand_beside_each_other() -> None:
    where = Where.parse("month = '2019-01' AND id > 5", {"id": "long", "month": "string"})
    assert where.names == {"id", "month"}
    assert where.outcomes([Bounds(0, 9), exactly("2019-02", "string")]) == FALSE
    assert where.outcomes([Bounds(0, 5, nulls=False), exactly("2019-01", "string")]) == FALSE
    assert where.outcomes([Bounds(6, 9, nulls=False), exactly("2019-01", "string")]) == TRUE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "'x' is no column \\(the table's are: id, s\\)"),
        ("s = 1", "write '1' to compare text"),
        ("upper(s) = 'A'", "functions and casts are refused"),
        ("s LIKE 'a%'", "write a range instead"),
        ("st.a = 1", "write the column's name alone"),
        ("id = s", "'s' is no literal"),
        ("", "a literal is missing"),
    ],
)
def test_what_means_nothing_is_refused_with_what_to_write(text: str, message: str) -> None:
    with pytest.raises(InvalidReadError, match=f"{message}.*Nothing was read"):
        Where.parse(text, {"id": "long", "s": "string"} | ({"st": {"type": "struct"}} if "st." in text else {}))


@pytest.mark.parametrize(
    ("stats", "kind"),
    [
        (None, "long"),
        ("no JSON", "long"),
        ("[]", "long"),
        ('{"minValues": 3, "maxValues": [], "nullCount": {"c": true}}', "long"),
        ('{"minValues": {"c": "3"}, "maxValues": {"c": {"d": 3}}}', "long"),
        ('{"minValues": {"c": 1.5}, "maxValues": {"c": true}}', "long"),
        ('{"minValues": {"c": "noon"}, "maxValues": {"c": 3}}', "timestamp"),
        ('{"minValues": {"c": "2019-01-31T12:00:00"}, "maxValues": {"c": "2019-01-31 12:00:00"}}', "timestamp"),
        ('{"minValues": {"c": "NaN"}, "maxValues": {"c": "Infinity"}}', "double"),
        ('{"minValues": {"c": 1e999}, "maxValues": {"c": 1}}', "float"),
        ('{"minValues": {"c": 1}, "maxValues": {"c": 1}}', "binary"),
        ('{"minValues": {"c": 1}, "maxValues": {"c": 1}}', "string"),
        ('{"minValues": {"c": 1}, "maxValues": {"c": 1}}', {"type": "struct", "fields": []}),
    ],
)
def test_statistics_that_cannot_be_read_say_nothing(stats: str | None, kind: Any) -> None:
    add: Any = {"path": "a", **({} if stats is None else {"stats": stats})}
    assert bounds_of(add, {7: Column("c", kind, True, {})}) == {7: Bounds()}
