"""The JARs that a local Spark needs beside those in pip's ``pyspark``: resolved once, then used without a network.

Ivy resolves them through pip's own ``spark-submit``. What ``pyspark`` ships already is left out, so that one version
of each library is on the class path.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class SetUpError(RuntimeError):
    """Something that the local stack needs is missing on this machine; the message says what to install."""


OTHER_SPARK = "TESTS_SPARK_HOME"
"""The environment variable that names the home of another Spark than pip's, to run everything here with."""

OTHER_DELTA = "TESTS_DELTA"
"""The environment variable that names another version of Delta Lake than the one that fits the Spark."""

# Spark 3.5 has its server of Spark Connect beside it. Of later 3.5.x, Maven Central has none.
_CONNECT = "org.apache.spark:spark-connect_2.12:3.5.7"


def spark_home() -> Path:
    """Return the home of the Spark that runs here: the directory of pip's ``pyspark``, which is a whole Spark."""
    if other := os.environ.get(OTHER_SPARK):
        return Path(other).absolute()
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetUpError("There is no pyspark in this environment: run 'make setup'.")
    return Path(spec.origin).parent


def spark_version() -> str:
    """Return the version of that Spark."""
    (core,) = (spark_home() / "jars").glob("spark-core_*.jar")
    return core.stem.rpartition("-")[2]


def java() -> Path:
    """Return the ``java`` to run Spark with: ``JAVA_HOME``'s, else the one on ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if not found:
        raise SetUpError(f"There is no 'java' {'in JAVA_HOME' if home else 'on PATH'}: install Java 17 or later.")
    return Path(found)


def environment() -> dict[str, str]:
    """Return the environment to run the Spark with."""
    # Spark's own look-up of its home asks whichever python3 comes first on PATH. And ".../bin/java" may be a link to a
    # JDK elsewhere; spark-class wants the JDK's own directory.
    return {**os.environ, "SPARK_HOME": str(spark_home()), "JAVA_HOME": str(java().resolve().parent.parent)}


def resolve(state: Path, packages: Sequence[str] | None = None) -> list[Path]:
    """Return the JARs for packages, sorted, downloading them on the first call only; others wait for who does.

    :param state: directory that keeps what is downloaded, in ``jars/`` and ``ivy/``.
    :param packages: Maven coordinates. Default: Delta Lake as installed, and the file systems of S3 and Azure.
    :raises SetUpError: Java is missing, or the packages cannot be downloaded.
    """
    from airflow_provider_onelake.storage.kinds import kinds
    from airflow_provider_onelake.storage.spark import delta_package, hadoop

    home = spark_home()
    delta, of_hadoop, other = delta_package(home), hadoop(home), os.environ.get(OTHER_DELTA)
    delta = f"{delta.rpartition(':')[0]}:{other}" if other else delta
    chosen = sorted(packages or {delta, *(package for kind in kinds() for package in kind.packages(of_hadoop))})
    wanted = {"packages": chosen, "spark": spark_version()}
    jars = state.absolute() / "jars"
    if os.environ.get(OTHER_SPARK) and packages is None:
        chosen = [*chosen, *([] if list(home.glob("jars/spark-connect_*")) else [_CONNECT])]
        jars = state.absolute() / "matrix" / f"jars-{spark_version()}-delta-{delta.rpartition(':')[2]}"
    jars.parent.mkdir(parents=True, exist_ok=True)
    stamp = jars / "resolved.json"
    with lock(state / "jars.lock"):
        known = json.loads(stamp.read_text()) if stamp.exists() else {}
        if {**known, **wanted} != known:
            shutil.rmtree(jars, ignore_errors=True)
            jars.mkdir()
            shipped = {_artifact(jar.name) for jar in (home / "jars").glob("*.jar")}
            for jar in _download(chosen, state.absolute() / "ivy"):
                # Ivy puts the group in front: io.delta_delta-storage-4.4.0.jar
                name = jar.name.partition("_")[2]
                if _artifact(name) not in shipped:
                    shutil.copyfile(jar, jars / name)
            stamp.write_text(json.dumps(wanted))
    return sorted(jars.glob("*.jar"))


def _download(packages: Sequence[str], ivy: Path) -> list[Path]:
    from airflow_provider_onelake.storage.s3 import EXCLUDED

    # Ivy asks the user's own Maven first, and stops there if that has a POM without its JAR. So the JVM gets a home
    # without one. A mirror is named by DEFAULT_ARTIFACT_REPOSITORY, or in Spark's own configuration, and still serves.
    (home := ivy / "home").mkdir(parents=True, exist_ok=True)
    shutil.rmtree(ivy / "jars", ignore_errors=True)
    env = environment()
    env["SPARK_SUBMIT_OPTS"] = f'{env.get("SPARK_SUBMIT_OPTS", "")} "-Duser.home={home}"'
    command = [
        str(spark_home() / "bin" / "spark-submit"),
        *("--packages", ",".join(packages), "--exclude-packages", ",".join(EXCLUDED)),
        *("--conf", f"spark.jars.ivy={ivy}", "--master", "local[1]"),
        # Something harmless to run once the packages are there: spark-submit itself, asked for its version.
        *("--class", "org.apache.spark.deploy.SparkSubmit", "spark-internal", "--version"),
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stdout + done.stderr
        raise SetUpError(f"Cannot download {', '.join(packages)}. Is there a network? Ivy said:\n{said[-2000:]}")
    return list((ivy / "jars").glob("*.jar"))


def _artifact(jar: str) -> str:
    """Return a JAR's name without its version: ``delta-spark_4.2_2.13-4.4.0.jar`` → ``delta-spark_4.2_2.13``."""
    return re.sub(r"-\d[^_]*\.jar$", "", jar)


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Let one process at a time do something, by a file of its own; the others wait for it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
