"""Credentials: what is incomplete is refused, and no secret is ever shown."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_onelake.exceptions import CredentialsError
from airflow_provider_onelake.storage.azure import AzureCredentials
from airflow_provider_onelake.storage.credentials import without_values
from airflow_provider_onelake.storage.s3 import S3Credentials


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"access_key": "A"}, "the secret key is missing", id="half a key"),
        pytest.param({"secret_key": "B"}, "the access key is missing", id="the other half"),
        pytest.param({"session_token": "T"}, "belongs to temporary keys", id="token without key"),
        pytest.param({"access_key": "A", "secret_key": "B", "profile": "p"}, "leave one of them out", id="two ways"),
        pytest.param({"endpoint": "store:9000"}, "does not begin with https://", id="no scheme"),
        pytest.param({"endpoint": "http://store:9000"}, "without TLS", id="no TLS"),
        pytest.param(
            {"endpoint": "https://me:secret@store"}, "keys have fields of their own", id="key in the endpoint"
        ),
    ],
)
def test_s3_credentials_that_cannot_work_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(CredentialsError, match=message) as refused:
        S3Credentials(**given)
    assert "secret@" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"sign_in": "password"}, "no way to sign in", id="unknown way"),
        pytest.param({"sign_in": "account_key"}, "lacks account_key", id="no key"),
        pytest.param({"sign_in": "token"}, "lacks token", id="no token"),
        pytest.param({"sign_in": "service_principal", "client_id": "c"}, "lacks tenant_id, client_secret", id="half"),
        pytest.param({"endpoint": "http://store"}, "without TLS", id="no TLS"),
    ],
)
def test_azure_credentials_that_cannot_work_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(CredentialsError, match=message):
        AzureCredentials(**given)


def test_a_field_that_is_empty_leaves_the_text_of_an_error_as_it_is() -> None:
    credentials = S3Credentials(access_key="", secret_key="", profile="me", region="eu-1")
    said = without_values(ValueError("no me in eu-1"), credentials)
    assert said == "no the `profile` of 2 characters in the `region` of 4 characters"


@pytest.mark.parametrize(
    "credentials",
    [
        S3Credentials(access_key="A", secret_key="hush-1", session_token="hush-2"),
        AzureCredentials(
            sign_in="service_principal", tenant_id="t", client_id="c", client_secret="hush-1", account_key="hush-2"
        ),
        AzureCredentials(sign_in="token", token="hush-1"),
    ],
    ids=["s3", "service principal", "token"],
)
def test_no_secret_is_shown(credentials: S3Credentials | AzureCredentials) -> None:
    assert "hush" not in f"{credentials} {credentials!r}"


def test_a_bucket_of_another_store_than_aws_comes_in_the_path_unless_it_is_said() -> None:
    assert not S3Credentials().path_style
    assert S3Credentials(endpoint="https://store").path_style
    assert not S3Credentials(endpoint="https://store", path_style=False).path_style


def test_the_bucket_is_in_the_endpoints_host_or_in_the_path() -> None:
    assert S3Credentials().endpoint_of("lake") is None
    assert S3Credentials(endpoint="https://store:9000").endpoint_of("lake") == "https://store:9000"
    hosted = S3Credentials(endpoint="https://store:9000", path_style=False)
    assert hosted.endpoint_of("lake") == "https://lake.store:9000"
