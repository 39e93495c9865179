"""An engine without Spark: it appends real Parquet files, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
from obstore.store import LocalStore

from airflow_provider_onelake.engines.base import Analysis, StageJob, StageResult
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.tables import SCHEMA, append_files

Rows = Mapping[str | None, list[int]]


@attrs.define
class FakeEngine:
    """Appends the rows that belong to a job's filter.

    :param rows: by filter, and then by month.
    :param before: called with each job before its rows are appended: raises, or lets another in.
    """

    rows: Mapping[str | None, Rows]
    before: Callable[[StageJob], None] = lambda job: None
    analyzed: list[StageJob] = attrs.field(factory=list)
    staged: list[StageJob] = attrs.field(factory=list)
    stopped: int = 0
    reads_target: bool = False

    def analyze(self, job: StageJob) -> Analysis:
        self.analyzed.append(job)
        return Analysis(SCHEMA, [], reads_target=False)

    def stage(self, job: StageJob) -> StageResult:
        self.staged.append(job)
        self.before(job)
        assert job.buffer_uri is not None
        path = Path(job.buffer_uri.removeprefix("file://"))
        store = ObjectStore(LocalStore(prefix=path), str(path))
        rows = self.rows[job.where]
        if rows:
            store.create(version_path(1), dump_actions(append_files(store, "", rows, (job.attempt, 1))))
        return StageResult(reads_target=self.reads_target, engine="fake")

    def stop(self) -> None:
        self.stopped += 1
