"""What a commit decides, cell by cell, on real tables: the cells that the histories (test_histories.py) have not.

In every contest the loser's create-only PUT is held until the winner has committed, and is refused by the real store.
With ``each`` the writer settles for itself; with ``together`` reconcile publishes it and a colleague, who writes the
same partition, in one version.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.buffers.beginnings import Beginning
from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.exceptions import ConflictError, TerminalError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import Append, Mode, Overwrite, OverwritePartitions, ReplaceWhere
from airflow_provider_onelake.writes.reconcile import reconcile
from tests.support.commits import committer, statuses
from tests.support.merges import MergeByHand, merged, source_of
from tests.support.stores import LoserHeld, through
from tests.support.tables import (
    LOAD,
    OVERWRITE,
    append_files,
    change_metadata,
    finished_at,
    foreign_append,
    foreign_commit,
    ids,
    landed_at,
    make_table,
    newest,
    stage,
    table_ids,
    writer_spec,
)

HERE, ELSEWHERE = "2019-01", "2019-02"
MINE = datetime.now(UTC) - timedelta(hours=2)
EARLIER, LATER = MINE - timedelta(hours=1), MINE + timedelta(hours=1)
THEIRS = attrs.evolve(LOAD, dag="other_dag")
LAST, FIRST, FAIL = Policy.LAST_WRITER_WINS, Policy.FIRST_WRITER_WINS, Policy.FAIL

# What a winner puts into the table; it is given the log and when its work was finished, and returns its commit.
Winner = Callable[[DeltaLog, datetime], Callable[[], object]]

WHERE = ReplaceWhere(f"month = '{HERE}'")
EACH_OR_TOGETHER = pytest.mark.parametrize("publish", list(PublishMode))


def by_writer(month: str | None, **terms: Any) -> Winner:
    def winner(log: DeltaLog, finished: datetime) -> Callable[[], object]:
        spec = writer_spec("theirs", **{"load": THEIRS, **terms})
        buffer = finished_at(log, stage(log, spec, {month: [20]}), finished)
        return lambda: committer(log).publish([buffer])

    return winner


def by_foreigner(act: Callable[[DeltaLog], int]) -> Winner:
    return lambda log, finished: lambda: landed_at(log, act(through(log.store, log)), finished)


def foreign(operation: str, month: str = "", moved: dict[str | None, list[int]] | None = None) -> Winner:
    """A commit that removes the file of a month, or moves its rows."""

    def act(log: DeltaLog) -> int:
        actions = append_files(log.store, "", moved or {}, operation=operation)
        files = log.live_files(lambda add: add["partitionValues"]["month"] == month, newest(log).version)
        actions += [{"remove": {**file, "deletionTimestamp": 1}} for file in files]
        for action in actions:
            for file in (action[kind] for kind in ("add", "remove") if kind in action):
                file["dataChange"] = moved is None
        return foreign_commit(log, actions)

    return by_foreigner(act)


def alters(log: DeltaLog, configuration: dict[str, str]) -> int:
    schema = json.loads(newest(log).metadata["schemaString"])
    schema["fields"].append({"name": "fare", "type": "double", "nullable": True, "metadata": {}})
    change_metadata(log, schemaString=json.dumps(schema), configuration=configuration)
    return newest(through(log.store, log)).version


COMPACTS = foreign("OPTIMIZE", HERE, {HERE: [1]})
VACUUMS = foreign("VACUUM START")
ADDS_COLUMN = by_foreigner(lambda log: alters(log, {}))
ADDS_CHECK = by_foreigner(lambda log: alters(log, {"delta.constraints.positive": "id > 0"}))
APPENDS = by_foreigner(lambda log: foreign_append(log, {HERE: [20]}))


def table(path: Path) -> DeltaLog:
    log = make_table(path)
    foreign_append(log, {HERE: [1], ELSEWHERE: [2]})
    return log


def contest(
    path: Path, mode: Mode, publish: PublishMode, policy: Policy, winner: Winner, finished: datetime = EARLIER
) -> tuple[str, list[int]]:
    """Let a winner commit just before the put of a writer (together: also of its colleague).

    :returns: the writer's status, and the table's ids without those of the colleague.
    """
    log = table(path)
    terms: dict[str, Any] = {"mode": mode, "publish": publish}
    writers = {"mine": 10} if publish is PublishMode.EACH else {"mine": 10, "mate": 11}
    buffers = [finished_at(log, stage(log, writer_spec(w, **terms), {HERE: [n]}), MINE) for w, n in writers.items()]
    held = LoserHeld(log.store, winner(log, finished))
    if publish is PublishMode.EACH:
        try:
            status = committer(log, held).publish(buffers, policy).status.value
        except TerminalError:
            status = "refused"
    else:
        report = reconcile(committer(log, held), LOAD, list(writers), publish=publish, on_conflict=policy)
        (status,) = set(statuses(report).values())
    assert (held.refused, held.winners) == (1, [])
    found = ids(path)
    assert (10 in found) == (status == "published")
    assert (11 in found) == (status == "published" and "mate" in writers)
    again = reconcile(committer(log), LOAD, list(writers), publish=publish, on_conflict=policy)
    assert set(statuses(again).values()) == {"already_published" if status == "published" else status}
    assert ids(path) == found
    return status, [number for number in found if number != 11]


@EACH_OR_TOGETHER
@pytest.mark.parametrize(
    ("winner", "expected"),
    [
        pytest.param(by_writer(HERE), [1, 2, 10, 20], id="append"),
        pytest.param(by_writer(HERE, **OVERWRITE), [2, 10, 20], id="overwrite"),
        pytest.param(APPENDS, [1, 2, 10, 20], id="foreign append"),
        pytest.param(foreign("DELETE", HERE), [2, 10], id="delete"),
        pytest.param(COMPACTS, [1, 2, 10], id="compaction"),
        pytest.param(ADDS_COLUMN, [1, 2, 10], id="a column added"),
    ],
)
def test_an_append_has_no_conflict(tmp_path: Path, publish: PublishMode, winner: Winner, expected: list[int]) -> None:
    assert contest(tmp_path, Append(), publish, FAIL, winner, LATER) == ("published", expected)


@EACH_OR_TOGETHER
@pytest.mark.parametrize("mode", [OverwritePartitions(), WHERE], ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("winner", "expected"),
    [
        pytest.param(by_writer(ELSEWHERE), [2, 10, 20], id="append elsewhere"),
        pytest.param(by_writer(ELSEWHERE, **OVERWRITE), [10, 20], id="overwrite elsewhere"),
        pytest.param(by_writer(None, **OVERWRITE), [2, 10, 20], id="overwrite of NULL"),
        pytest.param(foreign("DELETE", ELSEWHERE), [10], id="delete elsewhere"),
        pytest.param(COMPACTS, [2, 10], id="compaction"),
        pytest.param(VACUUMS, [2, 10], id="vacuum"),
        pytest.param(ADDS_COLUMN, [2, 10], id="a column added"),
    ],
)
def test_an_overwrite_is_not_in_conflict_with_what_changes_no_row_that_it_replaces(
    tmp_path: Path, mode: Mode, publish: PublishMode, winner: Winner, expected: list[int]
) -> None:
    assert contest(tmp_path, mode, publish, FAIL, winner, LATER) == ("published", expected)


@EACH_OR_TOGETHER
@pytest.mark.parametrize("mode", [Append(), Overwrite(), OverwritePartitions(), WHERE], ids=lambda mode: mode.name)
def test_every_write_is_refused_where_a_winner_added_a_check(tmp_path: Path, mode: Mode, publish: PublishMode) -> None:
    assert contest(tmp_path, mode, publish, LAST, ADDS_CHECK) == ("refused", [1, 2])


@EACH_OR_TOGETHER
@pytest.mark.parametrize("mode", [Overwrite(), OverwritePartitions(), WHERE], ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("winner", "left"),
    [
        pytest.param(by_writer(HERE), [1, 2, 20], id="append"),
        pytest.param(APPENDS, [1, 2, 20], id="foreign append"),
        pytest.param(by_writer(HERE, **OVERWRITE), [2, 20], id="overwrite"),
        pytest.param(foreign("DELETE", HERE), [2], id="delete"),
    ],
)
def test_each_policys_decision(
    tmp_path: Path, mode: Mode, publish: PublishMode, winner: Winner, left: list[int]
) -> None:
    # Whoever replaces the table has rows replaced elsewhere, too, which the winner has not.
    superseded = left == [2, 20] and mode != Overwrite()
    cells = {
        (LAST, EARLIER): ("published", [10] if mode == Overwrite() else [2, 10]),
        (LAST, LATER): ("superseded" if superseded else "refused", left),
        (FIRST, EARLIER): ("set_aside", left),
        (FIRST, LATER): ("set_aside", left),
        (FAIL, EARLIER): ("refused", left),
        (FAIL, LATER): ("refused", left),
    }
    decided = {
        (policy, finished): contest(tmp_path / f"{number}", mode, publish, policy, winner, finished)
        for number, (policy, finished) in enumerate(cells)
    }
    assert decided == cells


@pytest.mark.parametrize(("dag", "status"), [("a", "published"), ("z", "superseded")])
def test_of_two_of_one_time_the_greater_id_is_later(tmp_path: Path, dag: str, status: str) -> None:
    winner = by_writer(HERE, load=attrs.evolve(LOAD, dag=dag), **OVERWRITE)
    assert contest(tmp_path, WHERE, PublishMode.EACH, LAST, winner, MINE)[0] == status


def staged(log: DeltaLog, **terms: Any) -> Buffer:
    return finished_at(log, stage(log, writer_spec("mine", **{**OVERWRITE, **terms}), {HERE: [10]}), MINE)


@pytest.mark.parametrize("read_it", [False, True])
def test_what_a_writer_published_itself_before_never_counts(tmp_path: Path, read_it: bool) -> None:
    log = table(tmp_path)
    began = Beginning(1, newest(log).table_id)
    first = finished_at(log, stage(log, writer_spec("mine", **OVERWRITE), {HERE: [9]}), LATER)
    if read_it:
        committer(log).publish([first])
    rerun = staged(through(log.store, log), generation=2, fingerprint="other", began=began)
    committer(log).publish([first])
    publication = committer(log).publish([rerun], FAIL)
    assert (rerun.read_version, publication.status, table_ids(log)) == (1 + read_it, "published", [2, 10])


def merges(log: DeltaLog, _: datetime) -> Callable[[], object]:
    source = source_of(log, {HERE: [20]}, "theirs")
    return lambda: merged(through(log.store, log), MergeByHand(), source)


SINCE_ITS_LOAD_BEGAN = [
    pytest.param(by_writer(HERE, load=LOAD, **OVERWRITE), {}, True, id="a rival"),
    pytest.param(by_writer(HERE, load=LOAD), {}, True, id="an append"),
    pytest.param(merges, {}, True, id="a MERGE"),
    pytest.param(by_writer(HERE, load=LOAD, **OVERWRITE), {"began": Beginning(-1)}, True, id="there was no table"),
    pytest.param(by_writer(ELSEWHERE, load=LOAD, **OVERWRITE), {}, False, id="elsewhere"),
    pytest.param(by_writer(HERE, **OVERWRITE), {}, False, id="another load"),
    pytest.param(APPENDS, {}, False, id="another engine"),
    pytest.param(
        by_writer(HERE, load=LOAD, **OVERWRITE), {"began": Beginning(1, "another")}, False, id="began on another table"
    ),
    pytest.param(by_writer(HERE, load=LOAD, **OVERWRITE), {"began": None}, False, id="nobody knows"),
    pytest.param(by_writer(HERE, load=LOAD, **OVERWRITE), {"publish": PublishMode.TOGETHER}, False, id="together"),
    pytest.param(by_writer(HERE, load=LOAD, **OVERWRITE), {"mode": Append()}, False, id="it appends"),
]


@pytest.mark.parametrize(("winner", "terms", "rival"), SINCE_ITS_LOAD_BEGAN)
def test_others_of_its_load_are_rivals(tmp_path: Path, winner: Winner, terms: dict[str, Any], rival: bool) -> None:
    log = table(tmp_path)
    began = Beginning(1, newest(log).table_id)
    winner(log, EARLIER)()
    buffer = staged(through(log.store, log), **{"began": began, **terms})
    assert buffer.read_version == 2
    if rival:
        with pytest.raises(ConflictError, match="version 2"):
            committer(log).publish([buffer], FAIL)
        assert committer(log).publish([buffer], FIRST).status == "set_aside"
    else:
        assert committer(log).publish([buffer], FAIL).status == "published"
