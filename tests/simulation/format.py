"""What the format asks of every version, whoever puts it: row ids that are new, timestamps that rise."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.simulation.table import State, stamped
from tests.simulation.world import ViolationError


class FormatJudge:
    """Judges versions, one after another."""

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        self._state = State()
        # The row ids of every file that ever was in the table: the first one, and the version that it came with.
        self._given: dict[str, tuple[int, int]] = {}

    def check(self, version: int, actions: Sequence[dict[str, Any]], ever: set[str]) -> None:
        """Judge the next version."""
        mark, last = self._state.mark, self._state.stamp
        self._state.apply(version, actions)
        if stamped(self._state.metadata):
            self._counters["timestamps judged"] += 1
            stamp = actions[0].get("commitInfo", {}).get("inCommitTimestamp")
            if stamp is None:
                raise ViolationError(f"version {version} has no in-commit timestamp as the first thing in it")
            if stamp <= last:
                raise ViolationError(f"version {version} has the in-commit timestamp {stamp}, not later than {last}")
        if self._state.tracks_rows:
            self._check_row_ids(version, [a["add"] for a in actions if "add" in a], mark, ever)

    def _check_row_ids(self, version: int, adds: list[dict[str, Any]], mark: int, ever: set[str]) -> None:
        highest = mark
        for add in sorted(adds, key=lambda add: add.get("baseRowId", -1)):
            path, first, came = add["path"], add.get("baseRowId"), add.get("defaultRowCommitVersion")
            if first is None or came is None:
                raise ViolationError(f"version {version} adds {path} without row ids")
            if path in ever:
                if self._given[path] != (first, came):
                    raise ViolationError(f"version {version} adds {path} again with other row ids")
                continue
            if first <= highest:
                raise ViolationError(f"version {version} gives row id {first} twice: {highest} was given out before")
            if came != version:
                raise ViolationError(f"version {version} adds {path} as if it came with version {came}")
            self._given[path] = (first, came)
            self._counters["rows got ids"] += 1
            highest = first + json.loads(add["stats"])["numRecords"] - 1
        if self._state.mark < max(highest, mark):
            raise ViolationError(f"version {version} has the high-water mark {self._state.mark}, below {highest}")
