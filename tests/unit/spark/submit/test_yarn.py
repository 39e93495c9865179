"""YARN in cluster mode against a ResourceManager's REST API: found by a tag, asked, killed."""

from __future__ import annotations

import base64
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

from airflow_provider_onelake.exceptions import SparkJobError, SparkSetUpError, SparkUnavailableError
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.submit.engine import SubmitEngine
from airflow_provider_onelake.spark.submit.package import job_package
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support import cluster_mode
from tests.support.fake_submit import FakeSubmit, option, settings
from tests.support.versions import needs_newer_provider

pytestmark = needs_newer_provider("follows drivers")

NewEngine = Callable[..., SubmitEngine]


@pytest.fixture
def yarn() -> Iterator[cluster_mode.Manager]:
    found = cluster_mode.Manager()
    with cluster_mode.rest_server(found.answer) as found.url:
        yield found


@pytest.fixture
def on_yarn(yarn: cluster_mode.Manager, clustered: NewEngine) -> NewEngine:
    extra = {"yarn_resourcemanager_webapp_address": yarn.url}
    return lambda **more: clustered({**extra, **more}, "yarn")


@attrs.define(kw_only=True)
class There(cluster_mode.OneJob):
    yarn: cluster_mode.Manager
    submit: FakeSubmit

    def finishes(self) -> None:
        def finish() -> None:
            self.says(result=cluster_mode.RESULT)
            self.yarn.state = "FINISHED"

        self.yarn.when_asked = finish


@pytest.fixture
def there(
    yarn: cluster_mode.Manager, submit_there: FakeSubmit, store: ObjectStore, job: StageJob, on_yarn: NewEngine
) -> There:
    return There(yarn=yarn, submit=submit_there, store=store, job=job, new_engine=on_yarn)


def test_an_application_is_given_local_files_and_a_tag_and_followed(there: There) -> None:
    there.yarn.there = True
    there.finishes()
    assert there.new_engine(conf={"spark.yarn.tags": "nightly"}).stage(there.job).application_id == "app-1"
    argv, place = there.submit.calls[0]["argv"], there.spool()
    assert argv[-3].endswith("spark/jobs/main.py")
    assert argv[-2:] == [place.address("job.json"), place.address("result.json")]
    assert str(option(argv, "--py-files")).endswith(job_package().name)
    found = settings(argv)
    assert re.fullmatch(f"nightly,{cluster_mode.NAME.pattern}", found["spark.yarn.tags"])
    assert found["spark.yarn.submit.waitAppCompletion"] == "false"


def test_an_application_in_its_queue_is_waited_for(there: There, an_hour_later: Callable[[], None]) -> None:
    """Nobody wrote down which one it is, and it has not said anything."""
    there.submitted()
    there.yarn.there, there.yarn.state = True, "ACCEPTED"
    an_hour_later()
    asked = []

    def ask() -> None:
        asked.append(there.yarn.state)
        if len(asked) == 3:
            there.says(result=cluster_mode.RESULT)

    there.yarn.when_asked = ask
    there.new_engine().wait_for(there.job.table_uri, "a1", "staging")
    assert asked == ["ACCEPTED"] * 3
    assert not there.submit.calls


def test_an_application_that_nobody_wrote_down_is_killed_by_its_tag(there: There) -> None:
    there.submitted()
    there.yarn.there = True
    there.new_engine().kill(there.job.table_uri, "a1", "staging")
    assert there.yarn.state == "KILLED"


@pytest.mark.parametrize("state", ["FAILED", "KILLED", None], ids=["failed", "killed", "forgotten"])
def test_an_application_that_ended_without_a_word(there: There, state: str | None) -> None:
    there.submitted(cluster_mode.APPLICATION)
    there.yarn.there, there.yarn.state = state is not None, str(state)
    with pytest.raises(SparkJobError, match="without a result"):
        there.stage()


def test_yarn_without_an_address_to_ask_is_refused_before_anything_is_submitted(there: There) -> None:
    with pytest.raises(SparkSetUpError, match="yarn_resourcemanager_webapp_address"):
        there.new_engine(yarn_resourcemanager_webapp_address="").stage(there.job)
    assert not there.submit.calls


def test_a_manager_that_does_not_answer_is_unavailable(there: There) -> None:
    there.yarn.down = True
    with pytest.raises(SparkUnavailableError, match="503"):
        there.stage()
    with pytest.raises(SparkUnavailableError, match="refused"):
        there.new_engine(yarn_resourcemanager_webapp_address="127.0.0.1:1").stage(there.job)
    assert not there.submit.calls


def test_with_a_keytab_one_signs_in_by_kerberos(there: There, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keytab = {"keytab": base64.b64encode(b"k").decode(), "principal": "p"}
    with pytest.raises(SparkSetUpError, match="requests-kerberos"):
        there.new_engine(**keytab).stage(there.job)
    assert not there.submit.calls
    signed = []

    def sign(request: object) -> object:
        signed.append(request)
        return request

    monkeypatch.setitem(sys.modules, "requests_kerberos", SimpleNamespace(HTTPKerberosAuth=lambda: sign))
    there.yarn.there = True
    there.finishes()
    there.new_engine(**keytab).stage(there.job)
    assert signed
