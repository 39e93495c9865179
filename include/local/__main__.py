"""The command line behind ``make up``, ``down``, ``status``, ``demo``, ``jars`` and ``clean``."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import httpx
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import demo as taxi
from . import jars as spark_jars
from . import onelake, postgres, processes, stack
from .api import AirflowApi, ApiError
from .settings import REPOSITORY, USER, Settings, from_environment

app = typer.Typer(add_completion=False, no_args_is_help=True, help="A live Airflow on this machine.")
console = Console(highlight=False)


@app.command()
def up() -> None:
    """Start Airflow, PostgreSQL and Spark Connect; return when they are healthy."""
    jars()
    settings, started = from_environment(), time.monotonic()
    with _failing(), console.status("Starting …") as spinner:

        def tell(event: str) -> None:
            console.print(f"  {escape(event)}")
            spinner.update(f"{escape(event)} …")

        if processes.leader(settings.state) is None:
            stack.start(settings, tell)
    console.print(f"Healthy after {time.monotonic() - started:.0f} s.\n")
    _show_addresses(settings, stack.open_api(settings))


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
    table = Table("process", "pid", "state", "restarts", "log")
    events = processes.ask(settings.state, "readLog", 0, 0).rpartition("supervisord started with pid")[2].splitlines()
    for process in processes.ask(settings.state, "getAllProcessInfo"):
        name, pid, state = process["name"], process["pid"], process["statename"].lower()
        starts = sum(f"spawned: '{name}'" in line for line in events)
        table.add_row(name, str(pid or ""), state, str(max(0, starts - 1)), process["stdout_logfile"])
    console.print(table)
    for event in events[1:][-10:]:
        console.print(f"  {escape(event)}")
    api = stack.open_api(settings)
    try:
        _show_addresses(settings, api)
        health = ", ".join(f"{name} {part['status']}" for name, part in api.health().items() if part)
        console.print(f"Airflow says: {health}")
    except (httpx.HTTPError, ApiError) as error:
        console.print(f"[red]Airflow does not answer:[/] {escape(str(error))}")


@app.command()
def demo(
    input: Annotated[  # noqa: A002
        Path, typer.Option(help="Directory with yellow_tripdata_YYYY-MM.json.gz.", exists=True, file_okay=False)
    ] = taxi.SAMPLE,
    lakehouse: Annotated[Path, typer.Option(help="Directory that gets Tables/trips.")] = REPOSITORY / "lakehouse",
    table_mode: Annotated[Literal["append", "overwrite_partitions"], typer.Option(help="Of the writers.")] = "append",
    partition_by: Annotated[Literal["month", "vendor_id"], typer.Option(help="Of the table.")] = "month",
) -> None:
    """Load every month with both vendors' writers at once, and show that each row is there once."""
    paths = {"input": input.absolute(), "lakehouse": lakehouse.expanduser().absolute()}
    raise typer.Exit(taxi.run(**paths, table_mode=table_mode, partition_by=partition_by))


@app.command()
def jars() -> None:
    """Fetch the JARs that Spark needs for Delta tables and for stores, once."""
    directory = from_environment().jars
    fetched = (directory / "jars" / "resolved.json").exists()
    said = "Looking for Spark's JARs" if fetched else "Fetching JARs for Delta, S3 and Azure, 120 MB, about a minute"
    with _failing(), console.status(f"{said} …"):
        found = spark_jars.resolve(directory)
    if not fetched:
        console.print(f"Fetched {len(found)} JARs into {directory / 'jars'}.")


@app.command()
def clean() -> None:
    """Stop what runs, and delete its state, but for the fetched JARs and the installed stores."""
    state = from_environment().state
    processes.shut_down(state)
    postgres.remove(state)
    for entry in state.glob("*"):
        if entry.name not in ("jars", "ivy", "jars.lock", "matrix", "tools"):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except spark_jars.SetUpError as error:
        console.print(f"[red]Set-up failed.[/] {escape(str(error))}")
        raise typer.Exit(taxi.SET_UP_FAILED) from None


def _show_addresses(settings: Settings, api: AirflowApi) -> None:
    server = stack.connect_server(settings)
    on_onelake = onelake.NAME in {process["name"] for process in processes.ask(settings.state, "getAllProcessInfo")}
    rows = {
        "Airflow": f"{api.url}   user {USER}, password {settings.password}",
        "Spark Connect": f"{server.remote}   UI {server.ui_url}",
        "Lakehouse": onelake.LAKEHOUSE if on_onelake else str(settings.lakehouse),
        "Logs": str(settings.logs),
        "Stop it": "make down",
        "In containers": "docker-compose up --build, with a Spark cluster, S3 and Azure (docs/operate/compose.md)",
    }
    for name, value in rows.items():
        console.print(f"[bold]{name:<14}[/] {escape(value)}", soft_wrap=True)
    errors = stack.import_errors(api)
    for error in errors:
        console.print(f"[red]DAG file cannot be imported:[/] {escape(error)}", soft_wrap=True)
    if errors:
        console.print("Everything else runs. A file is read again some seconds after it was changed.")


if __name__ == "__main__":
    app()
