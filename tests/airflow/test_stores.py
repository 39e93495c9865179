"""One load on every kind of store by every way to Spark: the same rows, the same versions.

The flow: two writers stage and commit, a sensor sees their versions, what is left is reconciled; the table is
compacted, a month is overwritten, a VACUUM deletes what no version needs. A Spark Connect server is one application for
all of it, so there each store has all of it; the local OneLake has one of its own, by ABFS's DFS requests.
``spark-submit`` starts an application of several seconds for every single job, so there each engine goes the whole way,
but for the overwrite, on one store (not the local disk, which is the easy one); on the others one writer stages and commits.
Compaction and VACUUM are further jobs of the same application, with the same settings for the store: where rows can be
staged by an engine, and the engine can compact elsewhere, nothing is left that only the pair could break.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, chain, task

from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.actions import object_path, of_kind, parse_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.vacuum import VacuumTerms, plan
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.vacuum import OneLakeVacuumOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from include.local.connect_server import free_port
from local_onelake.instructions import spark_settings, write_hosts
from tests.support import spark_jvms
from tests.support.airflow_dags import JANUARY, run_dag, states, xcom
from tests.support.object_stores import KINDS, Lake
from tests.support.onelake import TOKEN, OneLake
from tests.support.schemas import field
from tests.support.spark import Server
from tests.support.spark_cluster import until
from tests.support.store_spark import StoreCluster, StoreServer, ToStores
from tests.support.tables import foreign_commit

# The servers and Sparks that all tests share start for the first test that needs them.
pytestmark = pytest.mark.timeout(1200)

FEBRUARY = JANUARY.add(months=1)
TRIPS = "Tables/trips"
COLUMNS = "id BIGINT, vendor_id INT, month STRING"
SCHEMA = json.dumps(
    {"type": "struct", "fields": [field("id", "long"), field("vendor_id", "integer"), field("month", "string")]}
)
# One of them has to be encoded in a path, and is spelled otherwise by each store.
MONTHS = ["2019-01", "a b"]
VENDORS = [{"writer": f"vendor-{vendor}", "where": f"vendor_id = {vendor}"} for vendor in (1, 2)]

CREATED: list[tuple[str | None, list[int]]] = [("CREATE TABLE", [])]
HISTORY: list[tuple[str | None, list[int]]] = [
    ("WRITE", [0, 2, 4, 6]),
    ("WRITE", [0, 1, 2, 3, 4, 5, 6, 7]),
    ("OPTIMIZE", [0, 1, 2, 3, 4, 5, 6, 7]),
    ("WRITE", [0, 1, 2, 3, 101, 103]),
]
"""Every version with its rows, of whichever store and engine."""


@pytest.fixture
def spark(request: pytest.FixtureRequest, to_stores: ToStores, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The Airflow connection of a Spark, in which no secret shows afterwards.

    That of the local OneLake has a secret in its settings, and is for nothing else (include/local_onelake/README.md).
    """
    if request.param == "onelake":
        served: OneLake = request.getfixturevalue("onelake")
        write_hosts(tmp_path / "hosts")
        with Server(
            tmp_path / "spark",
            port=free_port(),
            ui_port=free_port(),
            memory="1g",
            jar_files=to_stores.jar_files,
            settings={
                **spark_jvms.INTERPRETED,
                **spark_settings(int(served.url.rpartition(":")[2]), TOKEN, tmp_path / "hosts"),
            },
        ) as by_abfs:
            yield {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": by_abfs.port}
        return
    shown: list[str] = []
    if request.param == "connect":
        server: StoreServer = request.getfixturevalue("store_spark")
        yield {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": server.port}
        shown += [json.dumps(server.status("applications/{app}/environment"))]
        shown += [Path(f"/proc/{server.pid}/cmdline").read_text(), *texts(server.event_log_dir, server.log_file.parent)]
    elif request.param == "local":
        (tmp_path / "events").mkdir()
        conf = {
            **settings(to_stores),
            **spark_jvms.INTERPRETED,
            "spark.ui.enabled": "false",
            "spark.driver.memory": "768m",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        }
        extra = {"jars": ",".join(map(str, to_stores.jar_files)), "conf": conf}
        yield {"conn_type": "spark", "host": "local[2]", "extra": extra}
        shown += texts(tmp_path / "events")
    else:
        cluster: StoreCluster = request.getfixturevalue("store_cluster")
        conf, mode = settings(to_stores), {}
        if request.param == "client":
            # The workers have no secret, so executors must get what they need from the driver.
            cluster.plain()
        else:
            cluster.trusted()
            mode = {"deploy-mode": "cluster"}
            # Before it takes in its JARs, a driver looks at what it is to run, in the table's store.
            conf["spark.driver.extraClassPath"] = ":".join(map(str, to_stores.jar_files))
        yield cluster.connection(to_stores.jar_files, conf=conf, **mode)
        # The workers' logs and the executors' say by which command each process was started.
        shown += texts(cluster.state)
    assert "spark" in "".join(shown)
    assert not any(secret in text for secret in to_stores.secrets for text in shown)


def settings(to_stores: ToStores) -> dict[str, str]:
    """Of an application of the tests' own."""
    java = {
        name: f"{spark_jvms.options()} {value}" for name, value in to_stores.detour.items() if "JavaOptions" in name
    }
    # An executor's start costs more than these rows, so one will do; event logs are text, to be searched.
    log = {"spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false"}
    return {**to_stores.detour, **java, "spark.cores.max": "1", **log}


def texts(*directories: Path) -> list[str]:
    files = (file for directory in directories for file in directory.rglob("*"))
    return [
        file.read_text(errors="replace") for file in files if file.is_file() and file.suffix not in (".jar", ".zip")
    ]


@pytest.fixture(autouse=True)
def connections(airflow_home: Path, lake: Lake, spark: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """All in which one meeting differs from another."""
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", lake.connection())
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(spark))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files by date: of each month in it, two rows of each vendor."""
    for date, first, months in (("2019-01-01", 0, MONTHS), ("2019-02-01", 100, MONTHS[1:])):
        rows = [
            {"id": first + number, "vendor_id": number % 2 + 1, "month": month}
            for number, month in enumerate(month for month in months for _ in range(4))
        ]
        (tmp_path / f"{date}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def load(source: Path, writers: list[dict[str, str]], **group: Any) -> DAG:
    with (
        DAG("stores", schedule=None, start_date=JANUARY) as dag,
        OneLakeWriteTaskGroup(group_id="load", table=TRIPS, partition_by=["month"], **group),
    ):
        read = FileSource(str(source / "{{ ds }}.json"), format="json", schema=COLUMNS)
        # One after the other, as in which order tasks of a group run is nobody's promise.
        chain(*(OneLakeWriteOperator(task_id=writer["writer"], source=read, **writer) for writer in writers))
    return dag


def succeed(dag: DAG, **arguments: Any) -> Any:
    run = run_dag(dag, **arguments)
    assert set(states(run).values()) == {"success"}, states(run)
    return run


def history(lake: Lake) -> list[tuple[str | None, list[int]]]:
    commits = lake.log(TRIPS).commits_since(-1)
    # No Spark job committed to the shared log.
    engines = {json.dumps(commit.info.get("engineInfo")) for commit in commits}
    assert all("airflow-provider-onelake" in engine for engine in engines), engines
    return [(commit.operation, lake.ids(TRIPS, commit.version)) for commit in commits]


def vacuum(log: DeltaLog) -> None:
    """Have Spark delete all that the newest version does not need, and find exactly the rest there."""
    log.store.put(f"month={MONTHS[1]}/nobody's.parquet", b"abc")
    keep_deleted_files_for_a_second(log)
    live, terms = live_files(log), VacuumTerms(allow_retention_below_seven_days=True)
    dead = parquet(log) - live
    # Those that the compaction read, and nobody's.
    assert len(dead) >= 5
    until(lambda: {info.path for info in plan(log, terms).candidates} >= dead)
    with DAG("upkeep", schedule=None, start_date=JANUARY) as dag:
        OneLakeVacuumOperator(task_id="vacuum", table=TRIPS, allow_retention_below_seven_days=True)
    result = xcom(succeed(dag), "vacuum")
    assert (result["files"] >= len(dead), result["left"]) == (True, 0)
    assert parquet(log) == live


def keep_deleted_files_for_a_second(log: DeltaLog) -> None:
    """As objects of a real store cannot be made older. A table that began so would take no buffer."""
    (before,) = of_kind(parse_actions(log.store.get(version_path(0)), TRIPS), "metaData")
    properties = {**before["configuration"], "delta.deletedFileRetentionDuration": "interval 1 seconds"}
    foreign_commit(
        log,
        [
            {"commitInfo": {"timestamp": 1, "operation": "SET TBLPROPERTIES"}},
            {"metaData": {**before, "configuration": properties}},
        ],
    )


def parquet(log: DeltaLog) -> set[str]:
    return {info.path for info in log.store.list("") if info.path.endswith(".parquet")}


def live_files(log: DeltaLog) -> set[str]:
    snapshot = log.snapshot()
    return {object_path(add) for add in log.live_files(lambda _: True, snapshot.version)}


# Each way and each store at least once; the rest is in `make test-nightly`.
IN_CI = {("onelake", "onelake"), *(("connect", store) for store in KINDS)}
IN_CI |= {("local", "s3"), ("client", "azure"), ("cluster", "local")}
MEETINGS = [
    pytest.param(
        *(spark, store, versions), id=f"{spark}, {store}", marks=() if (spark, store) in IN_CI else pytest.mark.nightly
    )
    for spark, stores in {
        "onelake": {"onelake": 4},
        "connect": {"local": 4, "s3": 4, "azure": 4},
        "local": {"local": 1, "s3": 3, "azure": 1},
        "client": {"local": 1, "s3": 1, "azure": 3},
        "cluster": {"local": 1, "s3": 3, "azure": 1},
    }.items()
    for store, versions in stores.items()
]
"""Each way to Spark with each store, and how many versions of the history they make together."""


@pytest.mark.costs("A whole life of a table, by every way to Spark on every store")
@pytest.mark.parametrize(("spark", "lake", "versions"), MEETINGS, indirect=["spark", "lake"])
def test_rows_and_versions_are_the_same_everywhere(lake: Lake, source: Path, versions: int) -> None:
    log = lake.log(TRIPS)
    if versions == 1:
        # So Spark is not asked for the columns, which would be one application more.
        create_table(log, SCHEMA, ("month",), {})
        succeed(load(source, VENDORS[:1]), logical_date=JANUARY)
    else:
        run = succeed(load(source, VENDORS, optimize={"min_files": 2}), logical_date=JANUARY)
        assert xcom(run, "load.optimize")["status"] == "published"
    if versions == 4:
        succeed(load(source, VENDORS[1:], mode="overwrite_partitions", publish="together"), logical_date=FEBRUARY)
    assert history(lake) == (CREATED if versions == 1 else []) + HISTORY[:versions]
    if versions > 1:
        vacuum(log)
        assert lake.ids(TRIPS) == HISTORY[versions - 1][1]
    # Nor is anything left of what a driver in cluster mode is told by.
    assert list(log.store.list("staged/jobs")) == []


@pytest.mark.parametrize(
    ("spark", "lake"),
    [
        ("connect", "s3"),
        ("connect", "azure"),
        pytest.param("client", "s3", marks=pytest.mark.nightly),
        pytest.param("cluster", "azure", marks=pytest.mark.nightly),
    ],
    indirect=True,
)
def test_rows_are_merged_everywhere(lake: Lake, source: Path) -> None:
    create_table(lake.log(TRIPS), SCHEMA, (), {})
    newer = SqlSource("SELECT id, 9 AS vendor_id, 'newer' AS month FROM range(6, 10)")
    with DAG("stores", schedule=None, start_date=JANUARY) as dag:
        read = FileSource(str(source / "{{ ds }}.json"), format="json", schema=COLUMNS)
        first = OneLakeWriteOperator(task_id="first", table=TRIPS, source=read)
        first >> OneLakeWriteOperator(task_id="merge", table=TRIPS, source=newer, mode=Merge(keys=["id"]))
    done = xcom(succeed(dag, logical_date=JANUARY), "merge")
    assert (done["rows_updated"], done["rows_inserted"], done["rounds"]) == (2, 2, 1)
    assert history(lake) == [
        *CREATED,
        ("WRITE", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("MERGE", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ]


@pytest.mark.parametrize(("spark", "lake"), [("connect", "s3"), ("connect", "azure")], indirect=True)
def test_a_plan_and_a_function_read_what_lies_in_the_lakehouse(lake: Lake) -> None:
    store = OneLakeHook().get_conn()
    for day in (1, 2):
        store.put(f"Files/in/day={day}/a b.json", json.dumps({"id": day, "vendor_id": 1, "month": MONTHS[1]}).encode())
    files = f"{TableAddress.parse_root(lake.root).spark_uri}/Files/in"
    create_table(lake.log(TRIPS), SCHEMA, ("month",), {})
    with (
        DAG("stores", schedule=None, start_date=JANUARY) as dag,
        OneLakeWriteTaskGroup(group_id="load", table=TRIPS, publish="together"),
    ):
        listed = FileSource(files, format="json", schema=COLUMNS)
        plan = OneLakePlanOperator(task_id="plan", source=listed, by="day")
        # The directories' column is a source's, not the table's.
        rows = {"rows": "SELECT id, vendor_id, month FROM source"}
        OneLakeWriteOperator.partial(task_id="write", source=listed, steps=rows).expand_kwargs(plan.output)

        @task.onelake_write(writer="made")
        def made(spark):  # type: ignore[no-untyped-def]
            return spark.read.json(f"{files}/*/", schema=COLUMNS).selectExpr("id * 10 AS id", "vendor_id", "month")

        made()
    run = succeed(dag, logical_date=JANUARY)
    assert [entry["writer"] for entry in xcom(run, "load.plan")] == ["1", "2"]
    assert history(lake) == [*CREATED, ("WRITE", [1, 2, 10, 20])]
