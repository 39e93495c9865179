"""What an identity may do with a table, and which step decided.

The identity that signs in is told most by the store itself: a scratch object is put create-only beside the table, read
and deleted. Roles of a workspace are shown to its Members only, so that a Contributor cannot look up its own. But what
Fabric's REST shows an identity at all, together with what the store has refused, tells which step has refused it. For
another principal the store cannot be tried, and roles are read (:mod:`~airflow_provider_onelake.storage.granted`).

A page that is only looked at must not write. So it asks by reading alone, and is told less. Before a load, OneLake is
asked what it says of the identity's rights, and only where writing is not among them, more is asked.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    AddressError,
    CredentialsError,
    ObjectNotFoundError,
    OneLakeError,
    ShortcutError,
    TransientError,
)
from airflow_provider_onelake.storage.access_report import AccessReport, Decision, Right, Step
from airflow_provider_onelake.storage.fabric import API, Fabric, Folder, open_fabric
from airflow_provider_onelake.storage.granted import Granted, to_ask_for
from airflow_provider_onelake.storage.preflight import SCRATCH, Problem, problems_in
from airflow_provider_onelake.storage.shortcuts import Followed, follow
from airflow_provider_onelake.storage.stores import open_store

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials
    from airflow_provider_onelake.storage.stores import Store

# Any path below a table; it does not matter whether there is such an object.
_ANY_OBJECT = "_delta_log/_last_checkpoint"
_VERSION = "2023-11-03"
_OK, _FORBIDDEN, _ABSENT = 200, 403, 404
_REFUSED = (_FORBIDDEN, _ABSENT)
_TRIED = "a probe: a scratch object beside the table"
_TRIED_AND_SHOWN = "a probe, and what Fabric's REST shows this identity"
_BY_READING = "a read of the table's log"
_READ_AND_SHOWN = "a read of the table's log, and what Fabric's REST shows this identity"
_NOTHING_WRITTEN = "what OneLake says of its rights, a delete of nothing, and what Fabric's REST shows this identity"
_ONLY_A_PROBE = "Only a probe, which writes a scratch object beside the table, could tell."
_CHANGING = (Right.WRITE, Right.COMMIT, Right.DELETE)


@attrs.frozen
class Asked:
    """Who is asked about a table.

    :param address: of the table.
    :param store: opens a store at an address.
    :param fabric: Fabric's REST; ``None`` if it is not to be asked.
    :param security: OneLake's own endpoint, which says what a principal may read; ``None`` likewise.
    :param silent: why neither is asked; empty if they are.
    """

    address: TableAddress
    store: Callable[[TableAddress], Store]
    fabric: Fabric | None = None
    security: Fabric | None = None
    silent: str = ""


class _Seen(Enum):
    """What Fabric's REST shows the identity that signs in."""

    ROLES = "the roles of the workspace, so it is Member or Admin"
    WORKSPACE = "the workspace, so it has a role there"
    ITEM = "the item but not the workspace, so the item is shared with it"
    NOTHING = "neither the workspace nor the item"
    UNKNOWN = "no answer"


def open_asked(
    address: TableAddress, credentials: Credentials | None, patience: float, fabric_api: str | None = None
) -> Asked:
    """Return who is asked about a table: its store, and for one in OneLake Fabric's REST too.

    :param address: of the table.
    :param credentials: how to sign in. Default: what the environment of this process offers.
    :param patience: seconds for which a request is sent again.
    :param fabric_api: the address of Fabric's REST. Default: Fabric's own, unless the storage endpoint is another one.
    """

    def store(at: TableAddress) -> Store:
        return open_store(at, credentials, patience)

    if not address.kind.in_fabric:
        return Asked(address, store)
    from airflow_provider_onelake.storage.azure import SCOPE

    endpoint = credentials.endpoint if credentials is not None else None
    if endpoint is not None and fabric_api is None:
        return Asked(address, store, silent="The connection has an endpoint of its own, and no `fabric_api` beside it.")
    try:
        fabric = open_fabric(credentials, fabric_api or API, patience)
        security = open_fabric(credentials, address.kind.security_endpoint(address, endpoint), patience, SCOPE)
    except CredentialsError as error:
        return Asked(address, store, silent=f"Fabric's REST was not asked: {error}")
    return Asked(address, store, fabric, security)


def check_access(asked: Asked, principal: str | None = None) -> AccessReport:
    """Say what an identity may do with a table, and which step decided.

    For the identity that signs in, scratch objects are put below the table and deleted, in about ten requests; nothing
    of the table is changed. In OneLake, Fabric's REST is asked too: which shortcuts are on the way, by a request for
    each folder, and what it shows this identity, by at most four.

    :param asked: who is asked.
    :param principal: the object id of another identity, by its roles alone: nothing is written. The identity that signs
        in must be a Member of the workspace. Default: the identity that signs in.
    :raises AddressError: another identity is asked about, and the table is not in OneLake or this one does not see it.
    :raises CredentialsError: another identity is asked about, and Fabric's REST cannot be asked.
    :raises StoreUnavailableError: another identity is asked about, and Fabric does not answer.
    """
    return _of_caller(asked) if principal is None else _of_principal(asked, principal)


def look_up_access(asked: Asked) -> AccessReport:
    """Say what the identity that signs in may do with a table, as far as that is told by reading alone.

    Nothing is written. One object of the table is asked for, or two through a shortcut. In OneLake, Fabric's REST is
    asked what it shows this identity, by at most four requests on each side, and which shortcuts are on the way, by one
    for each folder. Where only a probe could tell, a right is unknown: :func:`check_access` makes that probe.

    :param asked: who is asked.
    """
    address, name = asked.address, str(asked.address)
    reading = _tried_to_read(asked, address)
    if asked.fabric is None:
        read = attrs.evolve(_by_probe(Right.READ, reading), found=_BY_READING)
        others = (_only_a_probe(right, Step.PROBE, "", _BY_READING) for right in _CHANGING)
        return AccessReport(name, None, (read, *others), (asked.silent,) if asked.silent else ())
    seen, own_note = _seen(asked.fabric, address)
    followed, unclear, note = Followed(address), None, None
    if seen not in (_Seen.UNKNOWN, _Seen.NOTHING):
        followed, unclear, note = _followed(asked.fabric, address)
    there, its_note = seen, None
    if followed.address != address:
        there, its_note = _seen(asked.fabric, followed.address)
    decisions = [_by_reading(asked, reading, (seen, there), followed, unclear)]
    decisions += [_by_what_is_shown(right, reading, (seen, there), followed, unclear, address) for right in _CHANGING]
    notes = dict.fromkeys(each for each in (own_note, note, its_note) if each)
    return AccessReport(
        name, None, tuple(attrs.evolve(each, found=_READ_AND_SHOWN) for each in decisions), tuple(notes)
    )


def refused_before_a_load(asked: Asked) -> AccessReport | None:
    """Say why the identity that signs in may certainly not load a table in OneLake. Nothing is written.

    OneLake is asked which rights this identity has at the table's folder, by one request, or two if there is none yet.
    Where writing is among them, or OneLake does not say, nothing else is asked. What OneLake says may leave out what a
    data access role grants. So where writing is not among them, the store is asked for an object of the table, and to
    delete one that cannot be there, as OneLake knows no right to delete beside that to write. Only what it refuses then
    counts. If it refuses something, Fabric's REST is asked which step decided, as for :func:`check_access`. Of a store
    outside of OneLake, behind a shortcut, nothing is said: it may have other rights.

    :param asked: who is asked.
    :returns: the report, whose refusals are certain; ``None`` if nothing is refused, or if it is not known which step
        decided. Then the load's own first write tells.
    :raises CredentialsError: the store cannot be opened.
    """
    if asked.fabric is None or asked.security is None or _rights(asked.security, asked.address) is not False:
        return None
    tried = _without_writing(asked.store(asked.address), str(asked.address))
    if all(each.allowed is not False for each in tried.values()):
        return None
    report, followed = _of_tries(asked, asked.fabric, tried, _without_writing)
    outside = bool(followed.links) and followed.links[-1].target is None and followed.read_only is None
    if outside or report.refused[0].step is Step.PROBE:
        return None
    return attrs.evolve(
        report, decisions=tuple(attrs.evolve(each, found=_NOTHING_WRITTEN) for each in report.decisions)
    )


def may_write(acl: str | None) -> bool | None:
    """Return whether the right to write is among those that OneLake says the caller has; ``None`` if it says none.

    :param acl: the header ``x-ms-acl``, which has the caller's permissions as ``rwx``
        (https://learn.microsoft.com/fabric/onelake/onelake-api-parity).
    """
    return None if acl is None else any("w" in entry.rpartition(":")[2] for entry in acl.split(","))


def _rights(security: Fabric, address: TableAddress) -> bool | None:
    """Ask OneLake whether this identity may write; ``None`` if it does not say."""
    top = "/".join(address.path.split("/")[:2])
    for path in (address.path, top):
        asking = f"/{quote(address.authority)}/{quote(path)}?action=getAccessControl"
        try:
            answer = security.look(asking, address, "HEAD", **{"x-ms-version": _VERSION})
        except OneLakeError:
            return None
        if answer.status_code != _ABSENT:
            break
    if answer.status_code == _FORBIDDEN:
        return False
    return may_write(answer.headers.get("x-ms-acl")) if answer.status_code == _OK else None


def _tried_to_read(asked: Asked, address: TableAddress) -> _Outcome:
    return _Outcome.of(_error_of(lambda: asked.store(address).get(_ANY_OBJECT)))


def _by_reading(
    asked: Asked, reading: _Outcome, seen: tuple[_Seen, _Seen], followed: Followed, unclear: str | None
) -> Decision:
    """Say what the store's answer to a read tells about reading.

    :param seen: what Fabric shows on this side, and on that of a shortcut's target.
    """
    own, there = seen
    if reading.allowed is False and unclear is not None:
        return attrs.evolve(_by_probe(Right.READ, reading), step=Step.SHORTCUT_TARGET, why=unclear)
    if reading.allowed is False and followed.address != asked.address:
        at_target = _tried_to_read(asked, followed.address)
        if at_target.allowed is False:
            return _by_target(_explained(Right.READ, at_target, there, followed.address), followed.address)
    found = _explained(Right.READ, reading, own, asked.address)
    if reading.allowed and own not in (_Seen.ROLES, _Seen.UNKNOWN):
        why = "The store did it. Which role or permission allows it, Fabric shows to Members only."
        return attrs.evolve(found, why=why)
    return found


def _by_what_is_shown(
    right: Right,
    reading: _Outcome,
    seen: tuple[_Seen, _Seen],
    followed: Followed,
    unclear: str | None,
    address: TableAddress,
) -> Decision:
    """Say what is known of a right to change something, if nothing is tried but reading.

    :param seen: what Fabric shows on this side, and on that of a shortcut's target.
    """
    own, there = seen
    if followed.read_only is not None:
        return _read_only(right, followed.read_only)
    if unclear is not None:
        return _only_a_probe(right, Step.SHORTCUT_TARGET, unclear)
    found = _shown(right, reading, own, address)
    if found.allowed is False or followed.address == address:
        return found
    target = _shown(right, reading, there, followed.address)
    return found if target.allowed else _by_target(target, followed.address)


def _shown(right: Right, reading: _Outcome, seen: _Seen, address: TableAddress) -> Decision:
    """Say what tells about a right to change something on one side, if nothing is tried but reading."""
    if seen is _Seen.ROLES and reading.allowed:
        return _explained(right, _Outcome(True), seen, address)
    if seen is _Seen.NOTHING and reading.allowed is False:
        return _explained(right, _Outcome(False), seen, address)
    step, why = {
        _Seen.ROLES: (
            Step.WORKSPACE_ROLE,
            "The role Member or Admin allows it, but the store did not do a read just now.",
        ),
        _Seen.WORKSPACE: (
            Step.WORKSPACE_ROLE,
            "It has a role in the workspace. Contributor may; Viewer may not, unless a data access role lets it write.",
        ),
        _Seen.ITEM: (
            Step.ITEM_PERMISSION,
            "The item is shared with it. The permission Write of the item, or a data access role, may let it write.",
        ),
    }.get(seen, (Step.PROBE, ""))
    return _only_a_probe(right, step, why)


def _only_a_probe(right: Right, step: Step, why: str, found: str = _READ_AND_SHOWN) -> Decision:
    said = f"{why} {_ONLY_A_PROBE}".strip()
    return Decision(right=right, allowed=None, step=step, why=said, found=found)


def _of_principal(asked: Asked, principal: str) -> AccessReport:
    if not asked.address.kind.in_fabric:
        raise AddressError(
            f"No roles in Fabric say what {principal} may do with {asked.address}, which is not in OneLake. Nothing "
            "was asked: check with the connection of that identity itself."
        )
    if asked.fabric is None:
        raise CredentialsError(f"What {principal} may do cannot be looked up. {asked.silent}")
    followed = follow(asked.fabric, asked.address)
    own = asked.fabric.folder(asked.address)
    below = [link.target for link in followed.links if link.target is not None]
    # Each target as deep as the table: a shortcut may be a folder above it.
    folders, path = [own], own.path
    for link, target in zip(followed.links, below, strict=False):
        path = f"{target.path}{path[len(link.at.path) :]}"
        folders.append(attrs.evolve(target, path=path))
    steps = [Granted(asked.fabric, asked.security, folder, principal) for folder in folders]
    decisions = []
    for right in Right:
        if right is not Right.READ and followed.read_only is not None:
            decisions.append(_read_only(right, followed.read_only))
            continue
        found = steps[0].decide(right)
        for step in steps[1:]:
            if found.allowed is True:
                found = _by_target(step.decide(right), step.folder)
        decisions.append(found)
    return AccessReport(str(asked.address), principal, tuple(decisions))


def _of_caller(asked: Asked) -> AccessReport:
    name = str(asked.address)
    tried = _probe(asked.store(asked.address), name)
    if asked.fabric is None:
        notes = (asked.silent,) if asked.silent else ()
        return AccessReport(name, None, tuple(_by_probe(right, tried[right]) for right in Right), notes)
    return _of_tries(asked, asked.fabric, tried, _probe)[0]


def _of_tries(
    asked: Asked,
    fabric: Fabric,
    tried: Mapping[Right, _Outcome],
    trying: Callable[[Store, str], Mapping[Right, _Outcome]],
) -> tuple[AccessReport, Followed]:
    """Say which step decided, by what the store said when each right was tried; and where the address leads.

    :param trying: tries each right again, at the target of a shortcut.
    """
    followed, unclear, note = _followed(fabric, asked.address)
    behind: Mapping[Right, _Outcome] = {}
    if followed.address != asked.address and any(each.allowed is False for each in tried.values()):
        behind = trying(asked.store(followed.address), str(followed.address))
    may_only_read = tried[Right.WRITE].allowed is False and not behind and unclear is None
    own, own_note = _seen(fabric, asked.address)
    there = (_Seen.UNKNOWN, None) if not behind else _seen(fabric, followed.address)
    decisions = []
    for right in Right:
        outcome = tried[right]
        if outcome.allowed is False and right is not Right.READ and followed.read_only is not None:
            decisions.append(_read_only(right, followed.read_only))
        elif outcome.allowed is False and unclear is not None:
            found = attrs.evolve(_by_probe(right, outcome), step=Step.SHORTCUT_TARGET, found=_TRIED_AND_SHOWN)
            decisions.append(attrs.evolve(found, why=unclear, ask_for=f"the right to {right} on both of its sides"))
        elif behind and outcome.allowed is False and behind[right].allowed is False:
            found = _explained(right, behind[right], there[0], followed.address)
            decisions.append(_by_target(found, followed.address))
        else:
            decisions.append(_explained(right, outcome, own, asked.address, may_only_read=may_only_read))
    said = dict.fromkeys(each for each in (note, own_note, there[1]) if each)
    return AccessReport(str(asked.address), None, tuple(decisions), tuple(said)), followed


@attrs.frozen
class _Outcome:
    """What the store said when a right was tried.

    :param allowed: ``None`` if that is not known.
    :param said: in its words; empty if it did what was asked.
    """

    allowed: bool | None
    said: str = ""

    @classmethod
    def of(cls, problem: OneLakeError | Problem | None) -> _Outcome:
        error = problem.error if isinstance(problem, Problem) else problem
        if problem is None:
            return cls(True)
        return cls(None if isinstance(error, TransientError) else False, str(problem))


def _probe(store: Store, name: str) -> dict[Right, _Outcome]:
    """Try each right, by reading what need not be there, and by putting and deleting a scratch object."""
    read = _error_of(lambda: store.get(_ANY_OBJECT))
    path = f"{SCRATCH}/{uuid.uuid4()}"
    problems = problems_in(store, path, name)
    first = {problem.doing: problem for problem in reversed(problems)}
    reading = _Outcome.of(read)
    if reading.allowed and ("read" in first or "list" in first):
        reading = _Outcome.of(first.get("read") or first["list"])
    if "write" not in first:
        return {
            Right.READ: reading,
            Right.WRITE: _Outcome(True),
            Right.COMMIT: _Outcome.of(first.get("commit")),
            Right.DELETE: _Outcome.of(first.get("delete")),
        }
    writing = _Outcome.of(first["write"])
    # There is nothing to delete, so only a refusal tells something.
    deleting = _Outcome.of(_error_of(lambda: store.delete(path)))
    if deleting.allowed:
        deleting = _Outcome(None, "There was nothing to delete, as nothing could be written.")
    return {Right.READ: reading, Right.WRITE: writing, Right.COMMIT: writing, Right.DELETE: deleting}


def _without_writing(store: Store, name: str) -> dict[Right, _Outcome]:
    """Try to read, and to delete what cannot be there. What is refused is certain; the rest is not known."""

    def tried(trying: Callable[[], object]) -> _Outcome:
        error = _error_of(trying)
        return _Outcome(False if isinstance(error, AccessDeniedError) else None, str(error or ""))

    reading = tried(lambda: store.get(_ANY_OBJECT))
    changing = tried(lambda: store.delete(f"{SCRATCH}/{uuid.uuid4()}"))
    return {right: reading if right is Right.READ else changing for right in Right}


def _error_of(trying: Callable[[], object]) -> OneLakeError | None:
    try:
        trying()
    except ObjectNotFoundError:
        return None
    except OneLakeError as error:
        return error
    return None


def _followed(fabric: Fabric, address: TableAddress) -> tuple[Followed, str | None, str | None]:
    """Follow the shortcuts on the way to a table.

    :returns: where it leads; what is wrong with a shortcut, such as that its target is not shown; and a note, if it is
        not known whether there is one.
    """
    try:
        return follow(fabric, address), None, None
    except ShortcutError as error:
        return Followed(address), str(error), None
    except OneLakeError as error:
        return Followed(address), None, f"Whether shortcuts are on the way is not known: {error}"


def _seen(fabric: Fabric, address: TableAddress) -> tuple[_Seen, str | None]:
    """Find out what Fabric shows the identity of a table's workspace and item; where it is unknown, say why."""
    try:
        folder = fabric.folder(address)
    except AddressError:
        # It is named, and neither among the workspaces nor among the items that Fabric lists.
        return _Seen.NOTHING, None
    except OneLakeError as error:
        return _Seen.UNKNOWN, f"Fabric's REST does not say what this identity may see: {error}"
    workspace = f"/workspaces/{folder.workspace}"
    asked = {
        f"{workspace}/roleAssignments": _Seen.ROLES,
        workspace: _Seen.WORKSPACE,
        f"{workspace}/items/{folder.item}": _Seen.ITEM,
        # Who may list workspaces may use the REST at all, so it shows nothing because there are no rights.
        "/workspaces": _Seen.NOTHING,
    }
    try:
        for path, seen in asked.items():
            status = fabric.look(path, folder).status_code
            if status == _OK:
                return seen, None
            if status not in _REFUSED:
                break
    except OneLakeError as error:
        return _Seen.UNKNOWN, f"Fabric's REST does not say what this identity may see: {error}"
    return _Seen.UNKNOWN, f"Fabric's REST takes no requests of this identity: it answered {status} to GET {path}."


def _explained(
    right: Right, outcome: _Outcome, seen: _Seen, address: TableAddress, *, may_only_read: bool = False
) -> Decision:
    """Say which step decided, by what the store said and by what Fabric shows the identity.

    :param may_only_read: whether the store refused writes of this identity to this very folder.
    """
    found = _by_probe(right, outcome)
    if outcome.allowed is None or seen is _Seen.UNKNOWN:
        return found
    shown = attrs.evolve(found, found=_TRIED_AND_SHOWN)
    if outcome.allowed:
        if seen is _Seen.ROLES:
            why = "Fabric shows it the roles of the workspace, and who sees them may read and write all of it."
            return attrs.evolve(shown, step=Step.WORKSPACE_ROLE, name="Member or Admin", why=why)
        if right is Right.READ and may_only_read:
            why = "One grants it, as nothing else lets who may not write read. Its name is shown to Members only."
            return attrs.evolve(shown, step=Step.DATA_ACCESS_ROLE, why=why)
        why = (
            "The store did it. The role Contributor, the permission Write of the item, or a data access role with "
            "ReadWrite allows it; which of them, Fabric shows to Members only."
        )
        return attrs.evolve(shown, why=why)
    if seen is _Seen.ROLES:
        why = (
            "The role Member or Admin allows it, and the store refused it nevertheless: look whether the capacity is "
            f"paused, and whether the workspace takes requests from this network. {outcome.said}"
        )
        return attrs.evolve(shown, why=why, ask_for=None)
    asking = attrs.evolve(shown, ask_for=to_ask_for(right, address.authority, address.path.partition("/")[2]))
    if seen is _Seen.NOTHING:
        why = f"The identity has no role in the workspace {address.authority}, and the item is not shared with it."
        return attrs.evolve(asking, step=Step.WORKSPACE_ROLE, why=why)
    if right is Right.READ:
        why = (
            "None that this identity is a member of grants it, or one hides rows or columns of the table, which then "
            "cannot be read by the storage API at all. Which, Fabric shows to Members only."
        )
        return attrs.evolve(asking, step=Step.DATA_ACCESS_ROLE, why=why)
    if seen is _Seen.WORKSPACE:
        why = "Fabric shows it the workspace, so it has a role there, and every higher one may write."
        return attrs.evolve(asking, step=Step.WORKSPACE_ROLE, name="Viewer", why=why)
    why = "It has no role in the workspace. The item is shared with it, and without Write."
    return attrs.evolve(asking, step=Step.ITEM_PERMISSION, why=why)


def _by_probe(right: Right, outcome: _Outcome) -> Decision:
    why = outcome.said or "The store did it."
    ask_for = None if outcome.allowed is not False else f"the right to {right} there; the store's answer names it"
    return Decision(right=right, allowed=outcome.allowed, step=Step.PROBE, why=why, found=_TRIED, ask_for=ask_for)


def _by_target(found: Decision, target: Folder | TableAddress) -> Decision:
    """Say of what was found at the target of a shortcut that it is the target that decided."""
    if found.allowed is True:
        return found
    named = f"{found.step} {found.name}" if found.name else str(found.step)
    why = f"The shortcut leads to {target}, and both sides must allow it. There, the {named} decides: {found.why}"
    return attrs.evolve(found, step=Step.SHORTCUT_TARGET, name=None, why=why)


def _read_only(right: Right, why: str) -> Decision:
    ask_for = "nothing: write the table by its own address, with a connection of that store"
    return Decision(
        right=right, allowed=False, step=Step.SHORTCUT_TARGET, why=why, found=_TRIED_AND_SHOWN, ask_for=ask_for
    )
