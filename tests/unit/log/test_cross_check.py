"""deltalake's word on which files are live, before any of them is removed (protocol: verbatim remove)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.commit.publish import Committer, Status
from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log import cross_check
from airflow_provider_onelake.log.actions import object_path
from airflow_provider_onelake.log.cross_check import deltalake_cross_check
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.modes import OverwritePartitions
from tests.support.tables import foreign_append, foreign_commit, ids, make_table, stage, writer_spec
from tests.support.vectors import delete_rows, ids_without_deleted


def agree(log: DeltaLog, version: int, touches: Any = lambda _: True) -> None:
    snapshot = log.snapshot()
    partitioning = snapshot.partitioning
    files = log.live_files(lambda add: touches(partitioning.partition(add["partitionValues"])), version)
    deltalake_cross_check(log.table)(version, partitioning, touches, files)


def typed_table(path: Path, kind: str) -> DeltaLog:
    fields = [("id", "long"), ("p", kind)]
    schema = {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields]}
    if kind != "binary":
        return make_table(path, json.dumps(schema), ["p"])
    # We make no such table, but others do.
    log = make_table(path, json.dumps(schema), [])
    snapshot = log.snapshot()
    foreign_commit(log, [{"metaData": {**snapshot.metadata, "partitionColumns": ["p"]}}])
    return log


def add_with(log: DeltaLog, *spellings: str | None) -> int:
    adds = [
        {
            "add": {
                "path": f"p/{number}-{len(log.store.get('_delta_log/00000000000000000000.json'))}.parquet",
                "partitionValues": {"p": spelling},
                "size": 1,
                "modificationTime": 1,
                "dataChange": True,
            }
        }
        for number, spelling in enumerate(spellings)
    ]
    return foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}, *adds])


def test_both_agree_where_paths_are_encoded_and_partitions_are_null(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    version = foreign_append(log, {"2019-01": [1], None: [2], "x y/ü:%": [3], "a=b+c": [4]})
    agree(log, version)
    agree(log, version, lambda partition: partition == (None,))
    agree(log, version, lambda partition: partition == ("x y/ü:%",))


@pytest.mark.parametrize(
    ("kind", "spellings"),
    [
        ("string", ["a", None]),
        ("long", ["1", "-7", None]),
        ("integer", ["1", None]),
        ("short", ["1", None]),
        ("byte", ["1", None]),
        ("boolean", ["true", "false", None]),
        ("date", ["2019-01-31", "+10000-01-01", "-0044-03-15", "0000-02-29", None]),
        ("timestamp", ["2019-01-01T12:00:00.000000Z", "2019-01-01T12:00:00.500000Z", None]),
        ("timestamp", ["+12100-06-01T00:00:00.500000Z", "2019-01-01T12:00:00.000000Z", None]),
        ("binary", ["hello", "\u0001\u0002", "é", None]),
        ("decimal(10,2)", ["1.50", "-3.00", None]),
        ("double", ["1.5", "-0.25", "NaN", None]),
        ("float", ["1.5", None]),
    ],
)
def test_both_agree_on_typed_partitions(tmp_path: Path, kind: str, spellings: list[str | None]) -> None:
    log = typed_table(tmp_path, kind)
    version = add_with(log, *spellings)
    snapshot = log.snapshot()
    for spelling in spellings:
        wanted = snapshot.partitioning.partition({"p": spelling})
        touched: list[Any] = []

        def touches(partition: Any, wanted: Any = wanted, touched: list[Any] = touched) -> bool:
            touched.extend([partition] if partition == wanted else [])
            return bool(partition == wanted)

        agree(log, version, touches)
        # Once by our replay, once by deltalake's: it is not by touching nothing that they agree.
        assert len(touched) == 2


def test_a_partition_that_deltalake_cannot_read_is_an_error_that_says_so(tmp_path: Path) -> None:
    log = typed_table(tmp_path, "date")
    version = add_with(log, "2019-01-31", "noon")
    with pytest.raises(CorruptLogError, match=r"deltalake cannot read version 1 of .*'noon'.* Nothing was removed"):
        agree(log, version)


def test_both_agree_on_a_table_without_partitions(tmp_path: Path) -> None:
    log = make_table(tmp_path, partition_by=())
    version = foreign_commit(
        log,
        [{"add": {"path": "a.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}],
    )
    agree(log, version)


def test_both_agree_where_files_have_deletion_vectors(tmp_path: Path) -> None:
    log = make_table(tmp_path, **{"delta.enableDeletionVectors": "true"})
    version = foreign_append(log, {"2019-01": [1, 2], "2019-02": [3]})
    add = next(iter(log.live_files(lambda add: add["partitionValues"]["month"] == "2019-01", version)))
    delete_rows(log, add, [0])
    assert ids_without_deleted(tmp_path) == [2, 3]
    agree(log, version + 1)


@pytest.mark.parametrize("change", ["one too few", "one too many"])
def test_a_disagreement_is_an_error_that_names_a_file(tmp_path: Path, change: str) -> None:
    log = make_table(tmp_path)
    version = foreign_append(log, {"2019-01": [1], "2019-02": [2]})
    snapshot = log.snapshot()
    files = list(log.live_files(lambda _: True, version))
    ours = files[1:] if change == "one too few" else [*files, {**files[0], "path": "invented"}]
    named = files[0]["path"] if change == "one too few" else "invented"
    with pytest.raises(CorruptLogError, match=named):
        deltalake_cross_check(str(tmp_path))(version, snapshot.partitioning, lambda _: True, ours)


def test_nothing_is_removed_where_the_cross_check_disagrees(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    other = make_table(tmp_path / "other")
    for table in (log, other):
        foreign_append(table, {"2019-01": [1]})
    buffer = stage(log, writer_spec(mode=OverwritePartitions()), {"2019-01": [2]})
    with pytest.raises(CorruptLogError, match="Nothing was removed"):
        Committer(log, cross_check=deltalake_cross_check(other.table)).publish([buffer])
    assert ids(tmp_path / "t") == [1]
    publication = Committer(log, cross_check=deltalake_cross_check(log.table)).publish([buffer])
    assert publication.status is Status.PUBLISHED
    assert ids(tmp_path / "t") == [2]


def test_only_files_of_touched_partitions_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_table(tmp_path)
    for _ in range(3):
        foreign_append(log, {f"2019-{month:02d}": [month] for month in range(1, 13)})
    asked: list[Any] = []
    looked_at: list[Any] = []
    monkeypatch.setattr(cross_check, "object_path", lambda file: looked_at.append(file) or object_path(file))
    files = log.live_files(lambda add: add["partitionValues"]["month"] == "2019-02", 3)

    def touches(partition: Any) -> bool:
        asked.append(partition)
        return bool(partition == ("2019-02",))

    deltalake_cross_check(log.table)(3, log.snapshot().partitioning, touches, files)
    assert len(asked) == 12
    assert len(looked_at) == 3 + 3
