"""What reading alone tells of access: never more than a probe would say, nothing written, a bounded number of requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.exceptions import StoreUnavailableError
from airflow_provider_onelake.local_onelake.shortcuts import SHORTCUTS
from airflow_provider_onelake.storage.access import Asked, check_access, look_up_access, open_asked
from airflow_provider_onelake.storage.access_report import Right, Step
from airflow_provider_onelake.storage.addresses import TableAddress
from tests.support.onelake import LAKEHOUSE_GUID, WORKSPACE_GUID, OneLake, RefusalError
from tests.support.rights import DEFAULT_READER, GOLD_GUID, TABLE, Rights, data_role
from tests.unit.storage.test_access import (
    ALL_OF_IT,
    ALL_RIGHTS,
    BY_ROLE,
    BY_ROWS,
    ITEM,
    MEMBER,
    NO_ROLE,
    NONE,
    OWN,
    PROBE,
    READER,
    TARGET,
    WRITER,
    Broken,
    allowed,
    asked,
    silent,
    steps,
)

READS_ONLY_KNOWN = (True, None, None, None)
NOTHING_KNOWN = (None, None, None, None)
NO_READ_KNOWN = (False, None, None, None)
ROLE = ("workspace role", None)
WRITES = ("PUT", "POST", "PATCH", "DELETE")


@pytest.mark.parametrize(
    ("role", "permissions", "data_roles", "may", "reading", "committing"),
    [
        pytest.param("Admin", [], [], ALL_RIGHTS, MEMBER, MEMBER, id="Admin"),
        pytest.param("Member", [], [BY_ROWS], ALL_RIGHTS, MEMBER, MEMBER, id="Member"),
        pytest.param("Contributor", [], [], READS_ONLY_KNOWN, PROBE, ROLE, id="Contributor"),
        pytest.param("Viewer", [], [], NO_READ_KNOWN, BY_ROLE, ROLE, id="Viewer"),
        pytest.param("Viewer", [], [READER], READS_ONLY_KNOWN, PROBE, ROLE, id="Viewer who reads"),
        pytest.param("Viewer", [], [WRITER], READS_ONLY_KNOWN, PROBE, ROLE, id="Viewer who writes"),
        pytest.param("Viewer", [], [BY_ROWS], NO_READ_KNOWN, BY_ROLE, ROLE, id="Viewer from whom rows are hidden"),
        pytest.param(None, ["ReadAll"], [DEFAULT_READER], READS_ONLY_KNOWN, PROBE, ITEM, id="item ReadAll"),
        pytest.param(None, ["Write"], [], READS_ONLY_KNOWN, PROBE, ITEM, id="item Write"),
        pytest.param(None, [], [WRITER], NONE, NO_ROLE, NO_ROLE, id="nothing"),
    ],
)
def test_reading_alone_says_what_it_can_and_never_what_a_probe_denies(
    server: OneLake,
    rights: Rights,
    role: str | None,
    permissions: Sequence[str],
    data_roles: Sequence[dict[str, Any]],
    may: tuple[bool | None, ...],
    reading: tuple[str, str | None],
    committing: tuple[str, str | None],
) -> None:
    rights.set(role, permissions, data_roles)
    before = server.blobs
    server.asked.clear()
    report = look_up_access(asked(server))
    assert (allowed(report), *steps(report)) == (may, reading, committing)
    assert not [seen for seen in server.asked if seen.method in WRITES]
    assert len(server.asked) <= 8
    assert server.blobs == before
    for decision in report.decisions:
        assert decision.why.endswith(".")
        assert decision.found == "a read of the table's log, and what Fabric's REST shows this identity"
        assert ("Only a probe" in decision.why) is (decision.allowed is None)
    probed = allowed(check_access(asked(server)))
    assert all(said in (None, tried) for said, tried in zip(may, probed, strict=True))


@pytest.mark.parametrize(
    ("own", "target", "may", "reading", "committing"),
    [
        pytest.param([OWN], [WRITER], READS_ONLY_KNOWN, PROBE, TARGET, id="both allow it"),
        pytest.param([OWN], [READER], READS_ONLY_KNOWN, PROBE, TARGET, id="Fabric does not show where it leads"),
        pytest.param([OWN], [BY_ROWS], NO_READ_KNOWN, TARGET, TARGET, id="the target hides rows"),
        pytest.param([data_role("own", "/Tables")], [ALL_OF_IT], READS_ONLY_KNOWN, PROBE, TARGET, id="reading alone"),
    ],
)
def test_through_a_shortcut_both_sides_count(
    server: OneLake,
    rights: Rights,
    own: Sequence[dict[str, Any]],
    target: Sequence[dict[str, Any]],
    may: tuple[bool | None, ...],
    reading: tuple[str, str | None],
    committing: tuple[str, str | None],
) -> None:
    rights.set("Viewer", data_roles=own)
    rights.data_roles(*target, item=GOLD_GUID)
    server.asked.clear()
    report = look_up_access(asked(server, path="Tables/link/t"))
    assert (allowed(report), *steps(report)) == (may, reading, committing)
    assert not [seen for seen in server.asked if seen.method in WRITES]
    assert len(server.asked) <= 16


def test_a_member_on_both_sides_of_a_shortcut_may_write(server: OneLake, rights: Rights) -> None:
    rights.set("Member")
    assert allowed(look_up_access(asked(server, path="Tables/link/t"))) == ALL_RIGHTS


def test_a_store_that_onelake_only_reads_takes_no_writes(server: OneLake, rights: Rights) -> None:
    s3 = {"location": "https://b.s3.us-east-1.amazonaws.com", "subpath": "/t", "connectionId": WORKSPACE_GUID}
    with server.served.shortcuts._kept.changing() as document:
        document.setdefault(SHORTCUTS, {}).setdefault(LAKEHOUSE_GUID, {})["Tables/s3"] = {
            "type": "AmazonS3",
            "amazonS3": s3,
        }
    rights.set("Member")
    report = look_up_access(asked(server, path="Tables/s3"))
    assert allowed(report)[1:] == (False, False, False)
    assert "through which OneLake only reads" in report[Right.COMMIT].why


def test_a_store_that_refuses_a_member_leaves_writing_unknown(server: OneLake, rights: Rights) -> None:
    rights.set("Member")
    server.faults = lambda seen: (
        None if seen.path.startswith("/v1/") else RefusalError(403, "CapacityNotActive", "The capacity is paused.")
    )
    report = look_up_access(asked(server))
    assert allowed(report) == NO_READ_KNOWN
    assert "whether the capacity is paused" in report[Right.READ].why
    assert "the store did not do a read just now" in report[Right.WRITE].why


@pytest.mark.parametrize(("status", "most"), [(503, 4), (401, 4)])
def test_a_rest_that_says_nothing_is_not_asked_on(server: OneLake, rights: Rights, status: int, most: int) -> None:
    rights.set("Member")
    to_ask = asked(server)
    assert to_ask.fabric is not None
    to_ask = attrs.evolve(to_ask, fabric=attrs.evolve(to_ask.fabric, patience=0))
    server.faults = lambda seen: RefusalError(status, "No", "no") if seen.path.startswith("/v1/") else None
    server.asked.clear()
    report = look_up_access(to_ask)
    assert (allowed(report), steps(report)) == (READS_ONLY_KNOWN, (PROBE, PROBE))
    assert report.notes
    assert len(server.asked) <= most


def test_any_other_store_is_only_read(tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("It was to be read only.")

    address = TableAddress.parse(str(tmp_path))
    store = Broken(tmp_path, create=refuse, put=refuse, delete=refuse)
    report = look_up_access(Asked(address, lambda _: store))
    assert (allowed(report), {each.step for each in report.decisions}) == (READS_ONLY_KNOWN, {Step.PROBE})
    assert {each.found for each in report.decisions} == {"a read of the table's log"}
    store = Broken(tmp_path, get=silent)
    with pytest.raises(StoreUnavailableError):
        store.get("x")
    assert allowed(look_up_access(Asked(address, lambda _: store))) == NOTHING_KNOWN


def test_who_cannot_ask_fabric_is_told_why(server: OneLake, rights: Rights) -> None:
    alone = open_asked(TableAddress.parse(f"{asked(server).address}"), server.credentials(), 1.0)
    report = look_up_access(alone)
    assert allowed(report) == READS_ONLY_KNOWN
    assert "no `fabric_api` beside it" in " ".join(report.notes)
    assert TABLE in report.table
