"""Two versions of a table of Spark's compared row by row, beside Spark's own EXCEPT ALL."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.data_files import opened
from tests.support.tables import local_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATE = """CREATE TABLE {t} (id BIGINT, v STRING, f DOUBLE, at TIMESTAMP, s STRUCT<a: INT>, month STRING) USING delta
    PARTITIONED BY (month) TBLPROPERTIES ('delta.enableDeletionVectors'='true', 'delta.columnMapping.mode'='name',
    'delta.enableTypeWidening'='true')"""
ROWS = """SELECT id % 7, concat('v', id % 3), id / 2, timestamp_seconds(id), named_struct('a', int(id % 2)),
    concat('2019 ', id % 2) FROM range({rows}, 1, 1)"""
STEPS = (
    f"INSERT INTO {{t}} {ROWS.format(rows='0, 60')}",
    "DELETE FROM {t} WHERE id = 3",
    "UPDATE {t} SET v = 'changed', month = '2019 1' WHERE id = 5",
    f"INSERT INTO {{t}} {ROWS.format(rows='0, 20')}",
    "OPTIMIZE {t}",
    "DELETE FROM {t} WHERE month = '2019 0' AND id = 4",
)


def test_it_is_what_except_all_says(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a lake" / "trips"

    def run(query: str) -> list[Any]:
        return spark.sql(query.replace("{t}", f"delta.`{path}`")).collect()

    for step in (CREATE, *STEPS):
        run(step)
    log = local_log(path)
    columns = "id, v, f, at, s.a, month"

    def beside(before: int, after: int, then: str = columns) -> None:
        found = opened(log).compare_rows(before, after)
        old, new = (
            f"SELECT {then} FROM {{t}} VERSION AS OF {before}",
            f"SELECT {columns} FROM {{t}} VERSION AS OF {after}",
        )
        for table, query in ((found.removed, f"{old} EXCEPT ALL {new}"), (found.added, f"{new} EXCEPT ALL {old}")):
            ours = Counter(tuple(map(str, flat(row))) for row in table.to_pylist())
            assert ours == Counter(tuple(map(str, row)) for row in map(plain, run(query))), (before, after)

    def flat(row: dict[str, Any]) -> list[Any]:
        values = list(row.values())
        return [*values[:3], values[3].timestamp(), values[4] and values[4]["a"], values[5]]

    def plain(row: Any) -> list[Any]:
        return [*row[:3], row[3].timestamp(), *row[4:]]

    newest = log.snapshot().version
    for before, after in ((2, 3), (1, newest), (newest, 2)):
        beside(before, after)
    # A compaction of all that is there is not read.
    assert opened(log).compare_rows(4, 5).files_read == 0

    run("ALTER TABLE {t} RENAME COLUMN v TO w")
    run("ALTER TABLE {t} ALTER COLUMN s.a TYPE BIGINT")
    run("UPDATE {t} SET s = named_struct('a', 5000000000) WHERE id = 6")
    columns = columns.replace("v", "w")
    beside(newest, log.snapshot().version, "id, v, f, at, s.a, month")
