"""The seeded bugs name promises and tests that are there. ``make seeded-bugs`` sees these tests fail."""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import attrs
import pytest

from tests.seeded_bugs.bug import REPOSITORY, seeded
from tests.seeded_bugs.catalogue import catalogue
from tests.simulation.schedules import Kept, Schedules, kept_seeds


def test_there_are_at_most_a_hundred_and_no_two_have_the_same_name() -> None:
    assert len(catalogue()) <= 100
    assert [name for name, count in Counter(bug.name for bug in catalogue()).items() if count > 1] == []


def test_the_tests_that_a_bug_fails_are_there() -> None:
    named = {(bug.name, node) for bug in catalogue() for node in bug.fails}
    assert {name for name, _ in named} == {bug.name for bug in catalogue()}, "a bug without a test, or without a seed"
    assert sorted(node for _, node in named if not _is_there(node)) == []


def test_every_kept_seed_shows_a_bug() -> None:
    kinds = {(bug.name, bug.shown_by) for bug in catalogue() if isinstance(bug.shown_by, Schedules)}
    assert {(kept.bug, kept.kind) for kept in kept_seeds()} == kinds
    assert max(Counter(kept.bug for kept in kept_seeds()).values()) == 1


def _is_there(node: str) -> bool:
    file, _, name = node.partition("::")
    return name.partition("[")[0] in _tests_of(file)


@cache
def _tests_of(file: str) -> frozenset[str]:
    tree = ast.parse((REPOSITORY / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


# -- how a bug is put in -----------------------------------------------------------------------------------------------


def _plain(number: int, *, more: int = 1) -> int:
    return number + more


@contextmanager
def _context() -> Iterator[int]:
    yield 1


async def _awaited() -> int:
    return 1


class _Parent:
    def method(self) -> int:
        return 1


@attrs.frozen
class _Child(_Parent):
    def method(self) -> int:
        return super().method()

    @property
    def told(self) -> int:
        return 1

    @classmethod
    def of_class(cls) -> int:
        return 1


_HELD = (_plain,)


def test_a_bug_runs_in_place_of_every_kind_of_function_and_is_taken_out_again() -> None:
    replaced = (_plain, _Child.method, _Child.told, _Child.of_class)

    @seeded("A promise.", in_=replaced, fails=())
    def ten_more(original, *args, **kwargs):
        return original(*args, **kwargs) + 10

    def told() -> list[int]:
        return [_HELD[0](0), _plain(0, more=2), _Child().method(), _Child().told, _Child.of_class()]

    assert ten_more.name == "ten more"
    take_out = ten_more.put_in()
    assert told() == [11, 12, 11, 11, 11]
    take_out()
    assert told() == [1, 2, 1, 1, 1]


def test_a_bug_runs_in_place_of_what_is_awaited_or_entered_and_takes_down_a_second_line_of_defence() -> None:
    async def two(original):
        return 1 + await original()

    take_out = seeded("A promise.", in_=_awaited, without=_plain, fails=())(two).put_in()
    assert (asyncio.run(_awaited()), _plain(0)) == (2, None)
    take_out()

    @contextmanager
    def other(original):
        yield 2

    take_out = seeded("A promise.", in_=_context, fails=())(other).put_in()
    with _context() as entered:
        assert entered == 2
    take_out()


def test_what_is_no_function_is_refused() -> None:
    bug = seeded("A promise.", in_=Kept.seed, fails=())(lambda original: None)
    with pytest.raises(TypeError, match="no bug can be put into it"):
        bug.put_in()
