"""Which Spark, Delta Lake and Python run a job, asked before the job looks at its source.

A cluster that somebody else keeps, such as Fabric's, may be older than what these jobs use. It would fail somewhere in
the middle, with an error that says nothing to whoever wrote the load.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.spark.jobs.set_up import SparkIsNotSetUpError

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST: Mapping[str, tuple[int, int]] = {"Spark": (3, 5), "Delta Lake": (3, 2), "Python": (3, 10)}
"""The oldest version with which jobs have been run, of each part."""

_NUMBERS = re.compile(r"(\d+)\.(\d+)")


def versions(spark: Any) -> dict[str, str]:
    """Return the version of each part that says one: ``Spark``, ``Delta Lake``, ``Python``.

    :param spark: a classic session, with its JVM.
    """
    found = {"Spark": str(spark.version), "Python": ".".join(map(str, sys.version_info[:3]))}
    try:
        found["Delta Lake"] = str(spark._jvm.io.delta.package.VERSION())
    except Exception:
        # A vendor's Delta may not say it. Then the job finds out what is missing.
        return found
    return found


def check_versions(found: Mapping[str, str]) -> None:
    """Insist on versions that are new enough. One that has no two numbers is not judged.

    :param found: as :func:`versions` returns it.
    :raises SparkIsNotSetUpError: one is too old. The message has all of them.
    """
    old = [name for name, least in LEAST.items() if (known := _numbers(found.get(name, ""))) and known < least]
    if old:
        there = ", ".join(f"{name} {version}" for name, version in found.items())
        needed = " and ".join(f"{name} {'.'.join(map(str, LEAST[name]))}" for name in old)
        raise SparkIsNotSetUpError(f"It runs {there}. Jobs of this package need {needed} or later.")


def _numbers(version: str) -> tuple[int, int] | None:
    found = _NUMBERS.match(version)
    return (int(found[1]), int(found[2])) if found else None
