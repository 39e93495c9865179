"""Tokens and keys: asked for when needed, renewed before they end, and errors that say whether to try again."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import AccessDeniedError, CredentialsError, StoreUnavailableError
from airflow_provider_onelake.storage import azure
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.azure import SCOPE, AzureCredentials, azure_provider
from airflow_provider_onelake.storage.s3 import S3Credentials, s3_provider
from airflow_provider_onelake.storage.stores import deltalake_options, open_store

ONELAKE = TableAddress.parse("onelake://taxi/raw.Lakehouse/Tables/t")
ADLS = TableAddress.parse("abfss://raw@lake.dfs.core.windows.net/t")
S3 = TableAddress.parse("s3://bucket/t")
PRINCIPAL: dict[str, Any] = {"sign_in": "service_principal", "tenant_id": "t", "client_id": "c", "client_secret": "s"}


class Listening:
    """What a server on this machine was asked with: it says yes to everything."""

    def __init__(self, port: int, signed: list[str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.signed = signed


@pytest.fixture
def listening() -> Iterator[Listening]:
    signed: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            return

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            signed.append(self.headers.get("Authorization", ""))
            self.send_response(201)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Listening(server.server_port, signed)
    server.shutdown()
    server.server_close()
    thread.join(10)


class Identity:
    """Stands for one of azure-identity's credentials, which ask Microsoft."""

    def __init__(self, lives: float = 3600, error: Exception | None = None) -> None:
        self.lives = lives
        self.error = error
        self.asked: list[str] = []

    def get_token(self, scope: str) -> Any:
        self.asked.append(scope)
        if self.error is not None:
            raise self.error
        ends = datetime.now(UTC) + timedelta(seconds=self.lives)
        return SimpleNamespace(token=f"token-{len(self.asked)}", expires_on=int(ends.timestamp()))


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> Identity:
    made = Identity()
    monkeypatch.setattr(azure, "_identity", lambda credentials: made)
    return made


def test_a_token_is_kept_while_it_is_valid(listening: Listening, identity: Identity) -> None:
    store = open_store(ONELAKE, AzureCredentials(**PRINCIPAL, endpoint=listening.url, allow_http=True))
    store.put("a", b"")
    store.put("b", b"")
    assert listening.signed == ["Bearer token-1", "Bearer token-1"]
    assert identity.asked == [SCOPE]


def test_a_token_that_is_about_to_end_is_renewed_in_the_middle_of_the_work(
    listening: Listening, identity: Identity
) -> None:
    identity.lives = 30
    store = open_store(ONELAKE, AzureCredentials(**PRINCIPAL, endpoint=listening.url, allow_http=True))
    deadline = time.monotonic() + 60
    # obstore asks for no token twice within a tenth of a second.
    while len(identity.asked) < 3 and time.monotonic() < deadline:
        store.put("a", b"")
    assert list(dict.fromkeys(listening.signed)) == ["Bearer token-1", "Bearer token-2", "Bearer token-3"]


def test_deltalake_is_told_the_host_of_a_private_link_which_it_does_not_know() -> None:
    workspace = "0f3c8a1e-5b2d-4c6f-9a7b-1d2e3f4a5b6c"
    host = f"{workspace.replace('-', '')}.z0f"
    private = TableAddress.parse(f"abfss://{workspace}@{host}.dfs.fabric.microsoft.com/{workspace}/Tables/t")
    given = AzureCredentials(sign_in="token", token="t")
    assert deltalake_options(private, given)["azure_endpoint"] == f"https://{host}.blob.fabric.microsoft.com"
    assert "azure_endpoint" not in deltalake_options(ONELAKE, given)
    emulated = AzureCredentials(sign_in="token", token="t", endpoint="https://127.0.0.1:1")
    assert deltalake_options(private, emulated)["azure_endpoint"] == "https://127.0.0.1:1"


def test_deltalake_gets_a_token_of_now(identity: Identity) -> None:
    credentials = AzureCredentials(**PRINCIPAL)
    tokens = [deltalake_options(ONELAKE, credentials)["azure_storage_token"] for _ in range(2)]
    assert tokens == ["token-1", "token-2"]


def test_a_refusal_of_who_gives_tokens_is_final_and_shows_no_secret(identity: Identity) -> None:
    from azure.core.exceptions import ClientAuthenticationError

    identity.error = ClientAuthenticationError("AADSTS7000215: Invalid client secret provided")
    store = open_store(ONELAKE, AzureCredentials(**{**PRINCIPAL, "client_secret": "hush"}))
    with pytest.raises(AccessDeniedError, match="AADSTS7000215") as refused:
        store.get("a")
    assert "hush" not in str(refused.value)


class Entra:
    """A transport of azure-core: what goes out to Microsoft, and what comes back."""

    def __init__(self, status: int, body: dict[str, str] | None) -> None:
        self.answer = status, body

    def __enter__(self) -> Entra:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def send(self, request: Any, **_: object) -> Any:
        from azure.core.exceptions import ServiceRequestError
        from azure.core.rest._requests_basic import RestRequestsTransportResponse
        from requests import Response

        status, body = self.answer
        if not status:
            raise ServiceRequestError("no route to host")
        answer = Response()
        answer._content_consumed = True
        answer.status_code, answer._content = status, json.dumps(body).encode() if body else b"<html>"
        answer.headers["Content-Type"] = "application/json" if body else "text/html"
        if "/token" not in request.url and "169.254" not in request.url:
            there = "https://login.microsoftonline.com/t/oauth2/v2.0"
            found = {
                "issuer": there,
                "token_endpoint": f"{there}/token",
                "authorization_endpoint": f"{there}/authorize",
                "tenant_discovery_endpoint": f"{there}/.well-known/openid-configuration",
                "metadata": [],
            }
            answer.status_code, answer._content = 200, json.dumps(found).encode()
            answer.headers["Content-Type"] = "application/json"
        return RestRequestsTransportResponse(request=request, internal_response=answer)


BUSY = {"error": "temporarily_unavailable", "error_description": "AADSTS90055: There are too many incoming requests."}
REFUSED = {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."}
NOBODY = {"error": "invalid_request", "error_description": "Identity not found"}


@pytest.mark.parametrize(
    ("sign_in_by", "status", "body", "raised"),
    [
        pytest.param("service_principal", 0, None, StoreUnavailableError, id="principal-no-answer"),
        pytest.param("service_principal", 503, None, StoreUnavailableError, id="principal-503"),
        pytest.param("service_principal", 429, BUSY, StoreUnavailableError, id="principal-429"),
        pytest.param("service_principal", 401, REFUSED, AccessDeniedError, id="principal-refused"),
        pytest.param("managed_identity", 0, None, StoreUnavailableError, id="machine-no-answer"),
        pytest.param("managed_identity", 400, NOBODY, AccessDeniedError, id="machine-has-no-identity"),
    ],
)
def test_what_azure_identity_makes_of_an_answer(
    monkeypatch: pytest.MonkeyPatch, sign_in_by: str, status: int, body: dict[str, str] | None, raised: type[Exception]
) -> None:
    from azure import identity

    given: dict[str, Any] = {"transport": Entra(status, body), "retry_total": 0}
    by_machine = sign_in_by == "managed_identity"
    real: Any = (
        identity.ManagedIdentityCredential(**given)
        if by_machine
        else identity.ClientSecretCredential("t", "c", "s", **given)
    )
    monkeypatch.setattr(azure, "_identity", lambda credentials: real)
    with pytest.raises(raised):
        open_store(
            ONELAKE, AzureCredentials(sign_in="managed_identity") if by_machine else AzureCredentials(**PRINCIPAL)
        ).get("a")


@pytest.fixture
def azures_loggers() -> Iterator[list[logging.Logger]]:
    """As they are in a process that has not signed in yet."""
    found = [logging.getLogger(name) for name in azure._CHATTY]
    levels = [logger.level for logger in found]
    for logger in found:
        logger.setLevel(logging.NOTSET)
    yield found
    for logger, level in zip(found, levels, strict=True):
        logger.setLevel(level)


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG], ids=logging.getLevelName)
def test_a_tasks_log_has_azures_requests_only_at_debug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, azures_loggers: list[logging.Logger], level: int
) -> None:
    from azure import identity

    caplog.set_level(level)
    given = {"access_token": "of now", "token_type": "Bearer", "expires_in": "3600"}
    real = identity.ClientSecretCredential("t", "c", "s", transport=Entra(200, given))
    monkeypatch.setattr(azure, "_identity", lambda credentials: real)
    assert azure_provider(AzureCredentials(**PRINCIPAL))()["token"] == "of now"
    said = {record.name for record in caplog.records if record.levelno <= logging.INFO}
    chatty = {logger.name for logger in azures_loggers if any(name.startswith(logger.name) for name in said)}
    assert chatty == (set(azure._CHATTY) if level == logging.DEBUG else set())


def test_a_level_that_somebody_chose_for_azures_packages_stays(
    caplog: pytest.LogCaptureFixture, azures_loggers: list[logging.Logger]
) -> None:
    caplog.set_level(logging.INFO)
    for logger in azures_loggers:
        logger.setLevel(logging.INFO)
    azure_provider(AzureCredentials(**PRINCIPAL))
    assert [logger.level for logger in azures_loggers] == [logging.INFO, logging.INFO]


def test_an_identity_that_answered_before_is_only_silent(identity: Identity, listening: Listening) -> None:
    from azure.identity import CredentialUnavailableError

    here = AzureCredentials(sign_in="cli", tenant_id="of-this-test", endpoint=listening.url, allow_http=True)
    identity.lives, identity.error = 30, CredentialUnavailableError("nobody there")
    store = open_store(ONELAKE, here)
    with pytest.raises(AccessDeniedError, match="nobody there"):
        store.put("a", b"")
    identity.error = None
    store.put("a", b"")
    identity.error = CredentialUnavailableError("nobody there")
    with pytest.raises(StoreUnavailableError, match="nobody there"):
        open_store(ONELAKE, here).put("a", b"")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (PRINCIPAL, "ClientSecretCredential"),
        ({"sign_in": "managed_identity", "client_id": "c"}, "ManagedIdentityCredential"),
        ({"sign_in": "cli"}, "AzureCliCredential"),
        ({"sign_in": "default"}, "DefaultAzureCredential"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_way_to_sign_in_is_azure_identitys(given: dict[str, Any], name: str) -> None:
    assert type(azure._identity(AzureCredentials(**given))).__name__ == name


def test_a_workload_identity_takes_what_the_cluster_gives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AZURE_CLIENT_ID", "c")
    made = azure._identity(AzureCredentials(sign_in="workload_identity", tenant_id="tenant"))
    assert type(made).__name__ == "WorkloadIdentityCredential"


def test_a_workload_identity_outside_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_ID", "AZURE_TENANT_ID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CredentialsError, match="workload_identity"):
        azure_provider(AzureCredentials(sign_in="workload_identity"))


def test_keys_and_tokens_that_are_given_are_used_as_they_are(listening: Listening) -> None:
    here: dict[str, Any] = {"endpoint": listening.url, "allow_http": True}
    open_store(ADLS, AzureCredentials(sign_in="token", token="given", **here)).put("a", b"")
    open_store(ADLS, AzureCredentials(sign_in="account_key", account_key="a2V5", **here)).put("a", b"")
    open_store(S3, S3Credentials(access_key="AKID", secret_key="s", region="eu-north-1", **here)).put("a", b"")
    assert listening.signed[0] == "Bearer given"
    assert listening.signed[1].startswith("SharedKey lake:")
    assert "Credential=AKID/" in listening.signed[2]
    assert "/eu-north-1/s3/" in listening.signed[2]


def test_a_profile_is_read_from_awss_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[work]\naws_access_key_id = FROMFILE\naws_secret_access_key = hush\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    provider = s3_provider(S3Credentials(profile="work"))
    assert provider is not None
    assert provider()["access_key_id"] == "FROMFILE"
    with pytest.raises(CredentialsError, match="the `profile` of 5 characters"):
        s3_provider(S3Credentials(profile="other"))


def test_a_role_is_assumed_again_for_every_new_key(monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    asked: list[dict[str, Any]] = []

    class Sts:
        def assume_role(self, **request: Any) -> dict[str, Any]:
            asked.append(request)
            ends = datetime.now(UTC) + timedelta(seconds=30)
            given = {"AccessKeyId": f"ROLE{len(asked)}", "SecretAccessKey": "s", "SessionToken": "t"}
            return {"Credentials": {**given, "Expiration": ends}}

    monkeypatch.setattr(boto3.Session, "client", lambda self, name: Sts())
    role = "arn:aws:iam::123456789012:role/writer"
    credentials = S3Credentials(access_key="A", secret_key="B", role_arn=role)
    options = [deltalake_options(S3, credentials) for _ in range(2)]
    assert [option["aws_access_key_id"] for option in options] == ["ROLE1", "ROLE2"]
    assert asked[0] == {"RoleArn": role, "RoleSessionName": "airflow-provider-onelake"}


def _client_error(code: str, status: int) -> Exception:
    from botocore.exceptions import ClientError

    said: Any = {"Error": {"Code": code, "Message": "as AWS says"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(said, "AssumeRole")


def _no_route() -> Exception:
    from botocore.exceptions import EndpointConnectionError

    return EndpointConnectionError(endpoint_url="https://sts.amazonaws.com")


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        pytest.param(_client_error("Throttling", 400), StoreUnavailableError, id="busy"),
        pytest.param(_client_error("ServiceUnavailable", 503), StoreUnavailableError, id="away"),
        pytest.param(_no_route(), StoreUnavailableError, id="no-answer"),
        pytest.param(_client_error("AccessDenied", 403), AccessDeniedError, id="refused"),
    ],
)
def test_what_aws_says_of_a_role_is_no_for_good_or_not_now(
    monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    import boto3

    class Sts:
        def assume_role(self, **_: object) -> None:
            raise error

    monkeypatch.setattr(boto3.Session, "client", lambda self, name: Sts())
    credentials = S3Credentials(access_key="A", secret_key="B", role_arn="arn:aws:iam::123456789012:role/writer")
    with pytest.raises(raised):
        open_store(S3, credentials).get("a")


def test_without_keys_the_stores_own_chain_is_asked() -> None:
    assert s3_provider(S3Credentials()) is None
    assert "aws_access_key_id" not in deltalake_options(S3)


def test_credentials_of_another_kind_of_store_are_refused() -> None:
    with pytest.raises(CredentialsError, match="on s3"):
        open_store(S3, AzureCredentials())
    with pytest.raises(CredentialsError, match="on onelake"):
        deltalake_options(ONELAKE, S3Credentials())


@pytest.mark.parametrize(("extra", "missing"), [("s3", "boto3"), ("azure", "azure")])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, extra: str, missing: str) -> None:
    monkeypatch.setitem(__import__("sys").modules, missing, None)
    azure._identity.cache_clear()
    with pytest.raises(CredentialsError, match=rf"airflow-provider-onelake\[{extra}\]"):
        s3_provider(S3Credentials(profile="p")) if extra == "s3" else azure_provider(AzureCredentials(**PRINCIPAL))


def test_the_local_disk_needs_no_options(tmp_path: Path) -> None:
    assert deltalake_options(TableAddress.parse(str(tmp_path / "t"))) == {}


def test_deltalake_is_as_patient_as_the_committer() -> None:
    assert deltalake_options(S3, S3Credentials())["retry_timeout"] == "150000ms"
    assert deltalake_options(S3, S3Credentials(), 7.5)["retry_timeout"] == "7500ms"
