"""The Blob endpoint: whole files, blocks, lists by prefix. obstore and deltalake speak it."""

from __future__ import annotations

import re
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from local_onelake import batch, tree
from local_onelake.calls import (
    OCTETS,
    Call,
    check_reading,
    content,
    http_date,
    page_of,
    shortcut_mark,
    state,
    workspace_state,
    workspaces_of,
)
from local_onelake.parts import GapError
from local_onelake.refusals import RefusalError, forbidden, wrong
from local_onelake.rules import delete_at, rows_below
from local_onelake.tree import Entry

CODES: dict[type[tree.TreeError], tuple[int, str]] = {
    tree.MissingError: (404, "BlobNotFound"),
    tree.ExistsError: (409, "BlobAlreadyExists"),
    tree.ChangedError: (412, "ConditionNotMet"),
    tree.NotEmptyError: (409, "DirectoryIsNotEmpty"),
    tree.MismatchError: (409, "ResourceTypeMismatch"),
}
"""How this endpoint says why nothing was done."""

_BATCH_REFUSED = (
    '{"error":{"code":"BadRequest","message":"Either WorkspaceId or ArtifactId are missing in the request"}}'
)
_QUOTE = '"'
_DECLARATION = '<?xml version="1.0" encoding="utf-8"?>'
_ENTITY = re.compile(r"<!(DOCTYPE|ENTITY)", re.IGNORECASE)
_IS_FOLDER = "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>"
_UNLISTED = {"deleted", "deletedwithversions", "directories", "files", "snapshots", "uncommittedblobs", "versions"}
_LONGEST_LIST = 8 << 20
"""Bytes of a block list: 50,000 blocks."""


async def answer(call: Call) -> Response:
    """Do what is asked.

    :raises RefusalError: it is wrong, or OneLake does not do it.
    :raises TreeError: it cannot be done as things are.
    """
    if {"resource", "action", "recursive"} & set(call.query) or call.method == "PATCH":
        raise wrong("This is a request for the DFS endpoint, and this is Blob.", "UnsupportedQueryParameter")
    call.check_headers()
    match call.method, call.query.get("restype"), call.query.get("comp"):
        case "GET", None, "list":
            return _workspaces(call)
        case "GET", "container", "list":
            return await run_in_threadpool(_list, call)
        case "GET" | "HEAD", "container", None:
            return Response(None, 200, workspace_state(call))
        case "POST", _, "batch":
            return await _batch(call)
        case "PUT", None, None:
            return await _put(call)
        case "PUT", None, "block":
            return await _put_block(call)
        case "PUT", None, "blocklist":
            return await _put_block_list(call)
        case "GET", None, None:
            return await content(call, lambda entry: {**state(entry, _QUOTE), **_kinds(entry)})
        case "HEAD", None, None:
            return _properties(call)
        case "DELETE", None, None:
            await run_in_threadpool(call.delete)
            return Response(None, 202)
        case "PUT" | "DELETE", "container", None:
            raise forbidden("Workspaces are Fabric's to make and delete.")
    asked = "&".join(f"{name}={value}" for name, value in call.query.items())
    raise wrong(f"{call.method} ?{asked} is not served here.", "UnsupportedQueryParameter")


def _workspaces(call: Call) -> Response:
    rows = "".join(
        f"<Container><Name>{escape(workspace.name)}</Name><Properties/></Container>"
        for workspace in workspaces_of(call)
    )
    return _xml(f"<EnumerationResults><Containers>{rows}</Containers><NextMarker/></EnumerationResults>")


def _list(call: Call) -> Response:
    unserved = _UNLISTED & {call.query.get("showonly", ""), *call.query.get("include", "").split(",")}
    if unserved:
        raise wrong(f"What is {min(unserved)} is not listed here.", "UnsupportedQueryParameter")
    prefix, delimiter = call.query.get("prefix", ""), call.query.get("delimiter", "")
    if delimiter not in ("", "/"):
        raise wrong("The delimiter can only be /.", "InvalidQueryParameterValue")
    directory, _, beginning = prefix.rpartition("/")
    place = call.place_at(f"{call.path.strip('/')}/{directory}")
    rows = rows_below(call.lake, place, call.identity, beginning, recursive=not delimiter)
    # With a delimiter, a directory is what its files have in common, and ends with the delimiter.
    named = sorted((f"{name}{delimiter if entry.is_directory else ''}", entry) for name, entry in rows)
    start = call.query.get("startfrom")
    if start is not None:
        empty = not place.by_guid and call.strikes("empty_offset_listings")
        named = [] if empty else [row for row in named if row[0] >= start]
    page, mark = page_of(named, call.query.get("marker"), call.page_size())
    metadata = "metadata" in call.query.get("include", "").split(",")
    blobs = "".join(_row(name, entry, metadata=metadata) for name, entry in page)
    # Azure's SDK asks for the next page with the size that the answer names.
    most = f"<MaxResults>{call.query['maxresults']}</MaxResults>" if "maxresults" in call.query else ""
    return _xml(
        f"<EnumerationResults ContainerName={quoteattr(call.path.strip('/'))}><Prefix>{escape(prefix)}</Prefix>{most}"
        f"<Blobs>{blobs}</Blobs><NextMarker>{escape(mark)}</NextMarker></EnumerationResults>"
    )


def _row(name: str, entry: Entry, *, metadata: bool) -> str:
    if name.endswith("/"):
        return f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"
    kind = "directory" if entry.is_directory else "file"
    return (
        f"<Blob><Name>{escape(name)}</Name><Properties>"
        f"<Last-Modified>{http_date(entry.last_modified)}</Last-Modified><Etag>{entry.etag}</Etag>"
        f"<ResourceType>{kind}</ResourceType><Content-Length>{entry.size}</Content-Length>"
        f"<Content-Type>{OCTETS}</Content-Type><BlobType>BlockBlob</BlobType></Properties>"
        f"{_IS_FOLDER if metadata and entry.is_directory else ''}</Blob>"
    )


def _xml(body: str) -> Response:
    return Response(f"{_DECLARATION}{body}", 200, media_type="application/xml")


async def _batch(call: Call) -> Response:
    if call.strikes("batch_delete_refused"):
        raise RefusalError(400, "BadRequest", "OneLake takes no batches.", _BATCH_REFUSED)
    paths = batch.paths_of(call.header("content-type") or "", await call.request.body())

    def deleted(path: str) -> tuple[int, str]:
        try:
            delete_at(call.lake, path, call.identity)
        except tree.TreeError as error:
            return refused(error)
        except RefusalError as error:
            return error.status, error.code
        return 202, "Accepted"

    body, kind = batch.answers([await run_in_threadpool(deleted, path) for path in paths])
    return Response(body, 202, media_type=kind)


def refused(error: tree.TreeError) -> tuple[int, str]:
    """Return the status and the code by which this endpoint says an error."""
    return next(said for kind, said in CODES.items() if isinstance(error, kind))


def _kinds(entry: Entry) -> dict[str, str]:
    said = {"x-ms-blob-type": "BlockBlob", "Accept-Ranges": "bytes", "x-ms-resource-type": "file"}
    return {**said, "x-ms-resource-type": "directory", "x-ms-meta-hdi_isfolder": "true"} if entry.is_directory else said


async def _put(call: Call) -> Response:
    key, condition = call.changeable(), call.condition()
    kind = call.header("x-ms-blob-type")
    if kind is None:
        raise wrong("x-ms-blob-type is missing.", "MissingRequiredHeader")
    if kind != "BlockBlob":
        raise wrong(f"Only a BlockBlob is kept here, and no {kind}.", "UnsupportedBlobType")
    part = await call.receive()
    entry = await run_in_threadpool(call.lake.put, key, part, condition)
    return Response(None, 201, {**state(entry, _QUOTE), **call.rejected()})


async def _put_block(call: Call) -> Response:
    key, name = call.changeable(), call.query.get("blockid")
    if not name:
        raise wrong("blockid is missing.", "MissingRequiredQueryParameter")
    call.lake.parts.add_block(key, name, await call.receive())
    return Response(None, 201, call.rejected())


async def _put_block_list(call: Call) -> Response:
    key, condition = call.changeable(), call.condition()
    try:
        names = _block_names(await call.request.body())
        entry = await run_in_threadpool(call.lake.put_blocks, key, names, condition)
    except GapError as error:
        raise wrong(f"The list is not of blocks that were uploaded: {error}.", "InvalidBlockList") from error
    return Response(None, 201, {**state(entry, _QUOTE), **call.rejected()})


def _block_names(body: bytes) -> list[str]:
    text = body.decode(errors="replace")
    # Entities make documents that grow when they are read; a block list has none.
    if len(body) > _LONGEST_LIST or _ENTITY.search(text):
        raise wrong("This is no block list.", "InvalidXmlDocument")
    try:
        blocks = list(ElementTree.fromstring(body))  # noqa: S314 - without entities
    except ElementTree.ParseError as error:
        raise wrong("This is no block list.", "InvalidXmlDocument") from error
    if any(block.tag not in ("Latest", "Uncommitted") for block in blocks):
        raise GapError("blocks of a file that was put before are not kept")
    return [block.text or "" for block in blocks]


def _properties(call: Call) -> Response:
    place = call.place
    entry = call.lake.tree.stat(place.key)
    if entry is None:
        raise tree.MissingError(call.path)
    check_reading(call.condition(), entry)
    size = {"Content-Length": str(entry.size), "Content-Type": OCTETS}
    return Response(None, 200, {**state(entry, _QUOTE), **_kinds(entry), **size, **shortcut_mark(call, place)})
