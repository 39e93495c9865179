"""Statistics from footers beside Delta's own, over the same rows (protocol: sound statistics)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.statistics import INDEXED_COLUMNS, Leaf, indexed_leaves
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.writes.publish import Committer
from tests.support.shadows import write_checksum
from tests.support.spark import Server
from tests.support.tables import LOAD, Stage, complete, local_log, prepare, writer_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "whole": "INT",
    "big": "BIGINT",
    "real": "FLOAT",
    "dbl": "DOUBLE",
    "dec5": "DECIMAL(5,2)",
    "dec15": "DECIMAL(15,3)",
    "dec38": "DECIMAL(38,10)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "ntz": "TIMESTAMP_NTZ",
    "word": "STRING",
    "fixed": "CHAR(5)",
    "short": "VARCHAR(60)",
    "yes": "BOOLEAN",
    "bytes": "BINARY",
    "nest": "STRUCT<whole: INT, word: STRING, deep: STRUCT<dbl: DOUBLE, at: TIMESTAMP>>",
    "`a.b`": "INT",
    "a": "STRUCT<b: INT, c: INT>",
}
LONG = "x" * 40
# One row each, as SQL texts that are cast to the column's type; columns that are not named are NULL.
ORDINARY: list[dict[str, str]] = [
    {
        **dict.fromkeys(("tiny", "small", "whole", "big", "real", "dbl", "dec5", "dec15", "dec38"), f"'{number}'"),
        "day": f"'2019-01-0{number + 2}'",
        "at": f"'2019-01-0{number + 2} 12:34:56.78900{number + 1}'",
        "ntz": f"'2019-01-0{number + 2} 12:34:56.78900{number + 1}'",
        **dict.fromkeys(("word", "fixed", "short"), f"'v{number}'"),
        "yes": "'true'",
        "bytes": "'ab'",
        "nest": f"named_struct('whole', {number}, 'word', 'n{number}', 'deep', named_struct('dbl', {number}.5D, 'at', "
        f"TIMESTAMP '2019-01-0{number + 2} 00:00:00.00{number}'))",
        "`a.b`": f"'{number}'",
        "a": f"named_struct('b', {number + 5}, 'c', {number})",
    }
    for number in (0, 1, 2)
]
EXTREME = [
    {
        "tiny": f"'{sign}127'",
        "small": f"'{sign}32767'",
        "whole": f"'{sign}2147483647'",
        "big": f"'{sign}9223372036854775807'",
        "real": f"'{sign}3.4028235E38'",
        "dbl": f"'{sign}1.7976931348623157E308'",
        "dec5": f"'{sign}999.99'",
        "dec15": f"'{sign}999999999999.999'",
        "dec38": f"'{sign}9999999999999999999999999999.9999999999'",
        "day": f"'{year}-12-31'",
        "at": f"'{year}-12-31 23:59:59.999999'",
        "ntz": f"'{year}-12-31 23:59:59.999'",
        "word": f"'{word}'",
        "short": f"'{word}'",
    }
    for sign, year, word in (("-", "0001", LONG + "a"), ("", "9999", "é" * 31 + "\U0001f600" + "ü" * 20))
]
ODD = [
    {"real": "'NaN'", "dbl": "'NaN'", "word": f"'{LONG}'", "at": "'1969-12-31 23:59:59.9999'", "tiny": "'7'"},
    {"real": "'-Infinity'", "dbl": "'1.1'", "word": "''", "at": "'1969-12-31 23:59:59.9991'", "day": "'1582-10-04'"},
    {"real": "'1.1'", "dbl": "'-Infinity'", "dec5": "'-0.01'", "ntz": "'1000-01-01 00:00:00'"},
]
ZEROES = [
    {"real": "'-0.0'", "dbl": "'0.0'"},
    {"real": "'1.1'", "dbl": "'-0.0'"},
    {"real": "'0.1'", "dbl": "'-2.5e-300'"},
]
# By file. Bounds that Delta has and that are left out on purpose, as <which>.<column>.
FILES: Mapping[str, list[dict[str, str]]] = {
    "ordinary": ORDINARY,
    "extreme": EXTREME,
    "odd": ODD,
    "zeroes": ZEROES,
    "nulls": [{}, {}],
    "half": [{}, *ORDINARY[1:]],
    "long": [{"word": "repeat('x', 6000)"}, {"word": "repeat('é', 6000)"}],
}
IN_DOUBT = {
    # The column a.b looks like the field b of a.
    **{name: {"min.a.b", "max.a.b"} for name in ("ordinary", "half")},
    "extreme": {"max.at"},
    "odd": {"max.real", "max.dbl", "min.real", "min.dbl"},
    "zeroes": {"min.real"},
}
PREDICATES = [
    "tiny = 2",
    "tiny < -100",
    "small > 30000",
    "whole = 1",
    "big = 9223372036854775807",
    "real > 1.05",
    "real = 0",
    "dbl > 1.7E308",
    "dbl = 0",
    "dbl < 0",
    "dec5 = 999.99",
    "dec15 < -1",
    "dec38 > 9999999999999999999999999999",
    "day = DATE '2019-01-03'",
    "day < DATE '1600-01-01'",
    "at = TIMESTAMP '2019-01-04 12:34:56.789003'",
    "at > TIMESTAMP '1969-12-31 23:59:59.9995' AND at < TIMESTAMP '1970-01-01 00:00:00'",
    "at > TIMESTAMP '9000-01-01 00:00:00'",
    "ntz = TIMESTAMP_NTZ '2019-01-03 12:34:56.789002'",
    "word = 'v1'",
    f"word = '{LONG}'",
    "word > 'y'",
    "short = 'v1'",
    "fixed = 'v1'",
    "yes",
    "nest.whole = 2",
    "nest.word = 'n0'",
    "nest.deep.dbl > 2",
    "nest.deep.at = TIMESTAMP '2019-01-04 00:00:00.002'",
    "`a.b` = 2",
    "a.b = 7",
    "a.c = 2",
    "whole IS NULL",
    "yes IS NULL",
    "nest.deep.dbl IS NULL",
    "nest.word IS NOT NULL",
]
# Predicates for which a bound in doubt lets Spark read more files.
READ_MORE = {
    "real > 1.05",
    "real = 0",
    "dbl > 1.7E308",
    "dbl = 0",
    "dbl < 0",
    "at = TIMESTAMP '2019-01-04 12:34:56.789003'",
    "`a.b` = 2",
    "a.b = 7",
}


def rows(name: str) -> str:
    selects = [
        "SELECT "
        + ", ".join(f"CAST({row.get(column, 'NULL')} AS {kind}) AS {column}" for column, kind in COLUMNS.items())
        + f", '{name}' AS origin"
        for row in FILES[name]
    ]
    return f"SELECT /*+ COALESCE(1) */ * FROM ({' UNION ALL '.join(selects)})"


@attrs.frozen
class Pair:
    """The same rows in two tables, one file for each of ``FILES``: Spark's own appends, and ours."""

    theirs: Path
    ours: Path

    @property
    def both(self) -> tuple[Path, Path]:
        return self.theirs, self.ours


def create(spark: SparkSession, path: Path, layout: str = "PARTITIONED BY (origin)", **properties: str) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in {INDEXED_COLUMNS: "-1", **properties}.items())
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}, origin STRING) USING delta {layout} TBLPROPERTIES ({listed})")


def write(engine: ConnectEngine, path: Path, query: str) -> None:
    log = local_log(path)
    spec = writer_spec(load=attrs.evolve(LOAD, run=str(uuid.uuid4())))
    task = prepare(log, spec, footers=True)
    assert isinstance(task, Stage)
    write_checksum(log.store, task.path)
    job = StageJob(
        source={"kind": "sql", "query": query},
        table_uri=str(path),
        attempt=spec.attempt,
        buffer_uri=str(path / task.path),
        metadata=task.metadata,
    )
    buffer = complete(log, task.path, engine.stage(job).reads_target)
    said = [json.loads(add["stats"]) for add in buffer.adds]
    assert said
    assert not any(part.get("minValues") or part.get("nullCount") for part in said), "Delta made statistics too"
    Committer(log).publish([buffer])


@pytest.fixture(scope="module")
def session(connect_server: Server) -> Iterator[SparkSession]:
    from pyspark.sql.connect.session import SparkSession

    session: Any = SparkSession(connection=connect_server.remote)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def pair(session: SparkSession, connect_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    lake, engine = tmp_path_factory.mktemp("lake"), ConnectEngine(connect_server.remote)
    pair = Pair(lake / "theirs", lake / "ours")
    for path in pair.both:
        create(session, path)
    for name in FILES:
        session.sql(f"INSERT INTO delta.`{pair.theirs}` {rows(name)}")
        write(engine, pair.ours, rows(name))
    return pair


def statistics(path: Path) -> dict[str, dict[str, Any]]:
    """The statistics of each file, flat: ``min.<column>``, ``max.<column>`` and ``nulls.<column>``."""
    found = {}
    for add in local_log(path).live_files(lambda _: True, local_log(path).snapshot().version):
        said = json.loads(add["stats"], parse_float=Decimal, parse_int=Decimal)
        flat = {"rows": said["numRecords"]}
        for part, short in (("minValues", "min"), ("maxValues", "max"), ("nullCount", "nulls")):
            flat.update((f"{short}.{name}", value) for name, value in leaves(said.get(part) or {}))
        found[add["partitionValues"]["origin"]] = flat
    return found


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def is_as_good(key: str, ours: Any, deltas: Any) -> bool:
    """Whether ours says the same as Delta's, or is a bound that is a little wider."""
    part, _, column = key.partition(".")
    last = column.rpartition(".")[2]
    if part in ("rows", "nulls"):
        return bool(ours == deltas)
    if last == "real":
        return np.float32(ours) == np.float32(deltas)
    if last == "dbl":
        return float(ours) == float(deltas)
    if part == "max" and last in ("at", "ntz"):
        wider = datetime.fromisoformat(ours) - datetime.fromisoformat(deltas)
        return wider in (timedelta(0), timedelta(milliseconds=1))
    if part == "max" and last in ("word", "short") and len(ours) > 32:
        # Delta counts UTF-16 units.
        return len(ours) == 33 and bool(ours[:30] == deltas[:30])
    return bool(ours == deltas)


def test_each_bound_is_deltas_or_a_wider_one_and_null_counts_are_equal(pair: Pair) -> None:
    theirs, ours = statistics(pair.theirs), statistics(pair.ours)
    assert set(ours) == set(theirs) == set(FILES)
    worse = [
        (name, key, ours[name][key], theirs[name].get(key))
        for name in FILES
        for key in ours[name]
        if key not in theirs[name] or not is_as_good(key, ours[name][key], theirs[name][key])
    ]
    assert not worse
    missing = {name: set(theirs[name]) - set(ours[name]) - {"nulls.a.b"} for name in FILES}
    assert {name: left_out for name, left_out in missing.items() if left_out} == IN_DOUBT


def test_each_bound_holds_for_the_rows(pair: Pair) -> None:
    log = local_log(pair.ours)
    for add in log.live_files(lambda _: True, log.snapshot().version):
        said = json.loads(add["stats"])
        table = pq.ParquetFile(pair.ours / add["path"]).read()
        for column in ("word", "short", "at", "ntz"):
            values = [value for value in table.column(column).cast(pa.string()).to_pylist() if value is not None]
            low, high = said["minValues"].get(column), said["maxValues"].get(column)
            for value in values:
                if column in ("at", "ntz"):
                    value = value.replace(" ", "T")
                    assert low is None or low.removesuffix("Z") <= value
                    assert high is None or value.removesuffix("Z") <= f"{high.removesuffix('Z')}000Z"
                else:
                    assert low is None or low.encode() <= value.encode()
                    assert high is None or value.encode() <= high.encode()


def test_spark_skips_as_many_files_and_reads_the_same_rows(pair: Pair, session: SparkSession) -> None:
    files = {}
    for predicate in PREDICATES:
        theirs, ours = (
            session.read.format("delta").load(str(path)).where(predicate).select("origin", "tiny", "dbl", "word")
            for path in pair.both
        )
        assert sorted(map(repr, ours.collect())) == sorted(map(repr, theirs.collect())), predicate
        files[predicate] = len(theirs.inputFiles()), len(ours.inputFiles())
    # Where a bound is in doubt, more files are read; nowhere fewer than Delta's own statistics allow.
    assert not {predicate: read for predicate, read in files.items() if read[0] > read[1]}
    more = {predicate for predicate, read in files.items() if read[0] < read[1]}
    assert more <= READ_MORE
    assert sum(len(FILES) - read for _, read in files.values()) > 2 * len(PREDICATES)


def test_deltalake_skips_files_and_reads_the_same_rows(pair: Pair) -> None:
    from deltalake import QueryBuilder

    for predicate in ("tiny = 2", "word = 'v1'", "day = DATE '2019-01-03'", "dec5 = 999.99", "dbl > 1.7E308"):
        found = []
        for path in pair.both:
            query = QueryBuilder().register("t", DeltaTable(str(path)))
            read = query.execute(f"SELECT origin, word FROM t WHERE {predicate}").read_all()
            found.append(sorted(map(repr, pa.table(read).to_pylist())))
        assert found[0] == found[1], predicate
        assert found[0]
    datasets = [DeltaTable(str(path)).to_pyarrow_dataset() for path in pair.both]
    for condition in (pc.field("tiny") == 2, pc.field("word") == "v1", pc.field("big") > 5, pc.field("whole") < -5):
        theirs, ours = (len(list(dataset.get_fragments(filter=condition))) for dataset in datasets)
        assert ours == theirs < len(FILES), condition


@pytest.mark.parametrize(
    ("layout", "properties"),
    [
        ("PARTITIONED BY (origin)", {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}),
        ("PARTITIONED BY (origin)", {"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"}),
        ("CLUSTER BY (whole, word)", {}),
    ],
)
def test_with_other_features_too(
    session: SparkSession, engine: ConnectEngine, tmp_path: Path, layout: str, properties: dict[str, str]
) -> None:
    create(session, tmp_path / "t", layout, **properties)
    write(engine, tmp_path / "t", rows("ordinary"))
    log = local_log(tmp_path / "t")
    (add,) = log.live_files(lambda _: True, log.snapshot().version)
    said = json.loads(add["stats"])
    leaf = Leaf(("whole",), "integer")
    if "delta.columnMapping.mode" in properties:
        leaf = next(leaf for leaf in indexed_leaves(log.snapshot().metadata, -1) or () if leaf.type == "integer")
    assert (said["minValues"][leaf.path[0]], said["maxValues"][leaf.path[0]]) == (0, 2)
    assert said["tightBounds"] if "delta.enableDeletionVectors" in properties else True
    assert ("baseRowId" in add) == ("delta.enableRowTracking" in properties)
    for predicate in ("whole = 2", "at > TIMESTAMP '2019-01-03 13:00:00'", "nest.deep.dbl = 0.5"):
        assert session.read.format("delta").load(str(tmp_path / "t")).where(predicate).count() == 1, predicate
