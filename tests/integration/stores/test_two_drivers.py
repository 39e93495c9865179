"""Two Spark drivers that write one table on S3 at once: the usual way, and this package's.

Each time the commit of one is held on its way to the store until the other has committed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any

import pytest

from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.spark.base import ChangeJob, SparkResult
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.statements.change import Changed
from airflow_provider_onelake.statements.merge import Merged
from airflow_provider_onelake.steps.merge import merge_buffer
from airflow_provider_onelake.steps.spark import SparkWork
from airflow_provider_onelake.storage.stores import deltalake_options
from airflow_provider_onelake.writes.publish import Committer
from tests.support.changes import TableOf, change_of
from tests.support.object_stores import Lake
from tests.support.proxied_spark import ProxiedSpark
from tests.support.proxy import Proxy, Request, Seen, holding
from tests.support.spark import stage_by_spark
from tests.support.tables import writer_spec

pytestmark = [pytest.mark.nightly, pytest.mark.parametrize("lake", ["s3"], indirect=True), pytest.mark.timeout(600)]

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


def puts_second_version(request: Request) -> bool:
    return request.is_commit and request.path.endswith(version_path(2))


def commits(proxy: Proxy, lake: Lake) -> list[Seen]:
    return [
        seen
        for seen in list(proxy.seen)
        if seen.request.is_commit and lake.root.rpartition("/")[2] in seen.request.path
    ]


class _TableIn(TableOf):
    """A table of a lake, whose commits go the way of that lake's requests."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.log())
        self.address = lake.address()

    def committer(self) -> Transactions:
        return Transactions(self.log)


class _Paused(ConnectEngine):
    """Waits when a round has ended."""

    wait: Callable[[], object] = staticmethod(lambda: None)

    def change(self, job: ChangeJob) -> SparkResult:
        result = super().change(job)
        self.wait()
        return result


def ids_of(lake: Lake) -> list[int]:
    """The live ids, also where deletion vectors hide others."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    address = lake.address()
    table = DeltaTable(address.deltalake_uri, storage_options=deltalake_options(address, lake.credentials))
    found = QueryBuilder().register("t", table).execute("SELECT id FROM t")
    return sorted(pa.table(found.read_all()).column("id").to_pylist())


def change(driver: ProxiedSpark, lake: Lake, operation: str, where: str, wait: Any = None, **terms: Any) -> Changed:
    """Do a statement by a driver of its own."""
    engine = _Paused(driver.remote)
    engine.wait = wait or engine.wait
    statement = change_of(lake.log(), engine, operation, where, task=where, **terms)
    statement.table = _TableIn(lake)  # type: ignore[assignment]
    return statement.carry_out()


def merge(driver: ProxiedSpark, lake: Lake, writer: str, ids: str, wait: Any) -> Merged:
    """Merge rows by a driver of its own."""
    engine = _Paused(driver.remote)
    engine.wait = wait
    spec = writer_spec(writer, mode=Merge(keys="id"))  # type: ignore[arg-type]
    query = f"SELECT explode(array({ids})) AS id, '2019-02' AS month"
    source = stage_by_spark(driver.remote, lake, spec, query)
    return merge_buffer(_TableIn(lake), SparkWork(lambda: engine), source)  # type: ignore[arg-type]


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


@pytest.mark.parametrize("vectors", ["false", "true"], ids=["rewriting", "vectors"])
def test_two_statements_on_rows_of_one_file_are_both_done(
    lake: Lake, proxy: Proxy, proxied_spark: ProxiedSpark, other_spark: ProxiedSpark, vectors: str
) -> None:
    lake.make_table(**{"delta.enableDeletionVectors": vectors})
    Committer(lake.log()).publish([stage_by_spark(proxied_spark.remote, lake, writer_spec("w"), rows(0))])

    ready = Event()
    with ThreadPoolExecutor(2) as pool:
        with holding(proxy, puts_second_version) as held:
            # Both have run Spark when the commit is held: no store holds an answer back for as long as Spark takes.
            def waits() -> None:
                ready.set()
                assert held.wait(SECONDS)

            other = pool.submit(change, other_spark, lake, "UPDATE", "id = 7", waits, assignments={"id": "70"})
            wait = partial(ready.wait, SECONDS)
            held_up = pool.submit(change, proxied_spark, lake.behind(proxy), "DELETE", "id = 3", wait)
            first = other.result(SECONDS)
        late = held_up.result(SECONDS)
    assert (first.version, first.rounds, first.lost_races) == (2, 1, 0)
    # It reads the file once more, as the other has left it.
    assert (late.version, late.rounds, late.lost_races) == (3, 2, 1)
    assert ids_of(lake) == [0, 1, 2, 4, 5, 6, 8, 9, 70]
    # The store refused the late one's put, as it was conditional, and took the next one. No driver has put a version.
    assert [(put.request.conditional, put.status) for put in commits(proxy, lake)] == [(True, 412), (True, 200)]
    assert [commits(driver.proxies["s3"], lake) for driver in (proxied_spark, other_spark)] == [[], []]


def test_two_merges_with_one_new_key_insert_it_once(
    lake: Lake, proxy: Proxy, proxied_spark: ProxiedSpark, other_spark: ProxiedSpark
) -> None:
    lake.make_table()
    Committer(lake.log()).publish([stage_by_spark(proxied_spark.remote, lake, writer_spec("w"), rows(0))])

    ready = Event()
    with ThreadPoolExecutor(2) as pool:
        with holding(proxy, puts_second_version) as held:

            def waits() -> None:
                ready.set()
                assert held.wait(SECONDS)

            other = pool.submit(merge, other_spark, lake, "other", "7L, 70L", waits)
            wait = partial(ready.wait, SECONDS)
            held_up = pool.submit(merge, proxied_spark, lake.behind(proxy), "late", "3L, 70L", wait)
            first = other.result(SECONDS)
        late = held_up.result(SECONDS)
    assert (first.version, first.rounds, first.rows_inserted, first.rows_updated) == (2, 1, 1, 1)
    # It has looked before the key was there, and looks again.
    assert (late.version, late.rounds, late.rows_inserted, late.rows_updated) == (3, 2, 0, 2)
    assert ids_of(lake) == [*range(ROWS), 70]
    assert [(put.request.conditional, put.status) for put in commits(proxy, lake)] == [(True, 412), (True, 200)]
    assert [commits(driver.proxies["s3"], lake) for driver in (proxied_spark, other_spark)] == [[], []]
