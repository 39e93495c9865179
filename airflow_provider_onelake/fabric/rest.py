"""Fabric's REST: how it is asked, and shortcuts: https://learn.microsoft.com/rest/api/fabric/core/onelake-shortcuts.

A shortcut is a folder of an item that is a folder of another item, or of another store. Workspaces and items are named
by GUIDs here, because Fabric's REST takes no names.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs
import httpx

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
from airflow_provider_onelake.fabric.client import BusyError, Client, words
from airflow_provider_onelake.storage.credentials import check_address
from airflow_provider_onelake.storage.errors import as_store_error

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.azure import AzureCredentials
    from airflow_provider_onelake.storage.credentials import Credentials, Fields

API = "https://api.fabric.microsoft.com/v1"
SCOPE = "https://api.fabric.microsoft.com/.default"
"""The scope of a token for Fabric's REST. It is another one than that of OneLake's storage endpoints."""

_REFUSALS: Mapping[int, type[OneLakeError]] = {
    401: AccessDeniedError,
    403: AccessDeniedError,
    404: ObjectNotFoundError,
    409: ObjectExistsError,
}


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
        no address, or one without TLS where that is not allowed.
    """
    check_address(field, api)
    azure = _of_entra(credentials)
    if not azure.allow_http and api.startswith("http://"):
        raise CredentialsError(
            f"Fabric's REST is not asked without TLS, at an address of {len(api)} characters: write an https:// "
            "address, or set `allow_http` for a local OneLake."
        )
    return Fabric(api.rstrip("/"), _signed_in(azure, scope, "Fabric's REST"), patience)


def sign_in(fields: Fields, where: str) -> Callable[[], Mapping[str, str]]:
    """Return what gives the headers that sign in to Fabric's REST, for a connection with the fields of a lakehouse's.

    The token is renewed before it expires, except with ``sign_in=token``.

    :param fields: of the connection.
    :param where: what the token is for, in messages.
    :raises CredentialsError: the fields are incomplete or contradictory, or say no way to sign in by Entra.
    """
    from airflow_provider_onelake.storage.onelake import OneLake

    return _signed_in(_of_entra(OneLake().credentials_of(fields)), SCOPE, where)


def _signed_in(azure: AzureCredentials, scope: str, where: str) -> Callable[[], Mapping[str, str]]:
    from airflow_provider_onelake.storage.azure import azure_provider

    provider = azure_provider(azure, scope)

    def headers() -> Mapping[str, str]:
        try:
            return {"Authorization": f"Bearer {provider()['token']}"}
        except OneLakeError:
            raise
        except Exception as error:
            raise as_store_error(error, "", where, "read") from error

    return headers


def _of_entra(credentials: Credentials | None) -> AzureCredentials:
    from airflow_provider_onelake.storage.azure import AzureCredentials

    azure = AzureCredentials() if credentials is None else credentials
    if not isinstance(azure, AzureCredentials) or azure.sign_in == "account_key":
        raise CredentialsError(
            "Fabric's REST takes tokens of Entra only: sign in as docs/operate/stores.md says for OneLake."
        )
    return azure


class Fabric(Client):
    """Fabric's REST, or Power BI's; as :class:`~airflow_provider_onelake.fabric.client.Client`."""

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
            with suppress(ObjectNotFoundError):
                if (there := self.get_shortcut(at)).target == target:
                    return there
            raise

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

    def workspace_guid(self, workspace: str, at: object) -> str:
        """Return the GUID of a workspace, which is asked for where it is given by its name.

        :param at: what it is looked up for.
        :raises AddressError: this identity sees no workspace of that name, or several.
        """
        if _is_guid(workspace):
            return workspace.lower()
        return self._guid("/workspaces", {}, workspace, f"no workspace {workspace!r}", at)

    def item_guid(self, workspace: str, item: str, kind: str, at: object) -> str:
        """Return the GUID of an item, which is asked for where it is given by its name.

        :param workspace: the GUID of its workspace.
        :param kind: the type of the item, such as ``Lakehouse``.
        :param at: what it is looked up for.
        :raises AddressError: this identity sees no item of that name and type, or several.
        """
        if _is_guid(item):
            return item.lower()
        return self._guid(f"/workspaces/{workspace}/items", {"type": kind}, item, f"no {kind} {item!r}", at)

    def _guid(self, path: str, query: dict[str, str], name: str, none: str, address: object) -> str:
        """Return the GUID of the workspace or the item that has a name."""
        guids = [str(each["id"]).lower() for each in self.all(path, query, address) if each["displayName"] == name]
        if len(guids) != 1:
            many = f"{len(guids)} times {none.removeprefix('no ')}" if guids else none
            raise AddressError(
                f"Fabric shows this identity {many}, so {address} is not found. Nothing was done: write it with "
                "GUIDs, which stand in its address in the portal."
            )
        return guids[0]

    def all(self, path: str, query: dict[str, str], at: object, within: str = "params") -> Iterator[dict[str, Any]]:
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

    def _ask(self, method: str, path: str, at: object, **more: Any) -> dict[str, Any]:
        answer = self.ask(method, path, at, **more)
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found

    def ask(self, method: str, path: str, at: object, *, once: bool = False, **more: Any) -> httpx.Response:
        """Send a request, and return the answer.

        :param method: of HTTP.
        :param path: below the address of the REST.
        :param at: what it is about, for messages.
        :param once: whether the request must not be sent again where it may have been obeyed. Default: it may.
        :param more: as :meth:`httpx.Client.request` takes it.
        :raises StoreUnavailableError: there was no answer, so the outcome is unknown; or, with ``once``, no room.
        :raises OneLakeError: it is refused; the type says why.
        """
        answer = self._answer(method, path, at, once=once, **more)
        if not answer.is_success:
            refusal = _REFUSALS.get(answer.status_code, StoreRefusedError)
            raise refusal(f"Fabric's REST refused {method} for {at}: {words(answer)} Nothing was done.")
        return answer

    def look(self, path: str, at: object, method: str = "GET", **headers: str) -> httpx.Response:
        """Ask, and return the answer also if it is a refusal, whose status tells what this identity may see.

        :param path: below the address of the REST.
        :param at: what it is about, for messages.
        :param method: ``GET``, or ``HEAD``. Default: ``GET``.
        :param headers: of the request, beside the sign-in.
        :raises StoreUnavailableError: there was no answer.
        """
        return self._answer(method, path, at, headers=headers)

    def _answer(self, method: str, path: str, at: object, *, once: bool = False, **more: Any) -> httpx.Response:
        try:
            return self.send(method, path, once=once, **more)
        except BusyError as error:
            if once and not error.unknown:
                raise StoreUnavailableError(
                    f"Fabric takes no {method} for {at} now: {error} Nothing was done."
                ) from error
            raise StoreUnavailableError(
                f"Fabric's REST did not answer for {at}, and the outcome of {method} is unknown: {error} Try again "
                "later; nothing is done twice."
            ) from error


def _is_guid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _shortcuts(at: Folder) -> str:
    return f"/workspaces/{at.workspace}/items/{at.item}/shortcuts"


def _shortcut(at: Folder, said: dict[str, Any]) -> Shortcut:
    path = f"{said['path'].strip('/')}/{said['name']}"
    target = said["target"]
    inside = target.get("oneLake")
    folder = None if inside is None else Folder(inside["workspaceId"], inside["itemId"], inside["path"].strip("/"))
    return Shortcut(attrs.evolve(at, path=path), target["type"], folder)
