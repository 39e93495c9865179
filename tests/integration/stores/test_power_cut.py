"""A power cut after eight publishes: by the calls that reach a disk, and on a disk's image where one can be mounted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from airflow.sdk import Connection

from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.table import Table
from tests.support.contexts import signed_in_by
from tests.support.power import Disk, Image
from tests.support.tables import SCHEMA, ids, local_log, stage, writer_spec

PUBLISHES = 8


@pytest.fixture(params=[Disk, Image])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk | Image]:
    """What is judged by its calls; and an image that is mounted, or its calls again where none can be."""
    with ExitStack() as mounts:
        found = None
        if request.param is Image:
            with suppress(OSError, subprocess.CalledProcessError):
                found = Image(tmp_path, mounts)
        yield found or Disk(tmp_path / "disk", monkeypatch)


def publish(path: Path, extra: str = "{}") -> None:
    """Publish what Spark staged, which syncs nothing, by a connection with an extra."""
    address = TableAddress.parse(str(path))
    connection = Connection(conn_id="onelake_default", conn_type="onelake", extra=extra)
    create_table(Table(address, None, 1.0).log, SCHEMA, ("month",), {})
    committer = Table(address, signed_in_by(connection, address), 1.0).committer()
    for number in range(PUBLISHES):
        buffer = stage(local_log(path), writer_spec(f"w{number}"), {"2019-01": [number]})
        assert committer.publish([buffer]).version == number + 1


def damage(path: Path) -> list[str]:
    """Return what of a table is missing or empty."""
    entries = [path / version_path(version) for version in range(PUBLISHES + 1)]
    missing = [f"{entry.name} is missing" for entry in entries if not entry.exists()]
    files = [*path.glob("_delta_log/*.json"), *path.rglob("*.parquet")]
    empty = [f"{file.name} is empty" for file in files if not file.stat().st_size]
    if missing or empty:
        return [*missing, *empty]
    return [] if ids(path) == list(range(PUBLISHES)) else ["rows are missing"]


def test_eight_publishes_are_whole_after_a_power_cut(disk: Disk | Image) -> None:
    publish(disk.root / "t")
    assert damage(disk.cut_the_power() / "t") == []


def test_without_fsync_a_power_cut_damages_the_table(disk: Disk | Image) -> None:
    """Several tables, as the kernel may just have written everything by itself."""
    found = []
    for number in range(5):
        publish(disk.root / f"t{number}", '{"fsync": false}')
        found.append(damage(disk.cut_the_power() / f"t{number}"))
        if found[-1]:
            return
    pytest.fail(f"nothing was damaged: {found}")
