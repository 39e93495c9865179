"""S3, and stores that speak its protocol."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import attrs

from airflow_provider_onelake.exceptions import CredentialsError
from airflow_provider_onelake.storage.addresses import Spelling, TableAddress, refuse, shown_name
from airflow_provider_onelake.storage.credentials import Credentials, Fields, credentials_for, without_values
from airflow_provider_onelake.storage.kinds import StoreKind
from airflow_provider_onelake.storage.sign_in import Provider, explained
from airflow_provider_onelake.storage.spark import SparkAccess, hadoop
from airflow_provider_onelake.storage.stores import ObjectStore, Store, client_options, deltalake_retries

if TYPE_CHECKING:
    from obstore.store import RetryConfig, S3Store

    from airflow_provider_onelake.storage.errors import Doing

_BUCKET = re.compile(r"^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$")

_AWS_SDK = "2.35.4"
_AWS = "software.amazon.awssdk"
EXCLUDED = (f"{_AWS}:bundle",)
"""The SDK bundle of 686 MB that hadoop-aws depends on. The smaller packages of :class:`S3` replace it."""

_CONSOLES = {"cn-": "console.amazonaws.cn", "us-gov-": "console.amazonaws-us-gov.com"}
_RIGHTS: dict[Doing, str] = {
    "read": "s3:GetObject",
    "write": "s3:PutObject",
    "list": "s3:ListBucket",
    "delete": "s3:DeleteObject",
}


@attrs.frozen(kw_only=True)
class S3Credentials(Credentials):
    """How to reach a bucket.

    Without keys and without a profile, the store's own chain is used: environment variables, web identity, container
    and instance metadata.

    :param access_key: the id of the key.
    :param secret_key: the secret that belongs to ``access_key``.
    :param session_token: the token of temporary keys. Temporary keys are not renewed: prefer ``role_arn`` for work that
        may take longer than they are valid.
    :param profile: a profile of AWS's configuration files, also for single sign-on. Needs the extra ``s3``.
    :param role_arn: a role to assume; it is assumed again before it expires. Needs the extra ``s3``.
    :param region: the bucket's region. Default: ``AWS_REGION`` of the environment, else us-east-1.
    :param endpoint: the endpoint of a store that is not AWS.
    :param path_style: whether the bucket's name stands in the path, not in the host. Default: true with an endpoint.
    :param allow_http: whether the endpoint may be used without TLS.
    :raises CredentialsError: the values are incomplete or contradictory.
    """

    access_key: str | None = None
    secret_key: str | None = attrs.field(default=None, repr=False)
    session_token: str | None = attrs.field(default=None, repr=False)
    profile: str | None = None
    role_arn: str | None = None
    region: str | None = None
    path_style: bool = attrs.field()

    @path_style.default
    def _path_style_with_an_endpoint(self) -> bool:
        return self.endpoint is not None

    def __attrs_post_init__(self) -> None:
        if bool(self.access_key) != bool(self.secret_key):
            missing = "the secret key" if self.access_key else "the access key"
            raise CredentialsError(f"Of the S3 key, {missing} is missing. Set both in the connection, or neither.")
        if self.session_token and not self.access_key:
            raise CredentialsError("A session token belongs to temporary keys: set the access key and the secret key.")
        if self.access_key and self.profile:
            raise CredentialsError("The connection has an S3 key and a profile: leave one of them out.")
        super().__attrs_post_init__()

    def endpoint_of(self, bucket: str) -> str | None:
        """Return the endpoint as obstore and deltalake take it: without path style, the bucket stands in its host."""
        if self.endpoint is None or self.path_style:
            return self.endpoint
        scheme, _, host = self.endpoint.partition("://")
        return f"{scheme}://{bucket}.{host}"


class S3(StoreKind):
    """A bucket of S3."""

    name = "s3"
    schemes = ("s3", "s3a", "https")
    spark_scheme = "s3a"
    forms = ("s3://bucket/path",)
    hints: ClassVar = {"s3n": "Use s3://bucket/path."}
    missing_file_system = r'fs[./]s3a\b|for scheme "?s3a'

    def packages(self, hadoop: str) -> tuple[str, ...]:
        """See :meth:`StoreKind.packages`. Before 3.4, Hadoop has AWS's old SDK, whose bundle comes with it."""
        of_sdk = [f"{_AWS}:{name}:{_AWS_SDK}" for name in ("s3", "s3-transfer-manager", "sts")]
        return (f"org.apache.hadoop:hadoop-aws:{hadoop}", *([] if _has_old_sdk(hadoop) else of_sdk))

    def parse(self, spelled: Spelling) -> TableAddress | None:
        """See :meth:`StoreKind.parse`."""
        if spelled.scheme != "https":
            bucket = spelled.authority
            if not _BUCKET.match(bucket) or ".." in bucket:
                refuse(
                    spelled.text,
                    f"{shown_name(bucket)!r} is no name of a bucket",
                    "buckets are 3 to 63 small letters, digits, dots and hyphens",
                )
            return TableAddress(self, spelled.directory(), bucket)
        if ".s3." in spelled.authority or spelled.authority.startswith("s3."):
            refuse(spelled.text, "a bucket is not addressed by its web address here", "write s3://bucket/path")
        return None

    def manifest_uri(self, address: TableAddress) -> str:
        """See :meth:`StoreKind.manifest_uri`."""
        # Athena and Redshift Spectrum do not know Hadoop's s3a.
        return f"s3://{address.authority}/{address.path}"

    def credentials_of(self, fields: Fields) -> S3Credentials:
        """See :meth:`StoreKind.credentials_of`. Login and password are a key with its secret."""
        if sign_in := fields.text("sign_in"):
            raise CredentialsError(
                f"The connection {fields.conn_id} has a `sign_in`, of {len(sign_in)} characters, which is Azure's, and "
                "its store is S3: leave `sign_in` empty; login and password are the key, or there is a profile or "
                "a role."
            )
        known = fields.filled(
            "session_token", "profile", "role_arn", "region", "endpoint", flags=("path_style", "allow_http")
        )
        return S3Credentials(access_key=fields.login, secret_key=fields.password, **known)

    def open(self, address: TableAddress, credentials: Credentials | None, patience: float) -> Store:
        """See :meth:`StoreKind.open`."""
        from obstore.store import S3Store

        s3 = credentials_for(address, credentials, S3Credentials)
        given: dict[str, Any] = {"region": s3.region, "endpoint": s3.endpoint_of(address.authority)}

        def opened(retries: RetryConfig) -> S3Store:
            return S3Store(
                address.authority,
                prefix=address.path or None,
                client_options=client_options(allow_http=s3.allow_http),
                retry_config=retries,
                credential_provider=s3_provider(s3),
                virtual_hosted_style_request=not s3.path_style,
                **{name: value for name, value in given.items() if value is not None},
            )

        return ObjectStore.remote(opened, str(address), patience)

    def for_deltalake(self, address: TableAddress, credentials: Credentials | None, patience: float) -> dict[str, str]:
        """See :meth:`StoreKind.for_deltalake`."""
        s3 = credentials_for(address, credentials, S3Credentials)
        provider = s3_provider(s3)
        keys = provider() if provider is not None else {}
        given = {
            "aws_access_key_id": keys.get("access_key_id"),
            "aws_secret_access_key": keys.get("secret_access_key"),
            "aws_session_token": keys.get("token"),
            "aws_region": s3.region,
            "aws_endpoint_url": s3.endpoint_of(address.authority),
            "aws_allow_http": "true" if s3.allow_http else None,
            "aws_virtual_hosted_style_request": "false" if s3.path_style else "true",
            "aws_conditional_put": "etag",
        }
        return deltalake_retries(patience) | {name: value for name, value in given.items() if value is not None}

    def for_spark(self, address: TableAddress, credentials: Credentials | None, patience: float) -> SparkAccess:
        """See :meth:`StoreKind.for_spark`."""
        s3 = credentials_for(address, credentials, S3Credentials)
        settings = {
            "path.style.access": str(s3.path_style).lower(),
            "endpoint": s3.endpoint,
            "endpoint.region": s3.region,
            "retry.limit": str(_s3a_retries(patience)),
            "connection.ssl.enabled": "false" if (s3.endpoint or "").startswith("http://") else None,
        }
        old = _has_old_sdk(hadoop())
        if old:
            # Later ones keep them always. To delete the markers above each new file may block a write for ever.
            settings["directory.marker.retention"] = "keep"
        # The SDK's own classes read the keys from the environment of the process.
        names = "com.amazonaws.auth" if old else f"{_AWS}.auth.credentials"
        base = None
        if s3.access_key:
            base = f"{names}.EnvironmentVariableCredentialsProvider"
        elif s3.profile:
            base = f"{names}.{'profile.' if old else ''}ProfileCredentialsProvider"
        if s3.role_arn:
            settings["aws.credentials.provider"] = "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"
            settings["assumed.role.arn"] = s3.role_arn
            settings["assumed.role.credentials.provider"] = base
            settings["assumed.role.sts.endpoint.region"] = s3.region
        else:
            settings["aws.credentials.provider"] = base
        environment = {
            "AWS_ACCESS_KEY_ID": s3.access_key,
            "AWS_SECRET_ACCESS_KEY": s3.secret_key,
            "AWS_SESSION_TOKEN": s3.session_token,
            "AWS_PROFILE": s3.profile,
            "AWS_REGION": s3.region,
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
            self.packages(hadoop()),
            {f"{prefix}{name}": f"{general}{name}" for name in sign_in},
            [f"{prefix}{name}" for name in sign_in if settings[name] == base],
        )

    def table_page(self, address: TableAddress, region: str | None) -> str:
        """See :meth:`StoreKind.table_page`."""
        return f"{_console(region)}/buckets/{address.authority}?{_in_region(region)}prefix={quote(address.path)}/"

    def right_to(self, doing: Doing) -> str:
        """See :meth:`StoreKind.right_to`."""
        return _RIGHTS[doing]


def _has_old_sdk(hadoop: str) -> bool:
    return hadoop.startswith("3.3.")


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
        raise CredentialsError(f"AWS cannot sign in: {without_values(error, credentials)}") from None
    silent = (refusals.HTTPClientError, refusals.ConnectionError, refusals.MetadataRetrievalError)
    return explained(inner, credentials, silent, (refusals.NoCredentialsError, refusals.CredentialRetrievalError))


def _s3a_retries(patience: float) -> int:
    # S3A waits half a second before the first retry, and twice as long each time. Its default of seven retries takes
    # about a minute.
    return max(1, math.ceil(math.log2(2 * patience + 1)))


def _console(region: str | None) -> str:
    hosts = (host for prefix, host in _CONSOLES.items() if (region or "").startswith(prefix))
    return f"https://{next(hosts, 'console.aws.amazon.com')}/s3"


def _in_region(region: str | None) -> str:
    return f"region={quote(region)}&" if region else ""
