"""Two Spark drivers that write one table on S3 at once: the usual way, and this package's.

Each time the commit of one is held on its way to the store until the other has committed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.log.actions import version_path
from tests.support.object_stores import Lake
from tests.support.proxied_spark import ProxiedSpark
from tests.support.proxy import Proxy, Request, Seen, holding
from tests.support.spark import stage_by_spark
from tests.support.tables import writer_spec

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.parametrize("lake", ["s3"], indirect=True),
    pytest.mark.timeout(600),
]

ROWS = 10
SECONDS = 240


def rows(first: int) -> str:
    return f"SELECT id, '2019-01' AS month FROM range({first}, {first + ROWS}, 1, 1)"


def append(driver: ProxiedSpark, lake: Lake, first: int) -> None:
    """Append as every Spark job does that commits for itself; raises if Spark says that it failed."""
    from pyspark.sql.connect.session import SparkSession

    spark = SparkSession.builder.remote(driver.remote).create()
    try:
        spark.sql(rows(first)).write.format("delta").mode("append").save(lake.address().spark_uri)
    finally:
        spark.stop()


def puts_first_version(request: Request) -> bool:
    return request.is_commit and request.path.endswith(version_path(1))


def commits(proxy: Proxy, lake: Lake) -> list[Seen]:
    return [
        seen
        for seen in list(proxy.seen)
        if seen.request.is_commit and lake.root.rpartition("/")[2] in seen.request.path
    ]


def test_the_usual_way_loses_a_commit_and_both_jobs_report_success(
    lake: Lake, proxied_spark: ProxiedSpark, other_spark: ProxiedSpark
) -> None:
    """What this package is for: a test of the alternative, with Spark's own log store for S3."""
    lake.make_table()
    slow, quick = proxied_spark.proxies["s3"], other_spark.proxies["s3"]
    with ThreadPoolExecutor(1) as pool:
        with holding(slow, puts_first_version) as held:
            held_up = pool.submit(append, proxied_spark, lake, 0)
            assert held.wait(SECONDS)
            append(other_spark, lake, ROWS)
            assert lake.ids() == list(range(ROWS, 2 * ROWS))
        held_up.result(SECONDS)
    # The one that came second has overwritten the other's version, and nobody was told.
    for proxy in (slow, quick):
        (put,) = commits(proxy, lake)
        assert puts_first_version(put.request)
        assert (put.request.conditional, put.status) == (False, 200)
    assert lake.ids() == list(range(ROWS))


def test_this_package_loses_none(
    lake: Lake, proxy: Proxy, proxied_spark: ProxiedSpark, other_spark: ProxiedSpark
) -> None:
    lake.make_table()
    with ThreadPoolExecutor(2) as pool:
        staging = [
            pool.submit(stage_by_spark, driver.remote, lake, writer_spec(f"w{number}"), rows(number * ROWS))
            for number, driver in enumerate((proxied_spark, other_spark))
        ]
        first, second = (buffer.result(SECONDS) for buffer in staging)
        with holding(proxy, puts_first_version) as held:
            held_up = pool.submit(Committer(lake.behind(proxy).log()).publish, [first])
            assert held.wait(SECONDS)
            assert Committer(lake.log()).publish([second]).version == 1
        late = held_up.result(SECONDS)
    # Refused by the store, as it was conditional, and put again as the next version.
    assert (late.version, late.tally.lost_races) == (2, 1)
    assert [(put.request.conditional, put.status) for put in commits(proxy, lake)] == [(True, 412), (True, 200)]
    assert lake.ids() == list(range(2 * ROWS))
    # Neither driver has put a version of the table.
    assert [commits(driver.proxies["s3"], lake) for driver in (proxied_spark, other_spark)] == [[], []]
