"""Bugs of the room triggers."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

BUGS: list[Bug] = []
