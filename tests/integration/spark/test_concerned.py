"""Files that are ruled out for a statement, held against Spark's own answer for every row of them.

Spark writes the files, their statistics and a deletion vector. One query then counts, file by file, the rows for which
each predicate is true: a file that is ruled out must have none.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_onelake.rows.concerned import concerned
from tests.support.tables import local_log, newest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = "k" * 40
# Rows of each file, in SQL: the columns are named like their types, and the last one is the partition.
FILES: Sequence[Sequence[Sequence[str]]] = (
    [["1", "1.5", "0.1F", "1.50", "'a'", "DATE'2019-01-31'", "TIMESTAMP'2019-01-31 12:00:00.000999'", "true", "'x'"],
     ["5", "double('NaN')", "0.7F", "9.99", "'b'", "DATE'2019-02-01'", "TIMESTAMP'2019-02-01 00:00:00'", "false", "'x'"]],
    [["10", "2.5", "float('NaN')", "-1.00", f"'{LONG}'", "DATE'2020-01-01'", "TIMESTAMP'2020-01-01 23:59:59.999999'", "true", "'x'"],
     ["NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "'x'"]],
    [["20", "double('-Infinity')", "1.0F", "100.00", f"'{LONG}z'", "DATE'1969-12-31'", "TIMESTAMP'1969-12-31 23:59:59.5'", "true", "'y'"],
     ["25", "0.0", "2.0F", "200.00", "'\\U0001F600'", "DATE'1970-01-01'", "TIMESTAMP'1970-01-01 00:00:00.0005'", "true", "'y'"],
     ["30", "1.0", "3.0F", "300.00", "'z'", "DATE'1971-01-01'", "TIMESTAMP'1971-01-01 00:00:00'", "true", "'y'"]],
    [["NULL"] * 8 + ["NULL"], ["NULL"] * 8 + ["NULL"]],
)  # fmt: skip
COLUMNS: Mapping[str, tuple[str, Sequence[str]]] = {
    "i": ("BIGINT", ("0", "1", "7", "10", "20", "30", "31", "2.5", "'10'")),
    "d": ("DOUBLE", ("0.0", "1.5", "2.6", "100", "'NaN'", "-1")),
    "f": ("FLOAT", ("0.7", "0.1", "5", "'NaN'")),
    "n": ("DECIMAL(5,2)", ("1.5", "9.99", "50", "100.00", "300.01")),
    "s": ("STRING", ("'a'", "'b'", "'c'", f"'{LONG}'", f"'{LONG}a'", f"'{LONG[:32]}'", "'\U0001f600'", "''")),
    "t": ("DATE", ("DATE'2019-01-31'", "DATE'2019-06-01'", "'1970-01-01'", "DATE'1900-01-01'")),
    "m": (
        "TIMESTAMP",
        ("TIMESTAMP'2020-01-01 23:59:59.999'", "TIMESTAMP'2019-01-31 12:00:00.000999'", "'1970-01-01'", "DATE'2019-06-01'"),
    ),
    "b": ("BOOLEAN", ("true", "false")),
    "p": ("STRING", ("'x'", "'y'", "'z'")),
}  # fmt: skip


def _predicates() -> list[str]:
    found = []
    for name, (_, literals) in COLUMNS.items():
        plain = [f"{name} {sign} {literal}" for sign in ("=", "<>", "<", ">=", "<=>") for literal in literals]
        plain += [f"{name} IN ({one}, NULL)" for one in literals]
        plain += [f"{name} BETWEEN {low} AND {high}" for low, high in itertools.pairwise(literals)]
        plain += [f"{name} IS NULL", f"{name} = NULL", f"{name} <=> NULL"]
        found += [*plain[::2], *(f"NOT ({each})" for each in plain[1::2])]
    pairs = itertools.pairwise(found[::7])
    return found + [f"({a}) AND NOT ({b})" for a, b in pairs] + [f"i > 7 OR NOT ({each})" for each in found[::11]]


def test_no_file_with_a_row_that_matches_in_spark_is_ruled_out(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.sql(
        f"CREATE TABLE delta.`{path}` ({columns}) USING delta PARTITIONED BY (p) TBLPROPERTIES "
        "('delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name')"
    )
    for rows in FILES:
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        spark.sql(f"INSERT INTO delta.`{path}` SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
    # The row with the greatest values of its file is hidden, and the statistics still count it.
    spark.sql(f"DELETE FROM delta.`{path}` WHERE i = 30")
    log = local_log(path)
    snapshot = newest(log)
    live = {add["path"].rpartition("/")[2]: add for add in log.live_files(lambda _: True, snapshot.version)}
    assert len(live) == len(FILES)
    assert sum(bool(add.get("deletionVector")) for add in live.values()) == 1

    judges = {text: judge for text in _predicates() if (judge := concerned(text, snapshot)) is not None}
    counts = ", ".join(f"count_if({text})" for text in judges)
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        found = spark.sql(
            f"SELECT _metadata.file_name, {counts} FROM delta.`{path}` GROUP BY _metadata.file_name"
        ).collect()
        matching = {row[0]: dict(zip(judges, row[1:], strict=True)) for row in found}
        wrongly = [
            (name, text, matching[name][text])
            for name, add in live.items()
            for text, judge in judges.items()
            if not judge(add) and matching[name][text]
        ]
        assert wrongly == []
    kept = [(name, text) for name, add in live.items() for text, judge in judges.items() if judge(add)]
    of_those = sum(not matching[name][text] for name, text in kept)
    print(f"{len(judges)} predicates: {len(judges) * len(live) - len(kept)} files ruled out, {of_those} kept in vain")
    # It is worth something only if most files without such a row are ruled out.
    assert len(judges) > 250
    assert of_those < len(judges) * len(live) // 5
