"""The page that lists the seeded bugs, made from the catalogue."""

from __future__ import annotations

from pathlib import Path

from tests.seeded_bugs.catalogue import BUGS, ROOMS

PAGE = Path(__file__).with_name("README.md")

_INTRODUCTION = """\
# Seeded bugs

{count} small, plausible bugs. Each is put into the code for itself, and at least one of the unit tests named beside it must
then fail, by an assertion or by an error of the package. On clean code all of them pass.

    make seeded-bugs                        # all of them; fails where one survives
    make seeded-bugs ARGS="--only vacuum"   # those whose name or module contains the text

The bugs that the simulation must find, by schedules that it makes up, are in `tests/simulation/test_seeded_bugs.py`.

The list is made from the modules beside this page by `python -m tests.seeded_bugs --write-page`. A bug whose text is no
longer in the code exactly once fails `tests/unit/test_seeded_bugs.py`: seed it anew.
"""


def page() -> str:
    """Return the page's text."""
    parts = [_INTRODUCTION.format(count=len(BUGS))]
    for room, bugs in ROOMS.items():
        parts.append(f"\n## {room}\n\n| module | with the bug in it | caught by |\n|---|---|---|\n")
        for bug in bugs:
            tests = "<br>".join(f"`{test}`" for test in bug.tests)
            parts.append(f"| `{bug.module}` | {bug.name} | {tests} |\n")
    return "".join(parts)
