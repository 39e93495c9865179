"""deltalake's word on which files are live (protocol: verbatim remove)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_onelake.log.cross_check import told_apart_by_deltalake
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.tables import foreign_append, foreign_commit, make_table


def told(log: DeltaLog, other: DeltaLog | None = None) -> str | None:
    return told_apart_by_deltalake(log, log.snapshot().version, (other or log).table, {})


def typed_table(path: Path, kind: str) -> DeltaLog:
    fields = [("id", "long"), ("p", kind)]
    schema = {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields]}
    if kind != "binary":
        return make_table(path, json.dumps(schema), ["p"])
    # We make no such table, but others do.
    log = make_table(path, json.dumps(schema), [])
    foreign_commit(log, [{"metaData": {**log.snapshot().metadata, "partitionColumns": ["p"]}}])
    return log


def add_with(log: DeltaLog, *spellings: str | None) -> None:
    adds = [
        {
            "add": {
                "path": f"p/{number}.parquet",
                "partitionValues": {"p": spelling},
                "size": 1,
                "modificationTime": 1,
                "dataChange": True,
            }
        }
        for number, spelling in enumerate(spellings)
    ]
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}, *adds])


def test_both_agree_where_paths_are_encoded_and_partitions_are_null(log: DeltaLog) -> None:
    foreign_append(log, {"2019-01": [1], None: [2], "x y/ü:%": [3], "a=b+c": [4]})
    assert told(log) is None


@pytest.mark.parametrize(
    ("kind", "spellings"),
    [
        ("string", ["a", None]),
        ("long", ["1", "-7", None]),
        ("boolean", ["true", "false", None]),
        ("date", ["2019-01-31", "+10000-01-01", "-0044-03-15", "0000-02-29", None]),
        ("timestamp", ["2019-01-01T12:00:00.000000Z", "2019-01-01T12:00:00.500000Z", None]),
        ("timestamp", ["+12100-06-01T00:00:00.500000Z", "2019-01-01T12:00:00.000000Z", None]),
        ("binary", ["hello", "\u0001\u0002", "é", None]),
        ("decimal(10,2)", ["1.50", "-3.00", None]),
        ("double", ["1.5", "-0.25", "NaN", None]),
    ],
)
def test_both_agree_on_typed_partitions(tmp_path: Path, kind: str, spellings: list[str | None]) -> None:
    log = typed_table(tmp_path, kind)
    add_with(log, *spellings)
    assert told(log) is None


def test_a_partition_that_deltalake_cannot_read_is_said(tmp_path: Path) -> None:
    log = typed_table(tmp_path, "date")
    add_with(log, "2019-01-31", "noon")
    assert "deltalake cannot read version 1 of " in str(told(log))


def test_both_agree_on_a_table_without_partitions_or_files(tmp_path: Path) -> None:
    log = make_table(tmp_path, partition_by=())
    assert told(log) is None
    add = {"path": "a.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    foreign_commit(log, [{"add": add}])
    assert told(log) is None


def test_a_disagreement_names_a_file_and_says_what_to_do(tmp_path: Path) -> None:
    log, other = (make_table(tmp_path / name) for name in ("t", "other"))
    for table in (log, other):
        foreign_append(table, {"2019-01": [1], "2019-02": [2]})
    said = str(told(log, other))
    assert "disagree about 4 live files, such as " in said
    assert any(file["path"] in said for log in (log, other) for file in log.live_files(lambda _: True, 1))
