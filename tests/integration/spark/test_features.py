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

from airflow_provider_onelake.exceptions import (
    BufferDoesNotFitError,
    ConstraintViolatedError,
    InvalidWriteError,
    UnsupportedFeatureError,
)
from airflow_provider_onelake.spark.connect import ConnectEngine
from tests.support.clocks import HeldClock
from tests.support.shared_tables import Column, SharedTable
from tests.support.spark import Server

Check = Callable[[SharedTable], None]
VECTORS = {"delta.enableDeletionVectors": "true"}
QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
# Where no Spark answers: an engine that is asked fails in another way than the test expects.
NOBODY = ConnectEngine("sc://127.0.0.1:1")
WORD = {"columns": (Column("word", "STRING", lambda key: f"word {key}", "concat('word ', id)"),)}


@attrs.frozen
class Case:
    """A feature: how its table is made, and how it is known.

    :param check: reads the feature's own mark; called before and after the checkpoint.
    """

    listed: frozenset[str]
    check: Check
    properties: Mapping[str, str] = attrs.field(factory=dict)
    layout: str = "PARTITIONED BY (part)"
    begin: Check = lambda table: None
    between: Check = lambda table: None
    checkpoint: Check = SharedTable.checkpoint
    table: Mapping[str, Any] = attrs.field(factory=dict)


@pytest.fixture
def quick(spark: Any) -> Any:
    """The session, for tables of a few rows: compiling a query takes longer than running it."""
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    return spark


@pytest.fixture
def quick_engine(connect_server: Server) -> ConnectEngine:
    """An engine with the same settings."""
    return ConnectEngine(connect_server.remote, settings=QUICK)


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
        assert (
            {physical["id"], physical["renamed"]}
            <= set(table.parquet(add).schema_arrow.names)
            <= set(physical.values())
        )


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
    found: dict[int, dict[str, list[Any]]] = {version: {"delete": [], "insert": []} for version in table.changes}
    for *row, change, version in feed.drop("_commit_timestamp").orderBy("id").collect():
        found[version][change].append(tuple(row))
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


def v2_table_with_our_checkpoint(table: SharedTable) -> None:
    """Ours has a classic name and holds all files itself; the format allows both on such a table."""
    assert configuration(table, "delta.checkpointPolicy") == "v2"
    for checkpoint in (table.path / "_delta_log").glob("*.checkpoint.*"):
        assert re.fullmatch(r"\d{20}\.checkpoint\.parquet", checkpoint.name)
        kinds = pq.read_table(checkpoint)
        assert kinds.column("checkpointMetadata").drop_null().to_pylist()[0]["version"] == int(checkpoint.name[:20])


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
    """Files are as Iceberg wants them: counted, with partition values inside, and with numbered list elements."""
    fields = columns(table)
    physical = {name: field["metadata"]["delta.columnMapping.physicalName"] for name, field in fields.items()}
    nested = fields["list"]["metadata"]["delta.columnMapping.nested.ids"]
    for add in table.live():
        assert json.loads(add["stats"])["numRecords"] > 0
        schema = table.parquet(add).schema_arrow
        assert set(schema.names) == set(physical.values())
        element = schema.field(physical["list"]).type.value_field
        assert int(element.metadata[b"PARQUET:field_id"]) == nested[f"{physical['list']}.element"]


def clustered(table: SharedTable) -> None:
    """The table's clustering columns outlive every commit of ours, and Spark still clusters by them."""
    domain = json.loads(table.snapshot.domains["delta.clustering"]["configuration"])
    assert domain["clusteringColumns"] == [["id"]]
    assert table.snapshot.clustering_columns
    assert table.sql("DESCRIBE DETAIL {t}").collect()[0]["clusteringColumns"] == ["id"]


def optimize_and_checkpoint(table: SharedTable) -> None:
    table.sql("OPTIMIZE {t}")
    assert {add.get("clusteringProvider") for add in table.live()} == {"liquid"}
    table.checkpoint()


def row_ids(table: SharedTable) -> None:
    """No row id is given twice, a row keeps its id, and Spark goes on where we ended."""
    found = table.sql("SELECT id, _metadata.row_id, _metadata.row_commit_version FROM {t}").collect()
    ids = {key: (row_id, version) for key, row_id, version in found}
    assert set(ids) == set(table.rows)
    assert len({row_id for row_id, _ in ids.values()}) == len(ids)
    assert {key: version for key, (_, version) in ids.items()} == {key: table.since[key] for key in ids}
    earlier = table.remembered
    assert {key: ids[key] for key in ids.keys() & earlier.keys()} == {
        key: earlier[key] for key in ids.keys() & earlier.keys()
    }
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


def violate_and_checkpoint(table: SharedTable) -> None:
    version = table.version
    for query, said in {
        "SELECT 1000L AS id, 'a' AS part, 1L AS code": "small",
        "SELECT 1L AS id, 'a' AS part, CAST(IF(rand() < 2, NULL, 1) AS BIGINT) AS code": "code",
        "SELECT 1L AS id, 'a' AS part, 1L AS code, 3L AS twice": "twice",
    }.items():
        with pytest.raises(ConstraintViolatedError, match=said):
            table.stage("append", query=query)
    assert table.version == version
    table.checkpoint()


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
    """Values are what they are: NULL is no text, and a path is encoded once more than its directory."""
    values = {add["partitionValues"]["part"] for add in table.live()}
    assert values == {"x y/ü:%41", None, "a=b+c#?'\\"}
    for add in table.live():
        assert (table.path / unquote(add["path"])).is_file()


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
        frozenset({"changeDataFeed", "deletionVectors"}), change_feed, {"delta.enableChangeDataFeed": "true", **VECTORS}
    ),
    "v2 checkpoints by Spark": Case(
        frozenset({"v2Checkpoint"}),
        v2_checkpoints,
        {"delta.checkpointInterval": "1", **V2},
        checkpoint=lambda table: None,
    ),
    "v2 checkpoints by us": Case(frozenset({"v2Checkpoint"}), v2_table_with_our_checkpoint, V2),
    "type widening": Case(
        frozenset({"typeWidening"}),
        widened,
        {"delta.enableTypeWidening": "true", **VECTORS},
        begin=widen("first"),
        between=widen("second"),
        table={
            # deltalake 1.6.6 reads the log of such a table, but no rows.
            "deltalake_reads_rows": False,
            "columns": (
                Column("first", "INT", lambda key: key + (key > 4) * 2**40, "id + IF(id > 4, 1099511627776, 0)"),
                Column("second", "INT", lambda key: key, "CAST(id AS INT)"),
            ),
        },
    ),
    "IcebergCompatV2": Case(
        frozenset({"columnMapping", "icebergCompatV2"}),
        iceberg,
        {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"},
        table={"columns": (Column("list", "ARRAY<BIGINT>", lambda key: [key, key + 1], "array(id, id + 1)"),)},
    ),
    "liquid clustering": Case(
        frozenset({"clustering", "domainMetadata"}),
        clustered,
        layout="CLUSTER BY (id)",
        checkpoint=optimize_and_checkpoint,
    ),
    "row tracking": Case(frozenset({"rowTracking"}), row_ids, {"delta.enableRowTracking": "true", **VECTORS}),
    "generated, NOT NULL, CHECK, default": Case(
        frozenset({"generatedColumns", "invariants", "checkConstraints", "allowColumnDefaults"}),
        constrained,
        {"delta.feature.allowColumnDefaults": "supported"},
        begin=lambda table: table.sql("ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 1000)"),
        checkpoint=violate_and_checkpoint,
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
                "a": datetime.fromisoformat("2019-03-10T02:30:00"),
                "b": datetime.fromisoformat("2019-01-01T00:00:00"),
                "c": datetime.fromisoformat("2019-01-01T00:00:00.500000"),
            },
        },
    ),
    "awkward partition values": Case(
        frozenset(), awkward, table={"parts": {"a": "x y/ü:%41", "b": None, "c": "a=b+c#?'\\"}}
    ),
}


# What these show, others do as well: every other case writes as to a plain table, and IcebergCompatV2 maps by name.
_SHOWN_BY_OTHERS = {"plain", "column mapping by name"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in _SHOWN_BY_OTHERS else ()) for name in CASES]
)
def test_feature(name: str, quick: Any, quick_engine: ConnectEngine, tmp_path: Path) -> None:
    case = CASES[name]
    table = SharedTable(tmp_path / "t", quick, quick_engine, **case.table)
    table.create(case.properties, case.layout)
    partitioned = "PARTITIONED" in case.layout
    table.insert((1, "a"), (2, "a"), (3, "b"), (4, "b"))
    case.begin(table)
    buffer = table.stage("append", (10, "a"), (11, "b"), (12, "c"), (13, "c"))
    case.between(table)
    table.publish(buffer, (10, "a"), (11, "b"), (12, "c"), (13, "c"))
    table.delete(1, 3, 12)
    if partitioned:
        table.write("overwrite_partitions", (20, "a"), (21, "a"))
        table.write("replace_where", (30, "b"))
    table.insert((40, "a"), (41, "c"))
    assert case.listed <= table.snapshot.writer_features
    case.check(table)
    table.check()

    case.checkpoint(table)
    cleaned = table.without_earlier_log()
    assert len(cleaned.entries) == 1
    case.check(cleaned)
    cleaned.check()
    cleaned.write("overwrite", (50, "a"), (51, "b"), (52, "c"))
    cleaned.write("append", (60, "a"))
    cleaned.insert((70, "b"), (71, "c"))
    case.check(cleaned)
    cleaned.check()


# -- append-only, and what is refused ------------------------------------------------------------------------------------


def test_an_append_only_table_is_appended_to_and_nothing_else(
    quick: Any, quick_engine: ConnectEngine, tmp_path: Path
) -> None:
    table = SharedTable(tmp_path / "t", quick, quick_engine)
    table.create({"delta.appendOnly": "true"})
    table.insert((1, "a"))
    table.write("append", (2, "a"), (3, "b"))
    for each in (table, cleaned_up(table)):
        assert each.snapshot.append_only
        version = each.version
        each.engine = NOBODY
        for mode in ("overwrite_partitions", "replace_where", "overwrite"):
            with pytest.raises(InvalidWriteError, match=f"append-only.*mode='{mode}' is refused"):
                each.stage(mode, (9, "a"))
        assert each.version == version
        each.engine = quick_engine
        each.write("append", (4, "c"))
        each.check()


def cleaned_up(table: SharedTable) -> SharedTable:
    table.checkpoint()
    return table.without_earlier_log()


def test_a_table_that_became_append_only_since_staging_keeps_its_rows(
    quick: Any, quick_engine: ConnectEngine, tmp_path: Path
) -> None:
    table = SharedTable(tmp_path / "t", quick, quick_engine)
    table.create({})
    table.insert((1, "a"))
    buffer = table.stage("overwrite_partitions", (2, "a"))
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    with pytest.raises(BufferDoesNotFitError, match="append-only now"):
        table.publish(buffer, (2, "a"))
    table.check()


def identity_columns(table: SharedTable) -> None:
    table.sql(
        "CREATE TABLE {t} (id BIGINT GENERATED ALWAYS AS IDENTITY, part STRING) USING delta PARTITIONED BY (part)"
    )
    table.sql("INSERT INTO {t} (part) VALUES ('a')")


def feature_by_hand(*names: str) -> Check:
    def make(table: SharedTable) -> None:
        table.create({})
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
        listed = {"readerFeatures": list(names), "writerFeatures": ["inCommitTimestamp", *names]}
        entry = table.path / "_delta_log" / f"{table.version + 1:020d}.json"
        entry.write_text(json.dumps({"protocol": {**protocol, **listed}}) + "\n")

    return make


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(identity_columns, "identityColumns: its values are given out one after another", id="identity"),
        pytest.param(
            feature_by_hand("catalogManaged"), "catalogManaged: its commits go through a catalog", id="catalog"
        ),
        pytest.param(feature_by_hand("ofTomorrow"), "ofTomorrow: this version does not know it", id="unknown"),
    ],
)
def test_what_is_not_on_the_list_is_refused_before_spark_is_asked(
    quick: Any, tmp_path: Path, make: Check, said: str
) -> None:
    table = SharedTable(tmp_path / "t", quick, NOBODY)
    make(table)
    before = set(table.path.rglob("*"))
    for mode in ("append", "overwrite_partitions", "replace_where", "overwrite"):
        with pytest.raises(UnsupportedFeatureError, match=f"{said}.*Nothing was changed"):
            table.stage(mode, (1, "a"))
    # A writer may have claimed its generation. There is no buffer.
    new = {path for path in set(table.path.rglob("*")) - before if path.is_file()}
    assert {path.name for path in new} <= {"_claim-1.json"}


def test_a_feature_that_came_since_staging_is_refused(quick: Any, quick_engine: ConnectEngine, tmp_path: Path) -> None:
    table = SharedTable(tmp_path / "t", quick, quick_engine)
    table.create({})
    buffer = table.stage("append", (1, "a"))
    entry = table.path / "_delta_log" / f"{table.version + 1:020d}.json"
    names = {"readerFeatures": ["ofTomorrow"], "writerFeatures": ["ofTomorrow"]}
    entry.write_text(json.dumps({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **names}}) + "\n")
    version = table.version
    with pytest.raises(UnsupportedFeatureError, match="ofTomorrow"):
        table.publish(buffer, (1, "a"))
    assert table.version == version
