"""The smallest DAG of the README, in a live Airflow."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.live.harness import LiveStack
from tests.live.trips import rows_of


@pytest.mark.promise
def test_each_row_of_both_writers_is_there_once(live_stack: LiveStack) -> None:
    live_stack.api.unpause("two_writers")
    run = live_stack.run_dag("two_writers")
    assert run["state"] == "success"
    vendors = rows_of(live_stack.lakehouse / "Tables" / "two_writers", ["vendor_id"])
    assert vendors == Counter({(1,): 3_754, (2,): 6_150})
