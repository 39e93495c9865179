"""Races that the simulation found first (tests/simulation), each made to happen here step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.markers import write_marker
from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import OverwritePartitions
from airflow_provider_onelake.storage.stores import ObjectInfo, Store
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from airflow_provider_onelake.writes.reconcile import reconcile
from airflow_provider_onelake.writes.report import Report
from tests.support.commits import statuses
from tests.support.stores import LoserHeld, PassingOn, through
from tests.support.tables import (
    LOAD,
    Stage,
    finished_at,
    foreign_append,
    foreign_commit,
    prepare,
    stage,
    table_ids,
    writer_spec,
)

OVERWRITE: dict[str, Any] = {"mode": OverwritePartitions()}
BASE = datetime.now(UTC) - timedelta(hours=5)


class Meanwhile(PassingOn):
    """Lets something happen just before a directory is listed for the first time."""

    def __init__(self, inner: Store, directory: str, happens: Callable[[], object]) -> None:
        super().__init__(inner)
        self.directory = directory
        self.happens: Callable[[], object] | None = happens

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        if prefix == self.directory and self.happens is not None:
            happens, self.happens = self.happens, None
            happens()
        return super().list(prefix, start_after)


def settle(log: DeltaLog, *writers: str, store: Store | None = None, **terms: Any) -> Report:
    return reconcile(Committer(through(store or log.store, log)), LOAD, list(writers), **terms)


def together(log: DeltaLog, *writers: str, store: Store | None = None, **terms: Any) -> Report:
    return settle(log, *writers, store=store, publish=PublishMode.TOGETHER, **terms)


def publish(log: DeltaLog, buffer: Buffer) -> None:
    Committer(through(log.store, log)).publish([buffer])


def staged(log: DeltaLog, writer: str, row: int, *, hour: float = 0, **terms: Any) -> Buffer:
    buffer = stage(log, writer_spec(writer, **{**OVERWRITE, **terms}), {"2019-01": [row]})
    return finished_at(log, buffer, BASE + timedelta(hours=hour))


def test_a_writer_that_publishes_before_reconcile_has_looked_at_it_is_not_missing(log: DeltaLog) -> None:
    buffer = staged(log, "a", 1)
    store = Meanwhile(log.store, LOAD.writer("a").directory, lambda: publish(log, buffer))
    report = settle(log, "a", store=store)
    assert store.happens is None
    assert (report.missing, statuses(report)) == ((), {"a": "already_published"})
    assert report.version == 1


def test_a_colleague_that_another_reconciliation_published_meanwhile_keeps_its_rows(log: DeltaLog) -> None:
    staged(log, "a", 1)
    staged(log, "b", 2)
    held = LoserHeld(log.store, lambda: together(log, "a"))
    report = together(log, "a", "b", store=held)
    assert held.refused == 1
    assert statuses(report) == {"a": "already_published", "b": "published"}
    assert [outcome.version for outcome in report.outcomes] == [1, 2]
    assert table_ids(log) == [1, 2]


def test_a_colleague_that_is_published_before_reconcile_has_looked_at_it_keeps_its_rows(log: DeltaLog) -> None:
    staged(log, "a", 1)
    staged(log, "b", 2)
    store = Meanwhile(log.store, LOAD.writer("a").directory, lambda: together(log, "a"))
    assert statuses(together(log, "a", "b", store=store)) == {"a": "already_published", "b": "published"}
    assert table_ids(log) == [1, 2]


def test_a_colleague_whose_rerun_is_missing_keeps_the_rows_that_it_published_before(log: DeltaLog) -> None:
    staged(log, "a", 1)
    staged(log, "b", 2)
    together(log, "a", "b")
    assert isinstance(prepare(log, writer_spec("a", generation=2, **OVERWRITE)), Stage)
    staged(log, "b", 3, generation=2)
    assert statuses(together(log, "a", "b")) == {"a": "missing", "b": "published"}
    assert table_ids(log) == [1, 3]


def test_rows_of_a_colleague_of_which_one_file_was_merged_are_not_replaced(log: DeltaLog) -> None:
    stage(log, writer_spec("a", **OVERWRITE), {"2019-01": [1], "2019-02": [2]})
    together(log, "a", "b")
    (add,) = log.live_files(lambda file: file["partitionValues"]["month"] == "2019-01", 1)
    log.store.put("month=2019-01/merged.parquet", log.store.get(add["path"]))
    gone = {**add, "dataChange": False, "deletionTimestamp": 1}
    merged = {**add, "path": "month=2019-01/merged.parquet", "dataChange": False}
    foreign_commit(log, [{"commitInfo": {"operation": "OPTIMIZE"}}, {"remove": gone}, {"add": merged}])
    staged(log, "b", 3)
    assert statuses(together(log, "a", "b")) == {"a": "already_published", "b": "refused"}
    assert table_ids(log) == [1, 2]


def test_a_buffer_set_aside_is_not_published_after_a_lost_race_either(log: DeltaLog) -> None:
    aside, other = staged(log, "a", 1), staged(log, "b", 2)
    write_marker(log.store, aside.path, {"reason": "a person does not want it"})
    held = LoserHeld(log.store, lambda: foreign_append(log, {"2019-02": [9]}))
    publication = Committer(through(held, log)).publish([aside, other])
    assert (held.refused, publication.status, publication.version) == (1, PublishStatus.PUBLISHED, 2)
    assert table_ids(log) == [2, 9]


def test_a_winner_that_only_a_buffer_set_aside_had_not_seen_is_no_conflict(log: DeltaLog) -> None:
    aside = staged(log, "a", 1)
    foreign_append(log, {"2019-01": [9]})
    seen = staged(log, "b", 2)
    write_marker(log.store, aside.path, {"reason": "a person does not want it"})
    publication = Committer(through(log.store, log)).publish([aside, seen], Policy.FIRST_WRITER_WINS)
    assert publication.settlements == ()
    assert table_ids(log) == [2]
