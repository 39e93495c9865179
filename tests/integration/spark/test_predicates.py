"""What a predicate on partition columns covers, held against Spark's own answer, over all pairs of types and literals.

One Delta table has a partition column of each type, so that the values are spelled as Delta spells them, and Spark reads
back what it reads in any table. One query, once with ANSI mode and once without, then answers every predicate that we
take, for every row: one that fails in Spark fails the test, and so does one with another answer.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate
from airflow_provider_onelake.log.values import Partition
from tests.support.tables import local_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Values at the edges of each type, in SQL; the column is named like the type.
VALUES: Mapping[str, Sequence[str]] = {
    "STRING": ("''", "' '", "'a'", "'A'", "'9'", "'10'", "'2019-1-1'", "'ü'", "'\\uFFFF'", "'\\U0001F600'", "'01'"),
    "TINYINT": ("-128", "0", "1", "9", "10", "127"),
    "SMALLINT": ("-32768", "0", "1", "10", "32767"),
    "INT": ("-2147483648", "0", "1", "16777217", "2147483647"),
    "BIGINT": ("-9223372036854775808", "0", "1", "9007199254740993", "9223372036854775807"),
    "FLOAT": ("0", "'-0.0'", "0.1", "1", "16777216", "'NaN'", "'Infinity'", "'-Infinity'", "3.4028235E38", "1.4E-45"),
    "DOUBLE": (
        "0",
        "'-0.0'",
        "0.1",
        "1",
        "9007199254740992",
        "'NaN'",
        "'Infinity'",
        "'-Infinity'",
        "1E100",
        "4.9E-324",
    ),
    "DECIMAL(10,2)": ("0", "0.10", "1.5", "-1.50", "1", "99999999.99"),
    "DECIMAL(38,18)": (
        "0",
        "0.1",
        "0.100000000000000001",
        "9007199254740993",
        "12345678901234567890.123456789012345678",
    ),
    "DECIMAL(20,0)": ("0", "1", "9007199254740993", "99999999999999999999"),
    "BOOLEAN": ("true", "false"),
    "DATE": ("'2019-01-01'", "'2018-12-31'", "'+10000-01-01'", "'-0044-03-15'", "'0000-02-29'", "'9999-12-31'"),
    "TIMESTAMP": (
        *("'2019-01-01 00:00:00'", "'2019-01-01 12:00:00'", "'2019-01-01 12:00:00.123456'", "'1582-10-10 00:00:00'"),
        *("'0001-01-01 00:00:00+05:00'", "'9999-12-31 23:59:59-05:00'", "'+12100-06-01 00:00:00.5'"),
    ),
    "TIMESTAMP_NTZ": (
        *("'2019-01-01 00:00:00'", "'2019-01-01 12:00:00'", "'2019-01-01 12:00:00.5'"),
        *("'+12100-06-01 00:00:00'", "'-0005-01-01 00:00:00'"),
    ),
    "BINARY": ("X'01'", "X'0102'", "X'61'", "X'FF'", "X'C3A9'"),
    "VARCHAR(3)": ("'a'", "'ab'"),
    "CHAR(3)": ("'a'", "'abc'"),
}
LITERALS = (
    *(
        "NULL",
        "true",
        "FALSE",
        "''",
        "' '",
        "'a'",
        '"a"',
        "'a' 'b'",
        "'A'",
        "'10'",
        "'9'",
        "' 9 '",
        "'+9'",
        "'09'",
        "'9.0'",
    ),
    *(
        "'1'",
        "'0'",
        "'-1'",
        "'128'",
        "'9007199254740993'",
        "'1.5'",
        "'1.50'",
        "'0.1'",
        "'1e0'",
        "'NaN'",
        "'inf'",
        "'-Infinity'",
    ),
    *(
        "'true'",
        "'TRUE'",
        "'t'",
        "'no'",
        "'ü'",
        r"'\u00fc'",
        r"'\uFFFF'",
        r"'\U0001F600'",
        r"r'\a'",
        r"'it\'s'",
        "'it''s'",
    ),
    *(
        "'2019-01-01'",
        "'2019-1-1'",
        "'2019-01'",
        "'2019'",
        "' 2019-01-01 '",
        "'2019-01-01 12:00:00'",
        "'2019-01-01T12:00'",
    ),
    *(
        "'2019-01-01 12:00:00.123456'",
        "'2019-01-01 12:00:00.5'",
        "'2019-01-01 12:00:00.50'",
        "'2019-01-01 12:00:00.1234567'",
    ),
    *("'2019-01-01 12:00:00Z'", "'2019-01-01 14:00:00+02:00'", "'2019-02-30'", "'+10000-01-01'", "'10000-01-01'"),
    *("'-0044-03-15'", "'0000-02-29'", "'9999-12-31 23:59:59'", "'+12100-06-01 00:00:00.5'", "'12:00'", "'yesterday'"),
    *("0", "1", "-1", "+9", "10", "128", "16777216", "16777217", "2147483648", "9007199254740992", "9007199254740993"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "1L", "1S", "1Y", "127Y", "10L"),
    *(
        "1.5",
        "1.50",
        "-1.5",
        ".5",
        "1.",
        "0.1",
        "-0.0",
        "0.100000000000000001",
        "1BD",
        "1.5BD",
        "9007199254740993.0",
        "1.0000000000000000001",
    ),
    *("12345678901234567890.123456789012345678", "0.00000000000000000000000000000000000001", "1e5BD"),
    *(
        "99999999999999999999999999999999999999",
        "1e0",
        "0.1e0",
        "1.5E0",
        "-0e0",
        "9007199254740992e0",
        "1e100",
        "4.9e-324",
    ),
    *("0.1D", "1D", "16777216e0", "1F", "0.1F", "16777217F", "3.4028234E38F", "1.5F"),
    *(
        "DATE '2019-01-01'",
        "DATE'2019-1-1'",
        "DATE '2019'",
        "DATE '+10000-01-01'",
        "DATE '-0044-03-15'",
        "date '0000-02-29'",
    ),
    *("TIMESTAMP '2019-01-01 12:00:00'", "TIMESTAMP '2019-01-01'", "TIMESTAMP '2019-01-01 14:00:00+02:00'"),
    *(
        "TIMESTAMP '2019-01-01 12:00:00.123456'",
        "TIMESTAMP '+12100-06-01 00:00:00.5'",
        "TIMESTAMP '0001-01-01 00:00:00'",
    ),
    *("TIMESTAMP_LTZ '2019-01-01 12:00:00'", "TIMESTAMP_NTZ '2019-01-01 12:00:00'", "TIMESTAMP_NTZ '2019-01-01'"),
    *("TIMESTAMP_NTZ '2019-01-01 12:00:00.5'", "TIMESTAMP_NTZ '-0005-01-01 00:00:00'"),
    *("X'61'", "x''", "X'0102'", "X'FF'", "X'c3a9'"),
)
FORMS = ("{c} = {a}", "{a} > {c}", "{c} <=> {a}", "NOT ({c} > {a})", "{c} NOT IN ({a}, NULL)")
PAIRS = ("{c} IN ({a}, {b})", "{c} BETWEEN {a} AND {b} OR {b} <> {c}")
# How AND, OR and NOT bind, and how a condition may be written otherwise.
MIXED = (
    *(
        "{boolean}",
        "NOT {boolean} AND true",
        "{int} = 1 OR {bigint} = 0 AND NOT {boolean}",
        "({int} = 1 OR {bigint} = 0) AND {boolean}",
    ),
    *(
        "NOT {int} = 1 AND {bigint} = 0 OR {boolean}",
        "! {int} IN (1, NULL) OR NOT NOT {int} BETWEEN 0 AND 1",
        "false OR {string} > ''",
    ),
    *(
        "{string} NOT BETWEEN 'a' AND 'b' -- c",
        "{string} /* a */ = 'a' 'b' OR {int} is not null",
        '`{int}` == 1 AND {string} != ""',
    ),
)
# What people write; none of it may be refused.
PLAIN = (
    ("STRING", "'2019-01'"),
    *((kind, "10") for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT")),
    *((kind, "'10'") for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT")),
    *(
        (kind, literal)
        for kind in ("FLOAT", "DOUBLE", "DECIMAL(10,2)")
        for literal in ("1", "1.5", "1.5e0", "1.5D", "1.5F")
    ),
    *(("BIGINT", literal) for literal in ("10L", "10S", "1.5", "1e3")),
    ("DOUBLE", "'NaN'"),
    ("DECIMAL(10,2)", "'1.50'"),
    ("DECIMAL(38,18)", "1.5"),
    *(("BOOLEAN", literal) for literal in ("true", "false", "'true'")),
    *(
        ("DATE", literal)
        for literal in ("DATE '2019-01-31'", "'2019-01-31'", "'2019-01'", "TIMESTAMP '2019-01-31 12:00:00'")
    ),
    *(
        ("TIMESTAMP", literal)
        for literal in ("TIMESTAMP '2019-01-31 12:00:00'", "'2019-01-31 12:00:00'", "'2019-01-31'")
    ),
    *(("TIMESTAMP", literal) for literal in ("DATE '2019-01-31'", "'2019-01-31T12:00:00Z'")),
    *(("TIMESTAMP_NTZ", literal) for literal in ("TIMESTAMP_NTZ '2019-01-31 12:00:00'", "'2019-01-31 12:00:00'")),
    ("BINARY", "X'0A'"),
    ("VARCHAR(3)", "'a'"),
)
QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.write.utcTimestampPartitionValues": "true",
}
COLUMNS = {kind: f"c{at}" for at, kind in enumerate(VALUES)}


def predicates() -> Iterator[str]:
    """Every form of every pair, and lists of some."""
    for kind, column in COLUMNS.items():
        for literal in LITERALS:
            yield from (form.format(c=column, a=literal) for form in FORMS)
        # Neighbours are mostly of one kind; nothing else has a meaning in one list.
        for one, other in itertools.pairwise(LITERALS):
            yield from (form.format(c=column, a=one, b=other) for form in PAIRS)
        yield f"{column} IS NULL OR {column} IS NOT NULL AND NOT {column} IS NULL"
        if kind in ("FLOAT", "DOUBLE", "BIGINT"):
            yield f"{column} IN ({', '.join(map(str, range(-3, 12)))})"
            yield f"{column} NOT IN ({', '.join(f'{number}e0' for number in range(-3, 12))})"
    yield from (
        text.format(**{kind.lower(): column for kind, column in COLUMNS.items() if kind.isalpha()}) for text in MIXED
    )


def taken(partitioning: Partitioning) -> dict[str, PartitionPredicate]:
    """The predicates that are not refused."""
    found = {}
    for text in predicates():
        try:
            found[text] = PartitionPredicate.parse(text, partitioning)
        except InvalidWriteError:
            continue
    return found


def answers(spark: SparkSession, table: Path, texts: Sequence[str]) -> dict[int, list[bool | None]]:
    """Spark's answer to each predicate, by row."""
    separator = "\n, "  # a comment goes on to the end of its line
    rows = spark.read.format("delta").load(str(table)).selectExpr("id", f"array({separator.join(texts)}) AS said")
    return {row["id"]: row["said"] for row in rows.collect()}


def make(spark: SparkSession, table: Path) -> tuple[Partitioning, dict[int, Partition]]:
    """The table, and its partitions by row, as its log spells them."""
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, {', '.join(f'{column} {kind}' for kind, column in COLUMNS.items())}) "
        f"USING delta PARTITIONED BY ({', '.join(COLUMNS.values())})"
    )
    rows = enumerate(itertools.zip_longest(*VALUES.values(), fillvalue="NULL"))
    selects = (
        f"SELECT {at}L, {', '.join(f'CAST({value} AS {kind})' for kind, value in zip(VALUES, row, strict=True))}"
        for at, row in rows
    )
    spark.sql(f"INSERT INTO delta.`{table}` {' UNION ALL '.join(selects)}")
    log = local_log(table)
    snapshot = log.snapshot()
    adds = log.live_files(lambda _: True, snapshot.version)
    return snapshot.partitioning, {
        json.loads(add["stats"])["minValues"]["id"]: snapshot.partitioning.partition(add["partitionValues"])
        for add in adds
    }


def test_a_predicate_covers_what_spark_says_with_ansi_mode_and_without(spark: SparkSession, tmp_path: Path) -> None:
    partitioning, partitions = make(spark, tmp_path / "lake" / "all")
    assert len(partitions) == max(map(len, VALUES.values()))
    ours = taken(partitioning)
    wrong = []
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        for at, said in answers(spark, tmp_path / "lake" / "all", list(ours)).items():
            wrong += [
                (ansi, text, partitioning.describe(partitions[at]), answer)
                for (text, predicate), answer in zip(ours.items(), said, strict=True)
                if predicate.judge(partitions[at]) is not (answer is True)
            ]
    assert not wrong, f"{len(wrong)} of {2 * len(ours) * len(partitions)}: {wrong[:10]}"
    # A test that takes nothing finds nothing.
    assert len(ours) * len(partitions) > 20_000


@pytest.mark.parametrize(("kind", "literal"), PLAIN)
def test_what_people_write_is_not_refused(kind: str, literal: str) -> None:
    names = {"TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long", "VARCHAR(3)": "string"}
    PartitionPredicate.parse(f"p >= {literal}", Partitioning({"p": names.get(kind, kind.lower())}))
