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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

JAVA_AT_LEAST = 17
_ATTEMPTS = 3
_RESOLVE_SECONDS = 600
_NOT_FOUND = "[NOT FOUND"


class SetUpError(RuntimeError):
    """Something that the local stack needs is missing on this machine; the message says what to install."""


def spark_home() -> Path:
    """Return the directory of pip's ``pyspark``, which is a whole Spark.

    :raises SetUpError: ``pyspark`` is not installed, or only its client is.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetUpError("pyspark is not installed in this environment: run 'make setup'.")
    home = Path(spec.origin).parent
    if not (home / "jars").is_dir():
        raise SetUpError(
            f"{home} holds pyspark's client only, without Spark's JARs: install pyspark and pyspark-client."
        )
    return home


def java() -> Path:
    """Return the ``java`` to run Spark with: ``JAVA_HOME``'s, else the one on ``PATH``.

    :raises SetUpError: there is none, or it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not found or not Path(found).exists():
        raise SetUpError(
            f"Java {JAVA_AT_LEAST} or later is needed to run Spark, and there is no 'java' "
            f"{'in JAVA_HOME' if home else 'on PATH'}: install a JDK or JRE (Debian: openjdk-17-jre-headless)."
        )
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_AT_LEAST:
        first = said.splitlines()[0] if said else "no answer to -version"
        raise SetUpError(f"Java {JAVA_AT_LEAST} or later is needed to run Spark; {found} is: {first}")
    return Path(found)


def environment() -> dict[str, str]:
    """Return the environment to run pip's Spark with.

    ``SPARK_HOME`` is set because Spark's own look-up asks whichever ``python3`` comes first on ``PATH``.
    """
    # ".../bin/java" may be a link to a JDK elsewhere; spark-class wants the JDK's own directory.
    return {**os.environ, "SPARK_HOME": str(spark_home()), "JAVA_HOME": str(java().resolve().parent.parent)}


def resolve(state: Path, packages: Sequence[str] | None = None) -> list[Path]:
    """Return the JARs for ``packages``, downloading them on the first call only.

    Several processes may call this at once: one downloads, the others wait for it.

    :param state: directory that keeps what is downloaded, in ``jars/`` and ``ivy/``.
    :param packages: Maven coordinates. Default: Delta Lake as installed, and the file systems of S3 and Azure,
        31 MB more.
    :returns: paths of the JARs, sorted.
    :raises SetUpError: Java is missing, or the packages cannot be downloaded.
    """
    from airflow_provider_onelake.storage.kinds import kinds
    from airflow_provider_onelake.storage.spark import delta_package

    state = state.absolute()
    chosen = sorted(packages or {delta_package(), *(package for kind in kinds() for package in kind.packages)})
    wanted = {"packages": chosen, "spark": importlib.metadata.version("pyspark")}
    jars, stamp = state / "jars", state / "jars" / "resolved.json"
    state.mkdir(parents=True, exist_ok=True)
    with lock(state / "jars.lock"):
        if stamp.exists():
            known = json.loads(stamp.read_text())
            found = [jars / name for name in known["jars"]]
            if {key: known[key] for key in wanted} == wanted and all(jar.exists() for jar in found):
                return found
        retrieved = _download(chosen, state / "ivy")
        shipped = {_artifact(jar.name) for jar in (spark_home() / "jars").glob("*.jar")}
        fresh = state / "jars.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        # Ivy puts the group in front: io.delta_delta-storage-4.4.0.jar
        named = {jar.name.partition("_")[2]: jar for jar in retrieved}
        names = sorted(name for name in named if _artifact(name) not in shipped)
        for name in names:
            shutil.copyfile(named[name], fresh / name)
        (fresh / "resolved.json").write_text(json.dumps({**wanted, "jars": names}, indent=2))
        shutil.rmtree(jars, ignore_errors=True)
        fresh.rename(jars)
        return [jars / name for name in names]


def _download(packages: Sequence[str], ivy: Path) -> list[Path]:
    from airflow_provider_onelake.storage.s3 import EXCLUDED

    command = [
        str(spark_home() / "bin" / "spark-submit"),
        *("--packages", ",".join(packages), "--exclude-packages", ",".join(EXCLUDED)),
        *("--conf", f"spark.jars.ivy={ivy}", "--master", "local[1]"),
        # Something harmless to run once the packages are there: spark-submit itself, asked for its version.
        *("--class", "org.apache.spark.deploy.SparkSubmit", "spark-internal", "--version"),
    ]
    # Ivy asks the user's own Maven first, and stops there if that has a POM without its JAR. So the JVM gets a home
    # without one. A mirror is named by DEFAULT_ARTIFACT_REPOSITORY, or in Spark's own configuration, and still serves.
    (home := ivy / "home").mkdir(parents=True, exist_ok=True)
    env = environment()
    env["SPARK_SUBMIT_OPTS"] = f'{env.get("SPARK_SUBMIT_OPTS", "")} "-Duser.home={home}"'
    said = ""
    for _ in range(_ATTEMPTS):
        if _NOT_FOUND in said:
            # Ivy has noted whose POM it took, and asks nobody else for the JAR.
            shutil.rmtree(ivy / "cache", ignore_errors=True)
        shutil.rmtree(ivy / "jars", ignore_errors=True)
        try:
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, check=False, timeout=_RESOLVE_SECONDS
            )
        except subprocess.TimeoutExpired:
            said = f"no end after {_RESOLVE_SECONDS} s"
            continue
        said = done.stdout + done.stderr
        retrieved = list((ivy / "jars").glob("*.jar"))
        if done.returncode == 0 and retrieved:
            return retrieved
    told = [
        line.strip() for line in said.partition(":: problems summary ::")[2].partition(":: USE VERBOSE")[0].splitlines()
    ]
    why = "A repository has no such JAR." if _NOT_FOUND in said else "Is there a network?"
    raise SetUpError(
        f"Cannot download {', '.join(packages)} ({_ATTEMPTS} attempts). {why} Ivy said:\n"
        + ("\n".join(line for line in told if line.strip(":")) or said[-2000:])
    )


def _artifact(jar: str) -> str:
    """Return a JAR's name without its version: ``delta-spark_4.2_2.13-4.4.0.jar`` → ``delta-spark_4.2_2.13``."""
    return re.sub(r"-\d[^_]*\.jar$", "", jar)


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Let one process at a time do something; the others wait for it.

    :param path: a file of its own, in a directory that is there.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
