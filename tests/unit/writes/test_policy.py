"""What a policy makes of the conflicts of a write: done whole, left out whole, or refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.exceptions import ConflictError, OutOfDateError
from airflow_provider_onelake.log.commits import FORMAT, Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.modes import OverwritePartitions
from airflow_provider_onelake.writes.batch import Batch, place
from airflow_provider_onelake.writes.conflicts import Conflict
from airflow_provider_onelake.writes.policy import Contest, Settled, Settlement, settle
from tests.support.tables import finished_at, stage, writer_spec

MINE = datetime(2026, 1, 1, 12, tzinfo=UTC)
EARLIER, LATER = MINE - timedelta(hours=1), MINE + timedelta(hours=1)
HERE, THERE, ELSEWHERE = ("2019-01",), ("2019-02",), ("2019-03",)
LAST, FIRST, FAIL = Policy.LAST_WRITER_WINS, Policy.FIRST_WRITER_WINS, Policy.FAIL
RESTORE = Commit(9, [{"commitInfo": {"operation": "RESTORE"}}], modified=LATER)


@pytest.fixture
def batch(log: DeltaLog) -> Batch:
    buffer = stage(log, writer_spec("mine", mode=OverwritePartitions()), {"2019-01": [1], "2019-02": [2]})
    return place([finished_at(log, buffer, MINE)], log.snapshot())


def met(at: datetime | None, partition: Any = HERE, version: int = 7, *, replaced: bool = False) -> Conflict:
    commit = Commit(version, [{"commitInfo": {"operation": "WRITE"}}], modified=at)
    return Conflict(partition, commit, lambda asked: replaced and asked == partition)


def replaced(at: datetime | None, partition: Any = HERE, version: int = 8) -> Conflict:
    return met(at, partition, version, replaced=True)


def ours(at: datetime, app_id: str) -> Conflict:
    """A commit of two writers of this package, the other of which finished long before."""
    record = {"writer": "theirs", "generation": 1, "buffer": "b", "rows": 1, "fingerprint": ""}
    times = {app_id: at, f"{app_id}z": EARLIER}
    writers = [{**record, "app_id": name, "finished": finished.isoformat()} for name, finished in times.items()]
    info = {"timestamp": 1, "staged": {"format": FORMAT, "writers": writers}}
    return Conflict(HERE, Commit(7, [{"commitInfo": info}]), lambda _: False)


def settled(
    batch: Batch, policy: Policy, *conflicts: Conflict, times_count: bool = True, **more: Sequence[Any]
) -> Settled:
    winners = [conflict.winner for conflict in conflicts] + [*more.get("also", ())]
    monthly = Partitioning({"month": "string"})
    return settle(Contest(batch, conflicts, winners, more.get("live", ()), monthly, times_count, "trips"), policy)


def outcomes(found: Settled) -> tuple[bool, list[str]]:
    return found.left_out, [f"{one.winner_version} {one.outcome.value}" for one in found.settlements]


@pytest.mark.parametrize("policy", [LAST, FIRST, FAIL])
def test_without_a_conflict_every_write_is_done(batch: Batch, policy: Policy) -> None:
    assert outcomes(settled(batch, policy, also=[RESTORE])) == (False, [])


@pytest.mark.parametrize("at", [EARLIER, LATER, None], ids=["earlier", "later", "nobody knows when"])
def test_times_matter_to_the_last_writer_only(batch: Batch, at: datetime | None) -> None:
    assert outcomes(settled(batch, FIRST, met(at), met(EARLIER, None, 8))) == (True, ["7 set_aside", "8 set_aside"])
    with pytest.raises(ConflictError, match=r"In trips, version 7 \(WRITE\) changed rows in month=2019-01\.") as caught:
        settled(batch, FAIL, met(at))
    assert not isinstance(caught.value, OutOfDateError)
    for said in (
        "Writers 'mine' replace these rows, and were formed on version 0",
        "kept: clear",
        "leave them out by `onelake reconcile --on-conflict first_writer_wins`.",
    ):
        assert said in str(caught.value)


def test_the_last_writer_replaces_what_finished_before_it_whatever_it_did(batch: Batch) -> None:
    found = settled(batch, LAST, met(EARLIER), replaced(EARLIER), met(EARLIER, None, 9), also=[RESTORE])
    assert outcomes(found) == (False, ["7 replaced", "8 replaced", "9 replaced"])


@pytest.mark.parametrize(
    ("conflicts", "later"),
    [
        pytest.param([met(LATER)], [7], id="a change"),
        pytest.param([met(None)], [7], id="nobody knows when"),
        pytest.param([met(LATER, None)], [7], id="a partition that it does not name"),
        pytest.param([replaced(LATER)], [8], id="it replaced one partition of two"),
        pytest.param([replaced(LATER), met(LATER, THERE, 9)], [8, 9], id="and changed the other"),
        pytest.param([replaced(LATER), replaced(EARLIER, THERE, 7)], [8], id="and the other was replaced earlier"),
    ],
)
def test_a_late_write_not_replaced_whole_is_out_of_date(
    batch: Batch, conflicts: list[Conflict], later: list[int]
) -> None:
    with pytest.raises(OutOfDateError) as caught:
        settled(batch, LAST, *conflicts)
    found = re.findall(r"version (\d+) \(WRITE\) changed rows in [^,;]*, and finished later[;.]", str(caught.value))
    assert list(map(int, found)) == later


def test_a_late_write_that_others_together_have_replaced_is_superseded_whatever_came_besides(batch: Batch) -> None:
    here, there = replaced(LATER), replaced(LATER, THERE, 9)
    found = settled(batch, LAST, met(EARLIER), here, there, met(LATER, HERE, 10))
    assert outcomes(found) == (True, ["8 superseded", "9 superseded"])


def test_rows_that_it_would_remove_have_to_be_replaced_as_well(batch: Batch) -> None:
    live = [{"path": "old", "partitionValues": {"month": "2019-03"}}]
    conflicts = [replaced(LATER), replaced(LATER, THERE)]
    with pytest.raises(OutOfDateError):
        settled(batch, LAST, *conflicts, live=live)
    assert settled(batch, LAST, *conflicts, replaced(LATER, ELSEWHERE), live=live).left_out


def test_after_a_restore_nobody_knows_whether_the_rows_that_replaced_it_are_there(batch: Batch) -> None:
    """Also where the RESTORE touched no file of its partitions, and so is no conflict."""
    with pytest.raises(OutOfDateError):
        settled(batch, LAST, replaced(LATER), replaced(LATER, THERE), also=[RESTORE])


def test_of_equal_times_the_greater_id_is_later_and_a_commit_that_has_none_is_earlier(batch: Batch) -> None:
    mine = batch.finished[1]
    found = settled(batch, LAST, ours(MINE, "a" + mine), met(MINE, version=8))
    assert outcomes(found) == (False, ["7 replaced", "8 replaced"])
    with pytest.raises(OutOfDateError):
        settled(batch, LAST, ours(MINE, mine + "x"))


def test_of_a_log_that_was_copied_every_commit_is_later(batch: Batch) -> None:
    with pytest.raises(OutOfDateError, match="the table was copied since"):
        settled(batch, LAST, met(EARLIER), times_count=False)
    assert settled(batch, LAST, replaced(EARLIER), replaced(EARLIER, THERE), times_count=False).left_out


@pytest.mark.parametrize(
    ("policy", "conflicts", "sentence"),
    [
        (LAST, [met(EARLIER)], "version 7 (WRITE) changed rows in month=2019-01, and is replaced there"),
        (
            FIRST,
            [met(EARLIER)],
            (
                "all of it is set aside, 2 rows in month=2019-01, month=2019-02: version 7 (WRITE) changed rows in "
                "month=2019-01, and was there first"
            ),
        ),
        (
            LAST,
            [replaced(LATER), replaced(LATER, THERE)],
            (
                "all of it is superseded, 2 rows in month=2019-01, month=2019-02: version 8 (WRITE) changed rows in "
                "month=2019-01, month=2019-02, and finished later"
            ),
        ),
    ],
)
def test_a_settlement_is_told_and_kept(batch: Batch, policy: Policy, conflicts: list[Conflict], sentence: str) -> None:
    settlement = settled(batch, policy, *conflicts).settlements[0]
    assert str(settlement) == sentence
    # An earlier release knew more outcomes.
    records = [settlement.to_json(), {**settlement.to_json(), "outcome": "kept"}, "odd"]
    staged = {"format": FORMAT, "writers": [], "settlements": records}
    assert Settlement.of(Commit(1, [{"commitInfo": {"staged": staged}}])) == (settlement,)
