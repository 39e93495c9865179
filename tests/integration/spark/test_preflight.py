"""A Spark Connect server without any JARs: what is missing is named before a source is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import pytest

from airflow_provider_onelake.exceptions import SparkSetUpError
from airflow_provider_onelake.spark.connect import ConnectEngine
from include.local.connect_server import free_port
from tests.support.schemas import field
from tests.support.spark import Server, Target, sql_job

# Whoever looks at it before is told this.
NO_SOURCE = "SELECT id FROM no_such_view"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectEngine]:
    """An engine on a server with the settings for Delta, and nothing else."""
    server = Server(
        tmp_path_factory.mktemp("bare"), port=free_port(), ui_port=free_port(), jar_files=[], memory="512m", cores=1
    )
    with server:
        yield ConnectEngine(server.remote)


def test_without_deltas_jars_the_package_is_named(bare: ConnectEngine, new_target: Callable[..., Target]) -> None:
    job = sql_job(new_target([field("id", "long")]), NO_SOURCE)
    for ask in (bare.analyze, bare.stage):
        with pytest.raises(
            SparkSetUpError,
            match=r"It lacks the JARs of Delta Lake\. .* io\.delta:delta-spark_4\.2_2\.13:4\.4\.0 \(Spark 4\.2\)",
        ):
            ask(job)


@pytest.mark.parametrize(
    ("table", "package"),
    [
        pytest.param("s3a://lake/t", r"org\.apache\.hadoop:hadoop-aws:3\.5\.0, software\.amazon\.awssdk:s3:", id="S3"),
        pytest.param("abfss://a@b.dfs.core.windows.net/t", r"org\.apache\.hadoop:hadoop-azure:3\.5\.0", id="Azure"),
    ],
)
def test_without_the_stores_jars_the_packages_are_named(
    bare: ConnectEngine, new_target: Callable[..., Target], table: str, package: str
) -> None:
    job = sql_job(new_target([field("id", "long")]), NO_SOURCE, preflight=False)
    # Delta is missing too, and not looked at here.
    with pytest.raises(SparkSetUpError, match=f"Add {package}"):
        bare.stage(attrs.evolve(job, table_uri=table, buffer_uri=f"{table}/staged/w/a"))


def test_a_buffer_that_spark_does_not_see_is_told_apart_from_a_wrong_source(
    engine: ConnectEngine, new_target: Callable[..., Target]
) -> None:
    target = new_target([field("id", "long")])
    job = attrs.evolve(sql_job(target, NO_SOURCE), buffer_uri=f"{target.path}/not-mounted")
    with pytest.raises(SparkSetUpError, match="which this task has put there just now"):
        engine.stage(job)
