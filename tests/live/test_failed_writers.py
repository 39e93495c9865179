"""A writer that fails for good: the run is red, the others' rows are published or held back as asked, a clear heals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.live.held_load import RECONCILE, ROWS, WRITE, HeldLoad

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("publish", "on_missing_writer", "there"),
    [
        pytest.param("each", "publish_others", {"vendor-1": ROWS["vendor-1"]}, id="publish_others"),
        pytest.param("together", "publish_nothing", {}, id="publish_nothing"),
    ],
)
def test_a_failed_writer_makes_the_run_red_and_clearing_it_heals(
    new_load: Callable[..., HeldLoad], publish: str, on_missing_writer: str, there: dict[str, int]
) -> None:
    load = new_load(publish=publish, on_missing_writer=on_missing_writer)
    load.give(malformed="vendor-2")
    load.start()

    assert load.end() == "failed"
    # It is no matter of trying again.
    assert load.tries(WRITE, "vendor-2") == ["failed"]
    assert load.tries(RECONCILE) == ["failed"]
    assert load.report()["missing"] == ["vendor-2"]
    assert "vendor-2" in load.log(RECONCILE)
    assert load.rows() == there
    (buffer,) = load.buffers("vendor-1")
    jobs = load.spark_jobs("vendor-1")
    assert jobs

    load.give()
    load.clear(WRITE, "vendor-2")

    assert load.end() == "success"
    assert load.rows() == ROWS
    assert load.task(WRITE, "vendor-1")["try_number"] == 1
    assert load.buffers("vendor-1") == [buffer]
    assert load.spark_jobs("vendor-1") == jobs
