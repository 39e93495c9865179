"""A classic checkpoint, as any engine writes one, made of raw actions."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TEXTS = pa.map_(pa.string(), pa.string())
_SCHEMA = pa.schema(
    {
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _TEXTS,
                "baseRowId": pa.int64(),
                "defaultRowCommitVersion": pa.int64(),
                "deletionVector": pa.struct(
                    {
                        "storageType": pa.string(),
                        "pathOrInlineDv": pa.string(),
                        "offset": pa.int32(),
                        "sizeInBytes": pa.int32(),
                        "cardinality": pa.int64(),
                    }
                ),
            }
        ),
        "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
    }
)


def checkpoint(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Return a checkpoint's only part."""
    rows = [{kind: _maps(kind, body) for kind, body in action.items()} for action in actions]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), out)
    return out.getvalue()


def _maps(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an action with its maps as pyarrow takes them: lists of pairs."""
    names = {"add": ("partitionValues", "tags"), "metaData": ("configuration",)}.get(kind, ())
    return {key: list(value.items()) if key in names else value for key, value in body.items() if key != "format"} | (
        {"format": {"provider": "parquet", "options": []}} if kind == "metaData" else {}
    )
