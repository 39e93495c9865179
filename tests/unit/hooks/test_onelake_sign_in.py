"""From the fields of a connection to credentials."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_provider_onelake.exceptions import AddressError, CredentialsError, OneLakeError
from airflow_provider_onelake.hooks.fabric import FabricHook
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.storage.azure import AzureCredentials
from airflow_provider_onelake.storage.kinds import kinds
from airflow_provider_onelake.storage.local import LocalDisk
from airflow_provider_onelake.storage.s3 import S3Credentials
from tests.support.contexts import signed_in_by

KIND = {kind.name: kind for kind in kinds()}


def connection(login: str | None = None, password: str | None = None, **extra: Any) -> Connection:
    said = json.dumps(extra) if extra else None
    return Connection(conn_id="lake", conn_type="onelake", login=login, password=password, extra=said)


def at(kind: str) -> SimpleNamespace:
    return SimpleNamespace(kind=KIND[kind])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (connection(), S3Credentials()),
        (connection("A", "B"), S3Credentials(access_key="A", secret_key="B")),
        (connection(profile=" work ", role_arn=""), S3Credentials(profile="work")),
        (
            connection("A", "B", session_token="T", role_arn="arn:r", region="eu-north-1"),
            S3Credentials(access_key="A", secret_key="B", session_token="T", role_arn="arn:r", region="eu-north-1"),
        ),
        (connection(allow_http="true", path_style="false"), S3Credentials(allow_http=True, path_style=False)),
        (connection(endpoint="https://store", path_style=""), S3Credentials(endpoint="https://store", path_style=True)),
    ],
    ids=["nothing", "key", "profile", "everything", "flags", "empty flag"],
)
def test_s3(given: Connection, expected: S3Credentials) -> None:
    assert signed_in_by(given, at("s3")) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (connection(), AzureCredentials()),
        (connection(password="k"), AzureCredentials(sign_in="account_key", account_key="k")),
        (
            connection("c", "s", tenant_id="t"),
            AzureCredentials(sign_in="service_principal", tenant_id="t", client_id="c", client_secret="s"),
        ),
        (connection(password="tok", sign_in="token"), AzureCredentials(sign_in="token", token="tok")),
        (connection("c", sign_in="managed_identity"), AzureCredentials(sign_in="managed_identity", client_id="c")),
        (
            connection(sign_in="cli", authority="https://login.chinacloudapi.cn"),
            AzureCredentials(sign_in="cli", authority="https://login.chinacloudapi.cn"),
        ),
    ],
    ids=["nothing", "account key", "service principal", "token", "managed identity", "another cloud"],
)
@pytest.mark.parametrize("kind", ["onelake", "adls"])
def test_azure(given: Connection, expected: AzureCredentials, kind: str) -> None:
    assert signed_in_by(given, at(kind)) == expected


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (connection("c", "s"), "onelake", "lacks tenant_id"),
        (connection("c", "s", sign_in="cli"), "onelake", "remove it, or choose another"),
        (connection(sign_in="magic"), "adls", "of 5 characters that is no way to sign in: ways are default"),
        (connection(sign_in="cli"), "s3", "leave `sign_in` empty"),
        (connection("A"), "s3", "the secret key is missing"),
        (connection(path_style="perhaps"), "s3", "write true or false"),
    ],
    ids=["half a principal", "needless secret", "unknown way", "azure for s3", "half a key", "no flag"],
)
def test_what_cannot_work_is_refused_before_anything_is_asked(given: Connection, kind: str, message: str) -> None:
    with pytest.raises(CredentialsError, match=message):
        signed_in_by(given, at(kind))


SECRET = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=c2VjcmV0c2VjcmV0;EndpointSuffix=core.windows.net"
SAS = "https://acct.blob.core.windows.net/c?sv=2024&sig=c2VjcmV0c2VjcmV0"
ROOTS = {"onelake": "onelake://taxi/raw.Lakehouse", "adls": "abfss://l@acct.dfs.core.windows.net", "s3": "s3://bucket"}
MISPLACED = [SECRET, SAS, "https://acct.blob.core.windows.net/c/sig=c2VjcmV0c2VjcmV0", "c2VjcmV0c2VjcmV0://x"]


@pytest.mark.parametrize(
    "value", [SECRET, SAS, MISPLACED[-1], "onelake://ws/c2VjcmV0c2VjcmV0", "onelake://a@c2VjcmV0c2VjcmV0/x"]
)
@pytest.mark.parametrize("field", ["lakehouse", "lakehouse_alias"])
def test_a_secret_in_the_field_of_the_lakehouse_is_not_repeated(
    value: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"lakehouse": "onelake://taxi/raw.Lakehouse", field: value}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps({"conn_type": "onelake", "extra": extra}))
    with pytest.raises(AddressError, match=rf"The connection's `{field}`, of {len(value)} characters") as caught:
        OneLakeHook().get_conn()
    assert "c2VjcmV0" not in str(caught.value)


def error_of(use: Callable[[], object]) -> str:
    try:
        use()
    except OneLakeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("value", MISPLACED)
@pytest.mark.parametrize(
    "field", ["endpoint", "sign_in", "allow_http", "path_style", "patience", "profile", "authority", "fabric_api"]
)
@pytest.mark.parametrize("kind", ["onelake", "adls", "s3"])
def test_a_secret_in_another_field_is_not_repeated(
    value: str, field: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"lakehouse": ROOTS[kind], "patience": 0, "sign_in": "" if kind == "s3" else "cli", field: value}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps({"conn_type": "onelake", "extra": extra}))
    hook = OneLakeHook()
    for use in (hook.get_conn, FabricHook(lakehouse=hook).get_conn, lambda: hook.patience):
        assert "c2VjcmV0" not in error_of(use)


@pytest.mark.parametrize(("field", "ask"), [("fabric_api", FabricHook.get_conn), ("powerbi_api", FabricHook.power_bi)])
def test_an_address_of_a_rest_that_is_none_is_named_by_its_own_field(
    field: str, ask: Callable[[FabricHook], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"lakehouse": ROOTS["onelake"], "sign_in": "cli", field: SAS}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps({"conn_type": "onelake", "extra": extra}))
    assert error_of(lambda: ask(FabricHook())).startswith(f"The connection's `{field}`, of {len(SAS)} characters,")


@pytest.mark.parametrize("synced", [None, "", True, "true", False, "false", "no"])
def test_a_local_disk_is_not_signed_in_to_and_is_synced_by_default(synced: object) -> None:
    assert signed_in_by(connection("A", "B"), at("local")) is None
    expected = None if synced in (None, "", True, "true") else LocalDisk(fsync=False)
    assert signed_in_by(connection(fsync=synced), at("local")) == expected


def test_an_fsync_that_is_no_flag_is_refused_without_repeating_it() -> None:
    with pytest.raises(CredentialsError, match="`fsync`, of 6 characters, is no flag") as caught:
        signed_in_by(connection(fsync="secret"), at("local"))
    assert "secret" not in str(caught.value)
