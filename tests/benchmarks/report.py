"""Puts what a run found into the tables of docs/project/performance.md and of README.md, whose words are written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.commits import BARE, DELTALAKE
from tests.benchmarks.samples import AGAIN, APPENDS, DELTA, DELTA_MERGE, OURS, PARQUET, Sample, grouped, median
from tests.benchmarks.tpch import OWN, SHARED

_SOURCES = {SHARED: "one file", OWN: "a file each"}


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
        "source | way | CPU s of Spark | beside Delta | wall s | beside Delta | Spark jobs", _loads(result["loads"])
    )
    yield _table("keys | way | CPU s of Spark | beside Delta | wall s", _merges(result["merges"]))
    yield _table(
        "store | processes | commits per second | by deltalake | bare puts per second | median ms | by deltalake | "
        "99 % within ms | by deltalake",
        _commits(result["commits"]),
    )
    yield _table(
        "versions | open, ms | poke, ms | poke that lists, ms | open by deltalake, ms",
        (
            (f"{each['versions']:,}", *(_milliseconds(each[of]) for of in ("opens", "pokes", "listings", "deltalake")))
            for each in result["openings"]
        ),
    )
    yield _table(
        "mode | files | replaced | wall s | memory, MB | read, MB | requests", map(_wide, result["publishings"])
    )
    yield _table(
        "task | wall s | CPU s of the task | CPU s of Spark",
        (
            (kind, *(_spread(found, of) for of in ("seconds", "cpu", "jvm")))
            for (kind,), found in grouped(result["tasks"], "kind").items()
        ),
    )


def _loads(loads: Sequence[Sample]) -> Iterator[Sequence[str]]:
    for (source,), of_source in grouped(loads, "source").items():
        ways = grouped(of_source, "way")
        delta = ways[DELTA,]
        for found in (ways[way,] for way in (PARQUET, DELTA, OURS, AGAIN, APPENDS) if (way,) in ways):
            of_spark = _spread(found, "jvm"), _beside(found, delta, "jvm")
            seconds = _spread(found, "seconds"), _beside(found, delta, "seconds")
            yield _SOURCES[source], _way(found[0]), *of_spark, *seconds, f"{median(found, 'jobs'):.0f}"


def _merges(merges: Sequence[Sample]) -> Iterator[Sequence[str]]:
    for (keys,), of_keys in grouped(merges, "keys").items():
        ways = grouped(of_keys, "way")
        for (way,), found in ways.items():
            times = _beside(found, ways[DELTA_MERGE,], "jvm")
            yield keys, way, _spread(found, "jvm"), times, _spread(found, "seconds")


def _commits(commits: Sequence[Sample]) -> Iterator[Sequence[str]]:
    for (store, processes), together in grouped(commits, "store", "processes").items():
        ways = {sample["way"]: sample for sample in together}
        speeds = (f"{ways[way]['per_second']:,.0f}" for way in (OURS, DELTALAKE, BARE))
        medians, most = (
            [f"{1000 * ways[way][name]:,.{digits}f}" for way in (OURS, DELTALAKE)]
            for name, digits in (("median", 1), ("most", 0))
        )
        yield store, str(processes), *speeds, *medians, *most


def _wide(each: Sample) -> Sequence[str]:
    size = each["mode"], f"{each['files']:,}", f"{each['removed']:,}"
    cost = f"{each['seconds']:.2f}", f"{each['peak'] / 1e6:,.1f}", f"{each['read'] / 1e6:,.2f}"
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
