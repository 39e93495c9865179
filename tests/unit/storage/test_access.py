"""A check of access says who may do what and which step decided: of who signs in, and of another principal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from obstore.store import LocalStore

from airflow_provider_onelake.exceptions import AccessDeniedError, AddressError, CredentialsError, StoreUnavailableError
from airflow_provider_onelake.local_onelake.shortcuts import SHORTCUTS
from airflow_provider_onelake.storage.access import Asked, check_access, open_asked
from airflow_provider_onelake.storage.access_report import AccessReport, Right, Step
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.onelake import (
    BY_GUIDS,
    BY_NAMES,
    LAKEHOUSE_GUID,
    OTHER_TOKEN,
    TOKEN,
    WORKSPACE_GUID,
    OneLake,
    RefusalError,
)
from tests.support.rights import ANN, DEFAULT_READER, GOLD_GUID, TABLE, Rights, columns_of, data_role, rows_of
from tests.support.stores import PassingOn

READER = data_role("readers", f"/{TABLE}")
WRITER = data_role("writers", "/Tables", actions=["ReadWrite"])
BY_ROWS = data_role("byRows", "*", constraints=rows_of(TABLE))
BY_COLUMNS = data_role("byColumns", "*", constraints=columns_of(TABLE))
ALL_RIGHTS = (True, True, True, True)
READS = (True, False, False, False)
NONE = (False, False, False, False)


def asked(server: OneLake, token: str = OTHER_TOKEN, path: str = TABLE, root: str = BY_GUIDS) -> Asked:
    api = f"{server.url}/api.fabric.microsoft.com/v1"
    return open_asked(TableAddress.parse(f"{root}/{path}"), server.credentials(token), 1.0, api)


def allowed(report: AccessReport) -> tuple[bool | None, ...]:
    return tuple(each.allowed for each in report.decisions)


def steps(report: AccessReport) -> tuple[tuple[str, str | None], ...]:
    """What decided about reading and about a commit."""
    return tuple((str(report[right].step), report[right].name) for right in (Right.READ, Right.COMMIT))


VIEWER = ("workspace role", "Viewer")
ITEM = ("item permission", None)
BY_ROLE = ("data access role", None)
PROBE = ("probe", None)
NO_ROLE = ("workspace role", None)
MEMBER = ("workspace role", "Member or Admin")


@pytest.mark.parametrize(
    ("role", "permissions", "data_roles", "may", "reading", "committing"),
    [
        pytest.param("Admin", [], [], ALL_RIGHTS, MEMBER, MEMBER, id="Admin"),
        pytest.param("Member", [], [BY_ROWS], ALL_RIGHTS, MEMBER, MEMBER, id="Member"),
        pytest.param("Contributor", [], [], ALL_RIGHTS, PROBE, PROBE, id="Contributor"),
        pytest.param("Viewer", [], [], NONE, BY_ROLE, VIEWER, id="Viewer"),
        pytest.param("Viewer", [], [READER], READS, BY_ROLE, VIEWER, id="Viewer who reads"),
        pytest.param("Viewer", [], [WRITER], ALL_RIGHTS, PROBE, PROBE, id="Viewer who writes"),
        pytest.param("Viewer", [], [BY_ROWS], NONE, BY_ROLE, VIEWER, id="Viewer from whom rows are hidden"),
        pytest.param(None, ["ReadAll"], [DEFAULT_READER], READS, BY_ROLE, ITEM, id="item ReadAll"),
        pytest.param(None, ["Read"], [], NONE, BY_ROLE, ITEM, id="item Read"),
        pytest.param(None, ["Write"], [], ALL_RIGHTS, PROBE, PROBE, id="item Write"),
        pytest.param(None, [], [WRITER], NONE, NO_ROLE, NO_ROLE, id="nothing"),
    ],
)
def test_who_signs_in_is_told_by_the_store_and_by_what_fabric_shows(
    server: OneLake,
    rights: Rights,
    role: str | None,
    permissions: Sequence[str],
    data_roles: Sequence[dict[str, Any]],
    may: tuple[bool, ...],
    reading: tuple[str, str | None],
    committing: tuple[str, str | None],
) -> None:
    rights.set(role, permissions, data_roles)
    before = server.blobs
    server.asked.clear()
    report = check_access(asked(server))
    assert (allowed(report), *steps(report)) == (may, reading, committing)
    assert report.notes == () or may == NONE
    for decision in report.decisions:
        assert (decision.ask_for is None) is bool(decision.allowed)
        assert decision.why.endswith(".")
    # Nothing is left there, and what it costs is bounded.
    assert server.blobs == before
    assert len(server.asked) <= 18


def test_a_viewer_is_told_what_to_ask_for(server: OneLake, rights: Rights) -> None:
    rights.set("Viewer", data_roles=[READER])
    decision = check_access(asked(server))[Right.WRITE]
    assert str(decision) == (
        "write: no, by the workspace role Viewer. Fabric shows it the workspace, so it has a role there, and every "
        f"higher one may write. Ask for the role Contributor in the workspace {WORKSPACE_GUID}, or the permission "
        f"Write of the item, or a data access role that grants ReadWrite on /{TABLE}. (Found by a probe, and what "
        "Fabric's REST shows this identity.)"
    )


def test_by_names_it_is_the_same(server: OneLake, rights: Rights) -> None:
    rights.set("Viewer", data_roles=[READER])
    assert steps(check_access(asked(server, root=BY_NAMES))) == (BY_ROLE, VIEWER)
    rights.set(None, ["Read"])
    # By its name, Fabric shows no workspace to who has no role in it.
    assert steps(check_access(asked(server, root=BY_NAMES))) == (NO_ROLE, NO_ROLE)


OWN = data_role("own", "/Tables/link", actions=["ReadWrite"])
ALL_OF_IT = data_role("readers", "/Tables")
TARGET = ("shortcut's target", None)


@pytest.mark.parametrize(
    ("own", "target", "may", "reading", "committing"),
    [
        pytest.param([OWN], [WRITER], ALL_RIGHTS, PROBE, PROBE, id="both allow it"),
        pytest.param([OWN], [ALL_OF_IT], READS, PROBE, TARGET, id="the target forbids writing"),
        pytest.param([OWN], [READER], READS, PROBE, TARGET, id="Fabric does not show where it leads"),
        pytest.param([OWN], [BY_ROWS], NONE, TARGET, TARGET, id="the target hides rows"),
        pytest.param([data_role("own", "/Tables")], [WRITER], READS, PROBE, VIEWER, id="the own side forbids writing"),
    ],
)
def test_it_says_which_side_of_a_shortcut_decides(
    server: OneLake,
    rights: Rights,
    own: Sequence[dict[str, Any]],
    target: Sequence[dict[str, Any]],
    may: tuple[bool, ...],
    reading: tuple[str, str | None],
    committing: tuple[str, str | None],
) -> None:
    rights.set("Viewer", data_roles=own)
    rights.data_roles(*target, item=GOLD_GUID)
    server.asked.clear()
    report = check_access(asked(server, path="Tables/link/t"))
    assert (allowed(report), *steps(report)) == (may, reading, committing)
    if TARGET in (reading, committing):
        refused = report.refused[0]
        assert f"{GOLD_GUID}/{TABLE}" in refused.why or "does not show this identity where that leads" in refused.why
        assert refused.ask_for is not None
    # The same of another principal, by its roles alone.
    assert allowed(check_access(asked(server, TOKEN, "Tables/link/t"), ANN)) == may


def test_a_store_that_onelake_only_reads_is_the_shortcuts_matter(server: OneLake, rights: Rights) -> None:
    s3 = {"location": "https://b.s3.us-east-1.amazonaws.com", "subpath": "/t", "connectionId": WORKSPACE_GUID}
    with server.served.shortcuts._kept.changing() as document:
        of_item = document.setdefault(SHORTCUTS, {}).setdefault(LAKEHOUSE_GUID, {})
        of_item["Tables/s3"] = {"type": "AmazonS3", "amazonS3": s3}
    rights.set("Viewer", data_roles=[WRITER])
    for report in (check_access(asked(server, path="Tables/s3")), check_access(asked(server, TOKEN, "Tables/s3"), ANN)):
        assert report[Right.WRITE].allowed is False
        assert report[Right.WRITE].step is Step.SHORTCUT_TARGET
        assert "through which OneLake only reads" in report[Right.WRITE].why


# -- another principal, by its roles ---------------------------------------------------------------------------------


def named(step: str, name: str | None = None) -> tuple[str, str | None]:
    return step, name


@pytest.mark.parametrize(
    ("role", "permissions", "data_roles", "may", "reading", "committing"),
    [
        pytest.param("Contributor", [], [BY_ROWS], ALL_RIGHTS, *[named("workspace role", "Contributor")] * 2, id="role"),
        pytest.param("Viewer", [], [], NONE, BY_ROLE, VIEWER, id="Viewer"),
        pytest.param("Viewer", [], [READER], READS, named("data access role", "readers"), VIEWER, id="a role reads"),
        pytest.param(
            "Viewer", [], [READER, WRITER], ALL_RIGHTS, named("data access role", "readers"),
            named("data access role", "writers"), id="a role writes",
        ),
        pytest.param(
            "Viewer", [], [READER, BY_ROWS], NONE, named("row or column rule", "byRows"), VIEWER, id="rows are hidden"
        ),
        pytest.param(
            "Viewer", [], [BY_COLUMNS], NONE, named("row or column rule", "byColumns"), VIEWER, id="columns are hidden"
        ),
        pytest.param(
            None, ["ReadAll"], [DEFAULT_READER], READS, named("data access role", "DefaultReader"),
            named("item permission", "Read, ReadAll"), id="ReadAll",
        ),
        pytest.param(None, ["ReadAll"], [], NONE, BY_ROLE, named("item permission", "Read, ReadAll"), id="no default"),
        pytest.param(None, ["Write"], [], ALL_RIGHTS, *[named("item permission", "Write")] * 2, id="item Write"),
        pytest.param(None, ["ReadData"], [], NONE, BY_ROLE, named("item permission", "Read, ReadData"), id="SQL"),
        pytest.param(None, [], [WRITER], NONE, BY_ROLE, NO_ROLE, id="nothing"),
    ],
)  # fmt: skip
def test_of_another_principal_the_role_that_decided_is_named(
    server: OneLake,
    rights: Rights,
    role: str | None,
    permissions: Sequence[str],
    data_roles: Sequence[dict[str, Any]],
    may: tuple[bool, ...],
    reading: tuple[str, str | None],
    committing: tuple[str, str | None],
) -> None:
    rights.set(role, permissions, data_roles)
    report = check_access(asked(server, TOKEN), ANN)
    assert (report.principal, allowed(report), *steps(report)) == (ANN, may, reading, committing)


def test_where_permissions_of_the_item_are_not_shown_a_yes_is_sure_and_a_no_is_unknown(
    server: OneLake, rights: Rights
) -> None:
    server.faults = lambda seen: RefusalError(403, "Forbidden", "no") if "/admin/" in seen.path else None
    rights.set(None, ["ReadAll"], [DEFAULT_READER])
    report = check_access(asked(server, TOKEN), ANN)
    # OneLake itself says what a principal may read, whoever shares the item with it.
    assert allowed(report) == (True, None, None, None)
    assert "by a group or by a permission of the item" in report[Right.READ].why
    assert "shown to administrators of Fabric only" in report[Right.WRITE].why
    rights.set("Viewer", data_roles=[READER])
    assert allowed(check_access(asked(server, TOKEN), ANN)) == (True, None, None, None)
    # A data access role grants something to those only who may see the item.
    rights.set(None, data_roles=[WRITER])
    assert allowed(check_access(asked(server, TOKEN), ANN)) == (False, None, None, None)
    rights.set(None, ["Read"], [WRITER])
    assert allowed(check_access(asked(server, TOKEN), ANN)) == (True, None, None, None)
    rights.set(None, ["ReadAll"], [DEFAULT_READER, BY_ROWS])
    hidden = check_access(asked(server, TOKEN), ANN)[Right.READ]
    assert (hidden.allowed, hidden.step) == (False, Step.ROW_OR_COLUMN_RULE)
    rights.set(None, ["ReadAll"], [])
    assert check_access(asked(server, TOKEN), ANN)[Right.READ].allowed is False
    without = attrs.evolve(asked(server, TOKEN), security=None)
    assert check_access(without, ANN)[Right.READ].allowed is None


def test_where_a_group_may_write_a_no_is_unknown(
    server: OneLake, rights: Rights, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights.set("Viewer")
    from airflow_provider_onelake.storage.fabric import Fabric

    shown = Fabric.all

    def with_a_group(self: Fabric, path: str, query: dict[str, str], at: Any) -> Iterator[dict[str, Any]]:
        yield from shown(self, path, query, at)
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
        check_access(
            attrs.evolve(asked(server, TOKEN), fabric=attrs.evolve(asked(server, TOKEN).fabric, patience=0)), ANN
        )
    server.faults = lambda _: None


# -- where the store alone can say it ---------------------------------------------------------------------------------


class Broken(PassingOn):
    """A store that does some things otherwise."""

    def __init__(self, path: Path, **otherwise: Any) -> None:
        super().__init__(ObjectStore(LocalStore(prefix=path), "the table"))
        self.__dict__.update(otherwise)


def refuse(*_: object, **__: object) -> Any:
    raise AccessDeniedError("Access was refused.")


def silent(*_: object, **__: object) -> Any:
    raise StoreUnavailableError("No answer.")


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


def test_a_store_that_lets_a_second_create_only_put_through_takes_no_commits(tmp_path: Path) -> None:
    store = Broken(tmp_path)
    store.create = store.put  # type: ignore[method-assign]
    report = check_access(Asked(TableAddress.parse(str(tmp_path)), lambda _: store))
    assert allowed(report) == (True, True, False, True)
    assert "second create-only put" in report[Right.COMMIT].why


@pytest.mark.parametrize("fault", ["fabric is away", "fabric refuses the sign-in", "fabric is not to be asked"])
def test_without_fabric_the_store_alone_says_it_and_a_note_says_why(
    server: OneLake, rights: Rights, fault: str
) -> None:
    rights.set("Viewer", data_roles=[READER])
    to_ask = asked(server)
    assert to_ask.fabric is not None
    if fault == "fabric is not to be asked":
        to_ask = open_asked(to_ask.address, server.credentials(OTHER_TOKEN), 1.0)
    else:
        status = 503 if fault == "fabric is away" else 401
        to_ask = attrs.evolve(to_ask, fabric=attrs.evolve(to_ask.fabric, patience=0))
        server.faults = lambda seen: RefusalError(status, "No", "no") if seen.path.startswith("/v1/") else None
    report = check_access(to_ask)
    assert (allowed(report), steps(report)) == (READS, (PROBE, PROBE))
    assert report.notes


def test_a_store_that_refuses_who_may_write_points_elsewhere(server: OneLake, rights: Rights) -> None:
    rights.set("Member")
    server.faults = lambda seen: (
        None if seen.path.startswith("/v1/") else RefusalError(403, "CapacityNotActive", "The capacity is paused.")
    )
    report = check_access(asked(server))
    assert allowed(report) == NONE
    assert "whether the capacity is paused" in report[Right.WRITE].why
    assert "CapacityNotActive" in report[Right.WRITE].why


def test_a_report_is_json(server: OneLake, rights: Rights) -> None:
    rights.set("Viewer", data_roles=[READER])
    said = check_access(asked(server)).to_json()
    assert (said["table"], said["principal"], said["notes"]) == (f"{BY_GUIDS}/{TABLE}", None, [])
    assert {name: right["allowed"] for name, right in said["rights"].items()} == dict(
        zip(("read", "write", "commit", "delete"), READS, strict=True)
    )
    assert said["rights"]["write"]["step"] == "workspace role"
    assert set(said["rights"]["read"]) == {"right", "allowed", "step", "name", "why", "found", "ask_for"}
