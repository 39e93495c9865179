"""A second opinion on the tables of a test: deltalake sees the live files that our replay sees (protocol: verbatim remove)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.log.cross_check import told_apart_by_deltalake
from tests.support.tables import local_log


def compared(directory: Path) -> dict[Path, str | None]:
    """What :func:`told_apart_by_deltalake` says of each table below a directory that both can read."""
    found = {}
    for log in directory.rglob("_delta_log"):
        table = log.parent
        if "staged" in table.relative_to(directory).parts:
            continue
        try:
            version = local_log(table).snapshot().version
            said = told_apart_by_deltalake(local_log(table), version, str(table), {})
        except OneLakeError:
            # Tests damage tables, too.
            continue
        if said is None or "cannot read" not in said:
            found[table] = said
    return found


@pytest.fixture(autouse=True)
def deltalake_agrees(tmp_path: Path) -> Iterator[None]:
    """Whatever a test leaves, nobody reads other files there than we do."""
    yield
    apart = [said for said in compared(tmp_path).values() if said is not None]
    assert not apart, apart
