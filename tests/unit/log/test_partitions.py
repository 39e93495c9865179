"""Partition values by type, and predicates over them."""

from __future__ import annotations

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
        ("p > '2019-01-01 12:00:00'", "timestamp", NOON.astimezone(timezone(timedelta(hours=5))), False),
    ],
)
def test_rule_18_literals_are_compared_by_the_columns_type(text: str, kind: str, value: Any, expected: bool) -> None:
    assert covers(text, value, types={"p": kind}) is expected


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
