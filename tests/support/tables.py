"""Tables and buffers made without Spark: real Parquet files, real log entries, a real local store."""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import LocalStore

from airflow_provider_onelake.buffers.buffer import (
    Buffer,
    OpenBuffer,
    complete_buffer,
    read_buffer,
    read_open_buffer,
)
from airflow_provider_onelake.buffers.claims import Turn
from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.buffers.layout import claim_path
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.exceptions import ObjectExistsError
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.modes import OverwritePartitions
from airflow_provider_onelake.storage.stores import ObjectStore, Store
from airflow_provider_onelake.writes.prepare import prepare as take_turn

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "month", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)
LOAD = Load("test", "taxi", "load", "2019-01-01T00:00:00+00:00")
OVERWRITE: dict[str, Any] = {"mode": OverwritePartitions()}
# The run before: its writers are no rivals of the other's, once they have published.
EARLIER_LOAD = Load("test", "taxi", "load", "2018-12-01T00:00:00+00:00")


def local_log(path: Path) -> DeltaLog:
    """A log on the local disk, without a table yet."""
    path.mkdir(parents=True, exist_ok=True)
    return DeltaLog(ObjectStore(LocalStore(prefix=path), str(path)), str(path))


def newest(log: DeltaLog) -> Snapshot:
    """The newest snapshot of a table that is there."""
    return log.snapshot()


def make_table(path: Path, schema: str = SCHEMA, partition_by: Any = ("month",), **properties: str) -> DeltaLog:
    """An empty table of ids, partitioned by month."""
    log = local_log(path)
    create_table(log, schema, partition_by, properties)
    return log


def three_versions(path: Path) -> DeltaLog:
    """Versions 1 to 3 append a row each to January and to another month, whose name has a space."""
    log = make_table(path)
    for start in (0, 10, 20):
        foreign_append(log, {"2019-01": [start], "2019 02": [start + 5]})
    return log


def table_of_another_engine(path: Path, **properties: str) -> DeltaLog:
    """An empty table as of :func:`make_table`, with properties in its first version that no table gets here."""
    make_table(path)
    entry = path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] = properties
    entry.write_bytes(dump_actions(actions))
    return local_log(path)


def writer_spec(writer: str = "w", load: Load = LOAD, attempt: str | None = None, **terms: Any) -> WriteSpec:
    """The terms of one attempt, of any writer."""
    return WriteSpec(
        identity=load.writer(writer),
        attempt=attempt or str(uuid.uuid4()),
        task=terms.pop("task", f"load.write[{writer}]"),
        fingerprint=terms.pop("fingerprint", "same"),
        **terms,
    )


def of_attempt(attempt: str, *, reads_target: bool = False) -> dict[str, str]:
    """What the Spark job of an attempt records in its commit."""
    return {"userMetadata": json.dumps({"onelake": {"attempt": attempt, "reads_target": reads_target}})}


def append_files(
    store: Store, directory: str, rows: Mapping[str | None, list[int]], **info: Any
) -> list[dict[str, Any]]:
    """What a Spark append would put at a directory: one Parquet file a month, and the actions of its commit."""
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": 1, "operation": "WRITE", "isBlindAppend": True, **info}}
    ]
    for month, ids in rows.items():
        buffer = io.BytesIO()
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), buffer)
        folder = f"month={month or '__HIVE_DEFAULT_PARTITION__'}"
        name = f"{folder}/part-00000-{uuid.uuid4()}.c000.snappy.parquet"
        store.put(f"{directory}/{name}" if directory else name, buffer.getvalue())
        stats = {
            "numRecords": len(ids),
            "minValues": {"id": min(ids)},
            "maxValues": {"id": max(ids)},
            "nullCount": {"id": 0},
        }
        actions.append(
            {
                "add": {
                    "path": quote(name, safe="/=-._"),
                    "partitionValues": {"month": month},
                    "size": len(buffer.getvalue()),
                    "modificationTime": 1,
                    "dataChange": True,
                    "stats": json.dumps(stats),
                }
            }
        )
    return actions


@attrs.frozen
class Stage(OpenBuffer):
    """An open buffer: Spark is to append the rows."""


def prepare(
    log: DeltaLog,
    spec: WriteSpec,
    evolve: Callable[[Snapshot], Snapshot] | None = None,
    *,
    footers: bool = False,
    scan: str | None = None,
) -> Skip | Buffer | Stage:
    """What a writer's task does before it asks Spark, in the turn of its generation, which the test chooses."""
    turn = Turn.of(log, spec.identity, spec.generation)
    claim(log, spec)
    decision = take_turn(log, spec, turn, evolve, footers=footers, scan=scan)
    return decision if isinstance(decision, Skip | Buffer) else Stage(**attrs.asdict(decision, recurse=False))


def claim(log: DeltaLog, spec: WriteSpec) -> None:
    """A claim of a writer's generation that does not say which start began it."""
    said = {"task": spec.task, "app_id": spec.identity.app_id}
    with suppress(ObjectExistsError):
        log.store.create(claim_path(spec.identity.directory, spec.generation), json.dumps(said).encode())


def complete(log: DeltaLog, path: str, reads_target: bool = False) -> Buffer:
    """What a writer's task does when Spark has appended to its buffer."""
    return complete_buffer(log, read_open_buffer(log.store, path), reads_target)


def stage(log: DeltaLog, spec: WriteSpec, rows: Mapping[str | None, list[int]]) -> Buffer:
    """One writer's work: prepare, append what Spark would, complete."""
    return finish(log, begun(log, spec), spec, rows)


def begun(log: DeltaLog, spec: WriteSpec) -> Stage:
    """A writer that has begun, and has to stage its rows."""
    task = prepare(log, spec)
    assert isinstance(task, Stage), task
    return task


def cleaned_up(log: DeltaLog, *versions: int) -> DeltaLog:
    """What another process sees of a table, some entries of whose log were deleted behind a checkpoint.

    :param versions: of these entries; default: all up to the newest.
    """
    from deltalake import DeltaTable

    table = DeltaTable(log.table)
    table.create_checkpoint()
    for version in versions or range(table.version() + 1):
        Path(log.table, version_path(version)).unlink(missing_ok=True)
    return local_log(Path(log.table))


def finish(log: DeltaLog, task: OpenBuffer, spec: WriteSpec, rows: Mapping[str | None, list[int]]) -> Buffer:
    """The Spark half of a writer's work, and its completion."""
    if rows:
        actions = append_files(log.store, task.path, rows, **of_attempt(spec.attempt))
        log.store.create(f"{task.path}/{version_path(1)}", dump_actions(actions))
    return complete(log, task.path)


def tag_files(directory: Path, **tags: str) -> None:
    """Write tags into every ``add`` of a log on this machine, as an engine would that knows of them."""
    for entry in (directory / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["tags"] = {**(action["add"].get("tags") or {}), **tags}
        entry.write_bytes(dump_actions(actions))


def change_metadata(log: DeltaLog, **changed: Any) -> None:
    """Change a table's definition as another engine would."""
    other = local_log(Path(log.table))
    metadata = {**newest(other).metadata, **changed}
    foreign_commit(other, [{"commitInfo": {"timestamp": 3, "operation": "CHANGE"}}, {"metaData": metadata}])


def foreign_commit(log: DeltaLog, actions: list[dict[str, Any]]) -> int:
    """Another engine's commit at the next version; returns it."""
    snapshot = log.snapshot()
    log.store.create(version_path(snapshot.version + 1), dump_actions(actions))
    return snapshot.version + 1


def foreign_append(log: DeltaLog, rows: Mapping[str | None, list[int]], **info: Any) -> int:
    """Another engine's append of rows; returns its version."""
    return foreign_commit(log, append_files(log.store, "", rows, **info))


def live(log: DeltaLog) -> list[dict[str, Any]]:
    """The files of a table's newest version."""
    return list(log.live_files(lambda add: True, newest(log).version))  # type: ignore[arg-type]


def commit_of(log: DeltaLog, version: int) -> Commit:
    """The commit of a version that is there."""
    commit = log.commit(version)
    assert commit is not None
    return commit


def last(log: DeltaLog) -> Commit:
    """The commit of a table's newest version."""
    return commit_of(log, newest(log).version)


def table_ids(log: DeltaLog) -> list[int]:
    """The table's ids as deltalake reads them, sorted."""
    return ids(Path(log.table))


def ids(path: Path, version: int | None = None) -> list[int]:
    """The table's ids as deltalake reads them, sorted."""
    from deltalake import DeltaTable

    return sorted(DeltaTable(str(path), version=version).to_pyarrow_table().column("id").to_pylist())


def stage_reading(log: DeltaLog, writer: str = "w", month: str = "2019-01", **terms: Any) -> Buffer:
    """One writer's work, whose rows were computed from the table."""
    spec = writer_spec(writer, **terms)
    task = prepare(log, spec)
    assert isinstance(task, Stage)
    actions = append_files(log.store, task.path, {month: [10]}, **of_attempt(spec.attempt, reads_target=True))
    log.store.create(f"{task.path}/{version_path(1)}", dump_actions(actions))
    return complete(log, task.path)


def finished_at(log: DeltaLog, buffer: Buffer, instant: datetime) -> Buffer:
    """A buffer as if it had become complete at another instant: disks have coarse clocks."""
    entry = Path(log.table, buffer.path, version_path(1))
    os.utime(entry, (instant.timestamp(), instant.timestamp()))
    return reread(log, buffer)


def landed_at(log: DeltaLog, version: int, instant: datetime) -> int:
    """A commit as if it had come into the store at another instant; returns its version."""
    os.utime(Path(log.table, version_path(version)), (instant.timestamp(), instant.timestamp()))
    return version


def reread(log: DeltaLog, buffer: Buffer) -> Buffer:
    """A buffer as another process sees it."""
    return read_buffer(log.store, buffer.path)
