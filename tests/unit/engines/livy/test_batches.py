"""Batches of a plain Livy: made once whatever answer is lost, found again, followed to their end, deleted."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest

from airflow_provider_onelake.engines.base import StageJob
from airflow_provider_onelake.engines.livy.batches import Batches
from airflow_provider_onelake.engines.livy.client import LivyClient
from airflow_provider_onelake.engines.livy.engine import LivyEngine
from airflow_provider_onelake.engines.submit.package import job_package
from airflow_provider_onelake.engines.submit.spool import JobSpool
from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    InvalidWriteError,
    SparkJobError,
    SparkJobTimeoutError,
    SparkQueryError,
    SparkSetUpError,
    SparkUnavailableError,
)
from airflow_provider_onelake.fabric.client import Client
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.cluster_mode import ERROR, RESULT, says, spool, submitted
from tests.support.livy import PlainLivy

NewEngine = Callable[..., LivyEngine]
NAME = "onelake-a1-staging"


def ends(
    livy: PlainLivy, store: ObjectStore, job: StageJob, state: str = "success", polls: int = 2, **fields: object
) -> None:
    """Let the batch end after so many questions, with a result unless its state says otherwise."""
    left = [polls]

    def ask() -> None:
        left[0] -= 1
        for batch in livy.batches.values():
            batch["state"] = "running"
        if left[0] <= 0:
            if state == "success" or fields:
                says(store, job, **(fields or {"result": RESULT}))
            for batch in livy.batches.values():
                batch["state"] = state

    livy.when_asked = ask


def test_a_batch_is_made_followed_and_tidied_away(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    ends(livy, store, job)
    assert new_engine({"conf": {"spark.executor.memory": "4g"}, "jars": "abfss://x/y.jar"}).stage(job).engine == "livy"
    (body,) = livy.bodies
    place = spool(store, job)
    conf = body.pop("conf")
    assert re.fullmatch(f"{NAME}-[0-9a-f]{{8}}", body.pop("name"))
    assert body == {
        "file": place.address("main.py"),
        "pyFiles": [place.address(job_package().name)],
        "args": [place.address("job.json"), place.address("result.json"), NAME],
        "jars": ["abfss://x/y.jar"],
    }
    assert conf["spark.executor.memory"] == "4g"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert not list(store.list(place.path))


# -- an answer that is lost ----------------------------------------------------------------------------------------


def test_a_batch_whose_answer_was_lost_is_found_by_its_name_and_not_made_twice(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    livy.lose = "done"
    ends(livy, store, job)
    new_engine().stage(job)
    assert livy.count("POST") == 1
    assert len(livy.batches) == 1


def test_a_batch_that_never_came_to_be_is_given_up_and_could_do_nothing_any_more(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine, an_hour_later: Callable[[], None]
) -> None:
    livy.lose = "undone"
    taken_back: list[str] = []

    class Watched(ObjectStore):
        def delete(self, path: str) -> None:
            taken_back.append(path)
            super().delete(path)

    an_hour_later()
    watched = Watched(store._store, store._name)
    with pytest.raises(SparkJobError, match="without a result"):
        new_engine(store=lambda: watched).stage(job)
    assert livy.count("POST") == 1
    assert taken_back[0].endswith("job.json")


def test_a_connection_that_was_never_made_has_carried_nothing_so_the_batch_is_asked_for_again(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx

    ends(livy, store, job)
    send, failed = httpx.Client.request, []

    def request(self: httpx.Client, method: str, url: str, **more: object) -> httpx.Response:
        if method == "POST" and not failed:
            failed.append(url)
            raise httpx.ConnectError("refused")
        return send(self, method, url, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(httpx.Client, "request", request)
    new_engine().stage(job)
    assert failed
    assert livy.count("POST") == 1


# -- no room -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 430, 400])
def test_a_batch_waits_for_room_as_long_as_livy_says(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine, pauses: list[float], status: int
) -> None:
    livy.full = [(status, "7"), (status, "11")]
    ends(livy, store, job)
    new_engine().stage(job)
    assert pauses == [7, 11]
    assert livy.count("POST") == 3


def test_where_there_is_no_room_for_longer_than_the_patience_nothing_is_left_behind(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    livy.full = [(430, "600")]
    with pytest.raises(SparkUnavailableError, match=r"430 Rejected.*Nothing was submitted.*retry_delay"):
        new_engine().stage(job)
    assert livy.count("POST") == 1
    assert not list(store.list("staged"))


def test_a_task_that_is_stopped_while_it_waits_for_room_submits_nothing(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    livy.full = [(430, "100")] * 5

    engine = new_engine()

    pause = Client._pause

    def stopped(self: Client, seconds: float) -> None:
        threading.Thread(target=engine.stop).start()
        pause(self, 20)

    monkeypatch.setattr(LivyClient, "_pause", stopped)
    with pytest.raises((SparkUnavailableError, SparkJobError)):
        engine.stage(job)
    assert livy.count("POST") == 1
    assert not livy.batches


# -- is it over? ---------------------------------------------------------------------------------------------------


def test_a_new_batch_that_is_not_shown_yet_has_not_ended(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    livy.unseen = 3
    ends(livy, store, job, polls=5)
    assert new_engine().stage(job).application_id == "app-1"


def test_a_batch_that_was_seen_and_is_gone_has_ended(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    """As after a restart of a Livy that keeps nothing."""
    asked: list[int] = []

    def forget() -> None:
        asked.append(1)
        if len(asked) == 2:
            livy.batches.clear()

    livy.when_asked = forget
    with pytest.raises(SparkJobError, match="without a result"):
        new_engine().stage(job)


def test_a_batch_that_nobody_knows_long_after_it_was_made_has_ended(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Batches, "appears_seconds", -1)
    place = submitted(store, job, "17")
    new_engine(timeout=20).wait_for(job.table_uri, "a1", "staging")
    assert not place.submitted


@pytest.mark.parametrize("state", ["dead", "error", "killed"])
def test_a_batch_that_ends_without_a_result_is_explained_by_livy_and_by_its_log(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine, state: str
) -> None:
    ends(livy, store, job, state)
    with pytest.raises(SparkJobError, match=rf"(?s)without a result.*batch 0: state {state}.*no JARs"):
        new_engine().stage(job)


def test_the_error_of_a_job_is_raised_as_the_typed_one(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    said = {"message": "no such column", "condition": "UNRESOLVED_COLUMN", "state": "42703"}
    ends(livy, store, job, "dead", error={**ERROR, **said})
    with pytest.raises(SparkQueryError, match="no such column"):
        new_engine().stage(job)


def test_a_spark_that_is_too_old_is_refused_for_good_and_says_what_to_choose(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    said = {"class": "SparkIsNotSetUpError", "message": "It runs Spark 3.5.5. Jobs of this package need Spark 4.0."}
    ends(livy, store, job, "dead", error={**ERROR, **said})
    with pytest.raises(SparkSetUpError, match=r"Choose a newer Spark there; on Fabric, .*Spark 3\.5\.5") as refused:
        new_engine().stage(job)
    assert "JARs" not in str(refused.value)


# -- found again ---------------------------------------------------------------------------------------------------


def test_the_same_attempt_never_makes_a_second_batch(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    """As when a task comes back from the triggerer."""
    submitted(store, job, str(livy.made(NAME)))
    ends(livy, store, job)
    assert new_engine().stage(job).application_id == "app-1"
    assert livy.count("POST") == 0


@pytest.mark.parametrize("known", [True, False], ids=["id", "name"])
def test_the_next_attempt_waits_for_the_batch_that_a_dead_worker_left(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine, known: bool
) -> None:
    livy.made("somebody-elses")
    place = submitted(store, job)
    number = livy.made(place.own_name)
    if known:
        place.remember(driver=str(number))
    ends(livy, store, job)
    new_engine().wait_for(job.table_uri, "a1", "staging")
    assert livy.batches[number]["state"] == "success"
    assert livy.count("POST") == 0
    assert ("GET", f"/batches/{number}") in livy.asked
    assert not place.submitted


def test_a_batch_is_found_among_many(livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine) -> None:
    for number in range(230):
        livy.made(f"other-{number}", "dead")
    number = livy.made(submitted(store, job).own_name)
    ends(livy, store, job)
    new_engine().wait_for(job.table_uri, "a1", "staging")
    assert ("GET", f"/batches/{number}") in livy.asked


def test_a_driver_that_says_its_batchs_name_is_asked_for_by_its_id(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    number = livy.made(submitted(store, job).own_name)
    says(store, job, driver=NAME)
    ends(livy, store, job)
    new_engine().wait_for(job.table_uri, "a1", "staging")
    assert {path for method, path in livy.asked} == {"/batches", f"/batches/{number}"}


def test_a_deferred_task_leaves_once_its_batch_is_known(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    class LeftError(Exception):
        pass

    def leave(attempt: str, left: float | None) -> None:
        raise LeftError(attempt)

    with pytest.raises(LeftError, match="a1"):
        new_engine(leave=leave).stage(job)
    assert spool(store, job).driver == "0"
    assert not LivyEngine.has_ended(store, "a1", "staging")
    ends(livy, store, job)
    assert new_engine().stage(job).application_id == "app-1"
    assert livy.count("POST") == 1


# -- ended ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["id", "name"])
def test_a_batch_whose_work_has_changed_is_deleted(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine, known: bool
) -> None:
    place = submitted(store, job)
    number = livy.made(place.own_name)
    if known:
        place.remember(driver=str(number))
    new_engine().kill(job.table_uri, "a1", "staging")
    assert not livy.batches
    assert not list(store.list(place.path))


def test_a_batch_that_is_not_shown_yet_is_looked_for_until_it_is_deleted(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    submitted(store, job, str(livy.made(NAME)))
    livy.unseen = 3
    new_engine().kill(job.table_uri, "a1", "staging")
    assert not livy.batches


@pytest.mark.parametrize("how", ["stopped", "expired"])
def test_a_stop_and_a_time_out_delete_the_batch_and_take_its_job_back(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine, how: str
) -> None:
    engine = new_engine()
    ending = [threading.Thread(target=engine._end, args=[how])]
    livy.when_asked = lambda: ending.pop().start() if ending else None
    if how == "expired":
        engine._timeout = 3600
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(engine.stage, job)
        with pytest.raises(SparkJobError if how == "stopped" else SparkJobTimeoutError, match="was ended"):
            waiting.result(30)
    assert not livy.batches
    assert spool(store, job).withdrawn
    assert "job.json" not in {info.path.rpartition("/")[2] for info in store.list("staged/jobs")}


# -- refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, AccessDeniedError), (403, AccessDeniedError), (404, SparkSetUpError), (400, SparkSetUpError)],
)
def test_a_livy_that_refuses_is_told_before_anything_is_left_in_the_store(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine, status: int, error: type[Exception]
) -> None:
    livy.refuse = (status, "so it is")
    with pytest.raises(error, match=rf"{status} so it is"):
        new_engine().stage(job)
    assert not list(store.list("staged"))


def test_a_name_that_is_taken_is_refused_by_livy_and_leaves_nothing_behind(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobSpool, "own_name", NAME)
    livy.made(NAME)
    with pytest.raises(SparkSetUpError, match="Duplicate session name"):
        new_engine().stage(job)
    assert not list(store.list("staged"))


def test_a_second_job_of_an_attempt_is_a_batch_of_another_name(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    """Livy still has the first one."""
    engine = new_engine()
    for _ in range(2):
        ends(livy, store, job)
        engine.stage(job)
    first, second = (body["name"] for body in livy.bodies)
    assert first != second


def test_a_livy_that_is_not_there_is_unavailable(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    livy.url = "http://127.0.0.1:1"
    with pytest.raises(SparkUnavailableError, match="does not answer"):
        new_engine({"patience": 0}).stage(job)
    assert not list(store.list("staged"))


def test_a_secret_and_a_function_are_refused_early(livy: PlainLivy, job: StageJob, new_engine: NewEngine) -> None:
    secret = {"kind": "files", "path": ["/in"], "format": "csv", "options": {"password": "s3cr3t"}}
    with pytest.raises(InvalidWriteError, match="everybody who reads the table"):
        new_engine().stage(attrs.evolve(job, source=secret))
    rows = attrs.evolve(job, source={"kind": "function"}, rows=lambda _: None)
    with pytest.raises(InvalidWriteError, match="'spark_connect'"):
        new_engine().stage(rows)
    assert not livy.asked


def test_what_is_sent_holds_no_secret_of_the_store(
    livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: NewEngine
) -> None:
    from airflow_provider_onelake.storage.spark import SparkAccess

    access = SparkAccess({"spark.hadoop.a": "b"}, {"AWS_SECRET_ACCESS_KEY": "s3cr3t"}, ("g:a:1",))
    ends(livy, store, job)
    new_engine({"packages": None}, access=lambda: access).stage(job)
    assert "s3cr3t" not in json.dumps(livy.bodies)
    assert livy.bodies[0]["conf"]["spark.hadoop.a"] == "b"
