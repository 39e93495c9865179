"""What the commands share: how they are asked, and how they print tables, times and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

console = Console(highlight=False, soft_wrap=True)
errors = Console(highlight=False, soft_wrap=True, stderr=True)

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="an address, or a directory of this machine")]
ConnectionId = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Airflow's connection, from the environment or a secrets backend; TABLE may then be a path inside its "
        "lakehouse. Default: sign in with what the environment of this process offers",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="for programs")]


def commits_grid(rows: Iterable[Mapping[str, Any]]) -> Grid:
    """Return the grid of a history.

    :param rows: made by :func:`~airflow_provider_onelake.view.commits.summary_of`.
    """
    grid = grid_of("version", "when (UTC)", "operation", "by", "rows", "files", "settled")
    for row in rows:
        # The id of a run is long, so in a narrow terminal its end is in the next line.
        by = f"{row['writers']}, {row['load']}" if row["writers"] else row["engine"]
        changed = f"{signed('+', row['rows_added'])} {signed('-', row['rows_removed'])}"
        files = f"+{row['files_added']} -{row['files_removed']}"
        time = time_in_words(row["time"])
        grid.add_row(*map(text, (row["version"], time, row["operation"], by, changed, files, row["settled"])))
    return grid


def time_in_words(instant: datetime | None) -> str | None:
    """Return an instant in UTC as people read it; ``None`` for an unknown one."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if instant else None


def signed(sign: str, count: int | None) -> str:
    """Return a number of rows with its sign; a question mark stands for an unknown number."""
    return f"{sign}?" if count is None else f"{sign}{count:,}"


def size(count: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError


def grid_of(*names: str) -> Grid:
    """Return an empty grid with these columns, whose long cells go on in the next line."""
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        grid.add_column(name, overflow="fold")
    return grid


def text(value: object) -> str:
    """Return the text of a cell; ``None`` is an empty one."""
    return "" if value is None else escape(str(value))


def print_json(value: Mapping[str, Any] | Iterable[Any]) -> None:
    """Print JSON for programs."""
    typer.echo(json.dumps(value, indent=2, default=_in_json))


def _in_json(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
