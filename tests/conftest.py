"""Before any test: Airflow gets a home of the tests' own, Spark's JVMs are quick, and in CI a skipped test fails."""

from __future__ import annotations

from tests.support import spark_jvms
from tests.support.airflow_home import use_own_home
from tests.support.contexts import _nothing_kept
from tests.support.groups import pytest_xdist_make_scheduler
from tests.support.object_stores import blob_server, lake, proxy, s3_server
from tests.support.onelake import onelake
from tests.support.proxied_spark import other_spark, proxied_spark
from tests.support.skips import pytest_make_collect_report, pytest_runtest_makereport
from tests.support.spark_server import connect_server
from tests.support.store_spark import store_cluster, store_spark, to_stores

__all__ = [
    "_nothing_kept",
    "blob_server",
    "connect_server",
    "lake",
    "onelake",
    "other_spark",
    "proxied_spark",
    "proxy",
    "pytest_make_collect_report",
    "pytest_runtest_makereport",
    "pytest_xdist_make_scheduler",
    "s3_server",
    "store_cluster",
    "store_spark",
    "to_stores",
]

# Before any test module imports Airflow, which reads its configuration, or writes one, at import.
use_own_home()
spark_jvms.use()
