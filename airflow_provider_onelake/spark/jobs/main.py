"""The driver of a submitted job: reads what to do, does it, and writes how it went.

    spark-submit … --py-files <zip of spark.jobs> main.py <job.json> <result.json> [<name of this driver>]

Both are JSON, each at a local path or at an address that this Spark can read and write. The result says
what the job returned, or what was wrong in Spark's own terms; what that means is decided by whoever submitted. Works in
any deploy mode, also started a second time by a cluster that restarts drivers: every job can be done twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.spark.jobs.alter import alter
from airflow_provider_onelake.spark.jobs.application import condition_of
from airflow_provider_onelake.spark.jobs.audit import audit
from airflow_provider_onelake.spark.jobs.change import change
from airflow_provider_onelake.spark.jobs.optimize import optimize
from airflow_provider_onelake.spark.jobs.progress import Progress
from airflow_provider_onelake.spark.jobs.set_up import SparkIsNotSetUpError
from airflow_provider_onelake.spark.jobs.stage import analyze, stage
from airflow_provider_onelake.spark.jobs.vacuum import vacuum
from airflow_provider_onelake.spark.jobs.versions import check_versions, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

FORMAT = 1
"""Of jobs and results. Both are written and read by one version of the package, so another one is an accident."""

ALIVE = "ONELAKE_SUBMITTER_ALIVE"
"""Environment variable: a file that whoever submitted keeps locked for as long as it lives."""

ENVIRONMENT = "spark.onelake.environment"
"""Setting: names of the driver's environment variables that executors need, with commas between."""

CONNECT_VARIABLES = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")
"""Environment variables that make a driver a client of Connect. Who opened such a session keeps them for good."""

_JARS = "spark.jars"
_DELTA = "io.delta.sql.DeltaSparkSessionExtension"
_LONGEST = 20_000
_STANDALONE = re.compile(r"driver-\d+-\d+")
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://?")

JOBS: Mapping[str, Callable[[SparkSession, Mapping[str, Any]], dict[str, Any]]] = {
    "analysing": analyze,
    "staging": stage,
    "auditing": audit,
    "compacting": optimize,
    "changing": change,
    "altering": alter,
    "vacuuming": vacuum,
}
"""What runs on Spark, by kind of job."""


def main(job: str, result: str, called: str | None = None) -> int:
    """Run one job.

    :param job: where the job file is.
    :param result: where the result goes; one that is there is replaced.
    :param called: by which whoever submitted finds this driver. Default: what its cluster calls it.
    :returns: the process's status: 0 for a job that was done, or that was not to be done any more.
    :raises Exception: the result could not be written.
    """
    alive = os.environ.get(ALIVE)
    end_with(alive)
    spark = None
    try:
        spark = _session()
        if alive is None:
            # The submitter may have died before it learnt the driver's id, so write the id first.
            _write(spark, result, json.dumps({"format": FORMAT, "driver": called or _driver(spark)}))
        _check_delta(spark)
        there = versions(spark)
        _say(f"This is {', '.join(f'{name} {version}' for name, version in there.items())}.")
        check_versions(there)
        todo = _read(spark, job)
        if todo is None:
            # The job file is read after the id was written: either the submitter saw the id, or the file is gone here.
            print("The job file was taken back: nobody wants this job, or another driver does it.", file=sys.stderr)
            _end(spark)
            return 0
        said = {"result": _run(spark, json.loads(todo))}
    except Exception as error:
        said = {"error": {**describe(error), "starting": spark is None}}
        print(f"The job failed: {said['error']['message']}", file=sys.stderr)
    _write(spark, result, json.dumps({"format": FORMAT, **said}))
    if spark is not None:
        _end(spark)
    return 0 if "result" in said else 1


def describe(error: BaseException) -> dict[str, Any]:
    """Put an error into plain values.

    :param error: as raised by pyspark.
    :returns: ``class``, ``condition``, ``state``, ``message``, and ``stack``: the JVM's and Python's causes.
    """
    java = getattr(error, "java_exception", None)
    message = str(java.toString()) if java is not None else str(error).split("\n\nJVM stacktrace:")[0]
    # Without Spark Connect, pyspark has no public attribute for the JVM's stack.
    stacks = [str(error) if java is not None else str(getattr(error, "_stackTrace", None) or "")]
    cause = error.__cause__ or error.__context__
    while cause is not None and len(stacks) < 10:
        stacks.append(f"Caused by: {type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    return {
        "class": type(error).__name__,
        "condition": condition_of(error),
        "state": getattr(error, "getSqlState", lambda: None)(),
        "message": message[:_LONGEST],
        "stack": "\n".join(filter(None, stacks))[:_LONGEST],
    }


def end_with(alive: str | None) -> None:
    """End this process and the JVM above it as soon as whoever submitted them has died.

    Nobody would read the result, and a retry starts another. It has then let go of the lock, however it died.

    :param alive: the file that is locked, ``None`` where the driver is to outlive whoever submitted.
    """
    if alive is None:
        return
    file = Path(alive).open("rb")  # noqa: SIM115 - for as long as the process lives

    def wait() -> None:
        fcntl.flock(file, fcntl.LOCK_SH)
        print("Whoever submitted this job has died: it ends.", file=sys.stderr, flush=True)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=wait, name="submitter-alive", daemon=True).start()


def _run(spark: SparkSession, todo: Mapping[str, Any]) -> dict[str, Any]:
    if todo["format"] != FORMAT:
        raise ValueError(f"The job file has format {todo['format']}; these are jobs of format {FORMAT}.")
    with Progress(_say).reporting(spark):
        return JOBS[todo["kind"]](spark, todo["job"])


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _session() -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    for name in CONNECT_VARIABLES:
        os.environ.pop(name, None)
    # Start the JVM here: without it, a SparkConf has none of the settings that spark-submit was given.
    SparkContext._ensure_initialized()
    settings = SparkConf()
    builder = SparkSession.builder
    for name in filter(None, (settings.get(ENVIRONMENT, "") or "").split(",")):
        # Pass the values from environment to environment, because every user can read a command line.
        builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    if jars := settings.get(_JARS, ""):
        builder = builder.config(_JARS, for_executors(jars, sys.argv[0]))
    return builder.getOrCreate()


def for_executors(jars: str, own: str) -> str:
    """Leave these jobs out of the JARs that executors fetch.

    A standalone cluster takes a driver as a "JAR", and for one like any other. Executors need none of it, and would
    have to read it from the table's store before they have that store's own JARs.

    :param jars: addresses, with commas between.
    :param own: what Python was started with.
    :returns: the others.
    """
    return ",".join(jar for jar in jars.split(",") if jar.rpartition("/")[2] != Path(own).name)


def _driver(spark: SparkSession) -> str:
    """Return what the cluster calls this driver."""
    here = Path.cwd().name  # A standalone cluster names the directory after the driver.
    pod = spark.conf.get("spark.kubernetes.driver.pod.name", None)
    return here if _STANDALONE.fullmatch(here) else pod or spark.sparkContext.applicationId


def _check_delta(spark: Any) -> None:
    # Spark only warns of an extension that it cannot load, and later says that there is no data source 'delta'.
    try:
        spark._jvm.org.apache.spark.util.Utils.classForName(_DELTA, True, False)
    except Exception as error:
        raise SparkIsNotSetUpError(f"Delta Lake's JARs are not on Spark's class path: there is no {_DELTA}.") from error


def _read(spark: SparkSession, place: str) -> str | None:
    """Return a text, ``None`` where there is none any more."""
    if not _SCHEME.match(place):
        return Path(place).read_text() if Path(place).exists() else None
    files, path = _files(spark, place)
    if not files.exists(path):
        return None
    stream = files.open(path)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def _write(spark: SparkSession | None, place: str, text: str) -> None:
    if not _SCHEME.match(place):
        path = Path(place)
        # Replace the file in one step, because the submitter may read the result at any time.
        path.with_suffix(".part").write_text(text)
        path.with_suffix(".part").replace(path)
    elif spark is not None:
        files, path = _files(spark, place)
        stream = files.create(path, True)
        stream.write(text.encode())
        stream.close()


def _end(spark: Any) -> None:
    """Stop Spark, and let go of its JVM: hadoop-azure 3.5 keeps it alive by a thread for every open file system."""
    files = spark._jvm.org.apache.hadoop.fs.FileSystem
    spark.stop()
    files.closeAll()


def _files(spark: Any, place: str) -> tuple[Any, Any]:
    """Return Hadoop's file system for an address, and the address as its path."""
    path = spark._jvm.org.apache.hadoop.fs.Path(place)
    return path.getFileSystem(spark._jsc.hadoopConfiguration()), path


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
