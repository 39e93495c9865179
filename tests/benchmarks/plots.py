"""The plots of docs/performance.md, as SVG. Each has a light ground of its own, so that it can be read on dark pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.commits import BARE, DELTALAKE, S3
from tests.benchmarks.results import (
    AGAIN,
    APPENDS,
    DELTA,
    OURS,
    PARQUET,
    WAYS,
    Commits,
    Load,
    Opening,
    Publishing,
    Result,
    grouped,
    median,
)
from tests.benchmarks.tpch import OWN, SHARED

LOADS, COMMITS, OPENINGS, PUBLISHINGS = (
    f"performance-{name}.svg" for name in ("loads", "commits", "long-logs", "many-files")
)

# Colours of Okabe and Ito, which people who do not see all colours can tell apart.
_COLOURS = {
    PARQUET: "#999999",
    DELTA: "#0072b2",
    OURS: "#d55e00",
    AGAIN: "#e69f00",
    APPENDS: "#56b4e9",
    BARE: "#999999",
    DELTALAKE: "#0072b2",
}
_SOURCES = {SHARED: "one file for all, each writer has a filter", OWN: "a file for each writer"}
_MILLI, _MEGA = 1000, 1e6
_LEAST_MEMORY = 0.1


def draw(result: Result, directory: Path) -> None:
    """Draw all plots of a run.

    :param result: a whole one.
    :param directory: for the files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _draw_loads(result.loads, directory / LOADS)
    _draw_commits(result.commits, directory / COMMITS)
    _draw_openings(result.openings, directory / OPENINGS)
    _draw_publishings(result.publishings, directory / PUBLISHINGS)


@contextmanager
def _figure(file: Path, title: str, panels: int) -> Iterator[Sequence[Any]]:
    import matplotlib as mpl

    # The same samples give the same bytes.
    settings = {"svg.hashsalt": "bench", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(settings):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.5, 4.2), layout="constrained", facecolor="white")
        figure.suptitle(title)
        axes = figure.subplots(1, panels, squeeze=False)[0]
        for axis in axes:
            axis.set_axisbelow(True)
            axis.grid(axis="y", color="#dddddd")
        yield axes
        handles = {
            label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False)
        figure.savefig(file, format="svg", metadata={"Date": None, "Title": title})
    # Matplotlib leaves blanks at the ends of lines.
    file.write_text(re.sub(r"[ \t]+$", "", file.read_text(), flags=re.MULTILINE))


def _bars(
    axis: Any,
    groups: Sequence[Any],
    ways: Sequence[str],
    of: Callable[[Any, str], tuple[float, float, float] | None],
    form: str,
) -> None:
    """Draw a bar a way in each group.

    :param of: returns the height of a bar, and the least and the largest of its samples; ``None`` for no bar.
    :param form: of the number over a bar.
    """
    width = 0.8 / len(ways)
    for number, way in enumerate(ways):
        places, heights, below, above = [], [], [], []
        for place, group in enumerate(groups):
            found = of(group, way)
            if found is None:
                continue
            height, least, largest = found
            places.append(place + (number - (len(ways) - 1) / 2) * width)
            heights.append(height)
            below.append(max(0.0, height - least))
            above.append(max(0.0, largest - height))
        axis.bar(places, heights, width * 0.92, color=_COLOURS[way], label=way)
        if any(below) or any(above):
            axis.errorbar(places, heights, yerr=(below, above), fmt="none", ecolor="#333333", elinewidth=1, capsize=2)
        for place, height, more in zip(places, heights, above, strict=True):
            axis.annotate(
                format(height, form),
                (place, height + more),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
    axis.set_xticks(range(len(groups)), [str(group) for group in groups])


def _draw_loads(loads: Sequence[Load], file: Path) -> None:
    kinds = grouped(loads, lambda load: load.source)
    with _figure(file, "CPU seconds of Spark to load the same rows, beside one Delta job", len(kinds)) as axes:
        for axis, (kind, found) in zip(axes, kinds.items(), strict=True):
            sizes = grouped(found, lambda load: load.writers)
            ways = [way for way in WAYS if any(load.way == way for load in found)]

            def beside_delta(
                writers: int, way: str, sizes: dict[int, list[Load]] = sizes
            ) -> tuple[float, float, float] | None:
                by_way = grouped(sizes[writers], lambda load: load.way)
                delta = median(by_way.get(DELTA, ()), lambda load: load.jvm)
                middle = median(by_way.get(way, ()), lambda load: load.jvm)
                if not delta or middle is None:
                    return None
                seen = [load.jvm / delta for load in by_way[way]]
                return middle / delta, min(seen), max(seen)

            _bars(axis, list(sizes), ways, beside_delta, ".2f")
            axis.axhline(1, color="#0072b2", linewidth=0.8, linestyle="--")
            axis.set_title(_SOURCES.get(kind, kind), fontsize=10)
            axis.set_xlabel("writers")
            axis.set_ylabel("CPU time, one Delta job = 1")


def _draw_commits(commits: Sequence[Commits], file: Path) -> None:
    stores = grouped(commits, lambda sample: sample.store)
    with _figure(file, "Commits per second to one table", len(stores)) as axes:
        for axis, (store, found) in zip(axes, stores.items(), strict=True):
            samples = {(sample.processes, sample.way): sample for sample in found}

            def rate(
                processes: int, way: str, samples: dict[tuple[int, str], Commits] = samples
            ) -> tuple[float, float, float] | None:
                sample = samples.get((processes, way))
                return None if sample is None else (sample.per_second,) * 3

            _bars(axis, sorted({sample.processes for sample in found}), (BARE, OURS, DELTALAKE), rate, ",.0f")
            axis.set_title({S3: "S3 server on the same machine"}.get(store, store), fontsize=10)
            axis.set_xlabel("processes that commit at the same time")
            axis.set_ylabel("commits per second")


def _draw_openings(openings: Sequence[Opening], file: Path) -> None:
    lines: dict[str, tuple[Callable[[Opening], list[float]], str, str]] = {
        "open": (lambda seen: seen.opens, "#d55e00", "o"),
        "open by deltalake": (lambda seen: seen.deltalake, "#0072b2", "s"),
        "poke that lists (every 20th)": (lambda seen: seen.listings, "#009e73", "^"),
        "poke": (lambda seen: seen.pokes, "#cc79a7", "v"),
    }
    with _figure(file, "Looking at a table with a long log", 1) as (axis,):
        for label, (of, colour, marker) in lines.items():
            middle = [_MILLI * (median(of(seen), float) or 0.0) for seen in openings]
            axis.plot([seen.versions for seen in openings], middle, color=colour, marker=marker, label=label)
        _logarithmic(axis)
        axis.set_xlabel("versions of the table")
        axis.set_ylabel("milliseconds")


def _draw_publishings(publishings: Sequence[Publishing], file: Path) -> None:
    modes = grouped(publishings, lambda seen: seen.mode)
    panels: list[tuple[str, Callable[[Publishing], float]]] = [
        ("CPU seconds", lambda seen: seen.cpu),
        # A logarithmic axis has no place for nothing.
        (f"memory, MB (less than {_LEAST_MEMORY} is drawn so)", lambda seen: max(seen.peak / _MEGA, _LEAST_MEMORY)),
        ("read from the store, MB", lambda seen: seen.read / _MEGA),
    ]
    with _figure(file, "One commit beside many files, in a process that opens the table for it", len(panels)) as axes:
        for axis, (label, of) in zip(axes, panels, strict=True):
            for (mode, found), colour, marker in zip(modes.items(), ("#d55e00", "#0072b2"), "os", strict=False):
                name = mode if mode == "append" else f"{mode}, one of 120 partitions"
                axis.plot(
                    [seen.files for seen in found],
                    [of(seen) for seen in found],
                    color=colour,
                    marker=marker,
                    label=name,
                )
            _logarithmic(axis)
            axis.set_xlabel("files of the table")
            axis.set_ylabel(label)


def _logarithmic(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter

    axis.set_xscale("log")
    axis.set_yscale("log")
    plain = FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    axis.xaxis.set_major_formatter(plain)
    axis.yaxis.set_major_formatter(plain)
    axis.minorticks_off()
