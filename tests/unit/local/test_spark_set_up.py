"""What is missing for a local Spark is named, before anything is started."""

from __future__ import annotations

import json
import socket
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from include.local import jars
from include.local.connect_server import free_port
from tests.support import event_log
from tests.support.server_process import ServerError
from tests.support.spark import Server


def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(jars.SetUpError, match=r"Java 17 or later.*JAVA_HOME"):
        jars.java()


def test_no_java_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(jars.SetUpError, match="install a JDK"):
        jars.java()


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(jars.SetUpError, match=version):
        jars.java()


def test_jars_that_are_there_are_not_fetched_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shelf = tmp_path / "ivy" / "retrieved"
    shelf.mkdir(parents=True)
    # Ivy's names: group, artifact, version. The last one is among pyspark's own.
    for name in ("io.delta_delta-storage-4.4.0.jar", "org.x_new_2.13-1.0.jar", "org.slf4j_slf4j-api-2.0.13.jar"):
        (shelf / name).touch()
    calls = []

    def download(packages: list[str], ivy: Path) -> list[Path]:
        calls.append(packages)
        return list(shelf.iterdir())

    monkeypatch.setattr(jars, "_download", download)
    first = jars.resolve(tmp_path, ["org.x:new:1"])
    assert [jar.name for jar in first] == ["delta-storage-4.4.0.jar", "new_2.13-1.0.jar"]
    assert jars.resolve(tmp_path, ["org.x:new:1"]) == first
    assert len(calls) == 1
    jars.resolve(tmp_path, ["org.x:new:2"])
    first[0].unlink()
    jars.resolve(tmp_path, ["org.x:new:2"])
    assert len(calls) == 3


POM = """<project><modelVersion>4.0.0</modelVersion><groupId>org.x</groupId><artifactId>{name}</artifactId>
<version>1</version>{dependencies}</project>"""
ON_TWO = """<dependencies><dependency><groupId>org.x</groupId><artifactId>two</artifactId><version>1</version></dependency>
</dependencies>"""


def put(repository: Path, name: str, dependencies: str = "", *, jar: bool = True) -> None:
    place = repository / "org" / "x" / name / "1"
    place.mkdir(parents=True)
    (place / f"{name}-1.pom").write_text(POM.format(name=name, dependencies=dependencies))
    if jar:
        with zipfile.ZipFile(place / f"{name}-1.jar", "w") as archive:
            archive.writestr("nothing", "")


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A mirror that the environment names. The user's own Maven has a POM without its JAR, as Maven leaves them."""
    put(tmp_path / "home" / ".m2" / "repository", "two", jar=False)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", f"-Duser.home={tmp_path / 'home'}")
    root = tmp_path / "mirror"
    put(root, "one", ON_TWO)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", f"http://127.0.0.1:{server.server_port}/")
        yield root
        server.shutdown()


def test_what_the_users_own_maven_has_in_part_is_fetched(mirror: Path, tmp_path: Path) -> None:
    put(mirror, "two")
    assert [jar.name for jar in jars.resolve(tmp_path / "a state", ["org.x:one:1"])] == ["one-1.jar", "two-1.jar"]


def test_what_no_repository_has_is_named(mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_ATTEMPTS", 1)
    put(mirror, "two", jar=False)
    with pytest.raises(jars.SetUpError, match=r"(?s)no such JAR\. Ivy said:.*NOT FOUND.*org\.x#two;1!two\.jar"):
        jars.resolve(tmp_path / "state", ["org.x:one:1"])


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = Server(tmp_path, port=free_port(), ui_port=port, jar_files=[])
        with pytest.raises(ServerError, match=f"Port {port}, wanted for Spark's UI"):
            server.start()
    assert server.pid is None


def test_jobs_of_a_killed_application(tmp_path: Path) -> None:
    """Its log has no end, and half a line where it was cut off."""
    events = [
        {
            "Event": "SparkListenerJobStart",
            "Job ID": number,
            "Submission Time": number,
            "Properties": {"spark.job.tags": f"thread-1,SparkConnect_Execute_User_u_Tag_attempt {number}"},
        }
        for number in (1, 2)
    ]
    end = {
        "Event": "SparkListenerJobEnd",
        "Job ID": 1,
        "Completion Time": 9,
        "Job Result": {"Result": "JobSucceeded"},
    }
    text = "\n".join(map(json.dumps, [*events, end]))
    (tmp_path / "local-1.inprogress").write_text(f'{text}\n{{"Event": "SparkLis')
    found = event_log.jobs(tmp_path)
    assert [(job.application, job.id, job.succeeded, job.ended, set(job.tags)) for job in found] == [
        ("local-1", 1, True, 9, {"attempt 1"}),
        ("local-1", 2, False, None, {"attempt 2"}),
    ]
