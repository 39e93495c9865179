"""What a connection says of how to sign in: plain values that never show a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from airflow_provider_onelake.exceptions import CredentialsError, InvalidWriteError

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import TableAddress

_FLAGS = (
    {"": None} | dict.fromkeys(("true", "yes", "1", "on"), True) | dict.fromkeys(("false", "no", "0", "off"), False)
)
# What no host and no path has, but a user, a query, a shared access signature or a connection string.
_MORE = re.compile(r"[@?#;=&,\s]")


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
        check_address("endpoint", self.endpoint)
        if self.endpoint.startswith("http://") and not self.allow_http:
            raise CredentialsError(
                f"{of_length('endpoint', self.endpoint)} is without TLS, so that keys and rows could be read on the "
                "way. Use https://, or allow http in the connection."
            )


def of_length(name: str, value: object) -> str:
    """Return what messages call the value of a connection's field: it may be a secret, so it is not repeated.

    :param name: of the field.
    """
    return f"The connection's `{name}`, of {len(str(value))} characters,"


def check_address(name: str, value: str) -> None:
    """Refuse a web address that is none, or that has more than a host and a path: messages of libraries repeat it.

    :param name: of the connection's field.
    :raises CredentialsError: the message does not repeat the value.
    """
    if not value.startswith(("https://", "http://")):
        raise CredentialsError(f"{of_length(name, value)} does not begin with https:// or http://.")
    if _MORE.search(value):
        raise CredentialsError(
            f"{of_length(name, value)} holds more than an address, such as a user, a query or a key: keys have "
            "fields of their own."
        )


def without_values(error: Exception, credentials: Credentials) -> str:
    """Return the text of a library's error without what the connection's fields have.

    :param credentials: that the library was given.
    """
    text = str(error)
    for name, value in attrs.asdict(credentials).items():
        if value and isinstance(value, str) and name != "sign_in":
            text = text.replace(value, f"the `{name}` of {len(value)} characters")
    return text


_Own = TypeVar("_Own", bound=Credentials)


def credentials_for(address: TableAddress, credentials: Credentials | None, wanted: type[_Own]) -> _Own:
    """Return the credentials for an address.

    :param credentials: as they were given. Default: what the environment of this process offers.
    :param wanted: the class of the credentials for this kind of store.
    :raises CredentialsError: the credentials are for another kind of store.
    """
    if credentials is None:
        return wanted()
    if not isinstance(credentials, wanted):
        raise CredentialsError(f"These are {type(credentials).__name__}, and {address} is on {address.kind.name}.")
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

    def seconds(self, name: str, default: float) -> float:
        """Return a field of the extra that is a number of seconds.

        :param name: of the field.
        :param default: if the field is empty.
        :raises InvalidWriteError: it is no number from 0 on.
        """
        said = self.extra.get(name)
        try:
            found = default if said in (None, "") else float(str(said))
        except ValueError:
            found = -1.0
        if not 0 <= found < float("inf"):
            raise InvalidWriteError(
                f"The connection {self.conn_id} has a `{name}`, of {len(str(said))} characters, that is no number of "
                f"seconds: write one, 0 or more, or leave it empty for {default:g}."
            )
        return found

    def _flag(self, name: str) -> bool | None:
        # Forms and URIs leave many spellings behind.
        text = str(self.extra.get(name) if self.extra.get(name) is not None else "").strip().lower()
        if text not in _FLAGS:
            raise CredentialsError(f"{of_length(name, self.extra[name])} is no flag: write true or false.")
        return _FLAGS[text]
