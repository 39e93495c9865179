"""A small result as a run records it."""

from __future__ import annotations

import pytest

from tests.benchmarks.commits import BARE, DELTALAKE, LOCAL, S3
from tests.benchmarks.results import (
    AGAIN,
    APPENDS,
    DELTA,
    DELTA_MERGE,
    OURS,
    PARQUET,
    SUBMITS,
    Commits,
    Load,
    Machine,
    Merging,
    Opening,
    Publishing,
    Race,
    Result,
    Task,
)
from tests.benchmarks.tpch import OWN, SHARED

JVM = {PARQUET: 5.0, DELTA: 8.0, OURS: 6.0, AGAIN: 5.5, APPENDS: 12.0}


def load(way: str, jvm: float, **more: object) -> Load:
    fields = {
        "source": SHARED,
        "writers": 7,
        "way": way,
        "round": 0,
        "rows": 600_000,
        "seconds": jvm / 2,
        "jvm": jvm,
        "tasks": jvm / 3,
        "jobs": 3,
        "client": 0.5,
        "data_files": 14,
        "faults": [],
    }
    return Load(**{**fields, **more})  # type: ignore[arg-type]


def commits(store: str, way: str, processes: int) -> Commits:
    return Commits(
        store=store,
        way=way,
        processes=processes,
        commits=20 * processes,
        seconds=2.0,
        cpu=1.0,
        attempts=None if way == DELTALAKE else 30 * processes,
        latencies=[0.001 * n for n in range(20 * processes)],
        faults=[],
    )


@pytest.fixture
def result() -> Result:
    opening = {"pokes": [0.0001], "listings": [0.002], "deltalake": [0.03], "faults": []}
    return Result(
        machine=Machine(
            began="2026-01-01 00:00 UTC",
            full=False,
            seconds=300,
            revision="abc1234",
            cores=2,
            processor="a processor",
            gigabytes=8,
            system="Linux 6",
            versions={"Python": "3.11", "Spark": "4.2.0", "Delta Lake": "4.4.0"},
            load_at_begin=0.1,
            load_at_end=2.5,
            others=0.02,
        ),
        rounds=2,
        warm_ups=1,
        races=[
            Race(way=way, writers=7, rows=600_000, seconds=seconds, jvm=jvm, failed=failed, faults=[])
            for way, seconds, jvm, failed in ((SUBMITS, 120.0, 200.0, 6), (OURS, 20.0, 30.0, 0))
        ],
        loads=[
            load(way, jvm + number, source=source, round=number)
            for source in (SHARED, OWN)
            for number in (0, 1)
            for way, jvm in JVM.items()
        ],
        commits=[
            commits(store, way, processes)
            for store in (LOCAL, S3)
            for processes in (1, 4, 16)
            for way in (BARE, OURS, DELTALAKE)
        ],
        openings=[Opening(versions=n, opens=[0.005, 0.006, 0.007], **opening) for n in (100, 1000)],
        publishings=[
            Publishing(
                files=files,
                mode=mode,
                seconds=0.1,
                cpu=0.05,
                peak=1_000_000,
                read=200_000,
                requests=54,
                removed=0,
                faults=[],
            )
            for files in (1000, 10_000)
            for mode in ("append", "overwrite_partitions")
        ],
        tasks=[
            Task(kind=kind, seconds=seconds, cpu=seconds / 2, jvm=0.1, faults=[])
            for kind, seconds in (("empty", 0.1), ("writer", 3.0), ("preloaded writer", 1.0))
        ],
        merges=[
            Merging(
                keys=keys,
                way=way,
                round=number,
                rows=3000,
                merged=20,
                seconds=2.0,
                jvm=jvm + number,
                jobs=5,
                client=0.5,
                faults=[],
            )
            for keys in ("beside each other", "all over the table")
            for number in (0, 1)
            for way, jvm in ((DELTA_MERGE, 7.5), (OURS, 3.5))
        ],
    )
