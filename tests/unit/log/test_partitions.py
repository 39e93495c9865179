"""Partition values by type, and predicates over them."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate, typed_value

TRIPS = Partitioning({"month": "string", "vendor_id": "long", "day": "date"})
NOON = datetime(2019, 1, 1, 12, tzinfo=UTC)


def covers(text: str, *partition: Any, types: dict[str, Any] | None = None) -> bool:
    partitioning = Partitioning(types) if types else TRIPS
    return PartitionPredicate.parse(text, partitioning).covers(partition)


@pytest.mark.parametrize(
    ("spelling", "kind", "value"),
    [
        ("2019-01", "string", "2019-01"),
        ("007", "string", "007"),
        ("007", "long", 7),
        ("-1", "integer", -1),
        ("true", "boolean", True),
        ("FALSE", "boolean", False),
        ("2019-01-31", "date", date(2019, 1, 31)),
        ("1.50", "decimal(10,2)", Decimal("1.5")),
        ("1.0", "double", 1.0),
        ("Infinity", "float", math.inf),
        ("2019-01-01T12:00:00.000000Z", "timestamp", NOON),
        ("2019-01-01 12:00:00", "timestamp", datetime(2019, 1, 1, 12)),  # noqa: DTZ001 - that it has none is the point
    ],
)
def test_a_spelling_is_read_by_type(spelling: str, kind: str, value: Any) -> None:
    assert typed_value(spelling, kind) == value


@pytest.mark.parametrize("kind", ["string", "long", "date", "timestamp", "boolean", "double", "decimal(3,1)"])
def test_rule_18_null_and_the_empty_string_are_both_null(kind: str) -> None:
    assert typed_value(None, kind) is None
    assert typed_value("", kind) is None


@pytest.mark.parametrize(
    "spelling",
    [
        "2019-01-01T12:00:00.000000Z",
        "2019-01-01T12:00:00Z",
        "2019-01-01 12:00:00.000+00:00",
        "2019-01-01T14:00:00+02:00",
        "2019-01-01 06:30:00-05:30",
    ],
)
def test_rule_18_one_instant_is_one_partition_however_it_is_spelled(spelling: str) -> None:
    partitioning = Partitioning({"at": "timestamp"})
    assert partitioning.partition({"at": spelling}) == (NOON,)
    assert not partitioning.ambiguous((typed_value(spelling, "timestamp"),))


@pytest.mark.parametrize("spelling", ["2019-01-01 12:00:00", "2019-01-01 12:00:00.5", "2019-01-01T12:00:00"])
def test_rule_18_an_instant_without_a_zone_is_ambiguous(spelling: str) -> None:
    partitioning = Partitioning({"at": "timestamp", "vendor": "long"})
    assert partitioning.ambiguous(partitioning.partition({"at": spelling, "vendor": "1"}))
    assert not partitioning.ambiguous(partitioning.partition({"at": None, "vendor": "1"}))


@pytest.mark.parametrize(
    ("kind", "spellings"),
    [
        ("timestamp", ["2019-01-01T12:00:00.5Z", "2019-01-01 12:00:00.500000+00:00", "2019-01-01T13:00:00.500+01:00"]),
        ("timestamp", ["2019-01-01T12:00:00.123456Z", "2019-01-01 12:00:00.123456000Z"]),
        ("timestamp_ntz", ["2019-01-01 12:00:00", "2019-01-01T12:00:00.000000", "2019-01-01 12:00:00.0"]),
        ("timestamp_ntz", ["2019-01-01 12:00:00", "2019-01-01T12:00:00Z"]),
        ("date", ["2019-01-31", "2019-1-31", "2019-01-31 00:00:00", "2019-01-31T00:00:00.000Z"]),
        ("boolean", ["true", "TRUE", "True", "1", "t"]),
        ("boolean", ["false", "False", "0", "no"]),
        ("decimal(10,2)", ["1", "1.0", "1.00", "+1.00", "1E+0"]),
        ("decimal(10,2)", ["0", "0.00", "-0.0"]),
        ("double", ["1", "1.0", "1e0", "1.0E0"]),
        ("double", ["0.0", "-0.0", "0"]),
        ("float", ["0.1", "0.10000000149011612"]),
        ("float", ["Infinity", "1e300"]),
        ("double", ["NaN", "nan"]),
        ("long", ["7", "007", "+7"]),
        ("binary", ["\u0001\u0002", "\x01\x02"]),
    ],
)
def test_rule_18_every_spelling_of_a_value_is_one_partition(kind: str, spellings: list[str]) -> None:
    partitioning = Partitioning({"p": kind})
    assert len({partitioning.partition({"p": spelling}) for spelling in spellings}) == 1
    assert not partitioning.ambiguous(partitioning.partition({"p": spellings[0]}))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("string", "1", "1.0"),
        ("string", "true", "TRUE"),
        ("string", " a", "a"),
        ("double", "0.1", "0.10000000149011612"),
        ("timestamp_ntz", "2019-01-01 12:00:00", "2019-01-01 12:00:00.000001"),
        ("decimal(10,2)", "1.00", "1.01"),
        ("binary", "\u0001", "\u0002"),
    ],
)
def test_rule_18_different_values_are_different_partitions(kind: str, one: str, other: str) -> None:
    partitioning = Partitioning({"p": kind})
    assert partitioning.partition({"p": one}) != partitioning.partition({"p": other})


@pytest.mark.parametrize(
    ("kind", "spelling"),
    [
        ("boolean", "maybe"),
        ("decimal(3,1)", "NaN"),
        ("decimal(3,1)", "Infinity"),
        ("date", "20190131"),
        ("date", "2019-W05-1"),
        ("timestamp", "noon"),
        ("timestamp_ntz", "noon"),
    ],
)
def test_what_spark_would_not_read_is_no_value(kind: str, spelling: str) -> None:
    with pytest.raises(ValueError):
        typed_value(spelling, kind)


def test_under_column_mapping_a_file_names_its_partition_by_the_physical_name_and_people_do_not() -> None:
    names = {"delta.columnMapping.physicalName": "col-2", "delta.columnMapping.id": 2}
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "month", "type": "string", "nullable": True, "metadata": names},
    ]
    described = {
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["month"],
        "configuration": {"delta.columnMapping.mode": "name"},
    }
    partitioning = Partitioning.of(described)
    partition = partitioning.partition({"col-2": "2019-01"})
    assert partition == ("2019-01",)
    assert partitioning.describe(partition) == "month=2019-01"
    assert PartitionPredicate.parse("month = '2019-01'", partitioning).covers(partition)
    with pytest.raises(InvalidWriteError, match="no partition column"):
        PartitionPredicate.parse("`col-2` = '2019-01'", partitioning)


def test_rule_18_not_a_number_is_one_partition() -> None:
    partitioning = Partitioning({"x": "double"})
    assert partitioning.partition({"x": "NaN"}) in {partitioning.partition({"x": "NaN"})}


def test_a_file_that_leaves_a_column_out_has_null_there() -> None:
    assert TRIPS.partition({"month": "2019-01"}) == ("2019-01", None, None)


@pytest.mark.parametrize("values", [{"vendor_id": "one"}, {"day": "31.1.2019"}, {"day": "2019-02-30"}])
def test_a_spelling_that_is_no_value_of_its_type_is_named(values: dict[str, str | None]) -> None:
    with pytest.raises(InvalidWriteError, match="cannot be read as"):
        TRIPS.partition(values)


def test_a_partition_is_described_as_people_write_it() -> None:
    assert TRIPS.describe(("2019-01", 1, None)) == "month=2019-01/vendor_id=1/day=NULL"
    assert Partitioning({}).describe(()) == "the table"


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("month = '2019-01'", ["2019-01"], ["2019-02", None]),
        ("'2019-01' = month", ["2019-01"], ["2019-02", None]),
        ("month == '2019-01'", ["2019-01"], ["2019-02"]),
        ("MONTH = '2019-01'", ["2019-01"], ["2019-02"]),
        ("trips.month = '2019-01'", ["2019-01"], ["2019-02"]),
        ("month <> '2019-01'", ["2019-02"], ["2019-01", None]),
        ("month != '2019-01'", ["2019-02"], ["2019-01", None]),
        ("month >= '2019-01' AND month < '2019-03'", ["2019-01", "2019-02"], ["2018-12", "2019-03", None]),
        ("'2019-01' <= month", ["2019-01", "2020-01"], ["2018-12", None]),
        ("'2019-01' < month", ["2020-01"], ["2019-01"]),
        ("month BETWEEN '2019-01' AND '2019-02'", ["2019-01", "2019-02"], ["2019-03", None]),
        ("month NOT BETWEEN '2019-01' AND '2019-02'", ["2019-03"], ["2019-01", None]),
        ("month IN ('2019-01', '2019-03')", ["2019-01", "2019-03"], ["2019-02", None]),
        ("month NOT IN ('2019-01')", ["2019-02"], ["2019-01", None]),
        ("month NOT IN ('2019-01', NULL)", [], ["2019-02", "2019-01", None]),
        ("month IN ('2019-01', NULL)", ["2019-01"], ["2019-02", None]),
        ("month IS NULL", [None], ["2019-01"]),
        ("month IS NOT NULL", ["2019-01"], [None]),
        ("month = NULL", [], ["2019-01", None]),
        ("month IS NULL OR month = '2019-01'", [None, "2019-01"], ["2019-02"]),
        ("NOT (month = '2019-01')", ["2019-02"], ["2019-01", None]),
        ("NOT (month = '2019-01' AND month = NULL)", ["2019-02"], ["2019-01", None]),
        ("true", ["2019-01", None], []),
        ("false", [], ["2019-01", None]),
    ],
)
def test_a_predicate_is_true_where_sql_says_so_and_unknown_is_not_true(
    text: str, yes: list[str | None], no: list[str | None]
) -> None:
    for month in yes:
        assert covers(text, month, 1, None), month
    for month in no:
        assert not covers(text, month, 1, None), month


@pytest.mark.parametrize(
    ("text", "kind", "value", "expected"),
    [
        ("p = 1", "long", 1, True),
        ("p = '1'", "long", 1, True),
        ("p = -1", "integer", -1, True),
        ("p < 10", "long", 9, True),
        ("p < '10'", "string", "9", False),
        ("p = 1.50", "decimal(10,2)", Decimal("1.5"), True),
        ("p = true", "boolean", True, True),
        ("p = DATE '2019-01-31'", "date", date(2019, 1, 31), True),
        ("p >= '2019-01-31'", "date", date(2019, 2, 1), True),
        ("p = TIMESTAMP '2019-01-01 12:00:00'", "timestamp", NOON, True),
        ("p = '2019-01-01 14:00:00+02:00'", "timestamp", NOON, True),
        ("p = TIMESTAMP_NTZ '2019-01-01 12:00:00'", "timestamp_ntz", NOON.replace(tzinfo=None), True),
        ("p < '2019-01-01 12:00:00.000001'", "timestamp_ntz", NOON.replace(tzinfo=None), True),
        ("p = 0.1", "float", 0.10000000149011612, True),
        ("p > '2019-01-01 12:00:00'", "timestamp", NOON.astimezone(timezone(timedelta(hours=5))), False),
    ],
)
def test_rule_18_literals_are_compared_by_the_columns_type(text: str, kind: str, value: Any, expected: bool) -> None:
    assert covers(text, value, types={"p": kind}) is expected


@pytest.mark.parametrize(
    "text",
    [
        "p = TIMESTAMP '2019-01-01 12:00:00'",
        "p >= '2018-01-01'",
        "'2018-01-01' < p",
        "NOT (p < '2020-01-01')",
        "p IN ('2019-01-01 12:00:00')",
        "p BETWEEN '2018-01-01' AND '2020-01-01'",
    ],
)
def test_rule_18_an_instant_without_a_zone_compares_as_unknown(text: str) -> None:
    assert not covers(text, NOON.replace(tzinfo=None), types={"p": "timestamp"})
    assert covers(f"{text} OR p IS NOT NULL", NOON.replace(tzinfo=None), types={"p": "timestamp"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fare > 10", "'fare' is no partition column .the table's are: month, vendor_id, day"),
        ("month = vendor_id", "'vendor_id' is no literal"),
        ("month LIKE '2019%'", "it has"),
        ("substr(month, 1, 4) = '2019'", "is no column"),
        ("month = concat('2019', '-01')", "is no literal"),
        ("vendor_id = 'one'", "'one' is no long"),
        ("day = 'yesterday'", "'yesterday' is no date"),
        ("month", "it has"),
        ("month =", "is not SQL"),
        ("month = '2019-01' AND", "is not SQL"),
        ("month IN (SELECT 1)", "it has"),
    ],
)
def test_a_predicate_that_a_file_cannot_wholly_meet_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidWriteError, match=reason):
        PartitionPredicate.parse(text, TRIPS)


def test_a_table_without_partition_columns_takes_no_predicate() -> None:
    with pytest.raises(InvalidWriteError, match="the table's are: none"):
        PartitionPredicate.parse("month = '2019-01'", Partitioning({}))
