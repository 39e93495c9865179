"""``onelake serve DIR``: a OneLake on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from airflow_provider_onelake.cli.instructions import instructions, with_tls, write_hosts
from airflow_provider_onelake.local_onelake.access import PERMISSIONS, ROLES
from airflow_provider_onelake.local_onelake.certificates import prepare
from airflow_provider_onelake.local_onelake.faults import FAULTS, Faults
from airflow_provider_onelake.local_onelake.identities import Identities, kept_tokens
from airflow_provider_onelake.local_onelake.lake import InUseError, Lake
from airflow_provider_onelake.local_onelake.names import NameTakenError
from airflow_provider_onelake.local_onelake.serve import listen
from airflow_provider_onelake.local_onelake.serve import serve as serve_lake

console = Console(highlight=False, soft_wrap=True)


def serve(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="holds the files; made if it is not there")],
    port: Annotated[int, typer.Option(help="on 127.0.0.1")] = 10000,
    workspace: Annotated[str, typer.Option(help="to make, if it is not there; NAME or NAME=GUID")] = "local",
    item: Annotated[
        list[str] | None, typer.Option(help="in the workspace, to make if it is not there; NAME.Lakehouse[=GUID]")
    ] = None,
    token: Annotated[list[str] | None, typer.Option(help="an identity: NAME=SECRET. Default: one that is kept")] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(help=f"in the workspace: NAME={'|'.join(ROLES)}|none. Default: as before, at first Admin"),
    ] = None,
    permission: Annotated[
        list[str] | None, typer.Option(help=f"of each --item: NAME={'|'.join(PERMISSIONS)}[,…]; NAME= takes them away")
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(help=f"NAME[:rate=,count=,seconds=,only=] or NAME:off. {', '.join(FAULTS)}"),
    ] = None,
    seed: Annotated[int, typer.Option(help="of faults with a rate")] = 0,
    tls: Annotated[
        bool, typer.Option("--tls", help="answer TLS too, and be the HTTPS proxy of OneLake's own hosts")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="print nothing, and so no secret")] = False,
) -> None:
    """Serve a local OneLake until it is stopped by Ctrl-C."""
    with ExitStack() as until_exit, _said():
        tokens = _tokens(directory, token or [])
        faults = Faults(seed)
        for text in fault or []:
            faults.read(text)
        lake = Lake.open(directory, Identities(tokens), faults)
        until_exit.callback(lake.close)
        at = until_exit.enter_context(closing(listen(port)))
        name, _, guid = workspace.partition("=")
        made = lake.names.add_workspace(name, guid or None)
        if role:
            lake.access.give_roles(made, _by_identity(role))
        for text in item or ["raw.Lakehouse"]:
            item_name, _, item_guid = text.partition("=")
            item_made = lake.names.add_item(name, item_name, item_guid or None)
            for identity, names in _by_identity(permission or []).items():
                lake.access.give_permissions(item_made, identity, names.split(",") if names else [])
        hosts = directory / ".onelake" / "hosts"
        write_hosts(hosts)
        certificates = prepare((directory / ".onelake" / "tls").absolute()) if tls else None
        port = at.getsockname()[1]
        if not quiet:
            console.print(escape(instructions(lake, port, tokens, hosts.absolute())))
        if certificates is not None and not quiet:
            told = with_tls(port, tokens, hosts.absolute(), certificates.authority, certificates.truststore)
            console.print(escape(told))
        serve_lake(lake, at, certificates.context if certificates else None)


@contextmanager
def _said() -> Iterator[None]:
    """Say in a line why nothing is served."""
    try:
        yield
    except (InUseError, NameTakenError, ValueError, OSError) as error:
        console.print(f"[red]Not served:[/] {escape(str(error))}")
        raise typer.Exit(1) from error


def _by_identity(given: list[str]) -> dict[str, str]:
    if wrong := [text for text in given if "=" not in text]:
        raise ValueError(f"A role or a permission is NAME=…, and no {wrong[0]!r}.")
    return {name: said for name, _, said in (text.partition("=") for text in given)}


def _tokens(directory: Path, given: list[str]) -> dict[str, str]:
    """Return the identities of the command line, or the one that is kept in the directory."""
    named = {name: secret for name, _, secret in (text.partition("=") for text in given)}
    if any(not name or not secret for name, secret in named.items()):
        raise ValueError("A token is NAME=SECRET.")
    if len(set(named.values())) < len(given):
        raise ValueError("Each identity needs a name and a secret of its own.")
    return named or kept_tokens(directory)
