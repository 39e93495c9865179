"""How a command of a person's terminal gets at a table: by an address, or through a connection of Airflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import typer
from rich.console import Console
from rich.markup import escape

from airflow_provider_onelake.exceptions import InvalidWriteError, OneLakeError, with_page
from airflow_provider_onelake.fabric.access import check_access, open_asked
from airflow_provider_onelake.storage.addresses import TableAddress, refuse, resolve_table
from airflow_provider_onelake.storage.stores import open_store
from airflow_provider_onelake.table import Table

if TYPE_CHECKING:
    from airflow_provider_onelake.fabric.access_report import AccessReport
    from airflow_provider_onelake.hooks.onelake import OneLakeHook
    from airflow_provider_onelake.storage.stores import Store

# A person waits for the answer, so a store that does not answer is given up sooner than by a task.
_PATIENCE = 15.0


@attrs.frozen
class Lakehouse:
    """A directory that holds tables.

    :param name: what messages call it.
    :param store: rooted there.
    :param table: returns the table at a path below; the empty path is the directory itself.
    """

    name: str
    store: Store
    table: Callable[[str], Table]


def open_table(name: str, connection: str | None) -> Table:
    """Return a table that is there.

    :param name: an address, or a directory of this machine; with a connection, a path inside its lakehouse as well.
    :param connection: the id of Airflow's connection. Default: sign in with what this process's environment offers.
    :raises OneLakeError: the address is malformed, or nothing is there.
    """
    if connection is None:
        table = Table(resolve_table(_address(name), None), None, _PATIENCE)
    else:
        with _hook(connection) as hook:
            table = hook.table(name)
    # Opening a local store makes its directory, and looking at a table must not.
    table.address.kind.check_is_there(table.address)
    return table


def access_of(name: str, connection: str | None) -> AccessReport:
    """Return what the identity that signs in may do with a table.

    :param name: as for :func:`open_table`.
    :param connection: the id of Airflow's connection. Default: sign in with what this process's environment offers.
    :raises OneLakeError: the address is malformed, nothing is there, or nobody can say it.
    """
    table = open_table(name, connection)
    if connection is None:
        return check_access(open_asked(table.address, None, _PATIENCE))
    with _hook(connection) as hook:
        from airflow_provider_onelake.hooks.fabric import FabricHook

        return FabricHook(lakehouse=hook).check_access(name)


def open_lakehouse(name: str | None, connection: str | None) -> Lakehouse:
    """Return a lakehouse that is there.

    :param name: an address, or a directory of this machine. Default: the lakehouse of the connection.
    :param connection: the id of Airflow's connection. Default: sign in with what this process's environment offers.
    :raises OneLakeError: there is neither name nor connection, the address is malformed, or nothing is there.
    """
    credentials, patience, field = None, _PATIENCE, None
    given = _address(name) if name is not None else None
    if connection is not None:
        with _hook(connection) as hook:
            field = None if given else "lakehouse"
            given = given or hook.lakehouse
            if given is None:
                raise InvalidWriteError(f"The connection {connection!r} has no lakehouse: give an address as well.")
            credentials, patience = hook.credentials(TableAddress.parse_root(given, field)), hook.patience
    if given is None:
        raise InvalidWriteError(
            "No lakehouse is given: give its address, or --connection with the id of the connection."
        )
    root = TableAddress.parse_root(given, field)
    root.kind.check_is_there(root)

    def table(path: str) -> Table:
        address = resolve_table(path, str(root)) if path else TableAddress.parse(str(root))
        return Table(address, credentials, patience)

    return Lakehouse(str(root), open_store(root, credentials, patience), table)


def _address(name: str) -> str:
    """Return an address; a name without a scheme is a directory of this machine.

    :raises AddressError: there is no name, which would be the directory where the process happens to be.
    """
    if not name.strip():
        refuse(name, "it is empty", "give an address or a directory; maybe a variable of the shell is not set")
    return name if ":" in name else str(Path(name).expanduser().absolute())


@contextmanager
def _hook(connection: str) -> Iterator[OneLakeHook]:
    """Give the hook of a connection, and say what to do if the connection is not found."""
    # Airflow takes seconds to import, so only those who need it wait for it.
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    from airflow_provider_onelake.hooks.onelake import OneLakeHook

    try:
        yield OneLakeHook(connection, most_patience=_PATIENCE)
    except AirflowNotFoundException as error:
        raise OneLakeError(
            f"There is no connection {connection!r} in this process's environment or in the secrets backend. One "
            f"of Airflow's database is not looked for: `airflow connections get {connection} -o json` prints it, "
            f"for AIRFLOW_CONN_{connection.upper()}."
        ) from error


@contextmanager
def errors_in_a_line(console: Console) -> Iterator[None]:
    """Say errors that people can do something about in a line, and end with status 1.

    :param console: to say them on.
    """
    try:
        yield
    except OneLakeError as error:
        console.print(f"[red]{escape(with_page(error))}[/]")
        raise typer.Exit(1) from error
