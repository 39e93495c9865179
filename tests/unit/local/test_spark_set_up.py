"""What is missing for a local Spark is named, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from include.local import jars


def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(jars.SetUpError, match=r"Java 17 or later.*JAVA_HOME"):
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
