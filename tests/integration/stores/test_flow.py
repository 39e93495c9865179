"""What the package does with a store, on every kind of store: the same rows, the same versions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.choices import PublishMode
from airflow_provider_onelake.exceptions import ObjectExistsError, ObjectNotFoundError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.checkpoints import clean_up_log
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.replay import LAST_CHECKPOINT
from airflow_provider_onelake.maintenance.vacuum import VacuumTerms, plan
from airflow_provider_onelake.modes import OverwritePartitions
from airflow_provider_onelake.triggers.delta_log import DeltaLogTrigger
from airflow_provider_onelake.triggers.wait import DeltaLogWaitTrigger
from airflow_provider_onelake.writes.publish import PublishStatus
from airflow_provider_onelake.writes.reconcile import reconcile
from tests.support.clocks import HeldClock
from tests.support.object_stores import WITH_ONELAKE, Lake
from tests.support.tables import EARLIER_LOAD, LOAD, foreign_append, stage, writer_spec

pytestmark = pytest.mark.parametrize("lake", WITH_ONELAKE, indirect=True)

TABLE = "Tables/t"
OVERWRITE: Mapping[str, Any] = {"mode": OverwritePartitions()}


def publish(hook: OneLakeHook, *buffers: Buffer) -> int | None:
    publication = hook.table(TABLE).committer().publish(buffers)
    assert publication.status is PublishStatus.PUBLISHED, publication
    return publication.version


def test_the_connection_is_tried(hook: OneLakeHook) -> None:
    worked, message = hook.test_connection()
    assert worked, message
    assert list(hook.get_conn().list("Files")) == []


def test_a_store_keeps_its_promises(lake: Lake) -> None:
    store = lake.log().store
    before = datetime.now(UTC)
    store.create("a b/ü=1", b"first")
    with pytest.raises(ObjectExistsError):
        store.create("a b/ü=1", b"second")
    store.put("a b/0", b"")
    assert store.get("a b/ü=1") == b"first"
    assert [info.path for info in store.list("a b")] == ["a b/0", "a b/ü=1"]
    assert [info.path for info in store.list("a b", start_after="a b/0")] == ["a b/ü=1"]
    assert list(store.list("a")) == []
    info = store.head("a b/ü=1")
    assert info.size == 5
    # Stores keep whole seconds.
    assert abs(info.modified - before) < timedelta(seconds=5)
    store.delete("a b/ü=1")
    store.delete("a b/ü=1")
    with pytest.raises(ObjectNotFoundError):
        store.get("a b/ü=1")


def test_a_listing_of_more_than_one_page_is_whole_and_in_order(lake: Lake) -> None:
    store = lake.log().store
    for number in range(1100):
        store.put(f"many/{number:05d}", b"")
    assert [info.path for info in store.list("many", start_after="many/00099")] == [
        f"many/{number:05d}" for number in range(100, 1100)
    ]


def test_staged_rows_are_published_and_read(lake: Lake, hook: OneLakeHook) -> None:
    lake.make_table()
    log = hook.table(TABLE).log
    assert publish(hook, stage(log, writer_spec("a"), {"2019-01": [1, 2], None: [3]})) == 1
    assert publish(hook, stage(log, writer_spec("b"), {"2019-02": [4]})) == 2
    assert (lake.ids(), lake.ids(version=1)) == ([1, 2, 3, 4], [1, 2, 3])


def test_what_is_replaced_is_removed_with_deltalakes_word_on_it(lake: Lake, hook: OneLakeHook) -> None:
    log = lake.make_table()
    foreign_append(log, {"2019-01": [1], "2019-02": [2]})
    publish(hook, stage(log, writer_spec(**OVERWRITE), {"2019-01": [10]}))
    assert lake.ids() == [2, 10]


def test_an_attempt_that_comes_back_publishes_nothing_twice(lake: Lake, hook: OneLakeHook) -> None:
    log = lake.make_table()
    buffer = stage(log, writer_spec(), {"2019-01": [1]})
    publish(hook, buffer)
    again = hook.table(TABLE).committer().publish([buffer])
    assert (again.status, again.version) == (PublishStatus.ALREADY, 1)
    assert lake.ids() == [1]


@pytest.mark.parametrize("publish_mode", list(PublishMode))
def test_reconcile_publishes_what_is_staged(lake: Lake, hook: OneLakeHook, publish_mode: PublishMode) -> None:
    log = lake.make_table()
    stage(log, writer_spec("a", **OVERWRITE), {"2019-01": [1]})
    stage(log, writer_spec("b", **OVERWRITE), {"2019-02": [2]})
    stage(log, writer_spec("c", **OVERWRITE), {})
    report = reconcile(hook.table(TABLE).committer(), LOAD, ["a", "b", "c"], publish=publish_mode)
    report.raise_for_failures()
    assert report.version == (1 if publish_mode is PublishMode.TOGETHER else 3)
    assert lake.ids() == [1, 2]


async def test_the_trigger_sees_every_commit(lake: Lake, hook: OneLakeHook) -> None:
    log = lake.make_table()
    events = DeltaLogTrigger(table=TABLE, after=0, poll_interval=0.01).run()
    foreign_append(log, {"2019-01": [1]})
    foreign_append(log, {"2019-02": [2]})
    assert [(await anext(events)).payload["version"] for _ in range(2)] == [1, 2]
    waiting = DeltaLogWaitTrigger(table=TABLE, version=2, poll_interval=0.01).run()
    assert (await anext(waiting)).payload["status"] == "met"


def test_a_checkpoint_is_written_and_the_log_before_it_cleaned_up(lake: Lake, hook: OneLakeHook) -> None:
    log = lake.make_table(**{"delta.checkpointInterval": "3"})
    for number in range(1, 5):
        publish(hook, stage(log, writer_spec(f"w{number}"), {"2019-01": [number]}))
    assert b'"version":3' in log.store.get(LAST_CHECKPOINT)
    later = lake.log()
    snapshot = later.snapshot()
    assert snapshot.version == 4
    done = clean_up_log(later.store, snapshot, datetime.now(UTC) + timedelta(days=40))
    assert done.oldest == 3
    with pytest.raises(ObjectNotFoundError):
        later.store.get(version_path(0))
    # Both readers begin from the checkpoint now; the txn of a version that is gone is still known.
    assert lake.ids() == [1, 2, 3, 4]
    again = lake.log().snapshot()
    assert again.txns == snapshot.txns


def test_a_vacuum_plans_to_delete_what_no_version_needs_but_not_below_a_buffer_in_flight(
    lake: Lake, hook: OneLakeHook
) -> None:
    log = lake.make_table()
    publish(hook, stage(log, writer_spec("a", EARLIER_LOAD), {"2019-01": [1], "2019-02": [2]}))
    in_flight = stage(log, writer_spec("c"), {"2019-03": [4]})
    publish(hook, stage(log, writer_spec("b", **OVERWRITE), {"2019-01": [3]}))
    (removed,) = log.commits_between(1, 2)[0].removes
    # The objects of a real store cannot be set back, so the clock goes forward.
    later = DeltaLog(log.store, log.table, HeldClock(datetime.now(UTC) + timedelta(days=8)))
    terms = VacuumTerms(abandoned_after=timedelta(days=60))
    held = plan(later, terms)
    assert held.held_by is not None
    assert held.candidates == ()
    publish(hook, in_flight)
    todo = plan(later, terms)
    assert todo.held_by is None
    assert {info.path for info in todo.candidates} == {removed["path"]}
