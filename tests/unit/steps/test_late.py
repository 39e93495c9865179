"""A writer whose rows came too late: others finished later, and replaced a part of what it replaces."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_onelake.buffers.buffer import read_buffer
from airflow_provider_onelake.buffers.markers import read_marker
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.steps.write import MOST_RERUNS
from airflow_provider_onelake.writes.publish import Committer
from tests.support import tables
from tests.support.contexts import context_of
from tests.support.engines import FakeEngine
from tests.support.stores import KilledError, killed

P1, P2 = "2019-01", "2019-02"
OLD, NEW = {P1: [10], P2: [11]}, {P1: [12], P2: [13]}
CLEARED = {"clears": 1, "try_number": 2, "max_tries": 1}


@pytest.fixture
def trips(log: DeltaLog, engine: FakeEngine) -> Path:
    tables.foreign_append(log, {P1: [1, 2], P2: [3]})
    engine.rows = {None: OLD}
    return Path(log.table)


def run(context: Mapping[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    given = {"task_id": "write", "table": "Tables/trips", "source": SqlSource("SELECT 1"), **arguments}
    task = OneLakeWriteOperator(**{"mode": "overwrite_partitions", **given})
    return task.execute(context_of(task, **(context or {})))


def in_an_hour() -> datetime:
    """Later than anything that Spark appends in a test."""
    return datetime.now(UTC) + timedelta(hours=1)


def appends(trips: Path, *rows: int, month: str = P1) -> None:
    log = tables.local_log(trips)
    tables.landed_at(log, tables.foreign_append(log, {month: list(rows)}), in_an_hour())


def replaces(trips: Path, rows: Mapping[str | None, list[int]]) -> None:
    log = tables.local_log(trips)
    buffer = tables.stage(log, tables.writer_spec("b", tables.EARLIER_LOAD, **tables.OVERWRITE), rows)
    Committer(log).publish([tables.finished_at(log, buffer, in_an_hour())])


def meanwhile(engine: FakeEngine, *others: Callable[[], object], rows: Mapping[str | None, list[int]] = NEW) -> None:
    """Let one of the others commit during each job of Spark; what Spark reads after the first is newer."""
    waiting = list(others)

    def before(job: StageJob) -> None:
        engine.rows = {None: OLD if len(engine.staged) == 1 else rows}
        if waiting:
            waiting.pop(0)()

    engine.before = before


def staged(log: DeltaLog) -> list[str]:
    """The buffers of the writer, in the order in which they were opened."""
    found = sorted(Path(log.table).glob("staged/write-*/*/_delta_log"), key=lambda each: (len(each.parent.name), each))
    return [str(each.parent.relative_to(log.table)) for each in found]


@pytest.mark.parametrize("how", ["at once", "in a retry"])
@pytest.mark.parametrize(
    ("other", "first"),
    [
        pytest.param(lambda trips: replaces(trips, {P1: [20]}), [3, 20], id="replaced-a-part"),
        pytest.param(lambda trips: appends(trips, 30), [1, 2, 3, 30], id="appended"),
    ],
)
@pytest.mark.parametrize("policy", ["last_writer_wins", "first_writer_wins", "fail"])
def test_a_late_writer_does_as_its_policy_says(
    engine: FakeEngine,
    log: DeltaLog,
    trips: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    policy: str,
    other: Callable[[Path], None],
    first: list[int],
    how: str,
) -> None:
    """Histories 5, 7 and 26: its own task decides, also hours after a try of it died with a complete buffer."""
    if how == "at once":
        meanwhile(engine, lambda: other(trips))
    else:
        with monkeypatch.context() as patch:
            patch.setattr(Committer, "publish", killed)
            with pytest.raises(KilledError):
                run(on_conflict=policy)
        other(trips)
        engine.rows = {None: NEW}
    if policy == "fail":
        with pytest.raises(AirflowFailException, match=r"^ConflictError: In Tables/trips, version 2 .* put 1 row into"):
            run(on_conflict=policy)
    else:
        done = run(on_conflict=policy)
        late = policy == "last_writer_wins"
        assert (done["status"], done["reruns"]) == (("published", 1) if late else ("set_aside", 0))
    assert tables.ids(trips) == ([12, 13] if policy == "last_writer_wins" else first)
    assert len(engine.staged) == (2 if policy == "last_writer_wins" else 1)
    if policy == "last_writer_wins":
        (said,) = [r.getMessage() for r in caplog.records if "came too late and are staged anew" in r.getMessage()]
        assert "version 2 (" in said
        assert "put 1 row into month=2019-01, and finished later" in said
        assert "staged anew: " in str(read_marker(log.store, staged(log)[0]))
    if policy == "fail":
        # The buffer stays, and a clear of the writer runs it on the newest version.
        assert read_marker(log.store, *staged(log)) is None
        assert run(CLEARED, on_conflict=policy)["status"] == "published"
        assert tables.ids(trips) == [12, 13]


def test_one_that_was_replaced_whole_is_superseded(engine: FakeEngine, log: DeltaLog, trips: Path) -> None:
    """History 4."""
    meanwhile(engine, lambda: replaces(trips, {P1: [20], P2: [21]}))
    done = run()
    assert (done["status"], done["version"], len(engine.staged)) == ("superseded", 3, 1)
    assert tables.ids(trips) == [20, 21]
    (said,) = done["left_out"]
    assert said.startswith("all of it is superseded, 2 rows in month=2019-01, month=2019-02: version 2 (b of taxi.load")
    # A retry finds it settled.
    assert run()["status"] == "skipped"


def test_it_stages_three_times_at_most_and_keeps_the_last(engine: FakeEngine, log: DeltaLog, trips: Path) -> None:
    meanwhile(engine, *[lambda row=row: appends(trips, row) for row in range(30, 40)])  # type: ignore[misc]
    with pytest.raises(AirflowFailException, match=r"^OutOfDateError: .*buffers are kept: clear the writers to run"):
        run()
    assert (len(engine.staged), MOST_RERUNS) == (4, 3)
    assert tables.ids(trips) == [1, 2, 3, 30, 31, 32, 33]
    *given_up, last = staged(log)
    assert all("staged anew: " in str(read_marker(log.store, path)) for path in given_up)
    assert read_marker(log.store, last) is None
    assert read_buffer(log.store, last).rows == 2
    meanwhile(engine)
    assert run(CLEARED)["status"] == "published"


SMALL = {"small ids": "id < 13"}


@pytest.mark.parametrize("rows", [NEW, {P1: [12]}], ids=["fail", "pass"])
def test_rows_staged_anew_are_checked(engine: FakeEngine, trips: Path, rows: Mapping[str | None, list[int]]) -> None:
    meanwhile(engine, lambda: appends(trips, 30), rows=rows)
    if rows == NEW:
        with pytest.raises(AirflowFailException, match=r"^ChecksFailedError: The 2 rows .*not true of 1 row"):
            run(checks=SMALL)
        assert tables.ids(trips) == [1, 2, 3, 30]
    else:
        done = run(checks=SMALL)
        assert (done["status"], done["reruns"], done["checks"][0]["passed"]) == ("published", 1, True)
        assert tables.ids(trips) == [3, 12]


def test_rows_that_a_retry_publishes_finished_when_they_were_staged(
    engine: FakeEngine, log: DeltaLog, trips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Committer, "publish", killed)
        with pytest.raises(KilledError):
            run()
    (path,) = staged(log)
    earlier = (datetime.now(UTC) - timedelta(hours=3)).timestamp()
    os.utime(Path(log.table, path, version_path(1)), (earlier, earlier))
    spec = tables.writer_spec("b", tables.EARLIER_LOAD, **tables.OVERWRITE)
    others = tables.stage(tables.local_log(trips), spec, {P1: [20], P2: [21]})
    earlier = tables.finished_at(log, others, datetime.now(UTC) - timedelta(hours=1))
    Committer(tables.local_log(trips)).publish([earlier])
    assert (run()["status"], tables.ids(trips)) == ("superseded", [20, 21])
