"""Before a load: what is refused is certain, nothing is written, and who may write costs one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import httpx
import pytest

from airflow_provider_onelake.fabric.access import open_asked, refused_before_a_load
from airflow_provider_onelake.fabric.access_report import Right
from airflow_provider_onelake.storage.addresses import TableAddress
from tests.support.onelake import Asked, OneLake, RefusalError
from tests.support.rights import GOLD_GUID, Rights
from tests.unit.fabric.test_access import (
    READER,
    SIGNED_IN,
    THROUGH_A_SHORTCUT,
    WRITER,
    Decided,
    Found,
    Roles,
    Who,
    asked,
    leads_out,
    nothing_left_there,
    without_another_try,
)

READ_AND_DELETE = {"HEAD", "GET", "DELETE"}


def is_about_rights(seen: Asked) -> bool:
    return seen.query.get("action") == "getAccessControl"


def is_about_roles(seen: Asked) -> bool:
    return seen.path.startswith("/v1/")


def answering(status: int, to: Callable[[Asked], bool]) -> Callable[[Asked], RefusalError | None]:
    return lambda seen: RefusalError(status, "No", "no") if to(seen) else None


@SIGNED_IN
def test_who_may_not_load_is_told_which_step_decided_and_who_may_costs_one_request(
    server: OneLake, rights: Rights, who: Who, probed: Found, read: Found, refused: Decided | None
) -> None:
    rights.set(*who)
    with nothing_left_there(server, most=9) as requests:
        report = refused_before_a_load(asked(server))
        methods = [each.method for each in requests]
    if report is None:
        assert refused is None
        assert methods == ["HEAD"]
    else:
        first = report.refused[0]
        assert (str(first.step), first.name) == refused
        assert first.ask_for is not None
        assert set(methods) == READ_AND_DELETE
    # What is refused is what a probe is refused.
    by_probe = dict(zip(Right, probed[0], strict=True))
    assert all(by_probe[each.right] is False for each in (report.refused if report else ()))
    assert (report is None) is (by_probe[Right.READ] and by_probe[Right.COMMIT])


def test_a_right_that_onelake_does_not_tell_of_is_found_by_trying(server: OneLake, rights: Rights) -> None:
    # OneLake may leave out what data access roles grant.
    rights.set("Viewer", data_roles=[WRITER])
    server.faults = answering(403, is_about_rights)
    server.asked.clear()
    assert refused_before_a_load(asked(server)) is None
    assert [each.method for each in server.asked] == ["HEAD", "GET", "DELETE"]


@pytest.mark.parametrize("status", [400, 401, 404, 429, 503])
def test_where_onelake_does_not_say_its_rights_nothing_is_refused(server: OneLake, rights: Rights, status: int) -> None:
    rights.set("Viewer", data_roles=[READER])
    server.faults = answering(status, is_about_rights)
    server.asked.clear()
    assert refused_before_a_load(without_another_try(asked(server))) is None
    assert {each.method for each in server.asked} == {"HEAD"}
    assert len(server.asked) <= 2


@pytest.mark.parametrize("status", [401, 429, 503])
def test_where_fabric_does_not_say_which_step_decided_nothing_is_refused(
    server: OneLake, rights: Rights, status: int
) -> None:
    rights.set("Viewer", data_roles=[READER])
    server.faults = answering(status, is_about_roles)
    assert refused_before_a_load(without_another_try(asked(server))) is None


def test_a_store_that_refuses_a_member_is_not_taken_for_a_missing_right(server: OneLake, rights: Rights) -> None:
    rights.set("Member")
    server.faults = answering(403, lambda seen: not is_about_roles(seen))
    assert refused_before_a_load(asked(server)) is None


@THROUGH_A_SHORTCUT
def test_both_sides_of_a_shortcut_count(
    server: OneLake, rights: Rights, own: Roles, target: Roles, probed: Found, read: Found, refused: Decided | None
) -> None:
    rights.set("Viewer", data_roles=own)
    rights.data_roles(*target, item=GOLD_GUID)
    before = len(list(server.directory.rglob("*")))
    report = refused_before_a_load(asked(server, path="Tables/link/t"))
    assert (None if report is None else (str(report.refused[0].step), report.refused[0].name)) == refused
    assert len(list(server.directory.rglob("*"))) == before


@pytest.mark.parametrize(
    ("kind", "refused"), [("AmazonS3", True), ("AdlsGen2", False)], ids=["only read", "with rights of its own"]
)
def test_of_a_store_behind_a_shortcut_only_what_onelake_itself_forbids_is_refused(
    server: OneLake, rights: Rights, kind: str, refused: bool
) -> None:
    leads_out(server, kind)
    rights.set("Contributor")
    # A right to delete may be missing there to who may write.
    server.faults = answering(403, lambda seen: is_about_rights(seen) or seen.method == "DELETE")
    assert (refused_before_a_load(asked(server, path="Tables/out")) is not None) is refused


def test_without_fabrics_rest_nobody_is_asked(server: OneLake, rights: Rights) -> None:
    rights.set("Viewer")
    alone = open_asked(TableAddress.parse(str(asked(server).address)), server.credentials(), 1.0)
    server.asked.clear()
    assert refused_before_a_load(alone) is None
    assert server.asked == []


@attrs.frozen
class Says:
    """OneLake, which documents no more of its answer than ``rwx``."""

    acl: str | None

    def look(self, *_: Any, **__: Any) -> httpx.Response:
        return httpx.Response(200, headers={} if self.acl is None else {"x-ms-acl": self.acl})


@pytest.mark.parametrize(
    ("acl", "refused"),
    [
        ("rwx", False),
        ("user::rwx,group::---,other::---", False),
        ("user::r-x,user:a1b2:rw-,mask::rwx", False),
        (None, False),
        ("r-x", True),
        ("user::r-x,group::---,other::---", True),
        ("---", True),
    ],
)
def test_what_onelake_says_of_rights_is_read_in_every_form(
    server: OneLake, rights: Rights, acl: str | None, refused: bool
) -> None:
    rights.set("Viewer", data_roles=[READER])
    said = attrs.evolve(asked(server), security=Says(acl))
    assert (refused_before_a_load(said) is not None) is refused
