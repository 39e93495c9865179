"""The table of taxi trips as tests of the live stack look at it, and a reader beside them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable

from include.local.demo import SAMPLE
from include.local.expected import KEY, Row, month_files
from include.local.settings import REPOSITORY

Log = list[dict[str, list[dict[str, Any]]]]
_DAY = 24 * 3600 * 1000


def make_month(directory: Path, month: str, days_before: int) -> Path:
    """A file of real trips that no other file has: January's, so many days earlier."""
    path = directory / f"yellow_tripdata_{month}.json.gz"
    with gzip.open(month_files(SAMPLE)["2019-01"], "rt") as lines, gzip.open(path, "wt", compresslevel=1) as out:
        for line in lines:
            trip = json.loads(line)
            trip |= {name: trip[name] - days_before * _DAY for name in ("pickup_datetime", "dropoff_datetime")}
            out.write(json.dumps(trip) + "\n")
    return path


@contextmanager
def reader_of(table: Path, directory: Path) -> Iterator[list[dict[str, Any]]]:
    """Let another process read a table; afterwards the list has its answers."""
    answers: list[dict[str, Any]] = []
    stop, said = directory / "stop", directory / "answers.jsonl"
    with said.open("w") as out:
        reader = subprocess.Popen(
            [sys.executable, "-m", "tests.live.reader", str(table), str(stop)], cwd=REPOSITORY, stdout=out
        )
    try:
        yield answers
    finally:
        stop.touch()
        assert reader.wait(60) == 0
    for line in said.read_text().splitlines():
        answer = json.loads(line)
        answers.append({**answer, "vendors": {int(vendor): count for vendor, count in answer["vendors"].items()}})


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two tasks ran at the same time."""
    return bool(max(one["start_date"], other["start_date"]) < min(one["end_date"], other["end_date"]))


def most_at_once(tasks: Sequence[dict[str, Any]]) -> int:
    """How many tasks ran at the same time, at the most: when one of them began."""
    return max(sum(one["start_date"] <= at["start_date"] < one["end_date"] for one in tasks) for at in tasks)


def rows_of(table: Path, columns: Iterable[str] = KEY) -> Counter[Row]:
    """How often each row is there, as deltalake reads them."""
    names = list(columns)
    found = DeltaTable(str(table)).to_pyarrow_table(columns=names)
    return Counter(zip(*(found.column(name).to_pylist() for name in names), strict=True))


def log_of(table: Path) -> Log:
    """The table's versions, as their actions by kind."""
    versions: Log = []
    for entry in sorted((table / "_delta_log").glob("*.json")):
        actions: dict[str, list[dict[str, Any]]] = {"add": [], "remove": []}
        for line in entry.read_text().splitlines():
            for kind, body in json.loads(line).items():
                actions.setdefault(kind, []).append(body)
        versions.append(actions)
    return versions


def vendors_by_version(table: Path) -> list[dict[int, int]]:
    """What each version holds by vendor, from the log and the Parquet files themselves."""
    counts: Counter[int] = Counter()
    versions = []
    for actions in log_of(table):
        assert not actions["remove"]
        for add in actions["add"]:
            counts.update(pq.read_table(table / add["path"], columns=["vendor_id"]).column("vendor_id").to_pylist())
        versions.append(dict(counts))
    return versions
