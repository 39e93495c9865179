"""Renders docs/performance.md of what one run found."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.commits import LOCAL, UNSYNCED
from tests.benchmarks.results import (
    AGAIN,
    APPENDS,
    DELTA,
    DELTA_MERGE,
    OURS,
    PARQUET,
    SUBMITS,
    WAYS,
    Commits,
    Load,
    Merging,
    Opening,
    Publishing,
    Race,
    Result,
    Task,
    grouped,
    median,
    ratio,
)
from tests.benchmarks.tpch import OWN, SHARED

_T = TypeVar("_T")
_MILLI, _MEGA = 1000, 1e6
_BUSY = 0.1
_WIDTH = 120

_SOURCES = {
    SHARED: "one file for all writers, each with a filter that skips no part of it",
    OWN: "a file of its own for each writer",
}


def write(result: Result, directory: Path) -> Path:
    """Write the page.

    :param result: a whole one.
    :param directory: of the page, such as that of the docs.
    :returns: the page.
    """
    directory.mkdir(parents=True, exist_ok=True)
    page = directory / "performance.md"
    page.write_text(render(result))
    return page


def tell(result: Result, readme: Path) -> None:
    """Write the figures of the race for a new table into the README, in the place of those that are there.

    :param result: a whole one.
    :param readme: the file.
    """
    table = _race_table(result.races)
    head = re.escape(table.partition("\n")[0])
    text, replaced = re.subn(rf"^{head}\n(?:\|.*\n)+", f"{table}\n", readme.read_text(), flags=re.MULTILINE)
    assert replaced == 1, f"{readme} has no table of a race"
    readme.write_text(text)


def render(result: Result) -> str:
    """Return the page.

    :param result: a whole one.
    """
    parts = [
        _opening(result),
        _conditions(result),
        _races(result.races),
        _loads(result),
        _merges(result.merges),
        _commits(result.commits),
        _long_logs(result.openings),
        _many_files(result.publishings),
        _tasks(result.tasks),
    ]
    blocks = "\n\n".join(part.strip() for part in parts).split("\n\n")
    return "\n\n".join(map(_wrapped, blocks)) + "\n"


def _wrapped(block: str) -> str:
    """Return a paragraph or a list in lines that are not too long; anything else as it is."""
    if block[0] in "#|!<":
        return block
    items = re.split(r"\n(?=- )", block)
    indent = "  " if block.startswith("- ") else ""
    return "\n".join(
        textwrap.fill(" ".join(item.split()), _WIDTH, subsequent_indent=indent, break_on_hyphens=False)
        for item in items
    )


def _opening(result: Result) -> str:
    return f"""
# Performance

<!-- Written by `make bench PAGE=1`: change tests/benchmarks/report.py, not this page. -->

`make bench` measures this package beside other ways to do the same; `make bench PAGE=1` writes this page from what it found.
`FULL=1` measures more sizes and more ways. This page is of a {"full" if result.machine.full else "short"} run.

All figures are of one run on one machine. **Compare ratios, not seconds.** CPU seconds say what the work costs; seconds of
wall time also depend on how many cores there are, and on what else the machine did. After every load and every commit the
bench reads the table: every row was there exactly once, and no commit failed. Otherwise this page would not be here.
"""


def _conditions(result: Result) -> str:
    machine = result.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    load = f"load average {machine.load_at_begin:.1f} before the run, {machine.load_at_end:.1f} at its end"
    table = _table(
        ("", ""),
        [
            ("when", f"{machine.began}, {machine.seconds / 60:.0f} minutes, the package at `{machine.revision}`"),
            ("machine", f"{machine.cores} cores ({machine.processor}), {machine.gigabytes:.0f} GB, {machine.system}"),
            ("versions", versions),
            ("other work", f"{load} (with the bench's own); others used {machine.others:.0%} of the processors' time"),
        ],
    )
    if machine.others > _BUSY:
        noise = (
            "**The machine was shared with other work during this run**, so all wall times are too long, each by another\n"
            "factor, and CPU seconds are too high by some percent, too. Take ratios below 1.3 for no difference."
        )
    else:
        noise = (
            "The machine did little else. Still, the same work takes up to a tenth more or less from run to run: take\n"
            "smaller differences for none."
        )
    return f"""
## Conditions

{table}

{noise}
"""


def _race_table(races: Sequence[Race]) -> str:
    rows = [
        (
            f"**{race.way}**" if race.way == OURS else race.way,
            f"{race.seconds:.0f}",
            f"{race.jvm:.0f}",
            f"{race.failed} of {race.writers + race.failed}",
        )
        for race in races
    ]
    return _table(("way", "wall s", "CPU s of Spark", "jobs that failed"), rows)


def _races(races: Sequence[Race]) -> str:
    writers, loaded = (races[0].writers, races[0].rows) if races else (0, 0)
    return f"""
## A race for a new table

{writers} writers, each with a file for a partition of its own, load {loaded:,} rows into a table that is not there yet, all at
once. Nothing runs before, so the start of Spark counts.

- {SUBMITS}: a job a writer, each with a Spark of its own on the same cores. One of them makes the table, and Delta refuses
  the others that had begun without it. A job that is refused runs again at once, as a task with retries does, until its rows
  are in.
- {OURS}: a Spark Connect server is started, and a write group with as many writers loads through it.

Most of the difference is the start of Spark: once here, and once for each job there.

{_race_table(races)}
"""


def _loads(result: Result) -> str:
    sections = []
    for (source, writers), loads in grouped(result.loads, lambda load: (load.source, load.writers)).items():
        rows = max(load.rows for load in loads)
        sections.append(
            f"**{writers} writers, {_SOURCES.get(source, source)}**, {rows:,} rows:\n\n{_load_table(loads)}"
        )
    tables = "\n\n".join(sections)
    return f"""
## Loads

The same rows of TPC-H's `lineitem` are loaded into one table with seven partitions, a year of shipment each. The writers
divide the rows by the date of shipment.

- {PARQUET}: partitioned files without any log; {DELTA}: an append of all rows. They do not divide the rows.
- {OURS}: a write group whose writers run at once, each by what its Airflow task executes (without Airflow's scheduler). Of
  writers that share a source, one Spark job writes all rows before that, as the group's task `scan`. In the first row, the load
  makes the table: Spark is asked for the columns of the rows too, and the first commit makes it. In the second, it is there.
- {APPENDS}: Delta appends that run at once, in a table that is there before. They protect from no crash and no retry.

All use one Spark Connect server, with two cores and 4 GB. Before the figures of a source are taken, every
way is warmed up {_times(result.warm_ups)} with few rows. In each of the {result.rounds} rounds the two jobs that others are compared with come first and
last, and every second round has the other ways in reversed order. The figures are medians, with the least and the largest.

{tables}
"""


def _load_table(loads: Sequence[Load]) -> str:
    ways = grouped(loads, lambda load: load.way)
    rows = []
    for way in WAYS:
        if way not in ways:
            continue
        found = ways[way]
        rows.append(
            (
                f"**{way}**" if way in (OURS, AGAIN) else way,
                _spread(found, lambda load: load.jvm),
                _times_of(ratio(loads, way, lambda load: load.jvm)),
                _spread(found, lambda load: load.tasks),
                _figure(median(found, lambda load: load.jobs), ".0f"),
                _spread(found, lambda load: load.seconds),
                _times_of(ratio(loads, way, lambda load: load.seconds)),
                _figure(median(found, lambda load: load.client), ".1f"),
                _figure(median(found, lambda load: load.data_files), ".0f"),
            )
        )
    names = (
        "way",
        "CPU s of Spark",
        "beside Delta",
        "of them in tasks",
        "Spark jobs",
        "wall s",
        "beside Delta",
        "CPU s of Python",
        "files",
    )
    return _table(names, rows)


def _commits(commits: Sequence[Commits]) -> str:
    rows = [
        (
            sample.store,
            str(sample.processes),
            f"**{sample.way}**" if sample.way == OURS else sample.way,
            str(sample.commits),
            f"{sample.per_second:,.0f}",
            f"{_MILLI * sample.latency(0.5):,.1f}",
            f"{_MILLI * sample.latency(0.99):,.0f}",
            f"{_MILLI * sample.cpu / sample.commits:.1f}",
            _figure(None if sample.attempts is None else sample.attempts / sample.commits, ".1f"),
        )
        for sample in commits
    ]
    names = (
        "store",
        "processes",
        "way",
        "commits",
        "per second",
        "median ms",
        "99 % within ms",
        "CPU ms each",
        "puts each",
    )
    return f"""
## Commits

Processes commit small appends to one table as fast as they can, each a commit after the other. The files are there before, so
Spark plays no part. *{OURS}* publishes buffers, as a writer's task does when its rows are staged. *deltalake* commits the
same files. The *bare put loop* decides nothing: it puts an entry at the next version that is free, which is the least that
any committer has to do. The S3 server is on the same machine, so a request takes a few milliseconds.

On *{LOCAL}*, this package and the bare put loop sync each entry, and the files that it names, to the disk itself before they
go on, as is this package's default. In the rows of *{UNSYNCED}* [nobody does](stores.md#local-disk), and deltalake never does.

{_table(names, rows)}
"""


def _merges(merges: Sequence[Merging]) -> str:
    rows = []
    for keys, of_keys in grouped(merges, lambda seen: seen.keys).items():
        by_way = grouped(of_keys, lambda seen: seen.way)
        delta = median(by_way[DELTA_MERGE], lambda seen: seen.jvm) if DELTA_MERGE in by_way else None
        for way, found in by_way.items():
            jvm = median(found, lambda seen: seen.jvm)
            times = jvm / delta if jvm is not None and delta else None
            figures: list[Callable[[Merging], float]] = [
                lambda seen: seen.jvm,
                lambda seen: seen.seconds,
                lambda seen: seen.client,
            ]
            jvms, seconds, client = (_spread(found, figure) for figure in figures)
            rows.append((keys, way, jvms, f"**{_figure(times, '.2f')}**", seconds, client, str(found[0].jobs)))
    names = ("keys", "way", "JVM CPU s", f"times {DELTA_MERGE}", "wall s", "client CPU s", "Spark jobs")
    table, source = (merges[0].rows, merges[0].merged) if merges else (0, 0)
    return f"""
## MERGE

An upsert of {source:,} keys, one in ten of them new, into a table of {table:,} rows whose files each have a range of keys. The
keys lie beside each other, as those of one day do, or all over the table. *{OURS}* is a writer task with `mode="merge"`: it
stages the source, checks that its keys are unique, and shows Spark only the files that may hold one. *{DELTA_MERGE}* reads the
same file of the source, and does neither. Each works on a copy of the same table.

{_table(names, rows)}
"""


def _long_logs(openings: Sequence[Opening]) -> str:
    rows = [
        (
            f"{seen.versions:,}",
            *(
                f"{_MILLI * (median(seconds, float) or 0.0):,.2f}"
                for seconds in (seen.opens, seen.pokes, seen.listings, seen.deltalake)
            ),
        )
        for seen in openings
    ]
    names = ("versions", "open, ms", "poke, ms", "poke that lists, ms", "open by deltalake, ms")
    return f"""
## Tables with long logs

A task opens the table: it looks for the last checkpoint, here 50 versions old, and reads the entries after it. A sensor that
waits pokes: it asks for the next version only. Every 20th of its pokes lists the log, to notice a gap. On a local disk a
listing walks over the whole directory; on S3 and ADLS it begins at the checkpoint.

{_table(names, rows)}
"""


def _many_files(publishings: Sequence[Publishing]) -> str:
    rows = [
        (
            seen.mode,
            f"{seen.files:,}",
            f"{seen.removed:,}",
            f"{seen.seconds:.2f}",
            f"{seen.cpu:.2f}",
            f"{max(0, seen.peak) / _MEGA:,.1f}",
            f"{seen.read / _MEGA:,.2f}",
            str(seen.requests),
        )
        for seen in publishings
    ]
    names = ("mode", "files", "replaced", "wall s", "CPU s", "memory, MB", "read, MB", "requests")
    return f"""
## Tables with many files

A task that has not seen the table before publishes one file: as an append, and as an overwrite of one of 120 partitions. The
table's files are named by a checkpoint, with 50 versions after it. Memory is what the process took in addition.

{_table(names, rows)}
"""


def _tasks(tasks: Sequence[Task]) -> str:
    rows = [
        (
            f"{kind} task",
            _spread(found, lambda task: task.seconds),
            _spread(found, lambda task: task.cpu),
            _spread(found, lambda task: task.jvm),
        )
        for kind, found in grouped(tasks, lambda task: task.kind).items()
    ]
    names = ("", "wall s", "CPU s of the task", "CPU s of Spark")
    return f"""
## What a writer task takes

A writer with a source of ten rows runs beside an empty task, each alone in a new process, on a warm Spark server. Airflow is
imported before and has run a task there. What the task itself imports is counted, such as Spark's client, but for a preloaded
writer: it runs in a process that has [imported all that once](spark.md#import-pyspark-once-not-in-every-task), as forks of
`make up`'s scheduler do. In a live Airflow the scheduler's pause and the worker's start come on top, for all tasks.

{_table(names, rows)}
"""


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


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
