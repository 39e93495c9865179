"""What all of Fabric's requests have in common: GUIDs, bodies, pages, codes of errors."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse

from local_onelake import tree
from local_onelake.calls import Call, page_of
from local_onelake.names import Item, Workspace, is_by_guid
from local_onelake.refusals import RefusalError, wrong

CODES: dict[type[tree.TreeError], tuple[int, str]] = {
    tree.ExistsError: (409, "EntityConflict"),
    tree.MissingError: (404, "EntityNotFound"),
    tree.TreeError: (409, "EntityConflict"),
}
"""How this endpoint says why nothing was done."""


def workspace_of(call: Call, guid: str, least: str = "Viewer") -> Workspace:
    """Return a workspace in which the caller has a role.

    :param call: the request.
    :param guid: of the workspace; names are not taken.
    :param least: the least of the roles that suffice. Default: any role.
    :raises RefusalError: there is no such workspace, or the caller lacks the role.
    """
    _check_guid(guid)
    workspace = call.lake.names.workspace(guid)
    call.lake.access.need(call.identity, workspace, least)
    return workspace


def item_of(call: Call, workspace_guid: str, guid: str, least: str = "Viewer") -> tuple[Workspace, Item]:
    """Return an item of a workspace in which the caller has a role, or that is shared with the caller.

    :raises RefusalError: there is no such workspace or item, or the caller lacks the role.
    """
    _check_guid(workspace_guid)
    _check_guid(guid)
    workspace = call.lake.names.workspace(workspace_guid)
    if least != "Viewer" or not _is_shared(call, workspace, guid):
        call.lake.access.need(call.identity, workspace, least)
    return call.lake.names.item(workspace.guid, guid)


def _is_shared(call: Call, workspace: Workspace, guid: str) -> bool:
    """Say whether the caller may see an item, by its role in the workspace or because the item is shared with it."""
    items = [item for item in list(workspace.items.values()) if item.guid == guid.lower()]
    return any("Read" in call.lake.access.permissions(call.identity, workspace, item) for item in items)


async def body_of(call: Call, known: Collection[str]) -> dict[str, Any]:
    """Return the body of a request.

    :param call: the request.
    :param known: the names that it may have.
    :raises RefusalError: it is no JSON object, or has another name.
    """
    try:
        given = json.loads(await call.request.body())
    except ValueError as error:
        raise wrong("The body is no JSON.", "InvalidRequest") from error
    check_names(given, known, "The body")
    found: dict[str, Any] = given
    return found


def check_names(given: object, known: Collection[str], what: str) -> None:
    """Refuse what is no JSON object, or has a name that is not known.

    :param given: the value.
    :param known: the names.
    :param what: is checked, for messages.
    :raises RefusalError: it is not so.
    """
    if not isinstance(given, dict):
        raise wrong(f"{what} must be a JSON object.", "InvalidRequest")
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise wrong(f"{what} has {', '.join(known)}, and no {unknown[0]!r} here.", "InvalidRequest")


def text_of(given: Mapping[str, Any], name: str) -> str:
    """Return a value that must be a text, and not an empty one.

    :raises RefusalError: it is not so.
    """
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise wrong(f"{name} must be a text, and not an empty one.", "InvalidRequest")
    return value


def check_query(call: Call, *known: str) -> None:
    """Refuse a parameter that is not served, because ignoring it would be wrong.

    :param call: the request.
    :param known: the names, in small letters.
    :raises RefusalError: there is another.
    """
    for name in call.query:
        if name not in known:
            raise wrong(f"The query parameter {name} is not served here.", "InvalidParameter")


def paged(call: Call, rows: Sequence[tuple[str, dict[str, Any]]], name: str = "value") -> JSONResponse:
    """Answer with a page of rows, and with the token and the address of the next page if there is one.

    :param call: the request.
    :param rows: all of them, each with what they are sorted by.
    :param name: of the list in the answer.
    """
    size = max(call.page_size(), 1)
    page, mark = page_of(sorted(rows, key=lambda row: row[0]), call.query.get("continuationtoken"), size)
    said: dict[str, Any] = {name: [row for _, row in page]}
    if mark:
        uri = call.request.url.include_query_params(continuationToken=mark)
        said |= {"continuationToken": mark, "continuationUri": str(uri)}
    return JSONResponse(said)


def _check_guid(text: str) -> None:
    if not is_by_guid(text):
        raise wrong(f"{text!r} is no GUID: Fabric's REST takes no names.", "InvalidParameter")


def not_found(what: str) -> RefusalError:
    """Return the refusal of what is not there."""
    return RefusalError(404, "EntityNotFound", f"There is no {what}.")
