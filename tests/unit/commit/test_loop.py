"""The loop that every commit goes around, seen by a proposal of the test's own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.commit.entry import Entry
from airflow_provider_onelake.commit.loop import Backoff, Proposal, Put, Tally, Transactions, View
from airflow_provider_onelake.exceptions import StoreUnavailableError, TableNotFoundError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.storage.stores import Store
from tests.support.clocks import BetweenTries, HeldClock
from tests.support.stores import AnswerLost, LoserHeld, PassingOn, through
from tests.support.tables import foreign_append, local_log

SHORT = Backoff(budget=2.0)


class Note(Proposal[str]):
    """Writes a line into the log, unless somebody wrote more versions than it likes."""

    name = "a note"

    def __init__(self, read_version: int | None = 0, most: int = 100) -> None:
        self.read_version = read_version
        self.most = most
        self.views: list[View] = []

    def decide(self, view: View) -> Put | str:
        self.views.append(view)
        if view.snapshot.version > self.most:
            return "too late"
        return Put(Entry(operation="NOTE", parameters={}), view.snapshot)

    def committed(self, version: int, tally: Tally) -> str | None:
        return f"committed {version} after {tally.attempts} puts"

    def give_up(self, tally: Tally) -> str:
        return f"gave up: {tally.lost_races} lost, {tally.unanswered} unanswered"


def others(log: DeltaLog, times: int) -> list[Any]:
    return [lambda: foreign_append(local_log(Path(log.table)), {"2019-01": [1]})] * times


def test_a_put_lands_at_the_next_version(log: DeltaLog) -> None:
    note = Note()
    assert Transactions(log).commit(note) == "committed 1 after 1 puts"
    assert note.views[0].tally == Tally()


def test_a_lost_race_is_decided_again_with_the_winner_in_view(log: DeltaLog) -> None:
    held = LoserHeld(log.store, *others(log, 2))
    note = Note()
    assert Transactions(through(held, log)).commit(note) == "committed 3 after 3 puts"
    assert [view.snapshot.version for view in note.views] == [0, 1, 2]
    assert [view.tally.lost_races for view in note.views] == [0, 1, 2]
    assert [winner.version for winner in note.views[-1].winners] == [1, 2]


class Adding(Note):
    """Adds a file, and a second one once it has lost a race."""

    def decide(self, view: View) -> Put | str:
        decided = super().decide(view)
        assert isinstance(decided, Put)
        named = ["a", "b"][: len(self.views)]
        adds: Any = [{"path": f"{name}.parquet", "partitionValues": {"month": "2019-01"}} for name in named]
        return attrs.evolve(decided, entry=attrs.evolve(decided.entry, added=adds))


class HeldDisk(LoserHeld):
    """A disk whose syncs are noted."""

    def __init__(self, inner: Store, *winners: Any) -> None:
        super().__init__(inner, *winners)
        self.synced: list[str] = []

    def sync(self, paths: Iterable[str]) -> None:
        self.synced += paths


def test_each_file_is_synced_once_however_often_its_entry_is_put(log: DeltaLog) -> None:
    disk = HeldDisk(AnswerLost(log.store, effect=False), *others(log, 3))
    Transactions(through(disk, log, HeldClock())).commit(Adding())
    assert disk.synced == ["a.parquet", "b.parquet"]


def test_winners_are_counted_from_the_read_version(log: DeltaLog) -> None:
    for other in others(log, 3):
        other()
    formed_on_1, formed_on_nothing = Note(1), Note(None)
    Transactions(log).commit(formed_on_1)
    Transactions(log).commit(formed_on_nothing)
    assert [winner.version for winner in formed_on_1.views[0].winners] == [2, 3]
    assert not formed_on_nothing.views[0].winners


def test_a_result_other_than_a_put_ends_it(log: DeltaLog) -> None:
    held = LoserHeld(log.store, *others(log, 1))
    assert Transactions(through(held, log)).commit(Note(most=0)) == "too late"
    assert log.snapshot_or_none() is not None


@pytest.mark.parametrize(("effect", "puts"), [(True, 1), (False, 2)])
def test_a_lost_answer_is_settled_by_looking_for_ones_own_id(log: DeltaLog, effect: bool, puts: int) -> None:
    lossy = through(AnswerLost(log.store, effect=effect), log, HeldClock())
    note = Note()
    assert Transactions(lossy).commit(note) == f"committed 1 after {puts} puts"
    assert log.snapshot().version == 1


class OfTwoMinds(Note):
    """Decides otherwise each time, as what it looks at does not lie in the log."""

    def decide(self, view: View) -> Put | str:
        decided = super().decide(view)
        assert isinstance(decided, Put)
        return attrs.evolve(decided, entry=attrs.evolve(decided.entry, txns={"decision": len(self.views)}))

    def committed(self, version: int, tally: Tally) -> str | None:
        return f"committed decision {len(self.views)}"


class LateEffect(PassingOn):
    """Does not answer the first put. It takes effect when the next one is on its way."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.late: list[tuple[str, bytes]] = []

    def create(self, path: str, data: bytes) -> None:
        if not self.late:
            self.late.append((path, data))
            raise StoreUnavailableError(f"no answer for {path}")
        if self.late[0][0] == path:
            super().create(*self.late[0])
        super().create(path, data)


def test_what_a_proposal_has_decided_last_is_what_stands_there_also_if_a_put_lands_late(log: DeltaLog) -> None:
    told = Transactions(through(LateEffect(log.store), log, HeldClock())).commit(OfTwoMinds())
    (commit,) = log.commits_since(0)
    assert told == f"committed decision {commit.txns['decision']}"


def test_a_put_that_lands_late_is_found_also_when_the_budget_is_used_up(log: DeltaLog) -> None:
    late = through(LateEffect(log.store), log, HeldClock())
    assert Transactions(late, backoff=Backoff(budget=0.0001)).commit(Note()) == "committed 1 after 2 puts"


def test_who_puts_again_what_got_no_answer_and_meets_another_gives_up_at_last(log: DeltaLog) -> None:
    lossy = LoserHeld(AnswerLost(log.store, effect=False), lambda: None, *others(log, 1))
    told = Transactions(through(lossy, log, HeldClock()), backoff=Backoff(budget=0.0001)).commit(Note())
    assert told == "gave up: 1 lost, 1 unanswered"


def test_where_another_has_taken_the_version_of_a_put_without_an_answer_it_is_decided_again(log: DeltaLog) -> None:
    lossy = AnswerLost(log.store, effect=False)
    clock = BetweenTries(*others(log, 1))
    assert Transactions(through(lossy, log, clock)).commit(OfTwoMinds()) == "committed decision 2"
    assert [commit.txns.get("decision") for commit in log.commits_since(0)] == [None, 2]


class Notes(Note):
    """Is not content before a version is there."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.last = last

    def committed(self, version: int, tally: Tally) -> str | None:
        return super().committed(version, tally) if version == self.last else None


@pytest.mark.parametrize("effect", [True, False])
def test_each_commit_of_a_proposal_has_an_id_of_its_own(log: DeltaLog, effect: bool) -> None:
    lossy = through(AnswerLost(log.store, times=2, effect=effect), log, HeldClock())
    assert Transactions(lossy).commit(Notes(3)).startswith("committed 3 after ")
    commits = log.commits_since(0)
    assert [commit.version for commit in commits] == [1, 2, 3]
    assert len({commit.txn_id for commit in commits}) == 3


def test_further_ids_cost_no_draw(log: DeltaLog) -> None:
    random, drawn = Random(1), Random(1)
    drawn.getrandbits(128)
    Transactions(log, random).commit(Notes(3))
    assert random.getstate() == drawn.getstate()


def test_who_always_loses_gives_up_when_the_budget_is_used_up(log: DeltaLog) -> None:
    clock = HeldClock()
    held = through(LoserHeld(log.store, *others(log, 50)), log, clock)
    told = Transactions(held, Random(1), SHORT).commit(Note())
    assert told.startswith("gave up: ")
    assert told.endswith(" lost, 0 unanswered")
    assert sum(clock.sleeps) < 4


def test_a_store_that_never_answers_is_given_up_with_its_words(log: DeltaLog) -> None:
    silent = through(AnswerLost(log.store, times=10_000, effect=False), log, HeldClock())
    note = Note()
    with pytest.raises(StoreUnavailableError, match="no answer"):
        Transactions(silent, backoff=SHORT).commit(note)
    assert note.views[-1].tally.lost_races == 0


def test_a_table_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match="There is no Delta table at"):
        Transactions(local_log(tmp_path / "none")).commit(Note())


def test_what_follows_a_commit_cannot_undo_it(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    followed: list[tuple[int, int]] = []

    def follow(snapshot: Snapshot, version: int) -> None:
        followed.append((snapshot.version, version))
        raise OSError("no space left")

    assert Transactions(log, after_commit=follow).commit(Note()) == "committed 1 after 1 puts"
    assert followed == [(0, 1)]
    assert "version 1 is committed; what follows a commit failed" in caplog.text


class _Highest(Random):
    def uniform(self, a: float, b: float) -> float:
        return b


@pytest.mark.parametrize(("attempt", "bound"), [(1, 0.5), (2, 1), (3, 2), (4, 4), (5, 5), (6, 5), (100_000, 5)])
def test_the_bound_doubles_up_to_the_longest(attempt: int, bound: float) -> None:
    assert Backoff(first=0.5, longest=5).wait(attempt, _Highest()) == bound


def test_after_silence_a_wait_may_be_longer_than_after_a_lost_race(log: DeltaLog) -> None:
    waits = {}
    for name, store in (
        ("lost", LoserHeld(log.store, *others(log, 8))),
        ("silent", AnswerLost(log.store, times=8, effect=False)),
    ):
        clock = HeldClock()
        Transactions(through(store, log, clock), _Highest(), Backoff(first=0.5, longest=1, silent=4)).commit(Note())
        waits[name] = clock.sleeps
    assert waits == {"lost": [0.5, *[1.0] * 7], "silent": [0.5, 1.0, 2.0, *[4.0] * 5]}


def test_the_wait_is_drawn_between_nothing_and_the_bound() -> None:
    random, backoff = Random(1), Backoff(first=0.5, longest=5)
    waits = [backoff.wait(3, random) for _ in range(500)]
    assert all(0 <= wait <= 2 for wait in waits)
    assert min(waits) < 0.2
    assert max(waits) > 1.8


def test_equal_seeds_wait_equally() -> None:
    assert [Backoff().wait(n, Random(7)) for n in range(1, 9)] == [Backoff().wait(n, Random(7)) for n in range(1, 9)]
