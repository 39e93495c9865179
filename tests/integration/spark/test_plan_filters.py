"""The filters of a plan's values, held against Spark's own answer, over all pairs of types and values.

One query, once with ANSI mode and once without, answers the filters of all values for all rows of all types of columns.
"""

# ruff: noqa: DTZ001 - a time without a zone is in UTC here
from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.log.values import to_single
from airflow_provider_onelake.planning.filters import filter_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What columns hold, in SQL.
VALUES: Mapping[str, Sequence[str]] = {
    "STRING": (
        *("''", "' '", "'a'", "'A'", "'9'", "'1'", "'01'", "'1.5'", "'0.1'", "'true'", "'2019-01-01'", "'2019-1-1'"),
        *("'2019-01-01 12:00:00.5'", "'ü'", "'\\uFFFF'", "'\\U0001F600'", "'it\\'s \\\\'", "'%'", "'NULL'"),
    ),
    "TINYINT": ("-1", "0", "1", "9", "127"),
    "SMALLINT": ("-1", "0", "1", "9", "32767"),
    "INT": ("-1", "0", "1", "9", "16777216", "16777217"),
    "BIGINT": ("-1", "0", "1", "16777217", "9007199254740992", "9007199254740993", "9223372036854775807"),
    "FLOAT": ("-1", "0", "0.1", "1", "1.5", "16777216", "1E20", "'NaN'", "'Infinity'", "'-Infinity'"),
    "DOUBLE": (
        "-1",
        "0",
        "0.1",
        "'0.10000000149011612'",
        "1",
        "1.5",
        "16777217",
        "1E20",
        "1E100",
        "'NaN'",
        "'Infinity'",
    ),
    "DECIMAL(5,2)": ("-1", "0", "0.10", "1", "1.50", "999.99"),
    "DECIMAL(38,18)": ("0.1", "0.100000000000000001", "1", "1.000000000000000001", "9007199254740993"),
    "DECIMAL(20,0)": ("1", "9007199254740992", "9007199254740993", "99999999999999999999"),
    "BOOLEAN": ("true", "false"),
    "DATE": ("'2019-01-01'", "'2018-12-31'", "'0001-01-01'", "'9999-12-31'"),
    "TIMESTAMP": ("'2019-01-01 00:00:00'", "'2019-01-01 12:00:00'", "'2019-01-01 12:00:00.5'", "'1582-10-10 00:00:00'"),
    "TIMESTAMP_NTZ": ("'2019-01-01 00:00:00'", "'2019-01-01 12:00:00'", "'2019-01-01 12:00:00.5'"),
    "BINARY": ("X''", "X'01'", "X'0102'", "X'61'", "X'FF'"),
}
NUMBERS = (
    *(
        -1,
        0,
        1,
        9,
        127,
        16777216,
        16777217,
        9007199254740992,
        9007199254740993,
        9223372036854775807,
        10**20 - 1,
        10**40,
    ),
    *(-1.0, 0.0, -0.0, 0.1, 0.10000000149011612, 1.0, 1.5, 1e20, 100000002004087734272.0, 1e100, 5e-324),
    *(Decimal("0.1"), Decimal("0.10"), Decimal("1.5"), Decimal("999.99"), Decimal("0.100000000000000001")),
    *("0.1", "1", "01", "1.5", "1.50", "9", "16777217", "9007199254740993", "1e20"),
)
ODD = (float("nan"), float("inf"), float("-inf"), "NaN", "Infinity")
TIMES = (
    *(date(2019, 1, 1), date(1, 1, 1), date(9999, 12, 31), datetime(2019, 1, 1), datetime(2019, 1, 1, 12)),
    *(datetime(2019, 1, 1, 12, 0, 0, 500_000), datetime(2019, 1, 1, 12, tzinfo=UTC), datetime(1582, 10, 10)),
    datetime(2019, 1, 1, 15, tzinfo=timezone(timedelta(hours=3))),
    *("2019-01-01", "2019-01-01 12:00:00", "2019-01-01 12:00:00.5"),
)
TEXTS = ("", " ", "a", "A", "ü", "\uffff", "\U0001f600", "it's \\", "%", "NULL", "true", "2019-1-1")
BYTES = (b"", b"\x01", b"\x01\x02", b"a", b"\xff")
COLUMNS = {kind: f"c{at}" for at, kind in enumerate(VALUES)}


def named(kind: str) -> Sequence[Any]:
    """The values that make sense for a type."""
    if kind == "STRING":
        return (*NUMBERS, *TIMES, *TEXTS, True, False, *BYTES)
    if kind == "BOOLEAN":
        return (True, False, "true", "false")
    if kind == "BINARY":
        return BYTES
    if kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        return TIMES
    return (*NUMBERS, *(ODD if kind in ("FLOAT", "DOUBLE") else ODD[:3]))


def is_meant(kind: str, row: Any, value: Any) -> bool:
    """Whether a row's value is the one that was named."""
    if row is None:
        return False
    if kind == "STRING":
        if isinstance(value, bytes):
            return bool(row.encode() == value)
        return bool(row == text_of(value))
    if kind == "BOOLEAN":
        return bool(row == (value if isinstance(value, bool) else value == "true"))
    if kind == "BINARY":
        return bytes(row) == value
    if kind == "DATE":
        # Spark reads a text as the column's type: of a time, the date.
        return instant(row) == instant(value[:10] if isinstance(value, str) else value)
    if kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return bool(instant(row) == instant(value))
    if kind in ("FLOAT", "DOUBLE"):
        number = float(value)
        if number != number:
            return bool(row != row)
        whole = isinstance(value, int) or (isinstance(value, str) and value.isdecimal())
        if kind == "FLOAT" and not whole and abs(number) < 1e38:
            number = to_single(str(value))
        return bool(row == number)
    return Decimal(str(value)).is_finite() and Decimal(row) == Decimal(str(value))


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        text = instant(value).isoformat(" ", "microseconds")
        return text.rstrip("0").rstrip(".") if "." in text and not text.endswith("000000") else text[:19]
    return str(value)


def instant(value: Any) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def test_a_filter_of_a_plan_takes_the_rows_that_have_the_value_with_ansi_mode_and_without(spark: SparkSession) -> None:
    rows = list(itertools.zip_longest(*VALUES.values(), fillvalue="NULL"))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    asked = [(kind, value) for kind in VALUES for value in (*named(kind), None)]
    filters = ",\n".join(filter_of(COLUMNS[kind], [value]) for kind, value in asked)
    wrong, answered = [], 0
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        selects = (
            "SELECT "
            + ", ".join(f"CAST({value} AS {kind}) AS {COLUMNS[kind]}" for kind, value in zip(VALUES, row, strict=True))
            for row in rows
        )
        # No constants, which Spark would compare when it plans.
        table = spark.sql(" UNION ALL ".join(selects)).repartition(1)
        for row in table.selectExpr("struct(*) AS row", f"array({filters}) AS said").collect():
            for (kind, value), said in zip(asked, row["said"], strict=True):
                held = row["row"][COLUMNS[kind]]
                answered += 1
                if (said is True) is not (held is None if value is None else is_meant(kind, held, value)):
                    wrong.append((ansi, kind, value, held, said))
    assert not wrong, f"{len(wrong)} of {answered}: {wrong[:20]}"
    assert answered > 10_000


def test_values_that_a_column_cannot_have_are_refused_by_spark_or_match_nothing(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    table = spark.sql("SELECT * FROM VALUES (DATE '2019-01-01', X'61', 1, true) AS t(d, b, i, f)").repartition(1)
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        for column, value in (("d", 20190101), ("b", 97), ("i", date(2019, 1, 1)), ("i", "a"), ("f", "2019-01-01")):
            with suppress(PySparkException):
                assert table.where(filter_of(column, [value])).count() == 0, (ansi, column, value)
