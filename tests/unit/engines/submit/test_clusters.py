"""Cluster mode against a master's REST server and a script in the place of Spark: submitted once, found again, killed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.engines.base import StageJob, VacuumJob
from airflow_provider_onelake.engines.submit.engine import SubmitEngine
from airflow_provider_onelake.engines.submit.package import job_package
from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    SparkJobError,
    SparkJobTimeoutError,
    SparkQueryError,
    SparkSetUpError,
    SparkUnavailableError,
)
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.s3 import S3Credentials
from airflow_provider_onelake.storage.spark import spark_access
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.cluster_mode import DRIVER, ERROR, RESULT, Master, rest_server, says, spool, submitted
from tests.support.fake_submit import FakeSubmit, option, settings

NewEngine = Callable[..., SubmitEngine]


@pytest.fixture
def master() -> Iterator[Master]:
    found = Master()
    with rest_server(found.answer) as found.url:
        yield found


@pytest.fixture
def submit(submit_there: FakeSubmit) -> FakeSubmit:
    submit_there.does(f"print('Driver successfully submitted as {DRIVER}')")
    return submit_there


@pytest.fixture
def new_engine(master: Master, clustered: NewEngine) -> NewEngine:
    extra = {"rest-port": master.url.rpartition(":")[2]}
    return lambda **arguments: clustered(extra, "spark://127.0.0.1", 7077, **arguments)


def finishes(master: Master, store: ObjectStore, job: StageJob, polls: int = 3, **fields: object) -> None:
    """Let the driver end after so many questions."""
    left = [polls]

    def ask() -> None:
        left[0] -= 1
        if left[0] == 0:
            says(store, job, **(fields or {"result": RESULT}))
            master.state = "FAILED" if "error" in fields else "FINISHED"

    master.when_asked = ask


def test_a_driver_is_submitted_followed_and_tidied_away(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    finishes(master, store, job)
    assert new_engine().stage(job).application_id == "app-1"
    (call,) = submit.calls
    argv, place = call["argv"], spool(store, job)
    # spark-submit refuses Python here; Spark's own runner of Python is a JVM like any other.
    assert option(argv, "--class") == "org.apache.spark.deploy.PythonRunner"
    name = job_package().name.replace(".zip", ".jar")
    assert argv[-5:] == [place.address(name), name, name, place.address("job.json"), place.address("result.json")]
    assert not list(store.list(place.path))


def test_secrets_are_not_sent_to_a_cluster(
    submit: FakeSubmit,
    master: Master,
    store: ObjectStore,
    job: StageJob,
    new_engine: NewEngine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    finishes(master, store, job)
    keys = S3Credentials(access_key="A", secret_key="s3cr3t", endpoint="https://store")
    access = spark_access(TableAddress.parse("s3://lake/t"), keys)
    new_engine(access=lambda: access).stage(job)
    (call,) = submit.calls
    told = settings(call["argv"])
    assert told["spark.hadoop.fs.s3a.bucket.lake.endpoint"] == "https://store"
    assert not [name for name in told if "provider" in name]
    assert "s3cr3t" not in json.dumps(call)
    assert "spark.onelake.environment" not in told
    assert "AWS_SECRET_ACCESS_KEY" in caplog.text
    assert "s3cr3t" not in caplog.text


@pytest.mark.parametrize(
    "secret",
    [
        {"source": {"kind": "files", "path": ["/in"], "format": "csv", "options": {"password": "s3cr3t"}}},
        {"source": {"kind": "files", "path": ["/in"], "format": "x", "options": {"url": "jdbc:x://me:s3cr3t@db/t"}}},
    ],
    ids=["option", "address"],
)
def test_a_secret_does_not_go_through_the_tables_store(
    submit: FakeSubmit, store: ObjectStore, job: StageJob, new_engine: NewEngine, secret: dict[str, Any]
) -> None:
    with pytest.raises(InvalidWriteError, match="for everybody who reads the table") as refused:
        new_engine().stage(attrs.evolve(job, **secret))
    assert "s3cr3t" not in str(refused.value)
    assert not list(store.list("staged"))
    assert not submit.calls


def test_its_error_is_raised_as_the_typed_one(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    said = {"message": "no such column", "condition": "UNRESOLVED_COLUMN", "state": "42703"}
    finishes(master, store, job, error={**ERROR, **said})
    with pytest.raises(SparkQueryError, match="no such column"):
        new_engine().stage(job)


def test_an_error_of_a_driver_that_its_cluster_starts_again_is_not_the_last_word(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    says(store, job, error=ERROR)
    master.state = "RELAUNCHING"
    finishes(master, store, job)
    assert new_engine().stage(job).application_id == "app-1"


def test_a_driver_that_ends_without_a_result(
    submit: FakeSubmit, master: Master, job: StageJob, new_engine: NewEngine
) -> None:
    master.state = "ERROR"
    with pytest.raises(SparkJobError, match=r"without a result. Its log is on the cluster: one that lacks JARs"):
        new_engine().stage(job)


# -- found again ---------------------------------------------------------------------------------------------------


def test_the_same_attempt_never_submits_twice(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    """As when a task comes back from the triggerer."""
    submitted(store, job, DRIVER)
    finishes(master, store, job)
    assert new_engine().stage(job).application_id == "app-1"
    assert not submit.calls


def test_the_next_attempt_waits_for_the_driver_that_a_dead_worker_left(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    place = submitted(store, job, DRIVER)
    finishes(master, store, job)
    new_engine().wait_for(job.table_uri, "a1", "staging")
    assert master.state == "FINISHED"
    assert not submit.calls
    assert not list(store.list(place.path))


def test_a_worker_that_died_before_it_knew_the_driver_is_told_by_the_driver(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    submitted(store, job)
    says(store, job, driver=DRIVER)
    finishes(master, store, job)
    new_engine().wait_for(job.table_uri, "a1", "staging")
    assert f"GET /v1/submissions/status/{DRIVER}" in master.asked


def test_a_driver_of_which_nobody_ever_heard_is_waited_for_so_long_and_no_longer(
    store: ObjectStore, job: StageJob, new_engine: NewEngine, an_hour_later: Callable[[], None]
) -> None:
    place = submitted(store, job)
    with pytest.raises(SparkJobTimeoutError):
        new_engine(timeout=0.5).wait_for(job.table_uri, "a1", "staging")
    an_hour_later()
    new_engine(timeout=20).wait_for(job.table_uri, "a1", "staging")
    assert not list(store.list(place.path))


def test_a_driver_that_speaks_up_as_it_is_given_up_is_followed_to_its_end(
    submit: FakeSubmit,
    master: Master,
    store: ObjectStore,
    job: StageJob,
    new_engine: NewEngine,
    an_hour_later: Callable[[], None],
) -> None:
    """It may have read its job file just before that was taken back."""

    class SpeaksUp(ObjectStore):
        def delete(self, path: str) -> None:
            if path.endswith("job.json") and master.state == "SUBMITTED":
                says(store, job, driver=DRIVER)
                master.state = "RUNNING"
            super().delete(path)

    submitted(store, job)
    master.state = "SUBMITTED"
    finishes(master, store, job)
    an_hour_later()
    watched = SpeaksUp(store._store, store._name)
    new_engine(store=lambda: watched).wait_for(job.table_uri, "a1", "staging")
    assert master.state == "FINISHED"


@pytest.mark.parametrize("driver", [DRIVER, None], ids=["known", "unheard of"])
def test_a_driver_whose_work_has_changed_is_killed_or_finds_no_plan(
    master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine, driver: str | None
) -> None:
    place = submitted(store, job, driver)
    new_engine().kill(job.table_uri, "a1", "staging")
    assert master.state == ("KILLED" if driver else "RUNNING")
    assert not list(store.list(place.path))


def test_a_driver_that_was_given_up_is_waited_for_by_nobody(
    master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    """As by a task that was stopped before anybody knew the driver."""
    place = submitted(store, job)
    assert place.withdraw()
    new_engine(timeout=20).wait_for(job.table_uri, "a1", "staging")
    assert not place.submitted


def test_nothing_else_is_submitted_where_a_driver_could_not_be_killed(
    master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    place = submitted(store, job, DRIVER)
    master.down = True
    with pytest.raises(SparkUnavailableError, match="a retry finds it again"):
        new_engine().kill(job.table_uri, "a1", "staging")
    assert place.driver == DRIVER


def test_a_master_that_recovers_does_not_say_that_the_driver_is_over(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    submitted(store, job, DRIVER)
    master.recovering = True

    def recovered() -> None:
        if len(master.asked) > 2:
            master.recovering = False
            finishes(master, store, job)

    master.when_asked = recovered
    new_engine().wait_for(job.table_uri, "a1", "staging")
    assert master.state == "FINISHED"


def test_a_claim_whose_answer_was_lost_is_taken_for_ones_own_by_nobody_else(store: ObjectStore, job: StageJob) -> None:
    """A store asks, after such an answer, whether the bytes that stand there are those that it was to put."""
    claims: list[bytes] = []

    class Claimed(ObjectStore):
        def create(self, path: str, data: bytes) -> None:
            claims.append(data)

    watched = Claimed(store._store, store._name)
    assert [spool(watched, job).send("staging", job.as_dict(), owner="o") for _ in range(2)] == [True, True]
    assert claims[0] != claims[1]


def test_what_a_task_left_at_work_is_found_by_its_owner_and_by_what_it_does(
    store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    vacuum = VacuumJob(table_uri=job.table_uri, attempt="v1", inventory_uri="i", owner="test/dag/vacuum/run")
    submitted(store, job)
    submitted(store, vacuum, kind="vacuuming")
    submitted(store, attrs.evolve(vacuum, attempt="v2", owner="test/dag/vacuum/another run"), kind="vacuuming")
    engine = new_engine()
    assert engine.left_at_work(job.table_uri, vacuum.owner, "vacuuming") == ["v1"]
    assert engine.left_at_work(job.table_uri, vacuum.owner, "compacting") == []
    assert engine.left_at_work(job.table_uri, "", "staging") == []


@pytest.fixture
def question(job: StageJob) -> StageJob:
    """An analysis, as a writer asks for it when it makes its table."""
    return attrs.evolve(job, buffer_uri=None, metadata=None, owner="test/dag/load/run/w", fingerprint="f")


ANALYSIS = {"schema_json": "{}"}


@pytest.mark.parametrize(
    "change",
    [{"where": "id = 1"}, {"fingerprint": "another"}, {"fingerprint": ""}],
    ids=["another query", "another source", "a source that nobody knows"],
)
def test_an_analysis_of_other_work_is_killed_and_asked_for_anew(
    submit: FakeSubmit,
    master: Master,
    store: ObjectStore,
    question: StageJob,
    new_engine: NewEngine,
    change: dict[str, str],
) -> None:
    submitted(store, question, DRIVER, "analysing")
    now = attrs.evolve(question, attempt="a2", **change)
    killed = []

    def finish() -> None:
        killed.append(master.state == "KILLED")
        says(store, now, "analysing", result=ANALYSIS)

    master.when_asked = finish
    new_engine().analyze(now)
    # It is looked at, killed, and waited for.
    assert killed[:2] == [False, True]
    assert len(submit.calls) == 1


# -- ended ---------------------------------------------------------------------------------------------------------


def test_stop_kills_the_driver(submit: FakeSubmit, master: Master, job: StageJob, new_engine: NewEngine) -> None:
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


def test_whoever_stops_a_driver_that_cannot_be_killed_is_told_so(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    engine = new_engine()
    master.kills_to_lose = 99
    master.when_asked = lambda: engine._end("stopped") if engine._ended is None else None
    with pytest.raises(SparkJobError, match=r"could not be ended for certain.*a retry finds it"):
        engine.stage(job)
    assert spool(store, job).driver == DRIVER


def test_a_time_out_kills_the_driver(submit: FakeSubmit, master: Master, job: StageJob, new_engine: NewEngine) -> None:
    engine = new_engine(timeout=60)
    # As the timer does, but only once the driver is at work.
    master.when_asked = lambda: engine._end("expired") if engine._ended is None else None
    with pytest.raises(SparkJobTimeoutError, match="longer than 60 s"):
        engine.stage(job)
    assert master.state == "KILLED"


def test_a_master_that_does_not_answer_any_more_leaves_the_driver_at_work(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    def goes_down() -> None:
        master.down = True

    master.when_asked = goes_down
    with pytest.raises(SparkUnavailableError, match="a retry finds it again"):
        new_engine().stage(job)
    assert spool(store, job).driver == DRIVER


def test_a_master_without_a_rest_server_is_refused_before_anything_is_submitted(
    submit: FakeSubmit, master: Master, job: StageJob, new_engine: NewEngine
) -> None:
    master.down = True
    with pytest.raises(SparkSetUpError, match=r"spark\.master\.rest\.enabled"):
        new_engine().stage(job)
    assert not submit.calls


def test_a_submission_that_fails_says_why_and_leaves_nothing_to_wait_for(
    submit: FakeSubmit, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    submit.does("print('Failed to connect to master'); sys.exit(1)")
    with pytest.raises(SparkJobError, match="Failed to connect to master"):
        new_engine().stage(job)
    assert not spool(store, job).submitted


def test_a_submission_that_fails_after_its_driver_was_heard_of_is_followed(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    submit.does(f"Path(result).write_text(json.dumps({{'format': 1, 'driver': '{DRIVER}'}})); sys.exit(1)")
    finishes(master, store, job)
    assert new_engine().stage(job).application_id == "app-1"


def test_cluster_mode_needs_the_tables_store(job: StageJob, new_engine: NewEngine) -> None:
    with pytest.raises(InvalidWriteError, match="store"):
        new_engine(store=None).stage(job)


# -- a task that leaves while its driver works ---------------------------------------------------------------------


class LeftError(Exception):
    """As Airflow's TaskDeferred: nothing of the package."""


def test_a_task_leaves_when_its_driver_is_at_work_and_asks_again_later(
    submit: FakeSubmit, master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine
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


def test_a_driver_that_took_too_long_is_killed_by_the_next_try_and_waited_for_by_none_after_it(
    master: Master, store: ObjectStore, job: StageJob, new_engine: NewEngine, an_hour_later: Callable[[], None]
) -> None:
    place = submitted(store, job, DRIVER)
    an_hour_later()
    with pytest.raises(SparkJobTimeoutError, match="longer than 60 s"):
        new_engine(timeout=60).wait_for(job.table_uri, "a1", "staging")
    assert master.state == "KILLED"
    new_engine(timeout=60).wait_for(job.table_uri, "a1", "staging")
    assert not place.submitted
