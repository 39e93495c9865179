"""spark-submit with a local master: the same jobs as on Spark Connect, the same rows, the same typed errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.read_shadow import open_read_shadow
from airflow_provider_onelake.buffers.reads import Reads
from airflow_provider_onelake.exceptions import (
    ConstraintViolatedError,
    OneLakeError,
    SchemaMismatchError,
    SparkJobError,
    SparkQueryError,
    SparkSetUpError,
)
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.submit.engine import SubmitEngine
from airflow_provider_onelake.storage.spark import SparkAccess
from airflow_provider_onelake.writes.publish import Committer
from tests.support.schemas import field
from tests.support.spark import Target, generated, make_job, sql_job
from tests.support.spark_cluster import until
from tests.support.tables import begun, complete, foreign_append, ids, make_table, writer_spec

ENDLESS = "SELECT id FROM range(0, 1000000000000000, 1, 2) WHERE xxhash64(id) = 42"
SECRET = "v3ry-s3cr3t-k3y"
TAXI = Path(__file__).parents[3] / "include/data/nyc_taxi/yellow_tripdata_2019-01.json.gz"

NewEngine = Callable[..., SubmitEngine]


def test_a_file_is_analysed_and_staged(local: NewEngine, new_target: Callable[..., Target]) -> None:
    target = new_target([field("vendor_id", "integer"), generated("twice", "integer", "vendor_id * 2")], ["vendor_id"])
    source = {"kind": "files", "path": [str(TAXI)], "format": "json", "schema": "vendor_id INT", "view": "taxi"}
    job = make_job(target, source, where="vendor_id = 2", label="load.write[1] vendor-2, Rome")
    engine = local()
    assert [column["name"] for column in json.loads(engine.analyze(job))["fields"]] == ["vendor_id"]
    done = engine.stage(job)
    assert not done.reads_target
    assert done.application_id is not None
    assert target.versions == [0, 1]
    assert target.rows == 6150
    # A second append of the same attempt does nothing (protocol: exactly version 1).
    engine.stage(job)
    assert target.versions == [0, 1]


@pytest.mark.nightly
def test_a_job_reads_what_is_declared_of_its_table(local: NewEngine, tmp_path: Path) -> None:
    log = make_table(tmp_path / "a lake" / "trips")
    foreign_append(log, {"2019-01": [1, 2], "2019-02": [3]})
    reads = Reads("month = '2019-01'")
    task = begun(log, writer_spec(reads=reads))
    job = StageJob(
        source={"kind": "sql", "query": "SELECT max(id) + 10 AS id, '2019-03' AS month FROM target"},
        table_uri=log.table,
        buffer_uri=f"{log.table}/{task.path}",
        target_uri=f"{log.table}/{open_read_shadow(log, task, log.table)}",
        metadata=task.metadata,
        attempt=Path(task.path).name,
    )
    assert not local().stage(job).reads_target
    buffer = complete(log, task.path)
    assert (buffer.reads, buffer.rows) == (reads, 1)
    Committer(log).publish([buffer])
    assert ids(Path(log.table)) == [1, 2, 3, 12]


@pytest.mark.nightly
def test_a_shared_scan_says_where_it_has_written(local: NewEngine, new_target: Callable[..., Target]) -> None:
    """Writers take rows of no scan whose driver does not name its directory."""
    target = new_target([field("id", "long"), field("onelake_writer", "string")], ["onelake_writer"])
    job = sql_job(target, "SELECT id FROM range(4)", where="id < 3", routes={"w-a": "id = 0", "w-b": "id IN (1, 2)"})
    schema = json.dumps({"type": "struct", "fields": [field("id", "long")]})
    metadata = {**job.metadata, "schemaString": schema, "partitionColumns": []}
    assert local().stage(attrs.evolve(job, metadata=metadata)).buffer_uri == job.buffer_uri
    rows = DeltaTable(str(target.buffer)).to_pyarrow_table(columns=["onelake_writer", "id"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [("w-a", 0), ("w-b", 1), ("w-b", 2)]


@pytest.mark.parametrize(
    ("query", "kind", "said"),
    [
        pytest.param("SELEC 1", SparkQueryError, "PARSE_SYNTAX_ERROR", id="syntax"),
        pytest.param(
            "SELECT 1L AS id, 2 AS more",
            SchemaMismatchError,
            "column more INT is not in the table",
            id="columns",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "SELECT explode(array(1L, NULL)) AS id",
            ConstraintViolatedError,
            "NOT NULL",
            id="null",
            marks=pytest.mark.nightly,
        ),
    ],
)  # fmt: skip
def test_errors_are_those_of_spark_connect(
    local: NewEngine, new_target: Callable[..., Target], query: str, kind: type[OneLakeError], said: str
) -> None:
    target = new_target([field("id", "long", nullable=False)])
    with pytest.raises(OneLakeError, match=said) as raised:
        local().stage(sql_job(target, query))
    assert type(raised.value) is kind
    assert "\tat " not in str(raised.value)
    assert target.versions == [0]


@pytest.mark.nightly
def test_a_spark_without_deltas_jars_says_so(local: NewEngine, new_target: Callable[..., Target]) -> None:
    target = new_target([field("id", "long")])
    with pytest.raises(SparkSetUpError, match="JARs of Delta Lake"):
        local({"jars": ""}).stage(sql_job(target, "SELECT 1L AS id"))


def processes(mark: str) -> list[int]:
    """Processes whose command line has a mark."""
    found = []
    for directory in Path("/proc").iterdir():
        try:
            if mark in (directory / "cmdline").read_text() and int(directory.name) != os.getpid():
                found.append(int(directory.name))
        except (OSError, ValueError):
            continue
    return found


def test_secrets_are_in_no_command_line_and_in_no_event_log(
    local: NewEngine, new_target: Callable[..., Target], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = new_target([field("id", "long")])
    access = SparkAccess(environment={"AZURE_STORAGE_ACCOUNT_KEY": SECRET})
    engine = local(access=lambda: access)
    job = sql_job(target, ENDLESS)
    with caplog.at_level("DEBUG"), ThreadPoolExecutor(1) as pool:
        staging = pool.submit(engine.stage, job)
        until(lambda: "SparkListenerJobStart" in event_log(tmp_path))
        assert processes("spark/jobs/main.py")
        assert not processes(SECRET)
        engine.stop()
        with pytest.raises(SparkJobError, match="as asked"):
            staging.result(30)
    log = event_log(tmp_path)
    assert "spark.executorEnv.AZURE_STORAGE_ACCOUNT_KEY" in log
    assert SECRET not in log + caplog.text
    assert not processes("spark/jobs/main.py")
    assert target.versions == [0]


def event_log(tmp_path: Path) -> str:
    return "".join(file.read_text() for file in (tmp_path / "events").rglob("*") if file.is_file())


WRITER = """
import json, sys
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.hooks.spark import engine_for
engine_for("submit").stage(StageJob(**json.loads(sys.argv[1])))
"""


def test_a_driver_dies_with_a_task_that_was_killed(
    local: NewEngine, new_target: Callable[..., Target], tmp_path: Path
) -> None:
    local()  # for the connection
    job = sql_job(new_target([field("id", "long")]), ENDLESS)
    with subprocess.Popen([sys.executable, "-c", WRITER, json.dumps(job.as_dict())], stdout=subprocess.DEVNULL) as task:
        until(lambda: "SparkListenerJobStart" in event_log(tmp_path))
        assert processes("spark/jobs/main.py")
        os.kill(task.pid, signal.SIGKILL)
    until(lambda: not processes("spark/jobs/main.py"), 20)


@pytest.mark.nightly
def test_a_driver_says_how_far_it_is_in_the_tasks_log(
    local: NewEngine, new_target: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    log = SparkSubmitHook._process_spark_submit_log

    def listen(self: SparkSubmitHook, output: Iterator[Any]) -> None:
        log(self, (lines.append(line) or line for line in output))  # type: ignore[func-returns-value]

    monkeypatch.setattr(SparkSubmitHook, "_process_spark_submit_log", listen)
    engine = local()
    with ThreadPoolExecutor(1) as pool:
        staging = pool.submit(engine.stage, sql_job(new_target([field("id", "long")]), ENDLESS))
        try:
            until(lambda: any(re.search(r"Spark, \d+ s: stage \d of \d, .*[12] running", line) for line in lines), 120)
        finally:
            engine.stop()
        with pytest.raises(SparkJobError, match="as asked"):
            staging.result(60)


@pytest.mark.nightly
def test_what_was_staged_with_its_sessions_settings_is_read_by_others(
    local: NewEngine, new_target: Callable[..., Target]
) -> None:
    target = new_target([field("id", "long"), field("at", "timestamp")], ["id"])
    local().stage(sql_job(target, "SELECT id, timestamp'2019-01-01 00:00:00' AS at FROM range(3)", v_order=True))
    rows: list[dict[str, Any]] = DeltaTable(str(target.buffer)).to_pyarrow_table().to_pylist()
    assert sorted(row["id"] for row in rows) == [0, 1, 2]
    assert {row["at"].isoformat() for row in rows} == {"2019-01-01T00:00:00+00:00"}
