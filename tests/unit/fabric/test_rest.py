"""Shortcuts by Fabric's REST, asked of the local OneLake."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.fabric.rest import Fabric, Folder, Shortcut, open_fabric
from airflow_provider_onelake.hooks.fabric import FabricHook
from airflow_provider_onelake.storage.azure import AzureCredentials
from local_onelake.faults import Fault
from tests.support.onelake import BY_GUIDS, LAKEHOUSE_GUID, TOKEN, WORKSPACE_GUID, OneLake


def folder(path: str) -> Folder:
    return Folder(WORKSPACE_GUID, LAKEHOUSE_GUID, path)


def client(server: OneLake, token: str = TOKEN, patience: float = 5) -> Fabric:
    api = f"{server.url}/api.fabric.microsoft.com/v1"
    return Fabric(api, lambda: {"Authorization": f"Bearer {token}"}, patience)


@pytest.fixture
def server() -> Iterator[OneLake]:
    with OneLake() as running:
        tree = running.served.tree
        for path in ("Files/a", "Files/b"):
            tree.make_directory(f"taxi/raw.Lakehouse/{path}")
        yield running


def test_it_is_made_once_found_listed_and_deleted(server: OneLake) -> None:
    fabric = client(server)
    made = fabric.create_shortcut(folder("Files/in/link"), folder("Files/a"))
    assert made == Shortcut(folder("Files/in/link"), "OneLake", folder("Files/a"))
    assert fabric.create_shortcut(folder("Files/in/link"), folder("Files/a")) == made
    assert fabric.get_shortcut(folder("Files/in/link")) == made
    with pytest.raises(errors.ObjectExistsError, match=r"EntityConflict.*Nothing was done"):
        fabric.create_shortcut(folder("Files/in/link"), folder("Files/b"))
    with pytest.raises(errors.ObjectExistsError):
        fabric.create_shortcut(folder("Files/b"), folder("Files/a"))
    assert [fabric.delete_shortcut(folder("Files/in/link")) for _ in range(2)] == [True, False]
    with pytest.raises(errors.ObjectNotFoundError, match="ShortcutNotFound"):
        fabric.get_shortcut(folder("Files/in/link"))


def test_all_pages_are_listed(server: OneLake) -> None:
    fabric = client(server)
    for number in range(55):
        fabric.create_shortcut(folder(f"Files/in/s{number:02}"), folder("Files/a"))
    fabric.create_shortcut(folder("Files/other"), folder("Files/a"))
    paths = [each.at.path for each in fabric.list_shortcuts(folder("Files/in"))]
    assert paths == [f"Files/in/s{number:02}" for number in range(55)]
    assert len(list(fabric.list_shortcuts(folder("")))) == 56


def test_a_lost_answer_and_a_busy_server_are_asked_again(server: OneLake) -> None:
    fabric, faults = client(server), server.served.faults
    faults.set("lost_answer", Fault(count=1))
    faults.set("throttled", Fault(count=1, seconds=0))
    faults.set("error_503", Fault(count=1))
    assert fabric.create_shortcut(folder("Files/link"), folder("Files/a")).target == folder("Files/a")
    faults.set("throttled", Fault(seconds=0))
    with pytest.raises(errors.StoreUnavailableError, match=r"429 TooManyRequests.*nothing is done twice"):
        client(server, patience=0).get_shortcut(folder("Files/link"))


@pytest.mark.parametrize(
    ("token", "at", "target", "error"),
    [
        ("nobody", "Files/x", "Files/a", errors.AccessDeniedError),
        (TOKEN, "Files/a/x", "Files/a", errors.StoreRefusedError),
        (TOKEN, "Files", "Files/a", errors.AddressError),
        (TOKEN, "Files/x", "Files/none", errors.ObjectNotFoundError),
    ],
)
def test_refusals_have_a_kind(server: OneLake, token: str, at: str, target: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        client(server, token).create_shortcut(folder(at), folder(target))
    assert list(client(server).list_shortcuts(folder(""))) == []


def test_without_tls_nothing_is_asked_unless_it_is_allowed() -> None:
    with pytest.raises(errors.CredentialsError, match="allow_http"):
        open_fabric(AzureCredentials(sign_in="token", token="x"), "http://127.0.0.1:1/v1", 0)
    silent = open_fabric(AzureCredentials(sign_in="token", token="x", allow_http=True), "http://127.0.0.1:1/v1", 0)
    with pytest.raises(errors.StoreUnavailableError, match=httpx.ConnectError.__name__):
        silent.get_shortcut(folder("Files/x"))


def test_the_hook_signs_in_as_its_connection_does(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    api = f"{server.url}/api.fabric.microsoft.com/v1"
    extra = {"lakehouse": BY_GUIDS, "sign_in": "token", "fabric_api": api, "allow_http": "true"}
    said = {"conn_type": "onelake", "password": TOKEN, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps(said))
    assert FabricHook().get_conn().create_shortcut(folder("Files/x"), folder("Files/a")).kind == "OneLake"
    said["extra"] = {"lakehouse": BY_GUIDS, "sign_in": "account_key", "fabric_api": api, "allow_http": "true"}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps(said))
    with pytest.raises(errors.CredentialsError, match="tokens of Entra only"):
        FabricHook().get_conn()
