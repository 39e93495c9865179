"""Spark Connect's life: stop, time-out, a server that is not there or dies. All seen in Spark's own status."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from unittest import mock

import attrs
import pytest
from pyspark.sql.connect.session import SparkSession

from airflow_provider_onelake.exceptions import SparkJobError, SparkJobTimeoutError, SparkUnavailableError
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.connect import CLIENT_LOGGER, QUERY_LOGGER, ConnectEngine
from airflow_provider_onelake.spark.jobs.main import JOBS
from tests.support.spark import Server, Target, sql_job

# As long as pyspark itself would ask a server that has gone.
NOT_TEN_MINUTES = pytest.mark.timeout(240)

# Years of work that Spark can interrupt after every thousand rows. Cancelling is cooperative: a task that is in the
# middle of a batch ends it first, so a cross join in here would run on for a while.
ENDLESS = "SELECT id FROM range(0, 1000000000000000, 1, 2) WHERE xxhash64(id) = 42"


def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{condition} did not come true within {seconds} s")


def running(server: Server, job: StageJob) -> list[dict[str, Any]]:
    """Spark's jobs that write the rows of ours now, not those that only look at the buffer's schema."""
    mark = f"onelake attempt {job.attempt}"
    return [found for found in server.jobs("running", mark) if "write_operation" in found["description"]]


def in_background(engine: ConnectEngine, job: StageJob) -> Future[Any]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(engine.stage, job)
    pool.shutdown(wait=False)
    return future


def assert_gone(server: Server, job: StageJob) -> None:
    until(lambda: not server.jobs("running", f"onelake attempt {job.attempt}"))
    until(lambda: server.active_tasks() == 0)


def test_a_writer_is_named_in_sparks_status(connect_server: Server, engine: ConnectEngine, target: Target) -> None:
    job = sql_job(target, "SELECT id FROM range(10)", label="load.write[3] vendor-1, Rome")
    engine.stage(job)
    tags = {tag for found in connect_server.jobs() for tag in found["jobTags"]}
    assert any(tag.endswith("onelake load.write[3] vendor-1; Rome") for tag in tags)
    mark = f"onelake attempt {job.attempt}"
    until(lambda: not connect_server.jobs("running", mark))
    assert {found["status"] for found in connect_server.jobs(tag=mark)} == {"SUCCEEDED"}


def test_pyspark_logs_no_errors_of_its_own(
    engine: ConnectEngine, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    """A job asks for files that need not be there, and what goes wrong is raised as our own error."""
    for name in (QUERY_LOGGER, CLIENT_LOGGER):
        # So Airflow leaves them in a task, if pyspark was imported before it configures logging.
        logging.getLogger(name).disabled = False
    engine.stage(sql_job(target, "SELECT id FROM range(10)"))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def isolation(engine: ConnectEngine, job: StageJob) -> str:
    def ask(spark: Any, fields: Any) -> dict[str, Any]:
        return {"isolated": spark.conf.get("spark.sql.artifact.isolation.enabled")}

    with mock.patch.dict(JOBS, asking=ask):
        return str(engine.run("asking", job)["isolated"])


def test_writers_share_compiled_code_except_where_a_function_may_add_some(
    engine: ConnectEngine, target: Target
) -> None:
    job = sql_job(target, "SELECT 1L AS id")
    assert isolation(engine, job) == "false"
    assert (
        isolation(engine, attrs.evolve(job, source={"kind": "function"}, rows=lambda spark: spark.range(1))) == "true"
    )


def test_a_server_that_clones_no_session_gives_every_writer_its_own(
    engine: ConnectEngine, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any, new_session_id: str | None = None) -> Any:
        raise NotImplementedError("UNIMPLEMENTED")

    monkeypatch.setattr(SparkSession, "cloneSession", refuse)
    engine.stage(sql_job(target, "SELECT id FROM range(10)"))
    assert target.rows == 10


@pytest.mark.promise
def test_stop_ends_the_spark_job(connect_server: Server, engine: ConnectEngine, target: Target) -> None:
    job = sql_job(target, ENDLESS)
    staging = in_background(engine, job)
    until(lambda: running(connect_server, job))

    engine.stop()
    with pytest.raises(SparkJobError, match="as asked"):
        staging.result(60)

    assert_gone(connect_server, job)
    assert target.versions == [0]
    with pytest.raises(SparkJobError, match="Stopped before"):
        engine.stage(job)


def test_stop_in_a_signal_handler_ends_the_spark_job(
    connect_server: Server, engine: ConnectEngine, target: Target
) -> None:
    """As Airflow's on_kill does, in the main thread, which waits for Spark."""
    job = sql_job(target, ENDLESS)

    def when_running() -> None:
        until(lambda: running(connect_server, job))
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: engine.stop())
    watcher = threading.Thread(target=when_running)
    watcher.start()
    try:
        with pytest.raises(SparkJobError, match="as asked"):
            engine.stage(job)
    finally:
        watcher.join()
        signal.signal(signal.SIGUSR1, before)
    assert_gone(connect_server, job)
    assert target.versions == [0]


def test_a_time_out_ends_the_spark_job(connect_server: Server, target: Target) -> None:
    job = sql_job(target, ENDLESS)
    staging = in_background(ConnectEngine(connect_server.remote, timeout=20), job)
    until(lambda: running(connect_server, job), 20)
    with pytest.raises(SparkJobTimeoutError, match="longer than 20 s"):
        staging.result(40)
    assert_gone(connect_server, job)
    assert target.versions == [0]


def test_one_writer_stopped_leaves_the_other_alone(
    connect_server: Server, engine: ConnectEngine, target: Target, tmp_path: Any
) -> None:
    endless = sql_job(target, ENDLESS)
    staging = in_background(engine, endless)
    until(lambda: running(connect_server, endless))
    other = ConnectEngine(connect_server.remote)
    engine.stop()
    assert other.analyze(sql_job(target, "SELECT id FROM range(10)"))
    with pytest.raises(SparkJobError):
        staging.result(20)


@NOT_TEN_MINUTES
def test_nobody_at_the_address(target: Target) -> None:
    with socket.socket() as bound:  # bound but not listening, so that nobody else takes the port
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(SparkUnavailableError, match=rf"sc://127\.0\.0\.1:{port}.*Start the server"):
            ConnectEngine(f"sc://127.0.0.1:{port}/;token=secret;use_ssl=false").stage(
                sql_job(target, "SELECT 1L AS id")
            )


@NOT_TEN_MINUTES
def test_a_server_that_never_answers(target: Target) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(SparkUnavailableError):
            ConnectEngine(f"sc://127.0.0.1:{silent.getsockname()[1]}").stage(sql_job(target, "SELECT 1L AS id"))


@NOT_TEN_MINUTES
def test_a_server_killed_under_a_job(connect_server: Server, engine: ConnectEngine, target: Target) -> None:
    job = sql_job(target, ENDLESS)
    staging = in_background(engine, job)
    until(lambda: running(connect_server, job))
    connect_server.kill()
    try:
        with pytest.raises(SparkUnavailableError, match="went away"):
            staging.result(120)
        assert target.versions == [0]
    finally:
        connect_server.restart()

    done = sql_job(target, "SELECT id FROM range(10)")
    ConnectEngine(connect_server.remote).stage(done)
    assert target.rows == 10


def test_a_server_restarted_under_a_job_does_not_run_it_by_itself(
    connect_server: Server, engine: ConnectEngine, target: Target
) -> None:
    """pyspark sends a plan again to a server that does not know it; the views it needs are gone with the session."""
    job = sql_job(target, ENDLESS)
    staging = in_background(engine, job)
    until(lambda: running(connect_server, job))
    connect_server.kill()
    connect_server.restart()
    with pytest.raises(SparkUnavailableError):
        staging.result(60)
    assert not running(connect_server, job)
    assert target.versions == [0]
