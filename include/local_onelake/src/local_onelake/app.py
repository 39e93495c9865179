"""One application with several faces: which one a request sees is said by the host that it names.

Clients name a host of OneLake's in ``Host``, if the server is their proxy, or as the first segment of the path, as the
addresses of emulators have it: ``http://127.0.0.1:10000/onelake.dfs.fabric.microsoft.com/<workspace>/…``. Without one,
they see the Blob endpoint. A further face is one more host and one more function here.
"""

from __future__ import annotations

import re
import uuid
from asyncio import sleep
from collections.abc import Awaitable, Callable
from contextlib import suppress

import attrs
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from local_onelake import admin, blob, dfs, powerbi, sign_in
from local_onelake.calls import Call, query_of
from local_onelake.fabric import calls as fabric_calls
from local_onelake.fabric import routes as fabric
from local_onelake.lake import Lake
from local_onelake.refusals import RefusalError
from local_onelake.tree import TreeError

_STORAGE_HOST = re.compile(r"(?:[a-z0-9]+-)?onelake\.(dfs|blob)(?:\.[a-z0-9.-]+)?(?::\d+)?", re.IGNORECASE)
_SIGN_IN_HOST = "login.microsoftonline.com"
_REST_HOSTS = {"api.fabric.microsoft.com": "fabric", "api.powerbi.com": "powerbi"}
# Names mean the same in capitals and without; but Microsoft's fab knows them as its services spell them only.
_SPELLED = {
    name.lower().encode(): name.encode()
    for name in ("Content-Length", "Content-Range", "Content-Type", "ETag", "Last-Modified", "Location", "Retry-After")
}
_CHANGES = {"PUT", "PATCH", "POST", "DELETE"}
_SUCCESS = 300


class LostAnswerError(Exception):
    """The answer is not to be sent."""


@attrs.frozen
class Asked:
    """A request, as who watches the server sees it.

    :param face: ``blob``, ``dfs``, ``fabric``, ``powerbi``, ``sign_in`` or ``admin``.
    :param method: of HTTP.
    :param path: percent-decoded, with a slash at its beginning, below the host.
    :param query: by name.
    """

    face: str
    method: str
    path: str
    query: dict[str, str]


Watch = Callable[[Asked], None]


def unwatched(_: Asked) -> None:
    """Let every request pass."""


@attrs.frozen
class OneLakeApp:
    """The application.

    :param lake: behind every face.
    :param hang_up: closes the connection of a request without an answer.
    :param watch: sees each request to a storage endpoint whose token is right; what it raises is the answer.
        Default: nobody watches.
    """

    lake: Lake
    hang_up: Callable[[Scope], None]
    watch: Watch = unwatched

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: the interface of ASGI."""
        request = Request(scope, receive)
        face, path = _face(request)
        query = query_of(request)
        # Who watches need not know secrets.
        signature = query.pop("sig", None)
        request_id = str(uuid.uuid4())
        asked = Asked(face, _method(request), f"/{path}", query)
        try:
            try:
                answer = await self._answer(request, asked, signature)
            except TreeError as error:
                answer = _refusal(request, asked, _as_refusal(asked.face, error), request_id)
            except RefusalError as error:
                answer = _refusal(request, asked, error, request_id)
            await _read_the_rest(request, answer)
        except (LostAnswerError, ClientDisconnect):
            self.hang_up(scope)
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        for name in ("x-ms-version", "x-ms-client-request-id"):
            if name in request.headers:
                answer.headers[name] = request.headers[name]
        answer.headers["x-ms-request-id"] = request_id
        answer.raw_headers = [(_SPELLED.get(name, name), value) for name, value in answer.raw_headers]
        await answer(scope, receive, send)

    async def _answer(self, request: Request, asked: Asked, signature: str | None) -> Response:
        if asked.face == "sign_in":
            return await sign_in.answer(self.lake.identities, request)
        identity = self.lake.identities.who(request.headers.get("authorization"), signature)
        if asked.face == "admin":
            return await admin.answer(self.lake, request, asked.path.removeprefix("/_admin/"), identity)
        self.watch(asked)
        call = Call(self.lake, request, asked.method, asked.path[1:], asked.query, identity)
        await _fail_before(call)
        faces: dict[str, Callable[[Call], Awaitable[Response]]] = {
            "dfs": dfs.answer,
            "blob": blob.answer,
            "fabric": fabric.answer,
            "powerbi": powerbi.answer,
        }
        answer = await faces[asked.face](call)
        if asked.method in _CHANGES and answer.status_code < _SUCCESS and call.strikes("lost_answer"):
            raise LostAnswerError
        return answer


async def _fail_before(call: Call) -> None:
    if fault := call.strikes("slow"):
        await sleep(fault.seconds)
    if call.strikes("capacity_paused"):
        raise RefusalError(403, "CapacityNotActive", "The capacity of this workspace is paused.")
    if fault := call.strikes("throttled"):
        after = {"Retry-After": f"{fault.seconds:.0f}"}
        raise RefusalError(429, "TooManyRequests", "Too many requests: ask again later.", headers=after)
    if call.strikes("error_503"):
        raise RefusalError(503, "ServerBusy", "The server is busy: ask again later.")
    if call.strikes("error_500"):
        raise RefusalError(500, "InternalError", "The server failed, and nothing was done.")


def is_ours(host: str) -> bool:
    """Say whether a host is one that this application answers as.

    :param host: as ``Host`` has it.
    """
    return host.lower() in (_SIGN_IN_HOST, *_REST_HOSTS) or _STORAGE_HOST.fullmatch(host) is not None


def _face(request: Request) -> tuple[str, str]:
    """Return the face of a request, and its path below the host without a slash at the beginning."""
    # A client that takes this server for its proxy sends the whole address, which some parsers leave in the path.
    path = re.sub(r"^https?://[^/]*", "", request.scope["path"]).lstrip("/")
    first, _, rest = path.partition("/")
    if first == "_admin":
        return "admin", path
    for host, below in ((request.headers.get("host", ""), path), (first, rest)):
        if host.lower() == _SIGN_IN_HOST:
            return "sign_in", below
        if host.lower() in _REST_HOSTS:
            return _REST_HOSTS[host.lower()], below
        if found := _STORAGE_HOST.fullmatch(host):
            return found[1].lower(), below
    # The account of the emulators' form, which Azurite's clients write.
    return "blob", rest if first == "onelake" else path


def _method(request: Request) -> str:
    replaced = request.headers.get("x-http-method-override") if request.method in ("PUT", "POST") else None
    return (replaced or request.method).upper()


def _as_refusal(face: str, error: TreeError) -> RefusalError:
    codes = {"dfs": dfs.CODES, "fabric": fabric_calls.CODES}.get(face, blob.CODES)
    status, code = next(said for kind, said in codes.items() if isinstance(error, kind))
    return RefusalError(status, code, f"Nothing was done: {error}.")


def _refusal(request: Request, asked: Asked, error: RefusalError, request_id: str) -> Response:
    if asked.face == "fabric":
        body = error.as_fabric_json(request_id)
        return Response(body, error.status, dict(error.headers), media_type="application/json")
    headers = {"x-ms-error-code": error.code, **error.headers}
    if request.method == "HEAD" or error.status == 304:
        return Response(None, error.status, headers)
    as_json = asked.face != "blob" or error.body is not None
    kind = "application/json" if as_json else "application/xml"
    return Response(error.as_json() if as_json else error.as_xml(), error.status, headers, media_type=kind)


async def _read_the_rest(request: Request, answer: Response) -> None:
    """Take a body that nobody wanted off the connection, or have the connection closed."""
    if request.headers.get("expect", "").lower() != "100-continue":
        # What was read already cannot be read again, and need not.
        with suppress(RuntimeError):
            async for _ in request.stream():
                pass
    elif answer.status_code >= _SUCCESS:
        # The client sends its body only once it is told to.
        answer.headers["Connection"] = "close"
