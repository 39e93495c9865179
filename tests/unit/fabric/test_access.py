"""A check of access says who may do what and which step decided: of who signs in, and of another principal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pytest

from airflow_provider_onelake.exceptions import AddressError, CredentialsError, StoreUnavailableError
from airflow_provider_onelake.fabric.access import Asked, check_access, look_up_access, open_asked
from airflow_provider_onelake.fabric.access_report import AccessReport, Right, Step
from airflow_provider_onelake.storage.addresses import TableAddress
from local_onelake.shortcuts import SHORTCUTS
from tests.support.onelake import (
    BY_GUIDS,
    LAKEHOUSE_GUID,
    OTHER_TOKEN,
    TOKEN,
    WORKSPACE_GUID,
    OneLake,
    RefusalError,
)
from tests.support.rights import ANN, DEFAULT_READER, GOLD_GUID, TABLE, Rights, columns_of, data_role, rows_of
from tests.support.stores import Broken, refuse, silent

READER = data_role("readers", f"/{TABLE}")
WRITER = data_role("writers", "/Tables", actions=["ReadWrite"])
BY_ROWS = data_role("byRows", "*", constraints=rows_of(TABLE))
BY_COLUMNS = data_role("byColumns", "*", constraints=columns_of(TABLE))
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


def asked(server: OneLake, token: str = OTHER_TOKEN, path: str = TABLE, root: str = BY_GUIDS) -> Asked:
    api = f"{server.url}/api.fabric.microsoft.com/v1"
    return open_asked(TableAddress.parse(f"{root}/{path}"), server.credentials(token), 1.0, api)


def leads_out(server: OneLake, kind: str) -> None:
    """Make ``Tables/out`` a shortcut to a store of this kind outside of OneLake."""
    target = {"location": "https://a.b", "subpath": "/t", "connectionId": WORKSPACE_GUID}
    with server.served.shortcuts._kept.changing() as document:
        name = f"{kind[0].lower()}{kind[1:]}"
        document.setdefault(SHORTCUTS, {}).setdefault(LAKEHOUSE_GUID, {})["Tables/out"] = {"type": kind, name: target}


def without_another_try(found: Asked) -> Asked:
    """Who is asked, without another try."""
    assert found.fabric is not None
    assert found.security is not None
    once = {"fabric": attrs.evolve(found.fabric, patience=0), "security": attrs.evolve(found.security, patience=0)}
    return attrs.evolve(found, **once)


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
    ("who", "probed", "read", "refused"),
    [
        pytest.param(Who("Admin"), (ALL_RIGHTS, MEMBER, MEMBER), (ALL_RIGHTS, MEMBER, MEMBER), None, id="Admin"),
        pytest.param(
            Who("Member", (), [BY_ROWS]), (ALL_RIGHTS, MEMBER, MEMBER), (ALL_RIGHTS, MEMBER, MEMBER), None, id="Member"
        ),
        pytest.param(
            Who("Contributor"), (ALL_RIGHTS, PROBE, PROBE), (READS_KNOWN, PROBE, NO_ROLE), None, id="Contributor"
        ),
        pytest.param(Who("Viewer"), (NONE, BY_ROLE, VIEWER), (NO_READ_KNOWN, BY_ROLE, NO_ROLE), BY_ROLE, id="Viewer"),
        pytest.param(
            Who("Viewer", (), [READER]), (READS, BY_ROLE, VIEWER), (READS_KNOWN, PROBE, NO_ROLE), VIEWER, id="who reads"
        ),
        pytest.param(
            Who("Viewer", (), [WRITER]),
            (ALL_RIGHTS, PROBE, PROBE),
            (READS_KNOWN, PROBE, NO_ROLE),
            None,
            id="who writes",
        ),
        pytest.param(
            Who("Viewer", (), [BY_ROWS]),
            (NONE, BY_ROLE, VIEWER),
            (NO_READ_KNOWN, BY_ROLE, NO_ROLE),
            BY_ROLE,
            id="by rows",
        ),
        pytest.param(
            Who(None, ["ReadAll"], [DEFAULT_READER]),
            (READS, BY_ROLE, ITEM),
            (READS_KNOWN, PROBE, ITEM),
            ITEM,
            id="item",
        ),
        pytest.param(
            Who(None, ["Read"]), (NONE, BY_ROLE, ITEM), (NO_READ_KNOWN, BY_ROLE, ITEM), BY_ROLE, id="item Read"
        ),
        pytest.param(
            Who(None, ["Write"]), (ALL_RIGHTS, PROBE, PROBE), (READS_KNOWN, PROBE, ITEM), None, id="item Write"
        ),
        pytest.param(
            Who(None, (), [WRITER]), (NONE, NO_ROLE, NO_ROLE), (NONE, NO_ROLE, NO_ROLE), NO_ROLE, id="nothing"
        ),
    ],
)


@SIGNED_IN
def test_who_signs_in_is_told_by_the_store_and_by_what_fabric_shows(
    server: OneLake, rights: Rights, who: Who, probed: Found, read: Found, refused: Decided | None
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
    ("own", "target", "probed", "read", "refused"),
    [
        pytest.param(
            [OWN], [WRITER], (ALL_RIGHTS, PROBE, PROBE), (READS_KNOWN, PROBE, TARGET), None, id="both allow it"
        ),
        pytest.param(
            [OWN], [ALL_OF_IT], (READS, PROBE, TARGET), (READS_KNOWN, PROBE, TARGET), TARGET, id="the target forbids it"
        ),
        pytest.param(
            [OWN], [READER], (READS, PROBE, TARGET), (READS_KNOWN, PROBE, TARGET), TARGET, id="where it leads is hidden"
        ),
        pytest.param(
            [OWN], [BY_ROWS], (NONE, TARGET, TARGET), (NO_READ_KNOWN, TARGET, TARGET), TARGET, id="rows are hidden"
        ),
        pytest.param(
            [ONLY_READS], [WRITER], (READS, PROBE, VIEWER), (READS_KNOWN, PROBE, TARGET), VIEWER, id="own side forbids"
        ),
        pytest.param(
            [ONLY_READS], [ALL_OF_IT], (READS, PROBE, TARGET), (READS_KNOWN, PROBE, TARGET), TARGET, id="both forbid it"
        ),
    ],
)


@THROUGH_A_SHORTCUT
def test_it_says_which_side_of_a_shortcut_decides(
    server: OneLake, rights: Rights, own: Roles, target: Roles, probed: Found, read: Found, refused: Decided | None
) -> None:
    rights.set("Viewer", data_roles=own)
    rights.data_roles(*target, item=GOLD_GUID)
    report = check_access(asked(server, path="Tables/link/t"))
    assert found(report) == probed
    if TARGET in probed:
        first = report.refused[0]
        assert f"{GOLD_GUID}/{TABLE}" in first.why or "does not show this identity where the shortcut" in first.why
        assert first.ask_for is not None
    # The same of another principal, by its roles alone.
    assert allowed(check_access(asked(server, TOKEN, "Tables/link/t"), ANN)) == probed[0]


def test_a_store_that_onelake_only_reads_is_the_shortcuts_matter(server: OneLake, rights: Rights) -> None:
    leads_out(server, "AmazonS3")
    rights.set("Viewer", data_roles=[WRITER])
    for report in (
        check_access(asked(server, path="Tables/out")),
        check_access(asked(server, TOKEN, "Tables/out"), ANN),
    ):
        assert report[Right.WRITE].allowed is False
        assert report[Right.WRITE].step is Step.SHORTCUT_TARGET
        assert "OneLake only reads" in report[Right.WRITE].why


# -- another principal, by its roles ---------------------------------------------------------------------------------


def named(step: str, name: str | None = None) -> tuple[str, str | None]:
    return step, name


@pytest.mark.parametrize(
    ("who", "may", "reading", "committing"),
    [
        pytest.param(Who("Contributor", (), [BY_ROWS]), ALL_RIGHTS, *[named("workspace role", "Contributor")] * 2, id="role"),
        pytest.param(Who("Viewer"), NONE, BY_ROLE, VIEWER, id="Viewer"),
        pytest.param(Who("Viewer", (), [READER]), READS, named("data access role", "readers"), VIEWER, id="a role reads"),
        pytest.param(
            Who("Viewer", (), [READER, WRITER]), ALL_RIGHTS, named("data access role", "readers"),
            named("data access role", "writers"), id="a role writes",
        ),
        pytest.param(
            Who("Viewer", (), [READER, BY_ROWS]), NONE, named("row or column rule", "byRows"), VIEWER, id="rows are hidden"
        ),
        pytest.param(
            Who("Viewer", (), [BY_COLUMNS]), NONE, named("row or column rule", "byColumns"), VIEWER, id="columns are hidden"
        ),
        pytest.param(
            Who(None, ["ReadAll"], [DEFAULT_READER]), READS, named("data access role", "DefaultReader"),
            named("item permission", "Read, ReadAll"), id="ReadAll",
        ),
        pytest.param(Who(None, ["ReadAll"]), NONE, BY_ROLE, named("item permission", "Read, ReadAll"), id="no default"),
        pytest.param(Who(None, ["Write"]), ALL_RIGHTS, *[named("item permission", "Write")] * 2, id="item Write"),
        pytest.param(Who(None, ["ReadData"]), NONE, BY_ROLE, named("item permission", "Read, ReadData"), id="SQL"),
        pytest.param(Who(None, (), [WRITER]), NONE, BY_ROLE, NO_ROLE, id="nothing"),
    ],
)  # fmt: skip
def test_of_another_principal_the_role_that_decided_is_named(
    server: OneLake, rights: Rights, who: Who, may: May, reading: Decided, committing: Decided
) -> None:
    rights.set(*who)
    report = check_access(asked(server, TOKEN), ANN)
    assert (report.principal, allowed(report), *steps(report)) == (ANN, may, reading, committing)


def test_where_a_group_may_write_a_no_is_unknown(
    server: OneLake, rights: Rights, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights.set("Viewer")
    from airflow_provider_onelake.fabric.rest import Fabric

    shown = Fabric.all

    def with_a_group(self: Fabric, path: str, query: dict[str, str], at: Any, **more: str) -> Iterator[dict[str, Any]]:
        yield from shown(self, path, query, at, **more)
        if path.endswith("roleAssignments"):
            yield {"id": "g", "principal": {"id": "g", "type": "Group"}, "role": "Contributor"}

    monkeypatch.setattr(Fabric, "all", with_a_group)
    assert allowed(check_access(asked(server, TOKEN), ANN)) == (None, None, None, None)
    rights.set("Contributor")
    assert allowed(check_access(asked(server, TOKEN), ANN)) == ALL_RIGHTS


def test_who_may_not_see_roles_cannot_say_what_another_may_do(server: OneLake, rights: Rights) -> None:
    rights.set("Contributor")
    report = check_access(asked(server), ANN)
    assert allowed(report) == (None, None, None, None)
    assert "shown to its Members and Admins only" in report[Right.READ].why


def test_another_principal_is_only_asked_about_where_fabric_knows_it(server: OneLake, tmp_path: Path) -> None:
    with pytest.raises(AddressError, match="not in OneLake"):
        check_access(open_asked(TableAddress.parse(str(tmp_path / "t")), None, 1.0), ANN)
    alone = open_asked(TableAddress.parse(f"{BY_GUIDS}/{TABLE}"), server.credentials(), 1.0)
    with pytest.raises(CredentialsError, match="no `fabric_api`"):
        check_access(alone, ANN)
    server.faults = lambda _: RefusalError(503, "ServerBusy", "busy")
    with pytest.raises(StoreUnavailableError):
        check_access(without_another_try(asked(server, TOKEN)), ANN)
    server.faults = lambda _: None


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
    report = check_access(Asked(address, lambda _: Broken(tmp_path, **otherwise)))
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
