"""Cluster mode against a master's REST server and a script in the place of Spark: submitted once, found again, killed."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from obstore.store import LocalStore

from airflow_provider_onelake.engines import submit_cluster
from airflow_provider_onelake.engines.base import StageJob
from airflow_provider_onelake.engines.submit import SubmitEngine
from airflow_provider_onelake.engines.submit_cluster import Exchange
from airflow_provider_onelake.engines.submit_package import job_package
from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    SparkJobError,
    SparkJobTimeoutError,
    SparkQueryError,
    SparkSetUpError,
    SparkUnavailableError,
)
from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.storage.spark import SparkAccess
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.fake_submit import FakeSubmit, option, settings

DRIVER = "driver-20261121-0007"
SUBMITTED = f"print('Driver successfully submitted as {DRIVER}')"
RESULT = {"reads_target": False, "application_id": "app-1"}


class Later(datetime):
    """An hour on."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        return datetime.now(UTC) + timedelta(hours=1)


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
    name = job_package().name.replace(".zip", ".jar")
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
    new_engine(access=lambda: SparkAccess(environment={"AWS_SECRET_ACCESS_KEY": "s3cr3t"})).stage(job)
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
    with pytest.raises(SparkJobError, match=r"without a verdict. Its log is on the cluster: one that lacks JARs"):
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
    engine = new_engine(timeout=60)
    # As the timer does, but only once the driver is at work.
    master.when_asked = lambda: engine._end("expired")
    with pytest.raises(SparkJobTimeoutError, match="longer than 60 s"):
        engine.stage(job)
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


# -- YARN and Kubernetes, as far as stand-ins go -------------------------------------------------------------------

APPLICATION = "application_1700000000000_0042"


@attrs.define
class ResourceManager:
    """YARN's REST API with one application."""

    state: str = "RUNNING"
    final: str = "UNDEFINED"
    url: str = ""
    when_asked: Callable[[], None] = lambda: None


@pytest.fixture
def yarn() -> Iterator[ResourceManager]:
    found = ResourceManager()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == f"/ws/v1/cluster/apps/{APPLICATION}"
            found.when_asked()
            self.send_response(200)
            self.end_headers()
            app = {"state": found.state, "finalStatus": found.final, "diagnostics": ""}
            self.wfile.write(json.dumps({"app": app}).encode())

        def do_PUT(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path.endswith("/state")
            found.state = found.final = said["state"]
            self.send_response(202)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        found.url = f"http://127.0.0.1:{server.server_port}"
        yield found
        server.shutdown()


@pytest.fixture
def on_yarn(yarn: ResourceManager, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SubmitEngine]:
    def make(**extra: Any) -> SubmitEngine:
        said = {"deploy-mode": "cluster", "jars": "/j", "yarn_resourcemanager_webapp_address": yarn.url, **extra}
        monkeypatch.setenv("AIRFLOW_CONN_S", json.dumps({"conn_type": "spark", "host": "yarn", "extra": said}))
        engine = engine_for("s", store=lambda: store)
        assert isinstance(engine, SubmitEngine)
        return engine

    return make


def test_yarn_is_given_local_files_and_followed_by_its_rest_api(
    submit: FakeSubmit,
    yarn: ResourceManager,
    store: ObjectStore,
    job: StageJob,
    on_yarn: Callable[..., SubmitEngine],
) -> None:
    submit.does(f"print('Submitted application {APPLICATION}')")

    def finish() -> None:
        says(store, job, result=RESULT)
        yarn.state, yarn.final = "FINISHED", "SUCCEEDED"

    yarn.when_asked = finish
    assert on_yarn().stage(job).application_id == "app-1"
    argv, place = submit.calls[0]["argv"], exchange(store, job)
    assert argv[-3].endswith("spark_jobs/main.py")
    assert argv[-2:] == [place.address("plan.json"), place.address("verdict.json")]
    assert str(option(argv, "--py-files")).endswith(job_package().name)
    assert settings(argv)["spark.yarn.submit.waitAppCompletion"] == "false"


def test_stop_kills_an_application_on_yarn(
    submit: FakeSubmit, yarn: ResourceManager, job: StageJob, on_yarn: Callable[..., SubmitEngine]
) -> None:
    submit.does(f"print('Submitted application {APPLICATION}')")
    engine, running = on_yarn(), threading.Event()
    yarn.when_asked = running.set
    with ThreadPoolExecutor(1) as pool:
        staging = pool.submit(engine.stage, job)
        assert running.wait(20)
        engine.stop()
        with pytest.raises(SparkJobError, match="as asked"):
            staging.result(20)
    assert yarn.state == "KILLED"


def test_yarn_without_an_address_to_ask_is_refused_before_anything_is_submitted(
    submit: FakeSubmit, job: StageJob, on_yarn: Callable[..., SubmitEngine]
) -> None:
    with pytest.raises(SparkSetUpError, match="yarn_resourcemanager_webapp_address"):
        on_yarn(yarn_resourcemanager_webapp_address="").stage(job)
    assert not submit.calls


class KubernetesSays:
    """The client of the Kubernetes provider, with one pod or none."""

    class ApiException(Exception):  # noqa: N818
        def __init__(self, status: int) -> None:
            super().__init__(f"status {status}")
            self.status = status

    def __init__(self) -> None:
        self.phase: str | None = "Running"
        self.when_asked: Callable[[], None] = lambda: None

    def get_kube_client(self) -> KubernetesSays:
        return self

    def read_namespaced_pod(self, name: str, namespace: str) -> Any:
        assert (name, namespace) == ("onelake-a1-staging", "jobs")
        self.when_asked()
        if self.phase is None:
            raise self.ApiException(404)
        return SimpleNamespace(status=SimpleNamespace(phase=self.phase))

    def delete_namespaced_pod(self, name: str, namespace: str) -> None:
        if self.phase is None:
            raise self.ApiException(404)
        self.phase = None


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch) -> KubernetesSays:
    from airflow.providers.apache.spark.hooks import spark_submit

    found = KubernetesSays()
    monkeypatch.setattr(spark_submit, "kube_client", found, raising=False)
    package = SimpleNamespace(kube_client=found)
    monkeypatch.setitem(sys.modules, "airflow.providers.cncf", SimpleNamespace(kubernetes=package))
    monkeypatch.setitem(sys.modules, "airflow.providers.cncf.kubernetes", package)
    return found


@pytest.fixture
def on_kubernetes(
    kubernetes: KubernetesSays, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., SubmitEngine]:
    def make(namespace: str | None = "jobs") -> SubmitEngine:
        said = {"deploy-mode": "cluster", "jars": "/j", "namespace": namespace}
        connection = {"conn_type": "spark", "host": "k8s://https://h:6443", "extra": said}
        monkeypatch.setenv("AIRFLOW_CONN_S", json.dumps(connection))
        engine = engine_for("s", store=lambda: store)
        assert isinstance(engine, SubmitEngine)
        return engine

    return make


def test_a_pod_is_given_addresses_and_a_name_by_which_it_is_found(
    submit: FakeSubmit,
    kubernetes: KubernetesSays,
    store: ObjectStore,
    job: StageJob,
    on_kubernetes: Callable[..., SubmitEngine],
) -> None:
    submit.does("")

    def finish() -> None:
        says(store, job, result=RESULT)
        kubernetes.phase = "Succeeded"

    kubernetes.when_asked = finish
    assert on_kubernetes().stage(job).application_id == "app-1"
    argv, place = submit.calls[0]["argv"], exchange(store, job)
    assert argv[-3:] == [place.address(name) for name in ("main.py", "plan.json", "verdict.json")]
    assert option(argv, "--py-files") == place.address(job_package().name)
    found = settings(argv)
    assert found["spark.kubernetes.driver.pod.name"] == "onelake-a1-staging"
    assert found["spark.kubernetes.submission.waitAppCompletion"] == "false"


def test_a_pod_that_is_gone_has_ended(
    store: ObjectStore, job: StageJob, kubernetes: KubernetesSays, on_kubernetes: Callable[..., SubmitEngine]
) -> None:
    exchange(store, job).send("staging", job.as_dict())
    exchange(store, job).remember("onelake-a1-staging")
    engine = on_kubernetes()
    engine.settle(job.table_uri, "a1", wanted=False)
    assert kubernetes.phase is None
    exchange(store, job).send("staging", job.as_dict())
    exchange(store, job).remember("onelake-a1-staging")
    engine.settle(job.table_uri, "a1", wanted=True)


def test_kubernetes_without_a_namespace_is_refused_before_anything_is_submitted(
    submit: FakeSubmit, job: StageJob, on_kubernetes: Callable[..., SubmitEngine]
) -> None:
    with pytest.raises(SparkSetUpError, match="namespace"):
        on_kubernetes(None).stage(job)
    assert not submit.calls


# -- a task that leaves while its driver works ---------------------------------------------------------------------


class LeftError(Exception):
    """As Airflow's TaskDeferred: nothing of the package."""


def test_a_task_leaves_when_its_driver_is_at_work_and_asks_again_later(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    left: list[tuple[str, float | None]] = []

    def leave(attempt: str, seconds: float | None) -> None:
        left.append((attempt, seconds))
        raise LeftError

    with pytest.raises(LeftError):
        new_engine(leave=leave, timeout=60).stage(job)
    assert master.state == "RUNNING"
    says(store, job, result=RESULT)
    master.state = "FINISHED"
    assert new_engine(leave=leave, timeout=60).stage(job).application_id == "app-1"
    assert len(submit.calls) == 1
    ((attempt, seconds),) = left
    assert attempt == "a1"
    assert seconds is not None
    assert 30 < seconds <= 60


def test_a_driver_that_died_while_the_task_was_away(
    submit: FakeSubmit, master: Master, job: StageJob, new_engine: Callable[..., SubmitEngine]
) -> None:
    with pytest.raises(LeftError):
        new_engine(leave=raise_left).stage(job)
    master.state = "FAILED"
    with pytest.raises(SparkJobError, match="without a verdict"):
        new_engine(leave=raise_left).stage(job)


def test_the_time_that_a_task_was_away_counts(
    submit: FakeSubmit,
    master: Master,
    job: StageJob,
    new_engine: Callable[..., SubmitEngine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(LeftError):
        new_engine(leave=raise_left, timeout=60).stage(job)
    monkeypatch.setattr(submit_cluster, "datetime", Later)
    with pytest.raises(SparkJobTimeoutError, match="longer than 60 s"):
        new_engine(leave=raise_left, timeout=60).stage(job)
    assert master.state == "KILLED"


def raise_left(attempt: str, seconds: float | None) -> None:
    raise LeftError
