"""Credentials for a store: plain values that never show a secret.

:mod:`~airflow_provider_onelake.storage.sign_in` turns them into obstore's and deltalake's credentials, and
:mod:`~airflow_provider_onelake.storage.spark` into Spark's.
"""

from __future__ import annotations

from typing import Literal, get_args

import attrs

from airflow_provider_onelake.exceptions import CredentialsError

AzureSignIn = Literal[
    "default", "account_key", "service_principal", "workload_identity", "managed_identity", "cli", "token"
]
AZURE_SIGN_INS: tuple[AzureSignIn, ...] = get_args(AzureSignIn)
"""Ways to sign in to Azure, by name."""

PUBLIC_AUTHORITY = "https://login.microsoftonline.com"


@attrs.frozen(kw_only=True)
class S3Credentials:
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
    endpoint: str | None = None
    path_style: bool = attrs.field()
    allow_http: bool = False

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
        _check_endpoint(self.endpoint, allow_http=self.allow_http)

    def endpoint_of(self, bucket: str) -> str | None:
        """Return the endpoint as obstore and deltalake take it: without path style, the bucket stands in its host."""
        if self.endpoint is None or self.path_style:
            return self.endpoint
        scheme, _, host = self.endpoint.partition("://")
        return f"{scheme}://{bucket}.{host}"


@attrs.frozen(kw_only=True)
class AzureCredentials:
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
    authority: str = PUBLIC_AUTHORITY
    endpoint: str | None = None
    allow_http: bool = False

    def __attrs_post_init__(self) -> None:
        if self.sign_in not in AZURE_SIGN_INS:
            raise CredentialsError(f"{self.sign_in!r} is no way to sign in to Azure: {', '.join(AZURE_SIGN_INS)}.")
        needed = {
            "account_key": ("account_key",),
            "service_principal": ("tenant_id", "client_id", "client_secret"),
            "token": ("token",),
        }.get(self.sign_in, ())
        missing = [name for name in needed if not getattr(self, name)]
        if missing:
            raise CredentialsError(f"To sign in by {self.sign_in}, the connection lacks {', '.join(missing)}.")
        _check_endpoint(self.endpoint, allow_http=self.allow_http)


Credentials = S3Credentials | AzureCredentials


def _check_endpoint(endpoint: str | None, *, allow_http: bool) -> None:
    if endpoint is None:
        return
    if not endpoint.startswith(("https://", "http://")):
        raise CredentialsError(f"The endpoint {endpoint!r} does not begin with https:// or http://.")
    if "@" in endpoint or "?" in endpoint:
        raise CredentialsError("The endpoint holds a user or a query: keys have fields of their own.")
    if endpoint.startswith("http://") and not allow_http:
        raise CredentialsError(
            f"The endpoint {endpoint} is without TLS, so that keys and rows could be read on the way. Use https://, or "
            "allow http in the connection."
        )
