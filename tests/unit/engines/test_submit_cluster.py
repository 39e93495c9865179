"""Cluster mode against a master's REST server and a script in the place of Spark: submitted once, found again, killed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest
from obstore.store import LocalStore

from airflow_provider_onelake.engines import submit_cluster
from airflow_provider_onelake.engines.base import StageJob
from airflow_provider_onelake.engines.submit import SubmitEngine
from airflow_provider_onelake.engines.submit_cluster import Exchange
from airflow_provider_onelake.engines.submit_package import job_package
from airflow_provider_onelake.engines.submit_spark import NoAccess
from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    SparkJobError,
    SparkJobTimeoutError,
    SparkQueryError,
    SparkSetUpError,
    SparkUnavailableError,
)
from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.fake_submit import FakeSubmit, option, settings

DRIVER = "driver-20261121-0007"
SUBMITTED = f"print('Driver successfully submitted as {DRIVER}')"
RESULT = {"reads_target": False, "application_id": "app-1"}


@attrs.define
class Master:
    """The REST server of a standalone master with one driver."""

    state: str | None = "RUNNING"
    asked: list[str] = attrs.field(factory=list)
    when_asked: Callable[[], None] = lambda: None
    url: str = ""
    down: bool = False

    def answer(self, method: str, path: str) -> dict[str, Any]:
        self.asked.append(f"{method} {path}")
        _, _, _, what, driver = path.split("/")
        if driver != DRIVER:
            return {"success": False}
        if what == "kill":
            self.state = "KILLED"
            return {"success": True}
        self.when_asked()
        return {"success": self.state is not None, "driverState": self.state}


@pytest.fixture
def master() -> Iterator[Master]:
    found = Master()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<html>" if found.down else json.dumps(found.answer(self.command, self.path)).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        found.url = f"127.0.0.1:{server.server_port}"
        yield found
        server.shutdown()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    return tmp_path / "lake"


@pytest.fixture
def store(table: Path) -> ObjectStore:
    return ObjectStore(LocalStore(prefix=table), str(table))


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSubmit:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("airflow_provider_onelake.engines.submit._POLL_SECONDS", 0.02)
    monkeypatch.setattr("airflow_provider_onelake.engines.submit._LONGEST_PAUSE", 0.02)
    found = FakeSubmit(tmp_path / "bin")
    found.does(SUBMITTED)
    return found


@pytest.fixture
def new_engine(master: Master, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SubmitEngine]:
    def make(**arguments: Any) -> SubmitEngine:
        extra = {"deploy-mode": "cluster", "rest-port": master.url.rpartition(":")[2], "jars": "/j/delta.jar"}
        connection = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": 7077, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_S", json.dumps(connection))
        engine = engine_for("s", **{"store": lambda: store, **arguments})
        assert isinstance(engine, SubmitEngine)
        return engine

    return make


@pytest.fixture
def job(table: Path) -> StageJob:
    source = {"kind": "sql", "query": "SELECT 1"}
    return StageJob(source=source, table_uri=str(table), attempt="a1", buffer_uri=f"{table}/staged/w/a1")


def exchange(store: ObjectStore, job: StageJob) -> Exchange:
    return Exchange.of(store, job, "staging")


def says(store: ObjectStore, job: StageJob, **fields: Any) -> None:
    store.put(f"{exchange(store, job).path}/verdict.json", json.dumps({"format": 1, **fields}).encode())


def finishes(master: Master, store: ObjectStore, job: StageJob, polls: int = 3, **fields: Any) -> None:
    """Let the driver end after so many questions."""
    left = [polls]

    def ask() -> None:
        left[0] -= 1
        if left[0] == 0:
            says(store, job, **(fields or {"result": RESULT}))
            master.state = "FAILED" if "error" in fields else "FINISHED"

    master.when_asked = ask


def test_a_driver_is_submitted_followed_and_tidied_away(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    finishes(master, store, job)
    assert new_engine().stage(job).application_id == "app-1"
    (call,) = submit.calls
    argv, place = call["argv"], exchange(store, job)
    # spark-submit refuses Python here; Spark's own runner of Python is a JVM like any other.
    assert option(argv, "--class") == "org.apache.spark.deploy.PythonRunner"
    name = job_package().name
    assert argv[-5:] == [place.address(name), name, name, place.address("plan.json"), place.address("verdict.json")]
    assert not list(store.list(place.path))


def test_secrets_are_not_sent_to_a_cluster(
    submit: FakeSubmit,
    master: Master,
    store: ObjectStore,
    job: StageJob,
    new_engine: Callable[..., SubmitEngine],
    caplog: pytest.LogCaptureFixture,
) -> None:
    finishes(master, store, job)
    new_engine(access=NoAccess(environment={"AWS_SECRET_ACCESS_KEY": "s3cr3t"})).stage(job)
    (call,) = submit.calls
    assert "s3cr3t" not in json.dumps(call)
    assert "spark.onelake.environment" not in settings(call["argv"])
    assert "AWS_SECRET_ACCESS_KEY" in caplog.text
    assert "s3cr3t" not in caplog.text


def test_its_error_is_raised_as_the_typed_one(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    error = {"class": "X", "message": "no such column", "condition": "UNRESOLVED_COLUMN", "state": "42703", "stack": ""}
    finishes(master, store, job, error={**error, "starting": False})
    with pytest.raises(SparkQueryError, match="no such column"):
        new_engine().stage(job)


def test_an_error_of_a_driver_that_its_cluster_starts_again_is_not_the_last_word(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    error = {"class": "X", "message": "lost", "condition": None, "state": None, "stack": "", "starting": False}
    says(store, job, error=error)
    master.state = "RELAUNCHING"
    finishes(master, store, job)
    assert new_engine().stage(job).application_id == "app-1"


def test_a_driver_that_ends_without_a_verdict(
    submit: FakeSubmit, master: Master, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    master.state = "ERROR"
    with pytest.raises(SparkJobError, match="without a verdict"):
        new_engine().stage(job)


def test_the_same_attempt_never_submits_twice(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    """As when a task comes back from the triggerer."""
    assert exchange(store, job).send("staging", job.as_dict())
    exchange(store, job).remember(DRIVER)
    finishes(master, store, job)
    assert new_engine().stage(job).application_id == "app-1"
    assert not submit.calls


def test_the_next_attempt_waits_for_the_driver_that_a_dead_worker_left(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    exchange(store, job).send("staging", job.as_dict())
    exchange(store, job).remember(DRIVER)
    finishes(master, store, job)
    new_engine().settle(job.table_uri, "a1", wanted=True)
    assert master.state == "FINISHED"
    assert not submit.calls
    assert not list(store.list(exchange(store, job).path))


def test_a_worker_that_died_before_it_knew_the_driver_is_told_by_the_driver(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    exchange(store, job).send("staging", job.as_dict())
    says(store, job, driver=DRIVER)
    finishes(master, store, job)
    new_engine().settle(job.table_uri, "a1", wanted=True)
    assert f"GET /v1/submissions/status/{DRIVER}" in master.asked


def test_a_driver_of_which_nobody_ever_heard_is_waited_for_so_long_and_no_longer(
    submit: FakeSubmit,
    master: Master,
    store: ObjectStore,
    job: StageJob,
    new_engine: Callable[..., SubmitEngine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange(store, job).send("staging", job.as_dict())
    engine = new_engine(timeout=0.5)
    with pytest.raises(SparkJobTimeoutError):
        engine.settle(job.table_uri, "a1", wanted=True)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(hours=1)

    monkeypatch.setattr(submit_cluster, "datetime", Later)
    new_engine(timeout=20).settle(job.table_uri, "a1", wanted=True)
    assert not list(store.list(exchange(store, job).path))


def test_a_driver_whose_work_has_changed_is_killed(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    exchange(store, job).send("staging", job.as_dict())
    exchange(store, job).remember(DRIVER)
    new_engine().settle(job.table_uri, "a1", wanted=False)
    assert master.state == "KILLED"


def test_where_nothing_was_submitted_there_is_nothing_to_wait_for(
    master: Master, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    new_engine().settle(job.table_uri, "a1", wanted=True)
    assert not master.asked


def test_stop_kills_the_driver(
    submit: FakeSubmit, master: Master, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    engine = new_engine()
    running = threading.Event()
    master.when_asked = running.set
    with ThreadPoolExecutor(1) as pool:
        staging = pool.submit(engine.stage, job)
        assert running.wait(20)
        engine.stop()
        with pytest.raises(SparkJobError, match="as asked"):
            staging.result(20)
    assert master.state == "KILLED"


def test_a_time_out_kills_the_driver(
    submit: FakeSubmit, master: Master, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    with pytest.raises(SparkJobTimeoutError, match="longer than 1 s"):
        new_engine(timeout=1).stage(job)
    assert master.state == "KILLED"


def test_a_master_that_does_not_answer_any_more_leaves_the_driver_at_work(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    def goes_down() -> None:
        master.down = True

    master.when_asked = goes_down
    with pytest.raises(SparkUnavailableError, match="a retry finds it again"):
        new_engine().stage(job)
    assert exchange(store, job).driver == DRIVER


def test_a_master_without_a_rest_server_is_refused_before_anything_is_submitted(
    submit: FakeSubmit, master: Master, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    master.down = True
    with pytest.raises(SparkSetUpError, match=r"spark\.master\.rest\.enabled"):
        new_engine().stage(job)
    assert not submit.calls


def test_a_submission_that_fails_says_why(
    submit: FakeSubmit, master: Master, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    submit.does("print('Failed to connect to master'); sys.exit(1)")
    with pytest.raises(SparkJobError, match="Failed to connect to master"):
        new_engine().stage(job)


def test_cluster_mode_needs_the_tables_store(job: StageJob, new_engine: Callable[..., SubmitEngine]) -> None:
    with pytest.raises(InvalidWriteError, match="store"):
        new_engine(store=None).stage(job)
