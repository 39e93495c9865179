"""The command line behind ``make up``, ``down``, ``status``, ``demo``, ``jars`` and ``stores``."""

from __future__ import annotations

import importlib
import shutil
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import jars as spark_jars
from . import postgres, stack, tools
from . import supervisor as background
from .settings import USER, Settings, from_environment, known_ports, load_secrets

# Exit statuses: the machine or its set-up is at fault, or a DAG is.
SET_UP_FAILED = 3
DAGS_FAILED = 4

app = typer.Typer(add_completion=False, no_args_is_help=True, help="A live Airflow on this machine.")
console = Console(highlight=False)


@app.command()
def up(
    foreground: Annotated[bool, typer.Option(help="Stay, say what happens, stop everything at Ctrl-C.")] = False,
) -> None:
    """Start Airflow, PostgreSQL and Spark Connect; return when they are healthy."""
    settings = from_environment()
    if background.supervisor(settings) is None:
        _fetch_jars(settings)
        if foreground:
            raise typer.Exit(background.run(settings))
        background.launch(settings)
    started = time.monotonic()
    status = _wait_until_healthy(settings)
    if status.phase != "healthy":
        console.print(
            f"[red]{'Set-up' if status.set_up else 'Start'} failed.[/] {escape(status.error or status.phase)}"
        )
        raise typer.Exit(SET_UP_FAILED)
    console.print(f"Healthy after {time.monotonic() - started:.0f} s.\n")
    _show_addresses(settings, status)
    _show_import_errors(status)


@app.command()
def down() -> None:
    """Stop everything that ``up`` has started."""
    settings = from_environment()
    if not settings.state.exists():
        console.print("Nothing runs.")
        return
    started = time.monotonic()
    with console.status("Stopping …"):
        anything = background.shut_down(settings)
    console.print(f"Stopped in {time.monotonic() - started:.0f} s." if anything else "Nothing runs.")


@app.command()
def status() -> None:
    """Show what runs, how it is, and what happened."""
    settings = from_environment()
    found = background.read_status(settings) if settings.state.exists() else None
    if found is None or background.supervisor(settings) is None:
        console.print("Nothing runs. Start it by: make up")
        raise typer.Exit(1)
    table = Table("process", "pid", "restarts", "log", title=f"{found.phase}")
    for process in found.processes:
        table.add_row(process.name, str(process.pid or "starting again"), str(process.restarts), process.log)
    console.print(table)
    for event in found.events[-10:]:
        console.print(f"  {escape(event)}")
    if found.phase == "healthy":
        with stack.open_api(settings, known_ports(settings)) as api:
            health = api.health()
        console.print("Airflow says: " + ", ".join(f"{name} {part['status']}" for name, part in health.items() if part))
        _show_addresses(settings, found)
        _show_import_errors(found)


@app.command()
def demo(
    input: Annotated[Path | None, typer.Option(help="Directory with yellow_tripdata_YYYY-MM.json.gz.")] = None,  # noqa: A002
    lakehouse: Annotated[Path | None, typer.Option(help="Directory that gets Tables/trips.")] = None,
    table_mode: Annotated[str, typer.Option(help="append or overwrite_partitions.")] = "append",
    partition_by: Annotated[str, typer.Option(help="month or vendor_id.")] = "month",
) -> None:
    """Load every month with both vendors' writers at once, and show that each row is there once."""
    try:
        module = importlib.import_module("include.local.demo")
    except ModuleNotFoundError as error:
        if error.name != "include.local.demo":
            raise
        console.print("The demo is not part of this checkout yet.")
        raise typer.Exit(SET_UP_FAILED) from None
    raise typer.Exit(module.run(input=input, lakehouse=lakehouse, table_mode=table_mode, partition_by=partition_by))


@app.command()
def jars() -> None:
    """Fetch the JARs that Spark needs for Delta tables and for stores, once."""
    _fetch_jars(from_environment())


@app.command()
def stores() -> None:
    """Install the S3 server and the Blob server that tests and the local stack write to, and docker-compose, once."""
    state = from_environment().jars
    try:
        tools.install_docker_compose(state, console.print)
        tools.install_azurite(state, console.print)
        tools.install_versitygw(state, console.print)
    except spark_jars.SetUpError as error:
        console.print(f"[red]Set-up failed.[/] {escape(str(error))}")
        raise typer.Exit(SET_UP_FAILED) from None


@app.command()
def clean() -> None:
    """Delete the state of a stopped stack, but for the fetched JARs and the installed stores."""
    settings = from_environment()
    if not settings.state.exists():
        return
    if background.supervisor(settings) is not None:
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


def _fetch_jars(settings: Settings) -> None:
    fetched = (settings.jars / "jars" / "resolved.json").exists()
    try:
        with console.status(
            "Looking for Spark's JARs …"
            if fetched
            else "Fetching JARs for Delta, S3 and Azure, 120 MB, about a minute …"
        ):
            found = spark_jars.resolve(settings.jars)
    except spark_jars.SetUpError as error:
        console.print(f"[red]Set-up failed.[/] {escape(str(error))}")
        raise typer.Exit(SET_UP_FAILED) from None
    if not fetched:
        console.print(f"Fetched {len(found)} JARs into {settings.jars / 'jars'}.")


def _wait_until_healthy(settings: Settings) -> background.Status:
    shown = 0
    last = background.Status("starting")
    with console.status("Starting …") as spinner:
        for last in background.follow(settings):
            for event in last.events[shown:]:
                console.print(f"  {escape(event)}")
                spinner.update(escape(event.partition(" ")[2]) + " …")
            shown = len(last.events)
    return last


def _show_addresses(settings: Settings, status: background.Status) -> None:
    rows = {
        "Airflow": f"{status.url}   user {USER}, password {load_secrets(settings).password}",
        "Spark Connect": f"{status.remote}   UI http://127.0.0.1:{known_ports(settings).spark_ui}",
        "Lakehouse": str(settings.lakehouse),
        "Logs": str(settings.logs),
        "Stop it": "make down",
        "In containers": "docker-compose up --build, with a Spark cluster, S3 and Azure (docs/compose.md)",
    }
    for name, value in rows.items():
        console.print(f"[bold]{name:<14}[/] {escape(value)}", soft_wrap=True)


def _show_import_errors(status: background.Status) -> None:
    for error in status.import_errors:
        console.print(f"[red]DAG file cannot be imported:[/] {escape(error)}", soft_wrap=True)
    if status.import_errors:
        raise typer.Exit(DAGS_FAILED)


if __name__ == "__main__":
    app()
