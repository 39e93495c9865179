"""How a command of a person's terminal gets at a table: by an address, or through a connection of Airflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.storage.addresses import resolve_table
from airflow_provider_onelake.table import Table

# A person waits for the answer, so a store that does not answer is given up sooner than by a task.
_PATIENCE = 15.0


def open_table(name: str, connection: str | None) -> Table:
    """Return a table that is there.

    :param name: an address, or a directory of this machine; with a connection, a path inside its lakehouse as well.
    :param connection: the id of Airflow's connection. Default: sign in with what this process's environment offers.
    :raises OneLakeError: the address is malformed, or nothing is there.
    """
    if connection is None:
        local = ":" not in name
        table = Table(resolve_table(str(Path(name).expanduser().absolute()) if local else name, None), None, _PATIENCE)
    else:
        # Airflow takes seconds to import, so only those who need it wait for it.
        from airflow.sdk.exceptions import AirflowNotFoundException

        from airflow_provider_onelake.hooks.onelake import OneLakeHook

        try:
            table = OneLakeHook(connection, most_patience=_PATIENCE).table(name)
        except AirflowNotFoundException as error:
            raise OneLakeError(
                f"There is no connection {connection!r} in this process's environment or in the secrets backend. One "
                f"of Airflow's database is not looked for: `airflow connections get {connection} -o json` prints it, "
                f"for AIRFLOW_CONN_{connection.upper()}."
            ) from error
    # Opening a local store makes its directory, and looking at a table must not.
    table.address.kind.check_is_there(table.address)
    return table


@contextmanager
def told(console: Console) -> Iterator[None]:
    """Say errors that people can do something about in a line, and end with status 1.

    :param console: to say them on.
    """
    try:
        yield
    except OneLakeError as error:
        console.print(f"[red]{escape(str(error))}[/]")
        raise typer.Exit(1) from error
