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
