"""Real object stores on this machine: S3 by versitygw, OneLake's Blob side by Azurite.

Both are atomic where the protocol needs it: of two create-only puts at one path exactly one succeeds. Azurite has no
hierarchical namespace and no DFS endpoint, which the real OneLake has.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from include.compose.containers import ACCOUNT, make_container
from include.local.connect_server import HOST, free_port, listens
from include.local.settings import write_atomically
from local_onelake.instructions import through_proxy, write_hosts
from tests.support import tools
from tests.support.server_process import ServerProcess

REGION = "us-east-1"


class _StoreServer(ServerProcess):
    """One store. Its keys are made once, and kept beside its data for its owner.

    Keys are in the environment: a command line can be read by everybody.
    """

    def __init__(self, state: Path, port: int | None = None, install_into: Path | None = None) -> None:
        self.state = state.absolute()
        self._tools = install_into or state
        self.port = port or free_port()
        self.data = self.state / "data"
        self.log_file = self.state / "server.log"

    @property
    def endpoint(self) -> str:
        """Address for clients."""
        return f"http://{HOST}:{self.port}"

    def prepare(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)

    def healthy(self) -> bool:
        return listens(self.port)

    def _secret(self, name: str, make: Callable[[], str]) -> str:
        """Return a secret of this server, made on the first call."""
        file = self.state / "secrets.json"
        known: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        if name not in known:
            known[name] = make()
            self.state.mkdir(parents=True, exist_ok=True)
            write_atomically(file, json.dumps(known), mode=0o600)
        return known[name]


class S3Server(_StoreServer):
    """versitygw over a directory, in which every bucket is a directory.

    :param state: directory for its data, its keys and its log.
    :param port: on 127.0.0.1. Default: any that is free.
    :param install_into: directory of the installed tools. Default: ``state``.
    """

    name = "versitygw"

    @property
    def access_key(self) -> str:
        """Id of the key that may do everything."""
        return self._secret("access_key", lambda: f"local{secrets.token_hex(6)}")

    @property
    def secret_key(self) -> str:
        """Belongs to :attr:`access_key`."""
        return self._secret("secret_key", lambda: secrets.token_urlsafe(24))

    def command(self) -> list[str]:
        address = f"{HOST}:{self.port}"
        return [
            str(tools.install_versitygw(self._tools)),
            *("--region", REGION, "--port", address, "posix", str(self.data)),
        ]

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}

    def make_bucket(self, name: str) -> None:
        """Make a bucket, if there is none."""
        (self.data / name).mkdir(parents=True, exist_ok=True)


class BlobServer(_StoreServer):
    """Azurite's Blob server, with the account that OneLake's addresses name; a container is a workspace.

    :param state: directory for its data, its key and its log.
    :param port: on 127.0.0.1. Default: any that is free.
    :param install_into: directory of the installed tools. Default: ``state``.
    """

    name = "Azurite"

    @property
    def account_key(self) -> str:
        """Key of the account, in base64."""
        return self._secret("account_key", lambda: base64.b64encode(secrets.token_bytes(32)).decode())

    @property
    def account_endpoint(self) -> str:
        """Address of the account for clients: the emulators' form has the account in the path."""
        return f"{self.endpoint}/{ACCOUNT}"

    def command(self) -> list[str]:
        node, script = tools.install_azurite(self._tools)
        return [
            *(str(node), str(script), "--location", str(self.data), "--blobHost", HOST, "--blobPort", str(self.port)),
            *("--silent", "--skipApiVersionCheck", "--loose", "--disableTelemetry"),
        ]

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.account_key}"}

    def spark_settings(self, hosts: Path, port: int | None = None) -> dict[str, str]:
        """Return settings with which a Spark on this machine reaches OneLake's addresses here, beside its access.

        :param hosts: file that gets the names which the JVM may look up.
        :param port: on 127.0.0.1, of a proxy in front of the server. Default: the server's own.
        """
        write_hosts(hosts)
        azure = "spark.hadoop.fs.azure"
        return {
            **through_proxy(port or self.port, hosts),
            # No hierarchical namespace, and the Blob endpoint only.
            f"{azure}.account.hns.enabled": "false",
            f"{azure}.fns.account.service.type": "BLOB",
            f"{azure}.ingress.service.type": "BLOB",
        }

    def make_container(self, name: str) -> None:
        """Make a container, if there is none: see ``include.compose.containers``."""
        make_container(self.account_endpoint, self.account_key, name)
