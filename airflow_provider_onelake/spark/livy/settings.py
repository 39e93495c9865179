"""The settings of a connection of the type ``onelake_livy``.

It is a type of its own because Airflow's type ``livy`` sends every field of the extra as an HTTP header, and comes with
a provider of its own. This one has a form that says what is read.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.fabric.rest import sign_in
from airflow_provider_onelake.spark.submit.clusters import access_in_cluster
from airflow_provider_onelake.spark.submit.settings import SubmitTarget
from airflow_provider_onelake.storage.credentials import Fields
from airflow_provider_onelake.storage.spark import delta_package
from airflow_provider_onelake.storage.stores import PATIENCE

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_onelake.storage.spark import SparkAccess

_GUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# https://learn.microsoft.com/fabric/data-engineering/get-started-api-livy-batch
_FABRIC = re.compile(rf"/workspaces/({_GUID})/lakehouses/({_GUID})/livyapi/versions/[^/]+$", re.IGNORECASE)
_ANY_FABRIC = re.compile(r"/livyapi/|^https?://[^/]*fabric\.microsoft\.com", re.IGNORECASE)
_COLLECTION = re.compile(r"/(?:batches|sessions)/?$", re.IGNORECASE)
# Fabric's Spark has Delta Lake and signs in to OneLake by itself, so it gets nothing else that we would choose.
_IN_FABRIC = {"spark.sql.session.timeZone": "UTC"}


@attrs.frozen
class LivyTarget:
    """Where a Livy server is, how to sign in there, and what its batches get.

    :param address: of the server, or of a lakehouse's Livy in Fabric, without ``/batches``.
    :param in_fabric: whether it is Fabric's.
    :param headers: returns the headers that sign a request in.
    :param submit: ``conf``, ``jars`` and ``packages``, as a connection of the type ``spark`` has them.
    :param environment: the GUID of an environment in Fabric. Default: the workspace's.
    :param patience: seconds for which a request is sent again that gets no answer, 429 or 430.
    """

    address: str
    in_fabric: bool
    headers: Callable[[], Mapping[str, str]] = attrs.field(repr=False)
    submit: SubmitTarget
    environment: str | None = None
    patience: float = PATIENCE

    @classmethod
    def of(cls, connection: Connection) -> LivyTarget:
        """Read a connection. Nothing is asked.

        :param connection: of the type ``onelake_livy``.
        :raises InvalidWriteError: a field is malformed, or would show a secret.
        :raises CredentialsError: the sign-in is incomplete or contradictory.
        """
        conn_id, extra = connection.conn_id, connection.extra_dejson
        address = _address(connection)
        in_fabric = _FABRIC.search(address) is not None
        if not in_fabric and _ANY_FABRIC.search(address):
            raise InvalidWriteError(
                f"The connection {conn_id} says {address}, which is no address of a lakehouse's Livy in Fabric. Runs "
                "of a Spark job definition are gone. Nothing was submitted: take the address from the portal, the "
                "lakehouse's settings, Livy endpoint: "
                "https://api.fabric.microsoft.com/v1/workspaces/<GUID>/lakehouses/<GUID>/livyapi/versions/2023-12-01"
            )
        fields = Fields(conn_id, connection.login, connection.password, extra)
        environment = fields.text("environment")
        submit = SubmitTarget.of(connection)
        if environment is not None and not (in_fabric and re.fullmatch(_GUID, environment, re.IGNORECASE)):
            raise InvalidWriteError(
                f"`environment` of the connection {conn_id} is the GUID of an environment in Fabric, and goes with an "
                f"address in Fabric; it is {environment!r}. Nothing was submitted."
            )
        return cls(
            address,
            in_fabric,
            _signed_in(fields, address, in_fabric=in_fabric),
            submit,
            environment,
            fields.seconds("patience", PATIENCE),
        )

    def body(self, access: SparkAccess) -> dict[str, Any]:
        """Return what every batch says beside its files: ``conf``, and ``jars`` if there are any.

        :param access: to the table's store. Fabric's Spark has its own.
        :raises InvalidWriteError: a setting would show a secret.
        """
        if self.in_fabric:
            conf = {**_IN_FABRIC, **self.submit.conf}
            if self.environment is not None:
                conf["spark.fabric.environmentDetails"] = f'{{"id":"{self.environment}"}}'
            packages = self.submit.packages or ()
        else:
            there = access_in_cluster(access, self.submit.conf)
            conf = self.submit.settings(there)
            given = self.submit.packages
            packages = (delta_package(), *there.packages) if given is None else given
        if packages:
            conf["spark.jars.packages"] = ",".join(packages)
        return {"conf": conf, **({"jars": list(self.submit.jars)} if self.submit.jars else {})}


def _address(connection: Connection) -> str:
    host = (connection.host or "").strip()
    if not host:
        raise InvalidWriteError(
            f"The connection {connection.conn_id} has no host. Nothing was submitted: write the address of the Livy "
            "server, http://host:8998, or the one that the portal shows for the lakehouse's Livy endpoint."
        )
    text = host if "://" in host else f"{connection.schema or 'http'}://{host}"
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment or "@" in url.netloc:
        raise InvalidWriteError(
            f"The host of the connection {connection.conn_id} is no address of a Livy server, as https://host:8998 is: "
            "it has another scheme, a user or a query. Nothing was submitted."
        )
    port = f":{connection.port}" if connection.port and url.port is None else ""
    return _COLLECTION.sub("", f"{url.scheme}://{url.netloc}{port}{url.path}".rstrip("/")).rstrip("/")


def _signed_in(fields: Fields, address: str, *, in_fabric: bool) -> Callable[[], Mapping[str, str]]:
    """Return what gives the headers that sign a request in: a token of Entra, a user with a password, or a token."""
    is_secret = in_fabric or fields.password is not None
    if is_secret and address.startswith("http://") and not fields.filled(flags=["allow_http"]).get("allow_http"):
        raise InvalidWriteError(
            f"The connection {fields.conn_id} would send a secret to {address} without TLS. Nothing was submitted: "
            "write https://, or set `allow_http` for a server on this machine."
        )
    if in_fabric:
        return sign_in(fields, f"Livy at {address}")
    if fields.password is None:
        return dict
    if fields.login is None:
        return lambda: {"Authorization": f"Bearer {fields.password}"}
    pair = base64.b64encode(f"{fields.login}:{fields.password}".encode()).decode()
    return lambda: {"Authorization": f"Basic {pair}"}
