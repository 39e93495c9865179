"""What doctor finds out of a OneLake: nothing new on the local one, and each fault by its name."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from airflow_provider_onelake.cli import main
from airflow_provider_onelake.fabric.probes import _Probes, probe
from airflow_provider_onelake.fabric.rest import open_fabric
from tests.support.onelake import BY_GUIDS, BY_NAMES, OneLake, RefusalError

TABLE = "Tables/probed"


def differing(server: OneLake, root: str = BY_GUIDS) -> dict[str, str]:
    lake = server.lake(root)
    fabric = open_fabric(lake.credentials, f"{server.url}/api.fabric.microsoft.com/v1", 5)
    found = list(probe(lake.address(TABLE), lake.credentials, "_preflight/x", fabric))
    assert len(found) > 20
    return {finding.asked: finding.seen for finding in found if finding.differs}


@pytest.mark.parametrize("root", [BY_NAMES, BY_GUIDS])
def test_the_local_onelake_answers_as_is_known_and_nothing_is_left(onelake: OneLake, root: str) -> None:
    onelake.lists_by_names = True
    onelake.lake().make_table(TABLE)
    before = set(onelake.blobs)
    assert differing(onelake, root) == {}
    assert set(onelake.blobs) == before


def test_a_list_from_an_offset_without_rows_is_found_by_names_only(onelake: OneLake) -> None:
    onelake.lake().make_table(TABLE)
    asked = "a list from an offset, as the address is spelled"
    assert differing(onelake, BY_NAMES) == {asked: "has no rows"}
    assert differing(onelake, BY_GUIDS) == {}


def test_a_onelake_that_takes_batches_is_found(onelake: OneLake) -> None:
    onelake.lake().make_table(TABLE)
    onelake.served.faults.clear("batch_delete_refused")
    assert differing(onelake) == {"a batch of deletes (Blob)": "202"}


def test_codes_that_differ_and_answers_that_fail_are_said_one_by_one(onelake: OneLake) -> None:
    onelake.lake().make_table(TABLE)

    def other(asked: object) -> RefusalError | None:
        path, method = getattr(asked, "path", ""), getattr(asked, "method", "")
        return RefusalError(409, "Taken", "…") if method == "PUT" and path.endswith("_preflight/x/a") else None

    onelake.faults = other
    found = differing(onelake)
    assert found["put a file (Blob)"] == "409 Taken"
    assert found["create-only where a file is (Blob)"] == "409 Taken"
    assert "create-only puts at once (Blob)" not in found


@pytest.mark.parametrize("root", [BY_NAMES, BY_GUIDS])
@pytest.mark.parametrize("api", ["DFS", "Blob"])
def test_a_onelake_whose_recursive_lists_enter_shortcuts_is_found(
    onelake: OneLake, monkeypatch: pytest.MonkeyPatch, api: str, root: str
) -> None:
    onelake.lists_by_names = True
    onelake.lake().make_table(TABLE)
    real = _Probes._ask

    def entering(self: _Probes, face: str, method: str, path: str, query: Any, *rest: Any) -> httpx.Response:
        answer = real(self, face, method, path, query, *rest)
        above = str((query or {}).get("directory" if api == "DFS" else "prefix", "")).strip("/")
        if face == api.lower() and above.endswith("/Files/_preflight/x"):
            return httpx.Response(200, text=f"{answer.text} {above}/link/once")
        return answer

    monkeypatch.setattr(_Probes, "_ask", entering)
    assert differing(onelake, root) == {f"a recursive list from above a shortcut ({api})": "enters it"}


def test_without_the_right_to_make_a_shortcut_lists_are_not_tried_and_nothing_is_left(onelake: OneLake) -> None:
    onelake.lake().make_table(TABLE)
    before = set(onelake.blobs)
    onelake.faults = lambda asked: (
        RefusalError(403, "InsufficientPrivileges", "No.") if asked.path.endswith("/shortcuts") else None
    )
    (said,) = differing(onelake).values()
    assert said.startswith("not tried: Fabric's REST refused POST")
    assert set(onelake.blobs) == before


def test_the_doctor_prints_it_as_a_report(onelake: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    onelake.lake().make_table(TABLE)
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", onelake.connection())
    said = CliRunner().invoke(main.app, ["doctor", TABLE, "--connection", "onelake_default"])
    assert said.exit_code == 0, said.output
    assert "as known: 409 PathAlreadyExists" in said.output
    assert "as known: does not enter it" in said.output
    assert "All is well" in said.output
    assert "differ" not in said.output
    onelake.served.faults.clear("batch_delete_refused")
    said = CliRunner().invoke(main.app, ["doctor", TABLE, "--connection", "onelake_default"])
    assert "differs: 202, where 400 BadRequest is documented or was seen" in said.output
    assert "answers differ. Please send this report in" in said.output
