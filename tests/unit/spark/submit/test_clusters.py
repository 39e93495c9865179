"""Cluster mode against a master's REST server and a script in the place of Spark: submitted once, found again, killed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.spark.base import StageJob, VacuumJob
from airflow_provider_onelake.spark.submit.engine import SubmitEngine
from airflow_provider_onelake.spark.submit.package import job_package
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.s3 import S3Credentials
from airflow_provider_onelake.storage.spark import spark_access
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.cluster_mode import DRIVER, ERROR, RESULT, Master, OneJob, rest_server, says, spool, submitted
from tests.support.fake_submit import FakeSubmit, option, settings
from tests.support.versions import needs_newer_provider

pytestmark = needs_newer_provider("follows drivers")

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


@attrs.define(kw_only=True)
class There(OneJob):
    master: Master
    submit: FakeSubmit

    def finishes(self, polls: int = 3, **fields: object) -> None:
        """Let the driver end after so many questions."""
        left = [polls]

        def ask() -> None:
            left[0] -= 1
            if left[0] == 0:
                self.says(**(fields or {"result": RESULT}))
                self.master.state = "FAILED" if "error" in fields else "FINISHED"

        self.master.when_asked = ask


@pytest.fixture
def there(master: Master, submit: FakeSubmit, store: ObjectStore, job: StageJob, new_engine: NewEngine) -> There:
    return There(master=master, submit=submit, store=store, job=job, new_engine=new_engine)


def test_a_driver_is_submitted_followed_and_tidied_away(there: There) -> None:
    there.finishes()
    assert there.stage().application_id == "app-1"
    (call,) = there.submit.calls
    argv, place = call["argv"], there.spool()
    # spark-submit refuses Python here; Spark's own runner of Python is a JVM like any other.
    assert option(argv, "--class") == "org.apache.spark.deploy.PythonRunner"
    name = job_package().name.replace(".zip", ".jar")
    assert argv[-5:] == [place.address(name), name, name, place.address("job.json"), place.address("result.json")]
    assert not list(there.store.list(place.path))


def test_secrets_are_not_sent_to_a_cluster(there: There, caplog: pytest.LogCaptureFixture) -> None:
    there.finishes()
    keys = S3Credentials(access_key="A", secret_key="s3cr3t", endpoint="https://store")
    access = spark_access(TableAddress.parse("s3://lake/t"), keys)
    there.new_engine(access=lambda: access).stage(there.job)
    (call,) = there.submit.calls
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
def test_a_secret_does_not_go_through_the_tables_store(there: There, secret: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidWriteError, match="for everybody who reads the table") as refused:
        there.new_engine().stage(attrs.evolve(there.job, **secret))
    assert "s3cr3t" not in str(refused.value)
    assert not list(there.store.list("staged"))
    assert not there.submit.calls


def test_an_error_of_a_driver_that_its_cluster_starts_again_is_not_the_last_word(there: There) -> None:
    there.says(error=ERROR)
    there.master.state = "RELAUNCHING"
    there.finishes()
    assert there.stage().application_id == "app-1"


def test_a_driver_that_ends_without_a_result(there: There) -> None:
    there.master.state = "ERROR"
    with pytest.raises(errors.SparkJobError, match=r"without a result. Its log is on the cluster: one that lacks JARs"):
        there.stage()


def test_the_same_attempt_never_submits_twice(there: There) -> None:
    """As when a task comes back from the triggerer."""
    there.submitted(DRIVER)
    there.finishes()
    assert there.stage().application_id == "app-1"
    assert not there.submit.calls


def test_the_next_attempt_waits_for_the_driver_that_a_dead_worker_left(there: There) -> None:
    place = there.submitted(DRIVER)
    there.finishes()
    there.new_engine().wait_for(there.job.table_uri, "a1", "staging")
    assert there.master.state == "FINISHED"
    assert not there.submit.calls
    assert not list(there.store.list(place.path))


def test_a_worker_that_died_before_it_knew_the_driver_is_told_by_the_driver(there: There) -> None:
    there.submitted()
    there.says(driver=DRIVER)
    there.finishes()
    there.new_engine().wait_for(there.job.table_uri, "a1", "staging")
    assert f"GET /v1/submissions/status/{DRIVER}" in there.master.asked


def test_a_driver_never_heard_of_is_waited_for_so_long(there: There, an_hour_later: Callable[[], None]) -> None:
    place = there.submitted()
    with pytest.raises(errors.SparkJobTimeoutError):
        there.new_engine(timeout=0.5).wait_for(there.job.table_uri, "a1", "staging")
    an_hour_later()
    there.new_engine(timeout=20).wait_for(there.job.table_uri, "a1", "staging")
    assert not list(there.store.list(place.path))


def test_a_driver_that_speaks_up_at_last_is_followed(there: There, an_hour_later: Callable[[], None]) -> None:
    """It may have read its job file just before that was taken back."""

    class SpeaksUp(ObjectStore):
        def delete(self, path: str) -> None:
            if path.endswith("job.json") and there.master.state == "SUBMITTED":
                there.says(driver=DRIVER)
                there.master.state = "RUNNING"
            super().delete(path)

    there.submitted()
    there.master.state = "SUBMITTED"
    there.finishes()
    an_hour_later()
    watched = SpeaksUp(there.store._store, there.store._name)
    there.new_engine(store=lambda: watched).wait_for(there.job.table_uri, "a1", "staging")
    assert there.master.state == "FINISHED"


@pytest.mark.parametrize("driver", [DRIVER, None], ids=["known", "unheard of"])
def test_a_driver_whose_work_has_changed_is_killed_or_finds_no_plan(there: There, driver: str | None) -> None:
    place = there.submitted(driver)
    there.new_engine().kill(there.job.table_uri, "a1", "staging")
    assert there.master.state == ("KILLED" if driver else "RUNNING")
    assert not list(there.store.list(place.path))


def test_a_driver_that_was_given_up_is_waited_for_by_nobody(there: There) -> None:
    """As by a task that was stopped before anybody knew the driver."""
    place = there.submitted()
    assert place.withdraw()
    there.new_engine(timeout=20).wait_for(there.job.table_uri, "a1", "staging")
    assert not place.submitted


def test_nothing_else_is_submitted_where_a_driver_could_not_be_killed(there: There) -> None:
    place = there.submitted(DRIVER)
    there.master.down = True
    with pytest.raises(errors.SparkUnavailableError, match="a retry finds it again"):
        there.new_engine().kill(there.job.table_uri, "a1", "staging")
    assert place.driver == DRIVER


def test_a_master_that_recovers_does_not_say_that_the_driver_is_over(there: There) -> None:
    there.submitted(DRIVER)
    there.master.recovering = True

    def recovered() -> None:
        if len(there.master.asked) > 2:
            there.master.recovering = False
            there.finishes()

    there.master.when_asked = recovered
    there.new_engine().wait_for(there.job.table_uri, "a1", "staging")
    assert there.master.state == "FINISHED"


def test_a_claim_whose_answer_was_lost_is_taken_for_ones_own_by_nobody_else(there: There) -> None:
    """A store asks, after such an answer, whether the bytes that stand there are those that it was to put."""
    claims: list[bytes] = []

    class Claimed(ObjectStore):
        def create(self, path: str, data: bytes) -> None:
            claims.append(data)

    watched = Claimed(there.store._store, there.store._name)
    assert [spool(watched, there.job).send("staging", there.job.as_dict(), owner="o") for _ in range(2)] == [True, True]
    assert claims[0] != claims[1]


def test_what_a_task_left_at_work_is_found_by_its_owner_and_by_what_it_does(there: There) -> None:
    vacuum = VacuumJob(table_uri=there.job.table_uri, attempt="v1", inventory_uri="i", owner="test/dag/vacuum/run")
    there.submitted()
    submitted(there.store, vacuum, kind="vacuuming")
    submitted(there.store, attrs.evolve(vacuum, attempt="v2", owner="test/dag/vacuum/another run"), kind="vacuuming")
    engine = there.new_engine()
    assert engine.left_at_work(there.job.table_uri, vacuum.owner, "vacuuming") == ["v1"]
    assert engine.left_at_work(there.job.table_uri, vacuum.owner, "compacting") == []
    assert engine.left_at_work(there.job.table_uri, "", "staging") == []


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
def test_an_analysis_of_other_work_is_asked_for_anew(there: There, question: StageJob, change: dict[str, str]) -> None:
    submitted(there.store, question, DRIVER, "analysing")
    now = attrs.evolve(question, attempt="a2", **change)
    killed = []

    def finish() -> None:
        killed.append(there.master.state == "KILLED")
        says(there.store, now, "analysing", result=ANALYSIS)

    there.master.when_asked = finish
    there.new_engine().analyze(now)
    # It is looked at, killed, and waited for.
    assert killed[:2] == [False, True]
    assert len(there.submit.calls) == 1


def test_stop_kills_the_driver(there: There) -> None:
    engine = there.new_engine()
    running = threading.Event()
    there.master.when_asked = running.set
    with ThreadPoolExecutor(1) as pool:
        staging = pool.submit(engine.stage, there.job)
        assert running.wait(20)
        engine.stop()
        with pytest.raises(errors.SparkJobError, match="as asked"):
            staging.result(20)
    assert there.master.state == "KILLED"
    assert there.spool().withdrawn


def test_whoever_stops_a_driver_that_cannot_be_killed_is_told_so(there: There) -> None:
    engine = there.new_engine()
    there.master.kills_to_lose = 99
    there.master.when_asked = lambda: engine._end("stopped") if engine._ended is None else None
    with pytest.raises(errors.SparkJobError, match=r"could not be ended for certain.*a retry finds it"):
        engine.stage(there.job)
    assert there.spool().driver == DRIVER


def test_a_time_out_kills_the_driver(there: There) -> None:
    engine = there.new_engine(timeout=60)
    # As the timer does, but only once the driver is at work.
    there.master.when_asked = lambda: engine._end("expired") if engine._ended is None else None
    with pytest.raises(errors.SparkJobTimeoutError, match="longer than 60 s"):
        engine.stage(there.job)
    assert there.master.state == "KILLED"


def test_a_master_that_does_not_answer_any_more_leaves_the_driver_at_work(there: There) -> None:
    def goes_down() -> None:
        there.master.down = True

    there.master.when_asked = goes_down
    with pytest.raises(errors.SparkUnavailableError, match="a retry finds it again"):
        there.stage()
    assert there.spool().driver == DRIVER


def test_a_master_without_a_rest_server_is_refused_before_anything_is_submitted(there: There) -> None:
    there.master.down = True
    with pytest.raises(errors.SparkSetUpError, match=r"spark\.master\.rest\.enabled"):
        there.stage()
    assert not there.submit.calls


def test_a_submission_that_fails_says_why_and_leaves_nothing_to_wait_for(there: There) -> None:
    there.submit.does("print('Failed to connect to master'); sys.exit(1)")
    with pytest.raises(errors.SparkJobError, match="Failed to connect to master"):
        there.stage()
    assert not there.spool().submitted


def test_a_submission_that_fails_after_its_driver_was_heard_of_is_followed(there: There) -> None:
    there.submit.does(f"Path(result).write_text(json.dumps({{'format': 1, 'driver': '{DRIVER}'}})); sys.exit(1)")
    there.finishes()
    assert there.stage().application_id == "app-1"


def test_cluster_mode_needs_the_tables_store(there: There) -> None:
    with pytest.raises(errors.InvalidWriteError, match="store"):
        there.new_engine(store=None).stage(there.job)


class LeftError(Exception):
    """As Airflow's TaskDeferred: nothing of the package."""


def test_a_task_leaves_when_its_driver_is_at_work_and_asks_again_later(there: There) -> None:
    left: list[tuple[str, float | None]] = []

    def leave(attempt: str, seconds: float | None) -> None:
        left.append((attempt, seconds))
        raise LeftError

    with pytest.raises(LeftError):
        there.new_engine(leave=leave, timeout=60).stage(there.job)
    assert there.master.state == "RUNNING"
    there.says(result=RESULT)
    there.master.state = "FINISHED"
    assert there.new_engine(leave=leave, timeout=60).stage(there.job).application_id == "app-1"
    assert len(there.submit.calls) == 1
    ((attempt, seconds),) = left
    assert attempt == "a1"
    assert seconds is not None
    assert 30 < seconds <= 60


def test_a_driver_that_took_too_long_is_killed_by_the_next_try(there: There, an_hour_later: Callable[[], None]) -> None:
    place = there.submitted(DRIVER)
    an_hour_later()
    with pytest.raises(errors.SparkJobTimeoutError, match="longer than 60 s"):
        there.new_engine(timeout=60).wait_for(there.job.table_uri, "a1", "staging")
    assert there.master.state == "KILLED"
    there.new_engine(timeout=60).wait_for(there.job.table_uri, "a1", "staging")
    assert not place.submitted
