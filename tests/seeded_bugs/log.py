"""Bugs of the room log."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

BUGS: list[Bug] = []
