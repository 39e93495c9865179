"""What a connection says of how to sign in: plain values that never show a secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from airflow_provider_onelake.exceptions import CredentialsError

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import TableAddress

_FLAGS = (
    {"": None} | dict.fromkeys(("true", "yes", "1", "on"), True) | dict.fromkeys(("false", "no", "0", "off"), False)
)


@attrs.frozen(kw_only=True)
class Credentials:
    """How to reach a store; each kind of store has a class of its own.

    :param endpoint: where the store is, if its address does not say it.
    :param allow_http: whether the endpoint may be used without TLS.
    :raises CredentialsError: the values are incomplete or contradictory.
    """

    endpoint: str | None = None
    allow_http: bool = False

    def __attrs_post_init__(self) -> None:
        if self.endpoint is None:
            return
        if not self.endpoint.startswith(("https://", "http://")):
            raise CredentialsError(f"The endpoint {self.endpoint!r} does not begin with https:// or http://.")
        if "@" in self.endpoint or "?" in self.endpoint:
            raise CredentialsError("The endpoint holds a user or a query: keys have fields of their own.")
        if self.endpoint.startswith("http://") and not self.allow_http:
            raise CredentialsError(
                f"The endpoint {self.endpoint} is without TLS, so that keys and rows could be read on the way. Use "
                "https://, or allow http in the connection."
            )


_Own = TypeVar("_Own", bound=Credentials)


def own(address: TableAddress, credentials: Credentials | None, wanted: type[_Own]) -> _Own:
    """Return the credentials for an address.

    :param credentials: as they were given. Default: what the environment of this process offers.
    :param wanted: the class of the credentials for this kind of store.
    :raises CredentialsError: the credentials are for another kind of store.
    """
    if credentials is None:
        return wanted()
    if not isinstance(credentials, wanted):
        raise CredentialsError(f"{address} is on {address.kind.name}, and these are {type(credentials).__name__}.")
    return credentials


def _stripped(value: str | None) -> str | None:
    return (value or "").strip() or None


@attrs.frozen
class Fields:
    """What a person has filled into the form of a connection.

    :param conn_id: the connection.
    :param login: a key, or a client id.
    :param password: the secret of ``login``; alone, an account key or a token.
    :param extra: all other fields.
    """

    conn_id: str
    login: str | None = attrs.field(converter=_stripped)
    password: str | None = attrs.field(converter=_stripped, repr=False)
    extra: Mapping[str, Any] = attrs.field(repr=False)

    def text(self, name: str) -> str | None:
        """Return a field of the extra; ``None`` if it is empty."""
        return _stripped(str(self.extra.get(name) or ""))

    def filled(self, *texts: str, flags: Iterable[str]) -> dict[str, Any]:
        """Return those fields of the extra that are not empty.

        :param texts: names of fields.
        :param flags: names of fields that say yes or no.
        :raises CredentialsError: a flag is neither.
        """
        found = {name: self.text(name) for name in texts} | {name: self._flag(name) for name in flags}
        return {name: value for name, value in found.items() if value is not None}

    def _flag(self, name: str) -> bool | None:
        # Forms and URIs leave many spellings behind.
        text = str(self.extra.get(name) if self.extra.get(name) is not None else "").strip().lower()
        if text not in _FLAGS:
            raise CredentialsError(f"`{name}` is {self.extra[name]!r}: write true or false.")
        return _FLAGS[text]
