"""A table that changes between staging and commit (protocol: compatible definition): the rows fit and are read rightly, or are refused.

Each case makes the same table, stages two rows, changes the table with Spark, and publishes. What fits is read back by
Spark and by deltalake; what is refused says what changed, and leaves the log as it was, byte for byte.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.exceptions import TerminalError
from airflow_provider_onelake.modes import Append, Mode, Overwrite, OverwritePartitions
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.writes.publish import Committer, Publication, PublishStatus
from tests.support.spark import stage_with
from tests.support.tables import foreign_commit, local_log, writer_spec

Row = dict[str, Any]
ROWS = "id, CAST(2 * id AS INT) AS n, named_struct('a', id) AS s, 'a b' AS month FROM range({}, {})"


def rows(*ids: int, **columns: Any) -> list[Row]:
    """The rows of some ids; a column given as None is absent, and a name given for another renames it."""
    return [{"id": i, "n": 2 * i, "s": {"a": i}, "month": "a b", **columns} for i in ids]


@attrs.define
class Table:
    """A table of Spark's with two rows, 0 and 1, and a buffer of a writer that brings 2 and 3."""

    path: Path
    spark: Any
    engine: ConnectEngine
    mode: Mode = attrs.field(factory=Append)

    def sql(self, statement: str) -> Any:
        """Run a statement; ``{t}`` is the table, ``{path}`` its directory."""
        return self.spark.sql(statement.replace("{t}", f"delta.`{self.path}`").replace("{path}", str(self.path)))

    def create(self, columns: str, properties: Sequence[str]) -> None:
        listed = f"TBLPROPERTIES ({', '.join(properties)})" if properties else ""
        self.sql(f"CREATE TABLE {{t}} ({columns}) USING delta PARTITIONED BY (month) {listed}")
        self.sql(f"INSERT INTO {{t}} SELECT {ROWS.format(0, 2)}")

    def stage(self, query: str) -> Buffer:
        return stage_with(self.engine, local_log(self.path), writer_spec(str(uuid.uuid4()), mode=self.mode), query)

    def publish(self, buffer: Buffer) -> Publication:
        return Committer(local_log(self.path)).publish([buffer])

    @property
    def entries(self) -> dict[int, bytes]:
        """The log's entries by version."""
        files = (self.path / "_delta_log").glob("*.json")
        return {int(file.stem): file.read_bytes() for file in files if file.stem.isdecimal()}

    def spark_rows(self) -> list[Row]:
        return [row.asDict(recursive=True) for row in self.sql("SELECT * FROM {t} ORDER BY 1").collect()]

    def deltalake_rows(self) -> list[Row]:
        from deltalake import DeltaTable, QueryBuilder

        query = QueryBuilder().register("t", DeltaTable(str(self.path))).execute("SELECT * FROM t ORDER BY 1")
        return list(pa.table(query.read_all()).to_pylist())

    # -- changes that take more than a statement -----------------------------------------------------------------

    def overwrite(self, query: str, *partition_by: str) -> None:
        """What a data engineer's notebook does: the whole table, with another schema."""
        writer = self.spark.sql(query).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        (writer.partitionBy(*partition_by) if partition_by else writer).save(str(self.path))

    def replace(self, columns: str, properties: Sequence[str] = ()) -> None:
        """CREATE OR REPLACE TABLE; of a table without a name, Spark 4.2 makes nothing of it where the columns agree."""
        name = f"replaced_{uuid.uuid4().hex}"
        listed = f"TBLPROPERTIES ({', '.join(properties)})" if properties else ""
        self.sql(f"CREATE TABLE {name} USING delta LOCATION '{{path}}'")
        self.sql(
            f"CREATE OR REPLACE TABLE {name} ({columns}) USING delta PARTITIONED BY (month) {listed} "
            "LOCATION '{path}'"
        )
        self.sql(f"DROP TABLE {name}")

    def drop_and_create(self) -> None:
        """DROP TABLE leaves buffers, as they are not in its log; then the table is made again, alike."""
        shutil.rmtree(self.path / "_delta_log")
        log = local_log(self.path)
        create_table(log, json.dumps(self.spark.sql(f"SELECT {ROWS.format(0, 1)}").schema.jsonValue()), ["month"])

    def forbid_null(self) -> None:
        """Another engine makes ``n`` NOT NULL; Spark itself does that to no column that may be NULL."""
        snapshot = local_log(self.path).snapshot()
        schema = json.loads(snapshot.metadata["schemaString"])
        next(field for field in schema["fields"] if field["name"] == "n")["nullable"] = False
        metadata = {**snapshot.metadata, "schemaString": json.dumps(schema)}
        foreign_commit(local_log(self.path), [{"commitInfo": {"operation": "CHANGE"}}, {"metaData": metadata}])

    def clone_another(self) -> None:
        other = f"delta.`{self.path.with_name('other')}`"
        self.sql(f"CREATE TABLE {other} USING delta PARTITIONED BY (month) AS SELECT {ROWS.format(7, 9)}")
        # Spark clones over an empty table only.
        self.sql("DELETE FROM {t}")
        self.sql(f"CREATE OR REPLACE TABLE {{t}} SHALLOW CLONE {other}")


COLUMNS = "id BIGINT, n INT, s STRUCT<a: BIGINT>, month STRING"
MAPPED = ("'delta.columnMapping.mode' = 'name'",)
NUMBERED = ("'delta.columnMapping.mode' = 'id'",)
WIDENS = ("'delta.enableTypeWidening' = 'true'",)
DEFAULTS = ("'delta.feature.allowColumnDefaults' = 'supported'",)
VECTORS = ("'delta.enableDeletionVectors' = 'true'",)
MAPPING_ON = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
Change = str | Callable[[Table], None]


@attrs.frozen
class Case:
    """A change, and what becomes of the staged rows.

    :param fits: the rows that the table has then; ``None`` where the staged ones are refused.
    :param deltalake: whether deltalake reads such a table; else it says so.
    """

    changes: tuple[Change, ...]
    fits: list[Row] | None = None
    refused: str = ""
    properties: tuple[str, ...] = ()
    columns: str = COLUMNS
    before: tuple[Change, ...] = ()
    mode: Mode = attrs.field(factory=Append)
    brings: str = ""
    deltalake: bool = True


def fits(*changes: Change, then: list[Row] | None = None, **made: Any) -> Case:
    return Case(changes, fits=rows(0, 1, 2, 3) if then is None else then, **made)


def refused(*changes: Change, says: str, **made: Any) -> Case:
    return Case(changes, refused=says, **made)


def without(name: str, found: list[Row], **others: Any) -> list[Row]:
    """Rows that lack a column, and perhaps have it under another name."""
    return [{k: v for k, v in {**row, **{k: row[v] for k, v in others.items()}}.items() if k != name} for row in found]


ALL = rows(0, 1, 2, 3)
NULL_NOTE = [{**row, "note": None} for row in ALL]
NESTED_NOTE = [{**row, "s": {**row["s"], "b": None}} for row in ALL]

CASES = {
    # -- columns
    "column added": fits("ALTER TABLE {t} ADD COLUMNS (note STRING)", then=NULL_NOTE),
    "column added, mapped": fits("ALTER TABLE {t} ADD COLUMNS (note STRING)", then=NULL_NOTE, properties=MAPPED),
    "column added, numbered": fits("ALTER TABLE {t} ADD COLUMNS (note STRING)", then=NULL_NOTE, properties=NUMBERED),
    "column added first": fits("ALTER TABLE {t} ADD COLUMNS (note STRING AFTER id)", then=NULL_NOTE),
    "field added": fits("ALTER TABLE {t} ADD COLUMNS (s.b STRING)", then=NESTED_NOTE),
    "field added, mapped": fits("ALTER TABLE {t} ADD COLUMNS (s.b STRING)", then=NESTED_NOTE, properties=MAPPED),
    "columns reordered": fits("ALTER TABLE {t} ALTER COLUMN n AFTER s"),
    "column renamed": fits("ALTER TABLE {t} RENAME COLUMN n TO m", then=without("n", ALL, m="n"), properties=MAPPED),
    "column renamed, numbered": fits(
        "ALTER TABLE {t} RENAME COLUMN n TO m", then=without("n", ALL, m="n"), properties=NUMBERED
    ),
    "field renamed": fits(
        "ALTER TABLE {t} RENAME COLUMN s.a TO z",
        then=[{**row, "s": {"z": row["id"]}} for row in ALL],
        properties=MAPPED,
    ),
    "partition column renamed": fits(
        "ALTER TABLE {t} RENAME COLUMN month TO p", then=without("month", ALL, p="month"), properties=MAPPED
    ),
    "partition column renamed, overwritten": fits(
        "ALTER TABLE {t} RENAME COLUMN month TO p",
        then=without("month", rows(2, 3), p="month"),
        properties=MAPPED,
        mode=OverwritePartitions(),
    ),
    "two columns swap their names": fits(
        "ALTER TABLE {t} RENAME COLUMN n TO old",
        "ALTER TABLE {t} RENAME COLUMN id TO n",
        "ALTER TABLE {t} RENAME COLUMN old TO id",
        then=[{**row, "id": row["n"], "n": row["id"]} for row in ALL],
        properties=MAPPED,
    ),
    "column dropped": refused("ALTER TABLE {t} DROP COLUMN n", says="column n is gone", properties=MAPPED),
    "field dropped": refused(
        "ALTER TABLE {t} ADD COLUMNS (s.b STRING)",
        "ALTER TABLE {t} DROP COLUMN s.a",
        says="column s.a is gone",
        properties=MAPPED,
    ),
    "column dropped and added again": refused(
        "ALTER TABLE {t} DROP COLUMN n",
        "ALTER TABLE {t} ADD COLUMNS (n INT)",
        says="column n is gone|column n is another",
        properties=MAPPED,
    ),
    "column dropped and added again, numbered": refused(
        "ALTER TABLE {t} DROP COLUMN n",
        "ALTER TABLE {t} ADD COLUMNS (n INT)",
        says="column n is gone|column n is another",
        properties=NUMBERED,
    ),
    "column mapping switched on": fits(MAPPING_ON),
    "column mapping switched on, column renamed": fits(
        MAPPING_ON, "ALTER TABLE {t} RENAME COLUMN n TO m", then=without("n", ALL, m="n")
    ),
    "column mapping switched on, column dropped and added again": refused(
        MAPPING_ON,
        "ALTER TABLE {t} DROP COLUMN n",
        "ALTER TABLE {t} ADD COLUMNS (n INT)",
        says="column n is gone|column n is another",
    ),
    # -- types
    "widened": fits("ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT", properties=WIDENS, deltalake=False),
    "widening allowed, then widened": fits(
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ({WIDENS[0]})",
        "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT",
        deltalake=False,
    ),
    "widened, mapped and renamed": fits(
        "ALTER TABLE {t} ALTER COLUMN n TYPE DOUBLE",
        "ALTER TABLE {t} RENAME COLUMN n TO m",
        then=without("n", ALL, m="n"),
        properties=(*WIDENS, *MAPPED),
        deltalake=False,
    ),
    "field widened": refused(
        "ALTER TABLE {t} ALTER COLUMN s.a TYPE DECIMAL(25,2)", says=r"column s\.a is decimal", properties=WIDENS
    ),
    "type changed": refused(
        lambda t: t.overwrite("SELECT id, 'x' AS n, named_struct('a', id) AS s, 'a b' AS month FROM range(5)", "month"),
        says="column n is string, not integer",
    ),
    # -- what rows must be
    "NOT NULL added": refused(Table.forbid_null, says="column n is NOT NULL now"),
    "NOT NULL taken away": fits(
        "ALTER TABLE {t} ALTER COLUMN n DROP NOT NULL", columns=COLUMNS.replace("n INT", "n INT NOT NULL")
    ),
    "CHECK added": refused(
        "ALTER TABLE {t} ADD CONSTRAINT small CHECK (n < 4)", says=r"CHECK small \(n < 4\) was added"
    ),
    "CHECK taken away": fits(
        "ALTER TABLE {t} DROP CONSTRAINT small", before=("ALTER TABLE {t} ADD CONSTRAINT small CHECK (n < 9)",)
    ),
    "CHECK made stricter": refused(
        "ALTER TABLE {t} DROP CONSTRAINT small",
        "ALTER TABLE {t} ADD CONSTRAINT small CHECK (n < 4)",
        says=r"CHECK small \(n < 4\) was added",
        before=("ALTER TABLE {t} ADD CONSTRAINT small CHECK (n < 9)",),
    ),
    "default added": refused(
        "ALTER TABLE {t} ALTER COLUMN n SET DEFAULT 7", says="column n has another", properties=DEFAULTS
    ),
    "default taken away": fits(
        "ALTER TABLE {t} ALTER COLUMN n DROP DEFAULT",
        properties=DEFAULTS,
        columns=COLUMNS.replace("n INT", "n INT DEFAULT 7"),
    ),
    # -- the table
    "property set": fits("ALTER TABLE {t} SET TBLPROPERTIES ('team' = 'taxi', 'delta.checkpointInterval' = '20')"),
    "append-only": fits("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')"),
    "append-only, overwritten": refused(
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')", says="append-only", mode=Overwrite()
    ),
    "comments": fits("ALTER TABLE {t} ALTER COLUMN n COMMENT 'twice'", "COMMENT ON TABLE {t} IS 'of numbers'"),
    "deletion vectors": fits(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({VECTORS[0]})"),
    "deletion vectors and a DELETE": fits(
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ({VECTORS[0]})", "DELETE FROM {t} WHERE id = 1", then=rows(0, 2, 3)
    ),
    "in-commit timestamps": fits("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"),
    "change data feed": fits("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"),
    "row tracking": fits("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"),
    "a feature that is not written to": refused(
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.variantType' = 'supported')", says="variantType"
    ),
    "replaced": refused(lambda t: t.replace(COLUMNS), says="replaced by another"),
    "replaced by other columns": refused(lambda t: t.replace("id BIGINT, month STRING"), says="replaced by another"),
    "replaced by a query": refused(
        f"CREATE OR REPLACE TABLE {{t}} USING delta PARTITIONED BY (month) AS SELECT {ROWS.format(5, 7)}",
        says="replaced by another",
    ),
    "replaced, mapped": refused(lambda t: t.replace(COLUMNS, MAPPED), says="replaced by another", properties=MAPPED),
    "dropped and created": refused(Table.drop_and_create, says="replaced by another"),
    "dropped": refused(lambda t: shutil.rmtree(t.path / "_delta_log"), says="no Delta table"),
    "overwritten, same columns": fits(
        lambda t: t.overwrite(f"SELECT {ROWS.format(5, 6)}", "month"), then=rows(2, 3, 5)
    ),
    "partitioning changed": refused(
        lambda t: t.overwrite(f"SELECT {ROWS.format(0, 2)}", "n"), says="partitioned by n, not by month"
    ),
    "partitioning taken away": refused(
        lambda t: t.overwrite(f"SELECT {ROWS.format(0, 2)}"), says="partitioned by nothing, not by month"
    ),
    "cloned over": fits(Table.clone_another, then=rows(2, 3, 7, 8)),
    "cloned over, overwritten": refused(
        Table.clone_another, says="by an absolute path, as shallow clones do", mode=Overwrite()
    ),
    "restored": fits("RESTORE TABLE {t} TO VERSION AS OF 0", then=rows(2, 3)),
    "restored to before a column": refused(
        "RESTORE TABLE {t} TO VERSION AS OF 1",
        says="column extra is gone",
        before=("ALTER TABLE {t} ADD COLUMNS (extra INT)",),
        brings=", 1 AS extra",
    ),
    "restored to before a CHECK": fits(
        "RESTORE TABLE {t} TO VERSION AS OF 1", before=("ALTER TABLE {t} ADD CONSTRAINT small CHECK (n < 9)",)
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_a_table_that_changes_between_staging_and_commit(
    tmp_path: Path, spark: Any, engine: ConnectEngine, case: Case
) -> None:
    table = Table(tmp_path / "t", spark, engine, case.mode)
    table.create(case.columns, case.properties)
    for change in case.before:
        apply(change, table)
    buffer = table.stage(f"SELECT * {case.brings} FROM (SELECT {ROWS.format(2, 4)})")
    for change in case.changes:
        apply(change, table)
    before = table.entries

    if case.fits is None:
        with pytest.raises(TerminalError) as caught:
            table.publish(buffer)
        said = str(caught.value)
        assert re.search(case.refused, said), said
        assert str(table.path) in said
        assert table.entries == before
        return
    done = table.publish(buffer)
    assert (done.status, done.version) == (PublishStatus.PUBLISHED, max(before) + 1)
    expected = by_id(case.fits)
    assert by_id(table.spark_rows()) == expected
    if case.deltalake:
        assert by_id(table.deltalake_rows()) == expected
    else:
        with pytest.raises(DeltaError, match="TypeWidening"):
            table.deltalake_rows()


def by_id(found: list[Row]) -> list[Row]:
    return sorted(found, key=lambda row: int(row["id"]))


def apply(change: Change, table: Table) -> None:
    if isinstance(change, str):
        table.sql(change)
    else:
        change(table)
