"""An engine whose SQL is SQLite's, for statements as their authors write them: on tables of ``id`` and ``month``."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_onelake.clauses import DELETE, INSERT, UPDATE, Clause
from airflow_provider_onelake.log.actions import dump_actions, of_kind, parse_actions, version_path
from airflow_provider_onelake.spark.base import ChangeJob, OptimizeJob, SparkResult, StageJob, StageResult
from tests.support.changes import ChangeByHand, hide, rows_of
from tests.support.shadows import optimize_by_hand, written
from tests.support.tables import SCHEMA, of_attempt

Row = tuple[int, str | None]

_TABLE = re.compile(r"delta\.`([^`]+)`(?: VERSION AS OF (\d+))?")
_SETS = re.compile(r"target\.(\w+) = ([^,]+)")


class SqlByHand(ChangeByHand):
    """Does what Spark would with queries, OPTIMIZE, DELETE, UPDATE and MERGE.

    A clause of a MERGE has no condition of its own, and OPTIMIZE is of a table that is partitioned by month.
    """

    def analyze(self, job: StageJob) -> str:
        return SCHEMA

    def stage(self, job: StageJob) -> StageResult:
        query = str(job.source["query"])
        reads_target = f"`{job.table_uri.removeprefix('file://')}`" in query
        buffer, metadata = Path(str(job.buffer_uri).removeprefix("file://")), job.metadata or {}
        rows = ask(query, _files_of(job.target_uri) if job.target_uri else ())
        entry = buffer / version_path(1)
        if rows and not entry.exists():
            adds = files_of(buffer, rows, metadata["partitionColumns"])
            info = {"timestamp": 1, "operation": "WRITE", **of_attempt(job.attempt, reads_target=reads_target)}
            entry.write_bytes(dump_actions([{"commitInfo": info}, *({"add": add} for add in adds)]))
        return StageResult(engine="by hand", reads_target=reads_target, buffer_uri=job.buffer_uri)

    def optimize(self, job: OptimizeJob) -> SparkResult:
        optimize_by_hand(Path(job.shadow_uri.removeprefix("file://")))
        return SparkResult(engine="by hand")

    def actions(self, shadow: Path, adds: list[Any], job: ChangeJob) -> list[Any]:
        entry = parse_actions((shadow / version_path(0)).read_bytes(), "shadow")
        (metadata,) = of_kind(entry, "metaData")
        live = [(number, at, row) for number, file in enumerate(adds) for at, row in _live(file)]
        touched, inserted = _merge(live, job) if job.source_uri else (_change(live, job), [])
        metrics = {
            "numUpdatedRows": str(len(touched)),
            "numTargetRowsInserted": str(len(inserted)),
            "numTargetRowsUpdated": str(sum(row is not None for row in touched.values())),
            "numTargetRowsDeleted": str(sum(row is None for row in touched.values())),
        }
        actions: list[Any] = [{"commitInfo": {"timestamp": 1, "operation": "x", "operationMetrics": metrics}}]
        new, hidden = list(inserted), []
        for number, file in enumerate(adds):
            here = [(at, row) for of, at, row in live if of == number]
            hit = [at for at, _ in here if (number, at) in touched]
            if not hit:
                continue
            actions.append({"remove": {**file, "deletionTimestamp": 1, "dataChange": True}})
            new += [row for at in hit if (row := touched[number, at]) is not None]
            if self.vectors and len(hit) < len(here):
                hidden.append((file, sorted({*rows_of(file)[1], *hit})))
            else:
                new += [row for at, row in here if at not in hit]
        actions += [{"add": add} for add in files_of(shadow, new, metadata["partitionColumns"])]
        return actions + [{"add": add} for add in hide(shadow, hidden)]


def _files_of(uri: str) -> list[Any]:
    """The files of what a job may read under the name ``target``, as its log names them."""
    entry = Path(uri.removeprefix("file://")) / version_path(0)
    return of_kind(parse_actions(entry.read_bytes(), "what is read"), "add")


def ask(query: str, target: Iterable[Any] = ()) -> list[Row]:
    """The rows of a query, which may read tables by their paths, of their newest version or of another one.

    :param target: the ``add`` actions of the table that it knows as ``target``.
    """
    database = sqlite3.connect(":memory:")
    _fill(database, "target", "id INTEGER, month TEXT", [row for file in target for _, row in _live(file)])
    for number, (path, version) in enumerate(_TABLE.findall(query)):
        _fill(
            database, f"t{number}", "id INTEGER, month TEXT", table_rows(Path(path), int(version) if version else None)
        )
        query = _TABLE.sub(f"t{number}", query, count=1)
    return list(database.execute(query))


def alone(rows: Iterable[Row], *statements: str) -> list[Row]:
    """What statements make of the rows of the table ``t``, in order."""
    database = sqlite3.connect(":memory:")
    _fill(database, "t", "id INTEGER, month TEXT", rows)
    for statement in statements:
        database.execute(statement)
    return in_order(database.execute("SELECT id, month FROM t"))


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows in an order that says nothing."""
    return sorted(rows, key=lambda row: (row[0], row[1] or ""))


def table_rows(path: Path, version: int | None = None) -> list[Row]:
    """The rows of a version by deltalake, in order. Default: of the newest."""
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(str(path), version=version)
    if not table.file_uris():
        return []
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT id, month FROM t").read_all())
    return in_order(zip(found.column("id").to_pylist(), found.column("month").to_pylist(), strict=True))


def files_of(directory: Path, rows: Iterable[Row], partition_by: Sequence[str]) -> list[dict[str, Any]]:
    """Write rows, one file a partition, and return the files' ``add`` actions."""
    by_partition: dict[str | None, list[Row]] = {}
    for row in rows:
        by_partition.setdefault(row[1] if partition_by else None, []).append(row)
    adds = []
    for month, its in by_partition.items():
        columns: dict[str, Any] = {"id": pa.array([row for row, _ in its], pa.int64())}
        values: Mapping[str, str | None] = {"month": month} if partition_by else {}
        if not partition_by:
            columns["month"] = pa.array([one for _, one in its], pa.string())
        add = written(directory, values, pa.table(columns))
        # An unknown bound of a column is one that rules no file out.
        stats = {"minValues": {"id": min(its)[0]}, "maxValues": {"id": max(its)[0]}}
        adds.append({**add, "stats": json.dumps({**json.loads(add["stats"]), **stats})})
    return adds


def _live(file: Any) -> list[tuple[int, Row]]:
    table = pq.ParquetFile(unquote(file["path"].removeprefix("file:"))).read()
    ids, hidden = table.column("id").to_pylist(), rows_of(file)[1]
    inside = "month" in table.column_names
    months = table.column("month").to_pylist() if inside else [file["partitionValues"]["month"]] * len(ids)
    return [(at, row) for at, row in enumerate(zip(ids, months, strict=True)) if at not in hidden]


_Live = list[tuple[int, int, Row]]
_Touched = dict[tuple[int, int], Row | None]


def _change(live: _Live, job: ChangeJob) -> _Touched:
    """By file and position, what becomes of the rows that a DELETE or UPDATE matches."""
    sets = {"id": "id", "month": "month", **job.assignments}
    query = f"SELECT file, at, {sets['id']}, {sets['month']} FROM target WHERE {job.where}"
    found = _target(live).execute(query)
    return {(file, at): (row, month) if job.assignments else None for file, at, row, month in found}


def _merge(live: _Live, job: ChangeJob) -> tuple[_Touched, list[Row]]:
    """The same of a MERGE, and the rows that it inserts."""
    database, source = _target(live), Path(str(job.source_uri).removeprefix("file://"))
    entry = source / version_path(1)
    adds = of_kind(parse_actions(entry.read_bytes(), "source"), "add") if entry.exists() else []
    staged = [row for add in adds for _, row in _live({**add, "path": f"file:{source}/{add['path']}"})]
    _fill(database, "source", "id INTEGER, month TEXT", staged)
    touched: _Touched = {}
    inserted: list[Row] = []
    for clause in map(Clause.parse, job.when):
        assert clause.condition is None
        kept = "source" if clause.text.endswith("SET *") else "target"
        sets = {"id": f"{kept}.id", "month": f"{kept}.month", **dict(_SETS.findall(clause.text))}
        if clause.action == INSERT:
            no_match = f"NOT EXISTS (SELECT 1 FROM target WHERE {job.where})"
            inserted += list(database.execute(f"SELECT id, month FROM source WHERE {no_match}"))
            continue
        query = f"SELECT file, at, {sets['id']}, {sets['month']} FROM target JOIN source ON {job.where}"
        for file, at, row, month in database.execute(query):
            assert clause.action in (DELETE, UPDATE)
            touched[file, at] = (row, month) if clause.action == UPDATE else None
    return touched, inserted


def _target(live: _Live) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    rows = [(file, at, *row) for file, at, row in live]
    _fill(database, "target", "file INTEGER, at INTEGER, id INTEGER, month TEXT", rows)
    return database


def _fill(database: sqlite3.Connection, name: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
    database.execute(f"CREATE TABLE {name} ({columns})")
    marks = ", ".join("?" for _ in columns.split(","))
    database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
