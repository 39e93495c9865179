"""Credentials as obstore and deltalake take them. A token is requested when needed and not kept for a whole job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import CredentialsError
from airflow_provider_onelake.storage.credentials import PUBLIC_AUTHORITY, AzureCredentials, S3Credentials
from airflow_provider_onelake.storage.errors import SIGN_IN_REFUSED, SIGN_IN_UNANSWERED, SignInError
from airflow_provider_onelake.storage.sign_in_errors import is_passing
from airflow_provider_onelake.storage.stores import PATIENCE

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials

SCOPE = "https://storage.azure.com/.default"
"""The scope of a token for OneLake and for storage accounts."""

# obstore calls a provider whenever it needs a key or a token, and again before that expires.
Provider = Callable[[], Any]

# Credentials that have yielded a token in this process. For them, "no credential available" is a transient failure.
_ANSWERED: set[Credentials] = set()

_MOST_TRIES = "10000"


def check_kind(address: TableAddress, credentials: Credentials | None) -> None:
    """Refuse credentials for another kind of store than the table's.

    :raises CredentialsError: the credentials are for another kind of store.
    """
    wanted = S3Credentials if address.kind == "s3" else AzureCredentials
    if credentials is not None and not isinstance(credentials, wanted):
        raise CredentialsError(f"{address} is on {address.kind}, and these are {type(credentials).__name__}.")


def s3_provider(credentials: S3Credentials) -> Provider | None:
    """Return a provider of S3 keys that renews them before they expire; ``None`` leaves it to the store's own chain.

    :raises CredentialsError: the extra ``s3`` is missing, or there is no such profile.
    """
    if credentials.role_arn is None and credentials.profile is None:
        if credentials.access_key is None:
            return None
        keys = {
            "access_key_id": credentials.access_key,
            "secret_access_key": credentials.secret_key,
            "token": credentials.session_token,
            "expires_at": None,
        }
        return lambda: keys
    try:
        import boto3
        from botocore import exceptions as refusals
        from obstore.auth.boto3 import Boto3CredentialProvider, StsCredentialProvider
    except ImportError as error:
        raise CredentialsError(
            f"A profile or a role needs boto3: install airflow-provider-onelake[s3]. ({error})"
        ) from error
    try:
        session = boto3.Session(
            aws_access_key_id=credentials.access_key,
            aws_secret_access_key=credentials.secret_key,
            aws_session_token=credentials.session_token,
            region_name=credentials.region,
            profile_name=credentials.profile,
        )
        inner: Provider = (
            StsCredentialProvider(session, RoleArn=credentials.role_arn, RoleSessionName="airflow-provider-onelake")
            if credentials.role_arn
            else Boto3CredentialProvider(session)
        )
    except (refusals.BotoCoreError, ValueError) as error:
        raise CredentialsError(f"AWS cannot sign in: {error}") from error
    silent = (refusals.HTTPClientError, refusals.ConnectionError, refusals.MetadataRetrievalError)
    return _explained(inner, credentials, silent, (refusals.NoCredentialsError, refusals.CredentialRetrievalError))


def azure_provider(credentials: AzureCredentials) -> Provider:
    """Return a provider of Azure keys or tokens that renews them before they expire.

    :raises CredentialsError: the extra ``azure`` is missing, or azure-identity refuses a value.
    """
    if credentials.sign_in == "account_key":
        return lambda: {"access_key": credentials.account_key, "expires_at": None}
    if credentials.sign_in == "token":
        return lambda: {"token": credentials.token, "expires_at": None}
    identity = _identity(credentials)
    from azure.core.exceptions import ServiceRequestError, ServiceResponseError
    from azure.identity import CredentialUnavailableError

    def ask() -> dict[str, Any]:
        token = identity.get_token(SCOPE)
        return {"token": token.token, "expires_at": datetime.fromtimestamp(token.expires_on, UTC)}

    silent = (ServiceRequestError, ServiceResponseError)
    return _explained(ask, credentials, silent, (CredentialUnavailableError,))


def deltalake_options(
    address: TableAddress, credentials: Credentials | None = None, patience: float | None = None
) -> dict[str, str]:
    """Return deltalake's storage options. They hold a key or token that will expire: call this for every table opened.

    :param credentials: the connection's credentials. Default: what the environment offers.
    :param patience: see :func:`~airflow_provider_onelake.storage.stores.open_store`.
    :raises CredentialsError: as for :func:`s3_provider` and :func:`azure_provider`.
    :raises SignInError: the credentials yielded no token.
    """
    if address.kind == "local":
        return {}
    check_kind(address, credentials)
    seconds = PATIENCE if patience is None else patience
    trying = {
        "max_retries": _MOST_TRIES,
        "retry_timeout": f"{round(1000 * seconds)}ms",
        "timeout": "120s",
        "connect_timeout": "5s",
    }
    if address.kind == "s3":
        assert credentials is None or isinstance(credentials, S3Credentials)
        return trying | _s3_options(address.authority, credentials or S3Credentials())
    assert credentials is None or isinstance(credentials, AzureCredentials)
    return trying | _azure_options(address, credentials or AzureCredentials())


def _s3_options(bucket: str, credentials: S3Credentials) -> dict[str, str]:
    provider = s3_provider(credentials)
    keys = provider() if provider is not None else {}
    given = {
        "aws_access_key_id": keys.get("access_key_id"),
        "aws_secret_access_key": keys.get("secret_access_key"),
        "aws_session_token": keys.get("token"),
        "aws_region": credentials.region,
        "aws_endpoint_url": credentials.endpoint_of(bucket),
        "aws_allow_http": "true" if credentials.allow_http else None,
        "aws_virtual_hosted_style_request": "false" if credentials.path_style else "true",
        "aws_conditional_put": "etag",
    }
    return {name: value for name, value in given.items() if value is not None}


def _azure_options(address: TableAddress, credentials: AzureCredentials) -> dict[str, str]:
    now = azure_provider(credentials)()
    given = {
        "azure_storage_account_key": now.get("access_key"),
        "azure_storage_token": now.get("token"),
        "azure_endpoint": credentials.endpoint or (address.blob_endpoint if address.is_private else None),
        "azure_allow_http": "true" if credentials.allow_http else None,
    }
    return {name: value for name, value in given.items() if value is not None}


@lru_cache(maxsize=16)
def _identity(credentials: AzureCredentials) -> Any:
    """Return azure-identity's credential object. Cache it, because it keeps its token for as long as that is valid."""
    try:
        from azure import identity
    except ImportError as error:
        raise CredentialsError(
            f"To sign in by {credentials.sign_in}, install airflow-provider-onelake[azure]. ({error})"
        ) from error
    tenant, client, authority = credentials.tenant_id, credentials.client_id, credentials.authority
    try:
        match credentials.sign_in:
            case "service_principal":
                return identity.ClientSecretCredential(
                    str(tenant), str(client), str(credentials.client_secret), authority=authority
                )
            case "workload_identity":
                # If these are not given, azure-identity reads what the cluster has put into the environment.
                given = {"tenant_id": tenant, "client_id": client}
                return identity.WorkloadIdentityCredential(**{k: v for k, v in given.items() if v})
            case "managed_identity":
                return identity.ManagedIdentityCredential(client_id=client)
            case "cli":
                return identity.AzureCliCredential(tenant_id=tenant or "")
            case _:
                named = {} if authority == PUBLIC_AUTHORITY else {"authority": authority}
                return identity.DefaultAzureCredential(**named)
    except ValueError as error:
        raise CredentialsError(f"azure-identity refuses {credentials.sign_in}: {error}") from error


def _explained(
    inner: Provider,
    credentials: Credentials,
    silent: tuple[type[Exception], ...],
    nobody: tuple[type[Exception], ...],
) -> Provider:
    """Return a provider whose error says whether trying again may help; obstore takes every error for a refusal.

    :param inner: returns a token.
    :param credentials: the credentials that ``inner`` uses.
    :param silent: errors of a request that got no answer.
    :param nobody: errors that say that no source of tokens was found. They are permanent, unless these credentials have
        yielded a token in this process before.
    """

    def ask() -> Any:
        try:
            given = inner()
        except Exception as error:
            passes = is_passing(error, silent) or (isinstance(error, nobody) and credentials in _ANSWERED)
            raise SignInError(f"{SIGN_IN_UNANSWERED if passes else SIGN_IN_REFUSED}: {error}") from None
        _ANSWERED.add(credentials)
        return given

    return ask
