"""The live stack itself: it starts in order, runs a DAG, starts again what dies, and leaves nothing behind."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from include.local import processes, stack
from include.local.api import wait_for
from include.local.jars import SetUpError
from tests.live.harness import make_settings, start, stop

TRIVIAL = """
    from airflow.sdk import dag, task

    @dag(schedule=None)
    def trivial():
        task(lambda: 42, task_id="answer")()

    trivial()
"""

# A task that starts a process in a session of its own, as BashOperator does.
NEVER_ENDING = """
    import subprocess
    from airflow.sdk import dag, task

    @dag(schedule=None)
    def never_ending():
        @task
        def sleep() -> None:
            subprocess.run(["sleep", "3600"], start_new_session=True, check=True)

        sleep()

    never_ending()
"""


def test_pools_and_connections_are_there_and_the_lakehouse_is_usable(live_stack):
    assert live_stack.api.get("pools/spark")["slots"] == 4
    spark = live_stack.api.get("connections/spark_connect_default")
    assert (spark["conn_type"], spark["port"]) == ("spark_connect", live_stack.connect_server.port)
    assert live_stack.api.get("connections/onelake_default")["conn_type"] == "onelake"
    assert live_stack.lakehouse.is_dir()


def test_spark_connect_lets_nobody_in_without_its_token(live_stack):
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException
    from pyspark.sql import SparkSession

    server = live_stack.connect_server
    own = SparkSession.builder.remote(server.remote).create()
    assert own.range(3).count() == 3
    own.stop()
    for other in (f"sc://127.0.0.1:{server.port}", server.remote.replace(server.token, "another")):
        refused = SparkSession.builder.remote(other).create()
        with pytest.raises(SparkConnectGrpcException, match="UNAUTHENTICATED"):
            refused.range(3).count()
        refused.stop()  # else pyspark waits for the server when Python ends


@pytest.mark.parametrize(
    "name",
    [
        "scheduler",
        # A scheduler of Airflow 3.3 that loses its database may wait for ever for an idle worker of its executor to end.
        pytest.param("postgres", marks=pytest.mark.nightly),
    ],
)
# Spark's server is killed in the middle of a load, in test_kills.py.
def test_what_is_killed_comes_back(live_stack, name):
    former = live_stack.kill(name)
    assert live_stack.wait_until_restarted(name, former) != former
    live_stack.wait_until_healthy()
    live_stack.add_dag("trivial", TRIVIAL)
    assert live_stack.run_dag("trivial")["state"] == "success"


@pytest.mark.nightly
def test_two_stacks_run_side_by_side_and_one_that_lost_its_owner_leaves_no_process(live_stack, tmp_path):
    owner = subprocess.Popen(["sleep", "600"])
    settings = make_settings(tmp_path)
    try:
        second = start(settings, owner=owner.pid)
        assert second.ports.api != live_stack.ports.api
        second.add_dag("never_ending", NEVER_ENDING)
        run_id = second.api.trigger("never_ending")
        wait_for(lambda: second.api.task_instances("never_ending", run_id)[0]["state"] == "running", "the task", 60)
        wait_for(lambda: "sleep" in names(settings), "its child", 30)
        assert {"java", "postgres", "sleep"} <= names(settings)

        owner.kill()
        owner.wait()
        wait_for(lambda: processes.leader(settings.state) is None, "the stack to stop", 90)
        wait_for(lambda: not (settings.state / "supervisord.pid").exists(), "its files to go", 30)
        assert processes.leftovers(settings.state) == []
    finally:
        owner.kill()
        stop(settings)
    assert live_stack.api.health()["scheduler"]["status"] == "healthy"


def test_a_stack_that_is_stopped_while_it_starts_leaves_no_process(tmp_path):
    settings = make_settings(tmp_path)
    try:
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(stack.start, settings)
            wait_for(lambda: "postgres" in names(settings), "PostgreSQL to start", 60)
            assert processes.shut_down(settings.state)
            with pytest.raises(SetUpError):
                starting.result(60)
        assert processes.leftovers(settings.state) == []
    finally:
        stop(settings)


def names(settings) -> set[str]:
    found = set()
    for process in processes.leftovers(settings.state):
        try:
            found.add(process.name())
        except psutil.NoSuchProcess:
            continue
    return found
