"""What an identity may do with a table, and which step decided.

The identity that signs in is told most by the store itself: a scratch object is put create-only beside the table, read
and deleted. Roles of a workspace are shown to its Members only, so that a Contributor cannot look up its own. But what
Fabric's REST shows an identity at all, together with what came of the try, tells which step decided: one table says it.
A page that is only looked at must not write, so it tries to read alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from enum import Flag, auto
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import (
    AddressError,
    CredentialsError,
    ObjectNotFoundError,
    OneLakeError,
    ShortcutError,
    TransientError,
)
from airflow_provider_onelake.fabric.access_report import AccessReport, Decision, Right, Step
from airflow_provider_onelake.fabric.rest import API, Fabric, open_fabric
from airflow_provider_onelake.fabric.shortcuts import FollowedShortcuts, follow
from airflow_provider_onelake.storage.preflight import SCRATCH, problems_of
from airflow_provider_onelake.storage.stores import open_store

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials
    from airflow_provider_onelake.storage.stores import Store

# Any path below a table; it does not matter whether there is such an object.
_ANY_OBJECT = "_delta_log/_last_checkpoint"
_OK, _FORBIDDEN, _ABSENT = 200, 403, 404
_AND_SHOWN = ", and what Fabric's REST shows this identity"
_ONLY_A_PROBE = "Only a probe, which writes a scratch object beside the table, could tell."


class _Came(Flag):
    """What came of trying a right of the store."""

    DONE = auto()
    READ = auto()  # Done, and this very folder refuses writes of this identity.
    REFUSED = auto()
    SILENT = auto()  # It is not known what would come of it.
    UNTRIED = auto()


class _Shown(Flag):
    """What Fabric's REST shows the identity that signs in."""

    ROLES = auto()  # The roles of the workspace, so it is Member or Admin.
    WORKSPACE = auto()  # The workspace, so it has a role there.
    ITEM = auto()  # The item but not the workspace, so the item is shared with it.
    NOTHING = auto()
    NO_ANSWER = auto()


_DONE, _OPEN = _Came.DONE | _Came.READ, _Came.REFUSED | _Came.UNTRIED
_ANY, _SHOWN = ~_Shown(0), ~_Shown.NO_ANSWER
_ALL, _READ, _CHANGE = tuple(Right), (Right.READ,), (Right.WRITE, Right.COMMIT, Right.DELETE)
# What came of a try, what Fabric shows, of which rights: which step decided, its name, and why. The first row that
# fits counts.
_TABLE: tuple[tuple[_Came, _Shown, Collection[Right], Step, str | None, str], ...] = (
    (_DONE, _Shown.ROLES, _ALL, Step.WORKSPACE_ROLE, "Member or Admin",
     "Fabric shows it the roles of the workspace, and who sees them may read and write all of it."),
    (_Came.READ, _SHOWN, _READ, Step.DATA_ACCESS_ROLE, None,
     "One grants it, as nothing else lets who may not write read. Its name is shown to Members only."),
    (_DONE, _SHOWN, _ALL, Step.PROBE, None,
     "The store did it. Which role or permission allows it, Fabric shows to Members only."),
    (_Came.REFUSED, _Shown.ROLES, _ALL, Step.PROBE, None,
     ("The role Member or Admin allows it, and the store refused it nevertheless: look whether the capacity is paused, "
      "and whether the workspace takes requests from this network. {said}")),
    (_Came.REFUSED, _Shown.NOTHING, _ALL, Step.WORKSPACE_ROLE, None,
     "The identity has no role in the workspace {workspace}, and the item is not shared with it."),
    (_Came.REFUSED, _SHOWN, _READ, Step.DATA_ACCESS_ROLE, None,
     ("None that this identity is a member of grants it, or one hides rows or columns of the table, which then cannot "
      "be read by the storage API at all. Which, Fabric shows to Members only.")),
    (_Came.REFUSED, _Shown.WORKSPACE, _CHANGE, Step.WORKSPACE_ROLE, "Viewer",
     "Fabric shows it the workspace, so it has a role there, and every higher one may write."),
    (_Came.REFUSED, _Shown.ITEM, _CHANGE, Step.ITEM_PERMISSION, None,
     "It has no role in the workspace. The item is shared with it, and without Write."),
    (_Came.UNTRIED, _Shown.ROLES, _CHANGE, Step.WORKSPACE_ROLE, None,
     "The role Member or Admin allows it, but the store did not do a read just now."),
    (_Came.UNTRIED, _Shown.WORKSPACE, _CHANGE, Step.WORKSPACE_ROLE, None,
     "It has a role in the workspace. Contributor may; Viewer may not, unless a data access role lets it write."),
    (_Came.UNTRIED, _Shown.ITEM, _CHANGE, Step.ITEM_PERMISSION, None,
     "The item is shared with it. The permission Write of the item, or a data access role, may let it write."),
    (_Came.UNTRIED, _ANY, _CHANGE, Step.PROBE, None, ""),
    (~_Came.UNTRIED, _ANY, _ALL, Step.PROBE, None, "{said}"),
)  # fmt: skip
# What a read tells of the rights that were not tried.
_IMPLIED = {(_Came.DONE, _Shown.ROLES): _Came.DONE, (_Came.REFUSED, _Shown.NOTHING): _Came.REFUSED}
_Tries = Mapping[Right, tuple[_Came, str]]
"""What came of trying each right, and the store's words."""


@attrs.frozen
class AccessRequest:
    """Who is asked about a table.

    :param address: of the table.
    :param store: opens a store at an address.
    :param fabric: Fabric's REST; ``None`` if it is not to be asked.
    :param silent: why it is not asked; empty if it is.
    """

    address: TableAddress
    store: Callable[[TableAddress], Store]
    fabric: Fabric | None = None
    silent: str = ""


def open_asked(
    address: TableAddress, credentials: Credentials | None, patience: float, fabric_api: str | None = None
) -> AccessRequest:
    """Return who is asked about a table: its store, and for one in OneLake Fabric's REST too.

    :param address: of the table.
    :param credentials: how to sign in. Default: what the environment of this process offers.
    :param patience: seconds for which a request is sent again.
    :param fabric_api: the address of Fabric's REST. Default: Fabric's own, unless the storage endpoint is another one.
    """

    def store(at: TableAddress) -> Store:
        return open_store(at, credentials, patience)

    if not address.kind.in_fabric:
        return AccessRequest(address, store)
    endpoint = credentials.endpoint if credentials is not None else None
    if endpoint is not None and fabric_api is None:
        return AccessRequest(
            address, store, silent="The connection has an endpoint of its own, and no `fabric_api` beside it."
        )
    try:
        return AccessRequest(address, store, open_fabric(credentials, fabric_api or API, patience))
    except CredentialsError as error:
        return AccessRequest(address, store, silent=f"Fabric's REST was not asked: {error}")


def check_access(asked: AccessRequest) -> AccessReport:
    """Say what the identity that signs in may do with a table, and which step decided.

    Scratch objects are put below the table and deleted, in about ten requests. In OneLake, Fabric's REST is asked too:
    what it shows this identity, by at most four, and which shortcuts are on the way, by one for each folder.

    :param asked: who is asked.
    """
    return _report(asked, _probe, "a probe")


def look_up_access(asked: AccessRequest) -> AccessReport:
    """Say what the identity that signs in may do with a table, as far as that is told by reading alone.

    Nothing is written. It takes as many requests to Fabric as :func:`check_access`, on each side of a shortcut. Where
    only a probe could tell, a right is unknown.

    :param asked: who is asked.
    """
    return _report(asked, _read, "a read of the table's log")


# -- what came of a try ------------------------------------------------------------------------------------------------


def _probe(store: Store, name: str) -> _Tries:
    """Try each right, by reading what need not be there, and by putting and deleting a scratch object."""
    read, path = _tried(lambda: store.get(_ANY_OBJECT)), f"{SCRATCH}/{uuid.uuid4()}"
    found = {each.doing: _came(each.error, each.text) for each in reversed(problems_of(store, path, name))}
    if read[0] is _Came.DONE:
        read = found.get("read") or found.get("list") or read
    write = found.get("write", (_Came.DONE, ""))
    if write[0] is not _Came.DONE:
        # There is nothing to delete, so only a refusal tells something.
        delete = _tried(lambda: store.delete(path), "There was nothing to delete, as nothing could be written.")
        return {Right.READ: read, Right.WRITE: write, Right.COMMIT: write, Right.DELETE: delete}
    commit, delete = found.get("commit", write), found.get("delete", write)
    return {Right.READ: read, Right.WRITE: write, Right.COMMIT: commit, Right.DELETE: delete}


def _read(store: Store, name: str) -> _Tries:
    """Try to read, and nothing else."""
    return {Right.READ: _tried(lambda: store.get(_ANY_OBJECT)), **dict.fromkeys(_CHANGE, (_Came.UNTRIED, ""))}


def _tried(trying: Callable[[], object], not_known: str = "") -> tuple[_Came, str]:
    """Try something. It is no error that what is asked for is not there.

    :param not_known: why nothing is known if it was done. Default: it is known then.
    """
    try:
        trying()
    except ObjectNotFoundError:
        pass
    except OneLakeError as error:
        return _came(error, str(error))
    return (_Came.SILENT if not_known else _Came.DONE), not_known


def _came(error: OneLakeError | None, said: str) -> tuple[_Came, str]:
    return (_Came.SILENT if isinstance(error, TransientError) else _Came.REFUSED), said


# -- which step decided ------------------------------------------------------------------------------------------------


def _report(asked: AccessRequest, trying: Callable[[Store, str], _Tries], by: str) -> AccessReport:
    """Say of each right which step decided.

    :param trying: tries the rights of a store, which it is given with what messages call it.
    :param by: how people are told that it was found out.
    """
    address, fabric, notes = asked.address, asked.fabric, [asked.silent]
    tried = trying(asked.store(address), str(address))
    followed, unclear, there = FollowedShortcuts(address), None, None

    def side(address: TableAddress, tried: _Tries) -> _Side:
        shown, note = (_Shown.NO_ANSWER, "") if fabric is None else _shown(fabric, address)
        notes.append(note)
        return _Side(address, tried, shown, f"{by}{'' if shown is _Shown.NO_ANSWER else _AND_SHOWN}")

    own = side(address, tried)
    if fabric is not None and own.shown not in _Shown.NOTHING | _Shown.NO_ANSWER:
        try:
            followed = follow(fabric, address)
        except ShortcutError as error:
            unclear = str(error)
        except OneLakeError as error:
            notes.append(f"Whether shortcuts are on the way is not known: {error}")
    came = {each for each, _ in tried.values()}
    if followed.address != address and came & {_Came.REFUSED, _Came.UNTRIED}:
        behind = trying(asked.store(followed.address), str(followed.address)) if _Came.REFUSED in came else tried
        there = side(followed.address, behind)
    decisions = tuple(_decide(right, own, there, followed.read_only, unclear) for right in Right)
    return AccessReport(str(address), decisions, tuple(dict.fromkeys(filter(None, notes))))


@attrs.frozen
class _Side:
    """A folder on this side of a shortcut, or on the other one.

    :param address: of the folder.
    :param tried: what came of trying each right there.
    :param shown: what Fabric shows of it.
    :param found: how all of it was found out, for people.
    """

    address: TableAddress
    tried: _Tries
    shown: _Shown
    found: str

    def decide(self, right: Right, *, alone: bool = False) -> Decision:
        """Look up which step decided.

        :param alone: whether no shortcut is on the way, so that it is this very folder that refuses to be written.
        """
        came, said = self.tried[right]
        if came is _Came.UNTRIED:
            came = _IMPLIED.get((self.tried[Right.READ][0], self.shown), came)
        if alone and came is _Came.DONE and self.tried[Right.WRITE][0] is _Came.REFUSED:
            came = _Came.READ
        step, name, why = next(row[3:] for row in _TABLE if came in row[0] and self.shown in row[1] and right in row[2])
        ask_for = None
        if came is _Came.REFUSED and self.shown is _Shown.NO_ANSWER:
            ask_for = f"the right to {right} there; the store's answer names it"
        elif came is _Came.REFUSED and self.shown is not _Shown.ROLES:
            ask_for = _to_ask_for(right, self.address.authority, self.address.path.partition("/")[2])
        why = why.format(said=said or "The store did it.", workspace=self.address.authority)
        if came is _Came.UNTRIED:
            why = f"{why} {_ONLY_A_PROBE}".strip()
        allowed = True if came in _DONE else False if came is _Came.REFUSED else None
        return Decision(right=right, allowed=allowed, step=step, name=name, why=why, found=self.found, ask_for=ask_for)


def _decide(right: Right, own: _Side, there: _Side | None, read_only: str | None, unclear: str | None) -> Decision:
    """Say which step decided about a right: on this side of a shortcut, at its target, or the shortcut itself.

    :param read_only: why nothing is written through it; ``None`` if something is.
    :param unclear: what is wrong with it, such as that its target is not shown; ``None`` if nothing is.
    """
    found, came = own.decide(right, alone=there is None and unclear is None), own.tried[right][0]
    if came not in _OPEN:
        return found
    if read_only is not None and right is not Right.READ:
        ask_for = "nothing: write the table by its own address, with a connection of that store"
        step = Step.SHORTCUT_TARGET
        return Decision(right=right, allowed=False, step=step, why=read_only, found=own.found, ask_for=ask_for)
    if unclear is not None:
        refused = came is _Came.REFUSED
        return Decision(
            right=right,
            allowed=False if refused else None,
            step=Step.SHORTCUT_TARGET,
            why=unclear if refused else f"{unclear} {_ONLY_A_PROBE}",
            found=own.found,
            ask_for=f"the right to {right} on both of its sides" if refused else None,
        )
    target = there.decide(right) if there is not None else found
    if there is None or target.allowed or (target.allowed is None and found.allowed is False):
        return found
    why = (
        f"The shortcut leads to {there.address}, and both sides must allow it. There, the {target.decided} decides: "
        f"{target.why}"
    )
    return attrs.evolve(target, step=Step.SHORTCUT_TARGET, name=None, why=why)


def _to_ask_for(right: Right, workspace: str, path: str) -> str:
    """Say what to ask an administrator for.

    :param path: in the item.
    """
    contributor = f"the role Contributor in the workspace {workspace}"
    if right is Right.READ:
        return f"a data access role that grants Read on /{path} without rules on rows and columns, or {contributor}"
    return f"{contributor}, or the permission Write of the item, or a data access role that grants ReadWrite on /{path}"


def _shown(fabric: Fabric, address: TableAddress) -> tuple[_Shown, str]:
    """Find out what Fabric shows the identity of a table's workspace and item; where it does not answer, say why."""
    try:
        folder = fabric.folder(address)
        workspace = f"/workspaces/{folder.workspace}"
        for path, shown in (
            (f"{workspace}/roleAssignments", _Shown.ROLES),
            (workspace, _Shown.WORKSPACE),
            (f"{workspace}/items/{folder.item}", _Shown.ITEM),
            # Who may list workspaces may use the REST at all, so it shows nothing because there are no rights.
            ("/workspaces", _Shown.NOTHING),
        ):
            status = fabric.look(path, folder).status_code
            if status == _OK:
                return shown, ""
            if status not in (_FORBIDDEN, _ABSENT):
                break
    except AddressError:
        # It is named, and neither among the workspaces nor among the items that Fabric lists.
        return _Shown.NOTHING, ""
    except OneLakeError as error:
        return _Shown.NO_ANSWER, f"Fabric's REST does not say what this identity may see: {error}"
    return _Shown.NO_ANSWER, f"Fabric's REST takes no requests of this identity: it answered {status} to GET {path}."
