"""Which loads wait, as the table's directory tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.buffers.markers import set_aside
from airflow_provider_onelake.buffers.waiting import WaitingLoad, loads_waiting
from airflow_provider_onelake.choices import PublishMode
from airflow_provider_onelake.exceptions import BufferInvalidError
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY
from airflow_provider_onelake.writes.publish import Committer
from tests.support.stores import Counted, through
from tests.support.tables import EARLIER_LOAD, LOAD, OVERWRITE, make_table, prepare, stage, writer_spec

ROWS: dict[str | None, list[int]] = {"2019-01": [1]}


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return make_table(tmp_path / "trips")


def waiting(log: DeltaLog) -> list[WaitingLoad]:
    listing = list(log.store.list(STAGED_DIRECTORY))
    return loads_waiting(log, log.snapshot(), listing)


def names(log: DeltaLog) -> list[tuple[str, tuple[str, ...], PublishMode]]:
    return [(one.load.run[:7], one.writers, one.publish) for one in waiting(log)]


def test_without_a_complete_buffer_no_load_waits(log: DeltaLog) -> None:
    prepare(log, writer_spec("at work"))
    published = stage(log, writer_spec("published"), ROWS)
    Committer(log).publish([published])
    aside = stage(log, writer_spec("aside"), ROWS)
    set_aside(log.store, aside.path, "for the test")
    assert names(log) == []


def test_a_load_waits_with_all_its_writers_that_have_begun(log: DeltaLog) -> None:
    Committer(log).publish([stage(log, writer_spec("published"), ROWS)])
    stage(log, writer_spec("complete"), ROWS)
    prepare(log, writer_spec("at work"))
    aside = stage(log, writer_spec("aside"), ROWS)
    set_aside(log.store, aside.path, "for the test")
    stage(log, writer_spec("of before", EARLIER_LOAD, publish=PublishMode.TOGETHER), ROWS)
    ours = ("2019-01", ("aside", "at work", "complete"), PublishMode.EACH)
    assert names(log) == [("2018-12", ("of before",), PublishMode.TOGETHER), ours]
    assert waiting(log)[1].load == LOAD


def test_a_published_buffer_whose_marker_is_missing_does_not_wait(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec("late"), ROWS)
    Committer(log).publish([buffer])
    log.store.delete(f"{buffer.path}/_closed.json")
    assert names(log) == []


def test_a_buffer_of_an_older_generation_does_not_wait(log: DeltaLog) -> None:
    stage(log, writer_spec("again", **OVERWRITE), ROWS)
    prepare(log, writer_spec("again", generation=2, **OVERWRITE))
    assert names(log) == []
    stage(log, writer_spec("again", generation=2, **OVERWRITE), ROWS)
    assert names(log) == [("2019-01", ("again",), PublishMode.EACH)]


def test_a_writer_whose_buffer_cannot_be_read_is_known_by_its_claim(log: DeltaLog) -> None:
    stage(log, writer_spec("well"), ROWS)
    damaged = stage(log, writer_spec("damaged"), ROWS)
    log.store.put(f"{damaged.path}/{version_path(0)}", b"{")
    assert names(log) == [("2019-01", ("damaged", "well"), PublishMode.EACH)]


def test_a_writer_without_a_claim_is_known_by_its_buffer(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec("w"), ROWS)
    log.store.delete(f"{buffer.spec.identity.directory}/_claim-1.json")
    assert names(log) == [("2019-01", ("w",), PublishMode.EACH)]


def test_a_claim_that_is_damaged_is_named(log: DeltaLog) -> None:
    stage(log, writer_spec("well"), ROWS)
    prepare(log, writer_spec("w"))
    at_work = log.store.list(writer_spec("w").identity.directory)
    for info in list(at_work):
        log.store.delete(info.path)
    log.store.put(f"{writer_spec('w').identity.directory}/_claim-1.json", b"{")
    with pytest.raises(BufferInvalidError, match=r"_claim-1\.json is damaged"):
        waiting(log)


def test_writers_that_are_done_are_asked_nothing_if_no_load_waits(log: DeltaLog) -> None:
    for number in range(5):
        Committer(log).publish([stage(log, writer_spec(f"w{number}"), ROWS)])
    counted = Counted(log.store)
    listing, other = list(log.store.list(STAGED_DIRECTORY)), through(counted, log)
    snapshot = other.snapshot()
    before = counted.calls.copy()
    assert loads_waiting(other, snapshot, listing) == []
    assert counted.calls == before
