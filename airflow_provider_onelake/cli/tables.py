"""The commands that look at one table: its history, a version, its buffers, its health, its waste, and its store."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any
from uuid import uuid4

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from airflow_provider_onelake.cli.opening import open_table, told
from airflow_provider_onelake.commit.policy import Settlement
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.maintenance.health import Finding, Health, Severity, examine
from airflow_provider_onelake.maintenance.vacuum import Terms, plan
from airflow_provider_onelake.staging.buffers import lifetime
from airflow_provider_onelake.staging.clean_up import State, survey
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY
from airflow_provider_onelake.storage.at_once import each
from airflow_provider_onelake.storage.preflight import SCRATCH, problems_of
from airflow_provider_onelake.storage.stores import open_store
from airflow_provider_onelake.work.results import describe_vacuum

console = Console(highlight=False, soft_wrap=True)
errors = Console(highlight=False, soft_wrap=True, stderr=True)

_Name = Annotated[str, typer.Argument(metavar="TABLE", help="an address, or a directory of this machine")]
_Connection = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Airflow's connection, from the environment or a secrets backend; TABLE may then be a path inside its "
        "lakehouse. Default: sign in with what the environment of this process offers",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="for programs")]
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "blue"}
_MOST_WRITERS = 3
_PACKAGES = ("airflow-provider-onelake", "apache-airflow", "deltalake", "obstore", "pyspark", "delta-spark", "pyarrow")


def history(
    table: _Name,
    connection: _Connection = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="how many versions")] = 20,
    as_json: _Json = False,
) -> None:
    """Say who wrote the newest versions, and how many conflicts were settled."""
    with told(errors):
        log = open_table(table, connection).log
        newest = log.snapshot().version
        versions = range(newest, max(newest - limit, -1), -1)
        commits = [found for found in each(log.store, log.commit, versions) if found is not None]
    rows = [_summary(commit) for commit in commits]
    if as_json:
        _print_json(rows)
        return
    grid = _grid("version", "when (UTC)", "operation", "by", "rows", "files", "settled")
    for row in rows:
        by = f"{row['load']}: {row['writers']}" if row["writers"] else row["engine"]
        changed = f"{_signed('+', row['rows_added'])} {_signed('-', row['rows_removed'])}"
        files = f"+{row['files_added']} -{row['files_removed']}"
        when = _when(row["time"])
        grid.add_row(*map(_text, (row["version"], when, row["operation"], by, changed, files, row["settled"])))
    console.print(f"[bold]{escape(log.table)}[/], version {newest}")
    console.print(grid)
    if len(commits) < min(limit, newest + 1):
        console.print("Older entries of the log were cleaned up.")


def show(
    table: _Name,
    number: Annotated[int, typer.Argument(metavar="VERSION", min=0)],
    connection: _Connection = None,
    as_json: _Json = False,
) -> None:
    """Say what one version changed, whose rows it published, and how its conflicts were settled."""
    with told(errors):
        log = open_table(table, connection).log
        log.snapshot()
        commit = log.commit(number)
        if commit is None:
            raise InvalidWriteError(f"{log.table} has no version {number} in its log, which may have been cleaned up.")
    settlements = Settlement.of(commit)
    whole = {
        **_summary(commit),
        "partitions_added": sorted(_partition(values) for values in commit.added_partitions),
        "partitions_removed": sorted(_partition(values) for values in commit.removed_partitions),
        "published": [writer.to_json() for writer in commit.writers],
        "settlements": [settlement.to_json() for settlement in settlements],
        "counts_before": commit.staged.get("before"),
        "user_metadata": commit.user_metadata,
        "changes_definition": commit.metadata is not None or commit.protocol is not None,
    }
    if as_json:
        _print_json(whole)
        return
    console.print(f"[bold]{escape(log.table)}[/], version {number}: {escape(str(whole['operation']))}")
    facts = {
        "when (UTC)": _when(whole["time"]),
        "engine": whole["engine"],
        "load": whole["load"],
        "rows": f"{_signed('+', whole['rows_added'])} {_signed('-', whole['rows_removed'])}",
        "files": f"+{whole['files_added']} -{whole['files_removed']}",
        "into": ", ".join(whole["partitions_added"]),
        "out of": ", ".join(whole["partitions_removed"]),
        "said": whole["user_metadata"],
        "counts before": f"version {whole['counts_before']}" if whole["counts_before"] is not None else None,
        "definition": "changed" if whole["changes_definition"] else None,
    }
    for name, value in facts.items():
        if value:
            console.print(f"  {name:<14} {_text(value)}")
    if commit.writers:
        grid = _grid("writer", "generation", "rows", "finished (UTC)", "buffer")
        for writer in commit.writers:
            rows = "set aside" if writer.set_aside else writer.rows
            grid.add_row(*map(_text, (writer.writer, writer.generation, rows, _when(writer.finished), writer.buffer)))
        console.print(grid)
    for settlement in settlements:
        console.print(f"  {escape(str(settlement))}")


def buffers(table: _Name, connection: _Connection = None, as_json: _Json = False) -> None:
    """Say which buffers, shared scans and compactions stand below a table, whose they are, how far they have come."""
    with told(errors):
        log = open_table(table, connection).log
        listing = list(log.store.list(STAGED_DIRECTORY))
        snapshot = log.snapshot()
        found = survey(log, snapshot, listing, lifetime(snapshot.retention_days))
    rows: list[dict[str, Any]] = [
        {
            "path": staged.path,
            "owner": staged.owner if staged.owner != staged.path else None,
            "state": staged.state.value,
            "complete": staged.ended is not None,
            "age_seconds": int(staged.age.total_seconds()),
        }
        for staged in sorted(found, key=lambda staged: (staged.state is State.CLOSED, -staged.age))
    ]
    if as_json:
        _print_json(rows)
        return
    if not rows:
        console.print(f"Nothing is staged below {escape(log.table)}.")
        return
    grid = _grid("state", "owner", "complete", "last written", "path")
    for row in rows:
        ago = f"{timedelta(seconds=row['age_seconds'])} ago"
        grid.add_row(*map(_text, (row["state"], row["owner"], "yes" if row["complete"] else "no", ago, row["path"])))
    console.print(grid)


def health(table: _Name, connection: _Connection = None, as_json: _Json = False) -> None:
    """Say what is wrong with a table, or will be, and what to do. Status 2: readers fail, or rows are gone."""
    with told(errors):
        found = examine(open_table(table, connection).log)
    if as_json:
        _print_json(found.to_json())
    else:
        _print_health(found)
    if found.is_broken:
        raise typer.Exit(2)


def vacuum(
    table: _Name,
    connection: _Connection = None,
    lite: Annotated[bool, typer.Option("--lite", help="only files that the log names")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="needed, because nothing is deleted from here")] = False,
    as_json: _Json = False,
) -> None:
    """Say what a vacuum would delete, and what it would spare and why. Nothing is deleted."""
    with told(errors):
        if not dry_run:
            raise InvalidWriteError(
                "`onelake vacuum` deletes nothing: say --dry-run. A task with OneLakeVacuumOperator deletes, as it "
                "waits for the Spark jobs of its earlier tries and can be stopped."
            )
        found = describe_vacuum(plan(open_table(table, connection).log, Terms(lite=lite)))
    if as_json:
        _print_json(found)
        return
    _print_vacuum(found)


def doctor(table: _Name, connection: _Connection = None) -> None:
    """Try what a commit asks of the store, at a scratch path below the table; print a report to paste."""
    with told(errors):
        opened = open_table(table, connection)
        store = open_store(opened.address, opened.credentials, opened.patience)
        problems = problems_of(store, f"{SCRATCH}/{uuid4()}", str(opened))
    console.print(f"{escape(str(opened))} ({opened.address.kind.name})")
    console.print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in _PACKAGES:
        console.print(f"{name} {_installed(name)}")
    for problem in problems:
        console.print(f"[red]Not well:[/] {escape(problem)}")
    if problems:
        raise typer.Exit(2)
    console.print("All is well: create-only puts, reads, listings and deletes work as a commit needs them.")


def _print_health(found: Health) -> None:
    rows = "an unknown number of" if found.rows is None else f"{found.rows:,}"
    console.print(f"[bold]{escape(found.table)}[/], version {found.version}")
    console.print(f"  {rows} rows in {found.files:,} files of {_size(found.bytes)}, {found.partitions:,} partitions")
    since = ", no checkpoint" if found.checkpoint is None else f" since the checkpoint of version {found.checkpoint}"
    console.print(f"  {found.log_entries:,} log entries{since}")
    if found.to_vacuum is not None and found.bytes_to_vacuum is not None:
        console.print(f"  {found.to_vacuum:,} objects of {_size(found.bytes_to_vacuum)} that a vacuum would delete")
    console.print(f"  {len(found.waiting)} buffers, scans and compactions in flight, {len(found.abandoned)} abandoned")
    if not found.findings:
        console.print("[green]Nothing to do.[/]")
    for finding in found.findings:
        _print_finding(finding)


def _print_vacuum(found: Mapping[str, Any]) -> None:
    console.print(f"[bold]{escape(found['table'])}[/], version {found['version']}")
    console.print(f"  {found['files']:,} objects of {_size(found['bytes'])} would go")
    for path in found["examples"]:
        console.print(f"    {escape(path)}")
    if found["files"] > len(found["examples"]):
        console.print(f"    and {found['files'] - len(found['examples']):,} more")
    since = f"{found['before']}: {found['held_by'] or 'the retention of the table'}"
    console.print(f"  Nothing that was needed since {escape(since)} goes")
    for staged in found["in_flight"]:
        console.print(f"  Spared: {escape(staged['path'])} ({escape(staged['owner'])})")
    for version_ in found["kept_versions"]:
        console.print(f"  Spared: the files of version {version_}, which is kept")
    for note in found["notes"]:
        console.print(f"[yellow]{escape(note)}[/]")


def _print_finding(finding: Finding) -> None:
    colour = _COLOURS[finding.severity]
    console.print(f"[{colour}]{finding.severity.value}[/]: {escape(finding.what)}.")
    console.print(f"  {escape(finding.todo)}.")


def _summary(commit: Commit) -> dict[str, Any]:
    names = [writer.writer for writer in commit.writers]
    more = f" and {len(names) - _MOST_WRITERS} more" if len(names) > _MOST_WRITERS else ""
    return {
        "version": commit.version,
        "time": commit.time,
        "operation": commit.operation or None,
        "load": commit.staged.get("load"),
        "writers": ", ".join(names[:_MOST_WRITERS]) + more if names else None,
        "engine": commit.info.get("engineInfo"),
        "rows_added": commit.rows_added,
        "rows_removed": commit.rows_removed,
        "files_added": len(commit.adds),
        "files_removed": len(commit.removes),
        "settled": len(Settlement.of(commit)) or None,
    }


def _when(instant: datetime | None) -> str | None:
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if instant else None


def _partition(values: Sequence[tuple[str, str | None]]) -> str:
    return "/".join(f"{name}={'NULL' if value in (None, '') else value}" for name, value in values) or "the table"


def _signed(sign: str, count: int | None) -> str:
    return f"{sign}?" if count is None else f"{sign}{count:,}"


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "is not installed"


def _grid(*names: str) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        grid.add_column(name, overflow="fold")
    return grid


def _text(value: object) -> str:
    return "" if value is None else escape(str(value))


def _print_json(value: Mapping[str, Any] | Iterable[Any]) -> None:
    typer.echo(json.dumps(value, indent=2, default=_in_json))


def _in_json(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
