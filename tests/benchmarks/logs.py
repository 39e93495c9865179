"""Logs of large tables, made without the tables' files: many versions, or many live files in a checkpoint.

A log's last checkpoint is some versions old, as in a table that is written to. The files it names do not exist, and
nothing that is measured reads them.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog

if TYPE_CHECKING:
    import pyarrow as pa

MONTHS = 120
SINCE_CHECKPOINT = 50
"""Versions after the checkpoint: half of those that lie between two."""

LIVE = 20
"""Live files of a table with a long log."""

_FIRST_YEAR = 2010
_FIRST_OWN_ROW = 10**9
_ROWS = 1000
_BATCH = 50_000


def month(number: int) -> str:
    """Return the month in which a file lies; the files are spread over all months evenly."""
    return f"{_FIRST_YEAR + number % MONTHS // 12}-{number % 12 + 1:02d}"


def long_log(path: Path, versions: int) -> DeltaLog:
    """Make a table whose log has the entries of all of its versions. Each replaces a file, so that few are live.

    :param path: the table's directory, which must not exist.
    """
    log = _table(path)
    for version in range(1, versions + 1):
        actions = [_info(version), {"add": _add(version)}]
        if version > LIVE:
            actions.append({"remove": _remove(version - LIVE)})
        _entry_file(path, version).write_bytes(dump_actions(actions))
    checkpoint = max(1, versions - SINCE_CHECKPOINT)
    _write_checkpoint(path, checkpoint, range(max(1, checkpoint - LIVE + 1), checkpoint + 1))
    return log


def wide_log(path: Path, files: int) -> DeltaLog:
    """Make a table of many live files, whose statistics are as long as those of real tables.

    :param path: the table's directory, which must not exist.
    """
    log = _table(path)
    for version in range(1, 1 + SINCE_CHECKPOINT):
        _entry_file(path, version).write_bytes(dump_actions([_info(version)]))
    _write_checkpoint(path, 1, range(files))
    return log


def _table(path: Path) -> DeltaLog:
    from tests.support.tables import make_table

    return make_table(path)


def _entry_file(path: Path, version: int) -> Path:
    return path / version_path(version)


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
    return json.dumps(
        {
            "numRecords": _ROWS,
            "minValues": {"id": first, **low},
            "maxValues": {"id": first + _ROWS - 1, **high},
            "nullCount": {"id": 0},
        }
    )


def _write_checkpoint(path: Path, version: int, live: Sequence[int]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    entry = [json.loads(line) for line in _entry_file(path, 0).read_text().splitlines()]
    protocol = next(action["protocol"] for action in entry if "protocol" in action)
    metadata = next(action["metaData"] for action in entry if "metaData" in action)
    schema = _schema()
    file = path / "_delta_log" / f"{version:020d}.checkpoint.parquet"
    with pq.ParquetWriter(file, schema, compression="snappy") as writer:
        writer.write_table(pa.Table.from_pylist([{"protocol": protocol}, {"metaData": metadata}], schema=schema))
        for begin in range(0, len(live), _BATCH):
            adds = [{"add": {**_add(number), "dataChange": False}} for number in live[begin : begin + _BATCH]]
            writer.write_table(pa.Table.from_pylist(adds, schema=schema))
    hint = {"version": version, "size": 2 + len(live)}
    (path / "_delta_log" / "_last_checkpoint").write_text(json.dumps(hint))


def _schema() -> pa.Schema:
    import pyarrow as pa

    texts = pa.map_(pa.string(), pa.string())
    features = pa.list_(pa.string())
    return pa.schema(
        {
            "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}.items()),
            "add": pa.struct(
                {
                    "path": pa.string(),
                    "partitionValues": texts,
                    "size": pa.int64(),
                    "modificationTime": pa.int64(),
                    "dataChange": pa.bool_(),
                    "stats": pa.string(),
                }.items()
            ),
            "metaData": pa.struct(
                {
                    "id": pa.string(),
                    "name": pa.string(),
                    "description": pa.string(),
                    "format": pa.struct({"provider": pa.string(), "options": texts}.items()),
                    "schemaString": pa.string(),
                    "partitionColumns": features,
                    "configuration": texts,
                    "createdTime": pa.int64(),
                }.items()
            ),
            "protocol": pa.struct(
                {
                    "minReaderVersion": pa.int32(),
                    "minWriterVersion": pa.int32(),
                    "readerFeatures": features,
                    "writerFeatures": features,
                }.items()
            ),
        }
    )
