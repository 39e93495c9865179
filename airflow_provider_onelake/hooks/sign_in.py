"""Read credentials, and the time to wait for a store, from a connection's fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.storage.credentials import Fields
from airflow_provider_onelake.storage.stores import PATIENCE

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_onelake.storage.credentials import Credentials
    from airflow_provider_onelake.storage.kinds import StoreKind


def credentials_of(connection: Connection, kind: StoreKind) -> Credentials | None:
    """Read how a connection signs in.

    :param connection: a connection of the type ``onelake``. ``login`` and ``password`` are a key with its secret, or a
        client id with its secret; or ``password`` alone is an account key or a token. The extra has the rest.
    :param kind: the kind of the store.
    :returns: the credentials; ``None`` if the store needs no sign-in.
    :raises CredentialsError: incomplete or contradictory.
    """
    return kind.credentials_of(
        Fields(connection.conn_id, connection.login, connection.password, connection.extra_dejson)
    )


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
