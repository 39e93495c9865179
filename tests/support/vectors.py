"""Deletion vectors made without Spark, inline in the log, as the format describes them.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-format
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyroaring import BitMap64

from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.vectors import deletion_vector_path

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAGIC = 1681511377


def deletion_vector(positions: list[int]) -> dict[str, Any]:
    """The descriptor that marks rows of a file, by their position in it, as deleted."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(positions) - 1, 16)
    bitmap += b"".join(struct.pack("<H", position) for position in sorted(positions))
    data = struct.pack("<Iqi", _MAGIC, 1, 0) + bitmap
    return {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data), "cardinality": len(positions)}


def positions(vector: dict[str, Any], table: str = "") -> set[int]:
    """The positions that a descriptor marks.

    :param table: the directory of the table; a shadow names files by absolute paths.
    """
    text, size = vector["pathOrInlineDv"], vector["sizeInBytes"]
    if vector["storageType"] in ("p", "u"):
        is_absolute = vector["storageType"] == "p"
        path = unquote(text.removeprefix("file:")) if is_absolute else f"{table}/{deletion_vector_path(text)}"
        at = vector["offset"] + 4
        data = Path(path).read_bytes()[at : at + size]
    else:
        words = [text[start : start + 5] for start in range(0, len(text), 5)]
        data = b"".join(struct.pack(">I", sum(_Z85.index(c) * 85 ** (4 - at) for at, c in enumerate(w))) for w in words)
    return set(BitMap64.deserialize(data[4:size]))


def delete_rows(log: DeltaLog, add: dict[str, Any], positions: list[int]) -> dict[str, Any]:
    """Commit a DELETE as Spark does it with deletion vectors; returns the file's new ``add``."""
    from tests.support.tables import foreign_commit

    gone = {key: add[key] for key in ("path", "partitionValues", "size", "deletionVector") if key in add}
    left = {**add, "deletionVector": deletion_vector(positions)}
    left["stats"] = json.dumps({**json.loads(add["stats"]), "tightBounds": False})
    info = {"timestamp": 2, "operation": "DELETE", "isBlindAppend": False}
    remove = {**gone, "deletionTimestamp": 2, "dataChange": True, "extendedFileMetadata": True}
    foreign_commit(log, [{"commitInfo": info}, {"remove": remove}, {"add": left}])
    return left


def hide_more(log: DeltaLog, add: dict[str, Any], position: int) -> None:
    """Commit a DELETE of one more row of a file, by its position, unless the file has not so many or it is hidden."""
    hidden = positions(add["deletionVector"], log.table) if add.get("deletionVector") else set()
    if position < json.loads(add["stats"])["numRecords"] and position not in hidden:
        delete_rows(log, add, sorted({*hidden, position}))


def ids_without_deleted(path: Path) -> list[int]:
    """The table's ids as deltalake's query engine reads them, which knows deletion vectors; sorted."""
    from deltalake import DeltaTable, QueryBuilder

    found = QueryBuilder().register("t", DeltaTable(str(path))).execute("SELECT id FROM t").read_all()
    return sorted(pa.table(found).column("id").to_pylist())


def z85(data: bytes) -> str:
    """Bytes as a log spells them; what is missing to four bytes is filled up."""
    text = []
    for start in range(0, len(data), 4):
        word = int.from_bytes(data[start : start + 4].ljust(4, b"\0"), "big")
        text.append("".join(_Z85[word // 85**power % 85] for power in range(4, -1, -1)))
    return "".join(text)
