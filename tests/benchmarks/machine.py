"""Where a run is made, and how busy the machine is with other work meanwhile."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil

from include.local import jars
from tests.benchmarks.results import Machine

_PACKAGES = {"Airflow": "apache-airflow", "Spark": "pyspark", "Delta Lake": "delta-spark", "deltalake": "deltalake"}
_GIGABYTE = 1 << 30


class Observed:
    """Notes the state of the machine when it is made, and what has happened when :meth:`end` is called."""

    def __init__(self) -> None:
        self._began = datetime.now(UTC)
        self._revision = _revision()
        self._clock = time.monotonic()
        self._load = os.getloadavg()[0]
        self._busy, self._own = _busy_seconds(), _own_seconds()

    def end(self, *, full: bool) -> Machine:
        """Return where and when the run was made. Call it when all processes of the run have ended.

        :param full: whether it was run with ``FULL=1``.
        """
        seconds = time.monotonic() - self._clock
        cores = os.cpu_count() or 1
        others = (_busy_seconds() - self._busy) - (_own_seconds() - self._own)
        return Machine(
            began=f"{self._began:%Y-%m-%d %H:%M} UTC",
            full=full,
            seconds=seconds,
            revision=self._revision,
            cores=cores,
            processor=_processor(),
            gigabytes=psutil.virtual_memory().total / _GIGABYTE,
            system=f"{platform.system()} {platform.release().partition('-')[0]}",
            versions=_versions(),
            load_at_begin=self._load,
            load_at_end=os.getloadavg()[0],
            others=max(0.0, others / (seconds * cores)),
        )


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice)


def _own_seconds() -> float:
    """Return the CPU seconds of this process, and of those of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()


def _revision() -> str:
    """Return the last commit that changed the package, and whether it was changed since."""

    def git(*words: str) -> str:
        command = ["git", *words, "--", "airflow_provider_onelake"]
        asked = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
        return asked.stdout.strip()

    changed = " with changes" if git("status", "--porcelain") else ""
    return (git("log", "-1", "--format=%h") or "unknown") + changed


def _versions() -> dict[str, str]:
    said = subprocess.run([str(jars.java()), "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([^"]+)"', said)
    packages = {name: importlib.metadata.version(package) for name, package in _PACKAGES.items()}
    return {"Python": platform.python_version(), "Java": found[1] if found else "unknown", **packages}
