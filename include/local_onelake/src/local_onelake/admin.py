"""What is switched while the server runs: faults, and permissions of items, ``/_admin/…``."""

from __future__ import annotations

import json

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from local_onelake.faults import FAULTS, Faults, fault_of
from local_onelake.lake import Lake
from local_onelake.refusals import RefusalError, wrong


async def answer(lake: Lake, request: Request, path: str, caller: str) -> Response:
    """Answer ``GET faults``, ``PUT faults/<name>`` with a fault as JSON, and ``DELETE faults/<name>``.

    ``PUT permissions/<workspace GUID>/<item GUID>/<identity>`` with a list gives an identity these permissions of an
    item, and no others. Fabric has no REST for it: an item is shared in the portal.

    :param lake: that is served.
    :param request: as it came.
    :param path: below ``/_admin/``.
    :param caller: the identity that asks. It is an Admin of the item's workspace, or of all of them for faults.
    :raises RefusalError: there is nothing like that, or ``caller`` is no such Admin.
    """
    match request.method, path.split("/"):
        case "PUT", ["permissions", workspace, item, identity]:
            lake.access.need(caller, lake.names.workspace(workspace), "Admin")
            return await _permit(lake, request, workspace, item, identity)
        case _:
            for each in lake.names.all():
                lake.access.need(caller, each, "Admin")
            return await _faults(lake.faults, request, path)


async def _permit(lake: Lake, request: Request, workspace: str, item: str, identity: str) -> Response:
    _, found = lake.names.item(workspace, item)
    try:
        given = json.loads(await request.body())
        lake.access.give_permissions(found, identity, [str(name) for name in given])
    except (ValueError, TypeError) as error:
        raise wrong(f"This is no list of permissions: {error}") from error
    return Response(None, 200)


async def _faults(faults: Faults, request: Request, path: str) -> Response:
    place, _, name = path.partition("/")
    if place != "faults" or (name and name not in FAULTS):
        raise RefusalError(404, "NotFound", f"There is {', '.join(f'faults/{known}' for known in FAULTS)}.")
    match request.method, bool(name):
        case "GET", False:
            pass
        case "PUT", True:
            try:
                given = json.loads(await request.body() or b"{}")
                faults.set(name, fault_of(given))
            except (ValueError, TypeError) as error:
                raise wrong(f"This is no fault: {error}") from error
        case "DELETE", True:
            faults.clear(name)
        case _:
            raise RefusalError(405, "UnsupportedHttpVerb", "Faults are read by GET, and switched by PUT and DELETE.")
    return JSONResponse({"on": {known: attrs.asdict(fault) for known, fault in faults.on().items()}, "known": FAULTS})
