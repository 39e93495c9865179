"""What the commands share: how they are asked, and how they print tables, times and JSON."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from airflow_provider_onelake.texts import aligned

console = Console(highlight=False, soft_wrap=True)
errors = Console(highlight=False, soft_wrap=True, stderr=True)

TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="The address of a table, or a directory of this machine.")
]
ConnectionId = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="The id of an Airflow connection, in the environment or in a secrets backend. TABLE may then be a path "
        "inside its lakehouse. Default: sign in with what the environment of this process offers.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def print_commits(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a history.

    :param rows: made by :func:`~airflow_provider_onelake.view.commits.summary_of`.
    """
    cells = []
    for row in rows:
        by = f"{row['by']}, run {row['run']}" if row["run"] else row["by"]
        changed = f"{signed('+', row['rows_new'])} {signed('-', row['rows_gone'])}"
        files = f"+{row['files_added']} -{row['files_removed']}"
        time = time_in_words(row["time"])
        cells.append((row["version"], time, row["operation"], changed, files, row["settled"], by))
    print_table(("version", "when (UTC)", "operation", "rows", "files", "settled", "by"), cells, {0, 5})


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


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Collection[int] = ()) -> None:
    """Print rows below the names of their columns. No cell is cut: people and programs look for whole names.

    A row that is wider than the terminal has its last cell in a line of its own. In a pipe, each row is one line.

    :param numbers: the columns that stand at the right, counted from 0.
    """
    cells = [list(head), *([_in_a_line(cell) for cell in row] for row in rows)]
    for number, (line, (*_, last)) in enumerate(zip(aligned(cells, numbers), cells, strict=True)):
        if console.is_terminal and len(line) > console.width:
            line = f"{line.removesuffix(last).rstrip()}\n    {last}"
        console.print(escape(line), style="bold" if number == 0 else None)


def _in_a_line(value: object) -> str:
    return "" if value is None else str(value).replace("\n", "\\n")


def print_json(value: Mapping[str, Any] | Iterable[Any]) -> None:
    """Print JSON for programs."""
    typer.echo(json.dumps(value, indent=2, default=_in_json))


def _in_json(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
