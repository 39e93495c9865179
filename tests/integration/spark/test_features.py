"""Every table feature of the allow-list: the table made by Spark, written through buffers, read by Spark and deltalake.

Each case runs the same load: all modes, with Spark's own appends and DELETEs in between, then on from a checkpoint whose
earlier log is gone. What a case adds is the feature's own mark: an action of the protocol, and a value that only that
feature makes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow.parquet as pq
import pytest

from airflow_provider_onelake.engines.connect import ConnectEngine
from airflow_provider_onelake.exceptions import (
    BufferDoesNotFitError,
    ConstraintViolatedError,
    InvalidWriteError,
    UnsupportedFeatureError,
)
from tests.support.clocks import HeldClock
from tests.support.shared_tables import Column, SharedTable

pytestmark = pytest.mark.spark

Check = Callable[[SharedTable], None]
VECTORS = {"delta.enableDeletionVectors": "true"}
WORD = {"columns": (Column("word", "STRING", lambda key: f"word {key}", "concat('word ', id)"),)}


@attrs.frozen
class Case:
    """A feature: how its table is made, and how it is known.

    :param listed: what the protocol names for it.
    :param check: reads the feature's own mark; called before and after the checkpoint.
    :param properties: of the table.
    :param layout: of the table.
    :param begin: what is done to the table when it has its first rows.
    :param between: what is done to it between staging and commit.
    :param checkpoint: writes one of the newest version.
    :param table: further fields of the table.
    """

    listed: frozenset[str]
    check: Check
    properties: Mapping[str, str] = attrs.field(factory=dict)
    layout: str = "PARTITIONED BY (part)"
    begin: Check = lambda table: None
    between: Check = lambda table: None
    checkpoint: Check = SharedTable.checkpoint
    table: Mapping[str, Any] = attrs.field(factory=dict)


# -- what only a feature makes ------------------------------------------------------------------------------------------


def columns(table: SharedTable) -> dict[str, dict[str, Any]]:
    """The fields of the schema, by the names that people know."""
    return {field["name"]: field for field in json.loads(table.snapshot.metadata["schemaString"])["fields"]}


def configuration(table: SharedTable, name: str) -> str | None:
    return table.snapshot.configuration.get(name)


def plain(table: SharedTable) -> None:
    assert not table.snapshot.writer_features
    assert not any("deletionVector" in add or "baseRowId" in add for add in table.live())


def vectors(table: SharedTable) -> None:
    """Every remove of ours carries the vector that the file had, and every vector hides one row of its file."""
    found = [add["deletionVector"] for add in table.live() if "deletionVector" in add]
    for version in table.ours:
        before = {add["path"]: add.get("deletionVector") for add in table.live(version - 1)}
        for remove in table.actions("remove", version):
            assert remove.get("deletionVector") == before[remove["path"]]
            found += [remove["deletionVector"]] if "deletionVector" in remove else []
    assert found
    assert {vector["cardinality"] for vector in found} == {1}


def mapped(table: SharedTable) -> None:
    """The log and the files know no column by the name that people use."""
    fields = columns(table)
    assert list(fields) == ["id", "part", "renamed"]
    physical = {name: field["metadata"]["delta.columnMapping.physicalName"] for name, field in fields.items()}
    assert not set(physical) & set(physical.values())
    for add in table.live():
        assert list(add["partitionValues"]) == [physical["part"]]
        assert set(json.loads(add["stats"])["nullCount"]) == {physical["id"], physical["renamed"]}
        assert table.parquet(add).schema_arrow.names == [physical["id"], physical["renamed"]]


def mapped_by_id(table: SharedTable) -> None:
    """Files number their columns as the schema does."""
    mapped(table)
    assert configuration(table, "delta.columnMapping.mode") == "id"
    numbers = {
        field["metadata"]["delta.columnMapping.physicalName"]: field["metadata"]["delta.columnMapping.id"]
        for field in columns(table).values()
    }
    for add in table.live():
        for field in table.parquet(add).schema_arrow:
            assert int(field.metadata[b"PARQUET:field_id"]) == numbers[field.name]


def monotonic(table: SharedTable) -> None:
    """Every commit, whoever made it, is later than the one before, though our clock is an hour slow."""
    since = int(configuration(table, "delta.inCommitTimestampEnablementVersion") or 0)
    stamps = []
    for version in table.entries:
        if version >= since:
            first = json.loads((table.path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()[0])
            stamps.append(first["commitInfo"]["inCommitTimestamp"])
    assert stamps == sorted(set(stamps))
    assert table.snapshot.in_commit_timestamp == stamps[-1]


def change_feed(table: SharedTable) -> None:
    """What the feed says of every version is what happened to the rows."""
    if not table.changes:
        return
    reader = table.spark.read.format("delta").option("readChangeFeed", "true")
    feed = reader.option("startingVersion", min(table.changes)).load(str(table.path))
    found: dict[int, dict[str, set[Any]]] = {version: {"delete": set(), "insert": set()} for version in table.changes}
    for *row, change, version in feed.drop("_commit_timestamp").collect():
        assert tuple(row) not in found[version][change]
        found[version][change].add(tuple(row))
    assert found == {v: {"delete": gone, "insert": came} for v, (gone, came) in table.changes.items()}


def v2_checkpoints(table: SharedTable) -> None:
    """The checkpoint that our replay begins with names itself by a UUID and keeps its files in sidecars."""
    log = table.path / "_delta_log"
    assert configuration(table, "delta.checkpointPolicy") == "v2"
    newest = max(log.glob("*.checkpoint.*"))
    assert re.fullmatch(r"\d{20}\.checkpoint\.[0-9a-f-]{36}\.(json|parquet)", newest.name)
    named = {Path(body["path"]).name for body in sidecars(newest)}
    assert named
    assert named <= {file.name for file in (log / "_sidecars").iterdir()}


def sidecars(checkpoint: Path) -> list[dict[str, Any]]:
    if checkpoint.suffix == ".json":
        actions = [json.loads(line) for line in checkpoint.read_text().splitlines()]
    else:
        actions = pq.read_table(checkpoint, columns=["sidecar"]).to_pylist()
    return [action["sidecar"] for action in actions if action.get("sidecar")]


def widened(table: SharedTable) -> None:
    """The schema remembers the steps, and files of before are narrower than the column."""
    for name in ("first", "second"):
        field = columns(table)[name]
        assert field["type"] == "long"
        assert [(c["fromType"], c["toType"]) for c in field["metadata"]["delta.typeChanges"]] == [("integer", "long")]
    for add in table.live():
        schema = table.parquet(add).schema_arrow
        rows = set(table.parquet(add).read(columns=["id"]).column("id").to_pylist())
        narrow = rows & STAGED_BEFORE
        assert str(schema.field("first").type) == "int64"
        assert str(schema.field("second").type) == ("int32" if narrow else "int64")


def iceberg(table: SharedTable) -> None:
    """Files are as Iceberg wants them: partition values inside, timestamps in 64 bits, numbered list elements."""
    fields = columns(table)
    physical = {name: field["metadata"]["delta.columnMapping.physicalName"] for name, field in fields.items()}
    nested = fields["list"]["metadata"]["parquet.field.nested.ids"]
    for add in table.live():
        assert list(add["partitionValues"]) == [physical["part"]]
        assert json.loads(add["stats"])["numRecords"] > 0
        file = table.parquet(add)
        assert file.schema_arrow.names == list(physical.values())
        types = {column.path: column for column in map(file.schema.column, range(len(file.schema)))}
        assert types[physical["at"]].physical_type == "INT64"
        element = file.schema_arrow.field(physical["list"]).type.value_field
        assert int(element.metadata[b"PARQUET:field_id"]) == nested[f"{physical['list']}.element"]


def clustered(table: SharedTable) -> None:
    """The table's clustering columns outlive every commit of ours, and Spark still clusters by them."""
    domain = json.loads(table.snapshot.domains["delta.clustering"]["configuration"])
    assert domain["clusteringColumns"] == [["id"]]
    assert table.snapshot.clustered
    assert table.sql("DESCRIBE DETAIL {t}").collect()[0]["clusteringColumns"] == ["id"]


def row_ids(table: SharedTable) -> None:
    """No row id is given twice, a row keeps its id, and Spark goes on where we ended."""
    found = table.sql("SELECT id, _metadata.row_id, _metadata.row_commit_version FROM {t}").collect()
    ids = {key: (row_id, version) for key, row_id, version in found}
    assert set(ids) == set(table.rows)
    assert len({row_id for row_id, _ in ids.values()}) == len(ids)
    assert {key: version for key, (_, version) in ids.items()} == {key: table.since[key] for key in ids}
    earlier = table.remembered
    assert {key: ids[key] for key in ids.keys() & earlier.keys()} == {key: earlier[key] for key in ids.keys() & earlier.keys()}
    earlier.update(ids)
    snapshot, mark = table.snapshot, -1
    for version in table.entries:
        mark = follows(table, version, mark)
    assert snapshot.row_id_high_water_mark == mark
    assert max(row_id for row_id, _ in ids.values()) <= mark


def follows(table: SharedTable, version: int, mark: int) -> int:
    """The high-water mark behind a version, all of whose new files have fresh ids."""
    marks = [body for body in table.actions("domainMetadata", version) if body["domain"] == "delta.rowTracking"]
    raised = json.loads(marks[0]["configuration"])["rowIdHighWaterMark"] if marks else mark
    if version == table.entries[0]:
        return raised
    gone = {remove["path"] for remove in table.actions("remove", version)}
    fresh = [add for add in table.actions("add", version) if add["path"] not in gone]
    taken = sorted((add["baseRowId"], json.loads(add["stats"])["numRecords"]) for add in fresh)
    for base, rows in taken:
        assert base == mark + 1
        mark += rows
    assert raised == mark
    assert {add["defaultRowCommitVersion"] for add in fresh} <= {version}
    return mark


def constrained(table: SharedTable) -> None:
    """What Spark enforces for its own appends it enforces for staged rows, and the table is as before."""
    fields = columns(table)
    assert fields["twice"]["metadata"]["delta.generationExpression"] == "id * 2"
    assert fields["state"]["metadata"]["CURRENT_DEFAULT"] == "'new'"
    assert not fields["code"]["nullable"]
    assert configuration(table, "delta.constraints.small") == "id < 1000"


def wall_clock(table: SharedTable) -> None:
    """A time without a zone is a partition value without one, in whatever zone Spark looks at it."""
    assert columns(table)["part"]["type"] == "timestamp_ntz"
    spelled = {add["partitionValues"]["part"] for add in table.live()}
    assert not any(value.endswith("Z") or "+" in value for value in spelled)
    assert {table.snapshot.partitioning.partition(add["partitionValues"]) for add in table.live()} <= {
        (value,) for value in table.parts.values()
    }
    table.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    table.check()
    table.spark.conf.set("spark.sql.session.timeZone", "UTC")


def awkward(table: SharedTable) -> None:
    """Paths are encoded once more than the directories are, and NULL is no text."""
    values = {add["partitionValues"]["part"] for add in table.live()}
    assert values == {"x y/ü:%41", None, "a=b+c#?'\\"}
    for add in table.live():
        assert (table.path / unquote(add["path"])).is_file()
        assert add["path"].isascii()


def rename(table: SharedTable) -> None:
    table.sql("ALTER TABLE {t} RENAME COLUMN word TO renamed")
    table.columns = (attrs.evolve(table.columns[0], name="renamed"),)


def widen(name: str) -> Check:
    return lambda table: table.sql(f"ALTER TABLE {{t}} ALTER COLUMN {name} TYPE BIGINT")


V2 = {"delta.checkpointPolicy": "v2", **VECTORS}
STAGED_BEFORE = {10, 11, 12, 13}
CASES = {
    "plain": Case(frozenset(), plain),
    "deletion vectors": Case(frozenset({"deletionVectors"}), vectors, VECTORS),
    "column mapping by name": Case(
        frozenset({"columnMapping"}), mapped, {"delta.columnMapping.mode": "name"}, between=rename, table=WORD
    ),
    "column mapping by id": Case(
        frozenset({"columnMapping"}), mapped_by_id, {"delta.columnMapping.mode": "id"}, between=rename, table=WORD
    ),
    "in-commit timestamps": Case(
        frozenset({"inCommitTimestamp"}),
        monotonic,
        begin=lambda table: table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"),
        table={"clock": HeldClock(datetime.now(UTC) - timedelta(hours=1))},
    ),
    "change data feed": Case(
        frozenset({"changeDataFeed", "deletionVectors"}),
        change_feed,
        {"delta.enableChangeDataFeed": "true", **VECTORS},
    ),
    "v2 checkpoints by Spark": Case(
        frozenset({"v2Checkpoint"}),
        v2_checkpoints,
        {"delta.checkpointInterval": "1", **V2},
        checkpoint=lambda table: None,
    ),
    "v2 checkpoints by us": Case(frozenset({"v2Checkpoint"}), lambda table: None, V2),
    "type widening": Case(
        frozenset({"typeWidening"}),
        widened,
        {"delta.enableTypeWidening": "true"},
        begin=widen("first"),
        between=widen("second"),
        table={
            "columns": (
                Column("first", "INT", lambda key: key + (key > 4) * 2**40, "id + IF(id > 4, 1099511627776, 0)"),
                Column("second", "INT", lambda key: key, "CAST(id AS INT)"),
            )
        },
    ),
    "IcebergCompatV2": Case(
        frozenset({"columnMapping", "icebergCompatV2"}),
        iceberg,
        {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"},
        table={
            "columns": (
                Column("list", "ARRAY<BIGINT>", lambda key: [key, key + 1], "array(id, id + 1)"),
                Column(
                    "at",
                    "TIMESTAMP_NTZ",
                    lambda key: datetime(2019, 1, 1) + timedelta(seconds=key),
                    "TIMESTAMP_NTZ '2019-01-01 00:00:00' + make_dt_interval(0, 0, 0, id)",
                ),
            )
        },
    ),
    "liquid clustering": Case(frozenset({"clustering", "domainMetadata"}), clustered, layout="CLUSTER BY (id)"),
    "row tracking": Case(frozenset({"rowTracking"}), row_ids, {"delta.enableRowTracking": "true", **VECTORS}),
    "generated, NOT NULL, CHECK, default": Case(
        frozenset({"generatedColumns", "invariants", "checkConstraints", "allowColumnDefaults"}),
        constrained,
        {"delta.feature.allowColumnDefaults": "supported"},
        begin=lambda table: table.sql("ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 1000)"),
        table={
            "columns": (
                Column("code", "BIGINT NOT NULL", lambda key: key, "id"),
                Column("twice", "BIGINT GENERATED ALWAYS AS (id * 2)", lambda key: 2 * key),
                Column("state", "STRING DEFAULT 'new'", lambda key: "new"),
            )
        },
    ),
    "timestampNtz": Case(
        frozenset({"timestampNtz"}),
        wall_clock,
        table={
            "part_type": "TIMESTAMP_NTZ",
            "parts": {
                "a": datetime(2019, 3, 10, 2, 30),
                "b": datetime(2019, 1, 1),
                "c": datetime(2019, 1, 1, 0, 0, 0, 500000),
            },
        },
    ),
    "awkward partition values": Case(
        frozenset(), awkward, table={"parts": {"a": "x y/ü:%41", "b": None, "c": "a=b+c#?'\\"}}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_feature(name: str, spark: Any, engine: ConnectEngine, tmp_path: Path) -> None:
    case = CASES[name]
    table = SharedTable(tmp_path / "t", spark, engine, **case.table)
    table.create(case.properties, case.layout)
    partitioned = "PARTITIONED" in case.layout
    table.insert((1, "a"), (2, "a"), (3, "b"), (4, "b"))
    case.begin(table)
    table.delete(1)
    table.write("overwrite", (5, "a"), (6, "a"), (7, "b"), (8, "b"))
    buffer = table.stage("append", (10, "a"), (11, "b"), (12, "c"), (13, "c"))
    case.between(table)
    table.publish(buffer, (10, "a"), (11, "b"), (12, "c"), (13, "c"))
    table.delete(5, 7, 12)
    table.write("overwrite_partitions" if partitioned else "append", (20, "a"), (21, "a"))
    table.write("replace_where" if partitioned else "append", (30, "b"))
    table.insert((40, "a"), (41, "c"))
    assert case.listed <= table.snapshot.writer_features
    case.check(table)
    table.check()

    case.checkpoint(table)
    cleaned = table.without_earlier_log()
    assert len(cleaned.entries) == 1
    case.check(cleaned)
    cleaned.check()
    cleaned.write("append", (60, "b"), (61, "b"))
    cleaned.insert((62, "c"))
    cleaned.write("overwrite_partitions" if partitioned else "overwrite", (70, "c"))
    case.check(cleaned)
    cleaned.check()
