"""YARN in cluster mode against a ResourceManager's REST API: found by a tag, asked, killed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from airflow_provider_onelake.engines.base import StageJob
from airflow_provider_onelake.engines.submit.clusters import Yarn
from airflow_provider_onelake.engines.submit.engine import SubmitEngine
from airflow_provider_onelake.engines.submit.package import job_package
from airflow_provider_onelake.exceptions import SparkJobError, SparkSetUpError, SparkUnavailableError
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.cluster_mode import (
    APPLICATION,
    RESULT,
    Manager,
    rest_server,
    says,
    spool,
    submitted,
)
from tests.support.fake_submit import FakeSubmit, option, settings

NewEngine = Callable[..., SubmitEngine]
TAG = "onelake-a1-staging"


@pytest.fixture
def yarn() -> Iterator[Manager]:
    found = Manager()
    with rest_server(found.answer) as found.url:
        yield found


@pytest.fixture
def on_yarn(yarn: Manager, clustered: NewEngine) -> NewEngine:
    extra = {"yarn_resourcemanager_webapp_address": yarn.url}
    return lambda **more: clustered({**extra, **more}, "yarn")


def finishes(yarn: Manager, store: ObjectStore, job: StageJob) -> None:
    def finish() -> None:
        says(store, job, result=RESULT)
        yarn.state = "FINISHED"

    yarn.when_asked = finish


def test_an_application_is_given_local_files_and_a_tag_and_followed(
    submit_there: FakeSubmit, yarn: Manager, store: ObjectStore, job: StageJob, on_yarn: NewEngine
) -> None:
    yarn.tag = TAG
    finishes(yarn, store, job)
    assert on_yarn(conf={"spark.yarn.tags": "nightly"}).stage(job).application_id == "app-1"
    argv, place = submit_there.calls[0]["argv"], spool(store, job)
    assert argv[-3].endswith("spark_jobs/main.py")
    assert argv[-2:] == [place.address("job.json"), place.address("result.json")]
    assert str(option(argv, "--py-files")).endswith(job_package().name)
    found = settings(argv)
    assert found["spark.yarn.tags"] == f"nightly,{TAG}"
    assert found["spark.yarn.submit.waitAppCompletion"] == "false"


def test_an_application_that_waits_in_its_queue_since_its_worker_died_is_waited_for_however_long(
    submit_there: FakeSubmit,
    yarn: Manager,
    store: ObjectStore,
    job: StageJob,
    on_yarn: NewEngine,
    an_hour_later: Callable[[], None],
) -> None:
    """Nobody wrote down which one it is, and it has not said anything."""
    submitted(store, job)
    yarn.tag, yarn.state = TAG, "ACCEPTED"
    an_hour_later()
    asked = []

    def ask() -> None:
        asked.append(yarn.state)
        assert spool(store, job).driver == APPLICATION
        if len(asked) == 3:
            says(store, job, result=RESULT)

    yarn.when_asked = ask
    on_yarn().wait_for(job.table_uri, "a1", "staging")
    assert asked == ["ACCEPTED"] * 3
    assert not submit_there.calls


def test_an_application_that_nobody_wrote_down_is_killed_by_its_tag(
    yarn: Manager, store: ObjectStore, job: StageJob, on_yarn: NewEngine
) -> None:
    submitted(store, job)
    yarn.tag = TAG
    on_yarn().kill(job.table_uri, "a1", "staging")
    assert yarn.state == "KILLED"


@pytest.mark.parametrize("state", ["FAILED", "KILLED", None], ids=["failed", "killed", "forgotten"])
def test_an_application_that_ended_without_a_word(
    yarn: Manager, store: ObjectStore, job: StageJob, on_yarn: NewEngine, state: str | None
) -> None:
    submitted(store, job, APPLICATION)
    yarn.tag, yarn.state = (TAG, state) if state else (None, "")
    with pytest.raises(SparkJobError, match="without a result"):
        on_yarn().stage(job)


def test_yarn_without_an_address_to_ask_is_refused_before_anything_is_submitted(
    submit_there: FakeSubmit, job: StageJob, on_yarn: NewEngine
) -> None:
    with pytest.raises(SparkSetUpError, match="yarn_resourcemanager_webapp_address"):
        on_yarn(yarn_resourcemanager_webapp_address="").stage(job)
    assert not submit_there.calls


def test_a_manager_that_does_not_answer_is_unavailable(yarn: Manager, store: ObjectStore, job: StageJob) -> None:
    yarn.down = True
    with pytest.raises(SparkUnavailableError, match="503"):
        Yarn(yarn.url).is_over(APPLICATION, spool(store, job))
    with pytest.raises(SparkUnavailableError, match="does not answer"):
        Yarn("127.0.0.1:1").check()


def test_a_connection_with_a_keytab_signs_in_by_kerberos(
    monkeypatch: pytest.MonkeyPatch, yarn: Manager, store: ObjectStore, job: StageJob
) -> None:
    place = spool(store, job)
    with pytest.raises(SparkSetUpError, match="requests-kerberos"):
        Yarn(yarn.url, kerberos=True).is_over(APPLICATION, place)
    signed = []

    def sign(request: object) -> object:
        signed.append(request)
        return request

    monkeypatch.setitem(sys.modules, "requests_kerberos", SimpleNamespace(HTTPKerberosAuth=lambda: sign))
    assert Yarn(yarn.url, kerberos=True).is_over(APPLICATION, place)
    assert signed
