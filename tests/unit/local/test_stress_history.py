"""The judge of whole writes: it follows every order that a policy allows, and finds what no order explains."""

from __future__ import annotations

import pytest

from tests.live.stress.history import Effect, History, State, Write
from tests.live.stress.rivals import Told, judge_told
from tests.live.stress.shape import LONE, POLICIES, RIVALS, Load, Row

LAST, FIRST, FAIL, LAST_BY_PART, FIRST_BY_PART = POLICIES
BOTH = frozenset(("c0", "c1"))


def rows(load: str, *parts: str) -> State:
    return frozenset((part, load, "w", n, n) for part in parts for n in range(2))


OLD, NEW, MORE, OTHER = rows("old", "c0", "c1"), rows("new", "c0", "c1"), rows("more", "c0"), rows("other", "c0")


def append(added: State, finished: float = 1) -> Write:
    return Write("an append", Effect(puts=added), finished)


def overwrite(policy: str, finished: float = 5, read: int = 0, load: str = "load") -> Write:
    return Write("an overwrite", Effect(BOTH, puts=NEW), finished, policy, read, load)


def without_id_1(row: Row) -> Row | None:
    return None if row[0] == "c0" and row[3] == 1 else row


def delete(finished: float = 1) -> Write:
    return Write("a DELETE", Effect(changes=without_id_1), finished)


def replaced(finished: float = 9) -> Write:
    return Write("an INSERT OVERWRITE", Effect(frozenset(("c0",)), puts=OTHER), finished)


def history(*versions: tuple[Write | None, State]) -> History:
    """The old rows, and what came then."""
    found = History()
    for version, (write, there) in enumerate(((append(OLD), OLD), *versions)):
        found.take_in(write, there, landed=version)
    return found


LEFT = frozenset(row for row in OLD if row[0] == "c1")
DELETED = frozenset(row for row in OLD if without_id_1(row))
NEW_IN_C1 = frozenset(row for row in NEW if row[0] == "c1")


@pytest.mark.parametrize(
    ("winner", "there", "write", "after"),
    [
        pytest.param(append(MORE, 9), OLD | MORE, overwrite(LAST), NEW | MORE, id="a later append stays beside it"),
        pytest.param(append(MORE, 2), OLD | MORE, overwrite(LAST), NEW, id="an earlier append is replaced"),
        pytest.param(append(MORE, 5), OLD | MORE, overwrite(LAST), NEW, id="at the same time: before"),
        pytest.param(append(MORE, 5), OLD | MORE, overwrite(LAST), NEW | MORE, id="at the same time: after"),
        pytest.param(delete(2), DELETED, overwrite(LAST), NEW, id="an earlier DELETE"),
        pytest.param(replaced(), LEFT | OTHER, overwrite(LAST), NEW_IN_C1 | OTHER, id="superseded in one partition"),
        pytest.param(delete(2), DELETED, overwrite(FIRST), DELETED, id="the first writer stays"),
        pytest.param(
            delete(9), DELETED, overwrite(LAST_BY_PART), (DELETED - LEFT) | NEW_IN_C1, id="last per partition"
        ),
        pytest.param(
            delete(2), DELETED, overwrite(FIRST_BY_PART), (DELETED - LEFT) | NEW_IN_C1, id="first per partition"
        ),
        pytest.param(delete(9), DELETED, overwrite(FAIL, read=1), NEW, id="formed on top of it"),
        pytest.param(None, OLD, overwrite(FAIL), NEW, id="a compaction is in nobody's way"),
    ],
)
def test_what_a_policy_allows_is_right(winner: Write | None, there: State, write: Write, after: State) -> None:
    assert history((winner, there), (write, after)).problems == []


@pytest.mark.parametrize(
    ("winner", "there", "write", "after", "problem"),
    [
        pytest.param(append(MORE), OLD, overwrite(LAST), NEW, "Version 1 (an append) is not what", id="a lost append"),
        pytest.param(
            None, LEFT, overwrite(LAST), NEW, "Version 1 (no write of rows) is not", id="a compaction that loses"
        ),
        pytest.param(
            None, OLD, overwrite(LAST), NEW_IN_C1 | (OLD - LEFT), "Version 2 (an overwrite) is not", id="half of it"
        ),
        pytest.param(
            None, OLD, overwrite(LAST), NEW | OLD, "Version 2 (an overwrite) is not", id="the old rows as well"
        ),
        pytest.param(append(MORE, 9), OLD | MORE, overwrite(LAST), NEW, "is not what", id="it replaced a later append"),
        pytest.param(
            append(MORE, 2), OLD | MORE, overwrite(LAST), NEW | MORE, "is not", id="it kept an earlier append"
        ),
        pytest.param(delete(9), DELETED, overwrite(LAST), NEW, "should have been refused", id="before a DELETE"),
        pytest.param(delete(2), DELETED, overwrite(FIRST), NEW, "is not what", id="over the first writer"),
        pytest.param(
            delete(2), DELETED, overwrite(FAIL), NEW, "passes over version 1 (a DELETE)", id="over a conflict"
        ),
        pytest.param(
            append(MORE, 9), OLD | MORE, overwrite(FIRST_BY_PART), NEW, "is not", id="over a partition's first"
        ),
    ],
)
def test_what_no_order_of_whole_writes_leaves_is_found(
    winner: Write | None, there: State, write: Write, after: State, problem: str
) -> None:
    assert problem in history((winner, there), (write, after)).problems[0]


def test_writers_of_one_load_are_rivals_also_one_after_another() -> None:
    colleague = Write("its colleague", Effect(puts=MORE), 1, load="load")
    published = history((colleague, OLD | MORE), (overwrite(FAIL, read=1), NEW))
    set_aside = history((colleague, OLD | MORE), (overwrite(FIRST, read=1), OLD | MORE))
    assert "passes over version 1 (its colleague)" in published.problems[0]
    assert set_aside.problems == []
    # Once a compaction has moved its rows, nobody can tell whose they are.
    assert history((colleague, OLD | MORE), (None, OLD | MORE), (overwrite(FAIL, read=2), NEW)).problems == []


LOAD = Load(RIVALS, "r", "r", "0", LAST)
MINE = frozenset(LOAD.rows("first"))
REFUSED = "In t, version 1 (DELETE) changed part=c0, which writers 'first' replace on the ground of version 0"


def told(status: str, policy: str = LAST, **more: object) -> list[str]:
    load = Load(RIVALS, "r", "r", "0", policy)
    write = Write("first of r", Effect(BOTH, puts=MINE), 5, LAST, 1, "r")
    seen = history(
        (delete(9), DELETED), (write, MINE), (replaced(), frozenset(r for r in MINE if r[0] == "c1") | OTHER)
    )
    assert seen.problems == []
    return list(judge_told(Told(load, "first", status, **more), seen, {"r/first": 2}))  # type: ignore[arg-type]


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
    ("policy", "error", "problem"),
    [
        (LAST, REFUSED, None),
        (FAIL, REFUSED, None),
        (FIRST, REFUSED, "is refused, which its policy does not do"),
        (LAST, "The disk is full", "is refused, and names no conflict"),
        (FAIL, REFUSED.replace("c0", "c1"), "is refused because of version 1, which changed nothing in c1"),
        (FAIL, REFUSED.replace("version 1", "version 9"), "is refused because of version 9, which changed nothing"),
        (LAST, REFUSED.replace("version 1", "version 2"), "version 2 (an INSERT OVERWRITE), which does the same after"),
    ],
)
def test_a_red_run_is_right_only_where_a_policy_refuses_a_conflict_that_is_there(
    policy: str, error: str, problem: str | None
) -> None:
    load = Load(LONE, "r", "r", "0", policy)
    seen = history((delete(9), DELETED), (replaced(), OTHER | LEFT))
    found = list(judge_told(Told(load, "lone", "refused", error=error), seen, {}))
    assert found == [] if problem is None else problem in found[0]
