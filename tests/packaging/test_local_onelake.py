"""The local OneLake's own wheel: alone in an environment, without the provider, its command serves a lakehouse."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest


@pytest.mark.costs("it installs twenty packages, as a user does who has no Airflow")
def test_it_serves_without_airflow_and_without_the_provider(uv: Callable[..., str], tmp_path: Path) -> None:
    environment, python = tmp_path / "environment", tmp_path / "environment/bin/python"
    uv("build", "--quiet", "--wheel", "--out-dir", str(tmp_path), "include/local_onelake")
    (wheel,) = tmp_path.glob("*.whl")
    uv("venv", "--quiet", "--python", sys.executable, str(environment))
    uv("pip", "install", "--quiet", "--python", str(python), "--constraint", "requirements.lock", str(wheel))
    installed = {each["name"] for each in json.loads(uv("pip", "list", "--python", str(python), "--format", "json"))}
    assert "local-onelake" in installed
    assert not [name for name in installed if "airflow" in name or "spark" in name]

    command = [environment / "bin/local-onelake", tmp_path / "lake", "--port", "0", "--token", "ann=s3cret", "--tls"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        try:
            assert server.stdout is not None
            rest = next(line.split()[1] for line in server.stdout if line.startswith("Fabric "))
            found = httpx.get(f"{rest}/workspaces", headers={"Authorization": "Bearer s3cret"}, timeout=30)
            assert [each["displayName"] for each in found.raise_for_status().json()["value"]] == ["local"]
        finally:
            server.terminate()
