"""Two open-source clients of OneLake as their users run them: by OneLake's own addresses, with TLS, through a proxy.

Microsoft's ``fab`` is a file manager of Fabric for terminals; ``onelake_client`` is the library of ``onelake-tui``. They
are installed into an environment of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from include.local.settings import from_environment
from local_onelake.access import principal_id
from tests.support.onelake import IDENTITY, LAKEHOUSE_GUID, TOKEN, WORKSPACE_GUID, OneLake
from tests.support.tables import foreign_append
from tests.support.tools import install_onelake_clients

pytestmark = pytest.mark.timeout(900)

TENANT = "5c0f6d2e-6f0d-4b8a-9d5e-2f1a3b4c5d6e"
LAKEHOUSE = "taxi.Workspace/raw.Lakehouse"

Run = Callable[..., str]

# What its README shows, as a program for the environment that has it.
_BY_LIBRARY = """
import asyncio, json, sys
from azure.identity import ClientSecretCredential
from onelake_client import OneLakeClient

async def main(tenant, client, secret):
    async with OneLakeClient(ClientSecretCredential(tenant, client, secret)) as onelake:
        (workspace,) = await onelake.fabric.list_workspaces()
        (item,) = await onelake.fabric.list_items(workspace.id, item_type="Lakehouse")
        (lakehouse,) = await onelake.fabric.list_lakehouses(workspace.id)
        one = await onelake.fabric.get_lakehouse(workspace.id, lakehouse.id)
        by_names = await onelake.dfs.list_paths("taxi", "raw.Lakehouse", directory="Files", recursive=True)
        by_guids = await onelake.dfs.list_paths(workspace.id, item.id, directory="Files", recursive=True)
        properties = await onelake.dfs.get_properties("taxi", "raw.Lakehouse/Files/d/a.txt")
        table = await onelake.delta.get_metadata("taxi", "raw.Lakehouse", "trips")
        print(json.dumps({
            "ids": [workspace.id, item.id, lakehouse.id],
            "tables": one.properties.onelake_tables_path,
            "by_names": [path.name for path in by_names],
            "by_guids": [path.name for path in by_guids],
            "size": properties.content_length,
            "read": (await onelake.dfs.read_file("taxi", "raw.Lakehouse/Files/d/a.txt", max_bytes=100)).decode(),
            "there": [await onelake.dfs.exists("taxi", f"raw.Lakehouse/Files/d/{name}") for name in ("a.txt", "b.txt")],
            "table": [table.version, table.num_files],
        }))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[OneLake]:
    with OneLake(lists_by_names=True, tls=True) as running:
        log = running.lake().make_table("Tables/trips")
        foreign_append(log, {"2019-01": [1, 2]})
        yield running


@pytest.fixture(scope="module")
def run(server: OneLake, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a program of the two clients, in a home of its own."""
    programs = install_onelake_clients(from_environment().jars)
    home = tmp_path_factory.mktemp("home")
    assert server.certificates is not None
    trusted = str(server.certificates.authority)
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    environment = {
        **kept,
        "HOME": str(home),
        "HTTPS_PROXY": server.url,
        "SSL_CERT_FILE": trusted,
        "REQUESTS_CA_BUNDLE": trusted,
    }

    def run(program: str, *arguments: str, fails: bool = False) -> str:
        done = subprocess.run(
            [str(programs / program), *arguments],
            env=environment,
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"{program} {' '.join(arguments)}:\n{said}"
        return said

    (home / "up.txt").write_text("hello\n")
    return run


def test_fab_signs_in_and_manages_files_items_shortcuts_and_tables(server: OneLake, run: Run, tmp_path: Path) -> None:
    def fab(command: str, *, fails: bool = False) -> str:
        return run("fab", *command.split(), fails=fails)

    fab("config set encryption_fallback_enabled true")
    fab(f"auth login -u {principal_id(IDENTITY)} -p {TOKEN} -t {TENANT}")
    assert "taxi.Workspace" in fab("ls")
    assert "raw.Lakehouse" in fab("ls taxi.Workspace")
    assert LAKEHOUSE_GUID in fab(f"get {LAKEHOUSE} -q id")
    fab(f"mkdir {LAKEHOUSE}/Files/d")
    fab(f"cp ./up.txt {LAKEHOUSE}/Files/d/up.txt")
    fab(f"cp {LAKEHOUSE}/Files/d/up.txt {LAKEHOUSE}/Files/d/copy.txt")
    fab(f"mv {LAKEHOUSE}/Files/d/copy.txt {LAKEHOUSE}/Files/moved.txt -f")
    fab(f"cp {LAKEHOUSE}/Files/moved.txt {tmp_path}/down.txt")
    assert (tmp_path / "down.txt").read_text() == "hello\n"
    assert "up.txt" in fab(f"ls -l {LAKEHOUSE}/Files/d")
    fab(f"rm {LAKEHOUSE}/Files/d -f")
    assert {path: data for path, data in server.blobs.items() if path.startswith("Files")} == {
        "Files/moved.txt": b"hello\n"
    }
    fab("mkdir taxi.Workspace/new.Lakehouse")
    fab(f"ln {LAKEHOUSE}/Files/link.Shortcut --type oneLake --target ../../taxi.Workspace/new.Lakehouse/Files -f")
    assert "link.Shortcut" in fab(f"ls {LAKEHOUSE}/Files")
    fab(f"rm {LAKEHOUSE}/Files/link.Shortcut -f")
    fab("rm taxi.Workspace/new.Lakehouse -f")
    assert "month" in fab(f"table schema {LAKEHOUSE}/Tables/trips")
    assert "NotFound" in fab(f"exists {LAKEHOUSE}/Files/d/up.txt", fails=True)
    job = fab(f"table optimize {LAKEHOUSE}/Tables/trips")
    assert "Completed" in job
    # Capacities are not served, and fab says that they are not found.
    assert "404" in fab("api capacities")


def test_onelake_client_reads_workspaces_paths_and_a_table(server: OneLake, run: Run) -> None:
    directory = server.directory / "taxi" / "raw.Lakehouse" / "Files" / "d"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "a.txt").write_text("abc")
    said = json.loads(run("python", "-c", _BY_LIBRARY, TENANT, principal_id(IDENTITY), TOKEN))
    assert said["ids"] == [WORKSPACE_GUID, LAKEHOUSE_GUID, LAKEHOUSE_GUID]
    assert said["tables"].endswith("/Tables")
    assert "raw.Lakehouse/Files/d/a.txt" in said["by_names"]
    assert f"{LAKEHOUSE_GUID}/Files/d/a.txt" in said["by_guids"]
    assert (said["size"], said["read"], said["there"]) == (3, "abc", [True, False])
    assert said["table"] == [1, 1], "the other test's OPTIMIZE finds one file, and leaves it"
