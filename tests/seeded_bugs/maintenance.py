"""Bugs of the room maintenance."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

BUGS = [
    Bug(
        "a file that is as old as the retention exactly is taken",
        "maintenance.vacuum",
        "if info.modified >= before or",
        "if info.modified > now or",
        ("maintenance/test_vacuum.py::test_a_longer_property_is_honoured",),
    ),
]
