from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.buffers.layout import CLOSED
from airflow_provider_onelake.buffers.markers import write_marker
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.choices import OnMissingWriter, OnRerun, Policy, PublishMode
from airflow_provider_onelake.exceptions import BufferInvalidError
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.in_flight import WritersInFlight, writers_in_flight
from airflow_provider_onelake.modes import OverwritePartitions, ReplaceWhere
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.reconcile import reconcile
from tests.support.clocks import HeldClock
from tests.support.shadows import compact, planned
from tests.support.stores import Counted, through
from tests.support.tables import (
    LOAD,
    claim,
    commit_of,
    foreign_append,
    foreign_commit,
    ids,
    local_log,
    make_table,
    prepare,
    stage,
    writer_spec,
)

OTHER = Load("test", "taxi", "load", "2019-02-01T00:00:00+00:00")


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = make_table(tmp_path / "t")
    foreign_append(log, {"2019-01": [1]})
    return log


def replacing(writer: str = "w", load: Load = LOAD, **terms: object) -> WriteSpec:
    return writer_spec(writer, load, mode=ReplaceWhere("month = '2019-01'"), **terms)


def file(path: str, month: str = "2019-01") -> dict[str, Any]:
    return {"path": path, "partitionValues": {"month": month}}


def look(log: DeltaLog, abandoned_after: timedelta | None = None) -> WritersInFlight:
    snapshot = log.snapshot()
    return writers_in_flight(log, snapshot, abandoned_after)


def test_a_writer_needs_what_its_load_published_before_and_nothing_of_others(log: DeltaLog) -> None:
    first = stage(log, writer_spec("a"), {"2019-01": [2]})
    other = stage(log, writer_spec("a", OTHER), {"2019-01": [3]})
    Committer(log).publish([first])
    Committer(log).publish([other])
    paths = [f"{buffer.path}/month=2019-01/x.parquet" for buffer in (first, other)]
    assert [look(log).why_needed(file(path)) for path in paths] == [None, None]
    prepare(log, replacing("b"))
    # What came after it read the table it would replace, or it is refused. It need not tell it apart.
    foreign_append(log, {"2019-01": [4]})
    found = look(log)
    assert f"load {LOAD.id} has a writer" in str(found.why_needed(file(paths[0])))
    assert found.why_needed(file(paths[1])) is None
    assert not any(found.why_needed(add) for add in commit_of(log, 4).adds)


def test_a_writer_that_has_only_claimed_its_key_is_in_flight(log: DeltaLog) -> None:
    spec = replacing("b")
    log.store.create(
        f"{spec.identity.directory}/_claim-1.json", json.dumps({"task": "t", "app_id": spec.identity.app_id}).encode()
    )
    assert look(log).loads == {LOAD.id}


@pytest.mark.parametrize("said", [{"task": "t"}, {"task": "t", "app_id": 7}, {"task": "t", "app_id": "onelake/cut"}])
def test_a_claim_that_does_not_name_a_writer_is_damaged(log: DeltaLog, said: dict[str, Any]) -> None:
    log.store.create(f"{writer_spec().identity.directory}/_claim-1.json", json.dumps(said).encode())
    with pytest.raises(BufferInvalidError, match="nobody knows which writer"):
        look(log)


def test_a_rerun_that_has_only_claimed_is_in_flight_though_its_older_buffer_is_closed(log: DeltaLog) -> None:
    for writer, month in (("w", "2019-01"), ("mate", "2019-02")):
        Committer(log).publish([stage(log, writer_spec(writer, mode=OverwritePartitions()), {month: [2]})])
    assert look(log).loads == frozenset()
    claim(log, writer_spec("w", mode=OverwritePartitions(), generation=2))
    assert look(log).loads == {LOAD.id}
    # Also where the marker was written late, after the rerun's claim.
    for marker in Path(log.table, LOAD.writer("w").directory).rglob(CLOSED):
        os.utime(marker, (time.time() + 60,) * 2)
    assert look(log).loads == {LOAD.id}


def test_a_rerun_that_has_only_claimed_is_in_flight_though_its_older_buffer_was_cleaned_up(log: DeltaLog) -> None:
    spec = writer_spec("w", mode=OverwritePartitions())
    path = stage(log, spec, {"2019-01": [2]}).path
    write_marker(log.store, path, {"reason": "by hand"})
    for version in (1, 0):
        log.store.delete(f"{path}/{version_path(version)}")
    assert look(log).loads == frozenset()
    os.utime(Path(log.table, path, CLOSED), (time.time() - 60,) * 2)
    claim(log, attrs.evolve(spec, generation=2))
    assert look(log).loads == {LOAD.id}


def test_a_rerun_that_appends_anew_needs_what_it_takes_back(log: DeltaLog) -> None:
    first = stage(log, writer_spec("a"), {"2019-01": [2, 3]})
    Committer(log).publish([first])
    foreign_append(log, {"2019-01": [4, 5]})
    again = stage(log, writer_spec("a", generation=2, on_rerun=OnRerun.REPLACE), {"2019-01": [6]})
    found = planned(log)
    assert {file["path"].startswith("staged/") for group in found.groups for file in group.inputs} == {False}
    compact(log)
    Committer(local_log(Path(log.table))).publish([again])
    assert ids(Path(log.table)) == [1, 4, 5, 6]


def settle_by_publishing(log: DeltaLog) -> None:
    Committer(log).publish([stage(log, replacing(), {"2019-01": [2]})])


def settle_by_setting_aside(log: DeltaLog) -> None:
    write_marker(log.store, stage(log, replacing(), {"2019-01": [2]}).path, {"reason": "by hand"})


def settle_by_skipping(log: DeltaLog) -> None:
    Committer(log).publish([stage(log, writer_spec(), {"2019-01": [2]})])
    prepare(log, writer_spec(generation=2))


def settle_by_cleaning_up(log: DeltaLog) -> None:
    path = stage(log, replacing(), {"2019-01": [2]}).path
    write_marker(log.store, path, {"reason": "by hand"})
    for version in (1, 0):
        log.store.delete(f"{path}/{version_path(version)}")


@pytest.mark.parametrize(
    "settle", [settle_by_publishing, settle_by_setting_aside, settle_by_skipping, settle_by_cleaning_up]
)
def test_a_settled_writer_needs_nothing(log: DeltaLog, settle: object) -> None:
    settle(log)  # type: ignore[operator]
    assert look(log).loads == frozenset()


def test_writers_that_the_table_knows_cost_one_listing_and_no_more(log: DeltaLog) -> None:
    strange = Load("deployment one", "dag.1", "group/with slash", "scheduled__2019-01-01T00:00:00+00:00")
    for load in (LOAD, OTHER, strange):
        for writer in ("a", "Ünï cödé / 100%", "ß"):
            Committer(log).publish([stage(log, writer_spec(writer, load), {"2019-01": [2]})])
    snapshot = log.snapshot()
    store = Counted(log.store)
    found = writers_in_flight(through(store, log), snapshot)
    assert found.loads == frozenset()
    assert store.calls == {"list": 1}
    # Nor for telling whose files they are, once somebody is at work.
    claim(log, writer_spec("b"))
    store = Counted(log.store)
    found = writers_in_flight(through(store, log), snapshot)
    needed = [found.why_needed(add) is not None for commit in log.commits_since(1) for add in commit.adds]
    assert needed == [True] * 3 + [False] * 6
    assert store.calls == {"list": 1, "get": 1}


def test_an_application_id_of_somebody_else_is_passed_over(log: DeltaLog) -> None:
    strange = ["onelake", "onelake/a/b", "onelake//b/c/d/e", "spark/a/b/c/d/e", "onelake/a/b/c/d/e/f"]
    foreign_commit(log, [{"txn": {"appId": app_id, "version": 1}} for app_id in strange])
    assert look(log).loads == frozenset()


def test_a_writer_is_forgotten_when_its_buffer_is_too_old_to_be_published(log: DeltaLog) -> None:
    prepare(log, replacing())
    clock = HeldClock()
    clock.forward(days=3.4)
    assert look(through(log.store, log, clock)).loads == {LOAD.id}
    clock.forward(days=0.2)
    assert look(through(log.store, log, clock)).loads == frozenset()
    assert look(log, timedelta(0)).loads == frozenset()


def test_a_strangers_directory_is_passed_over(log: DeltaLog) -> None:
    log.store.put("staged/some/thing", b"")
    log.store.put("staged/file", b"")
    assert look(log).loads == frozenset()


def test_a_missing_writer_can_be_healed_after_a_compaction(log: DeltaLog) -> None:
    """Its colleagues' rows must still be known as theirs, or the whole load would have to run again."""
    terms = {"mode": OverwritePartitions(), "publish": PublishMode.TOGETHER, "expected_partitions": "month = '2019-01'"}
    for key, row in (("a", 2), ("b", 3)):
        stage(log, writer_spec(key, **terms), {"2019-01": [row]})
    prepare(log, writer_spec("c", **terms))  # and its Spark job fails
    writers = ["a", "b", "c"]
    load = Committer(log)
    report = reconcile(
        load, LOAD, writers, publish=PublishMode.TOGETHER, on_missing_writer=OnMissingWriter.PUBLISH_OTHERS
    )
    assert report.missing == ("c",)
    for row in (7, 8, 9):
        foreign_append(log, {"2019-02": [row]})
    publication = compact(log)
    assert [group.name for group in publication.groups] == ["month=2019-02"]
    stage(log, writer_spec("c", **terms), {"2019-01": [4]})
    healed = reconcile(load, LOAD, writers, publish=PublishMode.TOGETHER, on_conflict=Policy.FAIL)
    assert (healed.missing, healed.failures) == ((), ())
    assert ids(Path(log.table)) == [2, 3, 4, 7, 8, 9]
