"""Four writers of a load that replace one partition: one of them counts, whether there is one slot or four."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from include.local.api import ApiError
from tests.live.held_load import RECONCILE, WRITE, HeldLoad

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]

FOUR = {f"vendor-{number}": 10 * number for number in (1, 2, 3, 4)}


@pytest.mark.parametrize(
    ("policy", "terms", "others"),
    [
        ("last_writer_wins", {}, "success"),
        ("first_writer_wins", {"on_set_aside": "skip"}, "skipped"),
        ("fail", {}, "failed"),
    ],
)
@pytest.mark.parametrize("slots", [1, 4])
def test_of_four_writers_of_one_partition_one_counts_and_so_it_does_when_the_run_is_cleared(
    new_load: Callable[..., HeldLoad], slots: int, policy: str, terms: dict[str, str], others: str
) -> None:
    one_slot = slots == 1
    dag_id = "held_four_in_one_slot" if one_slot else "held_four"
    load = new_load(
        f"four_{policy}_{slots}", dag_id=dag_id, given=FOUR, mode="overwrite_partitions", on_conflict=policy, **terms
    )
    with suppress(ApiError):  # An earlier test has made it.
        load.api.request("POST", "pools", json={"name": "one_slot", "slots": 1, "description": "for one writer"})
    for number, start in enumerate((load.start, load.clear), 1):
        if not one_slot:
            load.hold(*(f"{writer}.before-commit" for writer in FOUR))
        start()
        # In four slots, all have staged before one lands, and the last to finish lands first.
        finished = sorted(FOUR, key=load.finished) if not one_slot else []
        for writer in reversed(finished):
            load.release(f"{writer}.before-commit")
            load.wait_until_ended(writer)
        state = load.end()

        tasks = {writer: load.task(WRITE, writer) for writer in FOUR}
        finished = finished or sorted(FOUR, key=lambda writer: tasks[writer]["start_date"])
        # In one slot, the first to finish is the first to land.
        counts = finished[0] if one_slot and policy != "last_writer_wins" else finished[-1]
        assert load.rows() == {counts: FOUR[counts]}
        ended = {writer: task["state"] for writer, task in tasks.items()}
        assert ended == {**dict.fromkeys(FOUR, others), counts: "success"}
        assert {task["try_number"] for task in tasks.values()} == {number}  # nobody was tried again
        assert state == load.task(RECONCILE)["state"] == ("failed" if others == "failed" else "success")
        left = {writer for writer, outcome in load.report()["writers"].items() if not outcome["rows_in_table"]}
        assert left == FOUR.keys() - {counts}

    # A clear of one alone is a person's word: its rows replace what stands, and the report says so.
    alone = next(writer for writer in FOUR if writer != counts)
    load.clear(alone)
    assert load.end() == state
    assert load.rows() == {alone: FOUR[alone]}
    assert load.task(WRITE, alone)["state"] == "success"
    assert counts in load.report()["left_out"]
    assert load.report()["writers"][counts]["replaced"]
