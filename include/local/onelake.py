"""The local OneLake of a stack, by choice: its command, the connection to it, and what Spark needs to reach it."""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import quote

from local_onelake.identities import kept_tokens
from local_onelake.instructions import connection_to, spark_settings, write_hosts

from .settings import Settings

NAME = "onelake"
WORKSPACE, ITEM = "local", "lakehouse.Lakehouse"
LAKEHOUSE = f"onelake://{WORKSPACE}/{ITEM}"
_SIGNATURE = "LOCAL_ONELAKE_SIGNATURE"


def command(settings: Settings) -> list[str]:
    """Return the command that serves it."""
    serve = [str(settings.state / NAME), "--port", str(settings.ports.onelake), "--quiet"]
    return [sys.executable, "-m", "local_onelake", *serve, "--workspace", WORKSPACE, "--item", ITEM]


def connection(settings: Settings) -> dict[str, Any]:
    """Return what a connection of Airflow to its lakehouse says."""
    made = connection_to(settings.ports.onelake, _secret(settings), LAKEHOUSE)
    return {**made, "extra": {**made["extra"], "namespace": "local"}}


def for_spark(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """Return Spark's settings, and the environment with the secret that one of them refers to."""
    hosts = settings.state / "onelake-hosts"
    write_hosts(hosts)
    said = spark_settings(settings.ports.onelake, "", hosts)
    # A command line is for everybody to read, the environment of a process is not.
    (token,) = (name for name in said if name.endswith("sas.fixed.token"))
    said[token] = f"${{env.{_SIGNATURE}}}"
    return said, {_SIGNATURE: f"sv=local&sig={quote(_secret(settings), safe='')}"}


def _secret(settings: Settings) -> str:
    return next(iter(kept_tokens(settings.state / NAME).values()))
