"""A table and its copy: ours, and the one in which Spark does by itself what is compared."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TwoTables:
    """Two tables with the same files.

    :param statements: what makes the first; ``{t}`` stands for the table.
    """

    def __init__(self, spark: SparkSession, directory: Path, *statements: str) -> None:
        self.spark = spark
        self.ours, self.theirs = directory / "ours", directory / "theirs"
        for statement in statements:
            self.run(statement, self.ours)
        self.copy()

    def copy(self) -> None:
        """Copy the first to the second, in place of what is there."""
        shutil.rmtree(self.theirs, ignore_errors=True)
        shutil.copytree(self.ours, self.theirs)

    def run(self, query: str, path: Path) -> list[Any]:
        return self.spark.sql(query.replace("{t}", f"delta.`{path}`")).collect()


class Copies(TwoTables):
    """Rows of three months, of which some were deleted."""

    def __init__(
        self, spark: SparkSession, directory: Path, properties: str, layout: str = "PARTITIONED BY (month)"
    ) -> None:
        with_properties = f"TBLPROPERTIES ({properties})" if properties else ""
        columns = "id BIGINT, v STRING, month STRING"
        super().__init__(
            spark,
            directory,
            f"CREATE TABLE {{t}} ({columns}) USING delta {layout} {with_properties}",
            "INSERT INTO {t} SELECT id, 'v', concat('2019 ', id % 3) FROM range(0, 30, 1, 2)",
            "DELETE FROM {t} WHERE id % 7 = 1",
        )

    def rows(self, path: Path, columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.run(f"SELECT {columns} FROM {{t}}", path)), key=_nulls_first)

    def changes(self, path: Path, version: int) -> list[tuple[Any, ...]]:
        feed = self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
        read = feed.load(str(path)).select("id", "v", "month", "_change_type")
        return sorted(map(tuple, read.collect()), key=_nulls_first)

    def by_deltalake(self) -> list[int]:
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        found = QueryBuilder().register("t", DeltaTable(str(self.ours))).execute("SELECT id FROM t").read_all()
        return sorted(pa.table(found).column("id").to_pylist())


def _nulls_first(row: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Python does not compare None with a value: a row may differ from another one in that only."""
    return [(value is not None, value) for value in row]
