"""The actions of a log entry, kept as they are.

An action is a mapping with one key, its kind (``add``, ``remove``, ``metaData``, …). Unknown kinds and unknown fields
pass through untouched, because a ``remove`` must copy all that the ``add`` said, even fields that we do not know
(protocol: verbatim remove).

The types here say what holds once ``wellformed.py`` has checked an entry: it refuses an action that lacks a
key which is required here. All other keys may be missing, whatever the format says: another engine wrote the entry.

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, overload
from urllib.parse import unquote

from airflow_provider_onelake.exceptions import CorruptLogError, InvalidWriteError
from airflow_provider_onelake.storage.clock import whole_number

FileKey = tuple[str, str | None]

LOG_DIRECTORY = "_delta_log"

# An absolute path begins with a slash or a scheme. Hadoop writes file:/ with one slash.
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")

encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""Writes JSON as a log has it: in one line, without blanks."""


class DeletionVector(TypedDict):
    """Which rows of a file are deleted."""

    storageType: str
    pathOrInlineDv: str
    offset: NotRequired[int]
    sizeInBytes: NotRequired[int]
    cardinality: NotRequired[int]


class DataFile(TypedDict):
    """What an ``add`` and a ``remove`` both say of a file."""

    path: str
    dataChange: NotRequired[bool]
    stats: NotRequired[str]
    tags: NotRequired[dict[str, str]]
    deletionVector: NotRequired[DeletionVector]
    baseRowId: NotRequired[int]
    defaultRowCommitVersion: NotRequired[int]


class Add(DataFile):
    """A file that is in the table from this version on."""

    partitionValues: dict[str, str | None]
    size: int
    modificationTime: NotRequired[int]
    clusteringProvider: NotRequired[str]


class Remove(DataFile):
    """A file that is no longer in the table."""

    partitionValues: NotRequired[dict[str, str | None]]
    size: NotRequired[int]
    deletionTimestamp: NotRequired[int]
    extendedFileMetadata: NotRequired[bool]


class Txn(TypedDict):
    """How far an application has come; ours are the generations of writers."""

    appId: str
    version: int
    lastUpdated: NotRequired[int]


class Protocol(TypedDict):
    """What an engine must know to read or write the table."""

    minReaderVersion: int
    minWriterVersion: int
    readerFeatures: NotRequired[list[str]]
    writerFeatures: NotRequired[list[str]]


class Metadata(TypedDict):
    """The table's definition."""

    id: str
    name: NotRequired[str]
    description: NotRequired[str]
    schemaString: str
    partitionColumns: NotRequired[list[str]]
    configuration: NotRequired[dict[str, str]]
    format: NotRequired[dict[str, object]]
    createdTime: NotRequired[int]


class DomainMetadata(TypedDict):
    """What a feature of Delta or a user keeps with the table."""

    domain: str
    configuration: NotRequired[str]
    removed: NotRequired[bool]


class StagedRecord(TypedDict, total=False):
    """What ``commitInfo`` of ours records of a commit, a buffer or a shadow."""

    format: int
    load: str
    mode: str
    readVersion: int
    tableId: str
    readTime: str
    scanned: str
    indexedColumns: int
    makes: list[Any]
    spec: dict[str, object]
    writers: list[dict[str, object]]
    replaces: list[str]
    settlements: list[Mapping[str, Any]]
    compaction: Mapping[str, object]
    change: Mapping[str, object]
    alter: Mapping[str, object]
    scan: Mapping[str, object]
    reads: Mapping[str, object]
    retired: list[str]


class CommitInfo(TypedDict, total=False):
    """What a commit says of itself. Engines may write anything here, so nothing of it is checked beforehand."""

    inCommitTimestamp: int
    timestamp: int
    operation: str
    operationParameters: Mapping[str, str]
    readVersion: int
    isolationLevel: str
    isBlindAppend: bool
    operationMetrics: Mapping[str, str]
    engineInfo: str
    txnId: str
    userMetadata: str
    tags: dict[str, str]
    staged: StagedRecord


class Sidecar(TypedDict):
    """A file of a v2 checkpoint that holds its ``add`` and ``remove`` actions."""

    path: str
    sizeInBytes: NotRequired[int]


class Action(TypedDict, total=False):
    """One line of a log entry; it has one of these keys, or an unknown one."""

    add: Add
    remove: Remove
    cdc: DataFile
    txn: Txn
    protocol: Protocol
    metaData: Metadata
    domainMetadata: DomainMetadata
    commitInfo: CommitInfo
    sidecar: Sidecar


def version_path(version: int) -> str:
    """Return the path of a version's log entry, relative to the table."""
    return f"{LOG_DIRECTORY}/{version:020d}.json"


def parse_actions(data: bytes, where: str) -> list[Action]:
    """Return the actions of a log entry, in order.

    :param data: the entry: one JSON object a line.
    :param where: what messages call the entry.
    :raises CorruptLogError: a line is no JSON object.
    """
    try:
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise CorruptLogError(f"{where} is not JSON: {error}. Nothing was changed.") from error
    if not all(isinstance(action, dict) for action in actions):
        raise CorruptLogError(f"{where} holds a line that is no JSON object. Nothing was changed.")
    return actions


def dump_actions(actions: Iterable[Action]) -> bytes:
    """Return actions as the content of a log entry, in the given order.

    :raises InvalidWriteError: a text of them is no Unicode.
    """
    try:
        return ("\n".join(map(encode, actions)) + "\n").encode()
    except UnicodeEncodeError as error:
        strange = error.object[error.start : error.end]
        raise InvalidWriteError(
            f"A text of the commit has {strange!r}, half of a pair of UTF-16, which no log can hold. Nothing was "
            "written: look for it in the names, the message and the properties that are given."
        ) from error


@overload
def of_kind(actions: Iterable[Action], kind: Literal["add"]) -> list[Add]: ...
@overload
def of_kind(actions: Iterable[Action], kind: Literal["remove"]) -> list[Remove]: ...
@overload
def of_kind(actions: Iterable[Action], kind: Literal["cdc"]) -> list[DataFile]: ...
@overload
def of_kind(actions: Iterable[Action], kind: Literal["txn"]) -> list[Txn]: ...
@overload
def of_kind(actions: Iterable[Action], kind: Literal["protocol"]) -> list[Protocol]: ...
@overload
def of_kind(actions: Iterable[Action], kind: Literal["metaData"]) -> list[Metadata]: ...
@overload
def of_kind(actions: Iterable[Action], kind: Literal["domainMetadata"]) -> list[DomainMetadata]: ...
@overload
def of_kind(actions: Iterable[Action], kind: Literal["commitInfo"]) -> list[CommitInfo]: ...
def of_kind(actions: Iterable[Action], kind: str) -> Sequence[object]:
    """Return the bodies of the actions of one kind, in order.

    :param kind: ``add``, ``remove``, ``txn``, ….
    """
    return [body for action in actions if isinstance(body := action.get(kind), dict)]


def object_path(file: DataFile) -> str:
    """Return the path in the store of the file that an ``add`` or ``remove`` names.

    :param file: the action's body; its ``path`` is URL-encoded, the store's is not.
    """
    return unquote(file["path"])


def is_absolute(path: str) -> bool:
    """Say whether a path is absolute. Shallow clones name files so; such a file lies outside the table's directory.

    :param path: the path of an ``add``, a ``remove`` or a deletion vector.
    """
    return _ABSOLUTE.match(path) is not None


def deletion_vector_id(file: DataFile) -> str | None:
    """Return the unique id of a file's deletion vector, or ``None``.

    :param file: an ``add`` or ``remove``.
    """
    vector = file.get("deletionVector")
    if not vector:
        return None
    offset = vector.get("offset")
    identity = f"{vector['storageType']}{vector['pathOrInlineDv']}"
    return identity if offset is None else f"{identity}@{offset}"


def file_key(file: DataFile) -> FileKey:
    """Return what identifies a logical file: its path, as it is spelled, and its deletion vector.

    Spark and deltalake also compare spellings: a ``remove`` that spells the path of a live file differently, such as
    ``%C3%A9`` for ``é``, leaves the file live for every engine.

    :param file: an ``add`` or ``remove``.
    """
    return file["path"], deletion_vector_id(file)


def row_count(file: DataFile) -> int | None:
    """Return how many rows of a file are live, or ``None`` where its statistics do not say.

    Statistics that cannot be parsed count as missing and are no error, because other engines read such a table.

    :param file: an ``add`` or ``remove``.
    """
    stats = file.get("stats")
    try:
        said = json.loads(stats) if isinstance(stats, str) else stats
    except (ValueError, RecursionError):
        return None
    records = whole_number(said.get("numRecords")) if isinstance(said, Mapping) else None
    vector = file.get("deletionVector")
    gone = whole_number(vector.get("cardinality")) if vector else 0
    return None if records is None or gone is None else records - gone


def total_rows(files: Iterable[DataFile]) -> int | None:
    """Return the live rows of several files, or ``None`` if the statistics of one file do not say.

    :param files: ``add`` or ``remove`` bodies.
    """
    return total(row_count(file) for file in files)


def total(counts: Iterable[int | None]) -> int | None:
    """Return the sum of some counts, or ``None`` if one of them is not known."""
    each = list(counts)
    return None if None in each else sum(count or 0 for count in each)
