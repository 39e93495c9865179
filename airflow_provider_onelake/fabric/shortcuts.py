"""Where an address leads that goes through shortcuts of OneLake, so that two addresses of one table are one.

A shortcut is a folder that is another folder, and storage's endpoints show it as an ordinary one. So only Fabric's REST
tells that ``Tables/trips`` of one lakehouse is a table of another. It is asked about each folder on the way to the
table, and about those on the way to each target, until no shortcut is left.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    ObjectNotFoundError,
    OneLakeError,
    ShortcutError,
    StoreRefusedError,
)
from airflow_provider_onelake.fabric.rest import Fabric, Folder, Shortcut, open_fabric
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.stores import open_store

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.credentials import Credentials
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)

MOST_LINKS = 5
"""Shortcuts to shortcuts, one after the other: OneLake's own limit."""
_ONELAKE = "OneLake"
# Any path below a table; it does not matter whether there is such an object.
_ANY_OBJECT = "_delta_log/_last_checkpoint"
# OneLake reads and writes these stores through a shortcut; through all others it only reads.
_WRITABLE = ("AdlsGen2",)
_STORAGE_VERSION = "2023-11-03"
_MARK = "x-ms-onelake-shortcut-path"
_NOT_FOUND = 404
# The item and Tables or Files are no shortcuts.
_FIRST = 3


@attrs.frozen
class FollowedShortcuts:
    """Where an address leads.

    :param address: of the folder itself. It is the given one if no shortcut of OneLake is on the way.
    :param links: the shortcuts on the way, in order.
    :param read_only: why nothing can be written there; ``None`` if something can.
    :param way: the folders in OneLake on the way, in order: the address itself, and where each shortcut leads.
    """

    address: TableAddress
    links: tuple[Shortcut, ...] = ()
    read_only: str | None = None
    way: tuple[Folder, ...] = ()


def follow(fabric: Fabric, address: TableAddress, lakehouse: TableAddress | None = None) -> FollowedShortcuts:
    """Follow the shortcuts on the way to a folder of OneLake.

    A folder in the connection's own lakehouse is spelled as that is, any other one by GUIDs. A shortcut that leads to
    another store is not followed: its folder is reached through OneLake, and is named by the shortcut.

    :param address: of the folder.
    :param lakehouse: the connection's lakehouse. Default: it has none.
    :raises ShortcutError: a shortcut leads nowhere or round in a circle, or does not show where it leads.
    :raises AddressError: this identity sees no such workspace or item.
    :raises AccessDeniedError: this identity may not look at the shortcuts.
    :raises StoreUnavailableError: Fabric does not answer.
    """
    at = fabric.folder(address)
    links, way = list[Shortcut](), [at]
    while (link := _first_on(fabric, at)) is not None:
        links.append(link)
        if link.kind != _ONELAKE:
            return _elsewhere(address, way, links, lakehouse, fabric)
        if link.target is None:
            raise ShortcutError(
                f"Fabric does not show this identity where the shortcut {link.at} leads, through which {address} goes, "
                "as it may not read there. Nothing was done: have the right to read the target, or write its address."
            )
        below = at.path[len(link.at.path) :]
        at = attrs.evolve(link.target, path=f"{link.target.path}{below}")
        if at in way or len(links) > MOST_LINKS:
            over = ", ".join(str(each.at) for each in links)
            circle = "round in a circle" if at in way else f"through more than {MOST_LINKS} shortcuts"
            raise ShortcutError(
                f"An address leads {circle}: {address}, over {over}. Nothing was done: delete one of these shortcuts."
            )
        way.append(at)
        if not fabric.is_there(at):
            raise ShortcutError(
                f"There is no item behind the shortcut {link.at} any more, or none that this identity sees: {address} "
                f"leads through it to {link.target}. Nothing was done: make the shortcut anew, or delete it."
            )
    there = _spelled(at, address, lakehouse, fabric) if links else address
    return FollowedShortcuts(there, tuple(links), way=tuple(way))


def warn_of_path(path: str, error: OneLakeError, conn_id: str) -> None:
    """Warn of a shortcut that could not be followed, where the connection does not say that this is an error.

    :param path: by which the table is used all the same.
    :param error: why it could not be.
    :param conn_id: the connection.
    """
    logger.warning(
        "%s is, or lies in, a shortcut of OneLake, and it was not found out where that leads: %s So events, lineage "
        "and results call the table by this path. follow_shortcuts=true in the connection %s makes this an error; "
        "false asks nothing.",
        path,
        error,
        conn_id,
    )


def follow_to_table(
    fabric: Fabric, address: TableAddress, lakehouse: TableAddress, credentials: Credentials | None, patience: float
) -> FollowedShortcuts:
    """Follow the shortcuts on the way to a table, and see that a target in OneLake is there.

    :param address: of the table.
    :param lakehouse: the connection's lakehouse.
    :param credentials: of its store.
    :param patience: seconds for which a request to the store is repeated.
    :raises OneLakeError: as of :func:`follow` and :func:`check_target`.
    """
    found = follow(fabric, address, lakehouse)
    if found.links and found.links[-1].target is not None:
        check_target(open_store(address, credentials, patience), address, found)
    return found


def is_marked(address: TableAddress, credentials: Credentials | None, patience: float) -> bool:
    """Say whether OneLake marks a folder, or one on the way to it, as a shortcut.

    OneLake's own endpoint is asked for each folder below ``Tables`` or ``Files``, from the top, until one is marked or
    is not there. Where it refuses or does not answer, nothing is known, and the answer is no: whoever opens the folder
    next is told why.

    :param address: of the folder.
    :param credentials: of its store.
    :param patience: seconds for which a request is repeated.
    """
    from airflow_provider_onelake.storage.azure import SCOPE

    at = address.kind.security_endpoint(address, credentials.endpoint if credentials is not None else None)
    names = address.path.split("/")
    try:
        onelake = open_fabric(credentials, at, patience, SCOPE)
        for length in range(_FIRST, len(names) + 1):
            asking = f"/{quote(address.authority)}/{quote('/'.join(names[:length]))}"
            answer = onelake.look(asking, address, "HEAD", **{"x-ms-version": _STORAGE_VERSION})
            if answer.headers.get(_MARK, "").lower() == "true":
                return True
            if answer.status_code == _NOT_FOUND:
                return False
    except OneLakeError:
        pass
    return False


def check_shortcut(fabric: Fabric, address: TableAddress, lakehouse: TableAddress, store: Store) -> FollowedShortcuts:
    """Follow a shortcut to its end, and read there.

    :param address: of the shortcut, or of a folder below one.
    :param lakehouse: the connection's lakehouse.
    :param store: opened by that address.
    :raises ShortcutError: there is no shortcut, or it is broken, circular, or does not show where it leads.
    :raises OneLakeError: as of :func:`follow` and :func:`check_target`.
    """
    try:
        found = follow(fabric, address, lakehouse)
    except AccessDeniedError as error:
        raise may_not_look(error) from error
    if not found.links:
        raise ShortcutError(
            f"There is no shortcut at {address} nor above it, or this identity sees none there. Nothing was done: make "
            "the shortcut, or correct its path."
        )
    check_target(store, address, found)
    return found


def may_not_look(error: AccessDeniedError) -> AccessDeniedError:
    """Return Fabric's refusal to show shortcuts, with what it takes to see them."""
    return AccessDeniedError(
        f"{error} To look at shortcuts takes a sign-in that may use Fabric's REST, and the role Viewer in the "
        "workspace or a permission of the lakehouse."
    )


def check_target(store: Store, address: TableAddress, found: FollowedShortcuts) -> None:
    """Refuse a shortcut whose target folder is gone: who writes to the target's address would make it anew.

    :param store: opened by the address that leads through the shortcut, which only the store can follow to a folder.
    :param address: of that store.
    :param found: where it leads.
    :raises ShortcutError: the store refuses what is behind the shortcut.
    :raises AccessDeniedError: this identity may not read it.
    :raises StoreUnavailableError: the store does not answer.
    """
    try:
        store.get(_ANY_OBJECT)
    except ObjectNotFoundError:
        return
    except StoreRefusedError as error:
        last = found.links[-1]
        where = found.address if last.target is not None else last.kind
        raise ShortcutError(
            f"The store refuses what is behind the shortcut {last.at}, as it does where the folder is gone: {error} "
            f"{address} leads through it to {where}. Nothing was done: make the folder or the shortcut anew, or delete "
            "the shortcut."
        ) from error


def _first_on(fabric: Fabric, at: Folder) -> Shortcut | None:
    """Return the first shortcut on the way to a folder, or at it. ``Tables`` and ``Files`` themselves are none."""
    names = at.path.split("/")
    for length in range(2, len(names) + 1):
        try:
            return fabric.get_shortcut(attrs.evolve(at, path="/".join(names[:length])))
        except ObjectNotFoundError:
            continue
    return None


def _elsewhere(
    address: TableAddress, way: list[Folder], links: list[Shortcut], lakehouse: TableAddress | None, fabric: Fabric
) -> FollowedShortcuts:
    """Return where an address leads whose last shortcut leads out of OneLake."""
    link = links[-1]
    why = None
    if link.kind not in _WRITABLE:
        why = (
            f"OneLake only reads through a shortcut to {link.kind}, and {address} leads through {link.at}. Nothing was "
            "written: write the table by its own address there, with a connection of that store."
        )
    there = address if len(way) == 1 else _spelled(way[-1], address, lakehouse, fabric)
    return FollowedShortcuts(there, tuple(links), why, tuple(way))


def _spelled(at: Folder, address: TableAddress, lakehouse: TableAddress | None, fabric: Fabric) -> TableAddress:
    """Return the address of a folder: as the connection's lakehouse is spelled if the folder is in it."""
    if lakehouse is not None:
        root = fabric.folder(lakehouse)
        if (root.workspace, root.item) == (at.workspace, at.item):
            return lakehouse.child(at.path)
    found = TableAddress.parse(str(at))
    # The host of a region or of a private link is that of one workspace.
    same = address.authority == found.authority
    return attrs.evolve(found, host=address.host) if same else found
