"""How many requests a commit asks of its store, and how many of them one after another.

On a store over the network, each request that waits for another costs some tens of milliseconds.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.layout import CLOSED
from airflow_provider_onelake.buffers.markers import set_aside
from airflow_provider_onelake.commit.loop import Backoff
from airflow_provider_onelake.exceptions import StoreUnavailableError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, version_path
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.stores import ObjectInfo, Store
from airflow_provider_onelake.writes import conflicts
from airflow_provider_onelake.writes.publish import Committer, Publication, PublishStatus
from tests.support.clocks import BetweenTries
from tests.support.stores import InRounds, LoserHeld, PassingOn, through
from tests.support.tables import OVERWRITE, foreign_append, ids, local_log, stage, writer_spec


def staged(log: DeltaLog, writers: int = 1) -> list[Buffer]:
    return [stage(log, writer_spec(f"w{number}"), {"2019-01": [number]}) for number in range(writers)]


def publish(
    log: DeltaLog, rounds: InRounds, buffers: Sequence[Buffer], meanwhile: Callable[[], object] = list
) -> Publication:
    """Publish by a committer that has read the table before, as a writer has."""
    own = DeltaLog(log.store, log.table, log.clock)
    own.snapshot()
    meanwhile()
    own.store = rounds
    return Committer(own, backoff=Backoff(first=0)).publish(buffers)


def get(version: int) -> str:
    return f"get {version_path(version)}"


def create(version: int) -> list[str]:
    return [f"create {version_path(version)}"]


def of_markers(what: str, buffers: Sequence[Buffer]) -> list[str]:
    return sorted(f"{what} {buffer.path}/{CLOSED}" for buffer in buffers)


@pytest.mark.parametrize("writers", [1, 3], ids=["one append", "three together"])
def test_a_commit_alone_asks_for_all_that_it_reads_at_once(log: DeltaLog, writers: int) -> None:
    buffers = staged(log, writers)
    rounds = InRounds(log.store, 2 + writers, 1, writers)
    assert publish(log, rounds, buffers).version == 1
    first = sorted([get(0), get(1), *of_markers("get", buffers)])
    assert rounds.seen() == [first, create(1), of_markers("put", buffers)]


def test_after_a_lost_race_the_winner_and_the_version_after_it_are_asked_for_at_once(log: DeltaLog) -> None:
    buffers = staged(log)
    held = LoserHeld(log.store, lambda: foreign_append(local_log(Path(log.table)), {"2019-02": [7]}))
    rounds = InRounds(held, 3, 1, 2, 1, 1)
    publication = publish(log, rounds, buffers)
    assert (publication.version, publication.tally.lost_races) == (2, 1)
    first = sorted([get(0), get(1), *of_markers("get", buffers)])
    assert rounds.seen() == [first, create(1), [get(1), get(2)], create(2), of_markers("put", buffers)]
    assert ids(Path(log.table)) == [0, 7]


def test_a_committer_does_not_read_back_what_it_has_just_put(log: DeltaLog) -> None:
    one, other = staged(log, 2)
    own = DeltaLog(log.store, log.table, log.clock)
    Committer(own).publish([one])
    own.store = rounds = InRounds(log.store, 3, 1, 1)
    assert Committer(own).publish([other]).version == 2
    first = sorted([get(0), get(2), *of_markers("get", [other])])
    assert rounds.seen() == [first, create(2), of_markers("put", [other])]
    assert own.commit(1) == local_log(Path(log.table)).commit(1)


def test_many_winners_are_read_in_a_few_rounds(log: DeltaLog) -> None:
    buffers = staged(log)
    rounds = InRounds(log.store, 3, 1, 2, 4, 8, 1, 1)
    others = local_log(Path(log.table))

    def append_nine() -> None:
        for number in range(9):
            foreign_append(others, {"2019-02": [10 + number]})

    assert publish(log, rounds, buffers, append_nine).version == 10
    first = sorted([get(0), get(1), *of_markers("get", buffers)])
    looked = [[get(2)], [get(3), get(4)], [get(n) for n in range(5, 9)], [get(n) for n in range(9, 17)]]
    assert rounds.seen() == [first, *looked, create(10), of_markers("put", buffers)]


def test_an_overwrite_looks_at_each_winner_once(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def look(winner: Commit, *others: Any) -> Any:
        looked.append(winner.version)
        return conflicts_with(winner, *others)

    conflicts_with = conflicts._with
    monkeypatch.setattr(conflicts, "_with", look)
    other = lambda: foreign_append(local_log(Path(log.table)), {"2019-02": [7]})  # noqa: E731
    for key, terms, seen in (("a", {}, []), ("b", OVERWRITE, [8, 9, 10, 11, 12, 13])):
        buffer = stage(log, writer_spec(key, **terms), {"2019-01": [1]})
        held = LoserHeld(log.store, *[other] * 5)
        other()
        publication = Committer(through(held, log), backoff=Backoff(first=0)).publish([buffer])
        assert (publication.tally.attempts, looked) == (6, seen)


class Silent(PassingOn):
    """Does not answer the first request for an entry of the table's log."""

    silent = True

    def get(self, path: str) -> bytes:
        if self.silent and path.startswith(f"{LOG_DIRECTORY}/"):
            self.silent = False
            raise StoreUnavailableError(f"no answer for {path}")
        return super().get(path)


@pytest.mark.parametrize("at_once", [1, 64])
def test_a_buffer_set_aside_while_the_store_was_silent_is_not_published(log: DeltaLog, at_once: int) -> None:
    (buffer,) = staged(log)
    clock = BetweenTries(lambda: set_aside(log.store, buffer.path, "by a person"))
    own = DeltaLog(log.store, log.table, clock)
    own.snapshot()
    own.store = InRounds(Silent(log.store), concurrency=at_once)
    publication = Committer(own).publish([buffer])
    assert (publication.status, publication.tally.unanswered) == (PublishStatus.SET_ASIDE, 1)
    assert ids(Path(log.table)) == []


class LoadedAnew(PassingOn):
    """Takes several requests at once. Before its log is listed, it lets something happen once the markers were read."""

    def __init__(self, inner: Store, markers: Sequence[str], happening: Callable[[], object]) -> None:
        super().__init__(inner)
        self.concurrency = 64
        self.happening = happening
        self.unread = {path: threading.Event() for path in markers}
        self.reads: Counter[str] = Counter()

    def get(self, path: str) -> bytes:
        try:
            return super().get(path)
        finally:
            self.reads[path] += 1
            if path in self.unread:
                self.unread[path].set()

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        assert all(read.wait(30) for read in self.unread.values())
        self.happening()
        return super().list(prefix, start_after)


def test_a_buffer_set_aside_while_the_table_was_loaded_anew_is_not_published(log: DeltaLog) -> None:
    (buffer,) = staged(log)
    marker = f"{buffer.path}/{CLOSED}"
    own = DeltaLog(log.store, log.table, log.clock)
    own.snapshot()
    # The entry's bytes change, so the log cannot know that the table is the same.
    log.store.put(version_path(0), log.store.get(version_path(0)) + b"\n")
    own.store = store = LoadedAnew(log.store, [marker], lambda: set_aside(log.store, buffer.path, "by a person"))
    assert Committer(own).publish([buffer]).status is PublishStatus.SET_ASIDE
    assert (store.reads[marker], own.loads) == (2, 2)
    assert ids(Path(log.table)) == []


def test_before_a_table_is_loaded_for_the_first_time_no_marker_is_read(log: DeltaLog) -> None:
    (buffer,) = staged(log)
    own = DeltaLog(log.store, log.table, log.clock)
    own.store = store = LoadedAnew(log.store, [], lambda: set_aside(log.store, buffer.path, "by a person"))
    assert Committer(own).publish([buffer]).status is PublishStatus.SET_ASIDE
    assert (store.reads[f"{buffer.path}/{CLOSED}"], own.loads) == (1, 1)
