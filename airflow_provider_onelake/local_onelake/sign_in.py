"""What stands in for Entra: an identity gets its token for its name and its secret."""

from __future__ import annotations

import time
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from airflow_provider_onelake.local_onelake.identities import Identities
from airflow_provider_onelake.local_onelake.refusals import RefusalError

_LIVES = 3600


async def answer(identities: Identities, request: Request) -> Response:
    """Give a token by client credentials: ``POST /<tenant>/oauth2/token`` or ``…/oauth2/v2.0/token``.

    :param identities: that the server knows.
    :param request: a form with ``client_id`` and ``client_secret``.
    """
    form = dict(parse_qsl((await request.body()).decode()))
    try:
        if request.method != "POST" or form.get("grant_type") != "client_credentials":
            raise RefusalError(400, "unsupported_grant_type", "Ask by POST, for client_credentials.")
        token = identities.token_for(form.get("client_id", ""), form.get("client_secret", ""))
    except RefusalError as error:
        return JSONResponse({"error": error.code, "error_description": error.message}, error.status)
    ends = str(int(time.time()) + _LIVES)
    return JSONResponse({"token_type": "Bearer", "expires_in": str(_LIVES), "expires_on": ends, "access_token": token})
