"""What a writer costs beside its rows: requests to a Spark Connect server, imports, and lines that say how far it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from airflow_provider_onelake.exceptions import SparkJobError
from airflow_provider_onelake.spark import connect
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.spark.jobs.progress import Progress
from tests.integration.spark.test_engine import ENDLESS, in_background, until
from tests.support.grpc_requests import count_requests
from tests.support.schemas import field
from tests.support.spark import Server, Target, sql_job

ROOT = Path(__file__).parents[3]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of jobs from now on, without waiting for the intervals between them."""
    said: list[str] = []
    monkeypatch.setattr(connect, "Progress", lambda _: Progress(said.append, seconds=0.01, longest=0.01))
    return said


@pytest.mark.parametrize("isolated", [False, True], ids=["clone", "function"])
def test_a_job_says_how_far_it_is(engine: ConnectEngine, target: Target, lines: list[str], isolated: bool) -> None:
    job = sql_job(target, ENDLESS)
    if isolated:
        job = attrs.evolve(job, source={"kind": "function"}, rows=lambda spark: spark.sql(ENDLESS))
    staging = in_background(engine, job)
    try:
        # Delta reads the buffer's definition first, in stages of its own.
        until(lambda: any(re.search(r": stage \d of \d, \d of \d tasks done, .*2 running$", line) for line in lines))
    finally:
        engine.stop()
    with pytest.raises(SparkJobError, match="as asked"):
        staging.result(60)


def test_a_writer_sends_few_requests(engine: ConnectEngine, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = count_requests(monkeypatch)
    engine.stage(sql_job(target, "SELECT id FROM range(10)"))
    assert target.rows == 10
    # pyspark sends these in the background, and where an answer takes long.
    for kind in ("ReleaseExecute", "ReattachExecute"):
        requests.pop(kind, None)
    most = {"AnalyzePlan": 5, "Config": 6, "ExecutePlan": 3, "CloneSession": 1, "ReleaseSession": 2}
    assert requests <= Counter({**most, "FetchErrorDetails": 1})


_FORKED = """
import json, os, sys
remote, jobs = sys.argv[1], json.loads(sys.argv[2])
sys.argv = ["airflow", "scheduler"]
from airflow_provider_onelake.preload import preload
preload()
before = set(sys.modules)

def write(job):
    import obstore
    from obstore.store import LocalStore
    from airflow_provider_onelake.spark.base import StageJob
    from airflow_provider_onelake.spark.connect import ConnectEngine
    ConnectEngine(remote).stage(StageJob(**job))
    log = f"{job['buffer_uri']}/_delta_log"
    obstore.put(LocalStore(log), "forked", b"")
    heavy = ("pyspark", "grpc", "pandas", "numpy", "pyarrow", "obstore", "google", "airflow_provider_onelake")
    late = sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in heavy)
    with open(f"{log}/late", "w") as file:
        json.dump(late, file)

children = []
for job in jobs:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            write(job)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    children.append(child)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def test_forks_of_a_process_that_has_preloaded_write_and_import_nothing_more(
    connect_server: Server, tmp_path: Path, new_target: Callable[..., Target]
) -> None:
    """As tasks of the local executor and of Celery do, several at once."""
    targets = [new_target([field("id", "long")]) for _ in range(2)]
    jobs = [sql_job(target, "SELECT id FROM range(10)").as_dict() for target in targets]
    done = subprocess.run(
        [sys.executable, "-c", _FORKED, connect_server.remote, json.dumps(jobs)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for target in targets:
        log = target.buffer / "_delta_log"
        assert target.rows == 10
        assert (log / "forked").exists()
        # gRPC imports these itself, with the first channel and its interceptors.
        assert json.loads((log / "late").read_text()) == ["grpc._channel", "grpc._interceptor"]
