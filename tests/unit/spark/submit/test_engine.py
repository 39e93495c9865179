"""The spark-submit engine against a script in the place of Spark: command line, plan, result, secrets, stop, time-out."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.spark.base import OptimizeJob, StageJob, VacuumJob
from airflow_provider_onelake.spark.submit import hook
from airflow_provider_onelake.spark.submit.engine import SubmitEngine
from airflow_provider_onelake.storage.spark import SparkAccess
from tests.support.fake_submit import FakeSubmit, option, settings
from tests.support.versions import needs_newer_provider

Connect = Callable[..., SubmitEngine]
SECRET = "s3cr3t/+value"
ACCESS = SparkAccess(
    settings={"spark.hadoop.fs.s3a.endpoint": "http://store"},
    environment={"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu"},
    packages=("org.apache.hadoop:hadoop-aws:3.5.0",),
)
STAGED = "say(result={'reads_target': False, 'application_id': 'app-1'})"
ERROR = {"class": "X", "message": "", "condition": None, "state": None, "stack": "", "starting": False}


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSubmit:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    found = FakeSubmit(tmp_path)
    found.does(STAGED)
    return found


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    def make(
        host: str = "spark://master", port: int | None = 7077, extra: Any = None, **arguments: Any
    ) -> SubmitEngine:
        said = {"conn_type": "spark", "host": host, "extra": {"jars": "/j/delta.jar", **(extra or {})}}
        monkeypatch.setenv("AIRFLOW_CONN_S", json.dumps({**said, **({"port": port} if port else {})}))
        engine = engine_for("s", **arguments)
        assert isinstance(engine, SubmitEngine)
        return engine

    return make


METADATA = {"schemaString": "{}", "partitionColumns": []}


def job(**fields: Any) -> StageJob:
    usual = {"table_uri": "/lake/t", "attempt": "a1", "buffer_uri": "/lake/t/staged/w/a1", "metadata": METADATA}
    return StageJob(**{"source": {"kind": "sql", "query": "SELECT 1"}, **usual, **fields})


def failing(**error: Any) -> str:
    return f"say(error={ {**ERROR, **error}!r}); sys.exit(1)"


def test_a_job_is_one_zip_one_script_and_one_plan(submit: FakeSubmit, connect: Connect) -> None:
    done = connect().stage(job(label="load.write vendor-1"))
    assert (done.engine, done.application_id, done.reads_target) == ("submit", "app-1", False)
    (call,) = submit.calls
    argv = call["argv"]
    assert option(argv, "--master") == "spark://master:7077"
    assert option(argv, "--name") == "onelake load.write vendor-1"
    assert option(argv, "--jars") == "/j/delta.jar"
    assert "--packages" not in argv
    assert Path(str(option(argv, "--py-files"))).name.startswith("onelake_spark_jobs-")
    assert [Path(path).name for path in argv[-3:]] == ["main.py", "job.json", "result.json"]
    # Who may write the table's directory changes neither.
    for path in (str(option(argv, "--py-files")), argv[-2]):
        assert Path(path).is_relative_to(tempfile.gettempdir())
    told = json.loads(json.dumps(job(label="load.write vendor-1").as_dict()))
    assert call["plan"] == {"format": 1, "kind": "staging", "job": told}
    assert not Path(argv[-1]).parent.exists()


def test_a_session_is_one_for_delta(submit: FakeSubmit, connect: Connect) -> None:
    connect(extra={"conf": {"spark.executor.memory": "1g", "spark.sql.extensions": "my.Extension"}}).stage(job())
    found = settings(submit.calls[0]["argv"])
    assert found["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,my.Extension"
    assert found["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.executor.memory"] == "1g"


def test_what_the_connection_says_of_a_store_wins(submit: FakeSubmit, connect: Connect) -> None:
    """Or a cluster whose machines have an identity of their own would be told to look for the lakehouse's keys."""
    provider = "spark.hadoop.fs.s3a.aws.credentials.provider"
    access = attrs.evolve(ACCESS, settings={**ACCESS.settings, provider: "EnvironmentVariableCredentialsProvider"})
    connect(extra={"conf": {provider: "InstanceProfileCredentialsProvider"}}, access=lambda: access).stage(job())
    found = settings(submit.calls[0]["argv"])
    assert found[provider] == "InstanceProfileCredentialsProvider"
    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://store"


def test_packages_that_the_connection_leaves_out_stay_out(submit: FakeSubmit, connect: Connect) -> None:
    access = attrs.evolve(ACCESS, settings={"spark.jars.excludes": "software.amazon.awssdk:bundle"})
    connect(extra={"conf": {"spark.jars.excludes": "org.slf4j:slf4j-api"}}, access=lambda: access).stage(job())
    found = settings(submit.calls[0]["argv"])
    assert found["spark.jars.excludes"] == "software.amazon.awssdk:bundle,org.slf4j:slf4j-api"


@pytest.mark.parametrize("extra", [{}, {"jars": None, "packages": None}], ids=["nothing", "null"])
def test_without_jars_delta_and_what_the_store_needs_are_fetched(
    submit: FakeSubmit, connect: Connect, monkeypatch: pytest.MonkeyPatch, extra: dict[str, None]
) -> None:
    connect(access=lambda: ACCESS)
    monkeypatch.setenv("AIRFLOW_CONN_S", json.dumps({"conn_type": "spark", "host": "local[1]", "extra": extra}))
    engine_for("s", None, lambda: ACCESS).stage(job())
    packages = str(option(submit.calls[0]["argv"], "--packages")).split(",")
    assert packages[0].startswith("io.delta:delta-spark_")
    assert packages[1:] == list(ACCESS.packages)


def test_every_kind_of_job_comes_back(submit: FakeSubmit, connect: Connect) -> None:
    engine = connect("local[1]", None)
    submit.does("say(result={'schema_json': '{}'})")
    assert engine.analyze(job(buffer_uri=None, metadata=None)) == "{}"
    submit.does("say(result={'application_id': 'app-2'})")
    optimize = OptimizeJob(table_uri="/t", attempt="a", shadow_uri="/t/s", target_file_size=1)
    assert engine.optimize(optimize).application_id == "app-2"
    assert engine.vacuum(VacuumJob(table_uri="/t", attempt="a", inventory_uri="/t/i")).engine == "submit"
    assert [call["plan"]["kind"] for call in submit.calls] == ["analysing", "compacting", "vacuuming"]


def test_a_function_does_not_travel(submit: FakeSubmit, connect: Connect) -> None:
    with pytest.raises(errors.InvalidWriteError, match=r"'spark_connect'.*OneLakeWriteOperator\(source=…, steps="):
        connect().stage(job(source={"kind": "function"}, rows=lambda spark: spark.range(1)))
    assert submit.calls == []


def test_secrets_are_in_the_environment_only(
    submit: FakeSubmit, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    engine = connect("local[1]", None, access=lambda: ACCESS)
    with caplog.at_level("DEBUG"):
        engine.stage(job())
    (call,) = submit.calls
    assert call["env"]["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert SECRET not in json.dumps([call["argv"], call["plan"]])
    assert SECRET not in caplog.text + repr(engine) + repr(ACCESS)
    found = settings(call["argv"])
    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://store"
    assert found["spark.onelake.environment"] == "AWS_ACCESS_KEY_ID,AWS_REGION,AWS_SECRET_ACCESS_KEY"


def test_airflows_own_secrets_stay_with_airflow(
    submit: FakeSubmit, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "fernet")
    connect("local[1]", None).stage(job())
    assert not [name for name in submit.calls[0]["env"] if name.startswith(("AIRFLOW_CONN_", "AIRFLOW__"))]


def test_after_a_connect_client(submit: FakeSubmit, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = {"SPARK_CONNECT_MODE_ENABLED": "1", "SPARK_REMOTE": "sc://spark", "SPARK_LOCAL_REMOTE": "1"}
    for name, value in clients.items():
        monkeypatch.setenv(name, value)
    connect("local[1]", None).stage(job())
    assert not clients.keys() & submit.calls[0]["env"].keys()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", SECRET),
        ("spark.hadoop.fs.s3a.access.key", SECRET),
        ("spark.hadoop.fs.azure.account.key.x", SECRET),
        ("spark.authenticate.secret", SECRET),
        ("spark.my.secret.path", SECRET),
        ("spark.executorEnv.AWS_SECRET_ACCESS_KEY", SECRET),
        ("spark.yarn.appMasterEnv.STORAGE_SAS", SECRET),
        ("spark.driver.extraJavaOptions", f"-Xss4m -Dmy.secret={SECRET}"),
        ("spark.jars.repositories", f"https://reader:{SECRET.replace('/', '')}@jars.example/releases"),
        ("jars", f"https://reader:{SECRET.replace('/', '')}@jars.example/mine.jar"),
    ],
)
def test_a_secret_among_the_settings_is_refused(connect: Connect, key: str, value: str) -> None:
    with pytest.raises(errors.InvalidWriteError, match="command line") as refused:
        connect(extra={key: value} if key == "jars" else {"conf": {key: value}})
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY", "x"),
        ("spark.kubernetes.kerberos.tokenSecret.name", "x"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "x"),
        ("spark.hadoop.fs.azure.account.oauth2.token.file", "x"),
        ("spark.hadoop.fs.azure.account.key.x", "${env.AZURE_STORAGE_ACCOUNT_KEY}"),
        ("spark.executorEnv.TZ", "UTC"),
        ("spark.executorEnv.AZURE_FEDERATED_TOKEN_FILE", "/var/run/token"),
        ("spark.my.secret.path", "/run/secrets/mine"),
        ("spark.driver.extraJavaOptions", "-Xss4m -Dmy.token.file=/run/token -Duser.timezone=UTC"),
        ("spark.eventLog.dir", "abfss://logs@lake.dfs.core.windows.net/events"),
        ("spark.jars.repositories", "https://jars.example:8443/releases"),
    ],
)
def test_a_setting_that_says_where_a_secret_is_is_none(connect: Connect, key: str, value: str) -> None:
    connect(extra={"conf": {key: value}})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param({"class": "RowsDoNotFitError", "message": "no column x"}, errors.SchemaMismatchError, id="rows"),
        pytest.param({"class": "SparkIsNotSetUpError", "message": "no Delta"}, errors.SparkSetUpError, id="jars"),
        pytest.param(
            {"condition": "TASK_WRITE_FAILED", "stack": "a\nCaused by: x: [DELTA_NOT_NULL_CONSTRAINT_VIOLATED] SQLSTATE: 23502"},
            errors.ConstraintViolatedError,
            id="cause",
        ),
        pytest.param({"message": "executor lost"}, errors.SparkJobError, id="unknown"),
        pytest.param({"message": "All masters are unresponsive!", "starting": True}, errors.SparkUnavailableError, id="master"),
    ],
)  # fmt: skip
def test_a_result_is_raised_as_the_typed_error(
    submit: FakeSubmit, connect: Connect, error: dict[str, Any], kind: type[errors.OneLakeError]
) -> None:
    submit.does(failing(**error))
    with pytest.raises(errors.OneLakeError) as raised:
        connect().stage(job())
    assert type(raised.value) is kind
    assert str(error.get("message", "")) in str(raised.value)


@needs_newer_provider("tells the last lines of spark-submit")
def test_a_driver_without_a_result_says_its_last_lines_without_secrets(submit: FakeSubmit, connect: Connect) -> None:
    submit.does("print('java.lang.OutOfMemoryError', os.environ['AWS_SECRET_ACCESS_KEY']); sys.exit(137)")
    with pytest.raises(errors.SparkJobError, match=r"without a result[\s\S]*OutOfMemoryError") as raised:
        connect(access=lambda: ACCESS).stage(job())
    assert SECRET not in str(raised.value)


def test_half_a_result_is_none(submit: FakeSubmit, connect: Connect) -> None:
    submit.does('Path(result).write_text(\'{"format": 1, "resu\')')
    with pytest.raises(errors.SparkJobError, match="cannot be read"):
        connect().stage(job())


def test_no_spark_submit_on_the_worker(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(errors.SparkSetUpError, match="no spark-submit"):
        connect().stage(job())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{condition} did not come true within {seconds} s")


# A JVM that does not listen to SIGTERM, with a Python below it.
STUBBORN = """
import signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
Path(plan).with_name("pids").write_text(f"{os.getpid()} {child.pid}")
Path(os.environ["PIDS"]).write_text(f"{os.getpid()} {child.pid}")
child.wait()
"""


@pytest.fixture
def stubborn(submit: FakeSubmit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[int]]]:
    submit.does(STUBBORN)
    monkeypatch.setattr(hook, "_TERM_SECONDS", 0.1)
    file = tmp_path / "pids"
    monkeypatch.setenv("PIDS", str(file))
    yield lambda: [int(pid) for pid in file.read_text().split()] if file.exists() else []
    for pid in [int(pid) for pid in file.read_text().split()] if file.exists() else []:
        if alive(pid):
            os.kill(pid, 9)


def test_stop_kills_a_whole_group_that_does_not_listen(stubborn: Callable[[], list[int]], connect: Connect) -> None:
    engine = connect()
    with ThreadPoolExecutor(1) as pool:
        staging = pool.submit(engine.stage, job())
        pids = until(stubborn)
        engine.stop()
        with pytest.raises(errors.SparkJobError, match="as asked"):
            staging.result(60)
    until(lambda: not any(map(alive, pids)))
    idle = connect()
    idle.stop()
    for stopped in (engine, idle):
        with pytest.raises(errors.SparkJobError, match="Stopped before"):
            stopped.stage(job())


def test_a_time_out_kills_the_whole_group(stubborn: Callable[[], list[int]], connect: Connect) -> None:
    with ThreadPoolExecutor(1) as pool:
        staging = pool.submit(connect(timeout=3600).stage, job())
        pids = until(stubborn)
        # Now, and not in an hour.
        (timer,) = (thread for thread in threading.enumerate() if isinstance(thread, threading.Timer))
        timer.function(*timer.args)
        with pytest.raises(errors.SparkJobTimeoutError, match="longer than 3600 s"):
            staging.result(60)
    until(lambda: not any(map(alive, pids)))


def test_a_time_out_is_over_with_its_job(submit: FakeSubmit, connect: Connect) -> None:
    engine = connect(timeout=30)
    engine.stage(job())
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert all(timer.finished.is_set() for timer in timers)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({"extra": {"conf": "{"}}, "no JSON", id="conf as text"),
        pytest.param({"extra": {"conf": ["a"]}}, "no mapping", id="conf as list"),
        pytest.param(
            {"host": "local[2]", "port": None, "extra": {"deploy-mode": "cluster"}}, "has no cluster", id="no cluster"
        ),
    ],
)
def test_what_cannot_be_is_refused(connect: Connect, given: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.InvalidWriteError, match=said):
        connect(**given)


@pytest.mark.parametrize(
    ("extra", "page"),
    [
        pytest.param({}, "http://rm/proxy/app-1", id="as-spark-says"),
        pytest.param({"spark_ui": "https://h.example/{application_id}/"}, "https://h.example/app-1/", id="as-asked"),
        pytest.param({"spark_ui": "https://h.example/{session_id}/"}, None, id="there-is-no-session"),
        pytest.param({"spark_ui": "https://me:s3cr3t@history.example/"}, None, id="a-secret"),
    ],
)
def test_where_it_is_seen(submit: FakeSubmit, connect: Connect, extra: dict[str, str], page: str | None) -> None:
    submit.does("say(result={'reads_target': False, 'application_id': 'app-1', 'ui': 'http://rm/proxy/app-1'})")
    pages: list[str] = []
    result = connect(extra=extra, on_started=pages.append).stage(job())
    assert pages == ([page] if page else [])
    assert result.ui == "http://rm/proxy/app-1"
