"""What a real OneLake refuses, and Azurite does not: batches of deletes, names of a tenant that allows GUIDs only, …."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    StoreNotFoundError,
    StoreRefusedError,
)
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.checkpoints import checkpointer
from airflow_provider_onelake.log.cross_check import told_apart_by_deltalake
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.clean_up import clean_up
from airflow_provider_onelake.maintenance.pinned_versions import pin_version, pinned_versions, release_version
from airflow_provider_onelake.maintenance.vacuum import INVENTORY, VacuumTerms, carry_out, plan
from airflow_provider_onelake.modes import OverwritePartitions
from airflow_provider_onelake.spark.submit.spool import JobSpool
from airflow_provider_onelake.storage.stores import deltalake_options
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from tests.support.clocks import HeldClock
from tests.support.object_stores import Lake
from tests.support.onelake import BY_GUIDS, BY_NAMES, TOKEN, OneLake, RefusalError
from tests.support.tables import EARLIER_LOAD, foreign_append, stage, writer_spec

TABLE = "Tables/t"


def connect(monkeypatch: pytest.MonkeyPatch, lake: Lake, **more: Any) -> OneLakeHook:
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", lake.connection(**more))
    return OneLakeHook()


def later(log: DeltaLog, **ahead: float) -> DeltaLog:
    return DeltaLog(log.store, log.table, HeldClock(datetime.now(UTC) + timedelta(**ahead)))


def publish(lake: Lake, writer: str = "w", rows: dict[str | None, list[int]] | None = None, **terms: Any) -> str:
    log = lake.log()
    buffer = stage(log, writer_spec(writer, **terms), rows or {"2019-01": [1]})
    assert Committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    return buffer.path


def test_the_test_button_finds_a_healthy_onelake_healthy(onelake: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = connect(monkeypatch, onelake.lake())
    worked, message = hook.test_connection()
    assert worked, message
    assert onelake.blobs == {}


def test_an_object_goes_by_a_single_delete_and_none_is_no_error(onelake: OneLake) -> None:
    store = onelake.lake().log().store
    store.put("month=a b/ü%20=+", b"")
    for _ in range(2):
        store.delete("month=a b/ü%20=+")
    assert onelake.blobs == {}
    assert [asked.method for asked in onelake.asked] == ["PUT", "DELETE", "DELETE"]


def test_whatever_the_package_deletes_goes(onelake: OneLake) -> None:
    lake = onelake.lake()
    lake.make_table()
    closed = publish(lake)
    clean_up(later(lake.log(), days=8), timedelta(days=7))
    assert not any(f"{closed}/_delta_log/" in path for path in onelake.blobs)

    pin_version(lake.log(), 1, "a test")
    release_version(lake.log(), 1)
    assert pinned_versions(lake.log()) == []

    spool = JobSpool.at(lake.log().store, "abfss://…", "attempt", "stage")
    assert spool.send("stage", {})
    spool.clear()
    assert not any(spool.path in path for path in onelake.blobs)

    one, other = (JobSpool.at(lake.log().store, "abfss://…", "attempt", kind) for kind in ("analysis", "stage"))
    assert one.send("analysis", {})
    assert other.send("stage", {})
    onelake.asked.clear()
    one.clear()
    assert other.submitted
    assert not any(asked.method == "DELETE" and asked.path.endswith("/attempt") for asked in onelake.asked)
    other.clear()

    publish(lake, "b", load=EARLIER_LOAD, mode=OverwritePartitions())
    log = later(lake.log(), days=8)
    todo = plan(log, VacuumTerms(abandoned_after=timedelta(days=7)))
    carry_out(log, todo, "name", lambda path: None)
    assert len(todo.candidates) == 1
    assert not any(INVENTORY in path for path in onelake.blobs)
    assert not any(asked.query.get("comp") == "batch" for asked in onelake.asked)


def test_behind_a_checkpoint_the_log_is_cleaned_up_and_deltalake_deletes_nothing_by_itself(onelake: OneLake) -> None:
    """deltalake deletes by batches; its create_checkpoint leaves the log as it is, however old that is."""
    lake = onelake.lake()
    log = lake.make_table()
    for version in (1, 2):
        foreign_append(log, {"2019-01": [version]})
    address = lake.address()
    options = deltalake_options(address, lake.credentials)
    for path in onelake.blobs:
        onelake.aged(path, datetime.now(UTC) - timedelta(days=60))
    DeltaTable(address.deltalake_uri, storage_options=options).create_checkpoint()
    assert f"{TABLE}/{version_path(0)}" in onelake.blobs
    onelake.aged(f"{TABLE}/_delta_log/{2:020d}.checkpoint.parquet", datetime.now(UTC) - timedelta(days=60))

    log = lake.log()
    write = checkpointer(address.deltalake_uri, lambda: options, interval=3, log=log)
    Committer(log, after_commit=write).publish([stage(log, writer_spec(), {"2019-01": [3]})])
    assert sorted(Path(path).name for path in onelake.blobs if path.startswith(f"{TABLE}/_delta_log/0")) == [
        f"{2:020d}.checkpoint.parquet",
        f"{2:020d}.json",
        f"{3:020d}.checkpoint.parquet",
        f"{3:020d}.json",
    ]
    assert lake.ids() == [1, 2, 3]
    assert not any(asked.query.get("comp") == "batch" for asked in onelake.asked)


def test_a_list_from_an_offset_that_has_no_rows_is_never_taken_for_no_newer_version(onelake: OneLake) -> None:
    by_guids, by_names = onelake.lake(), onelake.lake(BY_NAMES)
    log = by_guids.make_table()
    known = by_names.log()
    known.snapshot()
    for version in (1, 2, 3):
        foreign_append(by_guids.log(), {"2019-01": [version]})
    address = by_guids.address()
    options = deltalake_options(address, by_guids.credentials)
    DeltaTable(address.deltalake_uri, version=2, storage_options=options).create_checkpoint()
    foreign_append(log, {"2019-01": [4]})

    fresh = by_names.log()
    assert fresh.newest_listed() == 4
    assert fresh.versions_after(1) == (2, 3, 4)
    assert [commit.version for commit in fresh.commits_since(1)] == [2, 3, 4]
    assert [snapshot and snapshot.version for snapshot in (fresh.snapshot(), known.snapshot())] == [4, 4]
    assert publish(by_names, "a")
    assert by_guids.ids() == [1, 1, 2, 3, 4]


def test_the_preflight_names_a_store_that_lists_nothing_from_an_offset(
    onelake: OneLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked, message = connect(monkeypatch, onelake.lake(BY_NAMES)).test_connection()
    assert not worked
    assert "lists nothing from an offset" in message
    assert "write onelake://<workspace GUID>/<item GUID>" in message
    onelake.lists_by_names = True
    assert OneLakeHook().test_connection()[0]


def test_where_deltalake_cannot_list_the_log_rows_are_replaced_and_the_second_opinion_says_so(onelake: OneLake) -> None:
    by_names = onelake.lake(BY_NAMES)
    log = by_names.make_table()
    publish(by_names, load=EARLIER_LOAD)
    publish(by_names, "b", {"2019-01": [2]}, mode=OverwritePartitions())
    assert onelake.lake().ids() == [2]
    address = by_names.address()
    options = deltalake_options(address, by_names.credentials)
    said = told_apart_by_deltalake(log, log.snapshot().version, address.deltalake_uri, options)
    assert str(said).startswith("deltalake cannot read version 2 of ")


def test_a_tenant_that_allows_guids_only_is_named_with_the_way_out(onelake: OneLake) -> None:
    onelake.friendly_names = False
    store = onelake.lake(BY_NAMES).log().store
    for ask in (
        lambda: store.get("x"),
        lambda: store.create("x", b""),
        lambda: store.put("x", b""),
        lambda: list(store.list("x")),
        lambda: store.delete("x"),
    ):
        with pytest.raises(StoreRefusedError, match=r"The tenant takes GUIDs only.*onelake://<workspace GUID>") as said:
            ask()
        assert "FriendlyNameSupportDisabled: " in str(said.value)
        assert TOKEN not in str(said.value)
    assert onelake.lake(BY_GUIDS).make_table().snapshot_or_none() is not None


def test_a_request_that_the_store_takes_for_a_wrong_one_is_said_in_its_words_and_not_tried_again(
    onelake: OneLake,
) -> None:
    onelake.faults = lambda _: RefusalError(400, "OutOfRangeInput", "One of the request inputs is out of range.")
    store = onelake.lake().log().store
    for ask in (lambda: store.get("x"), lambda: store.create("x", b""), lambda: store.delete("x")):
        with pytest.raises(StoreRefusedError, match="OutOfRangeInput: One of the request inputs is out of range"):
            ask()
    assert len(onelake.asked) == 3


def test_the_stores_refusal_of_a_batch_is_said_in_its_words(onelake: OneLake) -> None:
    store = onelake.lake().log().store
    store._deleting = None  # type: ignore[attr-defined]
    with pytest.raises(StoreRefusedError, match="BadRequest: Either WorkspaceId or ArtifactId are missing"):
        store.delete("x")


def test_a_token_that_is_refused_and_a_workspace_that_is_not_there_are_named(onelake: OneLake) -> None:
    store = Lake("onelake", BY_GUIDS, onelake.credentials("stale")).log().store
    for ask in (lambda: store.get("x"), lambda: store.delete("x")):
        with pytest.raises(AccessDeniedError, match="the role Contributor on the workspace") as refused:
            ask()
        assert "stale" not in str(refused.value)
    elsewhere = onelake.lake(BY_NAMES.replace("taxi", "bus")).log().store
    with pytest.raises(StoreNotFoundError):
        elsewhere.delete("x")


def test_item_folders_are_not_made(onelake: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    store = connect(monkeypatch, onelake.lake()).get_conn()
    with pytest.raises(AccessDeniedError):
        store.create("elsewhere/x", b"")


def test_a_table_by_its_names_is_the_same_one_where_the_connection_knows_both_spellings(
    onelake: OneLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = onelake.lake()
    lake.make_table()
    publish(lake)
    hook = connect(monkeypatch, lake, lakehouse_alias=BY_NAMES)
    log = hook.table(f"{BY_NAMES}/{TABLE}").log
    assert log.address == str(hook.table(TABLE)) == f"{BY_GUIDS}/{TABLE}"
    snapshot = log.snapshot()
    assert snapshot.version == 1
    assert json.loads(json.dumps(str(hook.table(f"{BY_NAMES}/{TABLE}")))) == f"{BY_GUIDS}/{TABLE}"
