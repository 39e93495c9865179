"""Which Spark runs a job: refused if it is too old, and not judged if it does not say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_onelake.spark.jobs.set_up import SparkIsNotSetUpError
from airflow_provider_onelake.spark.jobs.versions import check_versions, versions


@pytest.mark.parametrize(
    "there",
    [
        pytest.param({"Spark": "3.5.0", "Delta Lake": "3.2.0", "Python": "3.10.1"}, id="the oldest"),
        pytest.param({"Spark": "4.2.0.5-20260801", "Delta Lake": "4.0.0.7", "Python": "3.12.3"}, id="a vendor's"),
        pytest.param({"Spark": "10.0.0", "Python": "3.11.2"}, id="without a version of Delta"),
        pytest.param({"Spark": "4.1.0", "Delta Lake": "unknown", "Python": "3.11.2"}, id="no number"),
    ],
)
def test_versions_that_will_do(there: dict[str, str]) -> None:
    check_versions(there)


@pytest.mark.parametrize(
    ("old", "version", "needed"),
    [("Spark", "3.4.4", "Spark 3.5"), ("Delta Lake", "3.1.0", "Delta Lake 3.2"), ("Python", "3.9.18", "Python 3.10")],
)
def test_the_version_that_is_too_old_is_named_with_what_is_needed(old: str, version: str, needed: str) -> None:
    there = {"Spark": "4.0.1", "Delta Lake": "4.0.0", "Python": "3.11.2", old: version}
    with pytest.raises(SparkIsNotSetUpError, match=rf"{old} {version}.*need {needed} or later"):
        check_versions(there)


def test_a_delta_that_does_not_say_its_version_is_left_out() -> None:
    session: Any = SimpleNamespace(version="4.0.1", _jvm=SimpleNamespace())
    assert list(versions(session)) == ["Spark", "Python"]
    said = SimpleNamespace(package=SimpleNamespace(VERSION=lambda: "4.0.0"))
    session._jvm = SimpleNamespace(io=SimpleNamespace(delta=said))
    assert versions(session)["Delta Lake"] == "4.0.0"
