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

_PACKAGES = {"Airflow": "apache-airflow", "Spark": "pyspark", "Delta Lake": "delta-spark", "deltalake": "deltalake"}


class Observed:
    """Notes the state of the machine when it is made, and what has happened when :meth:`conditions` is called."""

    def __init__(self) -> None:
        self._began, self._revision, self._clock = datetime.now(UTC), _revision(), time.monotonic()
        self._load = os.getloadavg()[0]
        self._of_others = _seconds_of_others()

    def conditions(self) -> dict[str, str]:
        """Return where and when the run was made. Call it when all processes of the run have ended."""
        seconds, cores = time.monotonic() - self._clock, os.cpu_count() or 1
        others = max(0.0, (_seconds_of_others() - self._of_others) / (seconds * cores))
        load = (
            f"load average {self._load:.1f} before the run, {os.getloadavg()[0]:.1f} at its end (with the bench's own)"
        )
        system = f"{platform.system()} {platform.release().partition('-')[0]}"
        memory = psutil.virtual_memory().total / (1 << 30)
        when = f"{self._began:%Y-%m-%d %H:%M} UTC, {seconds / 60:.0f} minutes, the package at `{self._revision}`"
        return {
            "when": when,
            "machine": f"{cores} cores ({_processor()}), {memory:.0f} GB, {system}",
            "versions": ", ".join(f"{name} {version}" for name, version in _versions().items()),
            "other work": f"{load}; others used {others:.0%} of the processors' time",
        }


def _seconds_of_others() -> float:
    """The CPU seconds that were not used by this process, nor by those of its children that have ended."""
    times = psutil.cpu_times()
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return float(times.user + times.system + times.nice) - sum(one.ru_utime + one.ru_stime for one in own)


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.+)$", known.read_text() if known.exists() else "", re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _revision() -> str:
    """The last commit that changed the package, and whether it was changed since."""

    def git(*words: str) -> str:
        command = ["git", *words, "--", "airflow_provider_onelake"]
        asked = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
        return asked.stdout.strip()

    return (git("log", "-1", "--format=%h") or "unknown") + (" with changes" if git("status", "--porcelain") else "")


def _versions() -> dict[str, str]:
    said = subprocess.run([str(jars.java()), "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([^"]+)"', said)
    packages = {name: importlib.metadata.version(package) for name, package in _PACKAGES.items()}
    return {"Python": platform.python_version(), "Java": found[1] if found else "unknown", **packages}
