"""Real object stores on this machine: S3 by versitygw, OneLake's Blob side by Azurite.

Both are atomic where the protocol needs it: of two create-only puts at one path exactly one succeeds. Azurite has no
hierarchical namespace and no DFS endpoint, which the real OneLake has.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Self

from . import tools
from .connect_server import HOST, free_port, listens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

REGION = "us-east-1"
ACCOUNT = "onelake"
"""Azurite's account: the one that OneLake's addresses name."""

_START_SECONDS = 60


class StoreServerError(RuntimeError):
    """A store did not start; the message says why and where its log is."""


class _Server:
    """One store as a process of its own session. Its keys are made once, and kept beside its data for its owner."""

    name: str

    def __init__(self, state: Path, port: int | None = None, install_into: Path | None = None) -> None:
        self.state = state.absolute()
        self._tools = install_into or state
        self.port = port or free_port()
        self.data = self.state / "data"
        self.log_file = self.state / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Return the command that becomes the server."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Return the environment for :meth:`command`. Keys are in it: a command line can be read by everybody."""
        raise NotImplementedError

    @property
    def endpoint(self) -> str:
        """Address for clients."""
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id, or None when it was not started here or has ended."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it, and wait until it accepts connections.

        :raises StoreServerError: it ended, or was not ready in time.
        :raises SetUpError: it is not installed and cannot be.
        """
        command = self.command()
        self.data.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=dict(self.environment()),
                cwd=self.state,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not listens(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self.log_file.read_text(errors="replace")[-2000:]
                self.stop()
                raise StoreServerError(f"{self.name} on {self.port} did not start. {self.log_file} says:\n{said}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, by force after ten seconds. No-op when it is down; its data stay."""
        if self._process is None:
            return
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, how)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(10)
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _secret(self, name: str, make: Callable[[], str]) -> str:
        """Return a secret of this server, made on the first call."""
        file = self.state / "secrets.json"
        known: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        if name not in known:
            known[name] = make()
            self.state.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as out:
                json.dump(known, out)
        return known[name]


class S3Server(_Server):
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
        """See :meth:`_Server.command`."""
        address = f"{HOST}:{self.port}"
        return [
            str(tools.install_versitygw(self._tools)),
            *("--region", REGION, "--port", address, "posix", str(self.data)),
        ]

    def environment(self) -> Mapping[str, str]:
        """See :meth:`_Server.environment`."""
        return {**os.environ, "ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}

    def make_bucket(self, name: str) -> None:
        """Make a bucket, if there is none."""
        (self.data / name).mkdir(parents=True, exist_ok=True)


class BlobServer(_Server):
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
        """See :meth:`_Server.command`."""
        node, script = tools.install_azurite(self._tools)
        return [
            *(str(node), str(script), "--location", str(self.data), "--blobHost", HOST, "--blobPort", str(self.port)),
            *("--silent", "--skipApiVersionCheck", "--loose", "--disableTelemetry"),
        ]

    def environment(self) -> Mapping[str, str]:
        """See :meth:`_Server.environment`."""
        return {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.account_key}"}

    def spark_settings(self, hosts: Path, port: int | None = None) -> dict[str, str]:
        """Return settings with which a Spark on this machine reaches OneLake's addresses here, beside its access.

        Spark knows no other endpoint than the real one, so its JVM takes this server for its proxy. They are for the
        whole application, and all of its addresses at OneLake lead here.

        :param hosts: file that gets the names which the JVM may look up.
        :param port: on 127.0.0.1, of a proxy in front of the server. Default: the server's own.
        """
        names = [f"onelake.{side}.fabric.microsoft.com" for side in ("dfs", "blob")]
        hosts.write_text(f"{HOST} localhost {socket.gethostname()} {' '.join(names)}\n")
        options = {
            "jdk.net.hosts.file": hosts,
            "http.proxyHost": HOST,
            "http.proxyPort": port or self.port,
            # Or the S3 client would ask here as well.
            "http.nonProxyHosts": "localhost|127.*",
        }
        java = " ".join(f"-D{name}={value}" for name, value in options.items())
        azure = "spark.hadoop.fs.azure"
        return {
            "spark.driver.extraJavaOptions": java,
            "spark.executor.extraJavaOptions": java,
            # There is no TLS here: the class of abfs:// for abfss:// too.
            "spark.hadoop.fs.abfss.impl": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
            # Hadoop's other interface, by which Delta writes its checksums, insists on TLS.
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
            f"{azure}.always.use.https": "false",
            # No hierarchical namespace, and the Blob endpoint only.
            f"{azure}.account.hns.enabled": "false",
            f"{azure}.fns.account.service.type": "BLOB",
            f"{azure}.ingress.service.type": "BLOB",
            f"{azure}.networking.library": "JDK_HTTP_URL_CONNECTION",
        }

    def make_container(self, name: str) -> None:
        """Make a container, if there is none: see :func:`make_container`."""
        make_container(self.account_endpoint, self.account_key, name)


def make_container(account_endpoint: str, account_key: str, name: str) -> None:
    """Make a container of Azurite's account, if there is none.

    :param account_endpoint: address of the account.
    :param account_key: in base64.
    :param name: of a workspace: small letters, digits, hyphens.
    :raises StoreServerError: the server refuses.
    """
    date = formatdate(usegmt=True)
    signed = "\n".join(
        ["PUT", *[""] * 11, f"x-ms-date:{date}\nx-ms-version:2023-11-03", f"/{ACCOUNT}/{ACCOUNT}/{name}"]
    )
    digest = hmac.digest(base64.b64decode(account_key), f"{signed}\nrestype:container".encode(), hashlib.sha256)
    request = urllib.request.Request(  # noqa: S310 - http, to an emulator
        f"{account_endpoint}/{name}?restype=container",
        method="PUT",
        headers={
            "x-ms-date": date,
            "x-ms-version": "2023-11-03",
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        },
    )
    try:
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise StoreServerError(f"Azurite made no container {name}: {error.code} {error.read()!r}") from error
