"""The command line behind ``make up``, ``down``, ``status``, ``demo`` and ``jars``."""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import httpx
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import jars as spark_jars
from . import onelake, postgres, processes, stack
from .jars import SetUpError
from .processes import StackError
from .settings import USER, Settings, from_environment, load_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .api import AirflowApi

# The exit status where the machine or its set-up is at fault.
SET_UP_FAILED = 3

app = typer.Typer(add_completion=False, no_args_is_help=True, help="A live Airflow on this machine.")
console = Console(highlight=False)


@app.command()
def up() -> None:
    """Start Airflow, PostgreSQL and Spark Connect; return when they are healthy."""
    settings = from_environment()
    _fetch_jars(settings)
    started = time.monotonic()
    settings.state.mkdir(parents=True, exist_ok=True)
    # Another shell may be starting it: then this one waits for that.
    with _failing(), spark_jars.lock(settings.state / "up.lock"), console.status("Starting …") as spinner:

        def tell(event: str) -> None:
            console.print(f"  {escape(event)}")
            spinner.update(f"{escape(event)} …")

        if not stack.is_complete(settings):
            stack.start(settings, tell)
    console.print(f"Healthy after {time.monotonic() - started:.0f} s.\n")
    _show_addresses(settings)
    with stack.open_api(settings) as api:
        _show_import_errors(api)


@app.command()
def down() -> None:
    """Stop everything that ``up`` has started."""
    started = time.monotonic()
    with console.status("Stopping …"):
        anything = processes.shut_down(from_environment().state)
    console.print(f"Stopped in {time.monotonic() - started:.0f} s." if anything else "Nothing runs.")


@app.command()
def status() -> None:
    """Show what runs, how it is, and what happened."""
    settings = from_environment()
    if processes.leader(settings.state) is None:
        console.print("Nothing runs. Start it by: make up")
        raise typer.Exit(1)
    complete = stack.is_complete(settings)
    table = Table("process", "pid", "state", "restarts", "log", title="started" if complete else "starting")
    for process in processes.look(settings.state):
        restarts = str(processes.restarts(settings.state, process.name))
        table.add_row(process.name, str(process.pid or ""), process.state.lower(), restarts, str(process.log))
    console.print(table)
    for event in processes.events(settings.state)[-10:]:
        console.print(f"  {escape(event)}")
    if not complete:
        return
    _show_addresses(settings)
    try:
        with stack.open_api(settings) as api:
            health = {name: part["status"] for name, part in api.health().items() if part}
            console.print("Airflow says: " + ", ".join(f"{name} {how}" for name, how in health.items()))
            _show_import_errors(api)
    except httpx.HTTPError as error:
        console.print(f"[red]Airflow does not answer:[/] {escape(str(error))}")


@app.command()
def demo(
    input: Annotated[Path | None, typer.Option(help="Directory with yellow_tripdata_YYYY-MM.json.gz.")] = None,  # noqa: A002
    lakehouse: Annotated[Path | None, typer.Option(help="Directory that gets Tables/trips.")] = None,
    table_mode: Annotated[Literal["append", "overwrite_partitions"], typer.Option(help="Of the writers.")] = "append",
    partition_by: Annotated[Literal["month", "vendor_id"], typer.Option(help="Of the table.")] = "month",
) -> None:
    """Load every month with both vendors' writers at once, and show that each row is there once."""
    from .demo import run

    raise typer.Exit(run(input=input, lakehouse=lakehouse, table_mode=table_mode, partition_by=partition_by))


@app.command()
def jars() -> None:
    """Fetch the JARs that Spark needs for Delta tables and for stores, once."""
    _fetch_jars(from_environment())


@app.command()
def clean() -> None:
    """Delete the state of a stopped stack, but for the fetched JARs and the installed stores."""
    settings = from_environment()
    if not settings.state.exists():
        return
    if processes.leader(settings.state) is not None:
        console.print("[red]It runs:[/] stop it first (make down).")
        raise typer.Exit(1)
    postgres.remove(settings.state)
    for entry in settings.state.iterdir():
        if entry.name in ("jars", "ivy", "jars.lock", "tools"):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except (SetUpError, StackError) as error:
        what = "Set-up" if isinstance(error, SetUpError) else "Start"
        console.print(f"[red]{what} failed.[/] {escape(str(error))}")
        raise typer.Exit(SET_UP_FAILED) from None


def _fetch_jars(settings: Settings) -> None:
    fetched = (settings.jars / "jars" / "resolved.json").exists()
    said = "Looking for Spark's JARs" if fetched else "Fetching JARs for Delta, S3 and Azure, 120 MB, about a minute"
    with _failing(), console.status(f"{said} …"):
        found = spark_jars.resolve(settings.jars)
    if not fetched:
        console.print(f"Fetched {len(found)} JARs into {settings.jars / 'jars'}.")


def _show_addresses(settings: Settings) -> None:
    server = stack.connect_server(settings)
    rows = {
        "Airflow": f"{stack.url(settings)}   user {USER}, password {load_secrets(settings).password}",
        "Spark Connect": f"{server.remote}   UI {server.ui_url}",
        "Lakehouse": onelake.LAKEHOUSE if onelake.runs(settings) else str(settings.lakehouse),
        "Logs": str(settings.logs),
        "Stop it": "make down",
        "In containers": "docker-compose up --build, with a Spark cluster, S3 and Azure (docs/compose.md)",
    }
    for name, value in rows.items():
        console.print(f"[bold]{name:<14}[/] {escape(value)}", soft_wrap=True)


def _show_import_errors(api: AirflowApi) -> None:
    errors = stack.import_errors(api)
    for error in errors:
        console.print(f"[red]DAG file cannot be imported:[/] {escape(error)}", soft_wrap=True)
    if errors:
        console.print("Everything else runs. A file is read again some seconds after it was changed.")


if __name__ == "__main__":
    app()
