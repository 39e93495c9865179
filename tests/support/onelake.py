"""A server that is as strict as OneLake: what Azurite lets through and OneLake does not is refused here.

It speaks the Blob API as obstore and deltalake speak it, in memory, and takes a bearer token only. Of OneLake it has:

- batches of deletes are refused, single deletes are not;
- a list from an offset (``startFrom``, which is inclusive) is right by GUIDs, and without rows by names;
- names for workspace and item, or GUIDs for both; a GUID with a suffix, and names where a tenant has switched them off,
  are refused with ``FriendlyNameSupportDisabled``;
- nobody makes or deletes a workspace, an item, or what lies beside ``Tables`` and ``Files``;
- it is hierarchical: directories are listed as such, and one that is not empty is not deleted;
- ``If-None-Match: *`` on what is there is a 409 ``BlobAlreadyExists``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import attrs
import pytest

from airflow_provider_onelake.storage.azure import AzureCredentials
from tests.support.object_stores import Lake

WORKSPACE, LAKEHOUSE = "taxi", "raw"
WORKSPACE_GUID, LAKEHOUSE_GUID = "0f3c8a1e-5b2d-4c6f-9a7b-1d2e3f4a5b6c", "a1b2c3d4-e5f6-4789-8abc-def012345678"
BY_NAMES = f"onelake://{WORKSPACE}/{LAKEHOUSE}.Lakehouse"
BY_GUIDS = f"onelake://{WORKSPACE_GUID}/{LAKEHOUSE_GUID}"
TOKEN = "a-token-of-entra"

_BATCH = '{"error":{"code":"BadRequest","message":"Either WorkspaceId or ArtifactId are missing in the request"}}'
_PAGE = 50


@attrs.frozen
class Asked:
    """A request as it came, without the endpoint.

    :param method: ``GET``, ``PUT``, ….
    :param path: percent-decoded.
    :param query: by name.
    """

    method: str
    path: str
    query: dict[str, str]

    @property
    def is_batch(self) -> bool:
        return self.query.get("comp") == "batch"


@attrs.define
class Blob:
    data: bytes
    modified: datetime


class RefusalError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str, body: str | None = None) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        xml = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
        self.body = xml if body is None else body


class OneLake:
    """Listens on a free port of 127.0.0.1; one workspace with one lakehouse.

    :param friendly_names: whether the tenant allows names in addresses.
    :param lists_by_names: whether a list from an offset is right by names too.
    """

    def __init__(self, *, friendly_names: bool = True, lists_by_names: bool = False) -> None:
        self.friendly_names = friendly_names
        self.lists_by_names = lists_by_names
        self.token = TOKEN
        self.blobs: dict[str, Blob] = {}
        self.asked: list[Asked] = []
        self.faults: Callable[[Asked], RefusalError | None] = lambda _: None
        self._lock = threading.Lock()

    def __enter__(self) -> OneLake:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def credentials(self, token: str = TOKEN) -> AzureCredentials:
        return AzureCredentials(sign_in="token", token=token, endpoint=self.url, allow_http=True)

    def lake(self, root: str = BY_GUIDS) -> Lake:
        """The lakehouse, by its GUIDs unless its names are asked for."""
        return Lake("onelake", root, self.credentials())

    def aged(self, path: str, modified: datetime) -> None:
        """Make an object older."""
        self.blobs[path].modified = modified

    def answer(self, asked: Asked, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Do what is asked; one request at a time."""
        if headers.get("authorization") != f"Bearer {self.token}":
            raise RefusalError(401, "InvalidAuthenticationInfo", "Server failed to authenticate the request.")
        fault = self.faults(asked)
        if fault is not None:
            raise fault
        if asked.is_batch:
            raise RefusalError(400, "BadRequest", "", _BATCH)
        workspace, _, rest = asked.path.lstrip("/").partition("/")
        with self._lock:
            if asked.method == "GET" and asked.query.get("comp") == "list":
                return self._list(workspace, asked.query)
            path = self._inside(workspace, rest)
            match asked.method:
                case "PUT":
                    return self._put(path, asked.query, headers, body)
                case "DELETE":
                    return self._delete(path)
            return self._get(path, headers)

    def _inside(self, workspace: str, rest: str) -> str:
        """Return a path below the item, however workspace and item are spelled."""
        item, _, path = rest.partition("/")
        by_guid, name, suffixed = _is_guid(workspace), item.partition(".")[0], "." in item
        if by_guid and suffixed:
            raise _friendly()
        if not by_guid and not self.friendly_names:
            raise _friendly()
        if by_guid != _is_guid(name) or suffixed == by_guid:
            raise RefusalError(400, "BadRequest", "The workspace and the item are to be given alike.")
        known = (WORKSPACE_GUID, LAKEHOUSE_GUID) if by_guid else (WORKSPACE, LAKEHOUSE)
        if workspace != known[0]:
            raise RefusalError(404, "WorkspaceNotFound", "The workspace is not there.")
        if name != known[1] or (not by_guid and item.lower() != f"{LAKEHOUSE}.lakehouse"):
            raise RefusalError(404, "ItemNotFound", "The item is not there.")
        return path

    def _put(
        self, path: str, query: dict[str, str], headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if "comp" in query:
            raise RefusalError(400, "UnsupportedQueryParameter", "Blocks are not spoken here.")
        if "/" not in path or path.partition("/")[0] not in ("Tables", "Files"):
            raise RefusalError(403, "AuthorizationPermissionMismatch", "Item folders are not made by this API.")
        if headers.get("x-ms-blob-type") != "BlockBlob":
            raise RefusalError(400, "MissingRequiredHeader", "x-ms-blob-type is missing.")
        if headers.get("if-none-match") == "*" and path in self.blobs:
            raise RefusalError(409, "BlobAlreadyExists", "The specified blob already exists.")
        self.blobs[path] = Blob(body, datetime.now(UTC))
        return 201, {"ETag": "0x8DA58EE365", "Last-Modified": _http_date(self.blobs[path].modified)}, b""

    def _delete(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if "/" not in path:
            raise RefusalError(403, "AuthorizationPermissionMismatch", "Item folders are not deleted by this API.")
        if path in self.blobs:
            del self.blobs[path]
            return 202, {}, b""
        if any(other.startswith(f"{path}/") for other in self.blobs):
            raise RefusalError(409, "DirectoryIsNotEmpty", "The directory has files.")
        raise RefusalError(404, "BlobNotFound", "The specified blob does not exist.")

    def _get(self, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        blob = self.blobs.get(path)
        if blob is None:
            raise RefusalError(404, "BlobNotFound", "The specified blob does not exist.")
        said = {"ETag": "0x8DA58EE365", "Last-Modified": _http_date(blob.modified), "x-ms-blob-type": "BlockBlob"}
        asked_for = headers.get("x-ms-range") or headers.get("range")
        if not asked_for:
            return 200, said, blob.data
        first, _, last = asked_for.removeprefix("bytes=").partition("-")
        size = len(blob.data)
        start, end = (int(first), min(int(last or size), size - 1)) if first else (max(0, size - int(last)), size - 1)
        if start >= size:
            raise RefusalError(416, "InvalidRange", "The range is not satisfiable.")
        return 206, {**said, "Content-Range": f"bytes {start}-{end}/{size}"}, blob.data[start : end + 1]

    def _list(self, workspace: str, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        prefix = query.get("prefix", "")
        inside = self._inside(workspace, prefix)
        item = prefix[: len(prefix) - len(inside)]
        found = {path: blob for path, blob in self.blobs.items() if path.startswith(inside)}
        directories = {path[:at] for path in found for at, char in enumerate(path) if char == "/" and at >= len(inside)}
        names = sorted({*found, *directories})
        start = query.get("startFrom")
        if start is not None:
            right = _is_guid(workspace) or self.lists_by_names
            names = [name for name in names if f"{item}{name}" >= start] if right else []
        if "marker" in query:
            names = [name for name in names if name >= query["marker"]]
        page, more = names[:_PAGE], names[_PAGE:]
        rows = "".join(_row(f"{item}{name}", found.get(name)) for name in page)
        after = more[0] if more else ""
        body = f"<EnumerationResults><Blobs>{rows}</Blobs><NextMarker>{escape(after)}</NextMarker></EnumerationResults>"
        return 200, {"Content-Type": "application/xml"}, f'<?xml version="1.0" encoding="utf-8"?>{body}'.encode()


def _row(name: str, blob: Blob | None) -> str:
    modified = _http_date(blob.modified if blob else datetime.now(UTC))
    kind, size = ("directory", 0) if blob is None else ("file", len(blob.data))
    return (
        f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{modified}</Last-Modified><Etag>0x8</Etag>"
        f"<ResourceType>{kind}</ResourceType><Content-Length>{size}</Content-Length>"
        "<Content-Type>application/octet-stream</Content-Type>"
        "<BlobType>BlockBlob</BlobType></Properties></Blob>"
    )


def _handler(onelake: OneLake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body leave together: a client that waits for the second packet waits for 40 ms.
        wbufsize = 1 << 16
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            return

        def _serve(self) -> None:
            split = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
            asked = Asked(self.command, unquote(split.path), query)
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length") or 0))
            onelake.asked.append(asked)
            try:
                status, said, data = onelake.answer(asked, headers, body)
            except RefusalError as refusal:
                status, said, data = refusal.status, {"x-ms-error-code": refusal.code}, refusal.body.encode()
            self.send_response(status)
            for name, value in said.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    return Handler


def _friendly() -> RefusalError:
    return RefusalError(400, "FriendlyNameSupportDisabled", "The request used friendly names, and support is disabled.")


def _is_guid(text: str) -> bool:
    return re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text) is not None


def _http_date(moment: datetime) -> str:
    return format_datetime(moment.astimezone(UTC), usegmt=True)


@pytest.fixture
def onelake() -> Iterator[OneLake]:
    """A strict OneLake."""
    with OneLake() as server:
        yield server
