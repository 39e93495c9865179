"""Finds out how a OneLake answers where Microsoft's documentation says nothing, or others have seen something else.

Each probe sends one request, or a few, at a scratch directory, and compares the answer with the one that is documented
for ADLS Gen2 or was seen by others. What differs breaks nothing here by itself, as commits are tried by
:mod:`airflow_provider_onelake.storage.preflight`; but the local OneLake and its docs are then wrong.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree

import attrs
import httpx

from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.fabric.access import may_write
from airflow_provider_onelake.storage.azure import AzureCredentials, azure_provider
from airflow_provider_onelake.storage.onelake import OneLake

if TYPE_CHECKING:
    from airflow_provider_onelake.fabric.rest import Fabric, Folder
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials

_VERSION = "2023-11-03"
_SILENCE = 30.0
_AT_ONCE = 8
_DFS_OF_A_LOCAL_ONE = "onelake.dfs.fabric.microsoft.com"
_ONLY_NEW = {"If-None-Match": "*"}
_BLOCK_BLOB = {"x-ms-blob-type": "BlockBlob"}


@attrs.frozen
class Finding:
    """What a probe has found.

    :param asked: what was tried, in words.
    :param expected: the answer that is documented for ADLS Gen2, or that others have seen.
    :param seen: the answer.
    """

    asked: str
    expected: str
    seen: str

    @property
    def differs(self) -> bool:
        """Say whether the answer is another one."""
        return self.seen != self.expected


def probe(
    address: TableAddress, credentials: Credentials | None, below: str, fabric: Fabric | None = None
) -> Iterator[Finding]:
    """Try what is not known of OneLake, and clean up.

    :param address: of a table or a lakehouse in OneLake.
    :param credentials: with which to sign in. Default: what the environment of this process offers.
    :param below: a scratch directory below the address, which no other caller may use. It is deleted afterwards.
    :param fabric: makes a shortcut for the probes of lists, which lies in a scratch directory of the same name below
        ``Files`` of the item. Default: lists are not probed.
    :returns: the findings, one after another; none where there is no token to be asked with.
    :raises OneLakeError: there is no token.
    """
    azure = AzureCredentials() if credentials is None else credentials
    if not isinstance(address.kind, OneLake) or not isinstance(azure, AzureCredentials):
        return
    if azure.sign_in == "account_key":
        return
    with httpx.Client(timeout=_SILENCE) as client:
        probes = _Probes.at(client, address, azure, below)
        try:
            for asked, expected, ask in probes.all():
                yield Finding(asked, expected, _said(ask))
            if fabric is not None:
                yield from probes.lists_above_a_shortcut(fabric, address, below)
        finally:
            _said(lambda: probes.answer("dfs", "DELETE", "", {"recursive": "true"}))


def _said(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except httpx.HTTPError as error:
        return f"no answer ({type(error).__name__})"
    except OneLakeError as error:
        return f"not tried: {error}"


@attrs.frozen
class _Probes:
    """Requests at a scratch directory.

    :param client: that sends them.
    :param blob: the address of the Blob endpoint.
    :param dfs: the address of the DFS endpoint.
    :param workspace: percent-encoded.
    :param directory: from the item on, percent-encoded.
    :param token: that signs in.
    """

    client: httpx.Client
    blob: str
    dfs: str
    workspace: str
    directory: str
    token: str

    @classmethod
    def at(cls, client: httpx.Client, address: TableAddress, azure: AzureCredentials, below: str) -> _Probes:
        kind = address.kind
        assert isinstance(kind, OneLake)
        if azure.endpoint:
            blob = azure.endpoint.rstrip("/")
            base = urlsplit(blob)
            dfs = f"{base.scheme}://{base.netloc}/{_DFS_OF_A_LOCAL_ONE}"
        else:
            blob = kind.blob_endpoint(address)
            dfs = f"https://{kind.host(address, 'dfs')}"
        directory = quote(f"{address.path}/{below}")
        token = azure_provider(azure)().get("token")
        if not token:
            raise OneLakeError(f"There is no token, so {address} cannot be probed.")
        return cls(client, blob, dfs, quote(address.authority), directory, token)

    def all(self) -> Iterator[tuple[str, str, Callable[[], str]]]:
        """Yield what is tried, the answer that is expected, and what tries it."""
        yield "put a file (Blob)", "201", lambda: self.put("a")
        yield "its ETag (Blob)", "with quotes", lambda: self.etag_form("blob", "a")
        yield "its ETag (DFS)", "without quotes", lambda: self.etag_form("dfs", "a")
        yield "its owner (DFS)", "$superuser", lambda: self.header("dfs", "a", "x-ms-owner")
        yield "the caller's rights there (DFS)", "to write", lambda: self.rights("a")
        yield "create-only where a file is (Blob)", "409 BlobAlreadyExists", lambda: self.put("a", **_ONLY_NEW)
        yield "create-only where a file is (DFS)", "409 PathAlreadyExists", lambda: self.create("a")
        yield "put on a stale ETag (Blob)", "412 ConditionNotMet", lambda: self.put("a", **{"If-Match": '"0x1"'})
        yield "read what is not there (Blob)", "404 BlobNotFound", lambda: self.answer("blob", "GET", "none")
        yield "read what is not there (DFS)", "404 PathNotFound", lambda: self.answer("dfs", "GET", "none")
        yield "create-only of a new file (DFS)", "201", lambda: self.create("b")
        yield "create with a body (DFS)", "400 ContentLengthMustBeZero", lambda: self.create("body", b"x")
        yield "create-only rename where a file is", "409 PathAlreadyExists", lambda: self.rename("b", "a")
        yield "rename of what is not there", "404 SourcePathNotFound", lambda: self.rename("none", "c")
        parent = "404 RenameDestinationParentPathNotFound"
        yield "rename into a directory that is not there", parent, lambda: self.rename("b", "none/c")
        yield "a rename keeps the ETag", "yes", self.rename_keeps_the_etag
        one = f"1 of {_AT_ONCE}"
        yield "create-only puts at once (Blob)", one, lambda: self.at_once(lambda turn: self.put("once", **_ONLY_NEW))
        yield "create-only renames at once (DFS)", one, self.renames_at_once
        yield "a list from an offset, as the address is spelled", "lists it", self.list_from_an_offset
        yield "a batch of deletes (Blob)", "400 BadRequest", self.batch
        yield "one delete (Blob)", "202", lambda: self.answer("blob", "DELETE", "a")
        yield "one delete (DFS)", "200", lambda: self.answer("dfs", "DELETE", "c")
        yield "the directory is a shortcut's, or has one above it", "no", self.behind_a_shortcut

    def lists_above_a_shortcut(self, fabric: Fabric, address: TableAddress, below: str) -> Iterator[Finding]:
        """Make a shortcut to the scratch directory, and list what is above it; then delete the shortcut.

        Where a list enters shortcuts, whoever lists a directory and deletes what it finds deletes in their targets.
        """
        above = f"{self.directory.partition('/')[0]}/Files/{quote(below)}"
        link: Folder | None = None

        def make() -> str:
            nonlocal link
            folder = fabric.folder(address)
            link = attrs.evolve(folder, path=f"Files/{below}/link")
            self._ask("blob", "PUT", f"{self.workspace}/{above}/beside", None, b"x", _BLOCK_BLOB)
            fabric.create_shortcut(link, attrs.evolve(folder, path=f"{folder.path}/{below}".strip("/")))
            return "made"

        try:
            made = Finding("a shortcut to the scratch directory (Fabric's REST)", "made", _said(make))
            yield made
            if not made.differs:
                for api, query in (
                    ("DFS", {"resource": "filesystem", "recursive": "true", "directory": unquote(above)}),
                    ("Blob", {"restype": "container", "comp": "list", "prefix": f"{unquote(above)}/"}),
                ):
                    seen = _said(partial(self.list_above, api.lower(), query, f"Files/{below}"))
                    yield Finding(f"a recursive list from above a shortcut ({api})", "does not enter it", seen)
        finally:
            if link is not None:
                _said(lambda: str(fabric.delete_shortcut(link)))
            _said(lambda: self._ask("dfs", "DELETE", f"{self.workspace}/{above}", {"recursive": "true"}, b"", {}).text)

    def list_above(self, api: str, query: dict[str, str], above: str) -> str:
        """List a directory of the item that has a file and a shortcut, and say whether the shortcut was entered."""
        answer = self._ask(api, "GET", self.workspace, query, b"", {})
        if not answer.is_success:
            return f"{answer.status_code} {answer.headers.get('x-ms-error-code', '')}".strip()
        if f"{above}/beside" not in answer.text:
            return "has no rows"
        return "enters it" if f"{above}/link/once" in answer.text else "does not enter it"

    def answer(
        self, api: str, method: str, path: str, query: dict[str, str] | None = None, data: bytes = b"", **headers: str
    ) -> str:
        """Send a request, and return status and code of the answer."""
        said = self.send(api, method, path, query, data, **headers)
        return " ".join(filter(None, (str(said.status_code), said.headers.get("x-ms-error-code") or _code_in(said))))

    def send(
        self, api: str, method: str, path: str, query: dict[str, str] | None = None, data: bytes = b"", **headers: str
    ) -> httpx.Response:
        below = "/".join(filter(None, (self.directory, quote(path))))
        return self._ask(api, method, f"{self.workspace}/{below}", query, data, headers)

    def _ask(
        self, api: str, method: str, path: str, query: dict[str, str] | None, data: bytes, headers: dict[str, str]
    ) -> httpx.Response:
        said = {"Authorization": f"Bearer {self.token}", "x-ms-version": _VERSION, **headers}
        if method in ("PUT", "PATCH", "POST"):
            said["Content-Length"] = str(len(data))
        url = f"{self.blob if api == 'blob' else self.dfs}/{path}"
        return self.client.request(method, url, params=query, content=data or None, headers=said)

    def put(self, path: str, **condition: str) -> str:
        return self.answer("blob", "PUT", path, None, b"x", **_BLOCK_BLOB, **condition)

    def create(self, path: str, data: bytes = b"") -> str:
        return self.answer("dfs", "PUT", path, {"resource": "file"}, data, **_ONLY_NEW)

    def rename(self, source: str, target: str) -> str:
        headers = {"x-ms-rename-source": f"/{self.workspace}/{self.directory}/{quote(source)}", **_ONLY_NEW}
        return self.answer("dfs", "PUT", target, None, b"", **headers)

    def header(self, api: str, path: str, name: str) -> str:
        return str(self.send(api, "HEAD", path).headers.get(name, "none"))

    def rights(self, path: str) -> str:
        said = self.send("dfs", "HEAD", path, {"action": "getAccessControl"}).headers.get("x-ms-acl")
        return str(said) if may_write(said) is not True else "to write"

    def etag_form(self, api: str, path: str) -> str:
        found = self.header(api, path, "etag")
        return f"with{'' if found.startswith(chr(34)) else 'out'} quotes" if found != "none" else "none"

    def rename_keeps_the_etag(self) -> str:
        before = self.header("dfs", "b", "etag")
        said = self.rename("b", "c")
        if not said.startswith("201"):
            return said
        return "yes" if self.header("dfs", "c", "etag") == before else "no"

    def at_once(self, ask: Callable[[int], str]) -> str:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            said = list(pool.map(ask, range(_AT_ONCE)))
        return f"{sum(each.startswith('201') for each in said)} of {_AT_ONCE}"

    def renames_at_once(self) -> str:
        for turn in range(_AT_ONCE):
            self.create(f"from-{turn}")
        return self.at_once(lambda turn: self.rename(f"from-{turn}", "renamed"))

    def list_from_an_offset(self) -> str:
        below = f"{self.directory}/once"
        query = {"restype": "container", "comp": "list", "prefix": f"{self.directory}/", "startFrom": below}
        answer = self._ask("blob", "GET", self.workspace, query, b"", {})
        if not answer.is_success:
            return f"{answer.status_code} {answer.headers.get('x-ms-error-code', '')}".strip()
        return "lists it" if f"{below}<" in answer.text else "has no rows"

    def batch(self) -> str:
        boundary = f"batch_{uuid.uuid4()}"
        path = f"/{self.workspace}/{self.directory}/once"
        part = f"DELETE {path} HTTP/1.1\r\nx-ms-version: {_VERSION}\r\nContent-Length: 0\r\n\r\n"
        head = "Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\nContent-ID: 0\r\n\r\n"
        body = f"--{boundary}\r\n{head}{part}\r\n--{boundary}--\r\n".encode()
        query = {"restype": "container", "comp": "batch"}
        kind = {"Content-Type": f"multipart/mixed; boundary={boundary}"}
        answer = self._ask("blob", "POST", self.workspace, query, body, kind)
        return " ".join(filter(None, (str(answer.status_code), _code_in(answer) if answer.is_error else "")))

    def behind_a_shortcut(self) -> str:
        """Look at each directory above: a conditional create through a shortcut was then tried by all of the above."""
        names = self.directory.split("/")
        for length in range(2, len(names) + 1):
            path = f"{self.workspace}/{'/'.join(names[:length])}"
            said = self._ask("dfs", "HEAD", path, {"action": "getStatus"}, b"", {})
            if said.headers.get("x-ms-onelake-shortcut-path", "").lower() == "true":
                return f"yes: {'/'.join(names[1:length])}"
        return "no"


def _code_in(answer: httpx.Response) -> str:
    """Return the code of an error that only the body has."""
    if answer.is_success or not answer.content:
        return ""
    try:
        said: Any = answer.json()
        return str(said["error"]["code"])
    except (ValueError, KeyError, TypeError):
        pass
    try:
        # A few lines of the service that was asked, in which no entity is resolved.
        return ElementTree.fromstring(answer.content).findtext("Code") or ""  # noqa: S314
    except ElementTree.ParseError:
        return ""
