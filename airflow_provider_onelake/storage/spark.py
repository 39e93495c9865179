"""What Spark needs to reach a table: settings without secrets, environment variables with the secrets, and packages."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import CredentialsError, UnsupportedStoreError
from airflow_provider_onelake.storage.credentials import AzureCredentials, S3Credentials
from airflow_provider_onelake.storage.sign_in import check_kind
from airflow_provider_onelake.storage.stores import PATIENCE

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials

HADOOP = "3.5.0"
"""The Hadoop inside pip's pyspark 4.2; its file systems must be of the same version."""

_AWS_SDK = "2.35.4"
_AWS = "software.amazon.awssdk"
S3_PACKAGES = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    f"{_AWS}:s3:{_AWS_SDK}",
    f"{_AWS}:s3-transfer-manager:{_AWS_SDK}",
    f"{_AWS}:sts:{_AWS_SDK}",
)
AZURE_PACKAGES = (f"org.apache.hadoop:hadoop-azure:{HADOOP}",)
EXCLUDED = (f"{_AWS}:bundle",)
"""The SDK bundle of 686 MB that hadoop-aws depends on. The smaller packages above replace it."""

_SCALA = "2.13"
_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2"


def delta_package() -> str:
    """Return the Maven coordinates of the Delta Lake that fits the installed ``pyspark`` and ``delta-spark``."""
    spark = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    return f"io.delta:delta-spark_{spark}_{_SCALA}:{importlib.metadata.version('delta-spark')}"


@attrs.frozen
class SparkAccess:
    """How a Spark application reaches a table.

    :param settings: Spark's settings, without any secret, because Spark shows them in its UI and its event log. Where a
        secret is needed, the setting names an environment variable, which Hadoop looks up when it needs the secret.
    :param environment: environment variables for the driver and the executors. They hold the secrets.
    :param packages: Maven coordinates for ``spark.jars.packages``; the settings exclude dependencies that are not
        needed.
    :param sign_in: the names of the settings that say how to sign in, each with the name of the general setting that
        says the same for all stores.
    :param by_default: the names in ``sign_in`` that may be left out, because Hadoop by itself looks at the environment,
        and elsewhere too.
    """

    settings: Mapping[str, str] = attrs.field(factory=dict)
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    packages: tuple[str, ...] = ()
    sign_in: Mapping[str, str] = attrs.field(factory=dict)
    by_default: Collection[str] = ()

    def without_environment(self, conf: Mapping[str, str]) -> SparkAccess:
        """Return the access for machines whose environment we cannot set.

        A setting that names an environment variable must not hide an identity that such a machine has of its own.

        :param conf: the user's own settings of Spark. If they say how to sign in, all sign-in settings are left out.
        """
        if not self.environment:
            return self
        said = any(name in conf for names in self.sign_in.items() for name in names)
        left_out = self.sign_in if said else self.by_default
        settings = {name: value for name, value in self.settings.items() if name not in left_out}
        return attrs.evolve(self, settings=settings, environment={}, sign_in={}, by_default=())


def spark_access(
    address: TableAddress, credentials: Credentials | None = None, patience: float | None = None
) -> SparkAccess:
    """Return what Spark needs to reach a table with the same credentials as the committer.

    :param credentials: for the same kind of store. Default: what the machines that Spark runs on offer.
    :param patience: seconds for which Spark repeats a request to S3 that gets no answer. Default:
        :data:`~airflow_provider_onelake.storage.stores.PATIENCE`. ABFS repeats a request for ten minutes by default.
    :raises CredentialsError: the credentials are for another kind of store, or of a kind that Spark cannot use.
    :raises UnsupportedStoreError: this version does not write to that kind of store.
    """
    if address.kind == "local":
        return SparkAccess()
    if address.kind == "gcs":
        raise UnsupportedStoreError(f"{address} is on {address.kind}, which this version does not write to.")
    check_kind(address, credentials)
    if address.kind == "s3":
        assert credentials is None or isinstance(credentials, S3Credentials)
        return _s3(address, credentials or S3Credentials(), PATIENCE if patience is None else patience)
    assert credentials is None or isinstance(credentials, AzureCredentials)
    return _azure(address, credentials or AzureCredentials())


def _s3(address: TableAddress, credentials: S3Credentials, patience: float) -> SparkAccess:
    settings = {
        "path.style.access": str(credentials.path_style).lower(),
        "endpoint": credentials.endpoint,
        "endpoint.region": credentials.region,
        "retry.limit": str(_s3a_retries(patience)),
        "connection.ssl.enabled": "false" if (credentials.endpoint or "").startswith("http://") else None,
    }
    # The SDK's own classes read the keys from the environment of the process.
    base = None
    if credentials.access_key:
        base = f"{_AWS}.auth.credentials.EnvironmentVariableCredentialsProvider"
    elif credentials.profile:
        base = f"{_AWS}.auth.credentials.ProfileCredentialsProvider"
    if credentials.role_arn:
        settings["aws.credentials.provider"] = "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"
        settings["assumed.role.arn"] = credentials.role_arn
        settings["assumed.role.credentials.provider"] = base
        settings["assumed.role.sts.endpoint.region"] = credentials.region
    else:
        settings["aws.credentials.provider"] = base
    environment = {
        "AWS_ACCESS_KEY_ID": credentials.access_key,
        "AWS_SECRET_ACCESS_KEY": credentials.secret_key,
        "AWS_SESSION_TOKEN": credentials.session_token,
        "AWS_PROFILE": credentials.profile,
        "AWS_REGION": credentials.region,
    }
    general = "spark.hadoop.fs.s3a."
    prefix = f"{general}bucket.{address.authority}."
    sign_in = [name for name in settings if settings[name] is not None and name.startswith(("aws.", "assumed."))]
    return SparkAccess(
        {
            **{f"{prefix}{name}": value for name, value in settings.items() if value is not None},
            "spark.jars.excludes": ",".join(EXCLUDED),
        },
        {name: value for name, value in environment.items() if value is not None},
        S3_PACKAGES,
        {f"{prefix}{name}": f"{general}{name}" for name in sign_in},
        [f"{prefix}{name}" for name in sign_in if settings[name] == base],
    )


def _s3a_retries(patience: float) -> int:
    # S3A waits half a second before the first retry, and twice as long each time. Its default of seven retries takes
    # about a minute.
    return max(1, math.ceil(math.log2(2 * patience + 1)))


def _azure(address: TableAddress, credentials: AzureCredentials) -> SparkAccess:
    host = address.spark_uri.removeprefix("abfss://").partition("@")[2].partition("/")[0]
    environment: dict[str, str] = {}

    def from_environment(variable: str, value: str | None) -> str:
        environment[variable] = str(value)
        # Hadoop resolves this notation. Spark does not, so neither its UI nor its event log shows the value.
        return f"${{env.{variable}}}"

    oauth: dict[str, str | None] | None = None
    match credentials.sign_in:
        case "account_key":
            key = from_environment("AZURE_STORAGE_ACCOUNT_KEY", credentials.account_key)
            settings = {"fs.azure.account.auth.type": "SharedKey", "fs.azure.account.key": key}
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
    if oauth is not None:
        settings = {"fs.azure.account.auth.type": "OAuth"}
        settings |= {f"fs.azure.account.{name}": value for name, value in oauth.items() if value is not None}
    sign_in = {f"spark.hadoop.{name}.{host}": f"spark.hadoop.{name}" for name in settings}
    if address.kind == "onelake" and credentials.endpoint is None:
        settings["fs.azure.account.hns.enabled"] = "true"
    # Name the host in each setting, so that tables of several accounts can be used in one session.
    return SparkAccess(
        {f"spark.hadoop.{name}.{host}": value for name, value in settings.items()},
        environment,
        AZURE_PACKAGES,
        sign_in,
    )
