"""The seeded bugs fit the code, and their page says what they are. ``make seeded-bugs`` runs them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache

import pytest

from tests.seeded_bugs.bug import REPOSITORY, Bug, StaleBugError
from tests.seeded_bugs.catalogue import BUGS
from tests.seeded_bugs.page import PAGE, page


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.module}: {bug.name}")
def test_a_seeded_bug_fits_the_code_and_its_tests_are_there(bug: Bug) -> None:
    ast.parse(bug.changed())
    for test in bug.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in _tests_of(file), f"there is no {test}"


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(bug.name for bug in BUGS).items() if count > 1] == []


def test_the_page_lists_them_all() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m tests.seeded_bugs --write-page"


def test_a_bug_whose_text_is_gone_says_so() -> None:
    stale = Bug("stale", "commit.publish", "text that is nowhere in it", "", ())
    with pytest.raises(StaleBugError, match=re.escape("0 times, not once. Seed this bug anew.")):
        stale.changed()


@cache
def _tests_of(file: str) -> frozenset[str]:
    tree = ast.parse((REPOSITORY / "tests" / "unit" / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
