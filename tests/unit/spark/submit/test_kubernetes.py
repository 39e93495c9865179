"""Kubernetes in cluster mode against a stand-in of its client: a driver is a pod by a name known beforehand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import SparkSetUpError
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.submit.engine import SubmitEngine
from airflow_provider_onelake.spark.submit.package import job_package
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.cluster_mode import NAME, RESULT, Pods, says, spool, submitted
from tests.support.fake_submit import FakeSubmit, option, settings
from tests.support.versions import needs_newer_provider

pytestmark = needs_newer_provider("follows drivers")

NewEngine = Callable[..., SubmitEngine]


@pytest.fixture
def pods(monkeypatch: pytest.MonkeyPatch) -> Pods:
    from airflow.providers.apache.spark.hooks import spark_submit

    found = Pods()
    monkeypatch.setattr(spark_submit, "kube_client", found, raising=False)
    package = SimpleNamespace(kube_client=found)
    monkeypatch.setitem(sys.modules, "airflow.providers.cncf", SimpleNamespace(kubernetes=package))
    monkeypatch.setitem(sys.modules, "airflow.providers.cncf.kubernetes", package)
    return found


@pytest.fixture
def on_kubernetes(pods: Pods, clustered: NewEngine) -> NewEngine:
    def make(namespace: str | None = "jobs", **arguments: Any) -> SubmitEngine:
        return clustered({"namespace": namespace}, "k8s://https://h:6443", **arguments)

    return make


def test_a_pod_is_given_addresses_and_a_name_by_which_it_is_found(
    submit_there: FakeSubmit, pods: Pods, store: ObjectStore, job: StageJob, on_kubernetes: NewEngine
) -> None:
    pods.phase = "Pending"

    def finish() -> None:
        says(store, job, result=RESULT)
        pods.phase = "Succeeded"

    pods.when_asked = finish
    assert on_kubernetes().stage(job).application_id == "app-1"
    argv, place = submit_there.calls[0]["argv"], spool(store, job)
    assert argv[-3:] == [place.address(name) for name in ("main.py", "job.json", "result.json")]
    assert option(argv, "--py-files") == place.address(job_package().name)
    found = settings(argv)
    assert NAME.fullmatch(found["spark.kubernetes.driver.pod.name"])
    assert found["spark.kubernetes.submission.waitAppCompletion"] == "false"


def test_a_pod_is_killed_by_its_name(pods: Pods, store: ObjectStore, job: StageJob, on_kubernetes: NewEngine) -> None:
    submitted(store, job)
    pods.phase = "Pending"
    on_kubernetes().kill(job.table_uri, "a1", "staging")
    assert pods.phase is None


def test_a_pod_that_is_gone_has_ended(store: ObjectStore, job: StageJob, on_kubernetes: NewEngine) -> None:
    place = submitted(store, job, "onelake-a1-staging-0f1e2d3c")
    on_kubernetes(timeout=20).wait_for(job.table_uri, "a1", "staging")
    assert not place.submitted


def test_kubernetes_without_a_namespace_is_refused_before_anything_is_submitted(
    submit_there: FakeSubmit, job: StageJob, on_kubernetes: NewEngine
) -> None:
    with pytest.raises(SparkSetUpError, match="namespace"):
        on_kubernetes(None).stage(job)
    assert not submit_there.calls
