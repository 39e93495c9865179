"""An engine without Spark: it appends real Parquet files, and remembers what it was asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import attrs
import pytest
from obstore.store import LocalStore

from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.spark.base import AuditJob, AuditResult, Engine, StageJob, StageResult
from airflow_provider_onelake.storage.stores import ObjectStore, Store
from tests.support.tables import SCHEMA, append_files, of_attempt

Rows = Mapping[str | None, list[int]]

# The checks that the engine without Spark understands.
_CHECK = re.compile(r"(?P<what>id|count\(\*\)|max\(id\)) (?P<sign>[<>]) (?P<number>\d+)")
_E = TypeVar("_E")


@attrs.define
class FakeEngine(Engine):
    """Appends the rows that belong to a job's filter; for a shared scan, those of each filter.

    :param rows: by filter, and then by month.
    :param before: called with each job before its rows are appended: raises, or lets another in.
    :param reads_target: what it says of every job, as a real one does in the append itself.
    :param tells: whether a staging job tells what its checks say, as one does whose result is not lost.
    :param checked: the jobs that evaluated checks over rows which were there.
    :param opens: the store of a buffer, by its URI. Default: its directory. Elsewhere, rows are appended and no more.
    """

    rows: Mapping[str | None, Rows]
    before: Callable[[StageJob], None] = lambda job: None
    analyzed: list[StageJob] = attrs.field(factory=list)
    staged: list[StageJob] = attrs.field(factory=list)
    stopped: int = 0
    reads_target: bool = False
    schema: str = SCHEMA
    tells: bool = True
    checked: list[AuditJob] = attrs.field(factory=list)
    opens: Callable[[str], Store] = attrs.field(default=lambda uri: _local(uri))

    def analyze(self, job: StageJob) -> str:
        self.analyzed.append(job)
        return self.schema

    def stage(self, job: StageJob) -> StageResult:
        self.staged.append(job)
        self.before(job)
        assert job.buffer_uri is not None
        said: dict[str, Any] = {"reads_target": self.reads_target, "engine": "fake"}
        if job.routes and self.reads_target:
            return StageResult(**said)
        path = Path(job.buffer_uri.removeprefix("file://"))
        store = self.opens(job.buffer_uri)
        if (path / version_path(1)).exists():
            actions: list[dict[str, Any]] = []
        else:
            actions = list(self._routed(store, job)) if job.routes else self._appended(store, job)
        if actions:
            store.create(version_path(1), dump_actions(actions))
        if job.checks and self.tells:
            said["checks"] = _judged(path, job.checks, "onelake_writer" if job.routes else None)
        return StageResult(buffer_uri=job.buffer_uri, **said)

    def audit(self, job: AuditJob) -> AuditResult:
        self.checked.append(job)
        path = Path(job.buffer_uri.removeprefix("file://"))
        return AuditResult(engine="fake", checks=_judged(path, job.checks, job.by))

    def _appended(self, store: Store, job: StageJob) -> list[dict[str, Any]]:
        rows = self.rows[job.where]
        return append_files(store, "", rows, **of_attempt(job.attempt, reads_target=self.reads_target)) if rows else []

    def _routed(self, store: Store, job: StageJob) -> Iterator[dict[str, Any]]:
        """Append the rows of each writer of a shared scan, and yield what its version 1 holds."""
        found = {name: self.rows[where] for name, where in job.routes.items()}
        for number, (name, rows) in enumerate((name, rows) for name, rows in found.items() if rows):
            directory = f"onelake_writer={name}"
            info, *adds = append_files(store, directory, rows, **of_attempt(job.attempt))
            yield from () if number else (info,)
            for action in adds:
                add = action["add"]
                values = {"onelake_writer": name, **add["partitionValues"]}
                yield {"add": {**add, "path": f"{directory}/{add['path']}", "partitionValues": values}}

    def stop(self) -> None:
        self.stopped += 1


def _local(uri: str) -> Store:
    path = Path(uri.removeprefix("file://"))
    return ObjectStore(LocalStore(prefix=path), str(path))


def _judged(path: Path, checks: Mapping[str, str], by: str | None) -> dict[str, dict[str, Any]]:
    """Evaluate checks over the files that version 1 of a buffer names."""
    import pyarrow.parquet as pq

    rows: dict[str, list[int]] = {"": []}
    entry = path / version_path(1)
    for action in map(json.loads, entry.read_text().splitlines() if entry.exists() else ()):
        if add := action.get("add"):
            writer = add["partitionValues"][by] if by else ""
            table = pq.ParquetFile(path / unquote(add["path"])).read()
            rows.setdefault(writer, []).extend(table.column("id").to_pylist())
    return {writer: _told(ids, checks) for writer, ids in rows.items()}


def _told(ids: list[int], checks: Mapping[str, str]) -> dict[str, Any]:
    results = {}
    for name, sql in checks.items():
        found = _CHECK.fullmatch(sql)
        assert found, sql
        if found["what"] == "id":
            failed = sum(not _holds(row, found) for row in ids)
            results[name] = {"each_row": True, "failed": failed, "met": failed == 0}
        else:
            value = len(ids) if found["what"] == "count(*)" else max(ids, default=None)
            met = None if value is None else _holds(value, found)
            results[name] = {"each_row": False, "failed": None, "met": met}
    return {"rows": len(ids), "results": results}


def _holds(value: int, found: re.Match[str]) -> bool:
    return value < int(found["number"]) if found["sign"] == "<" else value > int(found["number"])


def use_engine(monkeypatch: pytest.MonkeyPatch, engine: _E) -> _E:
    """Let every operator use an engine, whatever its connection says; returns it."""
    monkeypatch.setattr("airflow_provider_onelake.operators._spark_task.engine_for", lambda *_: engine)
    return engine


def overtake(monkeypatch: pytest.MonkeyPatch, engine: Engine, job: str, other: Callable[[], object]) -> None:
    """Let another in when an engine's next job has ended: what the job found is not committed yet."""
    carry_out, others = getattr(engine, job), [other]

    def carry_out_and_lose(asked: Any) -> Any:
        result = carry_out(asked)
        if others:
            others.pop()()
        return result

    monkeypatch.setattr(engine, job, carry_out_and_lose)
