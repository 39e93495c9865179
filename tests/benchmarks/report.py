"""Puts what a run found into the tables of docs/performance.md and of README.md, whose words are written by hand."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.results import AGAIN, DELTA_MERGE, OURS, WAYS, Load, Merging, Result, grouped, median, ratio
from tests.benchmarks.tpch import OWN, SHARED

_T = TypeVar("_T")
_MILLI, _MEGA = 1000, 1e6
_SOURCES = {SHARED: "one file for all writers", OWN: "a file for each writer"}


def tell(result: Result, page: Path) -> int:
    """Write the tables of a whole result over those of a page that have the same heads, and return how many there are."""
    text, told = page.read_text(), 0
    for table in tables(result):
        head = re.escape(table.partition("\n")[0])
        text, found = re.subn(rf"^{head}\n(?:\|.*\n)+", f"{table}\n", text, flags=re.MULTILINE)
        told += found
    page.write_text(text)
    return told


def tables(result: Result) -> Iterator[str]:
    """The tables, in the order of the page."""
    machine = result.machine
    load = f"load average {machine.load_at_begin:.1f} before the run, {machine.load_at_end:.1f} at its end"
    size = "all sizes" if machine.full else "a short run"
    yield _table(
        ("conditions", ""),
        [
            (
                "when",
                f"{machine.began}, {machine.seconds / 60:.0f} minutes, the package at `{machine.revision}`, {size}",
            ),
            ("machine", f"{machine.cores} cores ({machine.processor}), {machine.gigabytes:.0f} GB, {machine.system}"),
            ("versions", ", ".join(f"{name} {version}" for name, version in machine.versions.items())),
            ("other work", f"{load} (with the bench's own); others used {machine.others:.0%} of the processors' time"),
        ],
    )
    yield _table(
        ("way", "wall s", "CPU s of Spark", "jobs that failed"),
        (
            (_way(each.way), f"{each.seconds:.0f}", f"{each.jvm:.0f}", f"{each.failed} of {each.writers + each.failed}")
            for each in result.races
        ),
    )
    yield _loads(result.loads)
    yield _merges(result.merges)
    yield _table(
        (
            "store",
            "processes",
            "way",
            "commits",
            "per second",
            "median ms",
            "99 % within ms",
            "CPU ms each",
            "puts each",
        ),
        (
            (
                each.store,
                str(each.processes),
                _way(each.way),
                str(each.commits),
                f"{each.per_second:,.0f}",
                f"{_MILLI * each.latency(0.5):,.1f}",
                f"{_MILLI * each.latency(0.99):,.0f}",
                f"{_MILLI * each.cpu / each.commits:.1f}",
                _figure(None if each.attempts is None else each.attempts / each.commits, ".1f"),
            )
            for each in result.commits
        ),
    )
    yield _table(
        ("versions", "open, ms", "poke, ms", "poke that lists, ms", "open by deltalake, ms"),
        (
            (
                f"{each.versions:,}",
                *(
                    f"{_MILLI * (median(seconds, float) or 0.0):,.2f}"
                    for seconds in (each.opens, each.pokes, each.listings, each.deltalake)
                ),
            )
            for each in result.openings
        ),
    )
    yield _table(
        ("mode", "files", "replaced", "wall s", "CPU s", "memory, MB", "read, MB", "requests"),
        (
            (
                each.mode,
                f"{each.files:,}",
                f"{each.removed:,}",
                f"{each.seconds:.2f}",
                f"{each.cpu:.2f}",
                f"{max(0, each.peak) / _MEGA:,.1f}",
                f"{each.read / _MEGA:,.2f}",
                str(each.requests),
            )
            for each in result.publishings
        ),
    )
    yield _table(
        ("task", "wall s", "CPU s of the task", "CPU s of Spark"),
        (
            (kind, *(_spread(found, of) for of in (lambda t: t.seconds, lambda t: t.cpu, lambda t: t.jvm)))
            for kind, found in grouped(result.tasks, lambda task: task.kind).items()
        ),
    )


def _loads(loads: Sequence[Load]) -> str:
    rows = []
    for (source, writers), together in grouped(loads, lambda load: (load.source, load.writers)).items():
        ways = grouped(together, lambda load: load.way)
        for way, found in ((way, ways[way]) for way in WAYS if way in ways):
            rows.append(
                (
                    f"{writers}, {_SOURCES.get(source, source)}",
                    _way(way),
                    _spread(found, lambda load: load.jvm),
                    _times_of(ratio(together, way, lambda load: load.jvm)),
                    _spread(found, lambda load: load.tasks),
                    _figure(median(found, lambda load: load.jobs), ".0f"),
                    _spread(found, lambda load: load.seconds),
                    _times_of(ratio(together, way, lambda load: load.seconds)),
                    _figure(median(found, lambda load: load.client), ".1f"),
                    _figure(median(found, lambda load: load.data_files), ".0f"),
                )
            )
    of_spark = ("CPU s of Spark", "beside Delta", "of them in tasks", "Spark jobs")
    return _table(("writers", "way", *of_spark, "wall s", "beside Delta", "CPU s of Python", "files"), rows)


def _merges(merges: Sequence[Merging]) -> str:
    rows = []
    for keys, of_keys in grouped(merges, lambda seen: seen.keys).items():
        by_way = grouped(of_keys, lambda seen: seen.way)
        delta = median(by_way.get(DELTA_MERGE, ()), lambda seen: seen.jvm)
        for way, found in by_way.items():
            times = statistics.median(seen.jvm for seen in found) / delta if delta else None
            jvm, seconds, client = (
                _spread(found, of)
                for of in (lambda seen: seen.jvm, lambda seen: seen.seconds, lambda seen: seen.client)
            )
            rows.append((keys, way, jvm, _times_of(times), seconds, client, str(found[0].jobs)))
    return _table(("keys", "way", "JVM CPU s", f"times {DELTA_MERGE}", "wall s", "client CPU s", "Spark jobs"), rows)


def _way(way: str) -> str:
    return f"**{way}**" if way in (OURS, AGAIN) else way


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _spread(samples: Sequence[_T], of: Callable[[_T], float]) -> str:
    figures = [of(sample) for sample in samples]
    middle = statistics.median(figures)
    return f"{middle:.1f}" if len(figures) == 1 else f"{middle:.1f} ({min(figures):.1f} to {max(figures):.1f})"


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _times_of(value: float | None) -> str:
    return "-" if value is None else f"**{value:.2f}**"
