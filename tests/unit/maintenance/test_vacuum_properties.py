"""Whatever happened to a table: what it needs, what is being written and what is kept is never a candidate."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.markers import write_marker
from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.log.actions import object_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.clean_up import clean_up
from airflow_provider_onelake.maintenance.pinned_versions import pin_version, pinned_versions
from airflow_provider_onelake.maintenance.vacuum import VacuumTerms, plan
from airflow_provider_onelake.storage.clock import milliseconds
from airflow_provider_onelake.writes.publish import Committer
from tests.support.ages import grow_old
from tests.support.tables import append_files, foreign_append, foreign_commit, make_table, stage, writer_spec


class Story:
    """A table, and what happens to it."""

    def __init__(self, path: Path, retention: str) -> None:
        self.log = make_table(path, **{"delta.deletedFileRetentionDuration": retention})
        self.staged: list[Buffer] = []
        self.closed: set[str] = set()

    def live(self, version: int | None = None) -> list[dict[str, Any]]:
        snapshot = self.log.snapshot()
        return list(self.log.live_files(lambda add: True, snapshot.version if version is None else version))

    def append(self, n: int) -> None:
        foreign_append(self.log, {"a b": [n], f"2019-{n % 3}": [n]})

    def remove(self, n: int) -> None:
        live = self.live()
        if live:
            at = datetime.now(UTC) - timedelta(hours=n)
            gone = {"path": live[n % len(live)]["path"], "deletionTimestamp": milliseconds(at), "dataChange": True}
            foreign_commit(self.log, [{"remove": gone}])

    def stage(self, n: int) -> None:
        self.staged.append(stage(self.log, writer_spec(f"w{len(self.staged)}"), {"a b": [n]}))

    def publish(self, n: int) -> None:
        waiting = [buffer for buffer in self.staged if buffer.path not in self.closed]
        if waiting:
            buffer = waiting[n % len(waiting)]
            self.closed.add(buffer.path)
            try:
                Committer(self.log).publish([buffer])
            except OneLakeError:
                write_marker(self.log.store, buffer.path, {"reason": "too old"})

    def set_aside(self, n: int) -> None:
        if self.staged:
            buffer = self.staged[n % len(self.staged)]
            write_marker(self.log.store, buffer.path, {"reason": "set aside"})
            self.closed.add(buffer.path)

    def litter(self, n: int) -> None:
        append_files(self.log.store, "", {"litter": [n]})

    def age(self, n: int) -> None:
        grow_old(self.log, days=n / 4)

    def keep(self, n: int) -> None:
        snapshot = self.log.snapshot()
        try:
            pin_version(self.log, n % (snapshot.version + 1), "test")
        except OneLakeError:
            return

    def checkpoint(self, n: int) -> None:
        from deltalake import DeltaTable

        DeltaTable(self.log.table).create_checkpoint()
        self.log = DeltaLog(self.log.store, self.log.table)

    def vacuum(self, n: int) -> None:
        terms = VacuumTerms(lite=n % 2 == 0, allow_retention_below_seven_days=True)
        todo = plan(self.log, terms)
        needed = {object_path(add) for add in self.live()}
        for kept in pinned_versions(self.log):
            needed |= {object_path(add) for add in self.live(kept.version)}
        young = [buffer for buffer in self.staged if buffer.path not in self.closed]
        abandoned = {staged.path for staged in todo.abandoned}
        candidates = {info.path for info in todo.candidates}
        assert not candidates & needed
        for buffer in young:
            files = {f"{buffer.path}/{object_path(add)}" for add in buffer.adds}
            assert buffer.path in abandoned or not candidates & files
        assert not any("/_" in f"/{path}" for path in candidates)
        clean_up(self.log, todo.abandoned_after)
        self.closed |= abandoned
        for path in candidates:
            self.log.store.delete(path)


STEPS: list[Callable[[Story, int], None]] = [
    Story.append,
    Story.remove,
    Story.stage,
    Story.publish,
    Story.set_aside,
    Story.litter,
    Story.age,
    Story.keep,
    Story.checkpoint,
    Story.vacuum,
]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["interval 1 minutes", "interval 12 hours", "interval 7 days"]),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 40)), min_size=4, max_size=15),
)
def test_what_anybody_needs_is_never_a_candidate(
    retention: str, steps: list[tuple[Callable[[Story, int], None], int]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        story = Story(Path(directory) / "t", retention)
        # A version that somebody keeps, and a file that only it needs.
        story.append(1)
        story.keep(1)
        story.remove(30)
        for step, n in steps:
            step(story, n)
        story.age(35)
        story.vacuum(1)
        story.vacuum(0)
