"""Read credentials, and the time to wait for a store, from a connection's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import CredentialsError, InvalidWriteError
from airflow_provider_onelake.storage.credentials import (
    AZURE_SIGN_INS,
    PUBLIC_AUTHORITY,
    AzureCredentials,
    S3Credentials,
)
from airflow_provider_onelake.storage.stores import PATIENCE

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_onelake.storage.addresses import Kind
    from airflow_provider_onelake.storage.credentials import Credentials

_YES, _NO = ("true", "yes", "1", "on"), ("", "false", "no", "0", "off")


def credentials_of(connection: Connection, kind: Kind) -> Credentials | None:
    """Read how a connection signs in.

    :param connection: a connection of the type ``onelake``. ``login`` and ``password`` are a key with its secret, or a
        client id with its secret; or ``password`` alone is an account key or a token. The extra has the rest.
    :param kind: the kind of the store.
    :returns: the credentials; ``None`` if the store needs no sign-in.
    :raises CredentialsError: incomplete or contradictory.
    """
    extra: Mapping[str, Any] = connection.extra_dejson
    if kind == "s3":
        return _s3(connection, extra)
    return _azure(connection, extra) if kind in ("onelake", "adls") else None


def patience_of(connection: Connection) -> float:
    """Read for how long a request is repeated while the store does not answer.

    :param connection: of the type ``onelake``.
    :returns: seconds.
    :raises InvalidWriteError: the extra's ``patience`` is no number of seconds from 0.
    """
    given = connection.extra_dejson.get("patience")
    said = "" if given is None else str(given).strip()
    try:
        seconds = float(said or PATIENCE)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidWriteError(
            f"The connection {connection.conn_id} has a `patience` of {said!r}: write a number of seconds, 0 or more, "
            f"or leave it empty for {PATIENCE:g}."
        )
    return seconds


def _s3(connection: Connection, extra: Mapping[str, Any]) -> S3Credentials:
    sign_in = _text(extra, "sign_in")
    if sign_in:
        raise CredentialsError(
            f"The connection {connection.conn_id} signs in by {sign_in!r}, which is Azure's, and its store is S3: "
            "leave `sign_in` empty; login and password are the key, or there is a profile or a role."
        )
    known: dict[str, Any] = {name: _text(extra, name) for name in ("session_token", "profile", "role_arn", "region")}
    path_style = _flag(extra, "path_style")
    if path_style is not None:
        known["path_style"] = path_style
    return S3Credentials(
        access_key=_stripped(connection.login),
        secret_key=_stripped(connection.password),
        endpoint=_text(extra, "endpoint"),
        allow_http=bool(_flag(extra, "allow_http")),
        **known,
    )


def _azure(connection: Connection, extra: Mapping[str, Any]) -> AzureCredentials:
    login, secret, tenant = _stripped(connection.login), _stripped(connection.password), _text(extra, "tenant_id")
    sign_in = _text(extra, "sign_in")
    if sign_in is None:
        by_secret = "service_principal" if login or tenant else "account_key"
        sign_in = by_secret if secret else "default"
    if sign_in not in AZURE_SIGN_INS:
        raise CredentialsError(
            f"The connection {connection.conn_id} signs in by {sign_in!r}; ways are {', '.join(AZURE_SIGN_INS)}."
        )
    where = {"service_principal": "client_secret", "account_key": "account_key", "token": "token"}.get(sign_in)
    if secret and where is None:
        raise CredentialsError(
            f"The connection {connection.conn_id} has a password, and to sign in by {sign_in} none is asked for: "
            "remove it, or choose another `sign_in`."
        )
    secrets: dict[str, Any] = {where: secret} if where else {}
    return AzureCredentials(
        sign_in=sign_in,
        tenant_id=tenant,
        client_id=login,
        authority=_text(extra, "authority") or PUBLIC_AUTHORITY,
        endpoint=_text(extra, "endpoint"),
        allow_http=bool(_flag(extra, "allow_http")),
        **secrets,
    )


def _stripped(value: str | None) -> str | None:
    return (value or "").strip() or None


def _text(extra: Mapping[str, Any], name: str) -> str | None:
    return str(extra.get(name) or "").strip() or None


def _flag(extra: Mapping[str, Any], name: str) -> bool | None:
    """Read yes or no, in any of the spellings that forms and URIs leave behind."""
    if extra.get(name) is None:
        return None
    text = str(extra[name]).strip().lower()
    if text in _YES:
        return True
    if text in _NO:
        return False if text else None
    raise CredentialsError(f"`{name}` is {extra[name]!r}: write true or false.")
