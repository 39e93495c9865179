"""The command ``onelake``: what a table's log and store say."""

from __future__ import annotations

from typing import Any

import typer

from airflow_provider_onelake.cli import changes, lakehouse, tables

MISUSED = 64
"""The status of a command that was spelled wrongly, as in ``sysexits.h``. Typer's 2 says what was found of a table."""
# Typer exports only this error of Click's usage errors, and which Click they are of depends on Typer's version.
_UsageError: Any = typer.BadParameter.__mro__[1]
_UsageError.exit_code = MISUSED

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Look at lakehouse tables from a terminal. Only reconcile and restore change a table, and only with --yes.",
)
_LOOKS = (tables.history, tables.show, tables.buffers, tables.health, tables.vacuum, tables.access, tables.doctor)
for _command in (lakehouse.tables, *_LOOKS, changes.reconcile, changes.restore):
    app.command()(_command)


@app.command(hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def serve() -> None:
    """Say what serves a local OneLake: ``local-onelake``, with the same options."""
    typer.echo(
        "A local OneLake is served by local-onelake DIR, with the same options. It is a package of its own: in a clone "
        "of airflow-provider-onelake, run: pip install include/local_onelake",
        err=True,
    )
    raise typer.Exit(MISUSED)
