"""The local OneLake's Livy: its batches run on this machine's Spark, and reach the local OneLake as their lakehouse."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_provider_onelake.cli.instructions import livy_connection, spark_settings, write_hosts
from airflow_provider_onelake.local_onelake.batches import Batches, joined
from include.local import jars
from tests.support.onelake import LAKEHOUSE_GUID, TOKEN, WORKSPACE_GUID, OneLake

SMALL = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    "spark.driver.memory": "768m",
    # Jobs of a second: what the second compiler costs never comes back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@contextmanager
def batches_on(server: OneLake, state: Path, spark_submit: str, settings: Mapping[str, str]) -> Iterator[Batches]:
    """Let the server's Livy run batches by a script, until the block ends.

    :param state: a directory of the batches' own.
    :param settings: of Spark, beside those by which it reaches the server.
    """
    hosts = state / "hosts"
    write_hosts(hosts)
    port = int(server.url.rpartition(":")[2])
    made = Batches(
        state / "batches",
        spark_submit,
        lambda token: joined(spark_settings(port, token, hosts), settings),
        jars.environment(),
    )
    server.served.batches = made
    try:
        yield made
    finally:
        server.served.batches = None
        made.close()


@contextmanager
def spark_batches(server: OneLake, state: Path, jar_files: list[Path]) -> Iterator[Batches]:
    """Let the server's Livy run batches by this machine's Spark."""
    # The launcher itself reads the batch's file, before Spark has loaded any JAR.
    path = {"spark.driver.extraClassPath": ":".join(map(str, jar_files))}
    with batches_on(server, state, str(jars.spark_home() / "bin/spark-submit"), {**SMALL, **_DELTA, **path}) as made:
        yield made


def connection(server: OneLake, **extra: Any) -> str:
    """Airflow's connection to Livy of the server's lakehouse, as an environment variable holds it."""
    said = json.loads(livy_connection(int(server.url.rpartition(":")[2]), TOKEN, WORKSPACE_GUID, LAKEHOUSE_GUID))
    return json.dumps({**said, "extra": {**said["extra"], **extra}})
