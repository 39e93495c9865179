"""The judge of the contested table: what was told of a load is held against the order of the log."""

from __future__ import annotations

import attrs
import pytest

from tests.live.stress.rivals import Contest, Told, judge_told
from tests.live.stress.shape import LONE, RIVALS, Load, Row
from tests.support.log_order import Commit, Rows, Write

LAST, FIRST, FAIL = "last_writer_wins", "first_writer_wins", "fail"
BOTH, C0 = frozenset(("c0", "c1")), frozenset(("c0",))


def rows(load: str, *parts: str) -> Rows:
    return frozenset((part, load, "w", n, n) for part in parts for n in range(2))


def without_id_1(row: Row) -> Row | None:
    return None if row[0] == "c0" and row[3] == 1 else row


OLD = Commit("an append", Write(puts=rows("old", "c0", "c1")), (1, ""))
DELETE = Commit("a DELETE", Write(changes=without_id_1), (9, ""))
OVERWRITE = Commit("an INSERT OVERWRITE", Write(C0, puts=rows("other", "c0")), (9, ""), C0)
LOAD = Load(RIVALS, "r", "r", "0", LAST)
MINE = Commit(
    *("first of r", Write(BOTH, puts=frozenset(LOAD.rows("first"))), (5, "first"), BOTH),
    policy=LAST,
    read=1,
    writers=frozenset(("first",)),
    load="r",
)


def seen(*commits: Commit) -> Contest:
    """A table to which this was done, one version a second."""
    found, there = Contest(), frozenset[Row]()
    for second, commit in enumerate(commits):
        there = commit.write.on(there)
        found.order.take_in(commit, there)
        found.landed.append(second)
    return found


def told(status: str, policy: str = LAST, **more: object) -> list[str]:
    load = attrs.evolve(LOAD, policy=policy)
    contest = seen(OLD, DELETE, MINE, OVERWRITE)
    assert contest.order.complaints == []
    return list(judge_told(Told(load, "first", status, **more), contest, {"r/first": 2}, [MINE]))  # type: ignore[arg-type]


def test_what_was_told_of_a_write_is_held_against_the_log() -> None:
    assert told("published", version=2, rows=24, asked=2.5) == []
    gone = "is published, though 12 of its rows were gone by version 3, before anybody asked"
    assert told("published", version=2, rows=24, asked=3.5) == [gone]
    assert told("published", version=2, rows=24, asked=3.5, story=("some of them were replaced",)) == []
    assert told("superseded", version=2, rows=24) == []
    assert told("published", version=1, rows=24) == ["is published in version 1, and the log says 2"]
    assert told("published", version=2, rows=12) == ["is published with 12 rows in version 2, and 24 came with it"]
    assert told("set_aside", policy=FIRST) == ["is set_aside, and has rows in version 2"]
    assert told("missing", error="no buffer") == ["is missing: no buffer"]


@pytest.mark.parametrize(
    ("policy", "read", "is_right"),
    [(LAST, 0, True), (FAIL, 0, True), (FIRST, 0, False), (LAST, 1, False), (FAIL, 1, False)],
)
def test_a_red_run_is_right_only_where_its_policy_refuses_what_it_has_staged(
    policy: str, read: int, is_right: bool
) -> None:
    load = Load(LONE, "r", "r", "0", policy)
    lone = Commit("lone", Write(C0, puts=frozenset(load.rows("lone"))), (5, "lone"), C0, policy=policy, read=read)
    found = list(judge_told(Told(load, "lone", "refused", error="why"), seen(OLD, DELETE), {}, [lone]))
    assert found == ([] if is_right else ["is refused, and its policy refuses it at no version: why"])


def test_a_write_that_was_left_out_is_told_as_set_aside_or_superseded() -> None:
    contest = seen(OLD, attrs.evolve(OVERWRITE, write=Write(BOTH, puts=rows("other", *BOTH)), replaces=BOTH))
    contest.order.take_in(attrs.evolve(MINE, read=0), contest.order.states[-1])
    assert contest.order.complaints == []
    assert list(judge_told(Told(LOAD, "first", "superseded", 2, 0), contest, {"r/first": 2}, [])) == []
    wrong = ["is set aside, which its policy does not do"]
    assert list(judge_told(Told(LOAD, "first", "set_aside", 2, 0), contest, {"r/first": 2}, [])) == wrong
