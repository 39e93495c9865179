"""Runs tests in forks of a process that has everything imported: a bug costs what its tests cost."""

from __future__ import annotations

import importlib
import io
import json
import os
import select
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import attrs
import pytest

import airflow_provider_onelake
from airflow_provider_onelake.exceptions import OneLakeError
from tests.seeded_bugs.bug import REPOSITORY, Bug
from tests.simulation.lake import FELL_OVER

# What the tests import besides the package, and takes a while; nothing that starts threads.
_HEAVY = (
    "deltalake",
    "fastapi.testclient",
    "hypothesis",
    "pandas",
    "pyarrow.dataset",
    "pytest_asyncio.plugin",
    "xdist.plugin",
)
# Seconds for tests to begin, and for each of them: on clean code there are hundreds in one process.
_TO_BEGIN, _EACH = 120, 2


@attrs.frozen
class Failure:
    """A test that failed.

    :param tells: whether it is an assertion, or an error of the package.
    """

    test: str
    error: str
    tells: bool


@attrs.frozen
class Run:
    """What came of some tests with a bug, or without one.

    :param failures: of the tests that failed when they ran.
    :param broken: what kept tests from running, if anything did.
    :param marked: node ids of the tests that carry the mark ``promise``, so that ``make test`` runs them.
    """

    passed: tuple[str, ...]
    failures: tuple[Failure, ...]
    broken: str | None
    seconds: float
    marked: tuple[str, ...] = ()

    @property
    def survived(self) -> str | None:
        """Why the bug that was in the code was not caught, or ``None`` where it was."""
        if self.broken is not None:
            return self.broken
        if any(failure.tells for failure in self.failures):
            return None
        if self.failures:
            return f"no test says so: {', '.join(sorted({failure.error for failure in self.failures}))}"
        return "survived"


def run_all(work: Iterable[tuple[Bug | None, Sequence[str]]], workers: int) -> Iterator[tuple[int, Run]]:
    """Run tests with bugs, some at once; yields the place in the work, and what came of it, as they end.

    :param work: bugs, ``None`` for clean code, and the node ids to run with each.
    """
    _import_all()
    waiting = list(enumerate(work))
    limits = {place: _TO_BEGIN + _EACH * len(nodes) for place, (_, nodes) in waiting}
    running: dict[int, tuple[int, int, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                place, (bug, nodes) = waiting.pop(0)
                pid, pipe = _fork(bug, nodes)
                running[pipe] = (pid, place, time.monotonic())
            ready, _, _ = select.select(list(running), [], [], 1)
            for pipe in list(running):
                pid, place, began = running[pipe]
                late = time.monotonic() - began > limits[place]
                if pipe not in ready and not late:
                    continue
                del running[pipe]
                yield place, _end(pid, pipe, time.monotonic() - began, limits[place] if late else None)
    finally:
        for pid, _, _ in running.values():
            _kill(pid)


def _import_all() -> None:
    for name in _HEAVY:
        importlib.import_module(name)
    for module in walk_packages(airflow_provider_onelake.__path__, "airflow_provider_onelake."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _fork(bug: Bug | None, nodes: Sequence[str]) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    # The child never returns, whatever happens: what it inherited is the parent's.
    status = 1
    try:
        os.setsid()
        os.close(reading)
        said = _in_child(bug, nodes)
        with os.fdopen(writing, "w") as pipe:
            json.dump(said, pipe)
        status = 0
    finally:
        os._exit(status)


def _in_child(bug: Bug | None, nodes: Sequence[str]) -> dict[str, Any]:
    os.chdir(REPOSITORY)
    watcher = _Watcher()
    shown = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="seeded-bug-") as scratch, redirect_stdout(shown), redirect_stderr(shown):
        # What a process of its own would delete at its end: the home of its Airflow.
        tempfile.tempdir = scratch
        if bug is not None:
            os.environ["TESTS_PATIENCE"] = "5"
            bug.put_in()
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--durations=0", "-n", "0"]
        # Of one test that fails the others need not be run; on clean code all must pass.
        first = ["-x"] if bug is not None else []
        ended = pytest.main([*options, *first, "--basetemp", str(Path(scratch, "t")), *nodes], plugins=[watcher])
    broken = watcher.broken
    if broken is None and ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        broken = f"pytest ended as {ended!r}: {shown.getvalue()[-800:]}"
    return {"passed": watcher.passed, "failures": watcher.failures, "broken": broken, "marked": watcher.marked}


class _Watcher:
    """A plugin of pytest that remembers how tests ended."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.marked: list[str] = []
        self.failures: list[dict[str, Any]] = []
        self.broken: str | None = None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.marked = [item.nodeid for item in session.items if item.get_closest_marker("promise")]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken = f"{report.nodeid} cannot be collected: {str(report.longrepr)[-800:]}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
        report: pytest.TestReport = yield
        if report.failed and call.excinfo is not None:
            kind = call.excinfo.type
            self.failures.append({"test": item.nodeid, "error": kind.__name__, "tells": _tells(call.excinfo.value)})
        elif report.skipped:
            self.broken = f"{item.nodeid} was skipped"
        elif report.when == "call" and report.passed:
            self.passed.append(item.nodeid)
        return report  # type: ignore[return-value]


def _tells(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        # Hypothesis found several ways to fail.
        return all(map(_tells, error.exceptions))
    # A bug that no longer fits the function makes it fall over, and a simulation calls that a violation too.
    return isinstance(error, AssertionError | OneLakeError | pytest.fail.Exception) and FELL_OVER not in str(error)


def _end(pid: int, pipe: int, seconds: float, limit: int | None) -> Run:
    if limit is not None:
        _kill(pid)
        os.close(pipe)
        return Run((), (), f"it did not end within {limit} s", seconds)
    with os.fdopen(pipe) as said:
        text = said.read()
    _, status = os.waitpid(pid, 0)
    if not text:
        return Run((), (), f"its process ended with status {os.waitstatus_to_exitcode(status)}", seconds)
    told = json.loads(text)
    failures = tuple(Failure(**failure) for failure in told["failures"])
    return Run(tuple(told["passed"]), failures, told["broken"], seconds, tuple(told["marked"]))


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
