"""Opens obstore's stores for S3, OneLake and storage accounts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_onelake.exceptions import UnsupportedStoreError
from airflow_provider_onelake.storage.credentials import AzureCredentials, S3Credentials
from airflow_provider_onelake.storage.deletes import BlobDeletes
from airflow_provider_onelake.storage.sign_in import azure_provider, check_kind, s3_provider

if TYPE_CHECKING:
    from collections.abc import Callable

    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as ObstoreStore

    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials

SILENCE = 20.0
"""Seconds without any data after which a request counts as unanswered."""

_MOST_TRIES = 10_000
# For create-only puts, obstore must not retry by itself: a repeated put would meet its own object, and we could not
# tell that from a lost race.
_ONCE: RetryConfig = {"max_retries": 0}


def open_remote(
    address: TableAddress, credentials: Credentials | None, patience: float
) -> tuple[ObstoreStore, ObstoreStore, Callable[[str], None] | None]:
    """Open a table's store three times: with retries, without retries for create-only puts, and for deletes.

    :param credentials: for the same kind of store. Default: what the environment of this process offers.
    :param patience: seconds from the first try of a request after which it is not tried again.
    :returns: obstore's store with retries, the same without, and a function that deletes an object, ``None`` where
        obstore deletes.
    :raises UnsupportedStoreError: this version does not write to that kind of store.
    :raises CredentialsError: the credentials are for another kind of store, or need an extra that is not installed.
    """
    if address.kind not in ("s3", "onelake", "adls"):
        raise UnsupportedStoreError(
            f"{address} is on {address.kind}; this version writes to local disk, S3, OneLake and ADLS Gen2. Use an "
            "address of one of them."
        )
    check_kind(address, credentials)
    again = _again(patience)
    if isinstance(credentials, S3Credentials) or address.kind == "s3":
        s3 = credentials if isinstance(credentials, S3Credentials) else S3Credentials()
        return _s3(address, s3, again), _s3(address, s3, _ONCE), None
    azure = credentials if isinstance(credentials, AzureCredentials) else AzureCredentials()
    return _azure(address, azure, again), _azure(address, azure, _ONCE), _deletes(address, azure, patience)


def _again(patience: float) -> RetryConfig:
    # obstore tries again after 5xx, 429 and a refused or dropped connection. After a time-out, it repeats only requests
    # that are safe to repeat.
    return {
        "max_retries": _MOST_TRIES,
        "retry_timeout": timedelta(seconds=patience),
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2},
    }


def _client(*, allow_http: bool) -> ClientConfig:
    # The request for a large object may take long in total, but it must never be silent for long.
    return {
        "allow_http": allow_http,
        "connect_timeout": timedelta(seconds=5),
        "read_timeout": timedelta(seconds=SILENCE),
        "timeout": timedelta(seconds=120),
    }


def _s3(address: TableAddress, credentials: S3Credentials, retries: RetryConfig) -> ObstoreStore:
    from obstore.store import S3Store

    named = {"region": credentials.region, "endpoint": credentials.endpoint_of(address.authority)}
    return S3Store(
        address.authority,
        prefix=address.path or None,
        client_options=_client(allow_http=credentials.allow_http),
        retry_config=retries,
        credential_provider=s3_provider(credentials),
        virtual_hosted_style_request=not credentials.path_style,
        **_given(named),
    )


def _azure(address: TableAddress, credentials: AzureCredentials, retries: RetryConfig) -> ObstoreStore:
    from obstore.store import AzureStore

    container, account = _container_and_account(address)
    return AzureStore(
        container,
        prefix=address.path or None,
        account_name=account,
        endpoint=credentials.endpoint or address.blob_endpoint,
        client_options=_client(allow_http=credentials.allow_http),
        retry_config=retries,
        credential_provider=azure_provider(credentials),
    )


def _deletes(address: TableAddress, credentials: AzureCredentials, patience: float) -> BlobDeletes | None:
    if credentials.sign_in == "account_key":
        return None
    endpoint = credentials.endpoint or address.blob_endpoint
    container, _ = _container_and_account(address)
    directory = "/".join(filter(None, (endpoint.rstrip("/"), quote(container), quote(address.path))))
    return BlobDeletes(directory, azure_provider(credentials), str(address), patience=patience, silence=SILENCE)


def _container_and_account(address: TableAddress) -> tuple[str, str]:
    if address.kind == "onelake":
        return address.authority, "onelake"
    container, _, rest = address.authority.partition("@")
    return container, rest.partition(".")[0]


def _given(values: dict[str, str | None]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
