"""What DELETE, RESTORE and ALTER promise alike: each is done once, and takes back nothing that came after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.exceptions import (
    CommitContentionError,
    RerunRefusedError,
    StoreUnavailableError,
    ZombieWriterError,
)
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.maintenance.restore import restore
from airflow_provider_onelake.statements.alter import alter
from airflow_provider_onelake.statements.alteration import Alteration
from airflow_provider_onelake.statements.delete import delete
from airflow_provider_onelake.statements.round_tables import TableDefinition
from tests.support.changes import asker
from tests.support.clocks import HeldClock
from tests.support.commits import AT_ONCE, NO_WAITS
from tests.support.restores import restored_by_time, take_back
from tests.support.stores import AnswerLost, LoserHeld, through
from tests.support.tables import (
    change_metadata,
    cleaned_up,
    foreign_append,
    local_log,
    newest,
    table_ids,
    three_versions,
)


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return three_versions(tmp_path / "a lake" / "t")


@attrs.frozen
class Statement:
    """A statement that changes a table of three versions, and what another does afterwards that it would change too."""

    name: str
    do: Callable[..., Any]
    done: str
    since: Callable[[DeltaLog], object]

    def run(self, log: DeltaLog, task: str = "one", start: str = "first", backoff: Any = AT_ONCE) -> Any:
        """A try of a start of a task."""
        transactions = Transactions(log, backoff=backoff)
        return self.do(transactions, asker(f"{task}/{start}", task, start))


def append(log: DeltaLog) -> None:
    foreign_append(local_log(Path(log.table)), {"2019-01": [30]})


def back(transactions: Transactions, by: Any) -> Any:
    return restore(transactions, 1, newest(transactions.log), by, on_newer_commit=OnNewerCommit.UNDO)


DELETE = Statement("DELETE", lambda to, by: delete(to, "month = '2019-01'", by), "done", append)
RESTORE = Statement("RESTORE", back, "restored", append)


def commented(_: int, snapshot: Snapshot, *statement: object) -> TableDefinition:
    """Do what Spark does in a shadow."""
    return TableDefinition({**snapshot.metadata, "description": "trips"}, snapshot.protocol)


ALTER = Statement(
    "ALTER",
    lambda to, by: alter(to, Alteration(table_comment="trips"), by, commented),
    "done",
    lambda log: change_metadata(log, description="more trips"),
)
EACH = pytest.mark.parametrize("statement", [DELETE, RESTORE, ALTER], ids=lambda each: each.name)


def state(log: DeltaLog) -> tuple[list[int], Any]:
    return table_ids(log), newest(local_log(Path(log.table))).metadata.get("description")


@EACH
@pytest.mark.parametrize("effect", [True, False])
def test_a_lost_answer_leaves_one_commit(log: DeltaLog, statement: Statement, effect: bool) -> None:
    done = statement.run(through(AnswerLost(log.store, 1, effect=effect), log))
    assert (done.status, done.version, newest(log).version) == (statement.done, 4, 4)


@EACH
def test_it_gives_up_and_changes_nothing(log: DeltaLog, statement: Statement) -> None:
    busy = LoserHeld(log.store, lambda: foreign_append(log, {"x": [40]}))
    with pytest.raises(CommitContentionError, match="Nothing was changed"):
        statement.run(through(busy, log), backoff=NO_WAITS)
    with pytest.raises(StoreUnavailableError):
        statement.run(through(AnswerLost(log.store, 99, effect=False), log), backoff=NO_WAITS)
    assert newest(log).version == 4


@EACH
def test_a_retry_and_another_try_at_once_take_nothing_that_came_since(log: DeltaLog, statement: Statement) -> None:
    def another_try() -> None:
        first.append(statement.run(log))
        statement.since(log)
        after.append(state(log))

    first: list[Any] = []
    after: list[Any] = []
    at_once = statement.run(through(LoserHeld(log.store, another_try), log))
    again = statement.run(log)
    assert (first[0].status, first[0].version) == (statement.done, 4)
    assert [(done.status.startswith("already"), done.version) for done in (at_once, again)] == [(True, 4)] * 2
    assert [state(log)] == after


@EACH
def test_the_second_of_two_equal_ones_has_nothing_to_do(log: DeltaLog, statement: Statement) -> None:
    store = LoserHeld(log.store, lambda: statement.run(log, "another"))
    assert statement.run(through(store, log)).status == "nothing_to_do"


@EACH
def test_an_old_process_changes_nothing_that_came_after_a_newer_start(log: DeltaLog, statement: Statement) -> None:
    def newer() -> None:
        assert statement.run(log, start="second").status == statement.done
        statement.since(log)

    held = LoserHeld(log.store, newer)
    with pytest.raises(ZombieWriterError, match="A newer start of me is in"):
        statement.run(through(held, log))
    after = state(log)
    with pytest.raises(ZombieWriterError, match="A newer start of me is in"):
        statement.run(log)
    assert state(log) == after
    assert statement.run(log, start="third").status == statement.done


@EACH
def test_what_an_old_process_does_while_the_newest_start_is_at_work_stops_nobody(
    log: DeltaLog, statement: Statement
) -> None:
    held = LoserHeld(log.store, lambda: statement.run(log))
    assert statement.run(through(held, log), start="second").status == "nothing_to_do"
    assert newest(log).version == 4


@EACH
def test_a_retry_after_the_log_was_cleaned_up_says_what_is_known(log: DeltaLog, statement: Statement) -> None:
    statement.run(log)
    statement.since(log)
    before = state(log)
    cleaned_up(log, *range(5))
    done = statement.run(local_log(Path(log.table)))
    assert done.status.startswith("already")
    known = attrs.asdict(done)
    assert {known.get(name) for name in ("changes", "rows_deleted", "version")} == {None}
    assert state(log) == before


@pytest.mark.parametrize("taken_back", [take_back, restored_by_time], ids=["by version", "by time"])
@pytest.mark.parametrize("statement", [DELETE, ALTER], ids=lambda each: each.name)
def test_what_is_taken_back_is_not_called_done_and_a_clear_does_it_again(
    log: DeltaLog, statement: Statement, taken_back: Callable[..., None]
) -> None:
    statement.run(log)
    taken_back(log, 3)
    with pytest.raises(RerunRefusedError, match=r"in version 4, and was taken back by a RESTORE"):
        statement.run(log)
    assert statement.run(log, start="second").version == 6
    # It is there again, by a restore to a version that has it.
    taken_back(log, 3, "two")
    taken_back(log, 6, "three")
    assert statement.run(log, start="second").status.startswith("already")
    taken_back(log, 3, "four")
    assert statement.run(log, start="third").status == "done"


@pytest.mark.parametrize(
    ("statement", "left", "said"),
    [(DELETE, [5, 15, 25, 31], {"rows_deleted": 4}), (RESTORE, [0, 5], {"files_removed": 6, "undone": (2, 5)})],
    ids=["DELETE", "RESTORE"],
)
def test_a_clean_up_loses_nothing(log: DeltaLog, statement: Statement, left: list[int], said: dict[str, Any]) -> None:
    class Busy(HeldClock):
        def sleep(self, seconds: float) -> None:
            append(log)
            foreign_append(log, {"x": [31]})
            cleaned_up(log, 2, 3, 4)
            super().sleep(600)

    done = statement.run(through(AnswerLost(log.store, 1, effect=False), log, Busy()))
    assert (done.version, table_ids(log)) == (6, left)
    assert {name: getattr(done, name) for name in said} == said
