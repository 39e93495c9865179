"""What a true conflict means, policy by policy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.commit.batch import Batch, place
from airflow_provider_onelake.commit.conflicts import Conflict, Effect
from airflow_provider_onelake.commit.policy import Contest, Settled, settle
from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.log.commits import FORMAT, Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.staging.modes import OverwritePartitions
from tests.support.tables import finished_at, stage, writer_spec

MINE = datetime(2026, 1, 1, 12, tzinfo=UTC)
EARLIER, LATER = MINE - timedelta(hours=1), MINE + timedelta(hours=1)
HERE, THERE = ("2019-01",), ("2019-02",)
MONTHLY = Partitioning({"month": "string"})
APPENDED, REPLACED, CHANGED = Effect
LAST, FIRST = Policy.LAST_WRITER_WINS, Policy.FIRST_WRITER_WINS


@pytest.fixture
def batch(log: DeltaLog) -> Batch:
    snapshot = log.snapshot()
    buffer = stage(log, writer_spec("mine", mode=OverwritePartitions()), {"2019-01": [1], "2019-02": [2]})
    return place([finished_at(log, buffer, MINE)], snapshot)


def file(path: str, partition: Any = HERE) -> dict[str, Any]:
    return {"path": path, "partitionValues": {"month": partition[0]}, "dataChange": True}


def met(at: datetime | None, effect: Effect = CHANGED, partition: Any = HERE, version: int = 7) -> Conflict:
    """A foreign winner, which put one file there."""
    added = file(f"{version}-{partition and partition[0]}", partition or HERE)
    winner = Commit(version, [{"commitInfo": {"operation": "WRITE"}}, {"add": added}], modified=at)
    return Conflict(partition, winner, effect, (added["path"],) if effect is APPENDED else ())


def ours(at: datetime, app_id: str) -> Conflict:
    record = {"app_id": app_id, "writer": "theirs", "generation": 1, "buffer": "b", "rows": 1, "fingerprint": ""}
    staged = {"format": FORMAT, "writers": [{**record, "finished": at.isoformat()}]}
    return Conflict(HERE, Commit(7, [{"commitInfo": {"timestamp": 1, "staged": staged}}]), REPLACED)


def settled(
    batch: Batch,
    policy: Policy,
    *conflicts: Conflict,
    live: tuple[dict[str, Any], ...] = (),
    also: tuple[Commit, ...] = (),
) -> Settled:
    winners = {winner.version: winner for winner in (*(conflict.winner for conflict in conflicts), *also)}
    contest = Contest(
        batch=batch,
        conflicts=conflicts,
        order=list(winners),
        commits=[winners[version] for version in sorted(winners)],
        removable=live,
        partitioning=MONTHLY,
        table="trips",
    )
    return settle(contest, policy)


def outcomes(found: Settled) -> list[str]:
    return [settlement.outcome.value for settlement in found.settlements]


@pytest.mark.parametrize("at", [LATER, None], ids=["later", "nobody knows when"])
def test_the_last_writer_is_refused_whole_after_a_later_change(batch: Batch, at: datetime | None) -> None:
    with pytest.raises(ConflictError, match="what it would have done to their rows, the log does not say"):
        settled(batch, LAST, met(at, CHANGED))


def test_a_later_change_matters_while_a_later_overwrite_does_not_hide_all_rows(batch: Batch) -> None:
    """It may have been meant for the batch's rows in the other partition, too."""
    here = met(LATER, CHANGED, version=7), met(LATER, REPLACED, version=8)
    with pytest.raises(ConflictError, match="version 7"):
        settled(batch, LAST, *here)
    found = settled(batch, LAST, *here, met(LATER, REPLACED, THERE, version=8))
    assert outcomes(found) == ["superseded"] * 3


def test_nothing_hides_a_later_restore(batch: Batch) -> None:
    """It would have taken back also what the batch replaces without having rows there."""
    restore = Conflict(HERE, Commit(7, [{"commitInfo": {"operation": "RESTORE"}}], modified=LATER), CHANGED)
    with pytest.raises(ConflictError, match=r"version 7 \(RESTORE\)"):
        settled(batch, LAST, restore, met(LATER, REPLACED, HERE, 8), met(LATER, REPLACED, THERE, 8))


def test_no_write_is_placed_before_a_restore_that_did_not_meet_it(batch: Batch) -> None:
    """It would have taken the batch's rows back, though it found nothing there."""
    restore = Commit(8, [{"commitInfo": {"operation": "RESTORE"}}], modified=LATER)
    appended = met(LATER, APPENDED)
    with pytest.raises(ConflictError, match=r"version 8 \(RESTORE\) came after that"):
        settled(batch, LAST, appended, also=(restore,), live=(file("7-2019-01"),))
    assert outcomes(settled(batch, LAST, met(EARLIER, APPENDED), also=(restore,))) == ["replaced"]


def test_a_restore_after_a_winner_that_replaced_all_of_the_batch_takes_nothing_of_it_back(batch: Batch) -> None:
    restore = Commit(9, [{"commitInfo": {"operation": "RESTORE"}}], modified=LATER)
    replaced = met(LATER, REPLACED), met(LATER, REPLACED, THERE, 8)
    assert outcomes(settled(batch, LAST, *replaced, also=(restore,))) == ["superseded"] * 2
    with pytest.raises(ConflictError, match=r"version 9 \(RESTORE\) came after that"):
        settled(batch, LAST, *replaced, also=(restore,), live=(file("old", ("2019-03",)),))


def test_what_counts_after_a_later_winner_is_later_too_whenever_it_finished(batch: Batch) -> None:
    """Else the batch would be before the one and after the other, which stand in the order in which they count."""
    conflicts = met(LATER, REPLACED, HERE, version=7), met(EARLIER, APPENDED, THERE, version=8)
    found = settled(batch, LAST, *conflicts, live=(file("7-2019-01"), file("8-2019-02", THERE)))
    assert outcomes(found) == ["superseded", "kept"]
    assert found.before == 7


def test_rows_that_a_compaction_mixed_with_later_ones_cannot_be_replaced(batch: Batch) -> None:
    append = met(LATER, APPENDED)
    moved = {"dataChange": False, "partitionValues": {"month": "2019-01"}}
    removed = [{"remove": {**moved, "path": path}} for path in ("old", "7-2019-01")]
    compaction = Commit(8, [*removed, {"add": {**moved, "path": "both"}}])
    contest = Contest(batch, [append], [7], [append.winner, compaction], [file("both")], MONTHLY, "trips")
    with pytest.raises(ConflictError, match="both may hold older rows beside its own"):
        settle(contest, LAST)
    alone = Commit(8, [removed[1], {"add": {**moved, "path": "moved"}}])
    contest = Contest(batch, [append], [7], [append.winner, alone], [file("old"), file("moved")], MONTHLY, "trips")
    assert settle(contest, LAST).kept == {"moved"}


def rewrite(version: int, *paths: str) -> Conflict:
    """A foreign DELETE that finished later and moved what it left of some files into a file of its own."""
    added = file(f"{version}-2019-01")
    removed = [{"remove": file(path)} for path in paths]
    actions = [{"commitInfo": {"operation": "DELETE"}}, *removed, {"add": added}]
    return Conflict(HERE, Commit(version, actions, modified=LATER + timedelta(minutes=1)), CHANGED)


def test_rows_that_a_later_delete_moved_are_as_old_as_the_files_that_they_were_in(batch: Batch) -> None:
    """A colleague's rows, which a later overwrite left alone, are older, and so are those of them that a DELETE left."""
    replaced = met(LATER, REPLACED), met(LATER, REPLACED, THERE, version=8)
    older = rewrite(9, "of a colleague")
    with pytest.raises(ConflictError, match="9-2019-01 may hold older rows beside its own"):
        settled(batch, LAST, *replaced, older, live=(file("9-2019-01"),))
    both = rewrite(9, "7-2019-01", "of a colleague")
    with pytest.raises(ConflictError, match="9-2019-01 may hold older rows beside its own"):
        settled(batch, LAST, *replaced, both, live=(file("9-2019-01"),))
    found = settled(batch, LAST, *replaced, rewrite(9, "7-2019-01"), live=(file("9-2019-01"),))
    assert found.kept == {"9-2019-01"}
    found = settled(batch, LAST, *replaced, rewrite(9), live=(file("7-2019-01"), file("9-2019-01")))
    assert found.kept == {"7-2019-01", "9-2019-01"}
    again = rewrite(10, "9-2019-01")
    with pytest.raises(ConflictError, match="10-2019-01 may hold older rows beside its own"):
        settled(batch, LAST, *replaced, older, again, live=(file("10-2019-01"),))


def test_a_later_overwrite_that_left_older_rows_is_none(batch: Batch) -> None:
    with pytest.raises(ConflictError, match="left older rows there, such as those of survivor"):
        settled(batch, LAST, met(LATER, REPLACED), live=(file("survivor"),))


def test_a_tie_has_one_order_for_everybody(batch: Batch) -> None:
    mine = batch.finished[1]
    assert outcomes(settled(batch, LAST, ours(MINE, mine + "x"))) == ["superseded"]
    assert outcomes(settled(batch, LAST, ours(MINE, "a" + mine))) == ["replaced"]
    # Itself is not earlier than itself.
    assert outcomes(settled(batch, LAST, ours(MINE, mine))) == ["superseded"]


def test_a_winner_of_which_nobody_knows_when_it_finished_is_not_replaced(batch: Batch) -> None:
    assert outcomes(settled(batch, LAST, met(None, REPLACED))) == ["superseded"]


def test_a_winner_that_does_not_say_where_it_removed_rows_is_refused(batch: Batch) -> None:
    with pytest.raises(ConflictError, match="a partition that it does not name"):
        settled(batch, Policy.FAIL, met(EARLIER, partition=None))


def test_a_winner_that_does_not_say_where_it_removed_rows_is_replaced_where_it_finished_earlier(batch: Batch) -> None:
    assert outcomes(settled(batch, LAST, met(EARLIER, partition=None))) == ["replaced"]
    with pytest.raises(ConflictError, match="a partition that it does not name"):
        settled(batch, LAST, met(LATER, partition=None))


@pytest.mark.parametrize(
    ("conflict", "sentence"),
    [
        (met(EARLIER), "month=2019-01: version 7 (WRITE) is replaced: it counts earlier"),
        (met(LATER, APPENDED), "month=2019-01: version 7 (WRITE) is kept: it appended later"),
        (
            met(LATER, REPLACED),
            (
                "month=2019-01: version 7 (WRITE) replaced the partition later, "
                "so this writer's rows there are not published"
            ),
        ),
    ],
)
def test_a_settlement_is_a_sentence_and_a_value(batch: Batch, conflict: Conflict, sentence: str) -> None:
    (settlement,) = settled(batch, LAST, conflict).settlements
    assert str(settlement) == sentence
    assert settlement.to_json()["winner_version"] == 7
