"""The Airflow that the tests run on: what is skipped on an older one, and where it has its names."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

AIRFLOW = tuple(int(part) for part in version("apache-airflow-core").split(".")[:2])


def needs_airflow(release: str, feature: str) -> pytest.MarkDecorator:
    """Skip a test of what only a newer Airflow has."""
    return pytest.mark.skipif(is_below(release), reason=f"Airflow {release} has {feature}")


def skip_below(release: str, feature: str) -> None:
    """Skip the running test, of what only a newer Airflow has."""
    if is_below(release):
        pytest.skip(f"Airflow {release} has {feature}")


def is_below(release: str) -> bool:
    return tuple(int(part) for part in release.split(".")) > AIRFLOW


def dag_bag() -> Any:
    """The module of ``DagBag``."""
    if is_below("3.2"):
        from airflow.models import dagbag
    else:
        from airflow.dag_processing import dagbag
    return dagbag


def cron_partitions(*args: Any, **kwargs: Any) -> Any:
    """A ``CronPartitionTimetable``; ``None`` where Airflow has none."""
    if is_below("3.2"):
        return None
    from airflow.sdk import CronPartitionTimetable

    return CronPartitionTimetable(*args, **kwargs)


def needs_newer_provider(what: str) -> pytest.MarkDecorator:
    """Skip a test of what the Spark provider of Airflow 3.2.1's constraints cannot do."""
    there = tuple(int(part) for part in version("apache-airflow-providers-apache-spark").split(".")[:2])
    return pytest.mark.skipif(there < (6, 3), reason=f"apache-airflow-providers-apache-spark 6.3 {what}")


def needs_named_assertions() -> pytest.MarkDecorator:
    """Skip a test of the names of checks, which the OpenLineage of Airflow 3.2.1's constraints does not have."""
    there = tuple(int(part) for part in version("openlineage-python").split(".")[:2])
    return pytest.mark.skipif(there < (1, 47), reason="openlineage-python 1.47 has names of checks")
