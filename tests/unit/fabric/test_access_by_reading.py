"""What reading alone tells of access: never more than a probe would say, nothing written, a bounded number of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import StoreUnavailableError
from airflow_provider_onelake.fabric.access import AccessRequest, look_up_access, open_asked
from airflow_provider_onelake.fabric.access_report import Step
from airflow_provider_onelake.storage.addresses import TableAddress
from tests.support.onelake import OneLake
from tests.support.rights import GOLD_GUID, TABLE, Rights
from tests.support.stores import Broken, silent
from tests.unit.fabric.test_access import (
    READS_KNOWN,
    SIGNED_IN,
    THROUGH_A_SHORTCUT,
    Found,
    Roles,
    Who,
    allowed,
    asked,
    found,
    nothing_left_there,
)

NOTHING_KNOWN = (None, None, None, None)
WRITES = ("PUT", "POST", "PATCH", "DELETE")


@SIGNED_IN
def test_reading_alone_says_what_it_can_and_never_what_a_probe_denies(
    server: OneLake, rights: Rights, who: Who, probed: Found, read: Found
) -> None:
    rights.set(*who)
    with nothing_left_there(server, most=8) as requests:
        report = look_up_access(asked(server))
        assert not [seen for seen in requests if seen.method in WRITES]
    assert found(report) == read
    for decision in report.decisions:
        assert decision.why.endswith(".")
        assert decision.found == "a read of the table's log, and what Fabric's REST shows this identity"
        assert ("Only a probe" in decision.why) is (decision.allowed is None)
    assert all(said in (None, tried) for said, tried in zip(read[0], probed[0], strict=True))


@THROUGH_A_SHORTCUT
def test_through_a_shortcut_both_sides_count(
    server: OneLake, rights: Rights, own: Roles, target: Roles, probed: Found, read: Found
) -> None:
    rights.set("Viewer", data_roles=own)
    rights.data_roles(*target, item=GOLD_GUID)
    with nothing_left_there(server, most=16) as requests:
        report = look_up_access(asked(server, path="Tables/link/t"))
        assert not [seen for seen in requests if seen.method in WRITES]
    assert found(report) == read


def test_any_other_store_is_only_read(tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("It was to be read only.")

    address = TableAddress.parse(str(tmp_path))
    store = Broken(tmp_path, create=refuse, put=refuse, delete=refuse)
    report = look_up_access(AccessRequest(address, lambda _: store))
    assert (allowed(report), {each.step for each in report.decisions}) == (READS_KNOWN, {Step.PROBE})
    assert {each.found for each in report.decisions} == {"a read of the table's log"}
    store = Broken(tmp_path, get=silent)
    with pytest.raises(StoreUnavailableError):
        store.get("x")
    assert allowed(look_up_access(AccessRequest(address, lambda _: store))) == NOTHING_KNOWN


def test_who_cannot_ask_fabric_is_told_why(server: OneLake, rights: Rights) -> None:
    alone = open_asked(TableAddress.parse(f"{asked(server).address}"), server.credentials(), 1.0)
    report = look_up_access(alone)
    assert allowed(report) == READS_KNOWN
    assert "no `fabric_api` beside it" in " ".join(report.notes)
    assert TABLE in report.table
