"""What is used of the Spark provider beside what it documents: a version without it says so by name."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_onelake.exceptions import SparkSetUpError
from airflow_provider_onelake.spark.submit.clusters import Standalone, cluster_of
from airflow_provider_onelake.spark.submit.hook import SubmitHook
from tests.support.versions import needs_newer_provider


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SparkSubmitHook]:
    def make(host: str, **extra: Any) -> SparkSubmitHook:
        monkeypatch.setenv("AIRFLOW_CONN_S", json.dumps({"conn_type": "spark", "host": host, "extra": extra}))
        return SparkSubmitHook(conn_id="s")

    return make


@needs_newer_provider("follows drivers")
def test_the_installed_provider_says_where_a_connection_leads(connect: Callable[..., SparkSubmitHook]) -> None:
    extra = {"deploy-mode": "cluster", "rest-port": "6067", "rest-scheme": "https", "spark-binary": "spark3-submit"}
    found = SubmitHook(connect("spark://m:7077", **extra))
    said = [found.resolved[name] for name in ("master", "deploy_mode", "spark_binary", "namespace")]
    assert said == ["spark://m:7077", "cluster", "spark3-submit", None]
    assert cluster_of(found, {}) == Standalone("https://m:6067")


@needs_newer_provider("follows drivers")
def test_the_installed_provider_takes_what_cluster_mode_asks_of_it() -> None:
    taken = inspect.signature(SparkSubmitHook.__init__).parameters
    wanted = {"conf", "conn_id", "jars", "packages", "py_files", "java_class", "name", "application_args"}
    assert (wanted | {"track_driver_via_k8s_api"}) - set(taken) == set()
    # Whatever subprocess.Popen takes.
    assert inspect.signature(SparkSubmitHook.submit).parameters["kwargs"].kind is inspect.Parameter.VAR_KEYWORD


@needs_newer_provider("follows drivers")
def test_the_drivers_id(
    connect: Callable[..., SparkSubmitHook], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "spark-submit"
    script.write_text("#!/bin/sh\necho Driver successfully submitted as driver-20261121-0007\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = SubmitHook(connect("spark://m:7077", **{"deploy-mode": "cluster"}))
    assert found.run("app.jar", {}) is None
    assert found.driver == "driver-20261121-0007"


def test_a_provider_that_cannot_follow_drivers_is_refused_by_name_in_cluster_mode_only(
    connect: Callable[..., SparkSubmitHook],
) -> None:
    for extra in ({}, {"deploy-mode": "cluster"}):
        hook = connect("spark://m:7077", **extra)
        hook._connection.pop("rest_scheme", None)  # type: ignore[typeddict-item]
        if not extra:
            SubmitHook(hook)
            continue
        with pytest.raises(SparkSetUpError, match=r"has no _connection\['rest_scheme'\].*Nothing was submitted"):
            SubmitHook(hook)


@pytest.mark.parametrize("name", ["_connection", "_submit_sp"])
def test_a_provider_that_has_it_no_more_is_refused_by_name(connect: Callable[..., SparkSubmitHook], name: str) -> None:
    hook = connect("local[1]")
    delattr(hook, name)
    with pytest.raises(SparkSetUpError, match=rf"apache-spark \d\S* is not known .* has no {name}"):
        SubmitHook(hook)


def test_a_provider_that_resolves_otherwise_is_refused_by_name(connect: Callable[..., SparkSubmitHook]) -> None:
    hook = connect("local[1]")
    del hook._connection["spark_binary"]
    with pytest.raises(SparkSetUpError, match="spark_binary"):
        SubmitHook(hook)


@pytest.mark.parametrize("host", ["local[1]", "spark://m:7077", "yarn"])
def test_a_driver_in_the_task_is_looked_for_nowhere(connect: Callable[..., SparkSubmitHook], host: str) -> None:
    assert cluster_of(SubmitHook(connect(host)), {}) is None
