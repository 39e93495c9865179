"""kill -9 at every point of a load: the crash point is named and shown, the rows are there once, no Spark job twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import psutil
import pytest

from include.local.api import wait_for
from tests.live.held_load import RECONCILE, ROWS, WRITE, WRITERS, HeldLoad, is_complete

NewLoad = Callable[..., HeldLoad]


@pytest.mark.costs("Spark drops work that nobody waits for after half a minute")
def test_a_writer_killed_while_spark_stages_is_retried(new_load: NewLoad) -> None:
    load = new_load()
    load.give(slow="vendor-1")
    load.start()
    # The crash point: Spark's status shows the job, and the buffer is open.
    killed = load.wait_until_in_spark("vendor-1")
    assert not is_complete(killed)
    load.wait_until_ended("vendor-2")

    load.give()
    load.kill(WRITE, "vendor-1")

    assert load.end() == "success"
    assert load.tries(WRITE, "vendor-1")[-1] == "success"
    assert load.task(WRITE, "vendor-1")["try_number"] == 2
    assert load.rows() == ROWS
    # Nothing of the killed attempt was published, and Spark drops its work, which nobody waits for any more.
    wait_for(lambda: not load.runs_in_spark(killed), "Spark to drop the work of the killed attempt", 120)
    assert not is_complete(killed)
    assert load.result("vendor-1")["buffer"] != str(killed.relative_to(load.table))
    assert len(load.buffers("vendor-2")) == 1


def test_a_writer_killed_with_its_rows_staged_publishes_them_without_spark(new_load: NewLoad) -> None:
    load = new_load()
    load.hold("vendor-1.before-commit")
    load.start()
    # The crash point: the buffer is complete, and the table has nothing of it.
    pid = load.wait_until_at("vendor-1.before-commit")
    (buffer,) = load.buffers("vendor-1")
    assert is_complete(buffer)
    load.wait_until_ended("vendor-2")
    assert load.rows() == {"vendor-2": ROWS["vendor-2"]}
    jobs = load.spark_jobs("vendor-1")
    assert jobs

    assert load.kill(WRITE, "vendor-1") == pid
    load.release("vendor-1.before-commit")

    assert load.end() == "success"
    assert load.task(WRITE, "vendor-1")["try_number"] == 2
    result = load.result("vendor-1")
    assert (result["status"], result["reused"]) == ("published", True)
    assert load.buffers("vendor-1") == [buffer]
    assert load.spark_jobs("vendor-1") == jobs
    assert load.rows() == ROWS


@pytest.mark.costs("With the first of these tests a live Airflow starts")
@pytest.mark.promise
def test_a_writer_killed_right_after_its_commit_does_nothing_twice(new_load: NewLoad) -> None:
    load = new_load()
    load.hold("vendor-1.after-commit")
    load.start()
    # The crash point: the table has the rows, and Airflow does not know it.
    pid = load.wait_until_at("vendor-1.after-commit")
    assert load.rows()["vendor-1"] == ROWS["vendor-1"]
    load.wait_until_ended("vendor-2")
    versions, jobs = load.versions(), load.spark_jobs("vendor-1")

    assert load.kill(WRITE, "vendor-1") == pid
    load.release("vendor-1.after-commit")

    assert load.end() == "success"
    result = load.result("vendor-1")
    assert result["status"] == "skipped"
    assert "an earlier attempt published it" in result["reason"]
    assert load.versions() == versions
    assert load.spark_jobs("vendor-1") == jobs
    assert load.rows() == ROWS


def test_the_spark_server_killed_while_it_stages_comes_back_and_the_writer_is_retried(new_load: NewLoad) -> None:
    load = new_load(publish="together")
    load.give(slow="vendor-1")
    load.start()
    # The crash point: one buffer is complete and unpublished, the other's Spark job runs.
    killed = load.wait_until_in_spark("vendor-1")
    load.wait_until_ended("vendor-2")
    (staged,) = load.buffers("vendor-2")
    assert is_complete(staged)
    assert load.versions() == []
    jobs = load.spark_jobs("vendor-2")

    load.give()
    former = load.stack.kill("spark-connect")

    assert load.stack.wait_until_restarted("spark-connect", former) != former
    assert load.end() == "success"
    assert load.task(WRITE, "vendor-1")["try_number"] > 1
    assert not is_complete(killed)
    assert load.buffers("vendor-2") == [staged]
    assert load.spark_jobs("vendor-2") == jobs
    assert len({job.application for job in load.spark_jobs("vendor-1")}) == 2
    assert load.rows() == ROWS


@pytest.mark.parametrize(
    ("point", "there"), [("reconcile.before-commit", {}), ("reconcile.after-commit", ROWS)], ids=["before", "after"]
)
def test_reconcile_killed_around_its_commit_is_retried_without_spark(
    new_load: NewLoad, point: str, there: dict[str, int]
) -> None:
    load = new_load(publish="together")
    load.hold(point)
    load.start()
    # The crash point: everything is staged; the table has nothing, or everything and nobody was told.
    pid = load.wait_until_at(point)
    assert (load.rows(), load.versions()) == (there, [0] if there else [])
    jobs = load.all_spark_jobs()

    os.kill(pid, signal.SIGKILL)
    load.release(point)

    assert load.end() == "success"
    assert load.task(RECONCILE)["try_number"] == 2
    assert load.versions() == [0]
    assert load.rows() == ROWS
    outcomes = load.report()["writers"]
    assert {outcome["version"] for outcome in outcomes.values()} == {0}
    assert {o["status"] for o in outcomes.values()} == {"already_published" if there else "published"}
    assert load.all_spark_jobs() == jobs


@pytest.mark.costs("Airflow gives a task up a minute after its last heartbeat")
def test_a_writer_whose_supervisor_is_killed_publishes_once_though_two_attempts_live(new_load: NewLoad) -> None:
    load = new_load()
    load.hold("vendor-1.before-commit")
    load.start()
    # The crash point: the task's process lives, and nobody hears of it any more.
    pid = load.wait_until_at("vendor-1.before-commit")
    supervisor = psutil.Process(pid).parent()
    assert supervisor is not None
    load.wait_until_ended("vendor-2")
    jobs = load.spark_jobs("vendor-1")
    assert jobs

    supervisor.kill()

    # Airflow tries again; both attempts have the same complete buffer before them, and are let go at once.
    wait_for(lambda: load.at("vendor-1.before-commit") != pid, "the second attempt to be there", 240)
    load.release("vendor-1.before-commit")

    assert load.end() == "success"
    wait_for(lambda: not psutil.pid_exists(pid), "the first attempt to end", 60)
    assert load.task(WRITE, "vendor-1")["try_number"] == 2
    assert load.rows() == ROWS
    assert load.spark_jobs("vendor-1") == jobs
    assert load.versions() == [0, 1]


@pytest.mark.costs("The next scheduler waits half a minute for a sign of life of the last one, and looks every other")
def test_the_scheduler_killed_with_its_writers_leaves_every_row_once(new_load: NewLoad) -> None:
    load = new_load()
    load.hold("vendor-1.before-commit", "vendor-2.before-commit")
    load.start()
    # The crash point: both writers' rows are staged. With the LocalExecutor the tasks are the scheduler's children.
    for writer in WRITERS:
        load.wait_until_at(f"{writer}.before-commit")
    jobs = load.all_spark_jobs()

    former = load.stack.kill("scheduler")

    assert load.stack.wait_until_restarted("scheduler", former) != former
    for writer in WRITERS:
        load.release(f"{writer}.before-commit")
    assert load.end() == "success"
    assert load.rows() == ROWS
    assert load.versions() == [0, 1]
    assert load.all_spark_jobs() == jobs
