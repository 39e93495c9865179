"""Symlink manifests: what they list, and that they follow the table whoever is slow."""

from __future__ import annotations

import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_onelake.exceptions import StoreUnavailableError, TableNotFoundError, UnsupportedFeatureError
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.manifest_progress import FOLLOWED
from airflow_provider_onelake.maintenance.manifests import DIRECTORY, ENABLED, follow_commits, generate
from airflow_provider_onelake.table import Table
from airflow_provider_onelake.writes.publish import Committer
from tests.support.stores import KilledError, PassingOn, through
from tests.support.tables import (
    OVERWRITE,
    append_files,
    change_metadata,
    foreign_append,
    foreign_commit,
    local_log,
    make_table,
    stage,
    writer_spec,
)

ADDRESS = "s3://lake/Tables/trips"


def listed(log: DeltaLog) -> dict[str, set[str]]:
    """Return the paths in the table that each manifest lists, by its partition."""
    found: dict[str, set[str]] = {}
    for info in log.store.list(DIRECTORY):
        lines = log.store.get(info.path).decode().splitlines()
        assert all(line.startswith(f"{ADDRESS}/") for line in lines)
        directory = info.path.removeprefix(f"{DIRECTORY}/").removesuffix("/manifest")
        found[directory] = {line.removeprefix(f"{ADDRESS}/") for line in lines}
    return found


def live(log: DeltaLog) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in log.live_files(lambda _: True, log.snapshot().version):
        month = file["partitionValues"]["month"] or "__HIVE_DEFAULT_PARTITION__"
        found.setdefault(f"month={month}", set()).add(file["path"])
    return found


def test_each_partition_has_a_manifest_of_its_files(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    foreign_append(log, {"01": [1], "02": [2], None: [3]})
    foreign_append(log, {"01": [4]})
    done = generate(log, ADDRESS)
    assert listed(log) == live(log)
    assert (done.version, done.files, len(done.written), done.deleted) == (2, 4, 3, ())


def test_the_manifest_of_a_partition_that_is_gone_is_deleted(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    foreign_append(log, {"01": [1], "02": [2]})
    generate(log, ADDRESS)
    DeltaTable(log.table).delete("month = '02'")
    done = generate(log, ADDRESS)
    assert listed(log) == live(log)
    assert done.deleted == (f"{DIRECTORY}/month=02/manifest",)


def test_a_table_without_partitions_has_one_manifest(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    log = local_log(tmp_path / "t")
    generate(log, ADDRESS)
    (info,) = log.store.list(DIRECTORY)
    assert info.path == f"{DIRECTORY}/manifest"


def test_what_is_no_table_has_no_manifests(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        generate(local_log(tmp_path / "t"), ADDRESS)


def test_a_file_with_a_deletion_vector_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    added: list[Any] = append_files(log.store, "", {"01": [1]})
    for action in added:
        if "add" in action:
            action["add"]["deletionVector"] = {
                "storageType": "u",
                "pathOrInlineDv": "x",
                "sizeInBytes": 1,
                "cardinality": 1,
            }
    foreign_commit(log, added)
    with pytest.raises(UnsupportedFeatureError, match=r"has a deletion vector at version 1: .* APPLY \(PURGE\)"):
        generate(log, ADDRESS)
    assert not listed(log)


def test_column_mapping_is_refused(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{"delta.columnMapping.mode": "name"})
    with pytest.raises(UnsupportedFeatureError, match="column mapping"):
        generate(log, ADDRESS)


class _Late(PassingOn):
    """Puts its first manifest only after another has done something."""

    def __init__(self, inner: Any, other: Any) -> None:
        super().__init__(inner)
        self.other = other

    def put(self, path: str, data: bytes) -> None:
        if self.other is not None and path.startswith(f"{DIRECTORY}/"):
            other, self.other = self.other, None
            other()
        super().put(path, data)


def test_who_puts_an_older_manifest_over_a_newer_one_puts_the_newer_again(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    foreign_append(log, {"01": [1], "02": [2]})

    def another() -> None:
        second = local_log(tmp_path / "t")
        foreign_append(second, {"01": [3]})
        DeltaTable(second.table).delete("month = '02'")
        generate(second, ADDRESS)

    done = generate(through(_Late(log.store, another), log), ADDRESS)
    assert listed(local_log(tmp_path / "t")) == live(local_log(tmp_path / "t"))
    assert done.version == 3


# -- after commits -------------------------------------------------------------------------------------------------


def committer(log: DeltaLog) -> Committer:
    return Committer(log, after_commit=follow_commits(log, lambda: ADDRESS))


def test_where_the_table_asks_for_it_a_commit_brings_the_manifests_up_to_date(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{ENABLED: "true"})
    committer(log).publish([stage(log, writer_spec("a"), {"01": [1], "02": [2]})])
    assert listed(log) == live(log)
    committer(log).publish([stage(log, writer_spec("b", **OVERWRITE), {"01": [3]})])
    assert listed(log) == live(log)


def test_a_commit_writes_only_the_manifests_of_the_partitions_that_it_touched(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{ENABLED: "true"})
    committer(log).publish([stage(log, writer_spec("a"), {"01": [1], "02": [2]})])
    log.store.put(f"{DIRECTORY}/month=02/manifest", f"{ADDRESS}/mark\n".encode())
    committer(log).publish([stage(log, writer_spec("b"), {"01": [3]})])
    assert listed(log) == {**live(log), "month=02": {"mark"}}


def test_the_first_commit_writes_all_manifests(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{ENABLED: "true"})
    foreign_append(log, {"01": [1]})
    committer(log).publish([stage(log, writer_spec("a"), {"02": [2]})])
    assert listed(log) == live(log)


class _Away(PassingOn):
    """Refuses manifests."""

    def put(self, path: str, data: bytes) -> None:
        if path.startswith(f"{DIRECTORY}/"):
            raise StoreUnavailableError("away")
        super().put(path, data)


def test_what_could_not_be_written_is_written_after_the_next_commit(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{ENABLED: "true"})
    committer(log).publish([stage(log, writer_spec("a"), {"01": [1], "02": [2]})])
    committer(through(_Away(log.store), log)).publish([stage(log, writer_spec("b"), {"01": [3]})])
    assert listed(log) != live(log)
    committer(log).publish([stage(log, writer_spec("c"), {"02": [4]})])
    assert listed(log) == live(log)


def test_what_an_engine_without_manifests_or_a_killed_task_has_committed_is_written_after_the_next_commit(
    tmp_path: Path,
) -> None:
    log = make_table(tmp_path / "t", **{ENABLED: "true"})
    committer(log).publish([stage(log, writer_spec("a"), {"01": [1], "02": [2], "03": [3]})])
    foreign_append(log, {"01": [4]})
    DeltaTable(log.table).delete("month = '02'")
    committer(log).publish([stage(log, writer_spec("b"), {"03": [5]})])
    assert listed(log) == live(log)


@pytest.mark.parametrize(("before", "after"), [([], ["month"]), (["month"], []), (["month"], ["id"])])
def test_manifests_of_other_partition_columns_than_those_of_now_are_deleted(
    tmp_path: Path, before: list[str], after: list[str]
) -> None:
    rows = pa.table({"id": [1, 2], "month": ["01", "02"]})
    write_deltalake(tmp_path / "t", rows, partition_by=before)
    log = local_log(tmp_path / "t")
    change_metadata(log, configuration={ENABLED: "true"})
    update = follow_commits(log, lambda: ADDRESS)
    update(log.snapshot(), 1)
    values = dict.fromkeys(after, "1")
    gone = [
        {"remove": {"path": file["path"], "partitionValues": file["partitionValues"], "deletionTimestamp": 1}}
        for file in log.live_files(lambda _: True, 1)
    ]
    foreign_commit(
        log,
        [
            {"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationParameters": {"mode": "Overwrite"}}},
            {"metaData": {**log.snapshot().metadata, "partitionColumns": after}},
            *gone,
            {"add": {"path": "new.parquet", "partitionValues": values, "size": 1, "modificationTime": 1}},
        ],
    )
    update(log.snapshot(), 2)
    place = "".join(f"{column}=1" for column in after) or "manifest"
    assert {path.removeprefix(f"{DIRECTORY}/") for path in listed(log)} == {place}


def test_where_the_log_no_longer_reaches_back_all_manifests_are_written(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{ENABLED: "true"})
    committer(log).publish([stage(log, writer_spec("a"), {"01": [1]})])
    version = foreign_append(log, {"01": [2]})
    foreign_append(log, {"02": [3]})
    DeltaTable(log.table).create_checkpoint()
    for cleaned in range(version + 1):
        (tmp_path / "t" / version_path(cleaned)).unlink()
    log = local_log(tmp_path / "t")
    committer(log).publish([stage(log, writer_spec("b"), {"03": [4]})])
    assert listed(log) == live(log)


class _KilledOver(_Late):
    """Is killed after its first manifest."""

    def put(self, path: str, data: bytes) -> None:
        if not path.startswith(f"{DIRECTORY}/"):
            self.inner.put(path, data)
            return
        super().put(path, data)
        raise KilledError


def test_an_older_manifest_that_a_killed_task_put_over_a_newer_one_is_written_after_the_next_commit(
    tmp_path: Path,
) -> None:
    log = make_table(tmp_path / "t", **{ENABLED: "true"})
    committer(log).publish([stage(log, writer_spec("a"), {"01": [1], "02": [2]})])

    def another() -> None:
        second = local_log(tmp_path / "t")
        committer(second).publish([stage(second, writer_spec("b"), {"01": [3]})])
        assert listed(second) == live(second)

    foreign_append(log, {"01": [4]})
    with pytest.raises(KilledError):
        generate(through(_KilledOver(log.store, another), log), ADDRESS)
    log = local_log(tmp_path / "t")
    assert listed(log) != live(log)
    committer(log).publish([stage(log, writer_spec("c"), {"02": [5]})])
    assert listed(log) == live(log)


def names_of(log: DeltaLog) -> list[str]:
    return [info.path.rpartition("/")[2] for info in log.store.list(FOLLOWED)]


def test_what_killed_tasks_left_is_forgotten_after_an_hour_and_nothing_else_piles_up(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{ENABLED: "true"})
    committer(log).publish([stage(log, writer_spec("a"), {"01": [1]})])
    assert names_of(log) == ["complete-1"]
    with pytest.raises(KilledError):
        generate(through(_KilledOver(log.store, None), log), ADDRESS)
    committer(log).publish([stage(log, writer_spec("b"), {"01": [2]})])
    (complete, killed) = names_of(log)
    assert (complete, killed.startswith("writing-1-")) == ("complete-2", True)
    (path,) = (tmp_path / "t" / FOLLOWED).rglob("writing-*")
    os.utime(path, (time.time() - 3700,) * 2)
    committer(log).publish([stage(log, writer_spec("c"), {"01": [3]})])
    assert names_of(log) == ["complete-3"]


def test_a_table_in_the_place_of_another_gets_all_manifests(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{ENABLED: "true"})
    committer(log).publish([stage(log, writer_spec("a"), {"01": [1], "02": [2]})])
    log.store.delete(f"{DIRECTORY}/month=02/manifest")
    change_metadata(log, id="another")
    committer(log).publish([stage(log, writer_spec("b"), {"01": [3]})])
    assert listed(log) == live(log)


def test_who_deletes_the_manifests_gets_all_of_them_again(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{ENABLED: "true"})
    committer(log).publish([stage(log, writer_spec("a"), {"01": [1], "02": [2]})])
    shutil.rmtree(tmp_path / "t" / DIRECTORY)
    committer(log).publish([stage(log, writer_spec("b"), {"01": [3]})])
    assert listed(log) == live(log)


def test_a_table_that_does_not_ask_has_none(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    committer(log).publish([stage(log, writer_spec("a"), {"01": [1]})])
    assert not listed(log)


def test_a_commit_stands_where_its_manifests_would_lie(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = make_table(tmp_path / "t", **{ENABLED: "true", "delta.columnMapping.mode": "name"})
    with caplog.at_level(logging.WARNING):
        done = committer(log).publish([stage(log, writer_spec("a"), {"01": [1]})])
    assert done.version == 1
    assert "version 1 is committed, but its symlink manifests were not brought up to date" in caplog.text


def test_a_tasks_committer_writes_manifests_with_the_tables_address(tmp_path: Path) -> None:
    from airflow_provider_onelake.storage.addresses import TableAddress

    path = tmp_path / "a b" / "trips"
    make_table(path, **{ENABLED: "true"})
    table = Table(TableAddress.parse(str(path)), None, 10.0)
    table.committer().publish([stage(table.log, writer_spec("a"), {"01": [1]})])
    (line,) = (path / DIRECTORY / "month=01/manifest").read_text().splitlines()
    assert line.startswith(f"file:{path}/")
    assert Path(line.removeprefix("file:")).is_file()
