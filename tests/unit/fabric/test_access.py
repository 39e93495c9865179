"""A check of access says what the identity that signs in may do, and which step decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pytest

from airflow_provider_onelake.fabric.access import AccessRequest, check_access, look_up_access, open_asked
from airflow_provider_onelake.fabric.access_report import AccessReport, Right, Step
from airflow_provider_onelake.storage.addresses import TableAddress
from local_onelake.shortcuts import SHORTCUTS
from tests.support.onelake import (
    BY_GUIDS,
    LAKEHOUSE_GUID,
    OTHER_TOKEN,
    WORKSPACE_GUID,
    OneLake,
    RefusalError,
)
from tests.support.rights import DEFAULT_READER, GOLD_GUID, TABLE, Rights, data_role, rows_of
from tests.support.stores import Broken, refuse, silent

READER = data_role("readers", f"/{TABLE}")
WRITER = data_role("writers", "/Tables", actions=["ReadWrite"])
BY_ROWS = data_role("byRows", "*", constraints=rows_of(TABLE))
ALL_RIGHTS = (True, True, True, True)
READS = (True, False, False, False)
NONE = (False, False, False, False)
READS_KNOWN = (True, None, None, None)
NO_READ_KNOWN = (False, None, None, None)
May = tuple[bool | None, ...]
Decided = tuple[str, str | None]
Found = tuple[May, Decided, Decided]
Roles = Sequence[dict[str, Any]]


class Who(NamedTuple):
    """What an identity has."""

    role: str | None
    permissions: Sequence[str] = ()
    data_roles: Sequence[dict[str, Any]] = ()


@contextmanager
def nothing_left_there(server: OneLake, most: int) -> Iterator[list[Any]]:
    """What is asked meanwhile, which is no more than this and leaves nothing behind."""
    before = server.blobs
    server.asked.clear()
    yield server.asked
    assert server.blobs == before
    assert len(server.asked) <= most


def asked(server: OneLake, path: str = TABLE) -> AccessRequest:
    api = f"{server.url}/api.fabric.microsoft.com/v1"
    return open_asked(TableAddress.parse(f"{BY_GUIDS}/{path}"), server.credentials(OTHER_TOKEN), 1.0, api)


def leads_out(server: OneLake, kind: str) -> None:
    """Make ``Tables/out`` a shortcut to a store of this kind outside of OneLake."""
    target = {"location": "https://a.b", "subpath": "/t", "connectionId": WORKSPACE_GUID}
    with server.served.shortcuts._kept.changing() as document:
        name = f"{kind[0].lower()}{kind[1:]}"
        document.setdefault(SHORTCUTS, {}).setdefault(LAKEHOUSE_GUID, {})["Tables/out"] = {"type": kind, name: target}


def without_another_try(found: AccessRequest) -> AccessRequest:
    """Who is asked, without another try."""
    assert found.fabric is not None
    return attrs.evolve(found, fabric=attrs.evolve(found.fabric, patience=0))


def allowed(report: AccessReport) -> tuple[bool | None, ...]:
    return tuple(each.allowed for each in report.decisions)


def steps(report: AccessReport) -> tuple[Decided, ...]:
    """What decided about reading and about a commit."""
    return tuple((str(report[right].step), report[right].name) for right in (Right.READ, Right.COMMIT))


def found(report: AccessReport) -> Found:
    """What is allowed, and what decided about reading and about a commit."""
    reading, committing = steps(report)
    return allowed(report), reading, committing


VIEWER = ("workspace role", "Viewer")
ITEM = ("item permission", None)
BY_ROLE = ("data access role", None)
PROBE = ("probe", None)
NO_ROLE = ("workspace role", None)
MEMBER = ("workspace role", "Member or Admin")


# Of who signs in: what a probe finds, what reading alone finds, and which step refuses a load.
SIGNED_IN = pytest.mark.parametrize(
    ("who", "probed", "read"),
    [
        pytest.param(Who("Admin"), (ALL_RIGHTS, MEMBER, MEMBER), (ALL_RIGHTS, MEMBER, MEMBER), id="Admin"),
        pytest.param(
            Who("Member", (), [BY_ROWS]), (ALL_RIGHTS, MEMBER, MEMBER), (ALL_RIGHTS, MEMBER, MEMBER), id="Member"
        ),
        pytest.param(Who("Contributor"), (ALL_RIGHTS, PROBE, PROBE), (READS_KNOWN, PROBE, NO_ROLE), id="Contributor"),
        pytest.param(Who("Viewer"), (NONE, BY_ROLE, VIEWER), (NO_READ_KNOWN, BY_ROLE, NO_ROLE), id="Viewer"),
        pytest.param(
            Who("Viewer", (), [READER]), (READS, BY_ROLE, VIEWER), (READS_KNOWN, PROBE, NO_ROLE), id="who reads"
        ),
        pytest.param(
            Who("Viewer", (), [WRITER]),
            (ALL_RIGHTS, PROBE, PROBE),
            (READS_KNOWN, PROBE, NO_ROLE),
            id="who writes",
        ),
        pytest.param(
            Who("Viewer", (), [BY_ROWS]),
            (NONE, BY_ROLE, VIEWER),
            (NO_READ_KNOWN, BY_ROLE, NO_ROLE),
            id="by rows",
        ),
        pytest.param(
            Who(None, ["ReadAll"], [DEFAULT_READER]),
            (READS, BY_ROLE, ITEM),
            (READS_KNOWN, PROBE, ITEM),
            id="item",
        ),
        pytest.param(Who(None, ["Read"]), (NONE, BY_ROLE, ITEM), (NO_READ_KNOWN, BY_ROLE, ITEM), id="item Read"),
        pytest.param(Who(None, ["Write"]), (ALL_RIGHTS, PROBE, PROBE), (READS_KNOWN, PROBE, ITEM), id="item Write"),
        pytest.param(Who(None, (), [WRITER]), (NONE, NO_ROLE, NO_ROLE), (NONE, NO_ROLE, NO_ROLE), id="nothing"),
    ],
)


@SIGNED_IN
def test_who_signs_in_is_told_by_the_store_and_by_what_fabric_shows(
    server: OneLake, rights: Rights, who: Who, probed: Found, read: Found
) -> None:
    rights.set(*who)
    with nothing_left_there(server, most=18):
        report = check_access(asked(server))
    assert found(report) == probed
    assert report.notes == () or probed[0] == NONE
    for decision in report.decisions:
        assert (decision.ask_for is None) is bool(decision.allowed)
        assert decision.why.endswith(".")


def test_a_viewer_is_told_what_to_ask_for(server: OneLake, rights: Rights) -> None:
    rights.set("Viewer", data_roles=[READER])
    decision = check_access(asked(server))[Right.WRITE]
    assert str(decision) == (
        "write: no, by the workspace role Viewer. Fabric shows it the workspace, so it has a role there, and every "
        f"higher one may write. Ask for the role Contributor in the workspace {WORKSPACE_GUID}, or the permission "
        f"Write of the item, or a data access role that grants ReadWrite on /{TABLE}. (Found by a probe, and what "
        "Fabric's REST shows this identity.)"
    )


OWN = data_role("own", "/Tables/link", actions=["ReadWrite"])
ONLY_READS = data_role("own", "/Tables")
ALL_OF_IT = data_role("readers", "/Tables")
TARGET = ("shortcut's target", None)


THROUGH_A_SHORTCUT = pytest.mark.parametrize(
    ("own", "target", "probed", "read"),
    [
        pytest.param([OWN], [WRITER], (ALL_RIGHTS, PROBE, PROBE), (READS_KNOWN, PROBE, TARGET), id="both allow it"),
        pytest.param(
            [OWN], [ALL_OF_IT], (READS, PROBE, TARGET), (READS_KNOWN, PROBE, TARGET), id="the target forbids it"
        ),
        pytest.param(
            [OWN], [READER], (READS, PROBE, TARGET), (READS_KNOWN, PROBE, TARGET), id="where it leads is hidden"
        ),
        pytest.param([OWN], [BY_ROWS], (NONE, TARGET, TARGET), (NO_READ_KNOWN, TARGET, TARGET), id="rows are hidden"),
        pytest.param(
            [ONLY_READS], [WRITER], (READS, PROBE, VIEWER), (READS_KNOWN, PROBE, TARGET), id="own side forbids"
        ),
        pytest.param(
            [ONLY_READS], [ALL_OF_IT], (READS, PROBE, TARGET), (READS_KNOWN, PROBE, TARGET), id="both forbid it"
        ),
    ],
)


@THROUGH_A_SHORTCUT
def test_it_says_which_side_of_a_shortcut_decides(
    server: OneLake, rights: Rights, own: Roles, target: Roles, probed: Found, read: Found
) -> None:
    rights.set("Viewer", data_roles=own)
    rights.data_roles(*target, item=GOLD_GUID)
    report = check_access(asked(server, path="Tables/link/t"))
    assert found(report) == probed
    if TARGET in probed:
        first = report.refused[0]
        assert f"{GOLD_GUID}/{TABLE}" in first.why or "does not show this identity where the shortcut" in first.why
        assert first.ask_for is not None


def test_a_store_that_onelake_only_reads_is_the_shortcuts_matter(server: OneLake, rights: Rights) -> None:
    leads_out(server, "AmazonS3")
    rights.set("Viewer", data_roles=[WRITER])
    report = check_access(asked(server, path="Tables/out"))
    assert report[Right.WRITE].allowed is False
    assert report[Right.WRITE].step is Step.SHORTCUT_TARGET
    assert "OneLake only reads" in report[Right.WRITE].why


# -- where the store alone can say it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("otherwise", "may"),
    [
        pytest.param({}, ALL_RIGHTS, id="sound"),
        pytest.param({"create": refuse}, (True, False, False, None), id="no right to write"),
        pytest.param({"create": refuse, "delete": refuse}, READS, id="no right to change"),
        pytest.param({"get": refuse}, (False, True, True, True), id="no right to read"),
        pytest.param({"list": refuse}, (False, True, True, True), id="no right to list"),
        pytest.param({"delete": refuse}, (True, True, True, False), id="no right to delete"),
        pytest.param({"create": silent}, (True, None, None, None), id="no answer to a put"),
        pytest.param({"get": silent}, (None, True, True, True), id="no answer to a read"),
    ],
)
def test_of_any_other_store_the_probe_alone_says_it(
    tmp_path: Path, otherwise: dict[str, Any], may: tuple[bool | None, ...]
) -> None:
    address = TableAddress.parse(str(tmp_path))
    report = check_access(AccessRequest(address, lambda _: Broken(tmp_path, **otherwise)))
    assert (allowed(report), {each.step for each in report.decisions}) == (may, {Step.PROBE})
    assert report.notes == ()


@pytest.mark.parametrize("fault", ["fabric is away", "fabric refuses the sign-in", "fabric is not to be asked"])
def test_without_fabric_the_store_alone_says_it_and_a_note_says_why(
    server: OneLake, rights: Rights, fault: str
) -> None:
    rights.set("Viewer", data_roles=[READER])
    to_ask = without_another_try(asked(server))
    if fault == "fabric is not to be asked":
        to_ask = open_asked(to_ask.address, server.credentials(OTHER_TOKEN), 1.0)
    else:
        status = 503 if fault == "fabric is away" else 401
        server.faults = lambda seen: RefusalError(status, "No", "no") if seen.path.startswith("/v1/") else None
    report = check_access(to_ask)
    assert (allowed(report), steps(report)) == (READS, (PROBE, PROBE))
    assert report.notes


@pytest.mark.parametrize(
    ("check", "may", "why"),
    [(check_access, NONE, "CapacityNotActive"), (look_up_access, NO_READ_KNOWN, "did not do a read just now")],
)
def test_a_store_that_refuses_who_may_write_points_elsewhere(
    server: OneLake, rights: Rights, check: Any, may: May, why: str
) -> None:
    rights.set("Member")
    server.faults = lambda seen: (
        None if seen.path.startswith("/v1/") else RefusalError(403, "CapacityNotActive", "The capacity is paused.")
    )
    report = check(asked(server))
    assert allowed(report) == may
    assert "whether the capacity is paused" in report[Right.READ].why
    assert why in report[Right.WRITE].why
