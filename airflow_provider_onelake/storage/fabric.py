"""Fabric's REST: how it is asked, and shortcuts: https://learn.microsoft.com/rest/api/fabric/core/onelake-shortcuts.

A shortcut is a folder of an item that is a folder of another item, or of another store. Workspaces and items are named
by GUIDs here, because Fabric's REST takes no names.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import attrs
import httpx
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_random_exponential,
)

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    AddressError,
    CredentialsError,
    ObjectExistsError,
    ObjectNotFoundError,
    OneLakeError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_provider_onelake.storage.credentials import check_address
from airflow_provider_onelake.storage.errors import as_store_error

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.azure import AzureCredentials
    from airflow_provider_onelake.storage.credentials import Credentials, Fields

API = "https://api.fabric.microsoft.com/v1"
SCOPE = "https://api.fabric.microsoft.com/.default"
"""The scope of a token for Fabric's REST. It is another one than that of OneLake's storage endpoints."""

_SERVERS_FAULT = 500
# 430: the capacity has no room for another Spark job.
# https://learn.microsoft.com/fabric/data-engineering/spark-job-concurrency-and-queueing
_TOO_MANY = (429, 430)
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_SILENCE = 30.0
"""Seconds without any data after which a request counts as unanswered."""
_GROWING = wait_random_exponential(0.1, 10)


class NothingBegunError(StoreUnavailableError):
    """Fabric was asked once for something, and has certainly not begun it: it had no room, or was not reached."""


@attrs.frozen
class Folder:
    """A folder of an item in OneLake.

    :param workspace: the GUID of the workspace.
    :param item: the GUID of the item.
    :param path: in the item, such as ``Tables/trips``.
    """

    workspace: str
    item: str
    path: str

    def __str__(self) -> str:
        return f"onelake://{self.workspace}/{self.item}/{self.path}"


class Asked(Protocol):
    """What a request is about, as messages name it."""

    @property
    def path(self) -> str:
        """Inside of its item."""

    def __str__(self) -> str: ...


@attrs.frozen
class Shortcut:
    """A shortcut.

    :param at: where it is.
    :param kind: of its target, as Fabric names it: ``OneLake``, ``AdlsGen2``, ``AmazonS3``, ….
    :param target: where it leads; ``None`` if that is not in OneLake, or if this identity may not see it.
    """

    at: Folder
    kind: str
    target: Folder | None


def open_fabric(
    credentials: Credentials | None, api: str, patience: float, scope: str = SCOPE, field: str = "fabric_api"
) -> Fabric:
    """Return a client of Fabric's REST that signs in as the storage endpoints do.

    :param credentials: of a lakehouse in OneLake. Default: what the environment of this process offers.
    :param api: the address of Fabric's REST.
    :param patience: seconds for which a request is sent again.
    :param scope: of its tokens. Default: that of Fabric's REST.
    :param field: of the connection, which has the address, for messages. Default: ``fabric_api``.
    :raises CredentialsError: the credentials are an account key or of another store, or cannot be used; or ``api`` is
        no address.
    """
    from airflow_provider_onelake.storage.azure import azure_provider

    check_address(field, api)
    azure = _of_entra(credentials)
    return Fabric(api, azure_provider(azure, scope), patience, azure.allow_http)


def token_source(fields: Fields, where: str) -> Callable[[], str]:
    """Return what gives a token for Fabric's REST, for a connection that signs in as one of a lakehouse does.

    The token is renewed before it expires, except with ``sign_in=token``.

    :param fields: of the connection.
    :param where: what the token is for, in messages.
    :raises CredentialsError: the fields are incomplete or contradictory, or say no way to sign in by Entra.
    """
    from airflow_provider_onelake.storage.azure import azure_provider
    from airflow_provider_onelake.storage.onelake import OneLake

    provider = azure_provider(_of_entra(OneLake().credentials_of(fields)), SCOPE)

    def ask() -> str:
        try:
            return str(provider()["token"])
        except OneLakeError:
            raise
        except Exception as error:
            raise as_store_error(error, where, where, "read") from error

    return ask


def _of_entra(credentials: Credentials | None) -> AzureCredentials:
    from airflow_provider_onelake.storage.azure import AzureCredentials

    azure = AzureCredentials() if credentials is None else credentials
    if not isinstance(azure, AzureCredentials) or azure.sign_in == "account_key":
        raise CredentialsError("Fabric's REST takes tokens of Entra only: sign in as docs/stores.md says for OneLake.")
    return azure


class _BusyError(Exception):
    """Fabric asks to be asked again later.

    :param after: seconds; ``None`` if Fabric does not say.
    :param unknown: whether it may have done what was asked.
    """

    def __init__(self, said: str, after: float | None = None, *, unknown: bool = True) -> None:
        super().__init__(said)
        self.after = after
        self.unknown = unknown


@attrs.define(slots=False, eq=False, repr=False)
class Fabric:
    """Asks Fabric's REST. A request that gets no answer, 429 or 5xx is sent again, not before ``Retry-After`` says so.

    :param api: the address, such as ``https://api.fabric.microsoft.com/v1``.
    :param provider: returns a token of the scope :data:`SCOPE`.
    :param patience: seconds for which a request is sent again.
    :param allow_http: whether the address may be without TLS. Default: no.
    :param unwanted: set when nobody wants an answer any more; then no request is sent again. Default: never.
    :raises CredentialsError: the address is without TLS, and that is not allowed.
    """

    _api: str
    _provider: Callable[[], Any]
    _patience: float
    _allow_http: bool = False
    _unwanted: threading.Event = attrs.field(factory=threading.Event)

    def __attrs_post_init__(self) -> None:
        if not self._allow_http and self._api.startswith("http://"):
            raise CredentialsError(
                f"Fabric's REST is not asked without TLS, at an address of {len(self._api)} characters: write an "
                "https:// address, or set `allow_http` for a local OneLake."
            )

    def folder(self, address: TableAddress) -> Folder:
        """Return a folder as Fabric's REST names it. If it is spelled with names, Fabric is asked for the GUIDs.

        :param address: of the folder.
        :raises AddressError: the address is not one in OneLake, or this identity sees no such workspace or item.
        :raises StoreUnavailableError: Fabric does not answer.
        """
        if not address.kind.in_fabric:
            raise AddressError(f"Fabric's REST knows folders in OneLake only, and not {address}.")
        item, _, path = address.path.partition("/")
        if _is_guid(item):
            return Folder(address.authority, item, path)
        name, _, kind = item.rpartition(".")
        workspace = self.workspace_guid(address.authority, address)
        return Folder(workspace, self.item_guid(workspace, name, kind, address), path)

    def create_shortcut(self, at: Folder, target: Folder) -> Shortcut:
        """Make a shortcut to a folder in OneLake. It is no error if the very same shortcut is there.

        :param at: where; the last segment of its path is the shortcut's name.
        :param target: where it leads.
        :raises ObjectExistsError: something else is there. It stays as it is.
        :raises AccessDeniedError: the identity may not make it, or may not read the target.
        :raises StoreRefusedError: Fabric refuses it, for instance because it would lead round in a circle.
        :raises StoreUnavailableError: the outcome is unknown; asking again does no harm.
        """
        path, slash, name = at.path.rpartition("/")
        if not slash:
            raise AddressError(f"{at} cannot be a shortcut: it lies below Tables or Files. Nothing was made.")
        body = {
            "path": path,
            "name": name,
            "target": {"oneLake": {"workspaceId": target.workspace, "itemId": target.item, "path": target.path}},
        }
        try:
            return _shortcut(at, self._ask("POST", _shortcuts(at), at, json=body))
        except ObjectExistsError:
            # An answer may have been lost, so look whether it is ours.
            there = self._there(at)
            if there is None or there.target != target:
                raise
            return there

    def get_shortcut(self, at: Folder) -> Shortcut:
        """Return a shortcut.

        :raises ObjectNotFoundError: there is none at exactly this path.
        :raises AccessDeniedError: the identity may not look at it.
        :raises StoreUnavailableError: Fabric does not answer.
        """
        return _shortcut(at, self._ask("GET", f"{_shortcuts(at)}/{quote(at.path)}", at))

    def is_there(self, at: Folder) -> bool:
        """Say whether the item of a folder is there, and this identity sees it.

        :raises StoreUnavailableError: Fabric does not answer.
        """
        try:
            self._ask("GET", f"/workspaces/{at.workspace}/items/{at.item}", at)
        except (ObjectNotFoundError, AccessDeniedError):
            return False
        return True

    def list_shortcuts(self, at: Folder) -> Iterator[Shortcut]:
        """Yield the shortcuts at and below a folder.

        :param at: the folder; with an empty path, all of the item.
        :raises AccessDeniedError: the identity may not look at them.
        :raises StoreUnavailableError: Fabric does not answer.
        """
        query = {"parentPath": at.path} if at.path else {}
        for each in self.all(_shortcuts(at), query, at):
            path = f"{each['path'].strip('/')}/{each['name']}"
            yield _shortcut(attrs.evolve(at, path=path), each)

    def delete_shortcut(self, at: Folder) -> bool:
        """Delete a shortcut, and nothing of its target.

        :returns: whether there was one.
        :raises AccessDeniedError: the identity may not delete it.
        :raises StoreUnavailableError: the outcome is unknown; asking again does no harm.
        """
        try:
            self._ask("DELETE", f"{_shortcuts(at)}/{quote(at.path)}", at)
        except ObjectNotFoundError:
            return False
        return True

    def workspace_guid(self, workspace: str, at: Asked) -> str:
        """Return the GUID of a workspace, which is asked for where it is given by its name.

        :param at: what it is looked up for.
        :raises AddressError: this identity sees no workspace of that name, or several.
        """
        if _is_guid(workspace):
            return workspace.lower()
        return self._guid("/workspaces", {}, workspace, f"no workspace {workspace!r}", at)

    def item_guid(self, workspace: str, item: str, kind: str, at: Asked) -> str:
        """Return the GUID of an item, which is asked for where it is given by its name.

        :param workspace: the GUID of its workspace.
        :param kind: the type of the item, such as ``Lakehouse``.
        :param at: what it is looked up for.
        :raises AddressError: this identity sees no item of that name and type, or several.
        """
        if _is_guid(item):
            return item.lower()
        return self._guid(f"/workspaces/{workspace}/items", {"type": kind}, item, f"no {kind} {item!r}", at)

    def _guid(self, path: str, query: dict[str, str], name: str, none: str, address: Asked) -> str:
        """Return the GUID of the workspace or the item that has a name."""
        guids = [str(each["id"]).lower() for each in self.all(path, query, address) if each["displayName"] == name]
        if len(guids) != 1:
            many = f"{len(guids)} times {none.removeprefix('no ')}" if guids else none
            raise AddressError(
                f"Fabric shows this identity {many}, so {address} is not found. Nothing was done: write it with "
                "GUIDs, which stand in its address in the portal."
            )
        return guids[0]

    def all(self, path: str, query: dict[str, str], at: Asked, within: str = "params") -> Iterator[dict[str, Any]]:
        """Yield the rows of a list, page by page.

        :param path: below the address of the REST.
        :param query: of the first page.
        :param at: what it is about, for messages.
        :param within: ``json``, if the query is the body. Default: it is in the address.
        :raises OneLakeError: as for :meth:`ask`.
        """
        while True:
            said = self._ask("GET", path, at, **{within: query})
            yield from said["value"]
            if not said.get("continuationToken"):
                return
            query = {**query, "continuationToken": said["continuationToken"]}

    def _there(self, at: Folder) -> Shortcut | None:
        try:
            return self.get_shortcut(at)
        except ObjectNotFoundError:
            return None

    def _ask(self, method: str, path: str, at: Asked, **more: Any) -> dict[str, Any]:
        answer = self.ask(method, path, at, **more)
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found

    def ask(self, method: str, path: str, at: Asked, *, once: bool = False, **more: Any) -> httpx.Response:
        """Send a request, and return the answer.

        :param method: of HTTP.
        :param path: below the address of the REST.
        :param at: what it is about, for messages.
        :param once: whether the request must not be sent again where it may have been obeyed. Default: it may.
        :param more: as :meth:`httpx.Client.request` takes it.
        :raises NothingBegunError: with ``once``: there was no room, so nothing was done.
        :raises StoreUnavailableError: there was no answer, so the outcome is unknown.
        :raises OneLakeError: it is refused; the type says why.
        """
        answer = self._answer(method, path, at, once=once, **more)
        if not answer.is_success:
            raise _refused(answer, at)
        return answer

    def look(self, path: str, at: Asked, method: str = "GET", **headers: str) -> httpx.Response:
        """Ask, and return the answer also if it is a refusal, whose status tells what this identity may see.

        :param path: below the address of the REST.
        :param at: what it is about, for messages.
        :param method: ``GET``, or ``HEAD``. Default: ``GET``.
        :param headers: of the request, beside the sign-in.
        :raises StoreUnavailableError: there was no answer.
        """
        return self._answer(method, path, at, headers=headers)

    def _answer(self, method: str, path: str, at: Asked, *, once: bool = False, **more: Any) -> httpx.Response:
        tries = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, _BusyError) and not (once and error.unknown)),
            stop=stop_after_delay(self._patience) | stop_when_event_set(self._unwanted),
            sleep=sleep_using_event(self._unwanted),
            wait=_wait,
            reraise=True,
        )
        try:
            answer: httpx.Response = tries(self._send, method, path, at, **more)
        except _BusyError as error:
            if once and not error.unknown:
                raise NothingBegunError(f"Fabric takes no {method} for {at} now: {error}. Nothing was done.") from error
            raise StoreUnavailableError(
                f"Fabric's REST did not answer for {at}, and the outcome of {method} is unknown: {error}. Try again "
                "later; nothing is done twice."
            ) from error
        return answer

    def _send(
        self, method: str, path: str, at: Asked, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        try:
            token = self._provider()["token"]
        except OneLakeError:
            raise
        except Exception as error:
            raise as_store_error(error, at.path, str(at), "read") from error
        try:
            signed = {**(headers or {}), **_bearer(token)}
            answer = self._client.request(method, f"{self._api.rstrip('/')}{path}", headers=signed, **more)
        except httpx.TransportError as error:
            sent = not isinstance(error, _NEVER_SENT)
            raise _BusyError(f"{type(error).__name__}: {error}", unknown=sent) from error
        if answer.status_code in _TOO_MANY or answer.status_code >= _SERVERS_FAULT:
            after = answer.headers.get("retry-after", "")
            pause, unknown = float(after) if after.isdecimal() else None, answer.status_code not in _TOO_MANY
            raise _BusyError(_words(answer), pause, unknown=unknown)
        return answer

    @cached_property
    def _client(self) -> httpx.Client:
        # Made when it is first needed, because a client that was made before a fork must not be used after.
        return httpx.Client(timeout=httpx.Timeout(_SILENCE, connect=5.0))


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    after = error.after if isinstance(error, _BusyError) else None
    return _GROWING(state) if after is None else after


def _is_guid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _shortcuts(at: Folder) -> str:
    return f"/workspaces/{at.workspace}/items/{at.item}/shortcuts"


def _shortcut(at: Folder, said: dict[str, Any]) -> Shortcut:
    path = f"{said['path'].strip('/')}/{said['name']}"
    target = said["target"]
    inside = target.get("oneLake")
    folder = None if inside is None else Folder(inside["workspaceId"], inside["itemId"], inside["path"].strip("/"))
    return Shortcut(attrs.evolve(at, path=path), target["type"], folder)


def _words(answer: httpx.Response) -> str:
    try:
        # Power BI's REST says it one level deeper.
        said = answer.json()
        if isinstance(said.get("error"), dict):
            return f"{answer.status_code} {said['error']['code']}: {said['error'].get('message', '')}"
        return f"{answer.status_code} {said['errorCode']}: {said['message']} (request {said.get('requestId')})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{answer.status_code} {answer.reason_phrase}"


def _refused(answer: httpx.Response, at: Asked) -> OneLakeError:
    kinds: dict[int, type[OneLakeError]] = {
        401: AccessDeniedError,
        403: AccessDeniedError,
        404: ObjectNotFoundError,
        409: ObjectExistsError,
    }
    kind = kinds.get(answer.status_code, StoreRefusedError)
    return kind(f"Fabric's REST refused {answer.request.method} for {at}: {_words(answer)} Nothing was done.")
