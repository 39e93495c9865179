"""What Airflow counts, as the rule of tests/unit/writes/test_histories.py needs it: clears, retries, runs made again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import JANUARY, context_of, delete_runs
from tests.support.engines import FakeEngine
from tests.support.stores import KilledError, killed
from tests.support.tables import ids

P1 = "2019-01"
LAST, FIRST, FAIL = "last_writer_wins", "first_writer_wins", "fail"
POLICIES = [LAST, FIRST, FAIL]
# What becomes of a writer that another of its load has overtaken, by policy.
OUTCOMES = {LAST: "published", FIRST: "set_aside", FAIL: "ConflictError"}


@attrs.define
class Load:
    """A run of a group whose writers all replace one partition, each by a row of its own."""

    policy: str
    keys: str = "ab"
    cleared: dict[str, int] = attrs.field(factory=dict)
    clears: int = 0
    began: int = 0

    def clear(self, *keys: str, ended: bool = True) -> None:
        """Clear writers; the run counts it, and begins once more if it had ended."""
        self.clears += 1
        self.began += ended
        for key in keys or self.keys:
            self.cleared[key] = self.cleared.get(key, 0) + 1

    def made_again(self) -> Load:
        delete_runs()
        return Load(self.policy, self.keys, began=self.began + 1)

    def run(self, key: str, retry: int = 0) -> str:
        """Run a writer, for the first time since it was cleared or once more; returns what became of it."""
        group: dict[str, Any] = {"group_id": "load", "table": "Tables/trips", "mode": "overwrite_partitions"}
        group |= {"on_conflict": self.policy, "shared_scan": False}
        with DAG("taxi", schedule=None) as dag, OneLakeWriteTaskGroup(**group):
            for name in self.keys:
                OneLakeWriteOperator(task_id=name, source=SqlSource("SELECT 1"), where=name)
        task: Any = dag.get_task(f"load.{key}")
        number = self.cleared.get(key, 0)
        counters = {"clears": self.clears, "try_number": number + 1 + retry, "max_tries": number}
        context = context_of(task, began=JANUARY + timedelta(hours=self.began), **counters)
        try:
            return str(task.execute(context)["status"])
        except AirflowFailException as error:
            return str(error).partition(":")[0]

    def both(self, first: str = "a", then: str = "b") -> list[str]:
        return [self.run(first), self.run(then)]


@pytest.fixture
def trips(log: DeltaLog, engine: FakeEngine) -> Path:
    engine.rows = {key: {P1: [row]} for row, key in enumerate("abc", 1)}
    return Path(log.table)


@pytest.mark.parametrize("again", [Load.clear, Load.made_again], ids=["cleared", "made-again"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_that_is_done_again(trips: Path, policy: str, again: Callable[[Load], Load | None]) -> None:
    """20 and 21, twice and the other way round: the load begins once more, and its first writer lands."""
    load = Load(policy)
    load.both()
    for first, then in ("ba", "ab"):
        load = again(load) or load
        assert load.both(first, then) == ["published", OUTCOMES[policy]]
        assert ids(trips) == ["ab".index(then if policy == LAST else first) + 1]


def test_a_retry_belongs_to_its_first_try(engine: FakeEngine, trips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody clears c, between two tries of b."""
    engine.rows = {**engine.rows, "c": {"2019-02": [3]}}
    load = Load(FIRST, "abc")
    load.both()
    load.clear("a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(FakeEngine, "stage", killed)
        with pytest.raises(KilledError):
            load.run("b")
    assert load.run("a") == "published"
    load.clear("c", ended=False)
    assert load.run("c") == "published"
    assert load.run("b", retry=1) == "set_aside"
    assert ids(trips) == [1, 3]
