"""The command ``local-onelake DIR``: a OneLake on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from local_onelake.access import PERMISSIONS, ROLES
from local_onelake.batches import Batches, joined
from local_onelake.certificates import prepare
from local_onelake.faults import FAULTS, Faults
from local_onelake.identities import Identities, kept_tokens
from local_onelake.instructions import EVERYWHERE, HOST, instructions, reached_at, spark_settings, with_tls, write_hosts
from local_onelake.lake import InUseError, Lake
from local_onelake.names import NameTakenError
from local_onelake.serve import listen
from local_onelake.serve import serve as serve_lake

# As Fabric's Spark has it, and on this machine.
_SPARK = {
    "spark.master": "local[2]",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

console = Console(highlight=False, soft_wrap=True)
app = typer.Typer(add_completion=False)


@app.command()
def serve(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="holds the files; made if it is not there")],
    port: Annotated[int, typer.Option(help="on which it listens")] = 10000,
    host: Annotated[
        str, typer.Option(help=f"on which it listens; {EVERYWHERE}: on every address, so that other machines reach it")
    ] = HOST,
    workspace: Annotated[str, typer.Option(help="to make, if it is not there; NAME or NAME=GUID")] = "local",
    item: Annotated[
        list[str] | None, typer.Option(help="in the workspace, to make if it is not there; NAME.Lakehouse[=GUID]")
    ] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(help="an identity: NAME=SECRET. Default: one that is kept", envvar="ONELAKE_TOKENS"),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(help=f"in the workspace: NAME={'|'.join(ROLES)}|none. Default: as before, at first Admin"),
    ] = None,
    permission: Annotated[
        list[str] | None, typer.Option(help=f"of each --item: NAME={'|'.join(PERMISSIONS)}[,…]; NAME= takes them away")
    ] = None,
    fault: Annotated[
        list[str] | None, typer.Option(help=f"NAME[:rate=,count=,seconds=,only=] or NAME:off. {', '.join(FAULTS)}")
    ] = None,
    seed: Annotated[int, typer.Option(help="of faults with a rate")] = 0,
    tls: Annotated[
        bool, typer.Option("--tls", help="answer TLS too, and be the HTTPS proxy of OneLake's own hosts")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="print nothing, and so no secret")] = False,
    spark_submit: Annotated[
        str | None, typer.Option(help="path of Spark's script, for Livy's batches; see README.md")
    ] = None,
    spark_conf: Annotated[list[str] | None, typer.Option(help="a setting of every batch: NAME=VALUE")] = None,
) -> None:
    """Serve a local OneLake until it is stopped by Ctrl-C."""
    with ExitStack() as until_exit, _said():
        tokens = _tokens(directory, token or [])
        faults = Faults(seed)
        for text in fault or []:
            faults.read(text)
        lake = Lake.open(directory, Identities(tokens), faults)
        until_exit.callback(lake.close)
        if spark_conf and spark_submit is None:
            raise ValueError("--spark-conf is for the batches of --spark-submit.")
        at = until_exit.enter_context(closing(listen(port, host)))
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
        if spark_submit is not None:
            lake.batches = _batches(spark_submit, spark_conf or [], directory, port, reached_at(host))
            until_exit.callback(lake.batches.close)
        if not quiet:
            console.print(escape(instructions(lake, port, tokens, hosts.absolute(), host)))
        if certificates is not None and not quiet:
            told = with_tls(port, tokens, hosts.absolute(), certificates.authority, certificates.truststore, host)
            console.print(escape(told))
        serve_lake(lake, at, certificates.context if certificates else None)


def _batches(spark_submit: str, given: list[str], directory: Path, port: int, host: str) -> Batches:
    """Return what runs Livy's batches.

    :raises ValueError: there is no such script, or a setting is none.
    """
    script = shutil.which(spark_submit)
    if script is None:
        raise ValueError(f"There is no script {spark_submit} that can be run: --spark-submit is the path of Spark's.")
    own = dict(text.partition("=")[::2] for text in given)
    if any(not name or "=" not in text for name, text in zip(own, given, strict=False)):
        raise ValueError("A setting is NAME=VALUE.")
    hosts = (directory / ".onelake" / "hosts").absolute()

    def settings(token: str) -> dict[str, str]:
        return joined(spark_settings(port, token, hosts, host), {**_SPARK, **own})

    # Each batch has a directory of its own, so a path from here would lead nowhere.
    return Batches((directory / ".onelake" / "batches").absolute(), str(Path(script).absolute()), settings)


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
