"""DELETE and UPDATE of rows: with a real engine, or by hand on tables of ids by month."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_onelake.buffers.claims import Start
from airflow_provider_onelake.buffers.layout import CHANGES
from airflow_provider_onelake.choices import OnStatementRerun
from airflow_provider_onelake.commit.loop import Backoff, Transactions
from airflow_provider_onelake.log.actions import dump_actions, of_kind, parse_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.spark.base import ChangeJob, Engine, SparkResult
from airflow_provider_onelake.statements.asker import Asker, TaskIdentity
from airflow_provider_onelake.statements.statement import Statement
from airflow_provider_onelake.steps.change import RowChange
from airflow_provider_onelake.steps.spark import SparkWork
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.task_run import TaskRun
from tests.support.shadows import written
from tests.support.tables import foreign_append, make_table
from tests.support.vectors import _MAGIC, positions, z85


class TableOf:
    """A table by the log of a test, whose store may fail or be held."""

    def __init__(self, log: DeltaLog) -> None:
        self.log = log
        self.name = log.table
        self.address = TableAddress.parse(log.table)

    def committer(self) -> Transactions:
        return Transactions(self.log, backoff=Backoff(first=0.0, longest=0.0, silent=0.0))

    def __str__(self) -> str:
        return self.log.table


def three_files(path: Path) -> DeltaLog:
    """Versions 1 and 2 append two files to January and one to another month, whose name has a space."""
    log = make_table(path)
    foreign_append(log, {"2019-01": [1, 2, 3]})
    foreign_append(log, {"2019-01": [4, 5, 6], "2019 02": [7, 8, 9]})
    return log


_STARTS = ("first", "second", "third")


def start_of(task: str, name: str) -> Start:
    """A start of a task; ``first``, ``second`` and ``third`` are one after another."""
    first_try = 1 + _STARTS.index(name) if name in _STARTS else 1
    return Start(id=name, task=task, run_id="run", chain=task, first_try=first_try)


def asker(name: str, task: str | None = None, start: str = "first", *, retried: bool = False) -> Asker:
    """A start of a task that runs a statement. Default: the first one of a task of its own."""
    task_start = start_of(task or name, start)
    return Asker(
        identity=TaskIdentity(f"test/dag/{task or name}/run"),
        generation=task_start.first_try,
        retried=retried,
        statement=f"test/{name}",
        start=start,
        by="me",
    )


def change_of(
    log: DeltaLog,
    engine: Engine,
    operation: str = "DELETE",
    where: str = "id % 3 = 0",
    *,
    task: str = "change",
    task_start: str = "first",
    on_rerun: OnStatementRerun = OnStatementRerun.AGAIN,
    max_rounds: int = 5,
    **terms: Any,
) -> RowChange:
    """One try of a task's statement."""
    statement = Statement(operation=operation, where=where, **terms)
    start = start_of(task, task_start)
    return RowChange(
        table=TableOf(log),  # type: ignore[arg-type]
        spark=SparkWork(lambda: engine),
        statement=statement,
        on_rerun=on_rerun,
        max_rounds=max_rounds,
        run=TaskRun("dag", task, "run", "run", str(uuid.uuid4()), task, -1, start.first_try),
        task_start=start,
        namespace="test",
    )


def as_if_killed(log: DeltaLog) -> None:
    """Take back the markers of rounds, which no process writes that is killed."""
    for marker in Path(log.table).glob(f"{CHANGES}*/*/_closed.json"):
        marker.unlink()


def by_three(row: int) -> bool:
    """Whether an id is divisible by 3."""
    return row % 3 == 0


@attrs.define
class ChangeByHand(Engine):
    """Does to the rows of a shadow what Spark would: ids that are hit are deleted, or raised by 1,000.

    :param vectors: whether deletion vectors hide rows, or files are rewritten.
    :param feed: whether rows for the change feed are written where files are rewritten, as Spark's DELETE does.
    :param after: called when a round is done: lets others in, or raises.
    :param hits: says which ids are hit, whatever the statement's predicate says.
    """

    vectors: bool = False
    feed: bool = False
    after: Callable[[ChangeJob], object] = lambda job: None
    jobs: list[ChangeJob] = attrs.field(factory=list)
    files: list[int] = attrs.field(factory=list)
    hits: Callable[[int], bool] = by_three

    def change(self, job: ChangeJob) -> SparkResult:
        self.jobs.append(job)
        shadow = Path(job.shadow_uri.removeprefix("file://"))
        adds = of_kind(parse_actions((shadow / version_path(0)).read_bytes(), "shadow"), "add")
        self.files.append(len(adds))
        actions = self.actions(shadow, adds, job)
        if len(actions) > 1:
            (shadow / version_path(1)).write_bytes(dump_actions(actions))
        self.after(job)
        return SparkResult(engine="by hand")

    def actions(self, shadow: Path, adds: list[Any], job: ChangeJob) -> list[Any]:
        update = bool(job.assignments)
        metrics: dict[str, str] = {}
        info = {"timestamp": 1, "operation": "x", "operationMetrics": metrics}
        actions: list[Any] = [{"commitInfo": info}]
        by_partition: dict[str, list[Any]] = {}
        for add in adds:
            by_partition.setdefault(json.dumps(add["partitionValues"]), []).append(add)
        updated = 0
        hidden: list[tuple[Any, list[int]]] = []
        for files in by_partition.values():
            new: list[int] = []
            told: list[int] = []
            for file in files:
                found, gone = rows_of(file)
                hit = [at for at, row in enumerate(found) if self.hits(row) and at not in gone]
                if not hit:
                    continue
                updated += len(hit)
                told += [found[at] for at in hit]
                actions.append({"remove": {**file, "deletionTimestamp": 1, "dataChange": True}})
                new += [found[at] + 1000 for at in hit] if update else []
                if not self.vectors:
                    new += [row for at, row in enumerate(found) if at not in gone and at not in hit]
                elif len(hit) + len(gone) < len(found):
                    hidden.append((file, sorted({*gone, *hit})))
            if new:
                rows = pa.table({"id": pa.array(new, pa.int64())})
                actions.append({"add": written(shadow, files[0]["partitionValues"], rows)})
            if told and self.feed and not self.vectors:
                rows = pa.table({"id": pa.array(told, pa.int64()), "_change_type": ["delete"] * len(told)})
                add = written(shadow, files[0]["partitionValues"], rows)
                cdc = {key: add[key] for key in ("path", "partitionValues", "size")}
                actions.append({"cdc": {**cdc, "dataChange": False}})
        actions += [{"add": add} for add in hide(shadow, hidden)]
        metrics["numUpdatedRows"] = str(updated)
        return actions


def mapped(rows: list[int], operation: str = "DELETE", hits: Callable[[int], bool] = by_three) -> list[int]:
    """What the statement of :class:`ChangeByHand` makes of rows."""
    kept = [row for row in rows if not hits(row)]
    return sorted(kept + [row + 1000 for row in rows if hits(row)] * (operation == "UPDATE"))


def rows_of(file: Any) -> tuple[list[int], set[int]]:
    """The ids in a file of a shadow, and the positions of those that a vector hides."""
    found = pq.ParquetFile(unquote(file["path"].removeprefix("file:"))).read().column("id").to_pylist()
    return found, positions(file["deletionVector"]) if file.get("deletionVector") else set()


def hide(shadow: Path, hidden: list[tuple[Any, list[int]]]) -> list[Any]:
    """Write all vectors into one file, as Spark does; return the files' new ``add`` actions."""
    name, content, adds = uuid.uuid4(), b"\x01", []
    for file, at in hidden:
        bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(at) - 1, 16) + b"".join(struct.pack("<H", one) for one in at)
        data = struct.pack("<Iqi", _MAGIC, 1, 0) + bitmap
        vector = {
            "storageType": "u",
            "pathOrInlineDv": "ab" + z85(name.bytes),
            "offset": len(content),
            "sizeInBytes": len(data),
            "cardinality": len(at),
        }
        content += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        stats = json.dumps({**json.loads(file["stats"]), "tightBounds": False})
        adds.append({**file, "deletionVector": vector, "stats": stats})
    if adds:
        path = shadow / "ab" / f"deletion_vector_{name}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return adds
