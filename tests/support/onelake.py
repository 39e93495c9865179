"""A local OneLake, served in a thread, with one workspace that has one lakehouse.

What Azurite lets through and OneLake does not is refused here: include/local_onelake/README.md has the rules.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest

from airflow_provider_onelake.storage.azure import AzureCredentials
from local_onelake import certificates
from local_onelake.app import Asked
from local_onelake.faults import Fault
from local_onelake.identities import Identities
from local_onelake.instructions import connection_to
from local_onelake.lake import Lake as Served
from local_onelake.refusals import RefusalError
from local_onelake.serve import running
from tests.support.object_stores import Lake

__all__ = ["BY_GUIDS", "BY_NAMES", "TOKEN", "Asked", "OneLake", "RefusalError", "onelake"]

WORKSPACE, LAKEHOUSE = "taxi", "raw"
WORKSPACE_GUID, LAKEHOUSE_GUID = "0f3c8a1e-5b2d-4c6f-9a7b-1d2e3f4a5b6c", "a1b2c3d4-e5f6-4789-8abc-def012345678"
BY_NAMES = f"onelake://{WORKSPACE}/{LAKEHOUSE}.Lakehouse"
BY_GUIDS = f"onelake://{WORKSPACE_GUID}/{LAKEHOUSE_GUID}"
TOKEN = "a-token-of-entra"
IDENTITY = "loader"
OTHER_TOKEN, OTHER_IDENTITY = "another-token-of-entra", "ann"

MODEL, MODEL_GUID = "reports", "c1b2c3d4-e5f6-4789-8abc-def012345678"


_PAGE = 50


class OneLake:
    """Listens on a free port of 127.0.0.1.

    :param friendly_names: whether the tenant allows names in addresses.
    :param lists_by_names: whether a list from an offset is right by names too.
    :param tls: whether TLS is answered too, and the server is the proxy of OneLake's hosts.
    """

    def __init__(self, *, friendly_names: bool = True, lists_by_names: bool = False, tls: bool = False) -> None:
        self.asked: list[Asked] = []
        self.faults: Callable[[Asked], RefusalError | None] = lambda _: None
        self._until_exit = ExitStack()
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
        self.directory = Path(self._until_exit.enter_context(scratch))
        self.served = Served.open(
            self.directory, Identities({IDENTITY: TOKEN, OTHER_IDENTITY: OTHER_TOKEN}), page=_PAGE
        )
        self._until_exit.callback(self.served.close)
        self.served.names.add_workspace(WORKSPACE, WORKSPACE_GUID)
        self.served.names.add_item(WORKSPACE, f"{LAKEHOUSE}.Lakehouse", LAKEHOUSE_GUID)
        self._item = self.directory / WORKSPACE / f"{LAKEHOUSE}.Lakehouse"
        self.friendly_names = friendly_names
        self.lists_by_names = lists_by_names
        self.certificates = certificates.prepare(self.directory / ".onelake" / "tls") if tls else None

    def __enter__(self) -> OneLake:
        self._listening = self._until_exit.enter_context(ExitStack())
        self.url = self._listen()
        return self

    def _listen(self, port: int = 0) -> str:
        context = None if self.certificates is None else self.certificates.context
        return self._listening.enter_context(running(self.served, self._watch, port, context))

    def away(self, seconds: float) -> None:
        """Take no connections for so long; what was asked before is answered. Not to be called by who watches."""
        self._listening.close()
        time.sleep(seconds)
        self._listen(int(self.url.rpartition(":")[2]))

    def __exit__(self, *_: object) -> None:
        # Nobody waits for the end, because a server takes a fifth of a second to see that nothing is asked any more.
        threading.Thread(target=self._until_exit.close, name="onelake-ends").start()

    @property
    def friendly_names(self) -> bool:
        return "names_off" not in self.served.faults.on()

    @friendly_names.setter
    def friendly_names(self, allowed: bool) -> None:
        self._switch("names_off", on=not allowed)

    @property
    def lists_by_names(self) -> bool:
        return "empty_offset_listings" not in self.served.faults.on()

    @lists_by_names.setter
    def lists_by_names(self, right: bool) -> None:
        self._switch("empty_offset_listings", on=not right)

    @property
    def blobs(self) -> dict[str, bytes]:
        """The files, by their paths in the lakehouse."""
        files = [file for file in self._item.rglob("*") if file.is_file()]
        return {str(file.relative_to(self._item)): file.read_bytes() for file in files}

    def add_model(self) -> None:
        """Make a semantic model in the workspace."""
        self.served.names.add_item(WORKSPACE, f"{MODEL}.SemanticModel", MODEL_GUID)

    def connection(self, lakehouse: str = BY_GUIDS, **extra: str) -> str:
        """Airflow's connection to the lakehouse, as an environment variable holds it."""
        said = connection_to(int(self.url.rpartition(":")[2]), TOKEN, lakehouse)
        return json.dumps({**said, "extra": {**said["extra"], **extra}})

    def credentials(self, token: str = TOKEN) -> AzureCredentials:
        return AzureCredentials(sign_in="token", token=token, endpoint=self.url, allow_http=True)

    def lake(self, root: str = BY_GUIDS) -> Lake:
        """The lakehouse, by its GUIDs unless its names are asked for."""
        return Lake("onelake", root, self.credentials())

    def aged(self, path: str, modified: datetime) -> None:
        """Make a file older."""
        os.utime(self._item / path, (modified.timestamp(), modified.timestamp()))

    def _switch(self, fault: str, *, on: bool) -> None:
        if on:
            self.served.faults.set(fault, Fault())
        else:
            self.served.faults.clear(fault)

    def _watch(self, asked: Asked) -> None:
        self.asked.append(asked)
        refusal = self.faults(asked)
        if refusal is not None:
            raise refusal


@pytest.fixture
def onelake() -> Iterator[OneLake]:
    """A strict OneLake."""
    with OneLake() as server:
        yield server
