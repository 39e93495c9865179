"""Whole loads through Airflow's operators while the stores behave badly, to Spark and to this package.

Each has a proxy of its own, so the requests of one can be told from those of the other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_onelake.log.actions import of_kind, parse_actions, version_path
from airflow_provider_onelake.maintenance.vacuum import VacuumTerms, plan
from airflow_provider_onelake.operators.vacuum import OneLakeVacuumOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.airflow_dags import JANUARY, run_again, run_dag, states, xcom
from tests.support.object_stores import Lake
from tests.support.proxied_spark import ProxiedSpark
from tests.support.proxy import Fault, Proxy, Request, Seen, away_from, either, first, weather
from tests.support.tables import foreign_commit

pytestmark = pytest.mark.timeout(1200)

S3 = pytest.mark.parametrize("lake", ["s3"], indirect=True)
S3_AND_AZURE = pytest.mark.parametrize("lake", ["s3", "azure"], indirect=True)

VENDORS = [{"writer": f"vendor-{vendor}", "where": f"vendor_id = {vendor}"} for vendor in (1, 2)]
TRIPS = "Tables/trips"
SCHEMA = "id BIGINT, vendor_id INT, month STRING"

OUTAGE = 4.0
"""Seconds; tried with 120 by hand."""


@pytest.fixture
def connected(
    airflow_home: Path, lake: Lake, proxy: Proxy, proxied_spark: ProxiedSpark, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Lets Airflow's connections lead to the store by the proxies; takes more for the extra of the lakehouse's."""
    server = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": proxied_spark.port}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(server))
    near = lake.behind(proxy)
    return lambda **extra: monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", near.connection(**extra))


@pytest.fixture
def sparks(lake: Lake, proxied_spark: ProxiedSpark) -> Iterator[Proxy]:
    """The proxy between Spark and the store that the lake is on, which is left as it was found."""
    proxy = proxied_spark.proxies[lake.kind]
    yield proxy
    proxy.faults = None


def write_rows(file: Path, first: int, months: list[str]) -> None:
    """Two rows of each vendor for each month."""
    rows = [
        {"id": first + number, "vendor_id": number % 2 + 1, "month": month}
        for number, month in enumerate(month for month in months for _ in range(4))
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def load(source: Path, writer: dict[str, Any] | None = None, **group: Any) -> DAG:
    with (
        DAG("weather", schedule=None, start_date=JANUARY) as dag,
        OneLakeWriteTaskGroup(group_id="load", table=TRIPS, partition_by=["month"], **group),
    ):
        OneLakeWriteOperator.partial(
            task_id="write",
            source=FileSource(str(source / "{{ ds }}.json"), format="json", schema=SCHEMA),
            **(writer or {}),
        ).expand_kwargs(VENDORS)
    return dag


def succeed(dag: DAG, **arguments: Any) -> Any:
    run = run_dag(dag, **arguments)
    assert set(states(run).values()) == {"success"}, states(run)
    return run


def passed(proxy: Proxy, lake: Lake) -> list[Seen]:
    """What the test asked by a proxy."""
    found = [seen for seen in list(proxy.seen) if f"{lake.root.rpartition('/')[2]}/" in seen.request.path]
    assert found, f"nobody asked for anything in {lake.root}"
    return found


def changes(proxy: Proxy, lake: Lake) -> list[Request]:
    """The requests by which something in the table's own log may have been changed, of those that passed a proxy."""
    requests = [seen.request for seen in passed(proxy, lake) if f"/{TRIPS}/_delta_log/" in seen.request.path]
    return [request for request in requests if request.method not in ("GET", "HEAD")]


def unanswered(proxy: Proxy, lake: Lake) -> int:
    return sum(seen.status is None for seen in passed(proxy, lake))


@S3
def test_on_s3_no_spark_job_commits_to_the_tables_log(
    lake: Lake, proxy: Proxy, sparks: Proxy, connected: Callable[..., None], tmp_path: Path
) -> None:
    connected()
    write_rows(tmp_path / "2019-01-01.json", 0, ["2019-01", "2019-02"])
    write_rows(tmp_path / "2019-02-01.json", 100, ["2019-02"])
    succeed(load(tmp_path, optimize={"min_files": 2}), logical_date=JANUARY)
    succeed(load(tmp_path, mode="overwrite_partitions", publish="together"), logical_date=JANUARY.add(months=1))
    log = lake.log(TRIPS)
    # Objects of a real store cannot be made older, and a table that began like this would take no buffer.
    (metadata,) = of_kind(parse_actions(log.store.get(version_path(0)), TRIPS), "metaData")
    configuration = {**metadata["configuration"], "delta.deletedFileRetentionDuration": "interval 1 seconds"}
    foreign_commit(log, [{"commitInfo": {}}, {"metaData": {**metadata, "configuration": configuration}}])
    terms, deadline = VacuumTerms(allow_retention_below_seven_days=True), time.monotonic() + 30
    while not plan(log, terms).candidates and time.monotonic() < deadline:
        pass
    with DAG("upkeep", schedule=None, start_date=JANUARY) as upkeep:
        OneLakeVacuumOperator(task_id="vacuum", table=TRIPS, allow_retention_below_seven_days=True)
    vacuum = xcom(succeed(upkeep), "vacuum")

    assert vacuum["files"] > 0
    assert lake.ids(TRIPS) == [0, 1, 2, 3, 100, 101, 102, 103]
    operations = [commit.operation for commit in log.commits_since(-1)]
    assert operations == ["WRITE", "WRITE", "OPTIMIZE", "WRITE", ""]
    # VACUUM keeps a note there, which is no commit.
    assert {request.path.rpartition("/")[2] for request in changes(sparks, lake)} <= {"_last_vacuum_info"}
    puts = [request for request in changes(proxy, lake) if request.is_commit]
    assert [(put.path[-10:], put.conditional) for put in puts] == [(f"{number:05}.json", True) for number in range(4)]


@S3_AND_AZURE
def test_a_load_in_bad_weather_ends_with_every_row_once(
    lake: Lake, proxy: Proxy, sparks: Proxy, connected: Callable[..., None], tmp_path: Path
) -> None:
    connected()
    write_rows(tmp_path / "2019-01-01.json", 0, ["2019-01", "2019-02"])
    # Whatever the dice say, the answers to the commit that makes the table and to the next are lost after they took effect.
    lost = [first(1, "PUT", f"{TRIPS}/_delta_log/{n:020}.json", Fault(lose_answer=True)) for n in (0, 1)]
    proxy.faults, sparks.faults = either(*lost, weather(5)), weather(6)
    again: dict[str, Any] = {"retries": 5, "retry_delay": 0}
    succeed(load(tmp_path, writer=again), logical_date=JANUARY)
    proxy.faults = sparks.faults = None

    for side in (proxy, sparks):
        assert any(seen.status in (429, 500, 503) and seen.stored is None for seen in passed(side, lake))
        assert any(seen.status is None and seen.stored is not None for seen in passed(side, lake))
    assert lake.ids(TRIPS) == list(range(8))
    assert [commit.operation for commit in lake.log(TRIPS).commits_since(-1)] == ["WRITE", "WRITE"]


@pytest.mark.nightly
@S3_AND_AZURE
def test_an_outage_in_the_middle_of_a_load_is_ridden_out(
    lake: Lake, proxy: Proxy, sparks: Proxy, connected: Callable[..., None], tmp_path: Path
) -> None:
    """One begins while Spark stages, one while the result is committed; no task is given a second try."""
    connected(patience=OUTAGE + 60)
    write_rows(tmp_path / "2019-01-01.json", 0, ["2019-01", "2019-02"])

    def stages(request: Request) -> bool:
        # Whether a shared scan stages or a writer.
        return request.method == "PUT" and "/staged/" in request.path and ".parquet" in request.path

    def commits(request: Request) -> bool:
        return request.is_commit and request.path.endswith(version_path(1))

    proxy.faults = sparks.faults = either(away_from(stages, OUTAGE), away_from(commits, OUTAGE))
    succeed(load(tmp_path), logical_date=JANUARY)

    assert unanswered(sparks, lake) > 0
    assert unanswered(proxy, lake) > 0
    assert lake.ids(TRIPS) == list(range(8))
    assert [commit.operation for commit in lake.log(TRIPS).commits_since(-1)] == ["WRITE", "WRITE"]


@S3
def test_with_less_patience_the_load_fails_clean_and_reconcile_completes_it_without_spark(
    lake: Lake,
    proxy: Proxy,
    sparks: Proxy,
    proxied_spark: ProxiedSpark,
    connected: Callable[..., None],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    connected(patience=0.5)
    write_rows(tmp_path / "2019-01-01.json", 0, ["2019-01", "2019-02"])

    staged: set[str] = set()

    def looks_at_the_second_buffer(request: Request) -> bool:
        """Spark is done then, whichever writer's turn it was."""
        if "/staged/" in request.path and request.path.endswith(version_path(1)):
            staged.add(request.path)
        return len(staged) == 2

    proxy.faults = away_from(looks_at_the_second_buffer)
    # A shared scan would look at the buffers of both.
    dag = load(tmp_path, shared_scan=False)
    run = run_dag(dag, logical_date=JANUARY)
    ended = states(run)
    assert sorted(ended[f"load.write[{index}]"] for index in (0, 1)) == ["failed", "success"]
    assert (ended["load.reconcile"], ended["load.committed"]) == ("failed", "upstream_failed")
    said = capfd.readouterr()
    assert "StoreUnavailableError" in said.out + said.err
    assert "What is staged or published stays" in said.out + said.err
    assert lake.ids(TRIPS) in ([0, 2, 4, 6], [1, 3, 5, 7])

    proxy.faults = None
    jobs, asked = len(proxied_spark.jobs()), len(sparks.seen)
    assert run_again(dag, run, "load.reconcile") == "success"
    assert lake.ids(TRIPS) == list(range(8))
    report = xcom(run, "load.reconcile")
    assert sorted(writer["status"] for writer in report["writers"]) == ["already_published", "published"]
    decisions = [said for writer in report["writers"] for said in writer["decisions"]]
    assert decisions == ["published now; the store had not answered its task"]
    assert (len(proxied_spark.jobs()), len(sparks.seen)) == (jobs, asked)
