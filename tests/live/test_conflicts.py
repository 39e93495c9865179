"""Two overwriting writers of one partition: the second finds a winner, and reconcile settles it without Spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.live.held_load import RECONCILE, ROWS, WRITE, WRITERS, HeldLoad, finished

pytestmark = pytest.mark.live


@pytest.mark.parametrize("wins", ["earlier", "later"])
def test_a_conflicted_overwrite_is_settled_by_reconcile_without_a_spark_job(
    new_load: Callable[..., HeldLoad], wins: str
) -> None:
    load = new_load(mode="overwrite_partitions")
    load.hold(*(f"{writer}.before-commit" for writer in WRITERS))
    load.start()
    # Both are staged before either publishes.
    for writer in WRITERS:
        load.wait_until_at(f"{writer}.before-commit")
    earlier, later = sorted(WRITERS, key=lambda writer: finished(load.buffers(writer)[0]))
    jobs = load.all_spark_jobs()

    winner, loser = (earlier, later) if wins == "earlier" else (later, earlier)
    load.release(f"{winner}.before-commit")
    load.wait_until_ended(winner)
    assert load.rows() == {winner: ROWS[winner]}
    load.release(f"{loser}.before-commit")
    state = load.end()

    # A winner was really found.
    won = load.result(winner)
    assert won["status"] == "published"
    lost = load.result(loser)
    assert lost["status"] == "conflicted"
    assert lost["version"] is None
    assert lost["conflicts"] == [f"version {won['version']} ({winner}) changed month=2019-01"]
    assert "left to reconcile" in load.log(WRITE, loser)

    # It is settled by completion, whoever put first, and said in the log and in XCom.
    assert state == "success"
    assert load.rows() == {later: ROWS[later]}
    outcome = load.report()["writers"][loser]
    verdict = {
        "earlier": "is replaced: it counts earlier",
        "later": "replaced the partition later, so this writer's rows there are not published",
    }
    decision = f"month=2019-01: version {won['version']} ({winner}) {verdict[wins]}"
    assert outcome["decisions"] == [decision]
    assert outcome["status"] == ("published" if wins == "earlier" else "set_aside")
    assert decision in load.log(RECONCILE)
    assert load.all_spark_jobs() == jobs
