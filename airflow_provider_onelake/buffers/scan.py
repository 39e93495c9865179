"""A shared scan: one Spark job writes the rows of several writers of a load, and each writer adopts its own.

staged/scan-<digest>/_delta_log/0              the table's twin, with the writer as one more partition column
staged/scan-<digest>/_delta_log/1              exists if and only if the scan is complete
staged/scan-<digest>/onelake_writer=<writer>/  the files of a writer, and later its buffer's log
staged/<writer>/_scan-<digest>.json            says which work of the writer has rows in the scan

A scan claims nothing, and what it leaves in the store offers nothing: the task that scanned names the scan to the
writers of its own run (operators/_shared_scan.py), as notes of an earlier scan lie beside those of the newest. A writer
that adopts its files opens its buffer where they lie, by a version 0 of its own, which is put create-only: so the files
come into one buffer only. From there on it is a buffer like any other (protocol: one buffer a share).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import attrs

from airflow_provider_onelake.buffers.buffer import (
    USER_METADATA,
    Buffer,
    append_nothing,
    complete_buffer,
    lifetime,
    made_on,
    odd_for_an_append,
    put_checksum,
    read_open_buffer,
    read_rows,
    record_in,
    twin,
)
from airflow_provider_onelake.buffers.layout import (
    SCANNED_FOR,
    WriterDirectory,
    json_at,
    pointer_path,
    scan_path,
    share_name,
    share_path,
)
from airflow_provider_onelake.buffers.markers import read_marker, set_aside
from airflow_provider_onelake.buffers.spec import WriteSpec, equal_terms
from airflow_provider_onelake.buffers.statistics import INDEXED_COLUMNS, indexed_columns
from airflow_provider_onelake.exceptions import (
    BufferIncompleteError,
    BufferInvalidError,
    BufferLostError,
    CorruptLogError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from airflow_provider_onelake.log.actions import (
    Action,
    Add,
    CommitInfo,
    Metadata,
    Protocol,
    StagedRecord,
    dump_actions,
    of_kind,
    total_rows,
    version_path,
)
from airflow_provider_onelake.log.commits import FORMAT, SCAN, Commit
from airflow_provider_onelake.log.snapshot import NO_VERSION
from airflow_provider_onelake.storage.clock import milliseconds
from airflow_provider_onelake.texts import counted

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.identity import WriterIdentity
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)

ADOPTABLE = timedelta(days=1)
"""How long after a scan its writers may adopt its files, if half of the time in which they may be published is not
shorter. A writer that starts later makes a scan of its own."""

TOUCHED = frozenset({"clustering", "icebergCompatV2", "rowTracking", "typeWidening", "typeWidening-preview"})
"""Of the features that a table may have, those for which one more partition column may change the files."""

# With these, files lie elsewhere than in the directories of their partitions, or repeat the partition columns.
_OTHER_FILES = ("delta.randomizefileprefixes", "delta.randomprefixlength", "delta.enableicebergcompat")


# What the buffer of a share says of the table, as its scan does.
_MADE_ON = ("readVersion", "tableId", "readTime", "makes")

_NOT_CHECKED: Mapping[str, Mapping[str, Any]] = {}


class _NotAdoptedError(Exception):
    """Why a writer does not adopt what a scan wrote for it."""


@attrs.frozen(kw_only=True)
class ScanShare:
    """What a shared scan writes for one writer.

    :param identity: of the writer.
    :param where: the filter on the source that tells its rows.
    :param fingerprint: of the writer's work.
    """

    identity: WriterIdentity
    where: str
    fingerprint: str


@attrs.frozen(kw_only=True)
class Scan:
    """A shared scan that was opened.

    :param path: relative to the table.
    :param read_version: the version of the table that the writes are formed on.
    :param table_id: the table's id at that version.
    :param made_on: the same, as a buffer says it.
    :param protocol: of its twin.
    :param metadata: of its twin, which has one more column.
    :param generations: for which each writer may adopt, by its directory.
    """

    path: str
    read_version: int
    table_id: str
    made_on: StagedRecord = attrs.field(repr=False)
    protocol: Protocol = attrs.field(repr=False)
    metadata: Metadata = attrs.field(repr=False)
    generations: Mapping[str, int] = attrs.field(factory=dict)


def why_not_shared(snapshot: Snapshot) -> str | None:
    """Say why the files of a table must not be written with one more partition column; ``None`` where they may.

    :param snapshot: of the table.
    """
    if snapshot.column_mapping != "none":
        return "the table has column mapping"
    if odd := sorted(snapshot.writer_features & TOUCHED):
        return f"the table has {', '.join(odd)}, for which one more partition column has not been proven safe"
    if properties := [name for name in snapshot.configuration if name.lower().startswith(_OTHER_FILES)]:
        return f"the table sets {', '.join(properties)}"
    names = [field["name"] for field in json.loads(snapshot.metadata["schemaString"])["fields"]]
    if SCANNED_FOR in map(str.lower, names):
        return f"the table has a column {SCANNED_FOR}"
    return None


def open_scan(log: DeltaLog, name: str, task: str, shares: Iterable[ScanShare], snapshot: Snapshot) -> Scan:
    """Make the twin of a table for a shared scan, or return the one that an earlier try of the same scan made.

    :param name: of the start that scans. The scan's directory follows from it, the work and the table, so that
        a retry finds it.
    :param task: what people call the task.
    :param snapshot: that the writes are formed on. :func:`why_not_shared` has nothing against it.
    """
    generations = {
        share.identity.directory: max(
            WriterDirectory.read(log.store, share.identity.directory).generation,
            snapshot.txns.get(share.identity.app_id, 0),
        )
        + 1
        for share in shares
    }
    work = [[share.identity.app_id, share.where, share.fingerprint] for share in shares]
    definition = _definition(snapshot)
    path = scan_path(json.dumps([name, work, sorted(generations.items()), definition], sort_keys=True))
    now = milliseconds(log.clock.now())
    record = made_on(log.store, snapshot, True)
    record[SCAN] = {"task": task, "writers": sorted(generations)}
    first = twin(snapshot, "", f"Shared scan of {task}", record, now, _properties(snapshot))
    actions: list[Action] = [
        first[0],
        {"protocol": definition[0]},
        {"metaData": {**definition[1], "id": path.rpartition("-")[2]}},
    ]
    with suppress(ObjectExistsError):
        log.store.create(f"{path}/{version_path(0)}", dump_actions(actions))
        put_checksum(log.store, path, actions)
    return attrs.evolve(_read_open(log, path), generations=generations)


def completed_by(log: DeltaLog, scan: Scan) -> str | None:
    """Return the attempt whose Spark job has finished a scan; ``None`` where none has, empty where it is not known."""
    try:
        info = _parsed(log, scan.path, 1).info
        said = json.loads(info.get("userMetadata") or "{}")
        return str(said[USER_METADATA]["attempt"])
    except ObjectNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, BufferInvalidError):
        return ""


def complete(log: DeltaLog, scan: Scan) -> None:
    """Complete a scan without rows, because an append without rows makes no version 1.

    :param scan: of which Spark's own result says that all rows are in this scan's directory. Do not call this for any
        other: the writers of a scan that nobody has written would publish no rows, and succeed.
    """
    append_nothing(log, scan.path)


def offer(
    log: DeltaLog, scan: Scan, shares: Iterable[ScanShare], checked: Mapping[str, Mapping[str, Any]] = _NOT_CHECKED
) -> dict[str, tuple[int, int | None]]:
    """Note for each writer of a complete scan which work of the writer has rows there. Calling again is safe.

    :param checked: what the writers' checks say, as in ``spark.base.StageResult.checks``. Default: nothing, so that
        each writer has its checks evaluated itself.
    :returns: files and rows of each writer, by its key.
    :raises BufferIncompleteError: there is no version 1.
    :raises BufferInvalidError: version 1 is no ordinary append of these writers' rows. Nothing is noted.
    """
    adds = _read_complete(log, scan)[1]
    by_writer = {share.identity.directory: _adds_of(scan, share.identity.directory, adds) for share in shares}
    if sum(map(len, by_writer.values())) != len(adds):
        raise BufferInvalidError(f"The shared scan {scan.path} has rows of other writers. Each scans for itself.")
    told = {}
    for share in shares:
        directory = share.identity.directory
        pointer = {
            "fingerprint": share.fingerprint,
            "generation": scan.generations[directory],
            "app_id": share.identity.app_id,
            "files": len(by_writer[directory]),
            **({"checks": told_of} if (told_of := checked.get(share_name(directory), checked.get(""))) else {}),
        }
        log.store.put(pointer_path(directory, scan.path), json.dumps(pointer).encode())
        told[share.identity.key] = len(by_writer[directory]), total_rows(by_writer[directory])
    return told


def adopt(log: DeltaLog, spec: WriteSpec, snapshot: Snapshot, path: str) -> Buffer | None:
    """Return the writer's buffer at the files that a shared scan wrote for it; ``None`` where it has to stage its rows.

    The writer adopts the rows of its own work only, for the generation that followed the scan, while the table's
    definition is the same: a writer that is cleared stages its rows anew (protocol: one buffer a share). The write is
    as old as the scan: it is formed on the version on which the scan began, and finished when the scan ended.

    :param spec: of this attempt, whose claim is made.
    :param snapshot: the newest of the table.
    :param path: of the scan that the scan task of the writer's own run names.
    """
    try:
        return _adopt(log, path, spec, snapshot)
    except (_NotAdoptedError, BufferIncompleteError, BufferInvalidError, BufferLostError, ObjectNotFoundError) as why:
        logger.info("%s: writer %s does not use the shared scan %s: %s", log.table, spec.identity.key, path, why)
        return None


def _adopt(log: DeltaLog, path: str, spec: WriteSpec, snapshot: Snapshot) -> Buffer:
    store = log.store
    directory = spec.identity.directory
    told = json_at(store, pointer_path(directory, path))
    if not spec.fingerprint or told.get("fingerprint") != spec.fingerprint:
        raise _NotAdoptedError("its source, code or terms are others now")
    if told.get("generation") != spec.generation:
        raise _NotAdoptedError("the writer was cleared since")
    scan = _read_open(log, path)
    other = scan.read_version != NO_VERSION and scan.table_id != snapshot.table_id
    if other or (scan.protocol, {**scan.metadata, "id": ""}) != _definition(snapshot):
        raise _NotAdoptedError("the table has changed since")
    ended = store.head(f"{path}/{version_path(1)}").modified
    age = log.clock.now() - ended
    if age >= min(ADOPTABLE, lifetime(snapshot.retention_days) / 2):
        raise _NotAdoptedError(f"it is {age} old")
    info, adds = _read_complete(log, scan)
    mine = _adds_of(scan, directory, adds)
    if len(mine) != told.get("files"):
        raise _NotAdoptedError("its log is another one now")
    share = share_path(path, directory)
    if read_marker(store, share) is not None:
        raise _NotAdoptedError("its buffer was closed")
    now = milliseconds(log.clock.now())
    # The rows are those of the moment at which the scan read the source, so the write is as old as the scan.
    record: StagedRecord = {**scan.made_on, "spec": spec.to_json(), "scanned": ended.isoformat()}
    if (indexed := indexed_columns(snapshot.metadata)) is not None:
        record["indexedColumns"] = indexed
    description = f"Buffer of writer {spec.identity.key}"
    actions = twin(snapshot, spec.attempt, description, record, now, _properties(snapshot))
    with suppress(ObjectExistsError):
        store.create(f"{share}/{version_path(0)}", dump_actions(actions))
    opened = read_open_buffer(store, share)
    if not equal_terms(opened.spec, spec):
        if opened.spec.generation == spec.generation:
            # Close it: the try that opened it may still complete it, and reconcile takes the first that is complete.
            set_aside(store, share, "its writer was staged again, as its terms are others now")
        raise _NotAdoptedError(f"generation {opened.spec.generation} of the writer has adopted it, on its own terms")
    if mine:
        said = {USER_METADATA: {"attempt": opened.spec.attempt, "reads_target": False}}
        info = cast("CommitInfo", {**info, "timestamp": now, "userMetadata": json.dumps(said)})
        if "inCommitTimestamp" in info:
            info["inCommitTimestamp"] = now + 1
        entry: list[Action] = [{"commitInfo": info}]
        entry += [{"add": add} for add in mine]
        # Of an earlier try that died between the two versions, complete the buffer in its name.
        with suppress(ObjectExistsError):
            store.create(f"{share}/{version_path(1)}", dump_actions(entry))
        buffer = read_rows(store, opened)
    else:
        buffer = complete_buffer(log, opened)
    files = counted(len(mine), "file")
    logger.info("%s: writer %s adopts %s of the shared scan %s", log.table, spec.identity.key, files, path)
    return buffer


def checks_told(store: Store, buffer: Buffer) -> Mapping[str, Any] | None:
    """Return what a shared scan says of the checks of a writer that has adopted its rows; ``None`` if it says nothing.

    :param buffer: of the writer, at the files of a scan or elsewhere.
    """
    if buffer.scanned is None:
        return None
    try:
        told = json_at(store, pointer_path(buffer.spec.identity.directory, buffer.path.rpartition("/")[0]))
    except ObjectNotFoundError:
        return None
    # The fingerprint has the checks in it.
    return told.get("checks") if told.get("fingerprint") == buffer.spec.fingerprint else None


def _properties(snapshot: Snapshot) -> dict[str, str]:
    return {} if indexed_columns(snapshot.metadata) is None else {INDEXED_COLUMNS: "0"}


def _definition(snapshot: Snapshot) -> tuple[Protocol, Metadata]:
    """Return protocol and metadata of a scan's twin, without its id: the writer is the first partition column."""
    actions = twin(snapshot, "", "", {}, 0, _properties(snapshot))
    metadata = of_kind(actions, "metaData")[0]
    schema = json.loads(metadata["schemaString"])
    # It comes last in the schema, because Delta counts the columns with statistics from the first.
    schema["fields"].append({"name": SCANNED_FOR, "type": "string", "nullable": True, "metadata": {}})
    columns = [SCANNED_FOR, *metadata["partitionColumns"]]
    extended: Metadata = {**metadata, "schemaString": json.dumps(schema), "partitionColumns": columns}
    extended.pop("createdTime", None)  # Nobody knows it before there is a table.
    return of_kind(actions, "protocol")[0], extended


def _parsed(log: DeltaLog, path: str, version: int) -> Commit:
    try:
        return Commit.parse(version, log.store.get(f"{path}/{version_path(version)}"), f"the shared scan {path}")
    except CorruptLogError as error:
        raise BufferInvalidError(str(error)) from error


def _read_open(log: DeltaLog, path: str) -> Scan:
    actions = _parsed(log, path, 0).actions
    record = record_in(actions)
    if record.get("format") != FORMAT or SCAN not in record:
        raise BufferInvalidError(f"{path} is no shared scan of this format.")
    try:
        return Scan(
            path=path,
            read_version=int(record["readVersion"]),
            table_id=str(record["tableId"]),
            made_on=cast("StagedRecord", {name: value for name, value in record.items() if name in _MADE_ON}),
            protocol=of_kind(actions, "protocol")[0],
            metadata=of_kind(actions, "metaData")[0],
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise BufferInvalidError(f"Version 0 of the shared scan {path} is damaged: {error}.") from error


def _read_complete(log: DeltaLog, scan: Scan) -> tuple[Mapping[str, Any], list[Add]]:
    try:
        commit = _parsed(log, scan.path, 1)
    except ObjectNotFoundError as error:
        raise BufferIncompleteError(
            f"The shared scan {scan.path} is not complete: Spark has not written it."
        ) from error
    if odd_for_an_append(commit):
        raise BufferInvalidError(f"Version 1 of the shared scan {scan.path} is no ordinary append.")
    return commit.info, list(commit.adds)


def _adds_of(scan: Scan, directory: str, adds: Iterable[Add]) -> list[Add]:
    """Return a writer's ``add`` actions, as they stand in a buffer at its files.

    :raises BufferInvalidError: a file lies elsewhere than in the directory of its writer.
    """
    name = share_name(directory)
    prefix = f"{SCANNED_FOR}={name}/"
    found: list[Add] = []
    for add in adds:
        is_mine = add["partitionValues"].get(SCANNED_FOR) == name
        if is_mine != add["path"].startswith(prefix):
            raise BufferInvalidError(f"{add['path']} of the shared scan {scan.path} lies in another directory.")
        if is_mine:
            values = {column: value for column, value in add["partitionValues"].items() if column != SCANNED_FOR}
            found.append({**add, "path": add["path"].removeprefix(prefix), "partitionValues": values})
    return found
