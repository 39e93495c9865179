"""Logs of large tables, made without the tables' files: many versions, or many live files in a checkpoint.

A log's last checkpoint is some versions old, as in a table that is written to. The files it names do not exist, and
nothing that is measured reads them.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow_provider_onelake.log.actions import dump_actions, version_path
from tests.support.tables import make_table

MONTHS = 120
SINCE_CHECKPOINT = 50
"""Versions after the checkpoint: half of those that lie between two."""

LIVE = 20
"""Live files of a table with a long log."""

_FIRST_YEAR = 2010
_FIRST_OWN_ROW = 10**9
_ROWS = 1000


def month(number: int) -> str:
    """Return the month in which a file lies; the files are spread over all months evenly."""
    return f"{_FIRST_YEAR + number % MONTHS // 12}-{number % 12 + 1:02d}"


def long_log(path: Path, versions: int) -> None:
    """Make a table whose log has the entries of all of its versions. Each replaces a file, so that few are live.

    :param path: the table's directory, which must not exist.
    """
    make_table(path)
    for version in range(1, versions + 1):
        removed = [{"remove": _remove(version - LIVE)}] if version > LIVE else []
        _write(path, version, [_info(version), {"add": _add(version)}, *removed])
    _write_checkpoint(path, max(1, versions - SINCE_CHECKPOINT))


def wide_log(path: Path, files: int) -> None:
    """Make a table of many live files, whose statistics are as long as those of real tables.

    :param path: the table's directory, which must not exist.
    """
    make_table(path)
    _write(path, 1, [_info(1), *({"add": _add(number)} for number in range(files))])
    for version in range(2, 1 + SINCE_CHECKPOINT):
        _write(path, version, [_info(version)])
    _write_checkpoint(path, 1)


def _write(path: Path, version: int, actions: Iterable[dict[str, Any]]) -> None:
    (path / version_path(version)).write_bytes(dump_actions(list(actions)))


def _write_checkpoint(path: Path, version: int) -> None:
    """As the package does: deltalake makes it."""
    from deltalake import DeltaTable

    DeltaTable(str(path), version=version).create_checkpoint()


def _info(version: int) -> dict[str, Any]:
    return {"commitInfo": {"timestamp": version, "operation": "WRITE", "operationParameters": {}}}


def _path(number: int) -> str:
    return f"month={month(number)}/part-{number:05d}-{uuid.UUID(bytes=_noise(number))}.c000.snappy.parquet"


def _remove(number: int) -> dict[str, Any]:
    return {"path": _path(number), "deletionTimestamp": 1, "dataChange": True}


def _add(number: int) -> dict[str, Any]:
    return {
        "path": _path(number),
        "partitionValues": {"month": month(number)},
        "size": 1_000_000,
        "modificationTime": 1,
        "dataChange": True,
        "stats": _statistics(number),
    }


def _noise(number: int) -> bytes:
    """Return 16 bytes that look like chance, and are always the same for a file."""
    return hashlib.blake2b(str(number).encode(), digest_size=16).digest()


def _statistics(number: int) -> str:
    first = _FIRST_OWN_ROW + number * _ROWS
    noise = _noise(number)
    # A table of one column would have short ones, and without noise they would compress to nothing.
    low = {f"measure_{column}": int.from_bytes(noise[column : column + 4]) for column in range(6)}
    high = {name: value + value // 7 for name, value in low.items()}
    least, most = {"id": first, **low}, {"id": first + _ROWS - 1, **high}
    return json.dumps({"numRecords": _ROWS, "minValues": least, "maxValues": most, "nullCount": {"id": 0}})
