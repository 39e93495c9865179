"""Writers as tasks: one that is stopped stops its Spark work, and pools are respected."""

from __future__ import annotations

import time
from collections.abc import Callable

from include.local.api import wait_for
from tests.live.held_load import RECONCILE, ROWS, WRITE, WRITERS, HeldLoad, is_complete


def test_stopping_a_task_stops_its_spark_work(new_load: Callable[..., HeldLoad]) -> None:
    load = new_load()
    load.give(slow="vendor-1")
    load.start()
    buffer = load.wait_until_in_spark("vendor-1")

    stopped = time.time()
    path = f"dags/{load.dag_id}/dagRuns/{load.run_id}/taskInstances/{WRITE}/0"
    load.api.request("PATCH", path, params={"update_mask": "new_state"}, json={"new_state": "failed"})

    wait_for(lambda: not load.runs_in_spark(buffer), "the Spark job to end", 60)
    # Stopped by the task: of a client that only went away, Spark drops the work after 30 s at the earliest.
    (job,) = [job for job in load.spark_jobs("vendor-1") if not job.succeeded]
    assert job.ended is not None
    assert job.ended / 1000 - stopped < 30
    assert load.end() == "failed"
    assert "Stopping Spark session" in load.log(WRITE, "vendor-1", try_number=1)
    assert load.tries(WRITE, "vendor-1") == ["failed"]
    assert load.report()["missing"] == ["vendor-1"]
    assert not is_complete(buffer)
    assert load.rows() == {"vendor-2": ROWS["vendor-2"]}


def test_a_writer_whose_rows_were_set_aside_is_skipped_in_the_grid_and_reconcile_is_green(
    new_load: Callable[..., HeldLoad],
) -> None:
    load = new_load(mode="overwrite_partitions", on_conflict="first_writer_wins", on_set_aside="skip")
    load.hold("vendor-1.before-commit")
    load.start()
    load.wait_until_at("vendor-1.before-commit")
    load.wait_until_ended("vendor-2")
    load.release("vendor-1.before-commit")

    assert load.end() == "success"
    assert load.tries(WRITE, "vendor-1") == ["skipped"]
    label = load.task(WRITE, "vendor-1")["rendered_map_index"]
    assert label == "vendor-1 · set aside: version 0 (vendor-2 of held.load) came first"
    assert load.result("vendor-1")["status"] == "set_aside"
    assert "Clear the writer to write its rows on the newest version" in load.log(WRITE, "vendor-1")
    assert load.task(RECONCILE)["state"] == "success"
    assert load.report()["writers"]["vendor-1"]["status"] == "set_aside"
    assert list(load.report()["left_out"]) == ["vendor-1"]
    assert load.rows() == {"vendor-2": ROWS["vendor-2"]}


def test_writers_in_a_pool_with_one_slot_wait_for_it_and_do_not_overlap(new_load: Callable[..., HeldLoad]) -> None:
    load = new_load(dag_id="held_in_a_narrow_pool")
    load.start()
    # As long as there is no such pool they wait, and their pages say for what.
    wait_for(lambda: load.task(WRITE, "vendor-1")["state"] == "scheduled", "the writer to be scheduled", 60)
    path = f"dags/{load.dag_id}/dagRuns/{load.run_id}/taskInstances/{WRITE}/0/dependencies"
    assert [why["reason"] for why in load.api.get(path)["dependencies"]] == [
        "Tasks using non-existent pool 'narrow' will not be scheduled"
    ]
    pool = {"name": "narrow", "slots": 1, "description": "for one writer at a time"}
    load.api.request("POST", "pools", json=pool)

    assert load.end() == "success"
    assert load.rows() == ROWS
    first, second = sorted((load.task(WRITE, writer) for writer in WRITERS), key=lambda task: task["start_date"])
    assert first["pool"] == second["pool"] == "narrow"
    assert first["end_date"] <= second["start_date"]
