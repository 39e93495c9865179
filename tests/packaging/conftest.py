"""The wheel, built as it is published, and the environment's uv to ask what it installs with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Uv = Callable[..., str]


@pytest.fixture(scope="session")
def uv() -> Uv:
    def run(*arguments: str, said: str = "") -> str:
        done = subprocess.run(
            [ROOT / ".ci" / "uv", *arguments],
            env={**os.environ, "VENV": sys.prefix},
            input=said,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def wheel(uv: Uv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    uv("build", "--quiet", "--wheel", "--out-dir", str(directory))
    (found,) = directory.glob("*.whl")
    return found
