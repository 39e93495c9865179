"""Whose a writer's key is, and which generation a start has (protocol: generation)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_onelake.buffers.claims import Start, begin, claims, generation_of
from airflow_provider_onelake.buffers.layout import WriterDirectory
from airflow_provider_onelake.exceptions import (
    DuplicateWriterError,
    StoreUnavailableError,
    UnsafeStoreError,
    ZombieWriterError,
)
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.stores import ObjectInfo, ObjectStore
from airflow_provider_onelake.writes.publish import Committer
from tests.support.stores import Counted, PassingOn, through
from tests.support.tables import LOAD, foreign_append, stage, writer_spec

W = LOAD.writer("w")


def task_start(name: str = "first", **more: Any) -> Start:
    given = {"task": "load.write", "run_id": "monday", "chain": "a", "began": 1, **more}
    return Start(id=name, **given)


CLEARED = task_start("cleared", first_try=2)


def test_every_try_of_a_deed_has_its_generation_and_the_next_deed_the_next(log: DeltaLog) -> None:
    assert [begin(log, W, one).generation for one in (task_start(), task_start(), CLEARED, CLEARED)] == [1, 1, 2, 2]
    assert WriterDirectory.read(log.store, W.directory).generation == 2
    assert [generation_of(log.store, W, name) for name in ("first", "cleared", "other")] == [1, 2, None]


def test_a_zombie_of_an_older_deed_is_refused(log: DeltaLog) -> None:
    begin(log, W, task_start())
    begin(log, W, CLEARED)
    with pytest.raises(ZombieWriterError, match=r"has been rerun since by load.write of the run monday \(generation 2"):
        begin(log, W, task_start())


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(CLEARED, id="the task was cleared"),
        pytest.param(task_start("again", chain="b", began=2), id="the run was deleted and made again"),
        pytest.param(task_start("other", chain="b", began=2, run_id="tuesday"), id="another run of the partition"),
    ],
)
def test_so_is_one_that_never_got_as_far_as_its_claim(log: DeltaLog, later: Start) -> None:
    assert begin(log, W, later).generation == 1
    with pytest.raises(ZombieWriterError):
        begin(log, W, task_start())
    assert len(claims(log.store, W)) == 1


def test_a_run_that_is_made_again_follows_whatever_its_tries(log: DeltaLog) -> None:
    begin(log, W, task_start(first_try=7))
    assert begin(log, W, task_start("again", chain="b", first_try=1, began=2)).generation == 2


def test_the_second_task_with_a_key_is_refused_unless_the_first_has_lost_it(log: DeltaLog) -> None:
    begin(log, W, task_start())
    other = task_start("other", task="load.write[1]", chain="b")
    with pytest.raises(DuplicateWriterError, match=r"key 'w': load.write and load.write\[1\]"):
        begin(log, W, other)
    assert begin(log, W, other, is_rival=lambda _: False).generation == 2


def test_of_two_tasks_that_claim_at_once_the_second_is_told(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    create = ObjectStore.create

    def late(self: ObjectStore, path: str, data: bytes) -> None:
        monkeypatch.setattr(ObjectStore, "create", create)
        begin(log, W, task_start())
        create(self, path, data)

    monkeypatch.setattr(ObjectStore, "create", late)
    with pytest.raises(DuplicateWriterError):
        begin(log, W, task_start("other", task="load.other", chain="b"))
    assert [found.task for found in claims(log.store, W)] == ["load.write"]


def test_a_claim_whose_answer_was_lost_is_its_own(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    create = ObjectStore.create

    def twice(self: ObjectStore, path: str, data: bytes) -> None:
        monkeypatch.setattr(ObjectStore, "create", create)
        create(self, path, data)
        create(self, path, data)

    monkeypatch.setattr(ObjectStore, "create", twice)
    assert begin(log, W, task_start()).generation == 1


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"deed": {"id": 1}}', b'{"task": "load.write"}'])
def test_of_a_damaged_claim_the_number_counts(log: DeltaLog, damaged: bytes) -> None:
    log.store.put(f"{W.directory}/_claim-3.json", damaged)
    assert begin(log, W, task_start()).generation == 4
    log.store.put(f"{W.directory}/_claim-5.json", damaged)
    with pytest.raises(ZombieWriterError, match="has been rerun since"):
        begin(log, W, task_start())


def test_where_claims_were_lost_the_table_s_word_counts(log: DeltaLog) -> None:
    """A full VACUUM by deltalake takes them."""
    buffer = stage(log, writer_spec("w", generation=4), {"2019-01": [1]})
    Committer(log).publish([buffer])
    log.store.delete(f"{W.directory}/_claim-4.json")
    assert begin(log, W, task_start()).generation == 5


def test_who_looks_again_is_told_of_a_newer_generation(log: DeltaLog) -> None:
    turn = begin(log, W, task_start())
    assert turn.anew(log).generation == 1
    begin(log, W, CLEARED)
    with pytest.raises(ZombieWriterError, match=r"has been rerun since \(generation 2, this attempt is of 1\)"):
        turn.anew(log)


def test_a_listing_that_shows_a_note_before_its_claim_opens_no_other_generation(log: DeltaLog) -> None:
    begin(log, W, task_start())
    begin(log, W, CLEARED)
    log.store.put(f"{W.directory}/_skipped-2.json", b"{}")

    class Torn(PassingOn):
        torn = True

        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            torn, self.torn = self.torn, False
            found = super().list(prefix, start_after)
            return (info for info in found if not (torn and info.path.endswith("_claim-2.json")))

    assert begin(through(Torn(log.store), log), W, CLEARED).generation == 2


def test_a_turn_has_the_table_after_the_claim_and_the_directory_before(log: DeltaLog) -> None:
    class Slow(PassingOn):
        def create(self, path: str, data: bytes) -> None:
            foreign_append(log, {"2019-01": [1]})
            super().create(path, data)

    turn = begin(through(Slow(log.store), log), W, task_start())
    assert turn.snapshot is not None
    assert (turn.snapshot.version, list(turn.directory.objects)) == (1, [])
    assert list(turn.anew(log).directory.claims) == [1]


def test_a_store_whose_create_only_put_is_none_is_found_by_the_first_claim(log: DeltaLog) -> None:
    class Careless(PassingOn):
        def create(self, path: str, data: bytes) -> None:
            self.put(path, data)

    careless = through(Careless(log.store), log)
    with pytest.raises(UnsafeStoreError, match="let a second create-only put through"):
        begin(careless, W, task_start(), prove=True)
    # Only who asks is told; and the claim is still this writer's.
    assert begin(careless, W, task_start()).generation == 1


def test_the_proof_costs_one_put_and_a_claim_that_is_there_none(log: DeltaLog) -> None:
    counts = []
    for key, prove in (("unproven", False), ("proven", True), ("proven", True)):
        counted = Counted(log.store)
        begin(through(counted, log), LOAD.writer(key), task_start(), prove=prove)
        counts.append(counted.calls["create"])
    assert counts == [1, 2, 0]


def test_an_answer_that_is_lost_proves_nothing_and_stops_nobody(log: DeltaLog) -> None:
    class Lost(PassingOn):
        asked = 0

        def create(self, path: str, data: bytes) -> None:
            self.asked += 1
            if self.asked == 2:
                raise StoreUnavailableError("no answer")
            super().create(path, data)

    assert begin(through(Lost(log.store), log), W, task_start(), prove=True).generation == 1
