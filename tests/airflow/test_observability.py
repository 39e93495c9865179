"""What one sees of a load: metrics on a real UDP socket, links, lineage by OpenLineage's own listener. Without Spark."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from airflow_provider_onelake.assets.tables import table_asset
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.airflow_dags import JANUARY, run_dag, states, xcom
from tests.support.engines import FakeEngine
from tests.support.tables import foreign_append, make_table

VENDORS = [{"writer": "vendor-1", "where": "vendor_id = 1"}, {"writer": "vendor-2", "where": "vendor_id = 2"}]
SPARK_UI = "http://spark.example:4040/connect/session/?id=s-1"


def taxi(**group: Any) -> DAG:
    settings = {"table": "Tables/trips", "partition_by": ["month"], **group}
    with DAG("taxi", schedule=None, start_date=JANUARY) as dag, OneLakeWriteTaskGroup(group_id="load", **settings):
        OneLakeWriteOperator.partial(task_id="write", source=FileSource("/data/*.json", format="json")).expand_kwargs(
            VENDORS
        )
    return dag


@attrs.define
class StatsD:
    """What a StatsD server is sent."""

    receiver: socket.socket

    def read(self) -> dict[tuple[str, str], list[float]]:
        """Values by name, and by whatever the metric's own tag says."""
        found: dict[tuple[str, str], list[float]] = {}
        while True:
            try:
                line = self.receiver.recv(4096).decode()
            except BlockingIOError:
                return found
            if not line.startswith("airflow.onelake."):
                continue  # Airflow's own
            said = re.fullmatch(r"airflow\.([\w.]+)((?:,[\w./-]+=[\w./-]+)*):([\d.]+)\|(c|ms)", line)
            assert said, line
            tags = dict(tag.split("=") for tag in said[2].strip(",").split(","))
            assert tags.pop("dag_id") == "taxi"
            assert tags.pop("table").endswith("lake/Tables/trips")
            assert tags.pop("task_id").startswith("load.")
            ((_, own),) = tags.items() or [("", "")]
            found.setdefault((said[1], own), []).append(float(said[3]))


@pytest.fixture
def statsd(airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsD]:
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        for name, value in {
            "STATSD_ON": "True",
            "STATSD_HOST": "127.0.0.1",
            "STATSD_PORT": str(receiver.getsockname()[1]),
            "STATSD_INFLUXDB_ENABLED": "True",
        }.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", value)
        # As Airflow's task runner does for every task, in a process of the task's own.
        stats.initialize(factory=get_stats_factory(), export_legacy_names=False)
        try:
            yield StatsD(receiver)
        finally:
            stats.initialize(factory=NoStatsLogger, export_legacy_names=False)


def test_metrics_of_a_load_reach_statsd(lakehouse: Path, engine: FakeEngine, statsd: StatsD) -> None:
    run = run_dag(taxi(), logical_date=JANUARY)
    assert set(states(run).values()) == {"success"}

    found = statsd.read()
    written = [xcom(run, "load.write", map_index=index) for index in (0, 1)]
    assert {name: sum(values) for (name, _), values in found.items() if not name.endswith("buffer_age")} == {
        "onelake.write.writers": 2,
        "onelake.write.staged_rows": 6,
        "onelake.write.staged_files": sum(each["files"] for each in written),
        "onelake.write.staged_bytes": sum(each["bytes"] for each in written),
        "onelake.commit.attempts": 2,
        "onelake.commit.commits": 2,
        "onelake.commit.rows": 6,
        "onelake.reconcile.writers": 2,
    }
    assert ("onelake.write.writers", "published") in found
    assert ("onelake.reconcile.writers", "already_published") in found
    assert len(found["onelake.commit.buffer_age", ""]) == 2


def test_a_conflict_that_a_policy_settles_is_told(lakehouse: Path, engine: FakeEngine, statsd: StatsD) -> None:
    log = make_table(lakehouse / "Tables" / "trips")
    foreign_append(log, {"2019-01": [91]})
    engine.before = lambda job: foreign_append(log, {"2019-01": [92]}) and None
    engine.rows = {"vendor_id = 1": {"2019-01": [1]}, "vendor_id = 2": {"2019-02": [2]}}
    run = run_dag(taxi(mode="overwrite_partitions"), logical_date=JANUARY)
    assert set(states(run).values()) == {"success"}

    found = statsd.read()
    assert found["onelake.commit.conflicts", ""] == [1]
    assert sum(found["onelake.commit.rows", ""]) == 2


def shown(run: Any, task_id: str, map_index: int = -1) -> dict[str, str]:
    """What the web server makes of a task's links: by the DAG as it is stored, and XCom."""
    from airflow.models.dagbag import DBDagBag
    from airflow.utils.session import create_session

    with create_session() as session:
        stored = DBDagBag().get_latest_version_of_dag(run.dag_id, session=session)
    assert stored is not None
    operator = stored.get_task(task_id)
    (ti,) = [ti for ti in run.get_task_instances() if (ti.task_id, ti.map_index) == (task_id, map_index)]
    return {name: operator.get_extra_links(ti, name) for name in operator.extra_links}


def test_links_lead_to_spark_the_view_and_the_table(
    lakehouse: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"lakehouse": str(lakehouse), "namespace": "test", "table_page": "https://catalog.example/{name}"}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps({"conn_type": "onelake", "extra": extra}))

    def engine_for(*given: Any) -> FakeEngine:
        given[5](SPARK_UI)
        return engine

    monkeypatch.setattr("airflow_provider_onelake.operators._spark_task.engine_for", engine_for)
    run = run_dag(taxi(), logical_date=JANUARY)
    assert set(states(run).values()) == {"success"}

    table = xcom(run, "load.reconcile")["table"].removeprefix(f"{lakehouse}/")
    view = f"/plugin/lakehouse?connection=onelake_default&table={table}"
    for index in (0, 1):
        version = xcom(run, "load.write", map_index=index)["version"]
        assert shown(run, "load.write", index) == {
            "Spark UI": SPARK_UI,
            "Lakehouse": f"{view}&version={version}",
            "Table": "https://catalog.example/trips",
        }
    newest = xcom(run, "load.reconcile")["version"]
    assert shown(run, "load.reconcile") == {
        "Lakehouse": f"{view}&version={newest}",
        "Table": "https://catalog.example/trips",
    }


def test_a_page_that_would_show_a_secret_is_no_link_and_no_failure(
    lakehouse: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    extra = {"lakehouse": str(lakehouse), "table_page": "https://x.example/{name}?sig=s3cr3t"}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps({"conn_type": "onelake", "extra": extra}))
    run = run_dag(taxi(), logical_date=JANUARY)

    assert set(states(run).values()) == {"success"}
    assert not xcom(run, "load.reconcile", "_link_TableLink")
    assert "There is no link 'Table'" in caplog.text
    assert "s3cr3t" not in caplog.text


@pytest.fixture
def events(airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file to which OpenLineage's listener writes its events."""
    from airflow.providers.openlineage import conf
    from airflow.providers.openlineage.plugins.listener import OpenLineageListener
    from airflow.sdk.listener import get_listener_manager

    def forget() -> None:
        for each in vars(conf).values():
            if hasattr(each, "cache_clear"):
                each.cache_clear()

    file = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    # As it is by default, the listener forks; the child of a test would be one more pytest.
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__EXECUTE_IN_THREAD", "True")
    forget()
    plugins = get_listener_manager().pm
    # Airflow has it already, where nothing in this process has asked for listeners before.
    if not any(isinstance(each, OpenLineageListener) for each in plugins.get_plugins()):
        plugins.register(OpenLineageListener())
    try:
        yield file
    finally:
        for each in [each for each in plugins.get_plugins() if isinstance(each, OpenLineageListener)]:
            plugins.unregister(each)
        monkeypatch.undo()
        forget()


def test_lineage_of_a_load_is_told_by_openlineages_listener(lakehouse: Path, engine: FakeEngine, events: Path) -> None:
    run = run_dag(taxi(), logical_date=JANUARY)
    assert set(states(run).values()) == {"success"}

    told = [json.loads(line) for line in events.read_text().splitlines()]
    completed = [event for event in told if event["eventType"] == "COMPLETE"]
    writes = [event for event in completed if event["job"]["name"] == "taxi.load.write"]
    assert len(writes) == 2
    name = str(lakehouse / "Tables" / "trips")
    for event, index in zip(sorted(writes, key=_version), sorted((0, 1), key=_version_of(run)), strict=True):
        written = xcom(run, "load.write", map_index=index)
        assert [(each["namespace"], each["name"]) for each in event["inputs"]] == [("file", "/data/*.json")]
        (output,) = event["outputs"]
        assert (output["namespace"], output["name"]) == ("file", name)
        assert output["facets"]["version"]["datasetVersion"] == str(written["version"])
        assert {"name": "id", "type": "long"}.items() <= output["facets"]["schema"]["fields"][0].items()
        assert output["facets"]["storage"]["storageLayer"] == "delta"
        statistics = output["outputFacets"]["outputStatistics"]
        counts = (statistics["rowCount"], statistics["size"], statistics["fileCount"])
        assert counts == (3, written["bytes"], written["files"])
    # Reconcile had nothing left to publish: it names the table, and counts no row twice.
    (reconciled,) = [event for event in completed if event["job"]["name"] == "taxi.load.reconcile"]
    (output,) = reconciled["outputs"]
    assert output["name"] == name
    assert "outputStatistics" not in output.get("outputFacets", {})


def test_a_table_that_another_task_has_as_inlet_has_the_name_that_the_load_gave_it(
    lakehouse: Path, engine: FakeEngine, events: Path
) -> None:
    with DAG("report", schedule=None, start_date=JANUARY) as dag:
        EmptyOperator(task_id="read", inlets=[table_asset("Tables/trips")])
    assert set(states(run_dag(dag, logical_date=JANUARY)).values()) == {"success"}

    told = [json.loads(line) for line in events.read_text().splitlines()]
    (read,) = [event for event in told if event["job"]["name"] == "report.read" and event["eventType"] == "COMPLETE"]
    expected = [("file", str(lakehouse / "Tables" / "trips"))]
    assert [(each["namespace"], each["name"]) for each in read["inputs"]] == expected


def _version(event: dict[str, Any]) -> int:
    return int(event["outputs"][0]["facets"]["version"]["datasetVersion"])


def _version_of(run: Any) -> Any:
    return lambda index: xcom(run, "load.write", map_index=index)["version"]
