"""What a table is at a version, but for its files."""

from __future__ import annotations

import pytest

from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.snapshot import Snapshot, interval_days

EMPTY = Snapshot(3, {"minReaderVersion": 1}, {"id": "t"}, {"a": 1})


def test_a_snapshot_after_nothing_is_itself() -> None:
    assert EMPTY.after([]) is EMPTY


def test_the_last_word_on_each_thing_counts_and_the_rest_stays() -> None:
    commits = [
        Commit(4, [{"txn": {"appId": "a", "version": 2}}, {"metaData": {"id": "u"}}]),
        Commit(5, [{"txn": {"appId": "b", "version": 9}}, {"metaData": {"id": "v"}}]),
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
    changed = Snapshot(1, {}, {"configuration": {"delta.deletedFileRetentionDuration": text}}, {})
    assert changed.retention_days == pytest.approx(days)


@pytest.mark.parametrize("text", [None, ""])
def test_no_interval_is_the_default(text: str | None) -> None:
    assert interval_days(text, 99) == 99


@pytest.mark.parametrize("text", ["soon", "interval", "7", "interval 7", "interval x days", "interval 1 month"])
def test_what_is_no_interval_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no interval"):
        interval_days(text, 99)
