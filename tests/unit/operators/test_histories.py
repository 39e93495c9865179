"""Writers of one load that replace one partition: whose rows are seen, with one slot or two, and after clears.

The numbers are those of the histories in which the rule was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.engines.base import StageJob
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import JANUARY, context_of, delete_runs
from tests.support.engines import FakeEngine, overtake
from tests.support.stores import KilledError, killed
from tests.support.tables import EARLIER_LOAD, OVERWRITE, cleaned_up, foreign_append, ids, stage, writer_spec

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

    def clear(self, *keys: str) -> None:
        """Clear writers; the run counts it, and begins once more."""
        self.clears += 1
        self.began += 1
        for key in keys or self.keys:
            self.cleared[key] = self.cleared.get(key, 0) + 1

    def made_again(self) -> Load:
        """Delete the run, and make it again."""
        delete_runs()
        return Load(self.policy, self.keys, began=self.began + 1)

    def run(self, key: str, retry: int = 0) -> str:
        """Run a writer, for the first time since it was cleared or once more; returns what became of it."""
        with (
            DAG("taxi", schedule=None) as dag,
            OneLakeWriteTaskGroup(
                group_id="load",
                table="Tables/trips",
                mode="overwrite_partitions",
                on_conflict=self.policy,
                shared_scan=False,
            ),
        ):
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

    def both(self, engine: FakeEngine, slots: int, first: str = "a", then: str = "b") -> list[str]:
        """Run two writers one after the other, or the first one as a whole while Spark works for the other."""
        if slots == 1:
            return [self.run(first), self.run(then)]
        told: list[str] = []

        def before(job: StageJob) -> None:
            if job.where == then and not told:
                told.append(self.run(first))

        engine.before = before
        ended = self.run(then)
        engine.before = lambda job: None
        return [*told, ended]


@pytest.fixture
def trips(log: DeltaLog, engine: FakeEngine) -> Path:
    engine.rows = {key: {P1: [row]} for row, key in enumerate("abc", 1)}
    return Path(log.table)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_it_makes_no_difference_how_many_writers_have_a_slot(
    engine: FakeEngine, trips: Path, policy: str, slots: int
) -> None:
    """16 and 17: the first that lands is a, and the last that finishes is b."""
    assert Load(policy).both(engine, slots) == ["published", OUTCOMES[policy]]
    assert ids(trips) == [2 if policy == LAST else 1]


@pytest.mark.parametrize(("policy", "became"), [(LAST, "superseded"), (FIRST, "set_aside"), (FAIL, "ConflictError")])
def test_who_finishes_last_may_land_first(
    engine: FakeEngine, trips: Path, monkeypatch: pytest.MonkeyPatch, policy: str, became: str
) -> None:
    """18: b begins and lands when the rows of a are staged."""
    load, told = Load(policy), list[str]()
    overtake(monkeypatch, engine, "stage", lambda: told.append(load.run("b")))
    assert (load.run("a"), told) == (became, ["published"])
    assert ids(trips) == [2]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_writer_that_is_cleared_alone_replaces_what_stands(engine: FakeEngine, trips: Path, policy: str) -> None:
    """19, and 20 after it: a clear is a person's word."""
    load = Load(policy)
    load.both(engine, 1)
    load.clear("b")
    assert load.run("b") == "published"
    assert ids(trips) == [2]


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("again", [Load.clear, Load.made_again], ids=["cleared", "made-again"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_that_is_done_again_is_as_the_first_time(
    engine: FakeEngine, trips: Path, policy: str, again: Callable[[Load], Load | None], slots: int
) -> None:
    """20 and 21, twice and the other way round: the load begins once more, and its first writer lands."""
    load = Load(policy)
    load.both(engine, 1)
    for first, then in ("ba", "ab"):
        load = again(load) or load
        assert load.both(engine, slots, first, then) == ["published", OUTCOMES[policy]]
        assert ids(trips) == ["ab".index(then if policy == LAST else first) + 1]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_writer_that_begins_after_the_clear_of_another_belongs_to_the_first_beginning(
    engine: FakeEngine, trips: Path, policy: str
) -> None:
    """23: c waits for a slot, and b, which has other partitions, is cleared."""
    engine.rows = {**engine.rows, "b": {"2019-02": [2]}}
    load = Load(policy, "abc")
    assert (load.run("a"), load.run("b")) == ("published", "published")
    load.clear("b")
    assert (load.run("b"), load.run("c")) == ("published", OUTCOMES[policy])
    assert ids(trips) == ([2, 3] if policy == LAST else [1, 2])


def test_a_retry_belongs_to_the_beginning_of_its_first_try(
    engine: FakeEngine, trips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody clears c, between two tries of b."""
    engine.rows = {**engine.rows, "c": {"2019-02": [3]}}
    load = Load(FIRST, "abc")
    load.both(engine, 1)
    load.clear("a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(FakeEngine, "stage", killed)
        with pytest.raises(KilledError):
            load.run("b")
    assert load.run("a") == "published"
    load.clear("c")
    assert load.run("c") == "published"
    assert load.run("b", retry=1) == "set_aside"
    assert ids(trips) == [1, 3]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_list_that_grows_long_after_is_decided_where_the_log_says_what_came_since(
    engine: FakeEngine, log: DeltaLog, trips: Path, policy: str
) -> None:
    """22: the log is cleaned up, so nobody knows what others of the load have replaced; a clear begins anew."""
    load = Load(policy)
    load.both(engine, 1)
    for row in (7, 8):
        foreign_append(log, {"2019-03": [row]})
    cleaned_up(log, *range(3))
    grown = attrs.evolve(load, keys="abc")
    grown.clear()
    assert grown.run("c") == ("published" if policy == LAST else "ConflictError")
    grown.clear("c")
    assert grown.run("c") == "published"
    assert ids(trips) == [3, 7, 8]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_another_load_has_committed_before_a_writer_begins_it_replaces(
    engine: FakeEngine, log: DeltaLog, trips: Path, policy: str
) -> None:
    """3: that the load had begun before it does not matter."""
    load = Load(policy)
    engine.rows = {**engine.rows, "a": {"2019-02": [1]}}
    assert load.run("a") == "published"
    Committer(log).publish([stage(log, writer_spec("x", EARLIER_LOAD, **OVERWRITE), {P1: [9]})])
    assert load.run("b") == "published"
    assert ids(trips) == [1, 2]
