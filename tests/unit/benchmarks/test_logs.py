"""The logs that are made for the bench are valid: deltalake and the package find in them what was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.benchmarks import growth, logs
from tests.support.tables import local_log


@pytest.mark.parametrize("versions", [1, 10, 130])
def test_a_long_log_has_its_versions_and_few_live_files(tmp_path: Path, versions: int) -> None:
    logs.long_log(tmp_path / "t", versions)
    table = DeltaTable(str(tmp_path / "t"))
    assert (table.version(), len(table.file_uris())) == (versions, min(versions, logs.LIVE))
    assert local_log(tmp_path / "t").snapshot().version == versions


def test_the_checkpoint_of_a_long_log_says_what_its_entries_say(tmp_path: Path) -> None:
    logs.long_log(tmp_path / "t", 130)
    by_checkpoint = sorted(DeltaTable(str(tmp_path / "t"), version=80).file_uris())
    for file in (tmp_path / "t" / "_delta_log").glob("*checkpoint*"):
        file.unlink()
    assert sorted(DeltaTable(str(tmp_path / "t"), version=80).file_uris()) == by_checkpoint


def test_a_wide_log_has_its_files_spread_over_all_months(tmp_path: Path) -> None:
    logs.wide_log(tmp_path / "t", 1000)
    table = DeltaTable(str(tmp_path / "t"))
    adds = table.get_add_actions(flatten=True)
    assert (adds.num_rows, sum(adds.column("num_records").to_pylist())) == (1000, 1_000_000)
    months = adds.column("partition.month").to_pylist()
    assert len(set(months)) == logs.MONTHS
    assert months.count(logs.month(7)) == len(range(7, 1000, logs.MONTHS))


def test_a_poke_finds_nothing_and_the_opening_its_version(tmp_path: Path) -> None:
    logs.long_log(tmp_path / "t", 60)
    seen = growth.open_and_poke(tmp_path / "t", 60)
    assert seen.faults == []
    assert (len(seen.pokes), len(seen.listings)) == (95, 5)


def test_a_commit_beside_many_files_is_judged_by_what_it_replaced(tmp_path: Path) -> None:
    logs.wide_log(tmp_path / "t", 1000)
    appended = growth.publish(tmp_path / "t", 1000, "append", 0, 1001)
    assert (appended.faults, appended.removed) == ([], 0)
    assert appended.read > 0
    wrong = growth.publish(tmp_path / "t", 1000, "overwrite_partitions", 999, 1001)
    assert wrong.faults == ["10 files were replaced instead of 999", "992 files are live instead of 1001"]
