"""Azure's storage accounts (ADLS Gen2), and how to sign in to them and to OneLake."""

from __future__ import annotations

import logging
import re
from abc import abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args
from urllib.parse import quote

import attrs

from airflow_provider_onelake.exceptions import CredentialsError
from airflow_provider_onelake.storage.addresses import Spelling, TableAddress, refuse, shown_name
from airflow_provider_onelake.storage.credentials import Credentials, Fields, credentials_for, of_length, without_values
from airflow_provider_onelake.storage.kinds import StoreKind
from airflow_provider_onelake.storage.sign_in import Provider, explained
from airflow_provider_onelake.storage.spark import SparkAccess, hadoop
from airflow_provider_onelake.storage.stores import SILENCE, ObjectStore, Store, client_options, deltalake_retries

if TYPE_CHECKING:
    from obstore.store import AzureStore, RetryConfig

    from airflow_provider_onelake.storage.azure_deletes import BlobDeletes
    from airflow_provider_onelake.storage.errors import Doing

AzureSignIn = Literal[
    "default", "account_key", "service_principal", "workload_identity", "managed_identity", "cli", "token"
]
AZURE_SIGN_INS: tuple[AzureSignIn, ...] = get_args(AzureSignIn)
"""Ways to sign in to Azure, by name."""

SCOPE = "https://storage.azure.com/.default"
"""The scope of a token for OneLake and for storage accounts."""

_PUBLIC_AUTHORITY = "https://login.microsoftonline.com"
_ACCOUNT_HOST = re.compile(
    r"^(?P<account>[a-z0-9]{3,24})\.(?:dfs|blob)\.core\.(?P<cloud>windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)$"
)
_CONTAINER = re.compile(r"^[a-z0-9](?:-?[a-z0-9]){2,62}$")
_ABFSS = "abfss://container@account.dfs.core.windows.net/path"
_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2"
# They tell of every request for a token, with its headers, and of every place where a credential was looked for.
_CHATTY = ("azure.core.pipeline.policies.http_logging_policy", "azure.identity")


@attrs.frozen(kw_only=True)
class AzureCredentials(Credentials):
    """How to sign in to OneLake or to a storage account.

    Every way to sign in but ``account_key`` needs the extra ``azure``. Tokens are renewed, except with ``token``.

    :param sign_in: the way to sign in. ``default`` is azure-identity's chain: environment, workload identity, managed
        identity, CLI.
    :param tenant_id: the tenant of the service principal or the workload identity.
    :param client_id: the client of the service principal, the workload identity or a user-assigned managed identity.
    :param client_secret: the secret of the service principal.
    :param account_key: the key of the storage account. OneLake takes no account key; emulators do.
    :param token: a bearer token. It is not renewed: after about an hour it expires, and work that still runs fails.
    :param authority: the service that gives tokens, for other clouds than the public one.
    :param endpoint: the endpoint of an emulator, with the account in its path.
    :param allow_http: whether the endpoint may be used without TLS.
    :raises CredentialsError: the values are incomplete or contradictory.
    """

    sign_in: AzureSignIn = "default"
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = attrs.field(default=None, repr=False)
    account_key: str | None = attrs.field(default=None, repr=False)
    token: str | None = attrs.field(default=None, repr=False)
    authority: str = _PUBLIC_AUTHORITY

    def __attrs_post_init__(self) -> None:
        if self.sign_in not in AZURE_SIGN_INS:
            raise CredentialsError(
                f"{of_length('sign_in', self.sign_in)} is no way to sign in to Azure: {', '.join(AZURE_SIGN_INS)}."
            )
        needed = {
            "account_key": ("account_key",),
            "service_principal": ("tenant_id", "client_id", "client_secret"),
            "token": ("token",),
        }.get(self.sign_in, ())
        missing = [name for name in needed if not getattr(self, name)]
        if missing:
            raise CredentialsError(f"To sign in by {self.sign_in}, the connection lacks {', '.join(missing)}.")
        super().__attrs_post_init__()


class Azure(StoreKind):
    """What OneLake and storage accounts have in common: Azure's APIs, Hadoop's ABFS and Entra ID."""

    schemes: ClassVar[tuple[str, ...]] = ("abfss", "abfs", "https")
    logs_spark_commits = True
    missing_file_system = r'fs[./]azurebfs\b|for scheme "?abfs'
    spark_settings: ClassVar[Mapping[str, str]] = {}
    """What Hadoop must be told of every such store that is no emulator."""

    def packages(self, hadoop: str) -> tuple[str, ...]:
        """See :meth:`StoreKind.packages`."""
        return (f"org.apache.hadoop:hadoop-azure:{hadoop}",)

    @abstractmethod
    def host(self, address: TableAddress, api: str) -> str:
        """Return the host of one of Azure's APIs, ``dfs`` or ``blob``."""

    def blob_endpoint(self, address: TableAddress) -> str:
        """Return the endpoint of the Blob API."""
        return f"https://{self.host(address, 'blob')}"

    def unknown_endpoint(self, address: TableAddress) -> str | None:
        """Return the endpoint, if deltalake does not find it by the address. Default: it does."""
        return None

    def spark_uri(self, address: TableAddress) -> str:
        """See :meth:`StoreKind.spark_uri`."""
        return f"abfss://{self._file_system(address)}/{address.path}"

    def deltalake_uri(self, address: TableAddress) -> str:
        """See :meth:`StoreKind.deltalake_uri`."""
        return f"abfss://{self._file_system(address)}/{quote(address.path)}"

    def credentials_of(self, fields: Fields) -> AzureCredentials:
        """Read how a connection signs in.

        Login and password are a client id with its secret; the password alone is an account key or a token.

        :raises CredentialsError: incomplete or contradictory.
        """
        sign_in = fields.text("sign_in")
        if sign_in is None:
            by_secret = "service_principal" if fields.login or fields.text("tenant_id") else "account_key"
            sign_in = by_secret if fields.password else "default"
        if sign_in not in AZURE_SIGN_INS:
            raise CredentialsError(
                f"The connection {fields.conn_id} has a `sign_in` of {len(sign_in)} characters that is no way to sign "
                f"in: ways are {', '.join(AZURE_SIGN_INS)}."
            )
        where = {"service_principal": "client_secret", "account_key": "account_key", "token": "token"}.get(sign_in)
        if fields.password and where is None:
            raise CredentialsError(
                f"The connection {fields.conn_id} has a password, and to sign in by {sign_in} none is asked for: "
                "remove it, or choose another `sign_in`."
            )
        known = fields.filled("tenant_id", "authority", "endpoint", flags=("allow_http",))
        if where:
            known[where] = fields.password
        return AzureCredentials(sign_in=sign_in, client_id=fields.login, **known)

    def open(self, address: TableAddress, credentials: Credentials | None, patience: float) -> Store:
        """See :meth:`StoreKind.open`."""
        from obstore.store import AzureStore

        azure = credentials_for(address, credentials, AzureCredentials)

        def opened(retries: RetryConfig) -> AzureStore:
            return AzureStore(
                _container(address),
                prefix=address.path or None,
                # A workspace is of no account.
                account_name=address.authority.partition("@")[2].partition(".")[0] or "onelake",
                endpoint=azure.endpoint or self.blob_endpoint(address),
                client_options=client_options(allow_http=azure.allow_http),
                retry_config=retries,
                credential_provider=azure_provider(azure),
            )

        return ObjectStore.remote(opened, str(address), patience, self.deletes(address, azure, patience))

    def deletes(self, address: TableAddress, credentials: AzureCredentials, patience: float) -> BlobDeletes | None:
        """Return what deletes an object; ``None`` where obstore does it."""
        if credentials.sign_in == "account_key":
            return None
        from airflow_provider_onelake.storage.azure_deletes import BlobDeletes

        endpoint = credentials.endpoint or self.blob_endpoint(address)
        directory = "/".join(filter(None, (endpoint.rstrip("/"), quote(_container(address)), quote(address.path))))
        return BlobDeletes(directory, azure_provider(credentials), str(address), patience=patience, silence=SILENCE)

    def for_deltalake(self, address: TableAddress, credentials: Credentials | None, patience: float) -> dict[str, str]:
        """See :meth:`StoreKind.for_deltalake`."""
        azure = credentials_for(address, credentials, AzureCredentials)
        now = azure_provider(azure)()
        given = {
            "azure_storage_account_key": now.get("access_key"),
            "azure_storage_token": now.get("token"),
            "azure_endpoint": azure.endpoint or self.unknown_endpoint(address),
            "azure_allow_http": "true" if azure.allow_http else None,
        }
        return deltalake_retries(patience) | {name: value for name, value in given.items() if value is not None}

    def for_spark(self, address: TableAddress, credentials: Credentials | None, patience: float) -> SparkAccess:
        """See :meth:`StoreKind.for_spark`. ABFS repeats a request for ten minutes by default."""
        azure = credentials_for(address, credentials, AzureCredentials)
        host = address.spark_uri.removeprefix("abfss://").partition("@")[2].partition("/")[0]
        settings, environment = _hadoop_sign_in(azure, host)
        sign_in = {f"spark.hadoop.{name}.{host}": f"spark.hadoop.{name}" for name in settings}
        if azure.endpoint is None:
            settings |= self.spark_settings
        # Name the host in each setting, so that tables of several accounts can be used in one session.
        return SparkAccess(
            {f"spark.hadoop.{name}.{host}": value for name, value in settings.items()},
            environment,
            self.packages(hadoop()),
            sign_in,
        )

    def _file_system(self, address: TableAddress) -> str:
        return f"{quote(_container(address))}@{self.host(address, 'dfs')}"


class Adls(Azure):
    """A container of a storage account: the authority is ``container@account.cloud``."""

    name = "adls"
    forms = ("abfss://container@host/path", "https://account.dfs.core.windows.net/…")
    hints: ClassVar = {
        "wasb": f"Hadoop has no wasb any more: use {_ABFSS}.",
        "wasbs": f"Hadoop has no wasb any more: use {_ABFSS}.",
        "adl": f"Data Lake Storage Gen1 was retired: use {_ABFSS}.",
        "az": f"Use {_ABFSS}.",
        "azure": f"Use {_ABFSS}.",
    }

    def parse(self, spelled: Spelling) -> TableAddress:
        """See :meth:`StoreKind.parse`."""
        container, host, rest = container_and_host(spelled)
        found = _ACCOUNT_HOST.match(host)
        if found is None:
            refuse(
                spelled.text,
                f"the host {shown_name(host)!r} is neither OneLake's nor a storage account's",
                "expected [<region>-]onelake.dfs.fabric.microsoft.com, <workspace GUID without dashes>.z<its first two "
                "characters>.dfs.fabric.microsoft.com or <account>.dfs.core.windows.net",
            )
        if not _CONTAINER.match(container):
            refuse(
                spelled.text,
                f"{shown_name(container)!r} is no name of a container",
                "containers are 3 to 63 small letters, digits and single hyphens",
            )
        return TableAddress(self, rest.directory(), f"{container}@{found['account']}.{found['cloud']}")

    def host(self, address: TableAddress, api: str) -> str:
        """See :meth:`Azure.host`."""
        account, _, cloud = address.authority.partition("@")[2].partition(".")
        return f"{account}.{api}.core.{cloud}"

    def asset_address(self, path: str) -> str:
        """See :meth:`StoreKind.asset_address`."""
        authority, _, below = path.lstrip("/").partition("/")
        return f"abfss://{self._file_system(TableAddress(self, below, authority))}/{below}"

    def right_to(self, doing: Doing) -> str:
        """See :meth:`StoreKind.right_to`."""
        return "the role Storage Blob Data Contributor"


def container_and_host(spelled: Spelling) -> tuple[str, str, Spelling]:
    """Return the container and the host that an address names, and the address below the container.

    :raises AddressError: there is no container.
    """
    if spelled.scheme == "https":
        container, slash, below = spelled.path.removeprefix("/").partition("/")
        return container, spelled.authority.lower(), attrs.evolve(spelled, path=f"{slash}{below}")
    container, at, host = spelled.authority.rpartition("@")
    if not at or not container:
        refuse(spelled.text, "the container before the @ is missing", "write abfss://container@host/path")
    return container, host.lower(), spelled


def azure_provider(credentials: AzureCredentials, scope: str = SCOPE) -> Provider:
    """Return a provider of Azure keys or tokens that renews them before they expire.

    :param credentials: how to sign in.
    :param scope: of the token. Default: that of OneLake and of storage accounts.
    :raises CredentialsError: the extra ``azure`` is missing, or azure-identity refuses a value.
    """
    if credentials.sign_in == "account_key":
        return lambda: {"access_key": credentials.account_key, "expires_at": None}
    if credentials.sign_in == "token":
        return lambda: {"token": credentials.token, "expires_at": None}
    identity = _identity(credentials)
    _quieten()
    from azure.core.exceptions import ServiceRequestError, ServiceResponseError
    from azure.identity import CredentialUnavailableError

    def ask() -> dict[str, Any]:
        token = identity.get_token(scope)
        return {"token": token.token, "expires_at": datetime.fromtimestamp(token.expires_on, UTC)}

    silent = (ServiceRequestError, ServiceResponseError)
    return explained(ask, credentials, silent, (CredentialUnavailableError,))


def _quieten() -> None:
    """Let Azure's packages say warnings alone, unless the log is at DEBUG, or somebody has chosen their own level."""
    for name in _CHATTY:
        chatty = logging.getLogger(name)
        if chatty.level == logging.NOTSET and chatty.getEffectiveLevel() > logging.DEBUG:
            chatty.setLevel(logging.WARNING)


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
                named = {} if authority == _PUBLIC_AUTHORITY else {"authority": authority}
                return identity.DefaultAzureCredential(**named)
    except ValueError as error:
        raise CredentialsError(
            f"azure-identity refuses {credentials.sign_in}: {without_values(error, credentials)}"
        ) from None


def _hadoop_sign_in(credentials: AzureCredentials, host: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings by which Hadoop signs in, and the environment that holds their secrets."""
    environment: dict[str, str] = {}

    def from_environment(variable: str, value: str | None) -> str:
        environment[variable] = str(value)
        # Hadoop resolves this notation. Spark does not, so neither its UI nor its event log shows the value.
        return f"${{env.{variable}}}"

    oauth: dict[str, str | None]
    match credentials.sign_in:
        case "account_key":
            key = from_environment("AZURE_STORAGE_ACCOUNT_KEY", credentials.account_key)
            return {"fs.azure.account.auth.type": "SharedKey", "fs.azure.account.key": key}, environment
        case "service_principal":
            oauth = {
                "oauth.provider.type": f"{_OAUTH}.ClientCredsTokenProvider",
                "oauth2.client.id": credentials.client_id,
                "oauth2.client.secret": from_environment("AZURE_CLIENT_SECRET", credentials.client_secret),
                "oauth2.client.endpoint": f"{credentials.authority}/{credentials.tenant_id}/oauth2/token",
            }
        case "workload_identity":
            # Spark's machines sign in. The cluster has put the values that are not given here into their environment.
            oauth = {
                "oauth.provider.type": f"{_OAUTH}.WorkloadIdentityTokenProvider",
                "oauth2.client.id": credentials.client_id or "${env.AZURE_CLIENT_ID}",
                "oauth2.msi.tenant": credentials.tenant_id or "${env.AZURE_TENANT_ID}",
                "oauth2.token.file": "${env.AZURE_FEDERATED_TOKEN_FILE}",
            }
        case "managed_identity":
            oauth = {
                "oauth.provider.type": f"{_OAUTH}.MsiTokenProvider",
                "oauth2.client.id": credentials.client_id,
                "oauth2.msi.tenant": credentials.tenant_id,
            }
        case _:
            raise CredentialsError(
                f"Spark cannot sign in to {host} by {credentials.sign_in!r}: it renews tokens by itself, and needs a "
                "service principal, a workload identity or a managed identity. Give the connection one of them, or use "
                "a Spark Connect server that was started with access of its own. Nothing was staged."
            )
    settings = {"fs.azure.account.auth.type": "OAuth"}
    settings |= {f"fs.azure.account.{name}": value for name, value in oauth.items() if value is not None}
    return settings, environment


def _container(address: TableAddress) -> str:
    return address.authority.partition("@")[0]
