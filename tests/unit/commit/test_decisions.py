"""The first two rows of the decision table (design, "What a commit decides"), cell by cell, on real tables.

In every contest the loser's create-only PUT is held until the winner has committed, and is refused by the real store.
With ``each`` the writer publishes for itself and leaves a true conflict to reconcile; with ``together`` reconcile
publishes it and a colleague, who writes the same partition, in one version.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.commit.publish import Committer, Publication, Status
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.commit.report import Report
from airflow_provider_onelake.exceptions import BufferDoesNotFitError, ConflictError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.identity import Load
from airflow_provider_onelake.staging.modes import Append, Mode, Overwrite, OverwritePartitions, ReplaceWhere
from airflow_provider_onelake.storage.clock import milliseconds
from tests.support.stores import LoserHeld, through
from tests.support.tables import (
    LOAD,
    append_files,
    finished_at,
    foreign_append,
    foreign_commit,
    ids,
    landed_at,
    make_table,
    stage,
    writer_spec,
)

HERE, ELSEWHERE = "2019-01", "2019-02"
MINE = datetime.now(UTC) - timedelta(hours=2)
EARLIER, LATER = MINE - timedelta(hours=1), MINE + timedelta(hours=1)
THEIRS = Load("test", "other_dag", "load", "2019-01-01T00:00:00+00:00")

# What a winner puts into the table; it is given the log and when its work was finished, and returns its commit.
Winner = Callable[[DeltaLog, datetime], Callable[[], object]]

WHERE = ReplaceWhere(f"month = '{HERE}'")
EACH_OR_TOGETHER = pytest.mark.parametrize("publish", list(PublishMode))
POLICIES = pytest.mark.parametrize("policy", list(Policy))
OVERWRITES = pytest.mark.parametrize("mode", [OverwritePartitions(), WHERE], ids=lambda mode: mode.name)
# For an overwrite of the whole table, no winner is elsewhere.
WHOLE_TOO = pytest.mark.parametrize("mode", [Overwrite(), OverwritePartitions(), WHERE], ids=lambda mode: mode.name)


def writer_appends(month: str, **terms: Any) -> Winner:
    def winner(log: DeltaLog, finished: datetime) -> Callable[[], object]:
        buffer = finished_at(log, stage(log, writer_spec("theirs", THEIRS, **terms), {month: [20]}), finished)
        return lambda: Committer(through(log.store, log)).publish([buffer])

    return winner


def writer_replaces(month: str) -> Winner:
    return writer_appends(month, mode=OverwritePartitions())


def foreigner_appends(month: str) -> Winner:
    return lambda log, finished: (
        lambda: landed_at(log, foreign_append(through(log.store, log), {month: [20]}), finished)
    )


def foreigner_deletes(month: str) -> Winner:
    def winner(log: DeltaLog, finished: datetime) -> Callable[[], object]:
        gone = {**file_of(log, month), "deletionTimestamp": 1, "dataChange": True}
        actions = [{"commitInfo": {"operation": "DELETE"}}, {"remove": gone}]
        return lambda: landed_at(log, foreign_commit(through(log.store, log), actions), finished)

    return winner


def foreigner_compacts(log: DeltaLog, finished: datetime) -> Callable[[], object]:
    def commit() -> None:
        info, add = append_files(log.store, "", {HERE: [1]}, operation="OPTIMIZE", timestamp=milliseconds(finished))
        add["add"]["dataChange"] = False
        gone = {**file_of(log, HERE), "deletionTimestamp": 1, "dataChange": False}
        foreign_commit(through(log.store, log), [info, {"remove": gone}, add])

    return commit


def foreigner_vacuums(log: DeltaLog, finished: datetime) -> Callable[[], object]:
    info = {"timestamp": milliseconds(finished), "operation": "VACUUM START"}
    return lambda: foreign_commit(through(log.store, log), [{"commitInfo": info}])


def foreigner_alters(**configuration: str) -> Winner:
    def winner(log: DeltaLog, finished: datetime) -> Callable[[], object]:
        snapshot = log.snapshot()
        schema = json.loads(snapshot.metadata["schemaString"])
        if not configuration:
            schema["fields"].append({"name": "fare", "type": "double", "nullable": True, "metadata": {}})
        changed = {**snapshot.metadata, "schemaString": json.dumps(schema), "configuration": configuration}
        info = {"timestamp": milliseconds(finished), "operation": "ALTER"}
        return lambda: foreign_commit(through(log.store, log), [{"commitInfo": info}, {"metaData": changed}])

    return winner


def file_of(log: DeltaLog, month: str) -> dict[str, Any]:
    snapshot = log.snapshot()
    (add,) = log.live_files(lambda add: add["partitionValues"]["month"] == month, snapshot.version)
    return add


@attrs.frozen
class Settled:
    """How a contest ended: the table's ids, what the writer did for itself, what reconcile did."""

    ids: list[int]
    alone: Publication | None
    report: Report

    def statuses(self) -> set[str]:
        return {outcome.status for outcome in self.report.outcomes}

    def decisions(self) -> str:
        return " ".join(decision for outcome in self.report.outcomes for decision in outcome.decisions)


def contest(
    path: Path, mode: Mode, publish: PublishMode, policy: Policy, winner: Winner, finished: datetime = EARLIER
) -> Settled:
    """Let a winner commit just before the put of a writer (and, together, of its colleague), and settle it."""
    log = make_table(path)
    foreign_append(log, {HERE: [1], ELSEWHERE: [2]})
    terms: dict[str, Any] = {"mode": mode, "publish": publish}
    writers = {"mine": 10} if publish is PublishMode.EACH else {"mine": 10, "mate": 11}
    buffers = [finished_at(log, stage(log, writer_spec(w, **terms), {HERE: [n]}), MINE) for w, n in writers.items()]
    held = LoserHeld(log.store, winner(log, finished))
    racing = Committer(through(held, log))
    alone = None
    if publish is PublishMode.EACH:
        # A buffer that does not fit fails its task; reconcile runs all the same.
        with contextlib.suppress(BufferDoesNotFitError):
            alone = racing.publish(buffers)
    committer = Committer(through(log.store, log)) if publish is PublishMode.EACH else racing
    report = reconcile(committer, LOAD, list(writers), publish=publish, on_conflict=policy)
    assert held.refused == 1
    assert not held.winners
    if alone is not None:
        assert alone.tally.lost_races == 1
    found = ids(path)
    again = reconcile(Committer(through(log.store, log)), LOAD, list(writers), publish=publish, on_conflict=policy)
    if not report.failures:
        found_again = {"published": "already_published"}
        expected = {found_again.get(outcome.status, outcome.status) for outcome in report.outcomes}
        assert {outcome.status for outcome in again.outcomes} == expected
    assert ids(path) == found
    return Settled(found, alone, report)


def with_mate(publish: PublishMode, *expected: int) -> list[int]:
    """The ids expected, and the colleague's 11 beside the writer's 10 where they publish together."""
    together = publish is PublishMode.TOGETHER and 10 in expected
    return sorted([*expected, 11] if together else expected)


# -- append --------------------------------------------------------------------------------------------------------


@POLICIES
@EACH_OR_TOGETHER
@pytest.mark.parametrize(
    ("winner", "expected"),
    [
        pytest.param(writer_appends(ELSEWHERE), (1, 2, 10, 20), id="over an append elsewhere"),
        pytest.param(writer_replaces(ELSEWHERE), (1, 10, 20), id="over an overwrite elsewhere"),
        pytest.param(writer_appends(HERE), (1, 2, 10, 20), id="over an append in its partition"),
        pytest.param(foreigner_appends(HERE), (1, 2, 10, 20), id="over a foreign append in its partition"),
        pytest.param(writer_replaces(HERE), (2, 10, 20), id="over an overwrite of its partition"),
        pytest.param(foreigner_deletes(HERE), (2, 10), id="over a delete in its partition"),
        pytest.param(foreigner_compacts, (1, 2, 10), id="over a compaction of its partition"),
        pytest.param(foreigner_vacuums, (1, 2, 10), id="over a vacuum"),
        pytest.param(foreigner_alters(), (1, 2, 10), id="over a nullable column added"),
    ],
)
def test_append_rebases(
    tmp_path: Path, publish: PublishMode, policy: Policy, winner: Winner, expected: tuple[int, ...]
) -> None:
    settled = contest(tmp_path, Append(), publish, policy, winner, finished=LATER)
    assert settled.ids == with_mate(publish, *expected)
    assert settled.decisions() == ""
    if settled.alone is not None:
        assert settled.alone.status is Status.PUBLISHED


# -- overwrites: no true conflict ----------------------------------------------------------------------------------


@POLICIES
@EACH_OR_TOGETHER
@OVERWRITES
@pytest.mark.parametrize(
    ("winner", "expected"),
    [
        pytest.param(writer_appends(ELSEWHERE), (2, 10, 20), id="over an append elsewhere"),
        pytest.param(writer_replaces(ELSEWHERE), (10, 20), id="over an overwrite elsewhere"),
        pytest.param(foreigner_deletes(ELSEWHERE), (10,), id="over a delete elsewhere"),
        pytest.param(foreigner_compacts, (2, 10), id="over a compaction of its partition"),
        pytest.param(foreigner_vacuums, (2, 10), id="over a vacuum"),
        pytest.param(foreigner_alters(), (2, 10), id="over a nullable column added"),
    ],
)
def test_overwrite_rebases(
    tmp_path: Path, mode: Mode, publish: PublishMode, policy: Policy, winner: Winner, expected: tuple[int, ...]
) -> None:
    settled = contest(tmp_path, mode, publish, policy, winner, finished=LATER)
    assert settled.ids == with_mate(publish, *expected)
    assert settled.decisions() == ""
    if settled.alone is not None:
        assert settled.alone.status is Status.PUBLISHED


# -- overwrites: true conflicts ------------------------------------------------------------------------------------

HERE_MEANWHILE = {
    "an append": (writer_appends(HERE), (1, 2, 20)),
    "a foreign append": (foreigner_appends(HERE), (1, 2, 20)),
    "an overwrite": (writer_replaces(HERE), (2, 20)),
    "a foreign delete": (foreigner_deletes(HERE), (2,)),
}
REFUSED = r"version 2 \(DELETE\) changed .* what it would have done to their rows"
FAILED = r"version 2 \(.*\) changed month=2019-01.*buffers are kept"


def cases() -> Iterator[Any]:
    """Policy, winner and when it finished; then the ids, the status, and what is said of the winner."""
    last = Policy.LAST_WRITER_WINS
    for name, (winner, left) in HERE_MEANWHILE.items():
        replaced = ((2, 10), "published", "is replaced: it counts earlier")
        if name.endswith("append"):
            later = ((2, 10, 20), "published", "is kept: it appended later")
        elif name == "an overwrite":
            later = ((2, 20), "set_aside", "replaced the partition later")
        else:
            later = ((2,), "refused", REFUSED)
        for when, finished, of_last in (("earlier", EARLIER, replaced), ("later", LATER, later)):
            id_ = f"{name} that finished {when}"
            yield pytest.param(last, winner, finished, *of_last, id=f"last: {id_}")
            yield pytest.param(Policy.FIRST_WRITER_WINS, winner, finished, left, "set_aside", "", id=f"first: {id_}")
            yield pytest.param(Policy.FAIL, winner, finished, left, "refused", FAILED, id=f"fail: {id_}")


@EACH_OR_TOGETHER
@WHOLE_TOO
@pytest.mark.parametrize(("policy", "winner", "finished", "expected", "status", "said"), cases())
def test_a_true_conflict_of_an_overwrite_is_settled_as_its_policy_says(
    tmp_path: Path,
    mode: Mode,
    publish: PublishMode,
    policy: Policy,
    winner: Winner,
    finished: datetime,
    expected: tuple[int, ...],
    status: str,
    said: str,
) -> None:
    settled = contest(tmp_path, mode, publish, policy, winner, finished)
    # The writer that published for itself found the conflict and left it to reconcile; together, there is none such.
    assert settled.alone is None or (settled.alone.status is Status.CONFLICTED and settled.alone.conflicts)
    wiped = policy is Policy.LAST_WRITER_WINS and status != "refused" and mode == Overwrite()
    assert settled.ids == [n for n in with_mate(publish, *expected) if not (n == 2 and wiped)]
    assert settled.statuses() == {status}
    if status == "refused":
        with pytest.raises(ConflictError, match=said):
            settled.report.raise_for_failures()
    else:
        assert "month=2019-01: version 2 (" in settled.decisions()
        assert said in settled.decisions()


# -- a winner that changes the table -------------------------------------------------------------------------------


@POLICIES
@EACH_OR_TOGETHER
@pytest.mark.parametrize("mode", [Append(), Overwrite(), OverwritePartitions(), WHERE], ids=lambda mode: mode.name)
def test_every_write_is_refused_where_a_winner_added_a_check(
    tmp_path: Path, mode: Mode, publish: PublishMode, policy: Policy
) -> None:
    adds_check = foreigner_alters(**{"delta.constraints.positive": "id > 0"})
    settled = contest(tmp_path, mode, publish, policy, adds_check)
    assert settled.ids == [1, 2]
    assert settled.statuses() == {"refused"}
    with pytest.raises(BufferDoesNotFitError, match=r"CHECK positive \(id > 0\) was added.*seen at version 2.*Clear"):
        settled.report.raise_for_failures()
