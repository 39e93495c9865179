"""``.ci/setup`` names what is missing on the machine, before it installs anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def bare_machine(tmp_path):
    """A PATH with a few tools and no Python, Java or make."""
    for tool in ("bash", "env", "dirname", "sed", "head"):
        found = shutil.which(tool)
        assert found
        (tmp_path / tool).symlink_to(found)
    return tmp_path


def provide(machine: Path, name: str, script: str) -> None:
    (machine / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
    (machine / name).chmod(0o755)


def set_up(machine: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [REPOSITORY / ".ci" / "setup", machine / "venv"],
        env={"PATH": str(machine), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_everything_that_is_missing_is_named_at_once_with_what_to_install(bare_machine):
    done = set_up(bare_machine)
    assert done.returncode == 1
    for name, package in (
        ("Python 3.11, 3.12 or 3.13:", "python3"),
        ("Java 17 or later:", "openjdk-17"),
        ("make:", "make"),
    ):
        line = next(line for line in done.stderr.splitlines() if name in line)
        assert f"apt install {package}" in line
    assert not (bare_machine / "venv").exists()


@pytest.mark.parametrize(("version", "taken"), [("3.10", False), ("3.11", True), ("3.13", True), ("3.14", False)])
def test_a_python_that_the_lock_is_for_may_be_called_python3(bare_machine, version, taken):
    provide(bare_machine, "python3.11", "echo 'version manager: not installed' >&2; exit 127")
    provide(bare_machine, "python3", f"echo {version}")
    done = set_up(bare_machine)
    assert ("Python 3.11" not in done.stderr) is taken
    assert "Java 17" in done.stderr


@pytest.mark.parametrize(
    ("said", "enough"),
    [
        pytest.param('openjdk version "1.8.0_402"', False, id="8"),
        pytest.param('openjdk version "11.0.22" 2024-01-16', False, id="11"),
        pytest.param('openjdk version "17.0.15" 2025-04-15', True, id="17"),
        pytest.param('openjdk version "21" 2023-09-19', True, id="21"),
    ],
)
def test_java_must_be_17_or_later(bare_machine, said, enough):
    provide(bare_machine, "java", f"echo '{said}' >&2")
    done = set_up(bare_machine)
    assert ("Java 17 or later" not in done.stderr) is enough
