"""What is missing for a local Spark is named, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from include.local import jars


def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(jars.SetUpError, match=r"Java 17 or later.*JAVA_HOME"):
        jars.java()
