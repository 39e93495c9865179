"""What a commit gets from its version: in-commit timestamps and row ids, decided anew at every rebase (protocol: rising timestamps, fresh row ids)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_onelake.commit.entry import Entry
from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.log.actions import of_kind
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.writes.publish import Committer
from tests.support.stores import LoserHeld, through
from tests.support.tables import foreign_commit, make_table, stage, writer_spec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMPED = {"delta.enableInCommitTimestamps": "true"}
TRACKED = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}


def of(rows: int, **fields: Any) -> dict[str, Any]:
    return {"path": f"{rows}.parquet", "stats": json.dumps({"numRecords": rows}), **fields}


def tracked(mark: int | None = None) -> Snapshot:
    domains = {} if mark is None else {"delta.rowTracking": {"configuration": f'{{"rowIdHighWaterMark":{mark}}}'}}
    return Snapshot(7, TRACKED, {"configuration": {}}, {}, domains)


def put(adds: list[dict[str, Any]], snapshot: Snapshot) -> list[Any]:
    return Entry(operation="WRITE", parameters={}, added=adds).on(snapshot, "id", NOW)  # type: ignore[arg-type]


def added(adds: list[dict[str, Any]], snapshot: Snapshot) -> list[Any]:
    return of_kind(put(adds, snapshot), "add")


def test_a_table_without_either_gets_nothing(tmp_path: Path) -> None:
    snapshot = make_table(tmp_path / "t").snapshot()
    info, add = put([of(3)], snapshot)
    assert "inCommitTimestamp" not in info["commitInfo"]
    assert add == {"add": of(3)}


def test_ids_staged_while_the_table_still_tracked_rows_are_left_out(tmp_path: Path) -> None:
    snapshot = make_table(tmp_path / "t").snapshot()
    assert added([of(3, baseRowId=7, defaultRowCommitVersion=2)], snapshot) == [of(3)]


@pytest.mark.parametrize(
    ("previous", "expected"),
    [(None, 1767225600000), (5, 1767225600000), (1767225600000, 1767225600001), (9767225600000, 9767225600001)],
)
def test_an_in_commit_timestamp_is_later_than_the_last(previous: int | None, expected: int) -> None:
    protocol: Any = {"minReaderVersion": 1, "minWriterVersion": 2}
    (info,) = put([], Snapshot(7, protocol, {"configuration": STAMPED}, {}, {}, previous))
    assert info["commitInfo"]["inCommitTimestamp"] == expected


@given(
    mark=st.none() | st.integers(-1, 10**12), batches=st.lists(st.lists(st.integers(0, 10**6), max_size=5), max_size=5)
)
def test_no_row_id_is_given_twice_from_commit_to_commit(mark: int | None, batches: list[list[int]]) -> None:
    snapshot, used = tracked(mark), -1 if mark is None else mark
    for version, batch in enumerate(batches, snapshot.version + 1):
        actions = put([of(rows) for rows in batch], snapshot)
        for add, rows in zip(of_kind(actions, "add"), batch, strict=True):
            assert add["baseRowId"] == used + 1
            assert add["defaultRowCommitVersion"] == version
            used += rows
        raised = of_kind(actions, "domainMetadata")
        assert len(raised) == (sum(batch) > 0)
        bodies = {body["domain"]: body for body in raised}
        snapshot = attrs.evolve(snapshot, version=version, domains={**snapshot.domains, **bodies})
        assert snapshot.row_id_high_water_mark == used


def test_a_put_that_lost_its_race_leaves_no_row_id_behind() -> None:
    adds = [of(3)]
    put(adds, tracked())
    assert adds == [of(3)]


def test_rows_behind_a_deletion_vector_have_ids_as_well() -> None:
    adds = added([of(10, deletionVector={"cardinality": 4}), of(1)], tracked())
    assert [add["baseRowId"] for add in adds] == [0, 10]


def test_a_file_without_statistics_cannot_be_given_row_ids() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"a\.parquet has no statistics"):
        put([{"path": "a.parquet"}], tracked())


def tracking_table(path: Path) -> DeltaLog:
    log = make_table(path)
    foreign_commit(log, [{"commitInfo": {"timestamp": 1}}, {"protocol": TRACKED}])
    return log


def test_row_ids_are_rebased_with_the_commit(tmp_path: Path) -> None:
    log = tracking_table(tmp_path / "t")
    mine, theirs = (stage(log, writer_spec(key), {"2019-01": rows}) for key, rows in (("m", [1, 2]), ("t", [3])))
    held = LoserHeld(log.store, lambda: Committer(through(log.store, log)).publish([theirs]))
    publication = Committer(through(held, log)).publish([mine])
    assert (held.refused, publication.version) == (1, 3)
    first, second = log.commits_since(1)
    assert [(a["baseRowId"], a["defaultRowCommitVersion"]) for c in (first, second) for a in c.adds] == [(0, 2), (1, 3)]
    snapshot = log.snapshot()
    assert snapshot.row_id_high_water_mark == 2


def test_in_commit_timestamps_are_rebased_with_the_commit(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    before = log.snapshot()
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
    far = 9_000_000_000_000
    changed = {**before.metadata, "configuration": STAMPED}
    foreign_commit(log, [{"commitInfo": {"inCommitTimestamp": far}}, {"protocol": protocol}, {"metaData": changed}])
    mine, theirs = (stage(log, writer_spec(key), {"2019-01": [1]}) for key in ("mine", "theirs"))
    held = LoserHeld(log.store, lambda: Committer(through(log.store, log)).publish([theirs]))
    Committer(through(held, log)).publish([mine])
    commits = log.commits_since(1)
    assert held.refused == 1
    assert [next(iter(commit.actions[0])) for commit in commits] == ["commitInfo", "commitInfo"]
    assert [commit.info["inCommitTimestamp"] for commit in commits] == [far + 1, far + 2]
