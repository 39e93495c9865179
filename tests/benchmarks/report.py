"""Puts what a run found into the tables of docs/project/performance.md and of README.md, whose words are written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.samples import AGAIN, APPENDS, DELTA, DELTA_MERGE, OURS, PARQUET, Sample, grouped, median
from tests.benchmarks.tpch import OWN, SHARED

_SOURCES = {SHARED: "one file for all writers", OWN: "a file for each writer"}


def tell(result: Mapping[str, Any], page: Path) -> int:
    """Write the tables of a whole result over those of a page that have the same heads, and return how many there are."""
    text, told = page.read_text(), 0
    for table in tables(result):
        head = re.escape(table.partition("\n")[0])
        text, found = re.subn(rf"^{head}\n(?:\|.*\n)+", f"{table}\n", text, flags=re.MULTILINE)
        told += found
    page.write_text(text)
    return told


def tables(result: Mapping[str, Any]) -> Iterator[str]:
    """The tables, in the order of the page."""
    yield _table("conditions | ", result["conditions"].items())
    yield _table(
        "way | wall s | CPU s of Spark | jobs that failed",
        (
            (_way(each), f"{each['seconds']:.0f}", f"{each['jvm']:.0f}", f"{each['failed']} of {each['jobs']}")
            for each in result["races"]
        ),
    )
    yield _table(
        "writers | way | CPU s of Spark | beside Delta | of them in tasks | Spark jobs | wall s | beside Delta | "
        "CPU s of Python | files",
        _loads(result["loads"]),
    )
    yield _table(
        f"keys | way | JVM CPU s | times {DELTA_MERGE} | wall s | client CPU s | Spark jobs", _merges(result["merges"])
    )
    yield _table(
        "store | processes | way | commits | per second | median ms | 99 % within ms | CPU ms each | puts each",
        map(_commits, result["commits"]),
    )
    yield _table(
        "versions | open, ms | poke, ms | poke that lists, ms | open by deltalake, ms",
        (
            (f"{each['versions']:,}", *(_milliseconds(each[of]) for of in ("opens", "pokes", "listings", "deltalake")))
            for each in result["openings"]
        ),
    )
    yield _table(
        "mode | files | replaced | wall s | CPU s | memory, MB | read, MB | requests", map(_wide, result["publishings"])
    )
    yield _table(
        "task | wall s | CPU s of the task | CPU s of Spark",
        (
            (kind, *(_spread(found, of) for of in ("seconds", "cpu", "jvm")))
            for (kind,), found in grouped(result["tasks"], "kind").items()
        ),
    )


def _loads(loads: Sequence[Sample]) -> Iterator[Sequence[str]]:
    for (source, writers), together in grouped(loads, "source", "writers").items():
        ways = grouped(together, "way")
        delta = ways[DELTA,]
        for found in (ways[way,] for way in (PARQUET, DELTA, OURS, AGAIN, APPENDS) if (way,) in ways):
            of_spark = (_spread(found, "jvm"), _beside(found, delta, "jvm"), _spread(found, "tasks"))
            jobs, files = (f"{median(found, name):.0f}" for name in ("jobs", "data_files"))
            seconds = (_spread(found, "seconds"), _beside(found, delta, "seconds"))
            client = f"{median(found, 'cpu'):.1f}"
            yield f"{writers}, {_SOURCES[source]}", _way(found[0]), *of_spark, jobs, *seconds, client, files


def _merges(merges: Sequence[Sample]) -> Iterator[Sequence[str]]:
    for (keys,), of_keys in grouped(merges, "keys").items():
        ways = grouped(of_keys, "way")
        for (way,), found in ways.items():
            times, jobs = _beside(found, ways[DELTA_MERGE,], "jvm"), str(found[0]["jobs"])
            yield keys, way, _spread(found, "jvm"), times, _spread(found, "seconds"), _spread(found, "cpu"), jobs


def _commits(each: Sample) -> Sequence[str]:
    speed = f"{each['per_second']:,.0f}", f"{1000 * each['median']:,.1f}", f"{1000 * each['most']:,.0f}"
    cpu, puts = f"{1000 * each['cpu'] / each['commits']:.1f}", each["puts"] / each["commits"]
    counts = each["store"], str(each["processes"]), _way(each), str(each["commits"])
    return *counts, *speed, cpu, f"{puts:.1f}" if puts else "-"


def _wide(each: Sample) -> Sequence[str]:
    size = each["mode"], f"{each['files']:,}", f"{each['removed']:,}"
    cost = f"{each['seconds']:.2f}", f"{each['cpu']:.2f}", f"{each['peak'] / 1e6:,.1f}", f"{each['read'] / 1e6:,.2f}"
    return *size, *cost, str(each["requests"])


def _way(sample: Sample) -> str:
    return f"**{sample['way']}**" if sample["way"] in (OURS, AGAIN) else sample["way"]


def _table(head: str, rows: Iterable[Sequence[str]]) -> str:
    names = head.split(" | ")
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (names, ["---"] * len(names), *rows))


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{1000 * sorted(seconds)[len(seconds) // 2]:,.2f}"


def _spread(samples: Sequence[Sample], name: str) -> str:
    figures = [sample[name] for sample in samples]
    most = f" ({min(figures):.1f} to {max(figures):.1f})" if len(figures) > 1 else ""
    return f"{median(samples, name):.1f}{most}"


def _beside(samples: Sequence[Sample], others: Sequence[Sample], name: str) -> str:
    return f"**{median(samples, name) / median(others, name):.2f}**"
