"""What a person needs to use a local OneLake: addresses, Airflow's connection, Spark's settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from airflow_provider_onelake.local_onelake.lake import Lake
from airflow_provider_onelake.local_onelake.names import Item, Workspace

HOST = "127.0.0.1"
_DFS = "onelake.dfs.fabric.microsoft.com"


def instructions(lake: Lake, port: int, tokens: Mapping[str, str], hosts: Path) -> str:
    """Return them as text.

    :param lake: that is served.
    :param port: on 127.0.0.1.
    :param tokens: the secret of each identity, by name.
    :param hosts: the file with the names that Spark's Java may look up.
    """
    name, secret = next(iter(tokens.items()))
    places = [(workspace, item) for workspace in lake.names.all() for item in workspace.items.values()]
    listed = [f"  {_address(*place)}\n  {_by_guids(*place)}" for place in places]
    settings = [f"  --conf '{key}={value}'" for key, value in spark_settings(port, secret, hosts).items()]
    return "\n".join(
        [
            "A local OneLake, to develop and to test. It is not OneLake: no TLS, one process, one machine, no roles,",
            "no encryption, no backup, no Fabric behind it; where OneLake's behaviour is not known, it is stricter.",
            "",
            f"Blob   http://{HOST}:{port}",
            f"DFS    http://{HOST}:{port}/{_DFS}",
            f"Faults http://{HOST}:{port}/_admin/faults (with a token)",
            "",
            "Items, by names and by GUIDs:",
            *listed,
            "",
            f"Airflow's connection, as {name}:",
            f"  export AIRFLOW_CONN_ONELAKE_DEFAULT='{connection(port, secret, *places[0])}'",
            "",
            f"Spark's settings, as {name}; its tables are abfss://<workspace>@{_DFS}/<item>/Tables/…:",
            *settings,
            "",
        ]
    )


def connection(port: int, secret: str, workspace: Workspace, item: Item) -> str:
    """Return Airflow's connection to an item, as an environment variable holds it."""
    extra = {
        "lakehouse": _address(workspace, item),
        "sign_in": "token",
        "endpoint": f"http://{HOST}:{port}",
        "allow_http": "true",
    }
    return json.dumps({"conn_type": "onelake", "password": secret, "extra": extra})


def spark_settings(port: int, secret: str, hosts: Path) -> dict[str, str]:
    """Return the settings with which a Spark on this machine reaches OneLake's addresses here.

    ABFS knows no other host than OneLake's, so the server is the proxy of Spark's Java; there is no TLS.

    :param port: on 127.0.0.1.
    :param secret: of the identity.
    :param hosts: the file with the names that Java may look up.
    """
    options = {
        "jdk.net.hosts.file": hosts,
        "http.proxyHost": HOST,
        "http.proxyPort": port,
        "http.nonProxyHosts": "localhost|127.*",
    }
    java = " ".join(f"-D{option}={value}" for option, value in options.items())
    azure = "spark.hadoop.fs.azure"
    return {
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.hadoop.fs.abfss.impl": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
        # Hadoop's other interface, by which Delta writes its checksums, insists on TLS.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        f"{azure}.always.use.https": "false",
        f"{azure}.account.hns.enabled": "true",
        f"{azure}.networking.library": "JDK_HTTP_URL_CONNECTION",
        # By OAuth, ABFS insists on TLS.
        f"{azure}.account.auth.type": "SAS",
        f"{azure}.sas.fixed.token": f"sv=local&sig={quote(secret, safe='')}",
    }


def _address(workspace: Workspace, item: Item) -> str:
    return f"onelake://{workspace.name}/{item.directory}"


def _by_guids(workspace: Workspace, item: Item) -> str:
    return f"onelake://{workspace.guid}/{item.guid}"
