"""Batches of a plain Livy: made once whatever answer is lost, found again, followed to their end, deleted."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable

import attrs
import pytest

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    InvalidWriteError,
    SparkJobError,
    SparkSetUpError,
    SparkUnavailableError,
)
from airflow_provider_onelake.fabric.client import Client
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.livy.batches import Batches
from airflow_provider_onelake.spark.livy.client import LivyClient
from airflow_provider_onelake.spark.livy.engine import LivyEngine
from airflow_provider_onelake.spark.submit.package import job_package
from airflow_provider_onelake.spark.submit.spool import JobSpool
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.cluster_mode import ERROR, RESULT, OneJob
from tests.support.livy import PlainLivy

NAME = "onelake-a1-staging"


@attrs.define(kw_only=True)
class Plain(OneJob):
    livy: PlainLivy

    def ends(self, state: str = "success", polls: int = 2, **fields: object) -> None:
        """Let the batch end after so many questions, with a result unless its state says otherwise."""
        left = [polls]

        def ask() -> None:
            left[0] -= 1
            for batch in self.livy.batches.values():
                batch["state"] = "running"
            if left[0] <= 0:
                if state == "success" or fields:
                    self.says(**(fields or {"result": RESULT}))
                for batch in self.livy.batches.values():
                    batch["state"] = state

        self.livy.when_asked = ask


@pytest.fixture
def plain(livy: PlainLivy, store: ObjectStore, job: StageJob, new_engine: Callable[..., LivyEngine]) -> Plain:
    return Plain(livy=livy, store=store, job=job, new_engine=new_engine)


def test_a_batch_is_made_followed_and_tidied_away(plain: Plain) -> None:
    plain.ends()
    extra = {"conf": {"spark.executor.memory": "4g"}, "jars": "abfss://x/y.jar"}
    assert plain.new_engine(extra).stage(plain.job).engine == "livy"
    (body,) = plain.livy.bodies
    place = plain.spool()
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
    assert not list(plain.store.list(place.path))


def test_a_batch_whose_answer_was_lost_is_found_by_its_name_and_not_made_twice(plain: Plain) -> None:
    plain.livy.lose = "done"
    plain.ends()
    plain.stage()
    assert plain.livy.count("POST") == 1
    assert len(plain.livy.batches) == 1


def test_a_batch_that_never_came_to_be_is_given_up(plain: Plain, an_hour_later: Callable[[], None]) -> None:
    plain.livy.lose = "undone"
    taken_back: list[str] = []

    class Watched(ObjectStore):
        def delete(self, path: str) -> None:
            taken_back.append(path)
            super().delete(path)

    an_hour_later()
    watched = Watched(plain.store._store, plain.store._name)
    with pytest.raises(SparkJobError, match="without a result"):
        plain.new_engine(store=lambda: watched).stage(plain.job)
    assert plain.livy.count("POST") == 1
    assert taken_back[0].endswith("job.json")


def test_a_batch_whose_connection_failed_is_asked_for_again(plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    plain.ends()
    send, failed = httpx.Client.request, []

    def request(self: httpx.Client, method: str, url: str, **more: object) -> httpx.Response:
        if method == "POST" and not failed:
            failed.append(url)
            raise httpx.ConnectError("refused")
        return send(self, method, url, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(httpx.Client, "request", request)
    plain.stage()
    assert failed
    assert plain.livy.count("POST") == 1


@pytest.mark.parametrize("status", [429, 430, 400])
def test_a_batch_waits_for_room_as_long_as_livy_says(plain: Plain, pauses: list[float], status: int) -> None:
    plain.livy.full = [(status, "7"), (status, "11")]
    plain.ends()
    plain.stage()
    assert pauses == [7, 11]
    assert plain.livy.count("POST") == 3


def test_where_there_is_no_room_for_longer_than_the_patience_nothing_is_left_behind(plain: Plain) -> None:
    plain.livy.full = [(430, "600")]
    with pytest.raises(SparkUnavailableError, match=r"430 Rejected.*Nothing was submitted.*retry_delay"):
        plain.stage()
    assert plain.livy.count("POST") == 1
    assert not list(plain.store.list("staged"))


def test_a_task_stopped_while_it_waits_submits_nothing(plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.livy.full = [(430, "100")] * 5

    engine = plain.new_engine()

    pause = Client._pause

    def stopped(self: Client, seconds: float) -> None:
        threading.Thread(target=engine.stop).start()
        pause(self, 20)

    monkeypatch.setattr(LivyClient, "_pause", stopped)
    with pytest.raises((SparkUnavailableError, SparkJobError)):
        engine.stage(plain.job)
    assert plain.livy.count("POST") == 1
    assert not plain.livy.batches


def test_a_new_batch_that_is_not_shown_yet_has_not_ended(plain: Plain) -> None:
    plain.livy.unseen = 3
    plain.ends(polls=5)
    assert plain.stage().application_id == "app-1"


def test_a_batch_that_was_seen_and_is_gone_has_ended(plain: Plain) -> None:
    """As after a restart of a Livy that keeps nothing."""
    asked: list[int] = []

    def forget() -> None:
        asked.append(1)
        if len(asked) == 2:
            plain.livy.batches.clear()

    plain.livy.when_asked = forget
    with pytest.raises(SparkJobError, match="without a result"):
        plain.stage()


def test_a_batch_that_nobody_knows_after_long_has_ended(plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batches, "appears_seconds", -1)
    place = plain.submitted("17")
    plain.new_engine(timeout=20).wait_for(plain.job.table_uri, "a1", "staging")
    assert not place.submitted


@pytest.mark.parametrize("state", ["dead", "error", "killed"])
def test_a_batch_that_ends_without_a_result_is_explained_by_livy_and_by_its_log(plain: Plain, state: str) -> None:
    plain.ends(state)
    with pytest.raises(SparkJobError, match=rf"(?s)without a result.*batch 0: state {state}.*no JARs"):
        plain.stage()


def test_a_spark_that_is_too_old_is_refused_for_good_and_says_what_to_choose(plain: Plain) -> None:
    said = {"class": "SparkIsNotSetUpError", "message": "It runs Spark 3.5.5. Jobs of this package need Spark 4.0."}
    plain.ends("dead", error={**ERROR, **said})
    with pytest.raises(SparkSetUpError, match=r"Choose a newer Spark there; on Fabric, .*Spark 3\.5\.5") as refused:
        plain.stage()
    assert "JARs" not in str(refused.value)


@pytest.mark.parametrize("known", [True, False], ids=["id", "name"])
def test_the_next_attempt_waits_for_the_batch_that_a_dead_worker_left(plain: Plain, known: bool) -> None:
    plain.livy.made("somebody-elses")
    place = plain.submitted()
    number = plain.livy.made(place.own_name)
    if known:
        place.remember(driver=str(number))
    plain.ends()
    plain.new_engine().wait_for(plain.job.table_uri, "a1", "staging")
    assert plain.livy.batches[number]["state"] == "success"
    assert plain.livy.count("POST") == 0
    assert ("GET", f"/batches/{number}") in plain.livy.asked
    assert not place.submitted


def test_a_batch_is_found_among_many(plain: Plain) -> None:
    for number in range(230):
        plain.livy.made(f"other-{number}", "dead")
    number = plain.livy.made(plain.submitted().own_name)
    plain.ends()
    plain.new_engine().wait_for(plain.job.table_uri, "a1", "staging")
    assert ("GET", f"/batches/{number}") in plain.livy.asked


def test_a_driver_that_says_its_batchs_name_is_asked_for_by_its_id(plain: Plain) -> None:
    number = plain.livy.made(plain.submitted().own_name)
    plain.says(driver=NAME)
    plain.ends()
    plain.new_engine().wait_for(plain.job.table_uri, "a1", "staging")
    assert {path for method, path in plain.livy.asked} == {"/batches", f"/batches/{number}"}


@pytest.mark.parametrize("known", [True, False], ids=["id", "name"])
def test_a_batch_whose_work_has_changed_is_deleted(plain: Plain, known: bool) -> None:
    place = plain.submitted()
    number = plain.livy.made(place.own_name)
    if known:
        place.remember(driver=str(number))
    plain.new_engine().kill(plain.job.table_uri, "a1", "staging")
    assert not plain.livy.batches
    assert not list(plain.store.list(place.path))


def test_a_batch_that_is_not_shown_yet_is_looked_for_until_it_is_deleted(plain: Plain) -> None:
    plain.submitted(str(plain.livy.made(NAME)))
    plain.livy.unseen = 3
    plain.new_engine().kill(plain.job.table_uri, "a1", "staging")
    assert not plain.livy.batches


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, AccessDeniedError), (403, AccessDeniedError), (404, SparkSetUpError), (400, SparkSetUpError)],
)
def test_a_livy_that_refuses_leaves_nothing_in_the_store(plain: Plain, status: int, error: type[Exception]) -> None:
    plain.livy.refuse = (status, "so it is")
    with pytest.raises(error, match=rf"{status} so it is"):
        plain.stage()
    assert not list(plain.store.list("staged"))


def test_a_name_that_is_taken_leaves_nothing_behind(plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobSpool, "own_name", NAME)
    plain.livy.made(NAME)
    with pytest.raises(SparkSetUpError, match="Duplicate session name"):
        plain.stage()
    assert not list(plain.store.list("staged"))


def test_a_second_job_of_an_attempt_is_a_batch_of_another_name(plain: Plain) -> None:
    """Livy still has the first one."""
    engine = plain.new_engine()
    for _ in range(2):
        plain.ends()
        engine.stage(plain.job)
    first, second = (body["name"] for body in plain.livy.bodies)
    assert first != second


def test_a_livy_that_is_not_there_is_unavailable(plain: Plain) -> None:
    plain.livy.url = "http://127.0.0.1:1"
    with pytest.raises(SparkUnavailableError, match="does not answer"):
        plain.new_engine({"patience": 0}).stage(plain.job)
    assert not list(plain.store.list("staged"))


def test_a_secret_and_a_function_are_refused_early(plain: Plain) -> None:
    secret = {"kind": "files", "path": ["/in"], "format": "csv", "options": {"password": "s3cr3t"}}
    with pytest.raises(InvalidWriteError, match="everybody who reads the table"):
        plain.new_engine().stage(attrs.evolve(plain.job, source=secret))
    rows = attrs.evolve(plain.job, source={"kind": "function"}, rows=lambda _: None)
    with pytest.raises(InvalidWriteError, match="'spark_connect'"):
        plain.new_engine().stage(rows)
    assert not plain.livy.asked


def test_what_is_sent_holds_no_secret_of_the_store(plain: Plain) -> None:
    from airflow_provider_onelake.storage.spark import SparkAccess

    access = SparkAccess({"spark.hadoop.a": "b"}, {"AWS_SECRET_ACCESS_KEY": "s3cr3t"}, ("g:a:1",))
    plain.ends()
    plain.new_engine({"packages": None}, access=lambda: access).stage(plain.job)
    assert "s3cr3t" not in json.dumps(plain.livy.bodies)
    assert plain.livy.bodies[0]["conf"]["spark.hadoop.a"] == "b"
