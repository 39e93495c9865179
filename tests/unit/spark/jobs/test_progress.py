"""Lines that say how far Spark is: not too many, never none for long, and never at the price of the job."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_onelake.spark.jobs.progress import Progress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def progress(clock: Clock, lines: list[str]) -> Progress:
    return Progress(lines.append, seconds=5, longest=10, clock=clock)


def stage(number: int, tasks: int, completed: int, read: int = 0) -> Any:
    return SimpleNamespace(
        stage_id=number, num_tasks=tasks, num_completed_tasks=completed, num_bytes_read=read, done=tasks == completed
    )


def test_a_line_says_how_far_spark_is(progress: Progress, clock: Clock, lines: list[str]) -> None:
    clock.now += 5
    progress([stage(0, 4, 4, 700_000_000), stage(1, 200, 41, 500_000_000), stage(2, 8, 0)], 4, "a", False)
    assert lines == ["Spark, 5 s: stage 2 of 3, 45 of 212 tasks done, 1.2 GB read, 4 running"]


def test_at_most_one_line_an_interval(progress: Progress, clock: Clock, lines: list[str]) -> None:
    for second in range(21):
        clock.now = 100.0 + second
        progress([stage(0, 30, second)], 1, "a", False)
    assert [line.split(":")[0] for line in lines] == ["Spark, 5 s", "Spark, 10 s", "Spark, 15 s", "Spark, 20 s"]


def test_spark_that_says_nothing_is_waited_for_aloud(progress: Progress, clock: Clock, lines: list[str]) -> None:
    clock.now += 10
    progress.beat()
    assert lines == ["Spark, 10 s: it reports no running task"]


def test_a_log_that_fails_does_not_fail_the_job(clock: Clock) -> None:
    def say(line: str) -> None:
        raise OSError("the log is gone")

    progress = Progress(say, seconds=5, longest=10, clock=clock)
    clock.now += 20
    progress([stage(0, 2, 1)], 1, "a", False)
    progress([SimpleNamespace()], 1, "a", False)  # type: ignore[list-item]


LOG_OF: ContextVar[str] = ContextVar("log_of", default="nobody")


def test_lines_are_said_while_the_job_hangs_and_go_to_the_log_of_its_task() -> None:
    lines, three = [], threading.Event()

    def say(line: str) -> None:
        lines.append(LOG_OF.get())
        if len(lines) == 3:
            three.set()

    LOG_OF.set("task")
    with Progress(say, seconds=0.001, longest=0.001).reporting():
        assert three.wait(60)
    assert set(lines) == {"task"}


def test_a_session_that_cannot_be_looked_at_does_not_fail_the_job() -> None:
    said = threading.Event()
    spark: Any = SimpleNamespace()
    with Progress(lambda line: said.set(), seconds=0.001, longest=0.001).reporting(spark):
        assert said.wait(60)
