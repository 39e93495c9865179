"""Checkpoints of the v2 kind, made without Spark out of the classic ones that deltalake writes.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#v2-spec
"""

from __future__ import annotations

import io
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

_SIDECAR = pa.struct({"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64()})


def write_v2_checkpoint(table: Path, kind: str, sidecars: int = 2, version: int | None = None) -> list[Path]:
    """Write a checkpoint of the newest or another version; returns its sidecars.

    :param kind: of the top-level file: ``json`` or ``parquet``, both named by a UUID, or ``classic``.
    :param sidecars: how many; 0 keeps the files' actions in the top-level file.
    """
    newest = DeltaTable(str(table), version=version)
    newest.create_checkpoint()
    log = table / "_delta_log"
    classic = log / f"{newest.version():020d}.checkpoint.parquet"
    content = pq.read_table(classic)
    hint = log / "_last_checkpoint"
    classic.unlink()
    hint.unlink()
    is_file = pc.or_(*(pc.is_valid(content.column(kind)) for kind in ("add", "remove")))
    files = content.filter(is_file).select(["add", "remove"])
    rest = content if not sidecars else content.filter(pc.invert(is_file))
    written, refs = [], []
    (log / "_sidecars").mkdir(exist_ok=True)
    for number in range(sidecars):
        rows = list(range(number, files.num_rows, sidecars))
        path = log / "_sidecars" / f"{uuid.uuid4()}.parquet"
        pq.write_table(files.take(pa.array(rows, pa.int64())), path)
        written.append(path)
        refs.append({"path": path.name, "sizeInBytes": path.stat().st_size, "modificationTime": 1})
    name = {"classic": classic.name}.get(kind, f"{newest.version():020d}.checkpoint.{uuid.uuid4()}.{kind}")
    if kind == "json":
        lines = [
            {action: body}
            for row in rest.to_pylist(maps_as_pydicts="strict")
            for action, body in row.items()
            if body is not None
        ]
        lines.insert(0, {"checkpointMetadata": {"version": newest.version()}})
        lines += [{"sidecar": ref} for ref in refs]
        (log / name).write_text("".join(json.dumps(_without_nulls(line)) + "\n" for line in lines))
    else:
        blank: dict[str, Any] = {field.name: pa.array([None] * len(refs), field.type) for field in rest.schema}
        beside = pa.table({**blank, "sidecar": pa.array(refs, _SIDECAR)})
        top = pa.concat_tables([rest, beside], promote_options="default")
        buffer = io.BytesIO()
        pq.write_table(top, buffer)
        (log / name).write_bytes(buffer.getvalue())
    return written


def _without_nulls(value: Any, key: str = "") -> Any:
    if isinstance(value, dict) and key != "partitionValues":
        return {k: _without_nulls(v, k) for k, v in value.items() if v is not None}
    return value
