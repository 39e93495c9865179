"""MERGE without Spark: on tables of ids by month, by id; rows that match come into the month of the source."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.log.actions import of_kind, parse_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.spark.base import ChangeJob, Engine
from airflow_provider_onelake.statements.merge import Merged
from airflow_provider_onelake.steps.merge import merge_buffer
from airflow_provider_onelake.steps.spark import SparkWork
from tests.support.changes import ChangeByHand, TableOf, hide, rows_of
from tests.support.shadows import written
from tests.support.tables import stage, writer_spec

Rows = Mapping[str | None, list[int]]


def source_of(log: DeltaLog, rows: Rows, writer: str = "w", **terms: Any) -> Buffer:
    """A writer's staged source of a MERGE by id, unless its mode says otherwise."""
    return stage(log, writer_spec(writer, **{"mode": Merge(keys="id"), **terms}), rows)  # type: ignore[arg-type]


def merged(log: DeltaLog, engine: Engine, source: Buffer, **how: Any) -> Merged:
    """One try of a writer whose source is staged."""
    return merge_buffer(TableOf(log), SparkWork(lambda: engine), source, **how)  # type: ignore[arg-type]


_LIMITED = re.compile(r"MATCHED AND target\.id < (\d+) THEN UPDATE SET \*")


class MergeByHand(ChangeByHand):
    """Does in a shadow what Spark's MERGE by id would.

    A MATCHED clause may have the condition that the id is less than a number.
    """

    def actions(self, shadow: Path, adds: list[Any], job: ChangeJob) -> list[Any]:
        wanted = _rows_at(Path(str(job.source_uri).removeprefix("file://")))
        limits = [int(found[1]) for clause in job.when if (found := _LIMITED.match(clause))]
        updates = "MATCHED THEN UPDATE SET *" in job.when or bool(limits)
        deletes, inserts = "MATCHED THEN DELETE" in job.when, "NOT MATCHED THEN INSERT *" in job.when
        metrics: dict[str, str] = {}
        actions: list[Any] = [{"commitInfo": {"timestamp": 1, "operation": "MERGE", "operationMetrics": metrics}}]
        new: dict[str | None, list[int]] = {}
        hidden: list[tuple[Any, list[int]]] = []
        matched: set[int] = set()
        for file in adds:
            found, gone = rows_of(file)
            hit = [at for at, row in enumerate(found) if row in wanted and at not in gone]
            if not hit:
                continue
            matched.update(found[at] for at in hit)
            hit = [at for at in hit if not limits or found[at] < limits[0]]
            if not hit or (not updates and not deletes):
                continue
            actions.append({"remove": {**file, "deletionTimestamp": 1, "dataChange": True}})
            for at in hit if not deletes else ():
                new.setdefault(wanted[found[at]], []).append(found[at])
            if self.vectors and len(hit) + len(gone) < len(found):
                hidden.append((file, sorted({*gone, *hit})))
            elif kept := [row for at, row in enumerate(found) if at not in gone and at not in hit]:
                new.setdefault(file["partitionValues"]["month"], []).extend(kept)
        others = wanted.keys() - matched if inserts else set()
        for row in sorted(others):
            new.setdefault(wanted[row], []).append(row)
        for month, rows in new.items():
            table = pa.table({"id": pa.array(rows, pa.int64())})
            add = written(shadow, {"month": month}, table)
            stats = {"minValues": {"id": min(rows)}, "maxValues": {"id": max(rows)}}
            actions.append({"add": {**add, "stats": json.dumps({**json.loads(add["stats"]), **stats})}})
        actions += [{"add": add} for add in hide(shadow, hidden)]
        metrics["numTargetRowsInserted"] = str(len(others))
        metrics["numTargetRowsUpdated"] = str(len(matched) if updates else 0)
        metrics["numTargetRowsDeleted"] = str(len(matched) if deletes else 0)
        return actions


def upserted(before: Mapping[int, str | None], source: Rows) -> dict[int, str | None]:
    """What an upsert makes of rows, as months by id."""
    return {**before, **{row: month for month, rows in source.items() for row in rows}}


def _rows_at(path: Path) -> dict[int, str | None]:
    """The rows of a buffer: the month of each id."""
    adds = of_kind(parse_actions((path / version_path(1)).read_bytes(), "buffer"), "add")
    return {
        row: add["partitionValues"]["month"]
        for add in adds
        for row in pq.ParquetFile(path / unquote(add["path"])).read().column("id").to_pylist()
    }
