"""The command that compares two versions of a table."""

from __future__ import annotations

import csv
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.markup import escape

from airflow_provider_onelake.cli.opening import open_table, told
from airflow_provider_onelake.cli.output import (
    AsJson,
    ConnectionId,
    TableName,
    console,
    errors,
    grid_of,
    print_json,
    signed,
    size,
    text,
)
from airflow_provider_onelake.commit.words import counted
from airflow_provider_onelake.exceptions import InvalidReadError, InvalidWriteError
from airflow_provider_onelake.log.difference import Counts, Difference
from airflow_provider_onelake.rows.compare import RowDifference, compare_rows, shown_rows
from airflow_provider_onelake.storage.clock import instant_given

_COLOURS = {"+": "green", "-": "red"}


def diff(
    table: TableName,
    before: Annotated[
        str,
        typer.Argument(metavar="FROM", help="a version, or a time in ISO format, in UTC without a zone"),
    ],
    after: Annotated[str | None, typer.Argument(metavar="TO", help="likewise. Default: the newest version")] = None,
    connection: ConnectionId = None,
    where: Annotated[str | None, typer.Option(help="a predicate on partition columns")] = None,
    rows: Annotated[bool, typer.Option("--rows", help="read the files that differ, and compare their rows")] = False,
    columns: Annotated[str | None, typer.Option(help="with --rows: columns to compare by, as in CSV")] = None,
    key: Annotated[str | None, typer.Option(help="with --rows: columns that tell a row, as in CSV")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="with --rows: how many rows to show")] = 10,
    as_json: AsJson = False,
) -> None:
    """Say what differs between two versions: files, rows, partitions, columns and properties; --rows: which rows."""
    found: RowDifference | None = None
    with told(errors):
        if not rows and (
            given := [name for name, value in {"--key": key, "--columns": columns}.items() if value is not None]
        ):
            raise InvalidReadError(f"{given[0]} says how rows are compared, so it needs --rows. Nothing was read.")
        points = _point("FROM", before), None if after is None else _point("TO", after)
        compared = open_table(table, connection).compared(*points, where)
        seen = compared.difference()
        if rows:
            found = compare_rows(compared, _names(columns), _names(key) or ())
    if as_json:
        print_json({**seen.to_json(), **({"compared": _in_json(found, limit)} if found is not None else {})})
        return
    _print_difference(seen)
    if found is not None:
        _print_rows(found, limit)


def _point(name: str, given: str) -> int | datetime:
    """Return the version or the time that an argument says; a time without a zone is in UTC, as for a restore."""
    if given.strip().isdecimal():
        return int(given)
    try:
        return instant_given(given)
    except InvalidWriteError as error:
        raise InvalidReadError(
            f"{name}={given!r} must be a version, or a time in ISO format such as 2019-01-31T12:00:00Z. Nothing was "
            "read."
        ) from error


def _names(given: str | None) -> list[str] | None:
    """Return names that stand between commas; as in CSV, one with a comma stands in double quotes."""
    if given is None:
        return None
    return [name.strip() for row in csv.reader([given], skipinitialspace=True) for name in row if name.strip()]


def _in_json(found: RowDifference, limit: int) -> dict[str, Any]:
    shown = shown_rows(found, limit)
    return {
        **found.to_json(),
        "added": shown.added,
        "removed": shown.removed,
        "changed": [{"before": before, "after": after} for before, after in shown.changed],
    }


def _print_difference(seen: Difference) -> None:
    console.print(f"[bold]{escape(seen.table)}[/], version {seen.before} → version {seen.after}")
    console.print(f"  {_rows(seen.rows_before)} → {_rows(seen.rows_after)}")
    if seen.operations:
        listed = ", ".join(f"{count} {name}" for name, count in sorted(seen.operations.items()))
        console.print(f"  between them: {escape(listed)}")
    if seen.is_empty:
        console.print("[green]No file and no definition differs.[/]")
        return
    for sentence in seen.definition:
        console.print(f"  {escape(sentence)}")
    if seen.files_packed:
        were = "was" if seen.files_packed == 1 else "were"
        packed = f"{counted(seen.files_packed, 'file', ',')} {were} compacted into {seen.files_packed_into:,}"
        console.print(f"  {packed}, with the same rows")
    table = grid_of("partition", "rows", "files", "bytes")
    for name, counts in {**seen.partitions, "all": seen.counts}.items():
        table.add_row(text(name), *_signed(counts))
    console.print(table)


def _signed(counts: Counts) -> tuple[str, str, str]:
    changed = f" ~{counts.files_changed}" if counts.files_changed else ""
    return (
        f"{signed('+', counts.rows_added)} {signed('-', counts.rows_removed)}",
        f"+{counts.files_added} -{counts.files_removed}{changed}",
        f"+{size(counts.bytes_added)} -{size(counts.bytes_removed)}",
    )


def _print_rows(found: RowDifference, limit: int) -> None:
    changed = "" if found.rows_changed is None else f", {found.rows_changed:,} changed"
    files, were = counted(found.files_read, "file", ","), "was" if found.rows_read == 1 else "were"
    console.print(
        f"  {_rows(found.rows_added)} added, {found.rows_removed:,} removed{changed}; {_rows(found.rows_read)} of "
        f"{files} {were} compared"
    )
    shown = shown_rows(found, limit)
    for row in shown.removed:
        _print_row("-", row)
    for row in shown.added:
        _print_row("+", row)
    if shown.changed:
        console.print("  changed:")
    for before, after in shown.changed:
        _print_row("-", before)
        _print_row("+", after)


def _print_row(sign: str, row: dict[str, Any]) -> None:
    console.print(f"  [{_COLOURS[sign]}]{sign} {escape(_line(row))}[/]")


def _line(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in row.items())


def _rows(count: int | None) -> str:
    return "? rows" if count is None else counted(count, "row", ",")
