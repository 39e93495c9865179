"""What a person needs to use a local OneLake: addresses, Airflow's connection, Spark's settings."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from local_onelake.access import principal_id
from local_onelake.certificates import TRUSTSTORE_PASSWORD

if TYPE_CHECKING:
    from local_onelake.lake import Lake
    from local_onelake.names import Item, Workspace

HOST = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - only for who asks for it
"""Every address that this machine has."""
_TENANT = "00000000-0000-0000-0000-000000000001"
_DFS = "onelake.dfs.fabric.microsoft.com"
_ENDPOINTS = (_DFS, "onelake.blob.fabric.microsoft.com")
_FABRIC = "api.fabric.microsoft.com"
_POWER_BI = "api.powerbi.com"
_AZURE = "spark.hadoop.fs.azure"
_OPEN = [
    "",
    "OTHER MACHINES REACH IT, as --host asks for. Whoever has a token reads and writes all that its identity may,",
    "and without --tls tokens cross the network in plain text. From other machines, write this one's name in place",
    "of the address below.",
]


def instructions(lake: Lake, port: int, tokens: Mapping[str, str], hosts: Path, host: str = HOST) -> str:
    """Return them as text.

    :param lake: that is served.
    :param port: of the server.
    :param tokens: the secret of each identity, by name.
    :param hosts: the file with the names that Spark's Java may look up.
    :param host: where the server listens.
    """
    open_to_others, host = host != HOST, reached_at(host)
    name, secret = next(iter(tokens.items()))
    places = [(workspace, item) for workspace in lake.names.all() for item in workspace.items.values()]
    listed = [f"  {_address(*place)}\n  {_by_guids(*place)}" for place in places]
    settings = [f"  --conf '{key}={value}'" for key, value in spark_settings(port, secret, hosts, host).items()]
    return "\n".join(
        [
            "A local OneLake, to develop and to test. It is not OneLake: one process, one machine, no encryption,",
            "no backup, no Fabric behind it; where OneLake's behaviour is not known, it is stricter.",
            *(_OPEN if open_to_others else []),
            "",
            f"Blob   http://{host}:{port}",
            f"DFS    http://{host}:{port}/{_DFS}",
            f"Fabric http://{host}:{port}/{_FABRIC}/v1",
            f"Faults http://{host}:{port}/_admin/faults (with a token)",
            "",
            "Items, by names and by GUIDs:",
            *listed,
            "",
            f"Airflow's connection, as {name}:",
            f"  export AIRFLOW_CONN_ONELAKE_DEFAULT='{connection(port, secret, *places[0], host)}'",
            "",
            *_of_livy(lake, port, secret, name, host),
            f"Spark's settings, as {name}; its tables are abfss://<workspace>@{_DFS}/<item>/Tables/…:",
            *settings,
            "",
        ]
    )


def reached_at(host: str) -> str:
    """Return the address by which this machine reaches a server that listens somewhere.

    :param host: where it listens.
    """
    return HOST if host == EVERYWHERE else host


def with_tls(
    port: int, tokens: Mapping[str, str], hosts: Path, authority: Path, truststore: Path, host: str = HOST
) -> str:
    """Return what a person needs beside the :func:`instructions` for clients that insist on TLS, as text.

    :param port: of the server.
    :param tokens: the secret of each identity, by name.
    :param hosts: see :func:`instructions`.
    :param authority: the certificate to trust.
    :param truststore: the same for Java.
    :param host: see :func:`instructions`.
    """
    host = reached_at(host)
    name, secret = next(iter(tokens.items()))
    settings = spark_settings_with_tls(port, name, secret, hosts, truststore, host)
    return "\n".join(
        [
            f"TLS is on the same port, and this server is the proxy of OneLake's own hosts. Trust {authority}:",
            f"  export HTTPS_PROXY=http://{host}:{port} SSL_CERT_FILE={authority} REQUESTS_CA_BUNDLE={authority}",
            f"Entra's libraries sign in as {name} with the client id {principal_id(name)}, its token for a secret, and",
            f"any tenant, such as {_TENANT}.",
            "",
            f"Spark's settings with TLS, as {name}, in place of those above:",
            *(f"  --conf '{key}={value}'" for key, value in settings.items()),
            "",
        ]
    )


def connection(port: int, secret: str, workspace: Workspace, item: Item, host: str = HOST) -> str:
    """Return Airflow's connection to an item, as an environment variable holds it."""
    return json.dumps(connection_to(port, secret, _address(workspace, item), host))


def connection_to(port: int, secret: str, lakehouse: str, host: str = HOST) -> dict[str, Any]:
    """Return what Airflow's connection to a lakehouse says.

    :param port: of the server.
    :param secret: of the identity.
    :param lakehouse: its address.
    :param host: of the server.
    """
    extra = {
        "lakehouse": lakehouse,
        "sign_in": "token",
        "endpoint": f"http://{host}:{port}",
        "fabric_api": f"http://{host}:{port}/{_FABRIC}/v1",
        "powerbi_api": f"http://{host}:{port}/{_POWER_BI}/v1.0/myorg",
        "allow_http": "true",
    }
    return {"conn_type": "onelake", "password": secret, "extra": extra}


def livy_connection(port: int, secret: str, workspace: str, item: str, host: str = HOST) -> str:
    """Return Airflow's connection to the Livy of a lakehouse, as an environment variable holds it.

    :param port: of the server.
    :param secret: of the identity.
    :param workspace: the GUID of the workspace.
    :param item: the GUID of the lakehouse.
    :param host: of the server.
    """
    path = f"v1/workspaces/{workspace}/lakehouses/{item}/livyapi/versions/2023-12-01"
    return json.dumps(
        {
            "conn_type": "onelake_livy",
            "host": f"http://{host}:{port}/{_FABRIC}/{path}",
            "password": secret,
            "extra": {"sign_in": "token", "allow_http": "true"},
        }
    )


def spark_settings(port: int, secret: str, hosts: Path, host: str = HOST) -> dict[str, str]:
    """Return the settings with which a Spark on this machine reaches OneLake's addresses here.

    :param port: of the server.
    :param secret: of the identity.
    :param hosts: the file with the names that Java may look up: see :func:`write_hosts`.
    :param host: of the server.
    """
    return {
        **through_proxy(port, hosts, host),
        f"{_AZURE}.account.hns.enabled": "true",
        # By OAuth, ABFS insists on TLS.
        f"{_AZURE}.account.auth.type": "SAS",
        f"{_AZURE}.sas.fixed.token": f"sv=local&sig={quote(secret, safe='')}",
    }


def spark_settings_with_tls(
    port: int, name: str, secret: str, hosts: Path, truststore: Path, host: str = HOST
) -> dict[str, str]:
    """Return the settings with which a Spark on this machine uses it as OneLake: by TLS, as a service principal.

    :param port: of the server.
    :param name: of the identity.
    :param secret: of the identity.
    :param hosts: the file with the names that Java may look up: see :func:`write_hosts`.
    :param truststore: what Java is to trust.
    :param host: of the server.
    """
    java = _java(
        {
            "jdk.net.hosts.file": hosts,
            "https.proxyHost": host,
            "https.proxyPort": port,
            "http.nonProxyHosts": "localhost|127.*",
            "javax.net.ssl.trustStore": truststore,
            "javax.net.ssl.trustStoreType": "PKCS12",
            "javax.net.ssl.trustStorePassword": TRUSTSTORE_PASSWORD,
        }
    )
    return {
        **java,
        f"{_AZURE}.networking.library": "JDK_HTTP_URL_CONNECTION",
        # The other library has trust of its own.
        f"{_AZURE}.ssl.channel.mode": "Default_JSSE",
        f"{_AZURE}.account.hns.enabled": "true",
        f"{_AZURE}.account.auth.type": "OAuth",
        f"{_AZURE}.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
        f"{_AZURE}.account.oauth2.client.id": principal_id(name),
        f"{_AZURE}.account.oauth2.client.secret": secret,
        f"{_AZURE}.account.oauth2.client.endpoint": f"https://login.microsoftonline.com/{_TENANT}/oauth2/token",
    }


def _java(options: Mapping[str, object]) -> dict[str, str]:
    said = " ".join(f"-D{option}={value}" for option, value in options.items())
    return {"spark.driver.extraJavaOptions": said, "spark.executor.extraJavaOptions": said}


def through_proxy(port: int, hosts: Path, host: str = HOST) -> dict[str, str]:
    """Return the settings by which all requests of a Spark to OneLake's addresses go to a server on this machine.

    ABFS knows no other host than OneLake's, so the server is the proxy of Spark's Java; there is no TLS. This holds for
    the whole application.

    :param port: of the server.
    :param hosts: the file with the names that Java may look up: see :func:`write_hosts`.
    :param host: of the server.
    """
    java = _java(
        {
            "jdk.net.hosts.file": hosts,
            "http.proxyHost": host,
            "http.proxyPort": port,
            # Or the S3 client would ask here as well.
            "http.nonProxyHosts": "localhost|127.*",
        }
    )
    return {
        **java,
        # The class of abfs:// for abfss:// too.
        "spark.hadoop.fs.abfss.impl": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
        # Hadoop's other interface, by which Delta writes its checksums, insists on TLS.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        f"{_AZURE}.always.use.https": "false",
        f"{_AZURE}.networking.library": "JDK_HTTP_URL_CONNECTION",
    }


def write_hosts(hosts: Path) -> None:
    """Write the file with the only names that Spark's Java may look up, so that no request leaves this machine.

    :param hosts: the file.
    """
    hosts.write_text(f"{HOST} localhost {socket.gethostname()} {' '.join(_ENDPOINTS)}\n")


def _of_livy(lake: Lake, port: int, secret: str, name: str, host: str) -> list[str]:
    lakehouses = [
        (workspace, item)
        for workspace in lake.names.all()
        for item in workspace.items.values()
        if item.type == "Lakehouse"
    ]
    if lake.batches is None or not lakehouses:
        return []
    workspace, item = lakehouses[0]
    said = livy_connection(port, secret, workspace.guid, item.guid, host)
    return [f"Airflow's connection to Livy, as {name}:", f"  export AIRFLOW_CONN_ONELAKE_LIVY_DEFAULT='{said}'", ""]


def _address(workspace: Workspace, item: Item) -> str:
    return f"onelake://{workspace.name}/{item.directory}"


def _by_guids(workspace: Workspace, item: Item) -> str:
    return f"onelake://{workspace.guid}/{item.guid}"
