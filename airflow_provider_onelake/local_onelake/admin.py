"""The faults, read and switched while the server runs: ``/_admin/faults``."""

from __future__ import annotations

import json

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from airflow_provider_onelake.local_onelake.faults import FAULTS, Faults, fault_of
from airflow_provider_onelake.local_onelake.refusals import RefusalError, wrong


async def answer(faults: Faults, request: Request, path: str) -> Response:
    """Answer ``GET faults``, ``PUT faults/<name>`` with a fault as JSON, and ``DELETE faults/<name>``.

    :param faults: of the server.
    :param request: as it came.
    :param path: below ``/_admin/``.
    :raises RefusalError: there is nothing like that.
    """
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
