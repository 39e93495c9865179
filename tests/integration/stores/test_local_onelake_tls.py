"""Spark on the local OneLake as on OneLake: by abfss with TLS, signed in as a service principal by Entra's protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from include.local import jars
from include.local.connect_server import free_port
from include.local.settings import from_environment
from local_onelake.instructions import spark_settings_with_tls, write_hosts
from tests.support.onelake import BY_GUIDS, IDENTITY, TOKEN, OneLake
from tests.support.spark import Server, stage_by_spark
from tests.support.tables import writer_spec

pytestmark = pytest.mark.timeout(600)


@pytest.mark.nightly
def test_spark_stages_commits_and_reads_by_tls_beside_this_package(tmp_path: Path) -> None:
    from pyspark.sql.connect.session import SparkSession

    hosts = tmp_path / "hosts"
    write_hosts(hosts)
    with OneLake(lists_by_names=True, tls=True) as onelake:
        assert onelake.certificates is not None
        port = int(onelake.url.rpartition(":")[2])
        settings = spark_settings_with_tls(port, IDENTITY, TOKEN, hosts, onelake.certificates.truststore)
        with Server(
            tmp_path / "state",
            port=free_port(),
            ui_port=free_port(),
            memory="1g",
            jar_files=jars.resolve(from_environment().jars),
            settings=settings,
        ) as server:
            lake, table = onelake.lake(BY_GUIDS), "Tables/by_tls"
            lake.make_table(table)
            staged = stage_by_spark(
                server.remote, lake, writer_spec("w"), "SELECT id, '2019-01' AS month FROM range(5)", table
            )
            assert Committer(lake.log(table)).publish([staged]).status is PublishStatus.PUBLISHED
            session = SparkSession.builder.remote(server.remote).create()
            uri = lake.address(table).spark_uri
            assert uri.startswith("abfss://")
            rows = session.range(5, 7, 1, 1).selectExpr("id", "'2019-02' AS month")
            rows.write.format("delta").mode("append").save(uri)
            session.sql(f"DELETE FROM delta.`{uri}` WHERE id = 3")
            expected = [0, 1, 2, 4, 5, 6]
            assert sorted(row.id for row in session.read.format("delta").load(uri).collect()) == expected
            session.stop()
            assert lake.ids(table) == expected
