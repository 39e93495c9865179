"""A shared scan on a real Spark: its rows, files and statistics are those of a scan for each writer."""

from __future__ import annotations

import itertools
import json
import random
import re
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.claims import Turn
from airflow_provider_onelake.buffers.scan import ScanShare
from airflow_provider_onelake.buffers.spec import Promise
from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.observability.metrics import Metrics
from airflow_provider_onelake.options import NewTable
from airflow_provider_onelake.reading.listing import local_files
from airflow_provider_onelake.reading.spark_files import read_by_spark
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.spark.jobs.stage import CLAIMED_TWICE, route
from airflow_provider_onelake.steps.disjoint import why_not_disjoint
from airflow_provider_onelake.steps.outcomes import Written
from airflow_provider_onelake.steps.scan import NotSharedError, SharedScan
from airflow_provider_onelake.steps.spark import SparkWork
from airflow_provider_onelake.steps.write import write
from airflow_provider_onelake.steps.write_terms import Definition, Query, WriteTerms
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.table import Table
from airflow_provider_onelake.task_run import TaskRun
from tests.support.schemas import field
from tests.support.spark import Server, generated
from tests.support.tables import LOAD

FIELDS = [
    field("id", "long"),
    field("k", "integer"),
    field("at", "timestamp"),
    field("note", "string"),
    generated("month", "string", "date_format(at, 'yyyy-MM')"),
]
WHERE = {"one": "k = 1", "two": "k IN (2, 3)", "none": "k = 99"}


class Load:
    """Seven or fewer writers of one table, by a shared scan or each by its own."""

    def __init__(
        self,
        path: Path,
        engine: ConnectEngine,
        source: FileSource | SqlSource,
        where: Mapping[str, str],
        steps: Mapping[str, str] | None = None,
    ) -> None:
        self.table = Table(TableAddress.parse(str(path)), None, 30)
        self.spark = SparkWork(lambda: engine)
        self.source = source
        self.where = where
        self.steps = steps or {}
        self.offered: str | None = None

    @property
    def log(self) -> DeltaLog:
        return Table(self.table.address, None, 30).log

    def create(self, fields: list[dict[str, Any]], partition_by: list[str], **properties: str) -> Load:
        create_table(self.log, json.dumps({"type": "struct", "fields": fields}), partition_by, properties)
        return self

    def terms(self, key: str, **terms: Any) -> WriteTerms:
        common = self.common(**terms)
        return attrs.evolve(common, query=attrs.evolve(common.query, where=self.where[key]))

    def common(self, **terms: Any) -> WriteTerms:
        return WriteTerms(query=Query(source=self.source, steps=self.steps), **terms)

    def run(self, label: str = "load.scan") -> TaskRun:
        return TaskRun("taxi", "load", "r", "r", str(uuid.uuid4()), label, -1)

    def scan(self, task_start: str = "deed", files: Any = (), **terms: Any) -> dict[str, Any]:
        shares = [
            ScanShare(identity=LOAD.writer(key), where=where, fingerprint=self.terms(key).digest(files))
            for key, where in self.where.items()
        ]
        done = SharedScan(
            table=Table(self.table.address, None, 30),
            spark=self.spark,
            terms=self.common(**terms),
            shares=shares,
            skips=False,
            run=self.run(),
            task_start=task_start,
            namespace="test",
        ).scan()
        self.offered = done["scan"]
        return done

    def write(self, key: str, generation: int = 1, files: Any = (), **terms: Any) -> Written:
        asked = self.terms(key, **terms)
        table = Table(self.table.address, None, 30)
        spec = asked.spec(LOAD.writer(key), self.run(f"load.{key}"), generation, files)
        turn, metrics = Turn.of(table.log, spec.identity, generation), Metrics.of(None, table.address)
        return write(spec, turn, asked, table, self.spark, metrics, Policy.LAST_WRITER_WINS, self.offered)

    def rows(self) -> list[dict[str, Any]]:
        return sorted(DeltaTable(str(self.table.address.path)).to_pyarrow_table().to_pylist(), key=str)

    def files(self) -> list[Any]:
        found = self.log.live_files(lambda _: True, self.log.snapshot().version)
        return sorted(((file["partitionValues"], json.loads(file["stats"])) for file in found), key=str)


@pytest.fixture
def source(tmp_path: Path, spark: Any) -> FileSource:
    path = tmp_path / "source"
    spark.sql(
        "SELECT id, CAST(IF(id % 5 = 0, NULL, id % 5) AS INT) AS k, "
        "timestamp_seconds(1546300800 + id * 86400) AS at, concat('note ', id) AS note FROM range(0, 100, 1, 1)"
    ).write.parquet(str(path))
    return FileSource(str(path))


@pytest.fixture
def load(tmp_path: Path, engine: ConnectEngine, source: FileSource) -> Callable[..., Load]:
    def make(name: str = "shared", where: Mapping[str, str] = WHERE, **properties: str) -> Load:
        return Load(tmp_path / name, engine, source, where).create(FIELDS, ["month"], **properties)

    return make


@pytest.mark.costs("Spark scans for all and for each")
@pytest.mark.promise
@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({}, id="plain"),
        pytest.param(
            {"delta.enableDeletionVectors": "true", "delta.enableInCommitTimestamps": "true"}, id="vectors-timestamps"
        ),
        pytest.param({"delta.enableChangeDataFeed": "true", "delta.constraints.small": "id < 1000"}, id="feed-check"),
        pytest.param({"delta.dataSkippingStatsColumns": "id,note"}, id="own-statistics"),
        pytest.param({"delta.dataSkippingNumIndexedCols": "2"}, id="two-indexed"),
    ],
)
def test_rows_partitions_and_statistics_are_those_of_a_scan_for_each_writer(
    load: Callable[..., Load], properties: dict[str, str], connect_server: Server, spark: Any
) -> None:
    shared, single = load("shared", **properties), load("single", **properties)
    done = shared.scan()
    assert (done["status"], done["rows"], done["writers"]) == ("shared", 60, 3)
    before = connect_server.jobs_begun()
    written = {key: shared.write(key) for key in WHERE}
    assert connect_server.jobs_begun() == before, "the writers ask Spark for nothing"
    assert {key: each.status for key, each in written.items()} == dict.fromkeys(WHERE, "published")
    for key in WHERE:
        single.write(key)
    read, other = (spark.read.format("delta").load(str(each.table.address.path)) for each in (shared, single))
    assert sorted(read.collect(), key=str) == sorted(other.collect(), key=str)
    assert read.count() == 60
    assert shared.files() == single.files()
    assert read.columns == [field["name"] for field in FIELDS]
    assert read.where("k = 1").count() == 20


def test_a_scan_for_seven_writers_is_one_spark_job_and_the_inference_of_its_schema(
    load: Callable[..., Load], connect_server: Server
) -> None:
    seven = load(where={f"w{n}": f"id >= {15 * n} AND id < {15 * n + 15}" for n in range(7)})
    before = connect_server.jobs_begun()
    assert seven.scan()["rows"] == 100
    assert connect_server.jobs_begun() - before <= 4
    assert seven.scan()["reused"]


@pytest.mark.parametrize(("writers", "compiles"), [(7, True), (84, False)])
def test_java_does_not_compile_what_spark_generates_for_many_filters(spark: Any, writers: int, compiles: bool) -> None:
    """If this fails for 84, the limit that shared scans set has become needless."""
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    named = route({f"w{n}": f"id >= {n} AND id < {n + 1}" for n in range(writers)})
    ((code,),) = spark.sql(f"EXPLAIN CODEGEN SELECT *, {named} FROM range(9)").collect()
    (size,) = re.findall(r"maxMethodCodeSize:(\d+)", code)
    assert (int(size) <= 8000) == compiles, size


def test_a_writer_that_is_cleared_alone_scans_for_itself(load: Callable[..., Load]) -> None:
    shared = load()
    shared.scan()
    for key in WHERE:
        shared.write(key)
    before = shared.rows()
    again = shared.write("one", generation=2, promise=Promise(on_rerun="replace"))
    assert again.buffer is not None
    assert "onelake_writer" not in again.buffer.path
    assert shared.rows() == before


@pytest.mark.promise
def test_what_changed_since_the_scan_is_read_again(load: Callable[..., Load], source: FileSource, spark: Any) -> None:
    shared = load()

    def seen() -> Any:
        return read_by_spark([each for path in source.paths for each in local_files(path)], source.options).files

    before = seen()
    shared.scan(files=before)
    for file in Path(str(source.path)).glob("*.parquet"):
        file.touch()
    done = shared.write("one", files=seen())
    assert done.buffer is not None
    assert "onelake_writer" not in done.buffer.path
    spark.sql(f"ALTER TABLE delta.`{shared.table.address.path}` ADD CONSTRAINT small CHECK (id < 1000)")
    done = shared.write("two", files=before)
    assert done.buffer is not None
    assert "onelake_writer" not in done.buffer.path
    assert len(shared.rows()) == 60


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        pytest.param({"a": "k = 1", "b": "k >= 1"}, "rows in common", id="overlap"),
        pytest.param({"a": "note = 'note 1'", "b": "note LIKE 'note%'"}, "a column with literals", id="not-provable"),
        pytest.param({"a": "nowhere = 1", "b": "nowhere = 2"}, "Spark refused", id="no-such-column"),
    ],
)
def test_what_cannot_be_shared_is_left_to_the_writers(
    load: Callable[..., Load], where: dict[str, str], reason: str
) -> None:
    with pytest.raises(NotSharedError, match=reason):
        load(where=where).scan()


def test_a_row_of_two_writers_fails_the_scan_and_not_the_load(
    load: Callable[..., Load], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_onelake.steps.scan.why_not_disjoint", lambda filters: None)
    shared = load(where={"a": "k = 1", "b": "id < 50"})
    with pytest.raises(NotSharedError, match=CLAIMED_TWICE):
        shared.scan()
    assert shared.write("a").status == "published"


def test_one_bad_row_is_its_own_writers_failure(load: Callable[..., Load]) -> None:
    shared = load(where={"small": "id < 50", "large": "id >= 50"}, **{"delta.constraints.small": "id < 60"})
    with pytest.raises(NotSharedError, match="Spark refused"):
        shared.scan()
    assert shared.write("small").status == "published"


def test_a_source_that_reads_the_table_is_not_shared(tmp_path: Path, engine: ConnectEngine, load: Any) -> None:
    query = SqlSource(f"SELECT * FROM delta.`{tmp_path / 'shared'}`")
    load("shared")
    own = Load(tmp_path / "shared", engine, query, WHERE)
    with pytest.raises(NotSharedError, match="reads the table itself"):
        own.scan()


STEPS = {
    "later": "SELECT *, k * 2 AS twice FROM source WHERE id % 4 > 0",
    "split": "SELECT * EXCEPT (note), explode(split(note, ' ')) AS note FROM later",
}


def test_a_table_that_is_not_there_is_made_with_the_columns_of_the_steps(
    tmp_path: Path, engine: ConnectEngine, source: FileSource
) -> None:
    """The rows, the definition and the files are those of a writer that makes the table and runs the steps itself."""
    terms = {
        "definition": Definition(
            partition_by={"month": "date_format(at, 'yyyy-MM')"},
            new_table=NewTable(properties={"delta.logRetentionDuration": "interval 9 days"}),
        )
    }
    shared, single = (Load(tmp_path / name, engine, source, WHERE, STEPS) for name in ("shared", "single"))
    assert shared.scan(**terms)["status"] == "shared"
    for key in WHERE:
        written = shared.write(key, **terms).buffer
        assert written is not None
        assert "onelake_writer=" in written.path
        single.write(key, **terms)
    assert (shared.rows(), shared.files()) == (single.rows(), single.files())
    assert len(shared.rows()) > 60
    ours, theirs = (each.log.snapshot() for each in (shared, single))
    assert {**ours.metadata, "id": "", "createdTime": 0} == {**theirs.metadata, "id": "", "createdTime": 0}
    assert ours.protocol == theirs.protocol


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("SELECT *, (SELECT max(id) FROM source) AS most FROM source", "Spark plans :"),
        ("SELECT * FROM source WHERE id IN (SELECT k FROM source)", "Spark plans :"),
        ("SELECT source.* FROM source JOIN range(3) AS r ON source.k = r.id", "Spark plans Join"),
        ("WITH all AS (SELECT * FROM source) SELECT * FROM all", "Spark plans WithCTE"),
        ("SELECT *, row_number() OVER (ORDER BY id) AS n FROM source", "Spark plans Window"),
        ("SELECT *, count(*) AS n FROM source GROUP BY ALL", "Spark plans Aggregate"),
        ("SELECT * FROM source LIMIT 3", "Spark plans GlobalLimit"),
        ("SELECT DISTINCT * FROM source", "Spark plans Distinct"),
        ("SELECT * FROM source UNION ALL SELECT * FROM source", "Spark plans Union"),
        ("SELECT * FROM source TABLESAMPLE (5 ROWS)", "Spark plans GlobalLimit"),
        ("SELECT id, k FROM source", "do not keep all columns"),
        ("SELECT * EXCEPT (onelake_writer), 'w' AS onelake_writer FROM source", "a step names onelake_writer"),
        ("SELECT * FROM VALUES (1L, 'w') AS t(id, kept)", "do not keep all columns"),
    ],
)
def test_steps_that_must_see_the_rows_of_one_writer_only_are_not_shared(
    tmp_path: Path, load: Callable[..., Load], engine: ConnectEngine, source: FileSource, step: str, reason: str
) -> None:
    load("shared")
    with pytest.raises(NotSharedError, match=reason):
        Load(tmp_path / "shared", engine, source, WHERE, {"s": step}).scan()


LITERALS = {
    "n": ["-1", "0", "1", "2", "2.5", "10"],
    "s": ["''", "'a'", "'A'", "'ab'", "'2024-01-01'", "'2024-02-01'", "'01'", "'1'", "'1.0'", "' 1'"],
    "d": ["DATE '2024-01-01'", "DATE'2024-02-01'", "'2024-01-01'", "'2024-02-01'", "TIMESTAMP '2024-01-01 00:00:00'"],
}


def filters(count: int) -> list[str]:
    chance = random.Random(7)

    def one(column: str) -> str:
        sign = chance.choice(["=", "<", "<=", ">", ">=", "IN", "BETWEEN"])
        a, b = (chance.choice(LITERALS[column]) for _ in range(2))
        whole = {"IN": f"{column} IN ({a}, {b})", "BETWEEN": f"`{column.upper()}` BETWEEN {a} AND {b}"}
        return whole.get(sign, f"({column}) {sign} {a}")

    columns = [chance.choice("nsd") for _ in range(count)]
    return [
        chance.choice([" AND ", " OR "]).join(one(each) for _ in range(chance.choice([1, 1, 2]))) for each in columns
    ]


def test_no_row_satisfies_two_filters_that_were_proven_apart(spark: Any) -> None:
    """Thousands of pairs, by Spark itself, over the values at which they could meet."""
    texts = ", ".join(f"({text})" for text in LITERALS["s"])
    numbers = ", ".join(f"(CAST({number} AS DOUBLE))" for number in [*LITERALS["n"], "3", "4", "NULL"])
    days = ", ".join(
        f"(DATE '{day}')" for day in ("2023-12-31", "2024-01-01", "2024-01-15", "2024-02-01", "2024-12-01")
    )
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.sql(
        f"SELECT n, s, d FROM VALUES {numbers} AS a(n) CROSS JOIN VALUES {texts}, (NULL) AS b(s) "
        f"CROSS JOIN VALUES {days}, (NULL) AS c(d)"
    ).createOrReplaceTempView("sampled")
    chosen = filters(150)
    apart = [
        pair for pair in itertools.combinations(chosen, 2) if why_not_disjoint({"a": pair[0], "b": pair[1]}) is None
    ]
    assert len(apart) > 300
    for some in batches(apart, 100):
        counts = ", ".join(f"count_if(({a}) AND ({b}))" for a, b in some)
        found = spark.sql(f"SELECT {counts} FROM sampled").collect()[0]
        assert [pair for pair, rows in zip(some, found, strict=True) if rows] == []


def batches(given: list[Any], size: int) -> list[list[Any]]:
    return [given[at : at + size] for at in range(0, len(given), size)]
