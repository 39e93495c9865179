"""An engine without Spark: it appends real Parquet files, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest
from obstore.store import LocalStore

from airflow_provider_onelake.engines.base import Engine, StageJob, StageResult
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.tables import SCHEMA, append_files, of_attempt

Rows = Mapping[str | None, list[int]]
_E = TypeVar("_E")


@attrs.define
class FakeEngine(Engine):
    """Appends the rows that belong to a job's filter; for a shared scan, those of each filter.

    :param rows: by filter, and then by month.
    :param before: called with each job before its rows are appended: raises, or lets another in.
    :param reads_target: what it says of every job, as a real one does in the append itself.
    :param schema: of the rows.
    :param log_stores: Spark's settings of them, as a preflight reads them.
    """

    rows: Mapping[str | None, Rows]
    before: Callable[[StageJob], None] = lambda job: None
    analyzed: list[StageJob] = attrs.field(factory=list)
    staged: list[StageJob] = attrs.field(factory=list)
    stopped: int = 0
    reads_target: bool = False
    schema: str = SCHEMA
    log_stores: Mapping[str, str] = attrs.field(factory=dict)

    def analyze(self, job: StageJob) -> str:
        self.analyzed.append(job)
        return self.schema

    def stage(self, job: StageJob) -> StageResult:
        self.staged.append(job)
        self.before(job)
        assert job.buffer_uri is not None
        said: dict[str, Any] = {"reads_target": self.reads_target, "engine": "fake", "log_stores": self.log_stores}
        if job.routes and self.reads_target:
            return StageResult(**said)
        path = Path(job.buffer_uri.removeprefix("file://"))
        store = ObjectStore(LocalStore(prefix=path), str(path))
        actions = list(self._routed(store, job)) if job.routes else self._appended(store, job)
        if actions:
            store.create(version_path(1), dump_actions(actions))
        return StageResult(buffer_uri=job.buffer_uri, **said)

    def _appended(self, store: ObjectStore, job: StageJob) -> list[dict[str, Any]]:
        rows = self.rows[job.where]
        return append_files(store, "", rows, **of_attempt(job.attempt, reads_target=self.reads_target)) if rows else []

    def _routed(self, store: ObjectStore, job: StageJob) -> Iterator[dict[str, Any]]:
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


def use_engine(monkeypatch: pytest.MonkeyPatch, engine: _E) -> _E:
    """Let every operator use an engine, whatever its connection says; returns it."""
    monkeypatch.setattr("airflow_provider_onelake.operators._spark_task.engine_for", lambda *_: engine)
    return engine
