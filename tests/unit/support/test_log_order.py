"""The judge of the log's order: for each clause of the rule a history that it accepts, and one that it complains of."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.support.log_order import Commit, LogOrder, Outcome, Row, Rows, Write

LAST, FIRST, FAIL = "last_writer_wins", "first_writer_wins", "fail"
WHOLE, LEFT_OUT, REFUSED = Outcome
BOTH = frozenset(("p1", "p2"))


def rows(*named: str) -> Rows:
    """Rows such as ``p1a``: row ``a`` of partition p1."""
    return frozenset((name[:2], name[2:]) for name in named)


def without_a(row: Row) -> Row | None:
    return None if row[1] == "a" else row


BEFORE = rows("p1a", "p1b", "p2c")
NEW = rows("p1x", "p2y")
DELETE = Commit("DELETE", Write(changes=without_a), (9, ""))
# It is formed on version 0, which put what was there before.
MINE = Commit("mine", Write(BOTH, puts=NEW), (5, "m"), BOTH, policy=LAST, read=0, writers=frozenset("m"), load="load")


def append(*added: str, finished: Any = (9, "")) -> Commit:
    return Commit("an append", Write(puts=rows(*added)), finished)


def overwrite(*added: str, finished: Any = (9, "o"), parts: frozenset[Any] = BOTH, **more: Any) -> Commit:
    return Commit("an overwrite", Write(parts, puts=rows(*added)), finished, parts, **more)


def history(*commits: Commit) -> LogOrder:
    """A table, and what was done to it: each whole, but what has a policy was left out."""
    order = LogOrder()
    there: Rows = frozenset()
    for commit in (Commit("the first", Write(puts=BEFORE), (0, "")), *commits):
        there = there if commit.policy is not None else commit.write.on(there)
        order.take_in(commit, there)
    return order


RESTORE = attrs.evolve(overwrite(*("p1a", "p1b", "p2c")), replaces=frozenset(), restores=True)
IN_P9 = attrs.evolve(MINE, write=Write(frozenset(("p9",)), puts=rows("p9x")), replaces=frozenset(("p9",)))
TRUNCATED = overwrite(parts=frozenset(("p1", "p2", "p9")))
COLLEAGUE = attrs.evolve(overwrite("p1k", parts=frozenset(("p1",)), finished=(3, "k")), writers=frozenset("k"))
OF_LOAD = attrs.evolve(COLLEAGUE, load="load")
FORMED_ON_IT = attrs.evolve(MINE, read=1, began=0)
SAYS_NOTHING = attrs.evolve(TRUNCATED, replaces=frozenset())


@pytest.mark.parametrize(
    ("before", "mine", "last", "first", "fail"),
    [
        pytest.param([], MINE, WHOLE, WHOLE, WHOLE, id="nobody else"),
        pytest.param([append("p3z")], MINE, WHOLE, WHOLE, WHOLE, id="elsewhere"),
        pytest.param([append("p1z", finished=(3, ""))], MINE, WHOLE, LEFT_OUT, REFUSED, id="an earlier append"),
        pytest.param([append("p1z")], MINE, REFUSED, LEFT_OUT, REFUSED, id="a later append"),
        pytest.param([append("p1z", finished=(5, ""))], MINE, WHOLE, LEFT_OUT, REFUSED, id="a tie: without an id"),
        pytest.param([append("p1z", finished=(5, "a"))], MINE, WHOLE, LEFT_OUT, REFUSED, id="a tie: a smaller id"),
        pytest.param([append("p1z", finished=(5, "z"))], MINE, REFUSED, LEFT_OUT, REFUSED, id="a tie: a greater id"),
        pytest.param([append("p1z", finished=None)], MINE, REFUSED, LEFT_OUT, REFUSED, id="no time"),
        pytest.param(
            [append("p1z", finished=(3, ""))],
            attrs.evolve(MINE, finished=None),
            *(REFUSED, LEFT_OUT, REFUSED),
            id="a copied log",
        ),
        pytest.param([DELETE], MINE, REFUSED, LEFT_OUT, REFUSED, id="a later DELETE"),
        pytest.param([Commit("OPTIMIZE")], MINE, WHOLE, WHOLE, WHOLE, id="a compaction"),
        pytest.param([DELETE], attrs.evolve(MINE, read=1), WHOLE, WHOLE, WHOLE, id="formed on it"),
        pytest.param([overwrite("p1o", "p2o")], MINE, LEFT_OUT, LEFT_OUT, REFUSED, id="superseded"),
        pytest.param(
            [overwrite("p1o", parts=frozenset(("p1",))), overwrite("p2o", parts=frozenset(("p2",)))],
            *(MINE, LEFT_OUT, LEFT_OUT, REFUSED),
            id="superseded by two together",
        ),
        pytest.param(
            [overwrite("p1o", parts=frozenset(("p1",)))], MINE, REFUSED, LEFT_OUT, REFUSED, id="superseded in a part"
        ),
        pytest.param(
            [overwrite("p1o", "p2o"), append("p1z")], MINE, LEFT_OUT, LEFT_OUT, REFUSED, id="superseded, then an append"
        ),
        pytest.param([overwrite("p1o", "p2o"), RESTORE], MINE, REFUSED, LEFT_OUT, REFUSED, id="then a RESTORE"),
        pytest.param(
            [overwrite("p1o", "p2o"), attrs.evolve(RESTORE, write=Write())],
            *(MINE, REFUSED, LEFT_OUT, REFUSED),
            id="then a RESTORE that changes nothing",
        ),
        pytest.param([TRUNCATED], IN_P9, LEFT_OUT, LEFT_OUT, REFUSED, id="replaced where there was nothing"),
        pytest.param([SAYS_NOTHING], IN_P9, WHOLE, WHOLE, WHOLE, id="nothing was replaced where there was nothing"),
        pytest.param(
            [attrs.evolve(SAYS_NOTHING, may_replace=frozenset(("p9",)))],
            *(IN_P9, REFUSED, LEFT_OUT, REFUSED),
            id="the log does not say whether it was replaced",
        ),
        pytest.param(
            [attrs.evolve(append("p3z"), may_change=BOTH)],
            *(MINE, REFUSED, LEFT_OUT, REFUSED),
            id="the log does not say where it changed rows",
        ),
        pytest.param(
            [overwrite(parts=frozenset(("p9",)))], IN_P9, WHOLE, WHOLE, WHOLE, id="what changes no rows replaces none"
        ),
        pytest.param([COLLEAGUE], FORMED_ON_IT, WHOLE, WHOLE, WHOLE, id="another load, before the read version"),
        pytest.param([OF_LOAD], FORMED_ON_IT, WHOLE, LEFT_OUT, REFUSED, id="its load, since that began"),
        pytest.param(
            [OF_LOAD], attrs.evolve(MINE, read=1, began=1), WHOLE, WHOLE, WHOLE, id="its load, before it began"
        ),
        pytest.param([OF_LOAD], attrs.evolve(MINE, read=1), WHOLE, WHOLE, WHOLE, id="its load, published together"),
        pytest.param(
            [attrs.evolve(OF_LOAD, writers=frozenset("m"))], FORMED_ON_IT, WHOLE, WHOLE, WHOLE, id="its own writer"
        ),
        pytest.param(
            [attrs.evolve(OF_LOAD, finished=(9, "k"))],
            attrs.evolve(MINE, allies=frozenset("k")),
            *(WHOLE, WHOLE, WHOLE),
            id="its allies",
        ),
        pytest.param(
            [attrs.evolve(MINE, policy=FIRST, who="left out", finished=(9, "o"), writers=frozenset("o"), read=-1)],
            attrs.evolve(MINE, finished=(1, "m")),
            *(WHOLE, WHOLE, WHOLE),
            id="a write that was left out",
        ),
    ],
)
def test_what_each_policy_makes_of_a_write(
    before: list[Commit], mine: Commit, last: Outcome, first: Outcome, fail: Outcome
) -> None:
    """Everything else that may have become of it is complained of."""
    for policy, should in ((LAST, last), (FIRST, first), (FAIL, fail)):
        commit = attrs.evolve(mine, policy=policy)
        for became in (WHOLE, LEFT_OUT):
            order = history(*before)
            there = order.states[-1]
            order.take_in(commit, commit.write.on(there) if became is WHOLE else there)
            assert (order.complaints == []) is (became is should), (policy, became, order.complaints)


@pytest.mark.parametrize(
    ("commit", "there", "complaint"),
    [
        (append("p1z"), BEFORE, "is not done whole: it lacks ('p1', 'z')"),
        (append("p1z"), rows("p1z"), "is not done whole: it lacks"),
        (MINE, rows("p1x", "p2c"), "is not done whole: it lacks ('p2', 'y') and has too much ('p2', 'c')"),
        (MINE, NEW | BEFORE, "and has too much ('p1', 'a'), ('p1', 'b'), ('p2', 'c')"),
        (MINE, BEFORE, "is left out, and should be published whole: there is no conflict"),
        (Commit("OPTIMIZE"), rows("p1a"), "is not done whole"),
        (DELETE, BEFORE, "has too much ('p1', 'a')"),
    ],
)
def test_a_version_that_is_not_its_write_done_whole_is_complained_of(
    commit: Commit, there: Rows, complaint: str
) -> None:
    order = history()
    order.take_in(commit, there)
    assert complaint in order.complaints[0]
    assert order.complaints[0].startswith(f"Version 1 ({commit.who}) ")
    # What follows is judged on top of what is there.
    order.take_in(append("p3z"), there | rows("p3z"))
    assert len(order.complaints) == 1


def test_rows_that_are_spared_stay_and_are_no_rows_that_the_write_would_remove() -> None:
    spared = rows("p2c")
    commit = attrs.evolve(MINE, write=Write(BOTH, spares=spared, puts=rows("p1x")))
    order = history()
    order.take_in(commit, rows("p1x", "p2c"))
    assert order.complaints == []
    later = history(overwrite("p1o", parts=frozenset(("p1",))))
    assert later.ruling(commit)[0] is LEFT_OUT
    assert later.ruling(attrs.evolve(commit, write=Write(BOTH, puts=rows("p1x"))))[0] is REFUSED


def test_the_ruling_of_an_older_version_is_asked_of_what_was_there_then() -> None:
    order = history(DELETE)
    assert order.ruling(MINE, 1) == (WHOLE, "")
    assert order.ruling(MINE) == (REFUSED, "version 1 (DELETE, later) changed p1, and nobody has replaced p1, p2 since")
