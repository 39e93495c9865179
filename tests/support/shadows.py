"""Compaction without Spark: what OPTIMIZE would leave in a shadow, made with Parquet files that hold the rows."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_onelake.buffers.buffer import put_checksum
from airflow_provider_onelake.buffers.shadow import Shadow
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.log.actions import dump_actions, of_kind, parse_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.compact import CompactionResult, publish_rewrite
from airflow_provider_onelake.maintenance.compaction import CompactionPlan, CompactionTerms, plan, selection
from airflow_provider_onelake.maintenance.in_flight import writers_in_flight
from airflow_provider_onelake.maintenance.shadow import read_rewrite, shadow_of_plan
from airflow_provider_onelake.spark.base import Engine, OptimizeJob, SparkResult
from airflow_provider_onelake.storage.stores import Store
from tests.support.vectors import positions


def planned(log: DeltaLog, where: str | None = None, **terms: Any) -> CompactionPlan:
    """What compaction would do now; two small files are enough for it."""
    snapshot = log.snapshot()
    chosen, split = selection(snapshot, where), snapshot.partitioning
    files = log.live_files(lambda add: chosen(split.partition(add["partitionValues"])), snapshot.version)
    return plan(
        files, snapshot, CompactionTerms(**{"min_files": 2, **terms}), writers_in_flight(log, snapshot).why_needed
    )


def shadow_of(log: DeltaLog, **terms: Any) -> Shadow:
    """A shadow that Spark has not rewritten yet."""
    snapshot = log.snapshot()
    found = planned(log, **terms)
    return shadow_of_plan(log, snapshot, found, f"file://{log.table}", "upkeep", str(uuid.uuid4()))


def rewritten(log: DeltaLog, **terms: Any) -> Shadow:
    """A shadow that Spark has rewritten."""
    shadow = shadow_of(log, **terms)
    optimize_by_hand(Path(log.table, shadow.path))
    return shadow


def publish(
    log: DeltaLog,
    shadow: Shadow,
    abandoned_after: timedelta | None = None,
    zorder_by: Sequence[str] = (),
    **means: Any,
) -> CompactionResult:
    """Read a rewrite and publish it."""
    rewrite = read_rewrite(log.store, shadow)
    assert rewrite is not None
    return publish_rewrite(
        Transactions(log, **means), shadow, rewrite, zorder_by=zorder_by, abandoned_after=abandoned_after
    )


def compact(log: DeltaLog, **terms: Any) -> CompactionResult:
    """A whole compaction."""
    return publish(log, rewritten(log, **terms), zorder_by=terms.get("zorder_by", ()))


def optimize_by_hand(
    shadow: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda actions: actions
) -> None:
    """Merge the files of each partition into one; ``change`` spoils the version before it is written."""
    entry = shadow / version_path(0)
    adds = of_kind(parse_actions(entry.read_bytes(), "shadow"), "add")
    actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": 1, "operation": "OPTIMIZE"}}]
    by_partition: dict[str, list[dict[str, Any]]] = {}
    for add in adds:
        by_partition.setdefault(json.dumps(add["partitionValues"]), []).append(add)
    for spelled, files in by_partition.items():
        values: Mapping[str, str | None] = json.loads(spelled)
        rows = [row for file in files for row in _rows(file)]
        for file in files:
            gone = {k: file[k] for k in ("path", "partitionValues", "size", "deletionVector") if k in file}
            actions.append({"remove": {**gone, "deletionTimestamp": 1, "dataChange": False}})
        actions.append(
            {"add": written(shadow, values, pa.table({"id": pa.array(rows, pa.int64())}), data_change=False)}
        )
    (shadow / version_path(1)).write_bytes(dump_actions(change(actions)))


def written(
    shadow: Path, values: Mapping[str, str | None], rows: pa.Table, *, data_change: bool = True
) -> dict[str, Any]:
    """Write a file of a partition into a shadow, and return its ``add``."""
    folder = "/".join(f"{name}={value or '__HIVE_DEFAULT_PARTITION__'}" for name, value in values.items())
    path = shadow / folder / f"part-00000-{uuid.uuid4()}.c000.snappy.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    return {
        "path": quote(str(path.relative_to(shadow)), safe="/=-._"),
        "partitionValues": dict(values),
        "size": path.stat().st_size,
        "modificationTime": 1,
        "dataChange": data_change,
        "stats": json.dumps({"numRecords": rows.num_rows}),
    }


def _rows(file: Mapping[str, Any]) -> list[int]:
    found = pq.ParquetFile(unquote(file["path"].removeprefix("file:"))).read().column("id").to_pylist()
    hidden = positions(file["deletionVector"]) if file.get("deletionVector") else set()
    return [row for at, row in enumerate(found) if at not in hidden]


class OptimizeByHand(Engine):
    """An engine that compacts without Spark, and remembers what it was asked."""

    def __init__(self, before: Callable[[OptimizeJob], None] = lambda job: None) -> None:
        self.before = before
        self.jobs: list[OptimizeJob] = []
        self.stopped = 0

    def optimize(self, job: OptimizeJob) -> SparkResult:
        self.jobs.append(job)
        self.before(job)
        shadow = Path(job.shadow_uri.removeprefix("file://"))
        if not (shadow / version_path(1)).exists():
            optimize_by_hand(shadow)
        return SparkResult(engine="by hand")

    def stop(self) -> None:
        self.stopped += 1


def compact_with(engine: Engine, log: DeltaLog, **terms: Any) -> CompactionResult | None:
    """A whole compaction by an engine; ``None`` where there was nothing to do."""
    found, shadow = planned(log, **terms), shadow_of(log, **terms)
    engine.optimize(
        OptimizeJob(
            table_uri=f"file://{log.table}",
            attempt=shadow.attempt,
            shadow_uri=f"file://{log.table}/{shadow.path}",
            target_file_size=found.target_file_size,
            zorder_by=found.zorder_by,
            label="compaction",
        )
    )
    rewrite = read_rewrite(log.store, shadow)
    transactions = Transactions(log)
    return publish_rewrite(transactions, shadow, rewrite, zorder_by=found.zorder_by) if rewrite else None


def write_checksum(store: Store, path: str) -> None:
    """Put the checksum beside version 0 of a private table that Spark itself has made."""
    put_checksum(store, path, parse_actions(store.get(f"{path}/{version_path(0)}"), path))
