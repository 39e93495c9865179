"""The commands that look at one table: its history, a version, its buffers, its health, its waste, and its store."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from rich.markup import escape

from airflow_provider_onelake.cli.opening import access_of, errors_in_a_line, open_table
from airflow_provider_onelake.cli.output import (
    AsJson,
    ConnectionId,
    TableName,
    console,
    errors,
    print_commits,
    print_json,
    print_table,
    signed,
    size,
    time_in_words,
)
from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.log.cross_check import told_apart_by_deltalake
from airflow_provider_onelake.maintenance.health import Finding, Health, Severity, examine
from airflow_provider_onelake.maintenance.vacuum import VacuumTerms, plan
from airflow_provider_onelake.steps.outcomes import describe_vacuum
from airflow_provider_onelake.storage.concurrent import map_concurrently
from airflow_provider_onelake.storage.preflight import SCRATCH, problems_of
from airflow_provider_onelake.storage.stores import deltalake_options, open_store
from airflow_provider_onelake.texts import counted
from airflow_provider_onelake.view.commits import commit_in_full, summary_of
from airflow_provider_onelake.view.staged import staged_below

if TYPE_CHECKING:
    from airflow_provider_onelake.table import Table

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "blue"}
_SHADES = {True: "green", False: "red", None: "yellow"}
_PACKAGES = (
    "airflow-provider-onelake",
    "apache-airflow",
    "deltalake",
    "obstore",
    "pyarrow",
    "pyspark-client",
    "pyspark",
    "delta-spark",
)


def history(
    table: TableName,
    connection: ConnectionId = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many versions are listed.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the newest versions: who wrote them, what changed, and how many conflicts were settled."""
    with errors_in_a_line(errors):
        log = open_table(table, connection).log
        newest = log.snapshot().version
        versions = range(newest, max(newest - limit, -1), -1)
        commits = [found for found in map_concurrently(log.store, log.commit, versions) if found is not None]
    rows = [summary_of(commit) for commit in commits]
    if as_json:
        print_json(rows)
        return
    console.print(f"[bold]{escape(log.address)}[/], version {newest}")
    print_commits(rows)
    if len(commits) < min(limit, newest + 1):
        console.print("Older entries of the log were cleaned up.")


def show(
    table: TableName,
    number: Annotated[int, typer.Argument(metavar="VERSION", min=0)],
    connection: ConnectionId = None,
    as_json: AsJson = False,
) -> None:
    """Show one version: what it changed, whose rows it published, and how its conflicts were settled."""
    with errors_in_a_line(errors):
        log = open_table(table, connection).log
        log.snapshot()
        whole = commit_in_full(log, number)
    if as_json:
        print_json(whole)
        return
    console.print(f"[bold]{escape(log.address)}[/], version {number}: {escape(str(whole['operation']))}")
    facts = {
        "when (UTC)": time_in_words(whole["time"]),
        "by": whole["by"],
        "run": whole["run"],
        "rows": f"{signed('+', whole['rows_new'])} {signed('-', whole['rows_gone'])}",
        "files": f"+{whole['files_added']} -{whole['files_removed']}",
        "into": ", ".join(whole["partitions_added"]),
        "out of": ", ".join(whole["partitions_removed"]),
        "message": whole["user_metadata"],
        "definition": "changed" if whole["changes_definition"] else None,
    }
    for name, value in facts.items():
        if value:
            console.print(f"  {name:<14} {escape(str(value))}")
    if whole["published"]:
        cells = []
        for writer in whole["published"]:
            rows = ["?" if writer[name] is None else writer[name] for name in ("rows_staged", "rows_in_table")]
            finished = time_in_words(datetime.fromisoformat(writer["finished"]))
            cells.append((writer["writer"], writer["status"], *rows, finished, writer["buffer"]))
        print_table(("writer", "status now", "rows staged", "in the table", "finished (UTC)", "buffer"), cells, {2, 3})
        for writer in whole["published"]:
            # How conflicts were settled is said below.
            for sentence in writer["said"] if not writer["set_aside"] else ():
                console.print(f"  {escape(writer['writer'])}: {escape(sentence)}")
    for sentence in whole["settled_in_words"]:
        console.print(f"  {escape(sentence)}")


def buffers(table: TableName, connection: ConnectionId = None, as_json: AsJson = False) -> None:
    """List what is staged below a table: buffers, shared scans and compactions, their owners, and how far they are."""
    with errors_in_a_line(errors):
        log = open_table(table, connection).log
        rows = staged_below(log)
    if as_json:
        print_json(rows)
        return
    if not rows:
        console.print(f"Nothing is staged below {escape(log.address)}.")
        return
    cells = []
    for row in rows:
        ago = f"{timedelta(seconds=row['age_seconds'])} ago"
        owner = f"{row['owner']} of {row['by']}, run {row['run']}" if row["by"] else row["owner"]
        cells.append((row["state"], owner, "yes" if row["complete"] else "no", ago, row["path"]))
    print_table(("state", "owner", "complete", "last written", "path"), cells)


def health(table: TableName, connection: ConnectionId = None, as_json: AsJson = False) -> None:
    """Show what is wrong with a table, or will be, and what to do. The status is 2 if readers fail or rows are gone."""
    with errors_in_a_line(errors):
        found = examine(open_table(table, connection).log)
    if as_json:
        print_json(found.to_json())
    else:
        _print_health(found)
    if found.is_broken:
        raise typer.Exit(2)


def vacuum(
    table: TableName,
    connection: ConnectionId = None,
    lite: Annotated[bool, typer.Option("--lite", help="Count only files that the log says were removed.")] = False,
    gone: Annotated[bool, typer.Option("--dry-run", "--yes", hidden=True)] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a vacuum would delete, and what it would spare and why. Nothing is deleted."""
    if gone:
        raise typer.BadParameter(
            "`onelake vacuum` only shows what a vacuum would delete, so leave --dry-run and --yes out. A task with "
            "OneLakeVacuumOperator deletes it."
        )
    with errors_in_a_line(errors):
        found = describe_vacuum(plan(open_table(table, connection).log, VacuumTerms(lite=lite)))
    if as_json:
        print_json(found)
        return
    _print_vacuum(found)
    if found["files"]:
        # Spark is the second guard of each live file, and only a task waits for the Spark jobs of its earlier tries.
        words = [("task_id", "vacuum"), ("table", table), ("onelake_conn_id", connection), ("lite", lite)]
        said = ", ".join(f"{name}={value!r}" for name, value in words if value)
        console.print(f"Nothing was deleted. A task deletes it:\n  OneLakeVacuumOperator({escape(said)})")


def access(
    table: TableName,
    connection: ConnectionId = None,
    as_json: AsJson = False,
) -> None:
    """Show what the identity that signs in may do with a table, and by which role, rule or shortcut."""
    with errors_in_a_line(errors):
        report = access_of(table, connection)
    if as_json:
        print_json(report.to_json())
    else:
        console.print(f"[bold]{escape(report.table)}[/], the identity that signs in")
        for decision in report.decisions:
            console.print(f"  [{_SHADES[decision.allowed]}]{escape(str(decision))}[/]")
        for note in report.notes:
            console.print(f"[yellow]{escape(note)}[/]")
    if report.refused:
        raise typer.Exit(2)


def doctor(table: TableName, connection: ConnectionId = None) -> None:
    """Check that the store does what a commit needs, and that deltalake sees the same files; print a report to paste.

    The store is tried at a scratch path below the table. The status is 2 if a commit would fail.
    """
    with errors_in_a_line(errors):
        opened = open_table(table, connection)
        store = open_store(opened.address, opened.credentials, opened.patience)
        problems = [*map(str, problems_of(store, f"{SCRATCH}/{uuid4()}", str(opened))), *_problems_of_log(opened)]
    console.print(f"{escape(str(opened))} ({opened.address.kind.name})")
    console.print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in _PACKAGES:
        console.print(f"{name} {_installed(name)}")
    for problem in problems:
        console.print(f"[red]Not well:[/] {escape(problem)}")
    if problems:
        raise typer.Exit(2)
    console.print("All is well: create-only puts, reads, listings and deletes work as a commit needs them.")


def _problems_of_log(opened: Table) -> Iterator[str]:
    try:
        snapshot = opened.log.snapshot_or_none()
        if snapshot is None:
            return
        options = deltalake_options(opened.address, opened.credentials, opened.patience)
        apart = told_apart_by_deltalake(opened.log, snapshot.version, opened.address.deltalake_uri, options)
    except OneLakeError as error:
        apart = str(error)
    if apart is not None:
        yield apart


def _print_health(found: Health) -> None:
    rows = "an unknown number of rows" if found.rows is None else counted(found.rows, "row", ",")
    files, partitions = counted(found.files, "file", ","), counted(found.partitions, "partition", ",")
    console.print(f"[bold]{escape(found.table)}[/], version {found.version}")
    console.print(f"  {rows} in {files} of {size(found.bytes)}, {partitions}")
    since = ", no checkpoint" if found.checkpoint is None else f" since the checkpoint of version {found.checkpoint}"
    console.print(f"  {found.log_entries:,} log {'entry' if found.log_entries == 1 else 'entries'}{since}")
    if found.to_vacuum is not None and found.bytes_to_vacuum is not None:
        objects = counted(found.to_vacuum, "object", ",")
        console.print(f"  {objects} of {size(found.bytes_to_vacuum)} that a vacuum would delete")
    staged = f"{len(found.waiting)} in flight, {len(found.abandoned)} abandoned"
    console.print(f"  buffers, shared scans and compactions: {staged}")
    if not found.findings:
        console.print("[green]Nothing to do.[/]")
    for finding in found.findings:
        _print_finding(finding)


def _print_vacuum(found: Mapping[str, Any]) -> None:
    console.print(f"[bold]{escape(found['table'])}[/], version {found['version']}")
    console.print(f"  {counted(found['files'], 'object', ',')} of {size(found['bytes'])} would go")
    for path in found["examples"]:
        console.print(f"    {escape(path)}")
    if found["files"] > len(found["examples"]):
        console.print(f"    and {found['files'] - len(found['examples']):,} more")
    why = found["held_by"] or "the retention of the table"
    console.print(f"  Spared: what was needed at {found['before']} or later ({escape(why)})")
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


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "is not installed"
