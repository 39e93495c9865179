"""A local OneLake that runs, and clients of both of its endpoints."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import attrs
import httpx
import pytest

from local_onelake.faults import Fault
from tests.conftest import _nothing_kept, pytest_configure
from tests.support.onelake import LAKEHOUSE, LAKEHOUSE_GUID, TOKEN, WORKSPACE, WORKSPACE_GUID, OneLake
from tests.unit.conftest import _one_authority

__all__ = ["Clients", "_nothing_kept", "_one_authority", "code", "onelake", "pytest_configure"]


@attrs.frozen
class Clients:
    """Clients of one test, with a directory of its own.

    :param plain: sends what it is told, with the token.
    """

    server: OneLake
    plain: httpx.Client
    directory: str

    def dfs(self, method: str, path: str = "", *, by: str = "names", **more: object) -> httpx.Response:
        """Ask the DFS endpoint for a path in the test's directory, as its proxy's client does."""
        more["headers"] = {"Host": "onelake.dfs.fabric.microsoft.com", **(more.get("headers") or {})}  # type: ignore[dict-item]
        return self.plain.request(method, f"/{self.at(path, by)}", **more)  # type: ignore[arg-type]

    def blob(self, method: str, path: str = "", *, by: str = "names", **more: object) -> httpx.Response:
        """Ask the Blob endpoint for a path in the test's directory."""
        return self.plain.request(method, f"/{self.at(path, by)}", **more)  # type: ignore[arg-type]

    def at(self, path: str = "", by: str = "names") -> str:
        """The path of a file of the test, with workspace and item by names or by GUIDs."""
        item = f"{WORKSPACE}/{LAKEHOUSE}.Lakehouse" if by == "names" else f"{WORKSPACE_GUID}/{LAKEHOUSE_GUID}"
        return f"{item}/{self.directory}/{path}".rstrip("/")

    def list(self, prefix: str = "", by: str = "names", **query: str) -> httpx.Response:
        """Ask the Blob endpoint for a list."""
        workspace, _, rest = self.at("", by).partition("/")
        query = {"restype": "container", "comp": "list", "prefix": f"{rest}/{prefix}", **query}
        return self.plain.get(f"/{workspace}", params=query)

    def put(self, path: str, data: bytes = b"", **headers: str) -> httpx.Response:
        """Put a file by the Blob endpoint."""
        headers = {"x-ms-blob-type": "BlockBlob", **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self.blob("PUT", path, content=data, headers=headers)

    def create(self, path: str, kind: str = "file", **headers: str) -> httpx.Response:
        """Create a file or a directory by the DFS endpoint."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.dfs("PUT", path, params={"resource": kind}, headers=named)

    def append(self, path: str, position: int, data: bytes, **query: str) -> httpx.Response:
        """Append as ABFS does: by a PUT that says it is a PATCH."""
        return self.dfs(
            "PUT",
            path,
            params={"action": "append", "position": position, **query},
            content=data,
            headers={"X-Http-Method-Override": "PATCH"},
        )

    def flush(self, path: str, position: int, headers: dict[str, str] | None = None, **query: str) -> httpx.Response:
        """Flush as Azure's SDK does: by a PATCH."""
        query = {"action": "flush", "position": str(position), **query}
        return self.dfs("PATCH", path, params=query, headers=headers, content=b"")

    def rename(self, source: str, target: str, **headers: str) -> httpx.Response:
        """Rename by the DFS endpoint."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.dfs("PUT", target, headers={"x-ms-rename-source": f"/{self.at(source)}", **named})


@pytest.fixture(scope="module")
def _server() -> Iterator[OneLake]:
    with OneLake(lists_by_names=True) as server:
        yield server


@pytest.fixture
def onelake(_server: OneLake) -> Iterator[Clients]:
    """Clients of a server that does what it is told."""
    with httpx.Client(base_url=_server.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as plain:
        yield Clients(_server, plain, f"Files/{uuid.uuid4().hex}")
    faults = _server.served.faults
    for name in faults.on():
        faults.clear(name)
    faults.set("batch_delete_refused", Fault())


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status and error code of an answer."""
    return answer.status_code, answer.headers.get("x-ms-error-code", "")
