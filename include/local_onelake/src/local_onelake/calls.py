"""A request as both storage endpoints read it, and the answers that they have in common."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import BinaryIO, TypeVar
from urllib.parse import parse_qsl

import attrs
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from local_onelake.faults import Fault
from local_onelake.lake import Lake
from local_onelake.names import Workspace
from local_onelake.parts import Part
from local_onelake.refusals import RefusalError, wrong
from local_onelake.rules import IGNORED, Place, changeable, check_readable, delete_at, place_of
from local_onelake.shortcuts import MARK
from local_onelake.tree import ChangedError, Condition, Entry, ExistsError

OCTETS = "application/octet-stream"
_CHUNK = 1 << 20
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
# Headers by which a client wants something kept or done that this server neither keeps nor does.
_NOT_KEPT = ("x-ms-properties", "x-ms-tags", "x-ms-copy-source", "x-ms-lease-id", "x-ms-proposed-lease-id")
# Metadata by which fsspec's clients say that a file is no directory, which the path table knows without it.
_IS_A_FILE = (("x-ms-meta-is_directory", "false"), ("x-ms-meta-hdi_isfolder", "false"))
_Row = TypeVar("_Row")


@attrs.frozen
class Call:
    """A request to a storage endpoint.

    :param lake: that is asked.
    :param request: as it came.
    :param method: of HTTP; the one that replaces it, if a header names one.
    :param path: percent-decoded, below the endpoint, without a slash at its beginning.
    :param query: by name.
    :param identity: who asks.
    """

    lake: Lake
    request: Request
    method: str
    path: str
    query: Mapping[str, str]
    identity: str

    @property
    def place(self) -> Place:
        """What the path names: see :func:`place_of`."""
        return self.place_at(self.path)

    def place_at(self, path: str) -> Place:
        """Return what another path names: see :func:`place_of`."""
        return place_of(self.lake, path, self.identity)

    def changeable(self, place: Place | None = None) -> str:
        """Return the key of a place that the caller may change: see :func:`changeable`.

        :param place: Default: what the path names.
        """
        return changeable(self.lake, self.place if place is None else place, self.identity)

    def delete(self, *, recursive: bool = False) -> None:
        """Delete what the path names: see :func:`delete_at`."""
        delete_at(self.lake, self.path, self.identity, self.condition(), recursive=recursive)

    def header(self, name: str) -> str | None:
        """Return a header; an empty one is none."""
        return self.request.headers.get(name) or None

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false."""
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str) -> int:
        """Return a parameter that must be a number.

        :raises RefusalError: it is missing, or no number.
        """
        value = self.query.get(name, "")
        if not value.isdecimal():
            raise wrong(f"The query parameter {name} must be a number, not {value!r}.", "InvalidQueryParameterValue")
        return int(value)

    def page_size(self) -> int:
        """Return how many rows a page of the answer has at most.

        :raises RefusalError: ``maxresults`` is no number.
        """
        most = self.lake.page
        return min(self.number("maxresults"), most) if "maxresults" in self.query else most

    def strikes(self, fault: str) -> Fault | None:
        """Return a fault that strikes this request; ``None`` if it does not."""
        return self.lake.faults.strikes(fault, f"{self.method} /{self.path}")

    def condition(self, prefix: str = "") -> Condition:
        """Read the condition of the request.

        :param prefix: of its headers, such as ``x-ms-source-``.
        :raises RefusalError: a date cannot be read.
        """
        return Condition(
            _tag(self.header(f"{prefix}if-match")),
            _tag(self.header(f"{prefix}if-none-match")),
            _instant(self.header(f"{prefix}if-modified-since")),
            _instant(self.header(f"{prefix}if-unmodified-since")),
        )

    def check_headers(self) -> None:
        """Refuse what would have to be kept beside the bytes.

        :raises RefusalError: a header asks for it.
        """
        for name, value in self.request.headers.items():
            if (name, value.lower()) in _IS_A_FILE:
                continue
            if name in _NOT_KEPT or name.startswith("x-ms-meta-"):
                raise wrong(f"{name} is not served here, and ignoring it would be wrong.", "UnsupportedHeader")

    def check_no_body(self) -> None:
        """Refuse a body, as OneLake does for a create and a flush.

        :raises RefusalError: ``Content-Length`` is not 0.
        """
        if self.header("content-length") != "0":
            raise wrong("The Content-Length of this request must be 0.", "ContentLengthMustBeZero")

    async def receive(self) -> Part:
        """Write the body into a file of its own.

        :raises RefusalError: it is not what its checksum says.
        """
        md5 = self.header("content-md5")
        checksum = hashlib.md5(usedforsecurity=False) if md5 else None
        file = self.lake.parts.new_file()
        size, complete = 0, False
        try:
            with file.open("wb") as out:
                async for chunk in self.request.stream():
                    size += out.write(chunk)
                    if checksum is not None:
                        checksum.update(chunk)
            if checksum is not None and base64.b64encode(checksum.digest()).decode() != md5:
                raise wrong("The body is not what Content-MD5 says.", "Md5Mismatch")
            complete = True
        finally:
            if not complete:
                file.unlink()
        return Part(file, size)

    def rejected(self) -> dict[str, str]:
        """Return the header that names those that were ignored."""
        names = [name for name in IGNORED if name in self.request.headers]
        return {"x-ms-rejected-headers": ",".join(names)} if names else {}


def query_of(request: Request) -> dict[str, str]:
    """Return the parameters of a request; names are as clients spell them, in any case."""
    pairs = parse_qsl(request.url.query, keep_blank_values=True)
    return {name.lower(): value for name, value in pairs}


def http_date(moment: datetime) -> str:
    """Return an instant as HTTP spells it."""
    return format_datetime(moment, usegmt=True)


async def content(call: Call, headers: Callable[[Entry], Mapping[str, str]]) -> Response:
    """Answer with the bytes of a file, or with the range that was asked for.

    :param call: the request.
    :param headers: returns what the answer says of the file.
    :raises ChangedError: what is there is not what the client wants to read.
    :raises RefusalError: the client has it already, or the range is not in the file.
    """
    place = call.place
    check_readable(call.lake, place, call.identity)
    file, entry = call.lake.tree.open(place.key)
    try:
        check_reading(call.condition(), entry)
        span = _span(call.header("x-ms-range") or call.header("range"), entry.size)
    except BaseException:
        file.close()
        raise
    start, end = span or (0, entry.size)
    said = {**headers(entry), "Content-Length": str(end - start), "Content-Type": OCTETS}
    if span is not None:
        said["Content-Range"] = f"bytes {start}-{end - 1}/{entry.size}"
    status = 200 if span is None else 206
    file.seek(start)
    if end - start <= _CHUNK:
        with file:
            return Response(file.read(end - start), status, said)
    return StreamingResponse(_chunks(file, end - start), status, said)


def workspaces_of(call: Call) -> list[Workspace]:
    """Return the workspaces in which the caller has a role."""
    return [each for each in call.lake.names.all() if call.lake.access.has(call.identity, each, "Viewer")]


def shortcut_mark(call: Call, place: Place) -> dict[str, str]:
    """Return the header by which OneLake says that a folder is a shortcut.

    :param call: the request.
    :param place: that it names.
    """
    is_link = place.item is not None and call.lake.shortcuts.at(place.item, place.inside) is not None
    return MARK if is_link else {}


def check_reading(condition: Condition, entry: Entry) -> None:
    """Compare the condition of a request that reads.

    :raises ChangedError: what is there is not what the client wants to read.
    :raises RefusalError: the client has it already.
    """
    attrs.evolve(condition, none_match=None, modified_since=None).check(entry)
    try:
        condition.check(entry)
    except (ChangedError, ExistsError) as error:
        raise RefusalError(304, "ConditionNotMet", "It was not changed.") from error


def state(entry: Entry, quote: str = "") -> dict[str, str]:
    """Return the headers that say in which state a path is.

    :param entry: of the path.
    :param quote: what stands around an ETag. Default: nothing, as OneLake's DFS has it.
    """
    return {"ETag": f"{quote}{entry.etag}{quote}", "Last-Modified": http_date(entry.last_modified)}


def workspace_state(call: Call) -> dict[str, str]:
    """Return the headers that say in which state the workspace of a request is."""
    workspace = call.place.workspace
    entry = call.lake.tree.stat(workspace.name)
    assert entry is not None
    return {**state(entry, '"'), "x-ms-guid": workspace.guid}


def page_of(rows: Sequence[tuple[str, _Row]], after: str | None, size: int) -> tuple[Sequence[tuple[str, _Row]], str]:
    """Return a page of rows that are sorted by name, and the mark after which the next page begins, if there is one.

    :param rows: all of them.
    :param after: the mark that the client sent, if any.
    :param size: of a page.
    :raises RefusalError: the mark is none.
    """
    if after:
        try:
            last = base64.urlsafe_b64decode(after).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise wrong("This is no mark of an earlier page.", "InvalidQueryParameterValue") from error
        rows = [row for row in rows if row[0] > last]
    page = rows[:size]
    more = len(rows) > len(page)
    return page, base64.urlsafe_b64encode(page[-1][0].encode()).decode() if more else ""


async def _chunks(file: BinaryIO, left: int) -> AsyncIterator[bytes]:
    with file:
        while left and (chunk := await run_in_threadpool(file.read, min(_CHUNK, left))):
            left -= len(chunk)
            yield chunk


def _span(asked: str | None, size: int) -> tuple[int, int] | None:
    if asked is None:
        return None
    found = _RANGE.fullmatch(asked.strip())
    if found is None or not (found[1] or found[2]):
        raise wrong(f"{asked!r} is no range.", "InvalidHeaderValue")
    if found[1]:
        start, end = int(found[1]), min(int(found[2] or size), size - 1) + 1
    else:
        start, end = max(0, size - int(found[2])), size
    if start >= end:
        outside = {"Content-Range": f"bytes */{size}"}
        raise RefusalError(416, "InvalidRange", "The range is not in the file.", headers=outside)
    return start, end


def _tag(value: str | None) -> str | None:
    return None if value is None else value.strip().removeprefix("W/").strip('"')


def _instant(value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        return parsedate_to_datetime(value).astimezone(UTC)
    except ValueError as error:
        raise wrong(f"{value!r} is no date.", "InvalidHeaderValue") from error
