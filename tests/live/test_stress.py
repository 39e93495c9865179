"""Writers, a backfill, compaction in a loop, other engines and a reader at two tables, at the same time.

In one table, writers leave each other alone; in the other, loads and other engines replace the same partitions.

This is a minute of it; ``make stress MINUTES=10`` is the long one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.live.stress.driver import Stress
from tests.live.stress.judge import is_compaction, judge
from tests.live.stress.report import show
from tests.live.stress.shape import ALL_DAGS, POLICIES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.live.harness import LiveStack

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


def test_every_row_is_there_once_and_every_version_is_what_whole_writes_leave(
    live_stack: LiveStack, tmp_path: Path
) -> None:
    stress = Stress(live_stack, minutes=1, directory=tmp_path, months=2)
    try:
        stress.run()
        seen = judge(stress)
    finally:
        for dag_id in ALL_DAGS:
            live_stack.api.request(
                "PATCH", f"dags/{dag_id}", params={"update_mask": "is_paused"}, json={"is_paused": True}
            )
    show(stress, seen)

    assert seen.problems == []
    # All of it really happened, and at the same time.
    assert seen.expected.total() > 0
    assert any(is_compaction(commit) for commit in seen.commits)
    assert stress.foreign.seen_enough
    assert len({answer["version"] for answer in stress.answers}) > 3
    assert {policy for policy, _ in seen.contest.outcomes} == set(POLICIES)
    # It went on until each kind of statement had been tried. An append by Spark loses to nobody.
    assert stress.meddler.seen_enough
    assert seen.contest.kinds["append"]
