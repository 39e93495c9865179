"""From the fields of a connection to credentials."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_provider_onelake.exceptions import CredentialsError
from airflow_provider_onelake.storage.azure import AzureCredentials
from airflow_provider_onelake.storage.kinds import kinds
from airflow_provider_onelake.storage.s3 import S3Credentials
from tests.support.contexts import signed_in_by

KIND = {kind.name: kind for kind in kinds()}


def connection(login: str | None = None, password: str | None = None, **extra: Any) -> Connection:
    return Connection(
        conn_id="lake", conn_type="onelake", login=login, password=password, extra=json.dumps(extra) if extra else None
    )


def at(kind: str) -> SimpleNamespace:
    """An address of a kind of store."""
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
        (
            connection(endpoint="http://store", allow_http="true", path_style="false"),
            S3Credentials(endpoint="http://store", allow_http=True, path_style=False),
        ),
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
        (connection(sign_in="magic"), "adls", "'magic'; ways are default"),
        (connection(sign_in="cli"), "s3", "leave `sign_in` empty"),
        (connection("A"), "s3", "the secret key is missing"),
        (connection(path_style="perhaps"), "s3", "write true or false"),
    ],
    ids=["half a principal", "needless secret", "unknown way", "azure for s3", "half a key", "no flag"],
)
def test_what_cannot_work_is_refused_before_anything_is_asked(given: Connection, kind: str, message: str) -> None:
    with pytest.raises(CredentialsError, match=message):
        signed_in_by(given, at(kind))


def test_a_local_disk_is_not_signed_in_to() -> None:
    assert signed_in_by(connection("A", "B"), at("local")) is None
