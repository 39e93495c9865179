from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.choices import OnNewerCommit, OnRerun
from airflow_provider_onelake.commit.loop import Backoff, Transactions
from airflow_provider_onelake.exceptions import (
    RerunRefusedError,
    RestoreRefusedError,
    StoreUnavailableError,
    UnsupportedFeatureError,
    ZombieWriterError,
)
from airflow_provider_onelake.log.actions import of_kind
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.inventory import INVENTORY, inventory
from airflow_provider_onelake.maintenance.pinned_versions import pin_version, pinned_versions
from airflow_provider_onelake.maintenance.restore import Restored, RestoreStatus, restore
from airflow_provider_onelake.storage.stores import ObjectInfo
from airflow_provider_onelake.writes.publish import Committer
from tests.support.changes import asker
from tests.support.commits import AT_ONCE
from tests.support.restores import take_back
from tests.support.shadows import compact
from tests.support.stores import KilledError, LoserHeld, PassingOn, killed, through
from tests.support.tables import (
    SCHEMA,
    change_metadata,
    cleaned_up,
    foreign_append,
    foreign_commit,
    ids,
    last,
    live,
    local_log,
    make_table,
    newest,
    prepare,
    stage,
    three_versions,
    writer_spec,
)
from tests.support.vectors import delete_rows, ids_without_deleted

APP = "onelake-restore/test/one"


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return three_versions(tmp_path / "t")


def back(
    log: DeltaLog,
    version: int,
    *,
    task: str = APP,
    start: str = "first",
    newer: OnNewerCommit = OnNewerCommit.FAIL,
    backoff: Backoff = AT_ONCE,
    after_commit: Callable[..., None] | None = None,
) -> Restored:
    transactions = Transactions(log, backoff=backoff, after_commit=after_commit)
    return restore(transactions, version, newest(log), asker(task, task, start), on_newer_commit=newer)


def table(log: DeltaLog) -> Path:
    return Path(log.table)


def test_the_rows_of_the_version_are_back_and_all_versions_stay(log: DeltaLog) -> None:
    done = back(log, 1)
    assert (done.status, done.version, done.restored_to, done.undone) == (RestoreStatus.RESTORED, 4, 1, (2, 3))
    assert (done.files_restored, done.files_removed, done.rows_restored, done.rows_removed) == (0, 4, 0, 4)
    assert [len(ids(table(log), version)) for version in range(5)] == [0, 2, 4, 6, 2]
    assert ids(table(log)) == [0, 5]
    # And forward again.
    again = back(log, 3, task="another")
    assert (again.files_restored, again.files_removed, again.rows_restored) == (4, 0, 4)
    assert again.bytes_restored == done.bytes_removed > 0
    assert ids(table(log)) == [0, 5, 10, 15, 20, 25]


def test_the_entry_is_delta_s_own_restore(log: DeltaLog) -> None:
    before = {file["path"]: file for file in live(log)}
    back(log, 2)
    commit, size = last(log), sum(file["size"] for file in before.values())
    info = commit.info
    assert (info["operation"], info["readVersion"], info["isBlindAppend"]) == ("RESTORE", 3, False)
    assert info["operationParameters"] == {"version": "2"}
    assert info["operationMetrics"]["numRemovedFiles"] == "2"
    assert info["operationMetrics"]["numOfFilesAfterRestore"] == "4"
    assert int(info["operationMetrics"]["tableSizeAfterRestore"]) == size - int(
        info["operationMetrics"]["removedFilesSize"]
    )
    assert commit.data_change
    assert commit.txns == {asker(APP, APP).app_id: 1}
    for gone in commit.removes:
        assert {key: gone[key] for key in ("path", "partitionValues", "size", "stats")} == {
            key: before[gone["path"]][key] for key in ("path", "partitionValues", "size", "stats")
        }


def test_deleted_rows_come_back_with_the_file_as_it_was(log: DeltaLog) -> None:
    foreign_append(log, {"x": [30, 31, 32]})
    first = delete_rows(log, live(log)[-1], [0])
    delete_rows(log, first, [0, 2])
    assert ids_without_deleted(table(log)) == [0, 5, 10, 15, 20, 25, 31]
    done = back(log, 5)
    assert (done.files_restored, done.files_removed, done.rows_restored, done.rows_removed) == (1, 1, 2, 1)
    assert ids_without_deleted(table(log)) == [0, 5, 10, 15, 20, 25, 31, 32]
    back(log, 4, task="another")
    assert ids_without_deleted(table(log)) == [0, 5, 10, 15, 20, 25, 30, 31, 32]
    assert not any("deletionVector" in file for file in live(log))


def test_a_compaction_is_undone_without_a_row_lost(log: DeltaLog) -> None:
    compact(log)
    done = back(log, 3)
    assert (done.files_restored, done.files_removed) == (6, 2)
    assert ids(table(log)) == [0, 5, 10, 15, 20, 25]


def test_a_table_that_is_as_it_was_gets_no_commit(log: DeltaLog) -> None:
    assert back(log, 3) == Restored(status=RestoreStatus.NOTHING_TO_DO, version=None, restored_to=3)
    assert newest(log).version == 3


def test_the_columns_and_the_properties_come_back(log: DeltaLog) -> None:
    schema = json.loads(SCHEMA)
    schema["fields"].append({"name": "more", "type": "long", "nullable": True, "metadata": {}})
    change_metadata(log, schemaString=json.dumps(schema), configuration={"delta.dataSkippingNumIndexedCols": "3"})
    done = back(log, 3)
    assert (done.status, done.files_restored, done.files_removed) == (RestoreStatus.RESTORED, 0, 0)
    assert newest(log).metadata == log.snapshot_at(3).metadata


@pytest.mark.parametrize(
    ("then", "now", "most"),
    [
        *(("9", "10", "10"), ("10", "9", "10"), ("9", None, "9"), (None, "9", "9")),
        *(("odd", "9", "9"), ("9", "odd", "9"), ("odd", "-", "odd")),
    ],
)
def test_no_column_gets_a_number_that_another_had(log: DeltaLog, then: str | None, now: str | None, most: str) -> None:
    for most_then in (then, now):
        properties = {"delta.columnMapping.maxColumnId": most_then} if most_then else {}
        change_metadata(log, configuration={"x": str(most_then), **properties})
    back(log, 4)
    assert newest(log).configuration == {"x": str(then), "delta.columnMapping.maxColumnId": most}


def test_what_the_table_has_handed_out_stays_as_it_is(log: DeltaLog) -> None:
    kept = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "4",
        "delta.inCommitTimestampEnablementTimestamp": "7",
        "delta.columnMapping.maxColumnId": "9",
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "inCommitTimestamp"]}
    metadata = {**newest(log).metadata, "configuration": {**kept, "delta.targetFileSize": "1mb"}}
    info = {"inCommitTimestamp": 4_000_000_000_000, "timestamp": 1, "operation": "SET TBLPROPERTIES"}
    foreign_commit(log, [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}])
    back(log, 2)
    now = newest(log)
    assert now.configuration == kept
    assert now.protocol == protocol
    # Time goes on, whatever the clock of the one who restores says.
    assert now.in_commit_timestamp == 4_000_000_000_001
    assert ids(table(log)) == [0, 5, 10, 15]


def test_row_ids_that_were_given_out_are_never_given_again(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    protocol = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["appendOnly", "domainMetadata", "rowTracking"],
    }
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "UPGRADE"}}, {"protocol": protocol}])
    committer = Committer(local_log(table(log)))
    for number in range(3):
        committer.publish([stage(log, writer_spec(f"w{number}"), {"x": [number, number + 10]})])
    before = {file["path"]: file for file in live(log)}
    back(log, 3)
    assert newest(log).row_id_high_water_mark == 5
    committer.publish([stage(log, writer_spec("later"), {"x": [50]})])
    back(log, 4, task="another")
    after = {file["path"]: file for file in live(log)}
    assert {path: (file["baseRowId"], file["defaultRowCommitVersion"]) for path, file in after.items()} == {
        path: (file["baseRowId"], file["defaultRowCommitVersion"]) for path, file in before.items()
    }
    assert newest(log).row_id_high_water_mark == 6


def test_files_from_before_row_tracking_get_ids(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    foreign_append(log, {"x": [1, 2]})
    gone = {key: live(log)[0][key] for key in ("path", "partitionValues", "size")}
    info = {"timestamp": 2, "operation": "DELETE"}
    foreign_commit(log, [{"commitInfo": info}, {"remove": {**gone, "deletionTimestamp": 2, "dataChange": True}}])
    names = ["appendOnly", "domainMetadata", "rowTracking"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": names}
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "UPGRADE"}}, {"protocol": protocol}])
    Committer(local_log(table(log))).publish([stage(log, writer_spec("w"), {"x": [3, 4, 5]})])
    back(log, 1)
    [file] = live(log)
    assert (file["baseRowId"], file["defaultRowCommitVersion"]) == (3, 5)
    assert newest(log).row_id_high_water_mark == 4


def test_clustering_columns_come_back(log: DeltaLog) -> None:
    def cluster_by(columns: list[list[str]], **more: Any) -> None:
        domain = {"domain": "delta.clustering", "configuration": json.dumps({"clusteringColumns": columns}), **more}
        foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "CLUSTER BY"}}, {"domainMetadata": domain}])

    cluster_by([["id"]])
    cluster_by([["month"]])
    back(log, 4)
    assert json.loads(newest(log).domains["delta.clustering"]["configuration"]) == {"clusteringColumns": [["id"]]}
    back(log, 3, task="another")
    assert not newest(log).clustering_columns


# -- others ----------------------------------------------------------------------------------------------------------


def test_a_commit_that_nobody_looked_at_is_not_undone(log: DeltaLog) -> None:
    seen = newest(log)
    store = LoserHeld(log.store, lambda: foreign_append(log, {"x": [30]}))
    with pytest.raises(RestoreRefusedError, match=r"Version 4 .*, by WRITE, came after .* version 3") as refused:
        back(through(store, log), 1)
    assert "on_newer_commit='undo'" in str(refused.value)
    assert newest(log).version == seen.version + 1
    assert ids(table(log)) == [0, 5, 10, 15, 20, 25, 30]


def test_new_clustering_columns_are_not_undone_unasked(log: DeltaLog) -> None:
    domain = {"domain": "delta.clustering", "configuration": json.dumps({"clusteringColumns": [["id"]]})}
    entry: list[Any] = [{"commitInfo": {"timestamp": 1, "operation": "CLUSTER BY"}}, {"domainMetadata": domain}]
    store = LoserHeld(log.store, lambda: foreign_commit(log, entry))
    with pytest.raises(RestoreRefusedError, match=r"Version 4 .*, by CLUSTER BY, came after"):
        back(through(store, log), 1)


def test_a_commit_that_nobody_looked_at_is_undone_where_that_is_asked_for(log: DeltaLog) -> None:
    store = LoserHeld(log.store, lambda: foreign_append(log, {"x": [30]}), lambda: delete_rows(log, live(log)[0], [0]))
    done = back(through(store, log), 1, newer=OnNewerCommit.UNDO)
    assert (done.version, done.undone, done.lost_races, done.files_removed) == (6, (2, 5), 2, 6)
    assert ids(table(log)) == [0, 5]


def test_a_compaction_in_between_is_undone_with_the_rest(log: DeltaLog) -> None:
    done = back(through(LoserHeld(log.store, lambda: compact(log)), log), 1)
    assert (done.version, done.files_restored, done.files_removed) == (5, 2, 2)
    assert ids(table(log)) == [0, 5]


def test_a_retry_does_not_call_done_what_a_person_has_undone_and_undoes_nothing(log: DeltaLog) -> None:
    back(log, 1)
    take_back(log, 3)
    for newer in OnNewerCommit:
        with pytest.raises(RerunRefusedError, match="was taken back"):
            back(log, 1, newer=newer)
    assert ids(table(log)) == [0, 5, 10, 15, 20, 25]
    done = back(log, 1, start="second")
    assert (done.status, done.version, ids(table(log))) == (RestoreStatus.RESTORED, 6, [0, 5])
    assert back(log, 1, start="second") == Restored(status=RestoreStatus.ALREADY, version=6, restored_to=1)


@pytest.mark.parametrize("start", ["first", "second"], ids=["a retry", "a clear"])
def test_an_old_process_undoes_nothing_that_came_after_a_later_one_found_the_table_restored(
    log: DeltaLog, start: str
) -> None:
    told: list[Restored] = []

    def later() -> None:
        restore(Transactions(log), 1, newest(log), asker("another"), on_newer_commit=OnNewerCommit.FAIL)
        told.append(later_try(log, start))
        foreign_append(log, {"x": [30]})

    old = through(LoserHeld(log.store, later), log)
    if start == "first":
        assert back(old, 1, newer=OnNewerCommit.UNDO).status is RestoreStatus.NOTHING_TO_DO
    else:
        with pytest.raises(ZombieWriterError, match="A newer start"):
            back(old, 1, newer=OnNewerCommit.UNDO)
    assert told == [Restored(status=RestoreStatus.NOTHING_TO_DO, version=None, restored_to=1)]
    assert ids(table(log)) == [0, 5, 30]


def later_try(log: DeltaLog, start: str) -> Restored:
    """The second try of the task, of its first start or of another one."""
    by = asker(APP, APP, start, retried=True)
    return restore(Transactions(log), 1, newest(log), by, on_newer_commit=OnNewerCommit.UNDO)


def test_a_table_that_was_made_again_gets_no_file_of_the_old_one(log: DeltaLog) -> None:
    class MadeAgain(PassingOn):
        """The table is dropped and made again once the restore has seen that all files of the version are there."""

        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            found = list(super().list(prefix, start_after))
            if prefix == "":
                shutil.rmtree(table(log))
                foreign_append(make_table(table(log)), {"x": [100]})
            return iter(found)

    other = through(MadeAgain(log.store), log)
    assert newest(other).version == 3
    with pytest.raises(RestoreRefusedError, match="was dropped and made again"):
        back(other, 1)
    assert ids(table(log)) == [100]


def test_a_writer_whose_rows_were_taken_back_is_not_skipped(log: DeltaLog) -> None:
    committer = Committer(local_log(table(log)))
    buffer = stage(log, writer_spec("w"), {"x": [30]})
    committer.publish([buffer])
    back(log, 3)
    assert newest(log).txns[buffer.spec.identity.app_id] == 1
    with pytest.raises(RerunRefusedError, match="RESTORE in version 5 took its rows back"):
        prepare(log, writer_spec("w", generation=2, on_rerun=OnRerun.SKIP))


# -- what is refused -------------------------------------------------------------------------------------------------


def test_lost_files_are_named_and_nothing_stays_pinned(log: DeltaLog) -> None:
    compact(log)
    gone = last(log).removes[0]["path"]
    log.store.delete(gone.replace("%20", " "))
    with pytest.raises(RestoreRefusedError, match="1 of its files are gone") as refused:
        back(log, 3)
    assert "Nothing was changed" in str(refused.value)
    assert (newest(log).version, pinned_versions(log)) == (4, [])


def test_the_version_is_pinned_while_it_is_brought_back(log: DeltaLog) -> None:
    seen: list[list[int]] = []
    back(log, 1, after_commit=lambda *_: seen.append([pinned.version for pinned in pinned_versions(log)]))
    assert (seen, pinned_versions(log)) == ([[1]], [])


def test_a_vacuum_that_ends_after_the_listing_is_seen(log: DeltaLog) -> None:
    compact(log)
    doomed = [
        info for info in log.store.list("") if info.path in {r["path"].replace("%20", " ") for r in last(log).removes}
    ]
    assert doomed
    log.store.put(f"{INVENTORY}/x.parquet", inventory(doomed))

    class Ends(PassingOn):
        def get(self, path: str) -> bytes:
            if path.startswith(INVENTORY):
                for info in doomed:
                    log.store.delete(info.path)
                log.store.delete(path)
            return super().get(path)

    with pytest.raises(RestoreRefusedError, match="of its files are gone"):
        back(through(Ends(log.store), log), 3)
    assert newest(log).version == 4
    assert pinned_versions(log) == []


def test_a_retry_releases_what_a_killed_try_pinned(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killing:
        killing.setattr("airflow_provider_onelake.maintenance.restore.release_version", killed)
        with pytest.raises(KilledError):
            back(log, 1)
    assert pinned_versions(log)
    assert back(log, 1).status is RestoreStatus.ALREADY
    assert pinned_versions(log) == []


class _Stopped(PassingOn):
    """Of a try that is stopped before its put."""

    def create(self, path: str, data: bytes) -> None:
        if path.startswith("_delta_log/"):
            raise KilledError
        super().create(path, data)


class _Unanswered(PassingOn):
    """Of a try that cannot look whether the files are there."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        if not prefix:
            raise StoreUnavailableError("no answer")
        return super().list(prefix, start_after)


@pytest.mark.parametrize("store", [_Stopped, _Unanswered])
def test_a_try_that_ends_leaves_the_version_kept_for_another_try(log: DeltaLog, store: type[PassingOn]) -> None:
    """The older try went on without its supervisor while Airflow started the retry."""
    kept: list[int] = []

    class Meanwhile(PassingOn):
        def create(self, path: str, data: bytes) -> None:
            if path.startswith("_delta_log/"):
                with pytest.raises((KilledError, StoreUnavailableError)):
                    back(through(store(log.store), log), 1)
                kept.extend(pinned.version for pinned in pinned_versions(log))
            super().create(path, data)

    assert back(through(Meanwhile(log.store), log), 1).status is RestoreStatus.RESTORED
    assert kept == [1]
    assert pinned_versions(log) == []


def test_what_a_killed_try_keeps_ends(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def a_killed_try(app_id: str) -> None:
        with monkeypatch.context() as killing:
            killing.setattr("airflow_provider_onelake.maintenance.restore.release_version", killed)
            with pytest.raises(KilledError):
                back(through(_Stopped(log.store), log), 1, task=app_id)

    a_killed_try(APP)
    a_killed_try("onelake-restore/test/another")
    assert len(pinned_versions(log)) == 2
    # The retry stands in the table, so no other try of it does anything more. Of others, only time tells.
    assert back(log, 1).status is RestoreStatus.RESTORED
    (left,) = pinned_versions(log)
    assert left.until is not None
    assert timedelta(days=7) < left.until - log.clock.now() < timedelta(days=8)


def test_a_release_that_fails_hides_nothing(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    class NoDelete(PassingOn):
        def delete(self, path: str) -> None:
            raise StoreUnavailableError("no answer")

    assert back(through(NoDelete(log.store), log), 1).status is RestoreStatus.RESTORED
    assert "version 1 stays kept" in caplog.text
    [record] = log.store.list("_kept_versions")
    (named,) = re.findall(r"Delete (\S+) to", caplog.text)
    assert fnmatch(record.path, named)


def test_what_others_keep_stays_pinned(log: DeltaLog) -> None:
    def people(*_: object) -> None:
        assert [pinned.by for pinned in pinned_versions(log)] == ["me"]
        pin_version(log, 1, "the auditors")

    back(log, 1, after_commit=people)
    assert [pinned.by for pinned in pinned_versions(log)] == ["the auditors"]


@pytest.mark.parametrize("version", [-1, 4])
def test_a_version_that_is_not_there(log: DeltaLog, version: int) -> None:
    with pytest.raises(RestoreRefusedError, match=f"has no version {version}; its newest is 3"):
        back(log, version)


def test_a_version_whose_log_was_cleaned_up(log: DeltaLog) -> None:

    cleaned_up(log, *range(3))
    with pytest.raises(RestoreRefusedError, match=r"Version 0 .* no longer in its log"):
        back(local_log(table(log)), 1)
    foreign_append(log, {"x": [30]})
    assert back(local_log(table(log)), 3).status is RestoreStatus.RESTORED


def test_an_append_only_table_goes_nowhere(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{"delta.appendOnly": "true"})
    foreign_append(log, {"x": [1]})
    with pytest.raises(RestoreRefusedError, match=r"append-only .*unset the property"):
        back(log, 0)


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants"]},
        {"minReaderVersion": 1, "minWriterVersion": 2},
    ],
)
def test_a_feature_that_was_dropped_since(tmp_path: Path, protocol: dict[str, Any]) -> None:
    log = make_table(tmp_path / "t", **{"delta.enableDeletionVectors": "true"})
    foreign_append(log, {"x": [1]})
    metadata = {**newest(log).metadata, "configuration": {}}
    info = {"timestamp": 1, "operation": "DROP FEATURE"}
    foreign_commit(log, [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}])
    with pytest.raises(RestoreRefusedError, match="the feature deletionVectors was dropped since"):
        back(log, 1)


def test_constraints_whose_feature_was_dropped_since(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    foreign_append(log, {"x": [1]})
    constraint = {**newest(log).metadata, "configuration": {"delta.constraints.positive": "id > 0"}}
    info: Any = {"timestamp": 1, "operation": "ADD CONSTRAINT"}
    # A writer version that has the feature without naming it.
    old = {"minReaderVersion": 1, "minWriterVersion": 3}
    foreign_commit(log, [{"commitInfo": info}, {"protocol": old}, {"metaData": constraint}])
    without = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants"]}
    metadata = {**newest(log).metadata, "configuration": {}}
    foreign_commit(log, [{"commitInfo": info}, {"protocol": without}, {"metaData": metadata}])
    with pytest.raises(RestoreRefusedError, match="the feature checkConstraints was dropped since"):
        back(log, 2)
    assert back(log, 1).status is RestoreStatus.NOTHING_TO_DO


def test_another_column_mapping(log: DeltaLog) -> None:
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    metadata = {**newest(log).metadata, "configuration": {"delta.columnMapping.mode": "name"}}
    info = {"timestamp": 1, "operation": "SET TBLPROPERTIES"}
    foreign_commit(log, [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}])
    with pytest.raises(RestoreRefusedError, match="its column mapping was 'none' then and is 'name' now"):
        back(log, 1)


def test_files_outside_of_the_table(log: DeltaLog) -> None:
    add = {**live(log)[0], "path": "file:/elsewhere/part-0.parquet", "dataChange": True}
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "CLONE"}}, {"add": add}])
    with pytest.raises(UnsupportedFeatureError, match="absolute path"):
        restore(Transactions(log), 1, newest(log), asker(APP), on_newer_commit=OnNewerCommit.FAIL)
    assert newest(log).version == 4


# -- any history -----------------------------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "delete", "vector", "compact", "back"]), st.integers(0, 5)), max_size=6
    )
)
def test_any_version_of_any_history_comes_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    log = make_table(tmp_path_factory.mktemp("t"))
    rows = [ids_without_deleted(table(log))]
    for number, (step, which) in enumerate(steps):
        files = live(log)
        if step == "append":
            foreign_append(log, {f"m{which}": [number * 10, number * 10 + 1]})
        elif step == "delete" and files:
            gone = {
                k: v
                for k, v in files[which % len(files)].items()
                if k in ("path", "partitionValues", "size", "deletionVector")
            }
            removed = {"remove": {**gone, "deletionTimestamp": 2, "dataChange": True}}
            foreign_commit(log, [{"commitInfo": {"timestamp": 2, "operation": "DELETE"}}, removed])
        elif step == "vector" and files:
            file = files[which % len(files)]
            if "deletionVector" not in file and json.loads(file["stats"])["numRecords"] == 2:
                delete_rows(log, file, [which % 2])
        elif step == "compact" and files:
            compact(log)
        elif step == "back":
            version = which % len(rows)
            back(log, version, task=f"at {number}")
            assert ids_without_deleted(table(log)) == rows[version]
        while len(rows) <= newest(log).version:
            rows.append(ids_without_deleted(table(log)))
    for version, expected in enumerate(list(rows)):
        back(log, version, task=f"in the end {version}")
        assert ids_without_deleted(table(log)) == expected
    assert not of_kind(last(log).actions, "cdc")
