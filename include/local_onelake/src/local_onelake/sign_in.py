"""What stands in for Entra: an identity gets its token for its name, or its principal's id, and its secret."""

from __future__ import annotations

import time
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from local_onelake.access import principal_id
from local_onelake.identities import Identities
from local_onelake.refusals import RefusalError

_LIVES = 3600
_ABOUT = "/v2.0/.well-known/openid-configuration"
_INSTANCES = "/common/discovery/instance"


async def answer(identities: Identities, request: Request) -> Response:
    """Give a token by client credentials: ``POST /<tenant>/oauth2/token`` or ``…/oauth2/v2.0/token``.

    The libraries of Entra first ask where that is, which ``GET /<tenant>/v2.0/.well-known/openid-configuration`` and
    ``GET /common/discovery/instance`` say.

    :param identities: that the server knows.
    :param request: a form with ``client_id`` and ``client_secret``.
    """
    asked = str(request.url.replace(query=""))
    if request.method == "GET" and asked.endswith(_ABOUT):
        return JSONResponse(_about(asked.removesuffix(_ABOUT)))
    if request.method == "GET" and asked.endswith(_INSTANCES):
        return JSONResponse(_instances(asked.removesuffix(_INSTANCES), request.url.netloc))
    form = dict(parse_qsl((await request.body()).decode()))
    try:
        if request.method != "POST" or form.get("grant_type") != "client_credentials":
            raise RefusalError(400, "unsupported_grant_type", "Ask by POST, for client_credentials.")
        client = form.get("client_id", "")
        name = next((name for name in identities.tokens if principal_id(name) == client.lower()), client)
        token = identities.token_for(name, form.get("client_secret", ""))
    except RefusalError as error:
        return JSONResponse({"error": error.code, "error_description": error.message}, error.status)
    ends = str(int(time.time()) + _LIVES)
    return JSONResponse({"token_type": "Bearer", "expires_in": str(_LIVES), "expires_on": ends, "access_token": token})


def _about(tenant: str) -> dict[str, str]:
    return {
        "issuer": f"{tenant}/v2.0",
        "authorization_endpoint": f"{tenant}/oauth2/v2.0/authorize",
        "token_endpoint": f"{tenant}/oauth2/v2.0/token",
    }


def _instances(base: str, host: str) -> dict[str, object]:
    instance = {"preferred_network": host, "preferred_cache": host, "aliases": [host]}
    return {"tenant_discovery_endpoint": f"{base}/common{_ABOUT}", "metadata": [instance]}
