"""Which staged rows Spark may read as plain Parquet: only those of which the files say all, as Delta would read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.plain_parquet import MOST_FILES, plain_files
from tests.support.merges import source_of
from tests.support.schemas import field as column
from tests.support.schemas import struct as struct_of
from tests.support.tables import make_table

LONGS = {"type": "array", "elementType": "long", "containsNull": True}


@pytest.fixture
def source(tmp_path: Path) -> Buffer:
    return source_of(make_table(tmp_path / "t"), {"x": [1]})


def never_null(field: dict[str, Any]) -> dict[str, Any]:
    return {**field, "nullable": False}


def staged(
    source: Buffer,
    *fields: dict[str, Any],
    files: Sequence[str] = ("part-0.snappy.parquet",),
    partitioned_by: Sequence[str] = (),
    **configuration: str,
) -> Buffer:
    metadata: Any = {
        **source.metadata,
        "schemaString": json.dumps(struct_of(*fields)),
        "partitionColumns": list(partitioned_by),
        "configuration": {f"delta.{name}": value for name, value in configuration.items()},
    }
    adds: Any = tuple({**source.adds[0], "path": path} for path in files)
    return attrs.evolve(source, metadata=metadata, adds=adds)


def test_it_is_given_the_files_that_version_1_names_and_columns_without_metadata(source: Buffer) -> None:
    kinds = ["boolean", "decimal(38,10)", "binary", "timestamp_ntz", LONGS]
    nested = struct_of(*(column(f"f{n}", kind, comment="inside") for n, kind in enumerate(kinds)))
    fields = [
        never_null(column("id", comment="the key")),
        column("n", "integer", CURRENT_DEFAULT="7"),
        column("g", "date", **{"delta.generationExpression": "CAST(t AS DATE)"}),
        column("s", nested),
        column("m", {"type": "map", "keyType": "string", "valueType": nested, "valueContainsNull": True}),
    ]
    names = ["part-0.c000.snappy.parquet", "aB/part-1.parquet"]
    buffer = staged(source, *fields, files=names)
    plain = plain_files(buffer)
    assert plain is not None
    assert plain.paths == tuple(f"{buffer.path}/{name}" for name in names)
    inner = struct_of(*(column(f"f{n}", kind) for n, kind in enumerate(kinds)))
    assert json.loads(plain.schema) == struct_of(
        column("id"),
        column("n", "integer"),
        column("g", "date"),
        column("s", inner),
        column("m", {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}),
    )


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(column("a", "string", __CHAR_VARCHAR_TYPE_STRING="char(5)"), id="CHAR"),
        pytest.param(column("a", "string", __COLLATIONS={"a": "spark.UTF8_LCASE"}), id="collation"),
        pytest.param(column("a", "long", **{"delta.typeChanges": [{"fromType": "integer"}]}), id="widened"),
        pytest.param(column("a", "long", EXISTS_DEFAULT="7"), id="a value that older files lack"),
        pytest.param(column("a", "variant"), id="variant"),
        pytest.param(column("a", {"type": "array", "elementType": "variant", "containsNull": True}), id="inside"),
        pytest.param(column("a", {"type": "udt", "class": "x", "sqlType": "long"}), id="a class of its own"),
        pytest.param(column("a", struct_of(never_null(column("b")))), id="a field that is never NULL"),
        pytest.param(column("a", {**LONGS, "containsNull": False}), id="an element that is never NULL"),
        pytest.param(
            column("a", {"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": False}),
            id="a value that is never NULL",
        ),
        pytest.param(column("a", struct_of(column("b", "string", __COLLATIONS={}))), id="a collation inside"),
    ],
)
def test_it_reads_the_log_where_a_type_is_more_than_a_file_says(source: Buffer, field: dict[str, Any]) -> None:
    assert plain_files(staged(source, column("id"))) is not None
    assert plain_files(staged(source, column("id"), field)) is None


def test_it_reads_the_log_where_the_log_alone_has_values_or_names_of_columns(source: Buffer) -> None:
    assert plain_files(staged(source, column("id"), partitioned_by=["id"])) is None
    assert plain_files(staged(source, column("id"), **{"columnMapping.mode": "name"})) is None
    assert plain_files(staged(source, column("id"), **{"columnMapping.mode": "none"})) is not None


def test_it_reads_the_log_where_there_are_no_files_or_many(source: Buffer) -> None:
    assert plain_files(staged(source, column("id"), files=[])) is None
    many = [f"part-{n}.parquet" for n in range(MOST_FILES + 1)]
    assert plain_files(staged(source, column("id"), files=many)) is None
    assert plain_files(staged(source, column("id"), files=many[1:])) is not None


@pytest.mark.parametrize(
    "name", ["_part.parquet", "a/.part.parquet", "part*.parquet", "a%20b.parquet", "a=1/p.parquet"]
)
def test_it_reads_the_log_where_spark_misreads_a_files_name(source: Buffer, name: str) -> None:
    assert plain_files(staged(source, column("id"), files=["part-0.parquet", name])) is None
