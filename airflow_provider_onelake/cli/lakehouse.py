"""The command that looks at a whole lakehouse: ``onelake tables``."""

from __future__ import annotations

from typing import Annotated, Any

import attrs
import typer
from rich.markup import escape

from airflow_provider_onelake.cli.opening import Lakehouse, errors_in_a_line, open_lakehouse
from airflow_provider_onelake.cli.output import (
    AsJson,
    console,
    errors,
    print_json,
    print_table,
    size,
    time_in_words,
)
from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.maintenance.overview import look_at, tables_below
from airflow_provider_onelake.texts import counted


def tables(
    lakehouse: Annotated[
        str | None,
        typer.Argument(
            metavar="LAKEHOUSE", help="The address of a lakehouse, or a directory of this machine.", show_default=False
        ),
    ] = None,
    connection: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The id of an Airflow connection, in the environment or in a secrets backend. Its lakehouse counts if "
            "none is given. Default: sign in with what the environment of this process offers.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the tables of a lakehouse: how large each is, and when it was last changed."""
    with errors_in_a_line(errors):
        opened = open_lakehouse(lakehouse, connection)
        rows = [_row(opened, path) for path in tables_below(opened.store)]
    if as_json:
        print_json(rows)
    elif rows:
        _print(opened.name, rows)
    else:
        console.print(f"There is no Delta table below {escape(opened.name)}.")
    if any(row["error"] for row in rows):
        raise typer.Exit(1)


def _row(lakehouse: Lakehouse, path: str) -> dict[str, Any]:
    """Return what is known of a table. One that cannot be read must not hide the others."""
    row: dict[str, Any] = {"table": path or ".", "error": None}
    try:
        return {**row, **attrs.asdict(look_at(lakehouse.table(path).log))}
    except OneLakeError as error:
        return {**row, "error": str(error)}


def _print(lakehouse: str, rows: list[dict[str, Any]]) -> None:
    read = [row for row in rows if not row["error"]]
    console.print(f"[bold]{escape(lakehouse)}[/]: {counted(len(rows), 'table')}")
    if read:
        cells = []
        for row in read:
            rows_there = "?" if row["rows"] is None else f"{row['rows']:,}"
            counts = (row["version"], rows_there, f"{row['files']:,}", size(row["bytes"]))
            cells.append((*counts, time_in_words(row["time"]), row["operation"], row["table"]))
        head = ("version", "rows", "files", "size", "last commit (UTC)", "operation", "table")
        print_table(head, cells, {0, 1, 2, 3})
    for row in rows:
        if row["error"]:
            console.print(f"[red]{escape(row['table'])}[/]: {escape(row['error'])}")
