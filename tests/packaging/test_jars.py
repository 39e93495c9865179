"""`make jars` fetches from Maven Central, whatever the user's own Maven has a part of, as builds of others leave it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_onelake.storage.spark import delta_package

ROOT = Path(__file__).parents[2]
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>io.delta</groupId><artifactId>delta-storage</artifactId>
<version>{version}</version></project>"""


@pytest.mark.costs("it fetches 120 MB, as a new checkout does")
def test_a_pom_without_its_jar_in_the_users_own_maven_is_in_nobodys_way(tmp_path: Path) -> None:
    version = delta_package().rpartition(":")[2]
    there = tmp_path / ".m2" / "repository" / "io" / "delta" / "delta-storage" / version
    there.mkdir(parents=True)
    (there / f"delta-storage-{version}.pom").write_text(POM.format(version=version))
    done = subprocess.run(
        [sys.executable, "-m", "include.local", "jars"],
        env={**os.environ, "LOCAL_JARS": str(tmp_path), "SPARK_SUBMIT_OPTS": f"-Duser.home={tmp_path}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "jars" / f"delta-storage-{version}.jar").exists()
    assert {jar.name for jar in (tmp_path / "jars").glob("*.jar")} == {
        jar.name for jar in (ROOT / ".local/jars").glob("*.jar")
    }
