"""Partition values by type, and predicates over them."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate
from airflow_provider_onelake.log.values import FarDate, Unreadable, typed_value

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
        # The largest single: the number lies a little below the half-way mark to the next one, which would be infinite.
        ("3.4028235677973366e38", "float", 3.4028234663852886e38),
        ("2019-01-01T12:00:00.000000Z", "timestamp", NOON),
        ("2019-01-01 12:00:00", "timestamp", datetime(2019, 1, 1, 12)),  # noqa: DTZ001 - that it has none is the point
    ],
)
def test_a_spelling_is_read_by_type(spelling: str, kind: str, value: Any) -> None:
    assert typed_value(spelling, kind) == value


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"month": "a", "vendor_id": "1", "day": None}, True),
        ({"month": "a", "vendor_id": "1"}, False),
        ({}, False),
        (None, False),
    ],
    ids=str,
)
def test_a_file_whose_action_lacks_a_partition_column_may_be_in_any_partition(values: Any, named: bool) -> None:
    remove: Any = {"path": "p", "partitionValues": values}
    assert TRIPS.named_by(remove) is named


@pytest.mark.parametrize("kind", ["string", "long", "date", "timestamp", "boolean", "double", "decimal(3,1)"])
def test_null_and_the_empty_string_are_both_null(kind: str) -> None:
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
def test_one_instant_is_one_partition_however_it_is_spelled(spelling: str) -> None:
    partitioning = Partitioning({"at": "timestamp"})
    assert partitioning.partition({"at": spelling}) == (NOON,)
    assert not partitioning.ambiguous((typed_value(spelling, "timestamp"),))


@pytest.mark.parametrize("spelling", ["2019-01-01 12:00:00", "2019-01-01 12:00:00.5", "2019-01-01T12:00:00"])
def test_an_instant_without_a_zone_is_ambiguous(spelling: str) -> None:
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
        ("long", ["7", "007", "+7", " 7 ", "7.5"]),
        ("decimal(10,2)", ["1.01", "1.005", "1.0149"]),
        ("binary", ["\u0001\u0002", "\x01\x02"]),
    ],
)
def test_every_spelling_of_a_value_is_one_partition(kind: str, spellings: list[str]) -> None:
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
def test_different_values_are_different_partitions(kind: str, one: str, other: str) -> None:
    partitioning = Partitioning({"p": kind})
    assert partitioning.partition({"p": one}) != partitioning.partition({"p": other})


@pytest.mark.parametrize(
    ("kind", "spelling"),
    [
        ("boolean", "maybe"),
        ("long", "1_000"),
        ("long", "\uff19"),
        ("byte", "128"),
        ("double", "1_0"),
        ("double", "0x1p3"),
        ("decimal(10,2)", "1_0"),
        ("decimal(3,1)", "100"),
        ("decimal(3,1)", "1e999999"),
        ("timestamp", "2019-01-01 12:00:00+19:00"),
        ("timestamp", "+300000-01-01 00:00:00Z"),
        ("date", "+9999999-01-01"),
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


def test_not_a_number_is_one_partition() -> None:
    partitioning = Partitioning({"x": "double"})
    assert partitioning.partition({"x": "NaN"}) in {partitioning.partition({"x": "NaN"})}


def test_a_file_that_leaves_a_column_out_has_null_there() -> None:
    assert TRIPS.partition({"month": "2019-01"}) == ("2019-01", None, None)


@pytest.mark.parametrize("values", [{"vendor_id": "one"}, {"day": "31.1.2019"}, {"day": "2019-02-30"}])
def test_what_is_no_value_of_its_type_equals_itself_and_nothing_else(values: dict[str, str | None]) -> None:
    partition = TRIPS.partition(values)
    assert partition == TRIPS.partition(values)
    assert partition != TRIPS.partition({})
    assert [value for value in partition if value is not None] == [Unreadable(next(iter(values.values())) or "")]


def test_a_predicate_that_such_a_value_decides_is_refused_for_its_partition_only() -> None:
    strange = TRIPS.partition({"month": "2019-01", "day": "20190131"})
    for text in ("day >= '2019-01-01'", "day IS NULL", "NOT (day = '2019-01-01') AND month = '2019-01'"):
        predicate = PartitionPredicate.parse(text, TRIPS)
        assert predicate.judge(strange) is None
        with pytest.raises(InvalidWriteError, match="day='20190131' nobody knows"):
            predicate.covers(strange)
    for text in ("month = '2019-02' AND day >= '2019-01-01'", "month = '2019-01' OR day IS NULL", "true"):
        assert PartitionPredicate.parse(text, TRIPS).covers(strange) is not text.startswith("month = '2019-02'")


@pytest.mark.parametrize("spelling", ["+10000-01-01", "-0044-03-15", "0000-02-29", "+5881580-07-11", "9999-12-31"])
def test_a_date_of_any_year_of_spark_is_a_value_that_is_ordered_and_spelled_as_spark_does(spelling: str) -> None:
    value = typed_value(spelling, "date")
    assert str(value) == spelling
    assert value == typed_value(f"{spelling} 00:00:00", "date")
    after = not spelling.startswith(("-", "0"))
    assert covers("p >= DATE '2019-01-01'", value, types={"p": "date"}) is after
    assert covers(f"p = DATE '{spelling}'", value, types={"p": "date"})
    assert covers(f"p <= '{spelling}' AND p >= '{spelling}'", value, types={"p": "date"})


@pytest.mark.parametrize(
    ("spelling", "shown"),
    [
        ("0001-01-01T00:00:00+05:00", "0000-12-31 19:00:00+00:00"),
        ("9999-12-31T23:59:59-05:00", "+10000-01-01 04:59:59+00:00"),
        ("+12100-06-01T00:00:00.500000Z", "+12100-06-01 00:00:00.500000+00:00"),
        ("-0005-01-01 00:00:00", "-0005-01-01 00:00:00"),
    ],
)
def test_an_instant_of_any_year_is_a_value(spelling: str, shown: str) -> None:
    partitioning = Partitioning({"p": "timestamp"})
    partition = partitioning.partition({"p": spelling})
    assert partitioning.describe(partition) == f"p={shown}"
    assert partitioning.ambiguous(partition) is (spelling[-3:] == ":00" and "T" not in spelling)
    if not partitioning.ambiguous(partition):
        assert covers("p > TIMESTAMP '2019-01-01 00:00:00'", *partition, types={"p": "timestamp"}) is (
            not shown.startswith("0")
        )


def test_the_calendar_beyond_python_goes_on_where_pythons_ends() -> None:
    far = typed_value("+10000-01-01", "date")
    assert isinstance(far, FarDate)
    for days in (0, 58, 59, 60, 365, 366, 146_096, 146_097, 5_000_000, -4_371_953):
        moved = FarDate(far.days + days)
        assert typed_value(str(moved), "date") in (moved, date.fromisoformat("9999-12-31"))


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
        ("`month` = '2019-01' -- of January", ["2019-01"], ["2019-02", None]),
        ("month = '2019' '-01' /* of January */", ["2019-01"], ["2019-02", None]),
        (r"month = '2019\u002d01' OR month = '2019\05501'", ["2019-01"], ["2019-02", None]),
        ("month <=> '2019-01'", ["2019-01"], ["2019-02", None]),
        ("month <=> NULL", [None], ["2019-01"]),
        ("NOT (month <=> '2019-01')", ["2019-02", None], ["2019-01"]),
        ("month = ''", [], ["2019-01", None]),
        ("month <> ''", ["2019-01"], [None]),
        ("month > '' AND ! month < ''", ["2019-01"], [None]),
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
        ("p = 0.1", "float", 0.10000000149011612, False),
        ("p = 0.1F", "float", 0.10000000149011612, True),
        ("p > 1", "double", math.nan, True),
        ("p = 'NaN'", "double", math.nan, True),
        ("p = 0", "double", -0.0, True),
        ("p < TIMESTAMP '2019-01-01 12:00:00'", "date", date(2019, 1, 1), True),
        ("p < '2019-01-01 12:00:00'", "date", date(2019, 1, 1), False),
        ("p >= DATE '2019-01-01'", "timestamp", NOON, True),
        ("p = '2019'", "date", date(2019, 1, 1), True),
        ("p = ' 7 '", "string", "7", False),
        ("p = '007'", "long", 7, True),
        ("p = 7.0", "byte", 7, True),
        ("p = 9007199254740992e0", "long", 9007199254740993, True),
        ("p = X'c3A9'", "binary", "é".encode(), True),
        ("p", "boolean", True, True),
        ("NOT p", "boolean", True, False),
        ("p > '2019-01-01 12:00:00'", "timestamp", NOON.astimezone(timezone(timedelta(hours=5))), False),
    ],
)
def test_literals_are_compared_by_the_columns_type(text: str, kind: str, value: Any, expected: bool) -> None:
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
def test_of_an_instant_without_a_zone_nobody_knows(text: str) -> None:
    partitioning = Partitioning({"p": "timestamp"})
    assert PartitionPredicate.parse(text, partitioning).judge((NOON.replace(tzinfo=None),)) is None
    assert covers(f"{text} OR p IS NOT NULL", NOON.replace(tzinfo=None), types={"p": "timestamp"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fare > 10", "'fare' is no partition column .the table's are: month, vendor_id, day"),
        ("month = vendor_id", "'vendor_id' is no literal"),
        ("month LIKE '2019%'", "it has"),
        ("substr(month, 1, 4) = '2019'", "is no column"),
        ("month = concat('2019', '-01')", "is no literal"),
        ("trips.month = '2019-01'", "'trips' stands before a dot: write the partition column's name alone"),
        ("vendor_id = 'one'", "vendor_id is BIGINT and 'one' is a string .* such as 10"),
        ("day = 'yesterday'", "day is DATE and 'yesterday' is a string .* such as DATE '2019-01-31'"),
        ("month", "it ends too early"),
        ("month =", "is not SQL"),
        ("month = '2019-01' AND", "is not SQL"),
        ("month = '2019-01", "is not SQL"),
        ("month = '2019-01' = true", "'=' where it should not be"),
        ("month = CAST('2019' AS STRING)", "casts and queries are refused"),
        ("day = date('2019-01-31')", "casts and queries are refused"),
        ("day = '2019-01-31'::date", "is not SQL at '::date'"),
        ("month IN (SELECT 1)", "'SELECT' is no literal"),
        ("month IS TRUE", "'TRUE' where"),
        ("month = '2019-01'); true", "where it should not be"),
        ("(" * 200 + "true" + ")" * 200, "nested too deeply"),
        ("vendor_id = 1_000", "'1_000' is no literal"),
        ("vendor_id = 9223372036854775808L", "is no number of its suffix"),
        ("vendor_id = 1e400", "too large"),
        ("day = DATE '2019-02-30'", "is no DATE: write it like DATE '2019-01-31'"),
        ("day = INTERVAL '1'", "is no literal that is known here"),
        ("vendor_id IN (1, 2e0)", "mixes kinds of literals"),
        ("vendor_id IN ('1', 1.0)", "mixes kinds of literals"),
        ("day IN (DATE '2019-01-31', TIMESTAMP '2019-01-31 00:00:00')", "mixes kinds of literals"),
    ],
)
def test_a_predicate_that_a_file_cannot_wholly_meet_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidWriteError, match=reason):
        PartitionPredicate.parse(text, TRIPS)


def test_a_table_without_partition_columns_takes_no_predicate() -> None:
    with pytest.raises(InvalidWriteError, match="the table's are: none"):
        PartitionPredicate.parse("month = '2019-01'", Partitioning({}))


@pytest.mark.parametrize(
    ("kind", "literal", "says"),
    [
        ("string", "10", "p is STRING and 10 is a number, .*: write '10' to compare text"),
        ("string", "-1.5e0", "write '-1.5e0'"),
        ("string", "true", "p is STRING and TRUE is a boolean"),
        ("string", "DATE '2019-01-31'", "p is STRING and DATE '2019-01-31' is a DATE, .*: write '2019-01-31'"),
        ("string", "TIMESTAMP '2019-01-31 00:00:00'", "write '2019-01-31 00:00:00'"),
        ("string", "X'0A'", "is a binary value"),
        ("char(7)", "'2019-01'", r"p is CHAR\(7\), which Spark compares by rules of its own"),
        ("string collate UTF8_LCASE", "'a'", "p is STRING COLLATE UTF8_LCASE"),
        ("long", "'1.0'", "p is BIGINT"),
        ("long", "''", "p is BIGINT"),
        ("long", "true", "write a literal of the column's type, such as 10"),
        ("long", "1F", "such as 10"),
        ("long", "9223372036854775808", "such as 10"),
        ("byte", "'128'", "p is TINYINT"),
        ("float", "'0.1'", "such as 0.5e0"),
        ("float", "16777217", "such as 0.5e0"),
        ("double", "'much'", "such as 0.5e0"),
        ("decimal(38,18)", "'1.5'", "such as 1.50"),
        ("decimal(10,2)", "'1.505'", "such as 1.50"),
        ("boolean", "1", "such as true"),
        ("boolean", "'t'", "such as true"),
        ("date", "20190131", "such as DATE '2019-01-31'"),
        ("date", "'2019-02-30'", "such as DATE '2019-01-31'"),
        ("timestamp", "'12:00'", "such as TIMESTAMP '2019-01-31 12:00:00'"),
        ("timestamp", "'2019-01-01 12:00 Europe/Berlin'", "such as TIMESTAMP"),
        ("timestamp_ntz", "'2019-01-01 12:00:00Z'", "such as TIMESTAMP_NTZ"),
        ("timestamp_ntz", "TIMESTAMP_NTZ '2019-01-01 12:00:00Z'", "has a zone"),
        ("binary", "'a'", "such as X'0A'"),
    ],
)
def test_a_literal_that_spark_would_compare_in_another_way_is_refused_with_the_spelling_to_use(
    kind: str, literal: str, says: str
) -> None:
    for text in (f"p >= {literal}", f"{literal} < p", f"p IN ({literal})", f"p BETWEEN {literal} AND {literal}"):
        with pytest.raises(InvalidWriteError, match=says):
            PartitionPredicate.parse(text, Partitioning({"p": kind}))
    PartitionPredicate.parse("p IS NOT NULL", Partitioning({"p": kind}))


@pytest.mark.parametrize(
    ("kind", "literal"), [("date", "'2019-1-1'"), ("long", "'007'"), ("boolean", "'true'"), ("double", "'1.5'")]
)
def test_in_a_list_spark_may_compare_strings_so_a_string_is_spelled_as_spark_does(kind: str, literal: str) -> None:
    partitioning = Partitioning({"p": kind})
    PartitionPredicate.parse(f"p = {literal}", partitioning)
    with pytest.raises(InvalidWriteError, match="write a literal of the column's type"):
        PartitionPredicate.parse(f"p IN ({literal})", partitioning)


def test_predicates_that_hold_together_are_read_one_by_one() -> None:
    both = PartitionPredicate.parse_all(["vendor_id = 1 -- the first", "month = '1' OR month = '2'"], TRIPS)
    assert both.covers(("1", 1, None))
    assert not both.covers(("2", 2, None))
    with pytest.raises(InvalidWriteError):
        PartitionPredicate.parse_all(["vendor_id = 1) OR (true", "month = '1'"], TRIPS)


@pytest.mark.parametrize(
    ("comment", "goes_on"),
    [
        ("-- the first\n", False),
        ("-- the first\r", False),
        ("-- the first\r\n", False),
        ("-- \\\r\n", False),
        ("-- the first\\\n", True),
        ("-- \\\\\n", True),
    ],
)
def test_a_comment_ends_where_it_ends_for_spark(comment: str, goes_on: bool) -> None:
    predicate = PartitionPredicate.parse(f"month = '1' {comment} OR month = '2'", Partitioning({"month": "string"}))
    assert predicate.covers(("1",))
    assert predicate.covers(("2",)) is not goes_on
