"""The keys of a MERGE's source are looked at without Spark where they are few, and Spark would find the same."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.plain_parquet import plain_files
from airflow_provider_onelake.exceptions import ConstraintViolatedError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.steps import keys
from tests.support.merges import source_of
from tests.support.schemas import field, struct

KINDS = {pa.int64(): "long", pa.int32(): "integer", pa.string(): "string", pa.float64(): "double", pa.date32(): "date"}
SAYS = "rows with equal keys, or with NULL in one.*"


def staged(log: DeltaLog, *files: pa.Table) -> Buffer:
    source = source_of(log, {"x": [1]})
    adds: list[Any] = []
    for number, rows in enumerate(files):
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        data = sink.getvalue().to_pybytes()
        log.store.put(f"{source.path}/part-{number}.parquet", data)
        adds.append({**source.adds[0], "path": f"part-{number}.parquet", "size": len(data), "partitionValues": {}})
    schema = json.dumps(struct(*(field(each.name, KINDS[each.type]) for each in files[0].schema)))
    metadata: Any = {**source.metadata, "schemaString": schema, "partitionColumns": []}
    return attrs.evolve(source, metadata=metadata, adds=tuple(adds))


def rows(**columns: list[Any]) -> pa.Table:
    kinds = {"id": pa.int64(), "day": pa.string(), "x": pa.float64(), "a.b": pa.int64()}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})


def looked_at(log: DeltaLog, source: Buffer, *names: str) -> bool:
    plain = plain_files(source)
    assert plain is not None
    return keys.check_keys(log.store, source, plain, names)


def test_keys_that_are_all_different_need_no_spark(log: DeltaLog) -> None:
    assert looked_at(log, staged(log, rows(id=[1, 2], day=["a", "a"]), rows(id=[3, 1], day=["a", "b"])), "ID", "day")


@pytest.mark.parametrize(
    ("files", "names", "says"),
    [
        pytest.param([rows(id=[1, 2, 1])], ["id"], r"Of \(id\), for example: \(1\)\.", id="in one file"),
        pytest.param([rows(id=[1, 2]), rows(id=[3, 2])], ["ID"], r"Of \(id\), for example: \(2\)\.", id="in two files"),
        pytest.param([rows(id=[1, None])], ["id"], r"\(NULL\)", id="NULL"),
        pytest.param([rows(id=[1, 1], day=["a", None])], ["id", "day"], r"\(1, NULL\)", id="NULL in one of two"),
        pytest.param([rows(id=[1, 1], day=["a", "a"])], ["day", "id"], r"\(day, id\), .*: \(a, 1\)\.", id="two"),
    ],
)
def test_a_key_that_is_there_twice_or_null_is_named(
    log: DeltaLog, files: list[pa.Table], names: list[str], says: str
) -> None:
    with pytest.raises(ConstraintViolatedError, match=f"{SAYS}{says}\\.? Nothing was merged. The table is unchanged"):
        looked_at(log, staged(log, *files), *names)


def test_no_more_than_five_are_named(log: DeltaLog) -> None:
    with pytest.raises(ConstraintViolatedError) as caught:
        looked_at(log, staged(log, rows(id=[*range(20)] * 2)), "id")
    assert str(caught.value).count("), (") == 4


@pytest.mark.parametrize(
    ("file", "name"),
    [
        # NaN equals NaN there, and 0.0 equals -0.0.
        pytest.param(rows(x=[0.0, -0.0]), "x", id="floating point"),
        pytest.param(rows(**{"a.b": [1, 1]}), "a.b", id="a name with a dot"),
        pytest.param(rows(id=[1, 1]), "other", id="a column that is not there"),
    ],
)
def test_what_is_not_compared_by_its_value_is_left_to_spark(log: DeltaLog, file: pa.Table, name: str) -> None:
    assert not looked_at(log, staged(log, file), name)


def test_a_large_source_is_left_to_spark(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    source = staged(log, rows(id=[1, 1]))
    monkeypatch.setattr(keys, "MOST_BYTES", source.adds[0]["size"] - 1)
    assert not looked_at(log, source, "id")


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_file_that_is_gone_or_damaged_is_left_to_spark(log: DeltaLog, damage: str) -> None:
    source = staged(log, rows(id=[1, 1]))
    path = f"{source.path}/part-0.parquet"
    log.store.delete(path)
    if damage == "cut":
        log.store.put(path, b"PAR1")
    assert not looked_at(log, source, "id")
