"""docker-compose.yaml's services, started natively from the file itself: a backfill in which all of them have a part."""

from __future__ import annotations

import base64
import json
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.storage.addresses import TableAddress, resolve_table
from airflow_provider_onelake.storage.azure import AzureCredentials
from airflow_provider_onelake.storage.s3 import S3Credentials
from airflow_provider_onelake.storage.stores import deltalake_options
from include.local.api import AirflowApi, wait_for
from include.local.demo import SAMPLE
from include.local.expected import KEY, expected_append, month_files, read_trips
from include.local.jars import SetUpError
from tests.support.compose import NativeStack
from tests.support.contexts import context_of

DAG = "nyc_taxi_two_vendors"
MONTHS = ("2019-01", "2019-02", "2019-03")
# The first test starts all services, which has taken six minutes beside other tests on two slow cores.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def variables() -> dict[str, str]:
    """Secrets of this run in place of the file's defaults, by the variables that the file names."""

    def key(size: int = 32) -> str:
        return base64.urlsafe_b64encode(secrets.token_bytes(size)).decode()

    return {
        "POSTGRES_PASSWORD": secrets.token_hex(12),
        "S3_ACCESS_KEY": f"key{secrets.token_hex(8)}",
        "S3_SECRET_KEY": secrets.token_hex(16),
        "ONELAKE_TOKEN": secrets.token_hex(16),
        "SPARK_CONNECT_TOKEN": secrets.token_hex(16),
        "AZURE_ACCOUNT_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW_ADMIN_PASSWORD": secrets.token_hex(8),
        "AIRFLOW_FERNET_KEY": key(),
        "AIRFLOW_SESSION_KEY": key(),
        "AIRFLOW_JWT_SECRET": key(64),
    }


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> Iterator[NativeStack]:
    """All services, healthy."""
    if not sys.platform.startswith("linux"):
        pytest.skip(
            "Each service has an address of the loopback network 127.0.0.0/8, which Linux gives and others do not."
        )
    try:
        running = NativeStack(tmp_path_factory.mktemp("compose"), variables)
        try:
            running.start()
            yield running
        finally:
            running.stop()
    except SetUpError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def api(stack: NativeStack, variables: dict[str, str]) -> AirflowApi:
    return AirflowApi(f"http://{stack.addresses['airflow-api']}:8080", "admin", variables["AIRFLOW_ADMIN_PASSWORD"])


def test_a_backfill_by_both_vendors_writers_over_the_cluster_into_s3(
    stack: NativeStack, api: AirflowApi, variables: dict[str, str]
) -> None:
    def parsed() -> bool:
        assert api.import_errors() == []
        return DAG in {dag["dag_id"] for dag in api.dags()}

    wait_for(parsed, "the DAG to be parsed", 300)
    api.unpause(DAG)
    first, *_, last = (datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC) for month in MONTHS)
    api.create_backfill(DAG, first, last, max_active_runs=3)

    def ended() -> list[dict[str, Any]] | None:
        runs = [run for run in api.runs(DAG, run_type="backfill") if run["state"] in ("success", "failed")]
        return runs if len(runs) == len(MONTHS) else None

    runs = wait_for(ended, "the backfill to end", 900)
    assert [run["state"] for run in runs] == ["success"] * len(MONTHS)

    table = table_on_s3("Tables/trips", stack, variables)
    # Each writer has a version of its own, and the first of them made the table.
    assert table.version() == 2 * len(MONTHS) - 1
    rows = table.to_pyarrow_table(columns=list(KEY))
    found = Counter(zip(*(rows.column(name).to_pylist() for name in KEY), strict=True))
    files = month_files(SAMPLE)
    assert found == expected_append(read_trips({month: files[month] for month in MONTHS}))

    # The Connect server is an application of the cluster, with an executor on each worker.
    with urlopen(f"http://{stack.addresses['spark-master']}:8080/json/", timeout=10) as answer:
        cluster = json.load(answer)
    assert [(worker["state"], worker["coresused"]) for worker in cluster["workers"]] == [("ALIVE", 1)] * 2
    assert [application["name"] for application in cluster["activeapps"]] == ["connect"]


def test_onelakes_addresses_lead_to_azurite_for_spark_and_for_airflow(
    stack: NativeStack, api: AirflowApi, variables: dict[str, str]
) -> None:
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException
    from pyspark.sql import SparkSession

    address = TableAddress.parse("onelake://taxi/raw.Lakehouse/Tables/five")
    remote = f"sc://{stack.addresses['spark-connect']}:15002"
    refused = SparkSession.builder.remote(remote).create()
    with pytest.raises(SparkConnectGrpcException, match="UNAUTHENTICATED"):
        refused.range(3).count()
    refused.stop()  # else pyspark waits for the server when Python ends
    shown = quote(f"Bearer {variables['SPARK_CONNECT_TOKEN']}")
    spark = SparkSession.builder.remote(f"{remote}/;authorization={shown}").create()
    try:
        spark.range(5).write.format("delta").save(address.spark_uri)
    finally:
        spark.stop()
    credentials = AzureCredentials(
        sign_in="account_key",
        account_key=variables["AZURE_ACCOUNT_KEY"],
        endpoint=f"http://{stack.addresses['azure-server']}:10000/onelake",
        allow_http=True,
    )
    options = deltalake_options(address, credentials)
    rows = DeltaTable(address.deltalake_uri, storage_options=options).to_pyarrow_table()
    assert sorted(rows.column("id").to_pylist()) == [0, 1, 2, 3, 4]

    fields = json.loads(stack.environment("airflow-api")["AIRFLOW_CONN_ONELAKE_AZURE"])
    body = {**fields, "connection_id": "onelake_azure", "extra": json.dumps(fields["extra"])}
    answer = api.request("POST", "connections/test", json=body)
    assert answer["status"], answer["message"]


def test_an_application_is_submitted_with_what_the_schedulers_container_has(
    stack: NativeStack, variables: dict[str, str]
) -> None:
    # In a container the repository is at /opt/onelake.
    script = "/opt/onelake/tests/live/compose_submit.py"
    status = stack.run("airflow-scheduler", ["python3", script], 540)
    assert status == 0, stack.run_log("airflow-scheduler")[-4000:]
    rows = table_on_s3("Tables/submitted", stack, variables).to_pyarrow_table()
    assert sorted(rows.column("id").to_pylist()) == [0, 1, 2]
    with urlopen(f"http://{stack.addresses['spark-master']}:8080/json/", timeout=10) as answer:
        cluster = json.load(answer)
    # The Connect server, and this one.
    assert len([*cluster["activeapps"], *cluster["completedapps"]]) == 2


def test_no_secret_is_in_a_log_or_on_a_command_line(stack: NativeStack, variables: dict[str, str]) -> None:
    said = [file.read_text(errors="replace") for file in stack.logs.iterdir()]
    tasks = [file.read_text(errors="replace") for file in stack.volume("airflow").rglob("*.log")]
    assert any("vendor-1" in text for text in tasks)
    commands = stack.commands()
    assert any("CoarseGrainedExecutorBackend" in command for command in commands)
    for name, secret in variables.items():
        # The id of a key is no secret.
        if name != "S3_ACCESS_KEY":
            assert not any(secret in text for text in (*said, *tasks, *commands)), name


@pytest.mark.costs("It starts every container once more")
def test_with_its_profile_spark_and_airflow_load_a_table_of_the_local_onelake(
    tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {**variables, "COMPOSE_PROFILES": "onelake"}
    running = NativeStack(tmp_path, chosen, only=["onelake-server", "spark-connect"])
    try:
        running.start()
        connections = running.environment("airflow-scheduler")
        for name in ("AIRFLOW_CONN_ONELAKE_LOCAL", "AIRFLOW_CONN_SPARK_CONNECT_DEFAULT"):
            monkeypatch.setenv(name, connections[name])
        hook = OneLakeHook("onelake_local")
        worked, message = hook.test_connection()
        assert worked, message
        source = SqlSource("SELECT id, '2019-01' AS month FROM range(5)")
        task = OneLakeWriteOperator(
            task_id="write", table="Tables/five", writer="w", source=source, onelake_conn_id="onelake_local"
        )
        assert task.execute(context_of(task))["status"] == "published"
        assert sorted(hook.table("Tables/five").read(["id"]).read_all()["id"].to_pylist()) == [0, 1, 2, 3, 4]
        # Where the server keeps it, and so nowhere else.
        table = running.volume("lake") / "local" / "lakehouse.Lakehouse" / "Tables" / "five"
        assert (table / "_delta_log" / f"{0:020d}.json").is_file()
        said = [file.read_text(errors="replace") for file in running.logs.iterdir()]
        said += running.commands()
        assert not any(variables["ONELAKE_TOKEN"] in text for text in said)
    finally:
        running.stop()


def table_on_s3(path: str, stack: NativeStack, variables: dict[str, str]) -> DeltaTable:
    """A table of the lakehouse, as somebody outside of the stack reads it."""
    credentials = S3Credentials(
        access_key=variables["S3_ACCESS_KEY"],
        secret_key=variables["S3_SECRET_KEY"],
        endpoint=f"http://{stack.addresses['s3-server']}:7070",
        allow_http=True,
    )
    address = resolve_table(path, "s3://lake")
    return DeltaTable(address.deltalake_uri, storage_options=deltalake_options(address, credentials))
