"""Before any test: Airflow gets a home of the tests' own, Spark's JVMs are quick, and the tests' own plugins are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support import groups, skips, spark_jvms, subjects
from tests.support.airflow_home import use_own_home
from tests.support.contexts import _nothing_kept
from tests.support.object_stores import blob_server, lake, proxy, s3_server
from tests.support.onelake import onelake
from tests.support.proxied_spark import other_spark, proxied_spark
from tests.support.spark_server import connect_server
from tests.support.store_spark import store_cluster, store_spark, to_stores

if TYPE_CHECKING:
    import pytest

__all__ = [
    "_nothing_kept",
    "blob_server",
    "connect_server",
    "lake",
    "onelake",
    "other_spark",
    "proxied_spark",
    "proxy",
    "pytest_configure",
    "s3_server",
    "store_cluster",
    "store_spark",
    "to_stores",
]

# Before any test module imports Airflow, which reads its configuration, or writes one, at import.
use_own_home()
spark_jvms.use()


def pytest_configure(config: pytest.Config) -> None:
    """Register what the tests need of pytest besides: marks and groups; and in CI a skipped test fails."""
    for plugin in (subjects, groups, skips):
        # The local OneLake's tests have this function too, and are run alone or beside these.
        if not config.pluginmanager.is_registered(plugin):
            config.pluginmanager.register(plugin)
