"""A run that begins on an Airflow that keeps nothing for a task, and goes on there or on 3.3: every row once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.observability.metrics import Metrics
from airflow_provider_onelake.operators.restore import OneLakeRestoreOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.writes.publish import Committer
from tests.support.ages import files
from tests.support.contexts import context_of, delete_runs, kept_of
from tests.support.engines import FakeEngine
from tests.support.stores import KilledError, killed
from tests.support.tables import foreign_append, ids, newest

OLD, NEW = False, True
AIRFLOWS = pytest.mark.parametrize(
    ("first", "then"),
    [pytest.param(OLD, OLD, id="3.2"), pytest.param(OLD, NEW, id="3.2, then 3.3"), pytest.param(NEW, NEW, id="3.3")],
)


def context(task: Any, has_store: bool, **ti: Any) -> Any:
    """That of a try, with a store for what the task keeps or without."""
    found = context_of(task, **ti)
    found.pop("task_state_store", None)
    return {**found, "task_state_store": kept_of(found)} if has_store else found


def write() -> OneLakeWriteOperator:
    # A try that does not know the one before as its own would add the rows again.
    return OneLakeWriteOperator(
        task_id="write", table="Tables/trips", source=SqlSource("SELECT 1"), on_rerun="append", retries=2
    )


def generation(log: DeltaLog) -> int:
    (found,) = newest(log).txns.values()
    return found


@AIRFLOWS
@pytest.mark.parametrize("dies", ["before its commit", "after its commit"])
def test_a_load_whose_first_try_dies_has_every_row_once(
    log: DeltaLog, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, first: bool, then: bool, dies: str
) -> None:
    engine.rows = {None: {"2019-01": [1, 2]}}
    task, counts = write(), {"max_tries": 2}
    with monkeypatch.context() as patch:
        where, name = (Committer, "publish") if dies == "before its commit" else (Metrics, "written")
        patch.setattr(where, name, killed)
        with pytest.raises(KilledError):
            task.execute(context(task, first, **counts))
    kept = [path for path in files(log) if "_tries" in path]
    assert len(kept) == (first is OLD)
    retried = write()
    retried.execute(context(retried, then, try_number=2, **counts))
    assert generation(log) == 1
    assert ids(Path(log.table)) == [1, 2]
    assert len(engine.staged) == 1
    assert len([path for path in files(log) if "_tries" in path]) == (first is OLD) + (then is OLD)
    # A clear is another start, which adds them again, as its author wants.
    again = write()
    again.execute(context(again, then, try_number=3, max_tries=4, clears=1))
    assert generation(log) == 2
    assert ids(Path(log.table)) == [1, 1, 2, 2]
    # So is a run that is deleted and made again.
    delete_runs()
    write().execute(context(again, then))
    assert generation(log) == 3


@AIRFLOWS
def test_a_restore_whose_first_try_dies_undoes_nothing_that_came_since(
    log: DeltaLog, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, first: bool, then: bool
) -> None:
    for row in (1, 2):
        foreign_append(log, {"2019-01": [row]})
    task = OneLakeRestoreOperator(task_id="restore", table="Tables/trips", version=1, on_newer_commit="undo")
    with monkeypatch.context() as patch:
        patch.setattr(OneLakeRestoreOperator, "show_commit", killed)
        with pytest.raises(KilledError):
            task.execute(context(task, first))
    foreign_append(log, {"2019-01": [3]})
    done = task.execute(context(task, then, try_number=2))
    assert (done["status"], newest(log).version) == ("already_restored", 4)
    assert ids(Path(log.table)) == [1, 3]
