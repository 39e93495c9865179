"""Data files of any shape, put into a table as another engine would."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.table import Table
from tests.support.tables import foreign_commit


def opened(log: DeltaLog) -> Table:
    """The table of a log on the local disk, as the hook opens it."""
    return Table(TableAddress.parse(log.table), None, 1.0)


def schema_of(*fields: tuple[str, Any] | Mapping[str, Any]) -> str:
    """A schema as a log has it: fields as a name and a type, or as their whole JSON."""
    full = [
        dict(field)
        if isinstance(field, Mapping)
        else {"name": field[0], "type": field[1], "nullable": True, "metadata": {}}
        for field in fields
    ]
    return json.dumps({"type": "struct", "fields": full})


def put_file(
    log: DeltaLog, rows: pa.Table, partition: Mapping[str, str | None] | None = None, **more: Any
) -> dict[str, Any]:
    """Commit a file of these rows; returns its ``add``.

    :param more: other keys of the ``add``, such as ``stats`` as an object; ``row_group_size`` is of the file, and
        ``int96`` says that its times have that type.
    """
    buffer = io.BytesIO()
    size, int96 = more.pop("row_group_size", None), more.pop("int96", False)
    pq.write_table(rows, buffer, row_group_size=size, use_deprecated_int96_timestamps=int96)
    path = f"part-{uuid.uuid4()}.parquet"
    log.store.put(path, buffer.getvalue())
    stats = more.pop("stats", {"numRecords": rows.num_rows})
    add = {
        "path": path,
        "partitionValues": dict(partition or {}),
        "size": len(buffer.getvalue()),
        "modificationTime": 1,
        "dataChange": True,
        "stats": stats if isinstance(stats, str) else json.dumps(stats),
        **more,
    }
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}, {"add": add}])
    return add


def rows_of(table: Table, columns: Sequence[str] | None = None, where: str | None = None, **at: Any) -> list[Any]:
    """The rows that a read gives, as tuples, or the values of a single column."""
    found = table.read(columns, where, **at).read_all().to_pylist(maps_as_pydicts="strict")
    if columns is not None and len(columns) == 1:
        return [row[columns[0]] for row in found]
    return [tuple(row.values()) for row in found]
