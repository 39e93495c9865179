"""A source is read whole, and as it is now, whatever the server and its other sessions say or keep."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from airflow_provider_onelake.exceptions import SchemaMismatchError, SparkJobError, SparkQueryError, TerminalError
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.spark.jobs.columns import RowsDoNotFitError
from airflow_provider_onelake.spark.jobs.stage import stage
from include.local import jars
from tests.support.airflow_home import CACHE
from tests.support.schemas import field
from tests.support.spark import Server, Target, make_job, sql_job


def rows(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def staged(target: Target, spark: Any) -> list[int]:
    return sorted(row["n"] for row in target.data(spark))


def files(path: Path, form: str = "parquet", **options: str) -> dict[str, Any]:
    return {"kind": "files", "path": [str(path)], "format": form, "options": options}


@pytest.fixture
def target(new_target: Callable[..., Target]) -> Target:
    return new_target([field("n", "long")])


@pytest.fixture
def place(tmp_path: Path, spark: Any) -> Iterator[Path]:
    """A directory with one file, which a session caches; nothing of it stays cached."""
    found = tmp_path / "my source" / "a"
    found.mkdir(parents=True)
    pq.write_table(rows(1, 2), found / "1.parquet")
    yield found
    spark.catalog.clearCache()


def of_files(target: Target, place: Path) -> StageJob:
    return make_job(target, files(place))


def of_a_glob(target: Target, place: Path) -> StageJob:
    return make_job(target, files(place.parent / "*"))


def of_a_query(target: Target, place: Path) -> StageJob:
    return sql_job(target, f"SELECT * FROM parquet.`{place}`")


def of_a_function(target: Target, place: Path) -> StageJob:
    """The function of a DAG, whose earlier run has cached as well."""
    return make_job(target, {"kind": "function"}, rows=lambda spark: spark.read.parquet(str(place)).cache())


@pytest.mark.parametrize("job", [of_files, of_a_glob, of_a_query, of_a_function])
def test_files_that_another_session_has_cached_are_read_as_they_are_now(
    engine: ConnectEngine, target: Target, place: Path, spark: Any, job: Callable[[Target, Path], StageJob]
) -> None:
    """One server, one cache: without a word from us, every session would read these two rows from now on."""
    spark.read.parquet(str(place)).cache().count()
    spark.sql(f"SELECT * FROM parquet.`{place}`").cache().count()
    spark.read.parquet(str(place.parent / "*")).cache().count()
    pq.write_table(rows(3), place / "2.parquet")
    engine.stage(job(target, place))
    assert staged(target, spark) == [1, 2, 3]


@pytest.mark.usefixtures("place")
def test_another_delta_table_that_a_session_has_cached_is_read_as_it_is_now(
    engine: ConnectEngine, target: Target, tmp_path: Path, spark: Any
) -> None:
    other = tmp_path / "another table"
    write_deltalake(str(other), rows(1, 2))
    spark.sql(f"SELECT * FROM delta.`{other}`").cache().count()
    write_deltalake(str(other), rows(3), mode="append")
    engine.stage(sql_job(target, f"SELECT * FROM delta.`{other}`"))
    assert staged(target, spark) == [1, 2, 3]


@pytest.mark.usefixtures("place")
def test_a_table_of_the_catalog_that_a_session_has_cached_is_read_as_it_is_now(
    engine: ConnectEngine, target: Target, tmp_path: Path, spark: Any
) -> None:
    lies_at = tmp_path / "in the catalog"
    spark.sql(f"CREATE TABLE cached_source USING parquet LOCATION '{lies_at}' AS SELECT 1L AS n")
    try:
        spark.sql("CACHE TABLE cached_source")
        pq.write_table(rows(2), lies_at / "2.parquet")
        engine.stage(sql_job(target, "SELECT s.n FROM cached_source s"))
    finally:
        spark.sql("DROP TABLE cached_source")
    assert staged(target, spark) == [1, 2]


@pytest.mark.parametrize("setting", ["ignoreMissingFiles", "ignoreCorruptFiles"])
def test_a_file_that_is_gone_or_damaged_fails_the_job_whatever_the_server_passes_over(
    connect_server: Server, target: Target, tmp_path: Path, setting: str
) -> None:
    """Its rows would be left out, and nobody would know."""
    other = tmp_path / "another table"
    write_deltalake(str(other), rows(1, 2))
    (victim,) = other.glob("*.parquet")
    write_deltalake(str(other), rows(3), mode="append")
    if setting == "ignoreMissingFiles":
        victim.unlink()
    else:
        victim.write_bytes(b"x" * victim.stat().st_size)
    engine = ConnectEngine(connect_server.remote, settings={f"spark.sql.files.{setting}": "true"})
    with pytest.raises((SparkJobError, SparkQueryError)):
        engine.stage(make_job(target, files(other, "delta")))
    assert target.versions == [0]


def test_an_author_may_pass_over_a_damaged_file(engine: ConnectEngine, target: Target, place: Path, spark: Any) -> None:
    (place / "2.parquet").write_bytes(b"no Parquet")
    engine.stage(make_job(target, files(place, ignoreCorruptFiles="true")))
    assert staged(target, spark) == [1, 2]


@pytest.fixture
def pair(new_target: Callable[..., Target]) -> Target:
    return new_target([field("a", "long"), field("b", "long")])


def csv(path: Path, *headers: str, schema: str | None = None, **options: str) -> dict[str, Any]:
    """Files with these headers, each with one row: 1 in the column `a`, 2 in the column `b`."""
    path.mkdir()
    for number, header in enumerate(headers):
        (path / f"{number}.csv").write_text(f"{header}\n{header.replace('a', '1').replace('b', '2')}\n")
    return {**files(path, "csv", header="true", **options), "schema": schema}


@pytest.mark.parametrize(
    ("headers", "schema"),
    [(["b,a"], "a STRING, b STRING"), (["a,b", "b,a"], None), (["a,b", "a"], None)],
    ids=["the schema", "the first file", "a column less"],
)
def test_a_header_in_another_order_is_refused(
    engine: ConnectEngine, pair: Target, tmp_path: Path, headers: list[str], schema: str | None
) -> None:
    typed = {"typed": "SELECT CAST(a AS LONG), CAST(b AS LONG) FROM source"}
    with pytest.raises(SchemaMismatchError, match="CSV header"):
        engine.stage(make_job(pair, csv(tmp_path / "csv", *headers, schema=schema), steps=typed))
    assert pair.versions == [0]


def test_an_author_may_have_a_header_skipped(engine: ConnectEngine, pair: Target, tmp_path: Path, spark: Any) -> None:
    source = csv(tmp_path / "csv", "b,a", schema="a LONG, b LONG", enforceschema="true")
    engine.stage(make_job(pair, source))
    assert pair.data(spark) == [{"a": 2, "b": 1}]


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_column_of_one_file_only_is_read(
    engine: ConnectEngine, pair: Target, tmp_path: Path, spark: Any, form: str
) -> None:
    write = {"parquet": pq.write_table, "orc": orc.write_table}[form]
    (tmp_path / form).mkdir()
    write(pa.table({"a": [1]}), tmp_path / form / "1")
    write(pa.table({"a": [3], "b": [4]}), tmp_path / form / "2")
    engine.stage(make_job(pair, files(tmp_path / form, form)))
    assert sorted(pair.data(spark), key=lambda row: row["a"]) == [{"a": 1, "b": None}, {"a": 3, "b": 4}]


@pytest.fixture(scope="module")
def with_avro(connect_server: Server) -> Iterator[Any]:
    """A session with Spark's source of Avro files, which is a JAR of its own: the first call ever downloads 200 KB."""
    from pyspark.sql.connect.session import SparkSession

    (jar,) = jars.resolve(CACHE / "avro", [f"org.apache.spark:spark-avro_2.13:{version('pyspark')}"])
    session = SparkSession.builder.remote(connect_server.remote).create()
    session.addArtifacts(str(jar))
    yield session
    session.stop()


def write_by_spark(spark: Any, table: pa.Table, path: Path) -> None:
    # Spark makes a directory of it, so the file is taken out.
    spark.createDataFrame(table).coalesce(1).write.format("avro").save(f"{path}.made")
    (made,) = Path(f"{path}.made").glob("*.avro")
    made.rename(path)
    shutil.rmtree(f"{path}.made")


WRITE: dict[str, Callable[[Any, pa.Table, Path], object]] = {
    "csv": lambda _, table, path: pa.csv.write_csv(table, path),
    "parquet": lambda _, table, path: pq.write_table(table, path),
    "orc": lambda _, table, path: orc.write_table(table, path),
    "avro": write_by_spark,
}
ALL = "a LONG, b LONG, c LONG"


@pytest.mark.parametrize(
    ("form", "schema", "refused"),
    [
        ("csv", None, "CSV header"),
        ("csv", ALL, "CSV header"),
        ("parquet", None, None),
        ("parquet", ALL, None),
        ("orc", None, None),
        ("orc", ALL, None),
        ("avro", None, "Give `schema`, or the reader's option avroSchema"),
        ("avro", ALL, None),
    ],
)
def test_files_that_differ_in_order_and_columns_give_the_right_rows_or_are_refused_by_name(
    engine: ConnectEngine,
    new_target: Callable[..., Target],
    tmp_path: Path,
    spark: Any,
    request: pytest.FixtureRequest,
    form: str,
    schema: str | None,
    refused: str | None,
) -> None:
    """A value's tens are its row, and its ones are its column, so that one in a wrong column is seen."""
    with_avro = request.getfixturevalue("with_avro") if form == "avro" else None
    target, place = new_target([field(name, "long") for name in "abc"]), tmp_path / form
    place.mkdir()
    for row, columns in enumerate(["ab", "ba", "cab"], 1):
        values = {name: pa.array([10 * row + "abc".index(name)], pa.int64()) for name in columns}
        WRITE[form](with_avro, pa.table(values), place / f"{row}.{form}")
    source = {**files(place, form, **({"header": "true"} if form == "csv" else {})), "schema": schema}
    typed = {"typed": f"SELECT {', '.join(f'CAST({name} AS LONG)' for name in 'abc')} FROM source"}
    job = make_job(target, source, steps=typed)

    def carry_out() -> object:
        return engine.stage(job) if with_avro is None else stage(with_avro, job.as_dict())

    if refused is None:
        carry_out()
        rows = [tuple(row[name] for name in "abc") for row in target.data(spark)]
        assert sorted(rows) == [(10, 11, None), (20, 21, None), (30, 31, 32)]
    else:
        with pytest.raises((SchemaMismatchError, RowsDoNotFitError), match=refused):
            carry_out()
        assert target.versions == [0]


@pytest.mark.parametrize("schema", [None, "a INT"])
def test_parquet_files_whose_types_differ_are_refused_for_good(
    engine: ConnectEngine, pair: Target, tmp_path: Path, schema: str | None
) -> None:
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), tmp_path / "parquet" / "1")
    pq.write_table(pa.table({"a": pa.array([2], pa.int64())}), tmp_path / "parquet" / "2")
    with pytest.raises(TerminalError):
        engine.stage(make_job(pair, {**files(tmp_path / "parquet"), "schema": schema}, evolves=True))
    assert pair.versions == [0]


def test_a_local_name_with_a_colon_is_refused_for_good(engine: ConnectEngine, target: Target, place: Path) -> None:
    pq.write_table(rows(3), place / "10:00.parquet")
    with pytest.raises(TerminalError, match="10:00"):
        engine.stage(make_job(target, files(place)))


@pytest.mark.parametrize("place", ["records", "b=3/records"])
@pytest.mark.parametrize("record", ['{"other": 2}', "{}"])
def test_a_record_with_none_of_the_columns_is_refused(
    engine: ConnectEngine, pair: Target, tmp_path: Path, record: str, place: str
) -> None:
    (tmp_path / "json" / place).parent.mkdir(parents=True)
    (tmp_path / "json" / place).write_text(f'{{"a": 1}}\n{record}')
    job = make_job(pair, {**files(tmp_path / "json", "json"), "schema": "a LONG, b LONG"})
    with pytest.raises(SparkQueryError, match="A record has a value in none of the columns"):
        engine.stage(job)
    assert pair.versions == [0]


def test_an_author_may_take_a_record_with_none_of_the_columns(
    engine: ConnectEngine, pair: Target, tmp_path: Path, spark: Any
) -> None:
    (tmp_path / "records").write_text('{"a": 1, "b": 2}\n{"other": 2}')
    source = {**files(tmp_path / "records", "json", mode="PERMISSIVE"), "schema": "a LONG, b LONG"}
    engine.stage(make_job(pair, source))
    assert len(pair.data(spark)) == 2


def test_variables_in_sql_are_texts(engine: ConnectEngine, new_target: Callable[..., Target], spark: Any) -> None:
    """A value that comes from data may hold one, and would become a secret of the server's environment."""
    target = new_target([field("s", "string")])
    engine.stage(sql_job(target, "SELECT '${env:PATH}' AS s"))
    assert target.data(spark) == [{"s": "${env:PATH}"}]
