"""What a task keeps over its tries, below Airflow 3.3 and from there on, and where Airflow is upgraded in between."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from airflow_provider_onelake.exceptions import CorruptLogError, StoreUnavailableError, TransientError
from airflow_provider_onelake.hooks.context import start_of
from airflow_provider_onelake.hooks.task_state import TaskState
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.ages import files
from tests.support.contexts import JANUARY, context_of, kept_of
from tests.support.stores import silent
from tests.support.tables import local_log

LATER = JANUARY + timedelta(hours=1)


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Of a table that is not there yet."""
    return local_log(tmp_path / "t")


def context(*, has_store: bool = False, began: Any = JANUARY, **ti: Any) -> Any:
    """That of a try, of an Airflow that keeps something for its tasks or not."""
    found = context_of(BaseOperator(task_id="write", retries=2), began=began, **ti)
    found.pop("task_state_store", None)
    return {**found, "task_state_store": kept_of(found)} if has_store else found


def state(log: DeltaLog, namespace: str = "prod", came_back: bool = False, **of: Any) -> TaskState:
    return TaskState(context(**of), namespace, lambda: log.store, came_back)


def test_the_next_try_finds_what_the_one_before_kept(log: DeltaLog) -> None:
    first = state(log)
    assert first.get("a") is None
    first.set("a", 1)
    first.set("b", {"c": [2]})
    second = state(log, try_number=2)
    assert (second.get("a"), second.get("b")) == (1, {"c": [2]})
    # The one that comes back from the triggerer is another process.
    assert state(log).get("b") == {"c": [2]}
    # The second try died before it kept anything.
    assert state(log, try_number=3).get("a") == 1
    assert not Path(log.table, "_delta_log").exists()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"began": LATER}, id="the run was deleted and made again, or cleared after its end"),
        pytest.param({"run_id": "manual__2"}, id="another run"),
        pytest.param({"map_index": 1}, id="another task of a mapped one"),
        pytest.param({"namespace": "test"}, id="another Airflow"),
    ],
)
def test_others_do_not_find_it(log: DeltaLog, other: dict[str, Any]) -> None:
    state(log).set("a", 1)
    assert state(log, try_number=2, **other).get("a") is None


def test_an_older_try_that_writes_late_changes_nothing_of_a_newer_one(log: DeltaLog) -> None:
    zombie = state(log)
    zombie.set("a", "of the first")
    newer = state(log, try_number=2)
    newer.set("a", "of the second")
    zombie.set("a", "late")
    assert state(log, try_number=2).get("a") == "of the second"
    assert state(log, try_number=3).get("a") == "of the second"


def test_a_start_stays_the_same_until_a_clear(log: DeltaLog) -> None:
    def started(**of: Any) -> Any:
        now = context(max_tries=of.pop("max_tries", 2), **of)
        return start_of(now, TaskState(now, "prod", lambda: log.store))

    first = started()
    assert started(try_number=2) == first
    # Another task of the running run was cleared.
    assert started(try_number=3, clears=1) == first
    cleared = started(try_number=4, max_tries=5, clears=2)
    assert cleared.chain == first.chain
    assert first.precedes(cleared)
    # The run had ended, so the clear gave it another start.
    again = started(try_number=5, max_tries=6, clears=3, began=LATER)
    assert cleared.precedes(again)
    assert not again.precedes(cleared)


def test_a_store_that_is_down_is_no_lack_of_state(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    state(log).set("a", 1)
    for name in ("get", "put"):
        with monkeypatch.context() as down:
            down.setattr(type(log.store), name, silent)
            with pytest.raises(StoreUnavailableError):
                state(log, try_number=2).set("a", 2)
    assert state(log, try_number=2).get("a") == 1


def test_a_run_that_was_queued_again_just_now_waits(log: DeltaLog) -> None:
    now = context()
    now["dag_run"].start_date = None
    with pytest.raises(TransientError, match="has no start"):
        TaskState(now, "prod", lambda: log.store).get("a")


def test_a_damaged_file_is_named(log: DeltaLog) -> None:
    state(log).set("a", 1)
    (path,) = files(log)
    log.store.put(path, b"{")
    with pytest.raises(CorruptLogError, match=rf"{path} is damaged.*Nothing was touched: delete the file"):
        state(log, try_number=2).get("a")


def test_a_run_that_goes_on_after_an_upgrade_finds_it_and_writes_no_file(log: DeltaLog) -> None:
    state(log).set("a", 1)
    (path,) = files(log)
    upgraded = state(log, has_store=True, try_number=2)
    assert upgraded.get("a") == 1
    upgraded.set("b", 2)
    assert kept_of(context()) == {"a": 1, "b": 2}
    assert files(log) == {path}
    assert json.loads(log.store.get(path)) == {"a": 1}


def test_so_does_a_task_that_was_with_the_triggerer(log: DeltaLog) -> None:
    state(log).set("a", 1)
    assert state(log, came_back=True, has_store=True).get("a") == 1


def test_what_airflow_keeps_counts_before_what_a_file_says(log: DeltaLog) -> None:
    state(log).set("a", "of a file")
    kept_of(context())["a"] = "of Airflow"
    assert state(log, has_store=True, try_number=2).get("a") == "of Airflow"


def test_with_airflows_store_a_first_try_asks_the_table_nothing() -> None:
    kept = TaskState(context(has_store=True), "prod", lambda: pytest.fail("it is asked"))
    assert kept.get("a") is None
    kept.set("a", 1)
    assert kept.get("a") == 1
