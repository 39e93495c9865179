"""The driver of a submitted job, without Spark."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_onelake.spark.jobs import main as driver

JOB = {"format": driver.FORMAT, "kind": "staging", "job": {"attempt": "a"}}


class Session:
    """As much of a session as the driver asks of it."""

    stopped = False
    closed = False
    conf: dict[str, str] = {}  # noqa: RUF012
    sparkContext = type("Context", (), {"applicationId": "application_1_2"})  # noqa: N815

    @property
    def _jvm(self) -> Any:
        files = SimpleNamespace(closeAll=self.close)
        hadoop = SimpleNamespace(fs=SimpleNamespace(FileSystem=files))
        return SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))

    def stop(self) -> None:
        assert not self.closed, "Spark writes its event log when it stops"
        self.stopped = True

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    found = Session()
    monkeypatch.setattr(driver, "_session", lambda: found)
    monkeypatch.setattr(driver, "_check_delta", lambda _: None)
    monkeypatch.setattr(driver, "versions", lambda _: {"Spark": "4.2.0", "Delta Lake": "4.4.0"})
    monkeypatch.delenv(driver.ALIVE, raising=False)
    return found


def run(tmp_path: Path, plan: Any = JOB) -> tuple[int, dict[str, Any]]:
    (tmp_path / "job.json").write_text(json.dumps(plan))
    status = driver.main(str(tmp_path / "job.json"), str(tmp_path / "result.json"))
    return status, json.loads((tmp_path / "result.json").read_text())


def test_what_a_job_returned_is_the_result(tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(driver.JOBS, "staging", lambda spark, job: {"spark": spark is session, **job})  # type: ignore[index]
    assert run(tmp_path) == (0, {"format": 1, "result": {"spark": True, "attempt": "a"}})
    assert session.stopped
    assert session.closed


def test_an_error_is_the_result(tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(spark: Any, job: Any) -> Any:
        try:
            raise OSError("disk")
        except OSError as error:
            raise ValueError("rows") from error

    monkeypatch.setitem(driver.JOBS, "staging", fails)  # type: ignore[index]
    status, result = run(tmp_path)
    assert status == 1
    error = result["error"]
    assert (error["class"], error["message"], error["starting"]) == ("ValueError", "rows", False)
    assert "Caused by: OSError: disk" in result["error"]["stack"]
    assert session.stopped
    assert session.closed


def test_a_spark_that_does_not_start_is_told(tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Any:
        raise RuntimeError("All masters are unresponsive")

    monkeypatch.setattr(driver, "_session", fails)
    status, result = run(tmp_path)
    assert status == 1
    assert result["error"]["starting"]


def test_a_plan_of_another_format_is_refused(tmp_path: Path, session: Session) -> None:
    assert "format 9" in run(tmp_path, {**JOB, "format": 9})[1]["error"]["message"]


@pytest.mark.parametrize(
    ("directory", "conf", "name"),
    [
        pytest.param("driver-20261121-0001", {}, "driver-20261121-0001", id="standalone"),
        pytest.param("work", {"spark.kubernetes.driver.pod.name": "onelake-a"}, "onelake-a", id="kubernetes"),
        pytest.param("container_1", {}, "application_1_2", id="yarn"),
    ],
)
def test_a_driver_that_outlives_its_submitter_says_first_who_it_is(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch, directory: str, conf: dict[str, str], name: str
) -> None:
    session.conf = conf
    (tmp_path / directory).mkdir()
    monkeypatch.chdir(tmp_path / directory)
    seen = []

    def look(*_: Any) -> dict[str, Any]:
        seen.append(json.loads((tmp_path / "result.json").read_text()))
        return {}

    monkeypatch.setitem(driver.JOBS, "staging", look)  # type: ignore[index]
    run(tmp_path)
    assert seen == [{"format": 1, "driver": name}]


def test_a_driver_says_first_what_whoever_submitted_calls_it(tmp_path: Path, session: Session) -> None:
    """As a batch of Livy, which does not know its own id."""
    assert driver.main(str(tmp_path / "job.json"), str(tmp_path / "result.json"), "onelake-a1-staging") == 0
    assert json.loads((tmp_path / "result.json").read_text()) == {"format": 1, "driver": "onelake-a1-staging"}


def test_a_spark_that_is_too_old_is_refused(tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "versions", lambda _: {"Spark": "3.4.1", "Delta Lake": "2.4.0", "Python": "3.11.9"})
    monkeypatch.setitem(driver.JOBS, "staging", lambda *_: pytest.fail("it works"))  # type: ignore[index]
    status, result = run(tmp_path)
    assert status == 1
    assert result["error"]["class"] == "SparkIsNotSetUpError"
    assert result["error"]["message"].startswith("It runs Spark 3.4.1, Delta Lake 2.4.0, Python 3.11.9. Jobs of this")


def test_a_driver_whose_plan_was_taken_back(tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order: whoever takes the job file back then either hears of the driver, or the driver finds no job file."""
    said: list[bool] = []
    there = Path.exists

    def exists(path: Path) -> bool:
        if path.name == "job.json":
            said.append(there(tmp_path / "result.json"))
        return there(path)

    monkeypatch.setattr(Path, "exists", exists)
    monkeypatch.setitem(driver.JOBS, "staging", lambda *_: pytest.fail("it works"))  # type: ignore[index]
    assert driver.main(str(tmp_path / "job.json"), str(tmp_path / "result.json")) == 0
    assert json.loads((tmp_path / "result.json").read_text()) == {"format": 1, "driver": "application_1_2"}
    assert said == [True]
    assert session.stopped
    assert session.closed


def test_a_driver_ends_with_whoever_submitted_it(tmp_path: Path) -> None:
    """However that died: a lock is let go of by kill -9 too."""
    alive = tmp_path / "alive"
    holder = f"import fcntl, sys, time; f = open({str(alive)!r}, 'wb'); fcntl.flock(f, fcntl.LOCK_EX); print('locked', flush=True); time.sleep(600)"
    code = f"import time; from airflow_provider_onelake.spark.jobs.main import end_with; end_with({str(alive)!r}); print('up', flush=True); time.sleep(600)"
    with (
        subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE) as submitter,
        subprocess.Popen([sys.executable, "-c", "input(); " + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as job,
    ):  # fmt: skip
        try:
            assert submitter.stdout is not None
            assert job.stdout is not None
            assert job.stdin is not None
            submitter.stdout.readline()
            job.stdin.write(b"\n")
            job.stdin.flush()
            assert job.stdout.readline() == b"up\n"
            with pytest.raises(subprocess.TimeoutExpired):
                job.wait(0.5)
            submitter.kill()
            assert job.wait(10) == -signal.SIGKILL
        finally:
            submitter.kill()
            job.kill()


def test_the_lock_of_a_living_submitter_is_held(tmp_path: Path) -> None:
    from airflow_provider_onelake.spark.submit.engine import locked

    path = tmp_path / "alive"
    with locked(path), path.open("rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    pyspark = pytest.importorskip("pyspark.sql")
    given: dict[str, str] = {}

    class Builder:
        def config(self, key: str, value: str) -> Builder:
            given[key] = value
            return self

        def getOrCreate(self) -> str:  # noqa: N802
            return "session"

    monkeypatch.setattr("pyspark.SparkConf", lambda: {driver.ENVIRONMENT: "A_SECRET"})
    monkeypatch.setattr(pyspark.SparkSession, "builder", Builder())
    monkeypatch.setenv("A_SECRET", "value")
    return given


def test_executors_are_given_the_environment_that_is_named(built: dict[str, str]) -> None:
    assert driver._session() == "session"
    assert built == {"spark.executorEnv.A_SECRET": "value"}
    assert os.environ["A_SECRET"] == "value"


def test_a_driver_is_no_client_of_spark_connect(built: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    clients = {"SPARK_CONNECT_MODE_ENABLED": "1", "SPARK_REMOTE": "sc://elsewhere", "SPARK_LOCAL_REMOTE": "1"}
    for name, value in clients.items():
        monkeypatch.setenv(name, value)
    assert driver._session() == "session"
    assert not clients.keys() & os.environ.keys()


def test_executors_do_not_fetch_the_drivers_code_from_a_store_that_they_cannot_reach_yet() -> None:
    jars = "file:///j/aws.jar,s3a://lakes/t/staged/jobs/a/staging/onelake_spark_jobs-1a2b.jar,file:///j/delta.jar"
    left = "file:///j/aws.jar,file:///j/delta.jar"
    assert driver.for_executors(jars, "onelake_spark_jobs-1a2b.jar") == left
    assert driver.for_executors(left, "/opt/main.py") == left
