"""The command ``onelake``: what a table's log and store say, and a OneLake on this machine."""

from __future__ import annotations

from importlib.util import find_spec

import typer

from airflow_provider_onelake.cli import changes, compare, lakehouse, tables

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Look at lakehouse tables from a terminal. Only reconcile and restore change a table, and only with --yes.",
)
_LOOKS = (tables.history, tables.show, tables.buffers, tables.health, tables.vacuum, tables.access, tables.doctor)
for _command in (lakehouse.tables, *_LOOKS, compare.diff, changes.reconcile, changes.restore):
    app.command()(_command)

# A local OneLake needs what the extra `local` brings; looking at tables does not.
if find_spec("starlette") and find_spec("uvicorn") and find_spec("h11"):
    from airflow_provider_onelake.cli.serve import serve

    app.command()(serve)
