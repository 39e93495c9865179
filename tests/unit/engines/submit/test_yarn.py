"""YARN in cluster mode against a ResourceManager's REST API: found by a tag, asked, killed."""

from __future__ import annotations

import base64
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_provider_onelake.engines.base import StageJob
from airflow_provider_onelake.engines.submit.engine import SubmitEngine
from airflow_provider_onelake.engines.submit.package import job_package
from airflow_provider_onelake.exceptions import SparkJobError, SparkSetUpError, SparkUnavailableError
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.cluster_mode import (
    APPLICATION,
    NAME,
    RESULT,
    Manager,
    rest_server,
    says,
    spool,
    submitted,
)
from tests.support.fake_submit import FakeSubmit, option, settings

NewEngine = Callable[..., SubmitEngine]


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
    yarn.there = True
    finishes(yarn, store, job)
    assert on_yarn(conf={"spark.yarn.tags": "nightly"}).stage(job).application_id == "app-1"
    argv, place = submit_there.calls[0]["argv"], spool(store, job)
    assert argv[-3].endswith("spark_jobs/main.py")
    assert argv[-2:] == [place.address("job.json"), place.address("result.json")]
    assert str(option(argv, "--py-files")).endswith(job_package().name)
    found = settings(argv)
    assert re.fullmatch(f"nightly,{NAME.pattern}", found["spark.yarn.tags"])
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
    yarn.there, yarn.state = True, "ACCEPTED"
    an_hour_later()
    asked = []

    def ask() -> None:
        asked.append(yarn.state)
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
    yarn.there = True
    on_yarn().kill(job.table_uri, "a1", "staging")
    assert yarn.state == "KILLED"


@pytest.mark.parametrize("state", ["FAILED", "KILLED", None], ids=["failed", "killed", "forgotten"])
def test_an_application_that_ended_without_a_word(
    yarn: Manager, store: ObjectStore, job: StageJob, on_yarn: NewEngine, state: str | None
) -> None:
    submitted(store, job, APPLICATION)
    yarn.there, yarn.state = state is not None, str(state)
    with pytest.raises(SparkJobError, match="without a result"):
        on_yarn().stage(job)


def test_yarn_without_an_address_to_ask_is_refused_before_anything_is_submitted(
    submit_there: FakeSubmit, job: StageJob, on_yarn: NewEngine
) -> None:
    with pytest.raises(SparkSetUpError, match="yarn_resourcemanager_webapp_address"):
        on_yarn(yarn_resourcemanager_webapp_address="").stage(job)
    assert not submit_there.calls


def test_a_second_job_of_an_attempt_is_not_taken_for_the_first(
    submit_there: FakeSubmit, yarn: Manager, store: ObjectStore, job: StageJob, on_yarn: NewEngine
) -> None:
    """YARN still has the first one. A writer stages its bad rows into its quarantine in the same attempt."""
    yarn.there = True
    engine = on_yarn()
    for _ in range(2):
        yarn.state = "RUNNING"
        finishes(yarn, store, job)
        engine.stage(job)
    first, second = (settings(call["argv"])["spark.yarn.tags"] for call in submit_there.calls)
    assert first != second


def test_a_manager_that_does_not_answer_is_unavailable(
    submit_there: FakeSubmit, yarn: Manager, job: StageJob, on_yarn: NewEngine
) -> None:
    yarn.down = True
    with pytest.raises(SparkUnavailableError, match="503"):
        on_yarn().stage(job)
    with pytest.raises(SparkUnavailableError, match="refused"):
        on_yarn(yarn_resourcemanager_webapp_address="127.0.0.1:1").stage(job)
    assert not submit_there.calls


def test_a_connection_with_a_keytab_signs_in_by_kerberos(
    monkeypatch: pytest.MonkeyPatch,
    submit_there: FakeSubmit,
    yarn: Manager,
    store: ObjectStore,
    job: StageJob,
    on_yarn: NewEngine,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keytab = {"keytab": base64.b64encode(b"k").decode(), "principal": "p"}
    with pytest.raises(SparkSetUpError, match="requests-kerberos"):
        on_yarn(**keytab).stage(job)
    assert not submit_there.calls
    signed = []

    def sign(request: object) -> object:
        signed.append(request)
        return request

    monkeypatch.setitem(sys.modules, "requests_kerberos", SimpleNamespace(HTTPKerberosAuth=lambda: sign))
    yarn.there = True
    finishes(yarn, store, job)
    on_yarn(**keytab).stage(job)
    assert signed
