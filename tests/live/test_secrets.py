"""No secret shows anywhere that people or other processes look: searched after real loads, also ones that fail."""

from __future__ import annotations

import base64
import json
import secrets
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import attrs
import psycopg2
import pytest
from psycopg2 import sql

from include.local import jars
from include.local.connect_server import HOST
from include.local.settings import from_environment
from tests.live.harness import LiveStack
from tests.support import spark_jvms
from tests.support.object_stores import BUCKET, WORKSPACE, Lake, azure_credentials, s3_credentials
from tests.support.secret_search import Search, command_lines, watching
from tests.support.store_servers import BlobServer, S3Server
from tests.support.store_spark import StoreServer, ToStores, store_server

# An S3 server, a Blob server and a Spark of its own start for it.
pytestmark = pytest.mark.timeout(900)

DAG_ID = "secrets"
# Stands where a secret must not: what does not find it there proves nothing.
PLANTED = f"planted-{secrets.token_hex(8)}"

LOADS = """
    import subprocess
    import sys

    import pendulum
    from airflow.sdk import DAG, task

    from airflow_provider_onelake.operators.write import OneLakeWriteOperator
    from airflow_provider_onelake.sources import SqlSource

    PLANTED = "{planted}"
    ROWS = "SELECT id, '{planted}' AS said FROM range(3)"


    def load(name, lake, spark, query=ROWS):
        OneLakeWriteOperator(
            task_id=name,
            table=f"Tables/{{name}}",
            writer=f"{{name}} {{PLANTED}}",
            source=SqlSource(query),
            onelake_conn_id=lake,
            spark_conn_id=spark,
        )


    with DAG("{dag_id}", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
        load("on_s3", "secret_s3", "secret_connect")
        load("on_azure", "secret_azure", "secret_connect")
        load("submitted", "secret_s3", "secret_submit")
        load("no_such_file", "secret_s3", "secret_connect", "SELECT * FROM json.`s3a://{bucket}/absent.json`")
        load("wrong_s3_key", "wrong_s3_key", "secret_connect")
        load("wrong_azure_key", "wrong_azure_key", "secret_connect")
        load("wrong_token", "secret_s3", "wrong_token")

        @task
        def plant():
            subprocess.run([sys.executable, "-c", "import time; time.sleep(3)", PLANTED], check=True)
            print(PLANTED)
            return PLANTED

        plant()
"""

GREEN = {"on_s3", "on_azure", "submitted", "plant"}
RED = {"no_such_file", "wrong_s3_key", "wrong_azure_key", "wrong_token"}


@attrs.frozen
class Scene:
    """The servers that the loads use, and everything that nobody may see."""

    s3: S3Server
    blobs: BlobServer
    spark: StoreServer
    secrets: dict[str, str]
    lake: str


@pytest.fixture(scope="module")
def scene(
    s3_server: S3Server, blob_server: BlobServer, to_stores: ToStores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    state = tmp_path_factory.mktemp("secrets")
    hidden = {
        "S3 secret key": s3_server.secret_key,
        "Azure account key": blob_server.account_key,
        "wrong S3 secret key": secrets.token_urlsafe(24),
        "wrong Azure account key": _key(),
        "Connect token": secrets.token_urlsafe(24),
        "wrong Connect token": secrets.token_urlsafe(24),
        "authentication secret of Spark": secrets.token_urlsafe(24),
    }
    conf = state / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        f"spark.authenticate true\nspark.authenticate.secret {hidden['authentication secret of Spark']}\n"
    )
    spark = store_server(
        state / "spark",
        to_stores,
        {"spark.planted": PLANTED},
        SPARK_CONF_DIR=str(conf),
        SPARK_CONNECT_AUTHENTICATE_TOKEN=hidden["Connect token"],
    )
    with spark:
        yield Scene(s3_server, blob_server, spark, hidden, f"secrets-{secrets.token_hex(4)}")


def _key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def connections(scene: Scene, events: Path) -> dict[str, dict[str, object]]:
    """The connections of the loads, as Airflow's API takes them."""
    s3 = Lake("s3", f"s3://{BUCKET}/{scene.lake}", s3_credentials(scene.s3))
    azure = Lake("azure", f"onelake://{WORKSPACE}/{scene.lake}.Lakehouse", azure_credentials(scene.blobs))
    connect = {"conn_type": "spark_connect", "host": "localhost", "port": scene.spark.port}
    submit = {
        "spark.ui.enabled": False,
        "spark.driver.memory": "768m",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.driver.extraJavaOptions": spark_jvms.options(),
        "spark.sql.shuffle.partitions": 2,
        "spark.databricks.delta.snapshotPartitions": 2,
        "spark.eventLog.enabled": True,
        "spark.eventLog.compress": False,
        "spark.eventLog.rolling.enabled": False,
        "spark.eventLog.dir": events.as_uri(),
    }
    files = ",".join(map(str, jars.resolve(from_environment().jars)))
    wrong = {"s3": scene.secrets["wrong S3 secret key"], "azure": scene.secrets["wrong Azure account key"]}
    return {
        "secret_s3": json.loads(s3.connection()),
        "secret_azure": json.loads(azure.connection()),
        "wrong_s3_key": {**json.loads(s3.connection()), "password": wrong["s3"]},
        "wrong_azure_key": {**json.loads(azure.connection()), "password": wrong["azure"]},
        "secret_connect": {**connect, "password": scene.secrets["Connect token"]},
        "wrong_token": {**connect, "password": scene.secrets["wrong Connect token"]},
        "secret_submit": {"conn_type": "spark", "host": "local[1]", "extra": {"jars": files, "conf": submit}},
    }


@pytest.mark.costs("It looks for secrets wherever a load leaves something")
def test_no_secret_shows(live_stack: LiveStack, scene: Scene, tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    api, search = live_stack.api, Search({**scene.secrets, PLANTED: PLANTED})
    made = connections(scene, events)
    for conn_id, fields in made.items():
        body = {**fields, "connection_id": conn_id}
        if "extra" in body:
            body["extra"] = json.dumps(body["extra"])
        api.request("POST", "connections", json=body)
    live_stack.add_dag(DAG_ID, LOADS.format(planted=PLANTED, dag_id=DAG_ID, bucket=BUCKET))

    seen: set[bytes] = set()

    def pass_by() -> None:
        for pid, line in command_lines():
            if line not in seen:
                seen.add(line)
                search.look("command lines", line, str(pid))
        # A plan for a driver on this machine.
        for directory in Path(tempfile.gettempdir()).glob("onelake-*"):
            search.look_below("plans", directory)

    with watching(pass_by):
        run = live_stack.run_dag(DAG_ID, timeout=600)
        for conn_id in made:
            known = api.get(f"connections/{conn_id}")
            known.pop("team_name", None)
            said = api.request("POST", "connections/test", json={**known, "connection_id": conn_id})
            search.look("REST", json.dumps(said), f"test of {conn_id}")
    run_id = str(run["dag_run_id"])

    tasks = api.task_instances(DAG_ID, run_id)
    states = {str(task["task_id"]): task["state"] for task in tasks}
    assert states == {**dict.fromkeys(GREEN, "success"), **dict.fromkeys(RED, "failed")}

    look_through_airflow(search, live_stack, run_id)
    look_through_spark(search, scene, events)
    search.look_below("S3", scene.s3.data / BUCKET / scene.lake)
    search.look_below("Azure", scene.blobs.data)
    search.look_below("logs of stores", scene.s3.log_file.parent, leave_out=("secrets.json", "data"))
    search.look_below("logs of stores", scene.blobs.log_file.parent, leave_out=("secrets.json", "data"))

    # The search reaches everything that it is about.
    expected = {
        "command lines", "plans", "task logs", "REST", "database", "logs of processes",
        "environment page", "pages of Spark", "event log of Connect", "event log of spark-submit", "S3", "Azure",
    }  # fmt: skip
    assert expected - set(search.found(PLANTED)) == set(), search.places
    assert {name: search.found(name) for name in scene.secrets} == {name: {} for name in scene.secrets}


def look_through_airflow(search: Search, stack: LiveStack, run_id: str) -> None:
    """Logs as files and by REST, everything that the UI is told, and every table of the database."""
    search.look_below("task logs", stack.task_logs)
    search.look_below("logs of processes", stack.logs)
    api = stack.api
    run = f"dags/{DAG_ID}/dagRuns/{quote(run_id)}"
    asked = [f"dags/{DAG_ID}/details", f"dagSources/{DAG_ID}", f"dags/{DAG_ID}/tasks", run, "eventLogs", "importErrors"]
    asked += [
        "connections",
        *(f"connections/{one['connection_id']}" for one in api.pages("connections", "connections")),
    ]
    for task in api.task_instances(DAG_ID, run_id):
        path = f"{run}/taskInstances/{task['task_id']}"
        # With the rendered templates.
        asked += [path, f"{path}/xcomEntries"]
        asked += [
            f"{path}/xcomEntries/{quote(entry['key'])}" for entry in api.get(f"{path}/xcomEntries")["xcom_entries"]
        ]
        if task["start_date"]:
            asked += [f"{path}/logs/{number}" for number in range(1, task["try_number"] + 1)]
    for path in asked:
        search.look("REST", json.dumps(api.get(path)), path)
    with psycopg2.connect(stack.settings.database_url) as database, database.cursor() as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        tables = [name for (name,) in cursor.fetchall()]
        assert {"connection", "xcom", "rendered_task_instance_fields", "log", "dag_code"} <= set(tables)
        for table in tables:
            cursor.execute(sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(table)))
            for (row,) in cursor:
                search.look("database", row, table)


def look_through_spark(search: Search, scene: Scene, events: Path) -> None:
    """What Spark shows of itself, by page, by REST and in the logs that stay."""
    spark = scene.spark
    search.look("environment page", json.dumps(spark.status("applications/{app}/environment")), "REST")
    for page in ("environment", "jobs", "SQL", "connect", "executors"):
        kind = "environment page" if page == "environment" else "pages of Spark"
        with urllib.request.urlopen(f"{spark.ui_url}/{page}/", timeout=30) as answer:
            search.look(kind, answer.read(), page)
    search.look_below("event log of Connect", spark.event_log_dir)
    search.look_below("event log of spark-submit", events)
    assert "SparkListenerEnvironmentUpdate" in "".join(file.read_text() for file in events.rglob("*") if file.is_file())
    search.look_below("files of Spark", spark.state, leave_out=(spark.event_log_dir.name,))
