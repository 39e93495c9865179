"""What the table is at an instant, by a naive replay of its raw entries, and what its format asks of any engine.

Shares no code with production: it judges it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import attrs

from tests.simulation.store import MemoryStore, parsed

ROW_TRACKING = "delta.rowTracking"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
# Files of a few rows have the same size, so that a compaction finds them alike.
_BLOCK = 512
# A column that every row has, and one that can be renamed, or dropped and added again.
KEY, EXTRA, PART = "id", "extra", "part"
# A row: its name, and the physical names of the columns in which it has a value.
Row = tuple[str, tuple[str, ...]]


@attrs.frozen
class TablePlan:
    """What the table is made with.

    :param mapping: how its columns are known: ``none``, ``name`` or ``id``.
    """

    mapping: str
    row_tracking: bool
    in_commit_timestamps: bool
    vectors: bool

    @property
    def properties(self) -> dict[str, str]:
        """The properties that ask for it."""
        return {
            **({"delta.columnMapping.mode": self.mapping} if self.mapping != "none" else {}),
            **({"delta.enableInCommitTimestamps": "true"} if self.in_commit_timestamps else {}),
            **({"delta.enableRowTracking": "true"} if self.row_tracking else {}),
            **({"delta.enableDeletionVectors": "true"} if self.vectors else {}),
        }

    @property
    def made_by_spark(self) -> bool:
        """Whether production leaves making such a table to Spark."""
        return self.row_tracking or self.mapping == "id"

    def version_0(self, part_type: str, now: int, name: str) -> list[dict[str, Any]]:
        """Return what Spark puts, where it makes the table.

        :param now: in milliseconds.
        """
        fields = fields_of(part_type)
        properties = self.properties
        if self.mapping != "none":
            for number, field in enumerate(fields, 1):
                field["metadata"] = _mapped(number)
            properties["delta.columnMapping.maxColumnId"] = str(len(fields))
        writer = ["appendOnly", "checkConstraints", "invariants"]
        writer += ["columnMapping"] * (self.mapping != "none") + ["inCommitTimestamp"] * self.in_commit_timestamps
        writer += ["domainMetadata", "rowTracking"] * self.row_tracking + ["deletionVectors"] * self.vectors
        reader = [name for name in writer if name in ("columnMapping", "deletionVectors")]
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": writer}
        metadata = {
            "id": name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [PART],
            "configuration": properties,
            "createdTime": now,
        }
        info: dict[str, Any] = {"operation": "CREATE TABLE", "timestamp": now, "isBlindAppend": True}
        if self.in_commit_timestamps:
            info["inCommitTimestamp"] = now
        return [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}]


def fields_of(part_type: str) -> list[dict[str, Any]]:
    """Return the columns of a new table."""
    kinds = {KEY: "string", EXTRA: "string", PART: part_type}
    return [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]


@attrs.define
class State:
    """The table at one version.

    :param live: its ``add`` actions by path.
    :param mark: the highest row id that was ever given out.
    :param stamp: the last in-commit timestamp.
    """

    version: int = -1
    live: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    metadata: dict[str, Any] = attrs.field(factory=dict)
    protocol: dict[str, Any] = attrs.field(factory=dict)
    txns: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    mark: int = -1
    stamp: int = -1

    @classmethod
    def of(cls, store: MemoryStore, until: int | None = None) -> State:
        """Replay the log, also what was cleaned up meanwhile."""
        state = cls()
        for version, entry in sorted(store.entries.items()):
            if until is None or version <= until:
                state.apply(version, parsed(entry.data))
        return state

    def apply(self, version: int, actions: Sequence[dict[str, Any]]) -> None:
        """Take in the next version."""
        self.version = version
        for action in actions:
            if "remove" in action:
                self.live.pop(action["remove"]["path"], None)
        for action in actions:
            if "add" in action:
                self.live[action["add"]["path"]] = action["add"]
            elif "txn" in action:
                self.txns[action["txn"]["appId"]] = action["txn"]
            elif "domainMetadata" in action:
                self.mark = json.loads(action["domainMetadata"]["configuration"])["rowIdHighWaterMark"]
            elif "commitInfo" in action:
                self.stamp = action["commitInfo"].get("inCommitTimestamp", self.stamp)
            self.metadata = action.get("metaData", self.metadata)
            self.protocol = action.get("protocol", self.protocol)

    @property
    def tracks_rows(self) -> bool:
        return "rowTracking" in self.protocol.get("writerFeatures", ())

    @property
    def stamped(self) -> bool:
        return stamped(self.metadata)

    def stamp_foreign(self, actions: list[dict[str, Any]], now: int) -> None:
        """Do to a commit of another engine what the table asks of every engine.

        :param actions: of the commit; the first is its ``commitInfo``, where the table has in-commit timestamps.
        :param now: that engine's clock, in milliseconds.
        """
        if self.stamped:
            actions[0]["commitInfo"]["inCommitTimestamp"] = max(now, self.stamp + 1)
        if self.tracks_rows:
            mark = self.mark
            for add in (action["add"] for action in actions if "add" in action):
                if "baseRowId" not in add:
                    add["baseRowId"], add["defaultRowCommitVersion"] = mark + 1, self.version + 1
                    mark += json.loads(add["stats"])["numRecords"]
            if mark > self.mark:
                actions.append({"domainMetadata": high_water_mark(mark)})


def high_water_mark(mark: int) -> dict[str, Any]:
    """Return the body of a ``domainMetadata`` action."""
    return {"domain": ROW_TRACKING, "configuration": json.dumps({"rowIdHighWaterMark": mark}), "removed": False}


def stamped(metadata: Mapping[str, Any]) -> bool:
    """Say whether a table wants in-commit timestamps."""
    return bool(metadata.get("configuration", {}).get("delta.enableInCommitTimestamps") == "true")


# -- columns -----------------------------------------------------------------------------------------------------------


def physical_names(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return what files call the columns, by the names that people use."""
    found = {}
    for field in json.loads(metadata["schemaString"])["fields"]:
        found[field["name"]] = field["metadata"].get("delta.columnMapping.physicalName", field["name"])
    return found


def data_columns(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the physical names of the columns that stand in files: all but the partition column."""
    split = metadata["partitionColumns"]
    return tuple(physical for name, physical in physical_names(metadata).items() if name not in split)


def partition_key(metadata: Mapping[str, Any]) -> str:
    """Return what ``partitionValues`` call the partition column."""
    return physical_names(metadata)[metadata["partitionColumns"][0]]


def partition_name(metadata: Mapping[str, Any]) -> str:
    """Return what people call the partition column."""
    return str(metadata["partitionColumns"][0])


def spelling_of(file: Mapping[str, Any]) -> str | None:
    """Return how an action spells its partition, whatever it calls the column."""
    (spelling,) = file["partitionValues"].values()
    return None if spelling is None else str(spelling)


def altered(metadata: dict[str, Any], kind: str, number: int) -> dict[str, Any] | None:
    """Return the metadata after an ALTER TABLE, or ``None`` where it changes nothing."""
    configuration = dict(metadata["configuration"])
    if kind == "add check":
        return {**metadata, "configuration": {**configuration, "delta.constraints.c": "id > 0"}}
    schema = json.loads(metadata["schemaString"])
    fields, split = schema["fields"], list(metadata["partitionColumns"])
    mapped = "delta.columnMapping.maxColumnId" in configuration
    extra = next((f for f in fields if f["name"].startswith(EXTRA)), None)
    if kind == "rename" and extra is not None:
        extra["name"] = f"{EXTRA}{number}"
    elif kind == "rename partition":
        field = next(f for f in fields if f["name"] == split[0])
        field["name"] = split[0] = f"{PART}{number}"
    elif kind == "drop column" and extra is not None:
        fields.remove(extra)
    elif kind in ("add column", "add again"):
        name = EXTRA if kind == "add again" else f"more{number}"
        if any(f["name"] == name for f in fields):
            return None
        fields.append({"name": name, "type": "string", "nullable": True, "metadata": _mapped(number) if mapped else {}})
        if mapped:
            configuration["delta.columnMapping.maxColumnId"] = str(number)
    else:
        return None
    return {
        **metadata,
        "schemaString": json.dumps(schema),
        "partitionColumns": split,
        "configuration": configuration,
    }


def _mapped(number: int) -> dict[str, Any]:
    return {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}


# -- rows --------------------------------------------------------------------------------------------------------------


def dump_rows(rows: Iterable[Row]) -> bytes:
    """Return a data file."""
    data = json.dumps([[name, list(columns)] for name, columns in rows]).encode()
    return data.ljust(-(-len(data) // _BLOCK) * _BLOCK)


def load_rows(data: bytes, hidden: frozenset[int] = frozenset()) -> list[Row]:
    """Return the rows of a data file.

    :param hidden: positions of rows that a deletion vector hides.
    """
    return [row for at, row in enumerate(_rows(data)) if at not in hidden]


@lru_cache(maxsize=4096)
def _rows(data: bytes) -> tuple[Row, ...]:
    return tuple((name, tuple(columns)) for name, columns in json.loads(data))


def seen(rows: Iterable[Row], metadata: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return rows as a reader sees them: each with the names of the columns in which it has a value."""
    names = {physical: name for name, physical in physical_names(metadata).items()}
    return [(row, *sorted(names[column] for column in columns if column in names)) for row, columns in rows]


def new_vectors(
    store: MemoryStore, number: int, hidden: Sequence[Iterable[int]], prefix: str = "", directory: str = ""
) -> list[dict[str, Any]]:
    """Put the deletion vectors of some files into one object, and return their descriptors.

    :param hidden: for each file, the positions of the rows that it hides.
    :param directory: of the table or shadow, in which the prefix is; empty for the table itself.
    """
    name = uuid.UUID(int=number << 64 | 7)
    path = f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin"
    data = {str(offset): sorted(positions) for offset, positions in enumerate(hidden, 1)}
    store.put(f"{directory}/{path}" if directory else path, json.dumps(data).encode())
    words = [int.from_bytes(name.bytes[at : at + 4]) for at in range(0, 16, 4)]
    text = "".join(_Z85[word // 85**power % 85] for word in words for power in range(4, -1, -1))
    return [
        {
            "storageType": "u",
            "pathOrInlineDv": prefix + text,
            "offset": int(offset),
            "sizeInBytes": len(positions),
            "cardinality": len(positions),
        }
        for offset, positions in data.items()
    ]


def vector_id(file: Mapping[str, Any]) -> str | None:
    """Return what tells one deletion vector of a file from another."""
    vector = file.get("deletionVector")
    return f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}" if vector else None


def hidden_rows(store: MemoryStore, file: Mapping[str, Any], base: str = "") -> frozenset[int]:
    """Return the positions that a file's deletion vector hides.

    :param file: an ``add``.
    :param base: what absolute addresses of the table's files begin with.
    """
    vector = file.get("deletionVector")
    if not vector:
        return frozenset()
    text = vector["pathOrInlineDv"]
    if vector["storageType"] == "p":
        path = unquote(text.removeprefix(f"{base}/"))
    else:
        prefix, encoded = text[:-20], text[-20:]
        data = b""
        for start in range(0, 20, 5):
            word = 0
            for character in encoded[start : start + 5]:
                word = word * 85 + _Z85.index(character)
            data += word.to_bytes(4)
        path = f"{prefix}/deletion_vector_{uuid.UUID(bytes=data)}.bin".lstrip("/")
    return frozenset(json.loads(store.objects[path].data)[str(vector["offset"])])
