"""The local OneLake of a stack, by choice: its command, the connection to it, and what Spark needs to reach it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from local_onelake.identities import kept_tokens
from local_onelake.instructions import connection_to, spark_settings, write_hosts

from .connect_server import listens
from .processes import Command, leader, look

if TYPE_CHECKING:
    from pathlib import Path

    from .settings import Ports, Settings

NAME = "onelake"
WORKSPACE, ITEM = "local", "lakehouse.Lakehouse"
LAKEHOUSE = f"onelake://{WORKSPACE}/{ITEM}"
_SIGNATURE = "LOCAL_ONELAKE_SIGNATURE"


def command(settings: Settings, ports: Ports) -> Command:
    """Return the command that serves it.

    :param settings: of the stack.
    :param ports: of the stack.
    """
    serve = [str(directory(settings)), "--port", str(ports.onelake), "--quiet"]
    return Command(
        name=NAME,
        argv=[
            *(sys.executable, "-m", "local_onelake", *serve),
            *("--workspace", WORKSPACE, "--item", ITEM),
        ],
        env={"PYTHONUNBUFFERED": "1"},
        cwd=settings.state,
        log=settings.logs / f"{NAME}.log",
    )


def directory(settings: Settings) -> Path:
    """Return where it keeps its files."""
    return settings.state / NAME


def runs(settings: Settings) -> bool:
    """Whether the stack that runs has one, whatever is asked for now."""
    return leader(settings.state) is not None and any(process.name == NAME for process in look(settings.state))


def answers(ports: Ports) -> bool:
    """Whether it takes requests."""
    return listens(ports.onelake)


def connection(settings: Settings, ports: Ports) -> dict[str, Any]:
    """Return what a connection of Airflow to its lakehouse says.

    :param settings: of the stack.
    :param ports: of the stack.
    """
    made = connection_to(ports.onelake, _secret(settings), LAKEHOUSE)
    return {**made, "extra": {**made["extra"], "namespace": "local"}}


def for_spark(settings: Settings, ports: Ports) -> tuple[dict[str, str], dict[str, str]]:
    """Return Spark's settings, and the environment with the secret that one of them refers to.

    :param settings: of the stack.
    :param ports: of the stack.
    """
    hosts = settings.state / "onelake-hosts"
    write_hosts(hosts)
    said = spark_settings(ports.onelake, "", hosts)
    # A command line is for everybody to read, the environment of a process is not.
    (token,) = (name for name in said if name.endswith("sas.fixed.token"))
    said[token] = f"${{env.{_SIGNATURE}}}"
    return said, {_SIGNATURE: f"sv=local&sig={quote(_secret(settings), safe='')}"}


def _secret(settings: Settings) -> str:
    return next(iter(kept_tokens(directory(settings)).values()))
