"""What a table is at a version, but for its files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import LogGapError, TablePropertyError
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.snapshot import LostTimestamp, Snapshot, interval_days
from tests.support.tables import SCHEMA

PROTOCOL: Any = {"minReaderVersion": 1, "minWriterVersion": 2}
EMPTY = Snapshot(3, PROTOCOL, {"id": "t"}, {"a": 1})


def test_a_snapshot_after_nothing_is_itself() -> None:
    assert EMPTY.after([]) is EMPTY


def test_the_last_word_on_each_thing_counts_and_the_rest_stays() -> None:
    commits = [
        Commit(4, [{"txn": {"appId": "a", "version": 2}}, {"metaData": {"id": "u"}}]),
        Commit(5, [{"txn": {"appId": "b", "version": 9}}, {"metaData": {"id": "v", "schemaString": SCHEMA}}]),
    ]
    after = EMPTY.after(commits)
    assert (after.version, after.table_id, after.txns) == (5, "v", {"a": 2, "b": 9})
    assert after.protocol == EMPTY.protocol
    assert EMPTY.txns == {"a": 1}


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("interval 1 week", 7),
        ("interval 7 days", 7),
        ("INTERVAL 36 HOURS", 1.5),
        ("2 days 12 hours", 2.5),
        ("interval 90 minutes", 0.0625),
        ("interval 0 hours", 0),
        ("interval 43200 seconds", 0.5),
    ],
)
def test_intervals_as_properties_spell_them(text: str, days: float) -> None:
    assert interval_days(text, 99) == pytest.approx(days)
    assert EMPTY.retention_days == 7
    changed = Snapshot(1, PROTOCOL, {"configuration": {"delta.deletedFileRetentionDuration": text}}, {})
    assert changed.retention_days == pytest.approx(days)


@pytest.mark.parametrize("text", [None, ""])
def test_no_interval_is_the_default(text: str | None) -> None:
    assert interval_days(text, 99) == 99


@pytest.mark.parametrize("text", ["soon", "interval", "7", "interval 7", "interval x days", "interval 1 month"])
def test_what_is_no_interval_is_said_to_be_none(text: str) -> None:
    with pytest.raises(TablePropertyError, match="is no interval"):
        interval_days(text, 99)


def test_the_log_is_kept_for_thirty_days_unless_the_table_says_otherwise() -> None:
    assert EMPTY.log_retention_days == 30
    changed = Snapshot(1, PROTOCOL, {"configuration": {"delta.logRetentionDuration": "interval 36 hours"}}, {})
    assert changed.log_retention_days == 1.5


# -- domains -------------------------------------------------------------------------------------------------------


def domain(name: str, *, removed: bool = False, **configuration: Any) -> dict[str, Any]:
    body = {"domain": name, "configuration": json.dumps(configuration), "removed": removed}
    return {"domainMetadata": body}


def test_the_last_word_on_a_domain_counts_and_a_removed_one_drops_out() -> None:
    first = EMPTY.after([Commit(4, [domain("a", x=1), domain("b", x=1)])])
    assert first.domains == {"a": domain("a", x=1)["domainMetadata"], "b": domain("b", x=1)["domainMetadata"]}
    later = first.after([Commit(5, [domain("a", x=2), domain("b", removed=True)])])
    assert later.domains == {"a": domain("a", x=2)["domainMetadata"]}
    assert later.after([Commit(6, [domain("b", x=3)])]).domains.keys() == {"a", "b"}
    assert EMPTY.domains == {}


def test_the_high_water_mark_of_row_ids_is_the_domains() -> None:
    assert EMPTY.row_id_high_water_mark == -1
    tracked = EMPTY.after([Commit(4, [domain("delta.rowTracking", rowIdHighWaterMark=9)])])
    assert tracked.row_id_high_water_mark == 9
    assert not tracked.has_row_tracking
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
    assert tracked.after([Commit(5, [{"protocol": protocol}])]).has_row_tracking


def test_a_table_is_clustered_while_it_has_clustering_columns() -> None:
    clustered = EMPTY.after([Commit(4, [domain("delta.clustering", clusteringColumns=[["id"]])])])
    assert (EMPTY.clustering_columns, bool(clustered.clustering_columns)) == ([], True)
    assert not clustered.after([Commit(5, [domain("delta.clustering", clusteringColumns=[])])]).clustering_columns


def test_a_snapshot_says_what_the_protocol_and_the_properties_say() -> None:
    protocol: Any = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["v2Checkpoint"]}
    protocol["writerFeatures"] = ["b", "v2Checkpoint"]
    properties = {"delta.columnMapping.mode": "Name", "delta.enableChangeDataFeed": "TRUE"}
    snapshot = Snapshot(1, protocol, {"id": "t", "configuration": properties}, {})
    assert snapshot.writer_features == {"v2Checkpoint", "b"}
    assert (snapshot.column_mapping, snapshot.has_change_feed) == ("name", True)
    assert (EMPTY.column_mapping, EMPTY.has_change_feed, EMPTY.writer_features) == ("none", False, frozenset())


# -- in-commit timestamps --------------------------------------------------------------------------------------------

STAMPED = Snapshot(3, PROTOCOL, {"id": "t", "configuration": {"delta.enableInCommitTimestamps": "true"}}, {}, {}, 100)


def info(stamp: int | None) -> dict[str, Any]:
    return {"commitInfo": {} if stamp is None else {"inCommitTimestamp": stamp}}


def test_the_in_commit_timestamp_is_the_last_commits() -> None:
    assert EMPTY.in_commit_timestamp is None
    assert (STAMPED.in_commit_timestamp, STAMPED.has_in_commit_timestamps) == (100, True)
    assert STAMPED.after([Commit(4, [info(101)]), Commit(5, [info(130)])]).in_commit_timestamp == 130


def test_a_commit_without_the_stamp_that_the_table_wants_leaves_the_last_one_known() -> None:
    assert STAMPED.after([Commit(4, [info(None)])]).in_commit_timestamp == 100


def test_a_table_that_no_longer_wants_stamps_has_none() -> None:
    off = {
        "metaData": {"id": "t", "schemaString": SCHEMA, "configuration": {"delta.enableInCommitTimestamps": "false"}}
    }
    assert STAMPED.after([Commit(4, [info(None), off])]).in_commit_timestamp is None


def test_a_stamp_that_nobody_knows_is_an_error_when_it_is_needed_and_only_then() -> None:
    lost = Snapshot(3, PROTOCOL, STAMPED.metadata, {}, {}, LostTimestamp("the stamp of version 3 is lost"))
    with pytest.raises(LogGapError, match="version 3 is lost"):
        _ = lost.in_commit_timestamp
    assert lost.after([Commit(4, [info(7)])]).in_commit_timestamp == 7
    with pytest.raises(LogGapError):
        _ = lost.after([Commit(4, [info(None)])]).in_commit_timestamp
