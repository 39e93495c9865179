"""Lines for the log that say how far Spark is, so that nobody waits in silence.

A line is said every few seconds while something changes, and less often while nothing does. Work that ends within the
first interval is not mentioned.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_SECONDS = 5.0
_LONGEST_SECONDS = 10.0


@dataclass
class SparkStage:
    """A stage of a Spark job. One that pyspark's progress handlers are given has the same fields."""

    num_tasks: int
    num_completed_tasks: int
    num_bytes_read: int
    done: bool


class Progress:
    """How far one job is. It can be registered as a progress handler of a Spark Connect session.

    :param say: called with each line.
    :param seconds: between two lines while something changes, and before the first one.
    :param longest: seconds between two lines while nothing changes.
    :param clock: tells the seconds that have passed.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        seconds: float = _SECONDS,
        longest: float = _LONGEST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._seconds = seconds
        self._longest = longest
        self._clock = clock
        self._lock = threading.Lock()
        self._began = self._last = clock()
        self._said: str | None = None
        self._stages: list[SparkStage] = []
        self._running = 0

    def __call__(
        self, stages: Iterable[SparkStage] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """Take note of what Spark says of an operation that it executes for the job.

        :param stages: all stages of the operation so far.
        :param inflight_tasks: tasks that run now.
        :param operation_id: Spark's id of the operation.
        :param done: whether the operation has ended.
        """
        # pyspark calls this in the middle of the operation, which must not fail because of a line in a log.
        with suppress(Exception), self._lock:
            self._stages, self._running = ([], 0) if done else (list(stages or ()), inflight_tasks)
        self.beat()

    def beat(self) -> None:
        """Say a line if it is time for one."""
        try:
            with self._lock:
                now, text = self._clock(), self._text()
                if now - self._last < (self._longest if text == self._said else self._seconds):
                    return
                self._last, self._said = now, text
                self._say(f"Spark, {now - self._began:.0f} s: {text}")
        except Exception as error:
            logger.debug("Spark's progress is not known", exc_info=error)

    @contextmanager
    def reporting(self, spark: SparkSession | None = None) -> Iterator[None]:
        """Say lines while a block runs, also while Spark has nothing to say.

        :param spark: a classic session, whose jobs are looked at. Default: whoever runs the job calls this object.
        """
        over = threading.Event()

        def tick() -> None:
            while not over.wait(self._seconds):
                if spark is not None:
                    with suppress(Exception):
                        self(*_jobs_of(spark), None, False)
                self.beat()

        # Take the context along: by it, Airflow knows whose log the lines belong to.
        ticking = threading.Thread(target=copy_context().run, args=[tick], name="spark-progress", daemon=True)
        ticking.start()
        try:
            yield
        finally:
            over.set()

    def _text(self) -> str:
        stages = self._stages
        if not stages:
            return "it reports no running task"
        done, tasks = sum(stage.done for stage in stages), sum(stage.num_tasks for stage in stages)
        ended = sum(stage.num_completed_tasks for stage in stages)
        at = f"stage {min(done + 1, len(stages))} of {len(stages)}, {ended} of {tasks} task{'s' * (tasks != 1)} done"
        return f"{at}{_read(stages)}, {self._running} running"


def _jobs_of(spark: Any) -> tuple[list[SparkStage], int]:
    """Return the stages of a classic session's jobs, and how many tasks run. The bytes that they read are not known."""
    tracker = spark.sparkContext.statusTracker()
    jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup()))
    seen = [tracker.getStageInfo(stage) for stage in sorted({stage for job in jobs for stage in job.stageIds})]
    stages = [
        SparkStage(info.numTasks, info.numCompletedTasks, 0, info.numCompletedTasks == info.numTasks)
        for info in seen
        # A stage that was skipped, or has not begun, has no task.
        if info is not None and info.numActiveTasks + info.numCompletedTasks > 0
    ]
    return stages, sum(info.numActiveTasks for info in seen if info is not None)


def _read(stages: Iterable[SparkStage]) -> str:
    """Return how much stages have read, or an empty text if nothing."""
    number = float(sum(stage.num_bytes_read for stage in stages))
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f", {number:.{0 if unit == 'bytes' else 1}f} {unit} read" if number else ""
        number /= 1000
    return f", {number:.1f} TB read"
