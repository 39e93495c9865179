"""Spark on the local OneLake, by ABFS, at OneLake's own addresses; and beside it deltalake and this package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.modes import OverwritePartitions
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from include.local import jars
from include.local.connect_server import free_port
from include.local.settings import from_environment
from local_onelake.instructions import spark_settings, write_hosts
from local_onelake.tree import ALWAYS, Condition, Entry
from tests.support.onelake import BY_GUIDS, BY_NAMES, OTHER_TOKEN, TOKEN, OneLake
from tests.support.rights import Rights, data_role, rows_of
from tests.support.spark import Server, stage_by_spark
from tests.support.spark_jvms import INTERPRETED
from tests.support.tables import foreign_append, stage, writer_spec

pytestmark = pytest.mark.timeout(600)

COMMITS = 10


@pytest.fixture(scope="module")
def served() -> Iterator[OneLake]:
    """A OneLake for the whole module; each test has a table of its own."""
    with OneLake(lists_by_names=True) as server:
        yield server


@pytest.fixture(scope="module")
def driver(served: OneLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Spark Connect server with the settings that ``local-onelake`` prints."""
    with signed_in(served, tmp_path_factory.mktemp("onelake-spark"), TOKEN) as server:
        yield server


@contextmanager
def signed_in(served: OneLake, state: Path, token: str) -> Iterator[Server]:
    """A Spark Connect server of an identity."""
    hosts = state / "hosts"
    write_hosts(hosts)
    port = int(served.url.rpartition(":")[2])
    with Server(
        state,
        port=free_port(),
        ui_port=free_port(),
        memory="1g",
        jar_files=jars.resolve(from_environment().jars),
        settings={
            **INTERPRETED,
            **spark_settings(port, token, hosts),
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        },
    ) as server:
        yield server


@pytest.fixture(scope="module")
def spark(driver: Server) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(driver.remote).create()
    yield session
    session.stop()


def ids(spark: Any, uri: str) -> list[int]:
    return sorted(row.id for row in spark.read.format("delta").load(uri).collect())


@pytest.mark.parametrize(
    "root", [pytest.param(BY_NAMES, id="names"), pytest.param(BY_GUIDS, id="guids", marks=pytest.mark.nightly)]
)
def test_a_table_lives_a_whole_life_by_spark(served: OneLake, spark: Any, root: str) -> None:
    """Create, append, read, delete, OPTIMIZE, VACUUM, checkpoint; deltalake sees the same rows."""
    lake = served.lake(root)
    table = f"Tables/life_{'names' if root == BY_NAMES else 'guids'}"
    uri = lake.address(table).spark_uri
    spark.sql(f"CREATE TABLE delta.`{uri}` (id BIGINT) USING delta TBLPROPERTIES ('delta.checkpointInterval' = '3')")
    for number in range(4):
        rows = spark.range(number * 10, number * 10 + 10, 1, 1)
        rows.write.format("delta").mode("append").save(uri)
    assert f"{table}/_delta_log/{3:020d}.checkpoint.parquet" in served.blobs
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id % 10 = 3")
    expected = [number for number in range(40) if number % 10 != 3]
    assert ids(spark, uri) == expected

    def data_files() -> int:
        return sum(path.startswith(f"{table}/part-") for path in served.blobs)

    spark.sql(f"OPTIMIZE delta.`{uri}`")
    before = data_files()
    spark.sql(f"VACUUM delta.`{uri}` RETAIN 0 HOURS")
    assert data_files() < before
    assert ids(spark, uri) == expected == lake.ids(table)
    assert {entry.op for entry in operations(spark, uri)} >= {"WRITE", "DELETE", "OPTIMIZE"}
    assert not any("_delta_log" in path and ".tmp" in path for path in served.blobs)


def operations(spark: Any, uri: str) -> list[Any]:
    rows: list[Any] = spark.sql(f"DESCRIBE HISTORY delta.`{uri}`").selectExpr("operation AS op").collect()
    return rows


def test_this_packages_writers_stage_by_spark_and_commit_by_obstore(
    served: OneLake, driver: Server, spark: Any
) -> None:
    lake, table = served.lake(), "Tables/ours"
    lake.make_table(table)
    foreign_append(lake.log(table), {"2019-02": [7]})
    for generation in (1, 2):
        first = 5 * generation - 5
        query = f"SELECT id, '2019-01' AS month FROM range({first}, {first + 5})"
        spec = writer_spec("w", mode=OverwritePartitions(), generation=generation)
        staged = stage_by_spark(driver.remote, lake, spec, query, table)
        assert Committer(lake.log(table)).publish([staged]).status is PublishStatus.PUBLISHED
    assert ids(spark, lake.address(table).spark_uri) == lake.ids(table) == [5, 6, 7, 7, 8, 9]


def test_spark_and_this_package_commit_at_once_and_every_row_is_there_once(served: OneLake, spark: Any) -> None:
    """Spark's commits are renames by DFS, this package's are create-only puts by Blob: one path table judges both."""
    lake, table = served.lake(), "Tables/race"
    log = lake.make_table(table)
    uri = lake.address(table).spark_uri
    buffers = [stage(log, writer_spec(f"w{number}"), {"2019-01": [1000 + number]}) for number in range(COMMITS)]

    def by_spark(first: int) -> None:
        rows = spark.range(first, first + 1, 1, 1).selectExpr("id", "'2019-01' AS month")
        rows.write.format("delta").mode("append").save(uri)

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(by_spark, number) for number in range(COMMITS)]
        ours = [pool.submit(Committer(lake.log(table)).publish, [buffer]) for buffer in buffers]
        for job in jobs:
            job.result(300)
        assert all(put.result(300).status is PublishStatus.PUBLISHED for put in ours)
    assert lake.ids(table) == ids(spark, uri) == [*range(COMMITS), *range(1000, 1000 + COMMITS)]
    versions = sorted(
        path for path in served.blobs if path.startswith(f"{table}/_delta_log/0") and path.endswith("json")
    )
    assert versions == [f"{table}/{version_path(number)}" for number in range(2 * COMMITS + 1)]


class LinedUp:
    """Lets Spark's rename and this package's put that make the same version begin at once; the loser makes the next.

    :param renames_ask: whether a rename asks its condition, as OneLake's does. If not, it comes after the put.
    """

    def __init__(self, served: OneLake, table: str, *, renames_ask: bool = True) -> None:
        self._both, self._is_put, self._renames = Barrier(2), Event(), Event()
        self._begun: set[tuple[str, str]] = set()
        # Those of buffers have logs too.
        self._version = re.compile(rf"/{re.escape(table)}/_delta_log/\d*[13579]\.json$")
        self._renames_ask = renames_ask
        tree = served.served.tree
        self._put, self._rename = tree.put, tree.rename

    def put(self, path: str, part: Path, condition: Condition = ALWAYS) -> Entry:
        self._line_up("put", path)
        made = self._put(path, part, condition)
        if self._version.search(path):
            self._is_put.set()
        return made

    def wait_for_rename(self) -> None:
        """Wait until Spark renames. A put that waits for that itself may be given up, and sent again."""
        assert self._renames.wait(300)
        self._renames.clear()

    def rename(self, source: str, target: str, condition: Condition, source_condition: Condition) -> Entry:
        if self._version.search(target) and ("rename", target) not in self._begun:
            self._renames.set()
        self._line_up("rename", target)
        if not self._renames_ask and self._version.search(target):
            self._is_put.wait(300)
            condition = ALWAYS
        return self._rename(source, target, condition, source_condition)

    def _line_up(self, how: str, path: str) -> None:
        if self._version.search(path) and (how, path) not in self._begun:
            self._begun.add((how, path))
            self._both.wait(300)


def race(served: OneLake, spark: Any, table: str, rounds: int, monkeypatch: pytest.MonkeyPatch, **server: bool) -> None:
    """Let Spark and this package make the same version, round by round, and see that each of them made one."""
    lake = served.lake()
    log = lake.make_table(table)
    uri = lake.address(table).spark_uri
    lined_up = LinedUp(served, table, **server)
    monkeypatch.setattr(served.served.tree, "put", lined_up.put)
    monkeypatch.setattr(served.served.tree, "rename", lined_up.rename)

    def by_spark(first: int) -> None:
        rows = spark.range(first, first + 1, 1, 1).selectExpr("id", "'2019-01' AS month")
        rows.write.format("delta").mode("append").save(uri)

    with ThreadPoolExecutor(1) as pool:
        for number in range(rounds):
            buffer = stage(log, writer_spec(f"w{number}"), {"2019-01": [1000 + number]})
            job = pool.submit(by_spark, number)
            lined_up.wait_for_rename()
            assert Committer(lake.log(table)).publish([buffer]).status is PublishStatus.PUBLISHED
            job.result(300)
    assert lake.log(table).snapshot().version == 2 * rounds
    assert lake.ids(table) == ids(spark, uri) == [*range(rounds), *range(1000, 1000 + rounds)]


@pytest.mark.parametrize("rounds", [3, pytest.param(100, marks=pytest.mark.nightly)])
def test_of_a_rename_and_a_put_that_are_lined_up_on_one_version_exactly_one_wins(
    served: OneLake, spark: Any, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    race(served, spark, f"Tables/lined_up_{rounds}", rounds, monkeypatch)


def test_renames_without_their_condition_turn_that_race_red(
    served: OneLake, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssertionError):
        race(served, spark, "Tables/unasked", 1, monkeypatch, renames_ask=False)


@pytest.mark.nightly
def test_two_drivers_that_are_lined_up_at_each_commit_lose_none(served: OneLake, spark: Any, tmp_path: Path) -> None:
    """What loses commits on S3: here the condition of a rename refuses the second one, and Spark goes on behind it."""
    from pyspark.sql.connect.session import SparkSession

    lake, table = served.lake(), "Tables/drivers"
    lake.make_table(table)
    uri = lake.address(table).spark_uri
    lined_up = Barrier(2)

    def append(session: Any, first: int) -> None:
        for number in range(first, first + COMMITS):
            rows = session.range(number, number + 1, 1, 1).selectExpr("id", "'2019-01' AS month")
            lined_up.wait(300)
            rows.write.format("delta").mode("append").save(uri)

    with signed_in(served, tmp_path, TOKEN) as other:
        session = SparkSession.builder.remote(other.remote).create()
        with ThreadPoolExecutor(2) as pool:
            for job in [pool.submit(append, each, 100 * at) for at, each in enumerate((spark, session))]:
                job.result(300)
        session.stop()
    assert lake.ids(table) == ids(spark, uri) == [*range(COMMITS), *range(100, 100 + COMMITS)]
    assert lake.log(table).snapshot().version == 2 * COMMITS


@pytest.mark.nightly
def test_spark_of_another_identity_may_what_its_roles_grant(served: OneLake, tmp_path: Path) -> None:
    from pyspark.sql.connect.session import SparkSession

    lake, table, rights = served.lake(), "Tables/rights", Rights(served)
    foreign_append(lake.make_table(table), {"2019-02": [7]})
    uri = lake.address(table).spark_uri
    # The answer to a HEAD has no body that would name the code.
    forbidden = "AuthorizationPermissionMismatch|Forbidden.*403"

    def append(session: Any) -> None:
        rows = session.range(0, 1, 1, 1).selectExpr("id", "'2019-01' AS month")
        rows.write.format("delta").mode("append").save(uri)

    with signed_in(served, tmp_path, OTHER_TOKEN) as server:
        session = SparkSession.builder.remote(server.remote).create()
        rights.set("Viewer", data_roles=[data_role("readers", f"/{table}")])
        assert ids(session, uri) == [7]
        with pytest.raises(Exception, match=forbidden):
            append(session)
        rights.data_roles(data_role("writers", f"/{table}", actions=["ReadWrite"]))
        append(session)
        assert ids(session, uri) == lake.ids(table) == [0, 7]
        for hiding in ([], [data_role("byRows", f"/{table}", constraints=rows_of(table))]):
            rights.data_roles(*hiding)
            with pytest.raises(Exception, match=forbidden):
                ids(session, uri)
        session.stop()
    assert lake.ids(table) == [0, 7]
