"""What is wrong with a table, and what to do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance import health
from airflow_provider_onelake.maintenance.health import Severity, examine
from tests.support.stores import through
from tests.support.tables import OVERWRITE, foreign_append, make_table, stage, writer_spec


def findings(log: DeltaLog) -> dict[str, str]:
    found = examine(through(log.store, log)).findings
    return {finding.what: finding.severity.value for finding in found}


def test_small_files_are_counted_as_a_compaction_would_take_them(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    for number in range(4):
        foreign_append(log, {"2019-01": [number]})
    assert examine(log).to_compact == 4
    assert findings(log) == {"4 small or half-deleted files in 1 partition are worth rewriting": "warning"}


def test_entries_without_a_byte_at_the_end_of_a_log_are_named(tmp_path: Path) -> None:
    """A power cut leaves them where an engine did not sync what it wrote."""
    log = make_table(tmp_path / "t")
    for number in range(3):
        foreign_append(log, {"2019-01": [number]})
    for version in (2, 3):
        Path(log.table, version_path(version)).write_bytes(b"")
    with pytest.raises(CorruptLogError, match=r"entries 2 to 3 at the end of its log have 0 bytes"):
        examine(through(log.store, log))


def test_a_file_that_the_listing_lacks_but_the_store_has_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing need not show what was put just before it."""
    log = make_table(tmp_path / "t")
    foreign_append(log, {"2019-01": [1]})
    monkeypatch.setattr(health, "lost_files", lambda files, present: [file["path"] for file in files])
    assert not examine(log).is_broken


def test_many_entries_without_a_checkpoint_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_MANY_ENTRIES", 2)
    log = make_table(tmp_path / "t")
    for number in range(2):
        foreign_append(log, {"2019-01": [number]})
    assert findings(log) == {
        "3 log entries and there is no checkpoint: every reader fetches them one by one": "warning"
    }


def test_a_buffer_that_was_abandoned_is_told_with_its_owner(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    stage(log, writer_spec("gone", **OVERWRITE), {"2019-01": [1]})
    then = datetime.now(UTC) + timedelta(days=30)
    (finding,) = examine(DeltaLog(log.store, log.table, SimpleNamespace(now=lambda: then, sleep=None))).findings
    assert "of writer gone was abandoned 30.0 days ago" in finding.what
    assert finding.severity is Severity.NOTE


def test_a_vacuum_that_is_refused_is_told_with_its_reason(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{"delta.deletedFileRetentionDuration": "interval 1 hours"})
    assert findings(log) == {"A vacuum would be refused": "warning"}
    assert examine(log).to_vacuum is None


def test_the_worst_comes_first(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    for number in range(4):
        foreign_append(log, {"2019-01": [number]})
    file = next(iter(log.live_files(lambda _: True, 4)))
    log.store.delete(file["path"])
    assert [finding.severity for finding in examine(log).findings] == [Severity.ERROR, Severity.WARNING]
