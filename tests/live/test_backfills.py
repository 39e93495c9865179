"""Backfills by Airflow's own API: backwards, again, and by partition."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from include.local.api import ApiError, wait_for
from tests.live.harness import LiveStack
from tests.live.trips import log_of, rows_of

BY_PARTITION, BY_INTERVAL = "nyc_taxi_by_partition", "nyc_taxi_two_vendors"
WRITE = "load.write"


@attrs.frozen
class Backfills:
    """Backfills of two months of few trips into a table."""

    stack: LiveStack
    dag_id: str
    input: Path
    table: Path
    months: tuple[str, str]

    def give(self, *trips: int) -> None:
        """Write both months' files: so many trips for each vendor."""
        for month, count in zip(self.months, trips, strict=True):
            lines = [
                json.dumps({"vendor_id": vendor, "pickup_datetime": 1_546_300_800_000 + number, "total_amount": 1.5})
                for vendor in (1, 2)
                for number in range(count)
            ]
            with gzip.open(self.input / f"yellow_tripdata_{month}.json.gz", "wt") as out:
                out.write("\n".join(lines))

    def run(self, **how: Any) -> list[dict[str, Any]]:
        """Run one of both months, one run after another, to its end; returns its runs in the order of their starts."""
        api = self.stack.api
        api.unpause(self.dag_id)
        params = {"input": str(self.input), "table": f"Tables/{self.table.name}", **how.pop("params", {})}
        dates = [datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC) for month in self.months]
        backfill = api.create_backfill(self.dag_id, *dates, max_active_runs=1, dag_run_conf=params, **how)

        def all_ended() -> list[dict[str, Any]] | None:
            runs = [run for run in api.runs(self.dag_id) if (run["conf"] or {}) == params and run["end_date"]]
            return runs if {run["state"] for run in runs} <= {"success", "failed"} and len(runs) == 2 else None

        runs = wait_for(all_ended, "the backfill to end", 400)
        # Else Airflow marks it as ended half a minute later, and takes no other one before.
        with suppress(ApiError):
            api.request("PUT", f"backfills/{backfill}/cancel")
        return sorted(runs, key=lambda run: run["start_date"])

    def statuses(self, runs: list[dict[str, Any]]) -> set[str]:
        """What the writers of runs say that they did."""
        return {
            self.stack.api.xcom(self.dag_id, run["dag_run_id"], WRITE, map_index=index)["status"]
            for run in runs
            for index in (0, 1)
        }

    def counts(self) -> Counter[Any]:
        """How many rows of each vendor the table has."""
        return Counter(vendor for (vendor,) in rows_of(self.table, ["vendor_id"]).elements())


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_partition_that_is_backfilled_again_follows_on_rerun(live_stack: LiveStack, tmp_path: Path) -> None:
    table = live_stack.lakehouse / "Tables" / "partitions_again"
    backfills = Backfills(live_stack, BY_PARTITION, tmp_path, table, ("2019-01", "2019-02"))
    backfills.give(10, 20)

    first = backfills.run(run_backwards=True, params={"on_rerun": "append"})
    assert [run["partition_key"] for run in first] == ["2019-02", "2019-01"]
    assert {run["state"] for run in first} == {"success"}
    assert backfills.counts() == {1: 30, 2: 30}
    assert len(log_of(table)) == 4

    # Airflow makes other runs of the same partitions; to the table they are the same.
    skipped = backfills.run(reprocess_behavior="completed", params={"on_rerun": "skip"})
    assert not {run["dag_run_id"] for run in skipped} & {run["dag_run_id"] for run in first}
    assert backfills.statuses(skipped) == {"skipped"}
    assert backfills.counts() == {1: 30, 2: 30}
    assert len(log_of(table)) == 4

    # The source has changed meanwhile: what was appended is taken back.
    backfills.give(10, 25)
    replaced = backfills.run(reprocess_behavior="completed", run_backwards=True, params={"on_rerun": "replace"})
    assert [run["partition_key"] for run in replaced] == ["2019-02", "2019-01"]
    assert backfills.statuses(replaced) == {"published"}
    assert backfills.counts() == {1: 35, 2: 35}
    assert len(log_of(table)) == 4 + 4


@pytest.mark.costs("With the first of these tests a live Airflow starts")
def test_a_run_by_hand_without_a_partition_key_is_refused_at_once(live_stack: LiveStack) -> None:
    api = live_stack.api
    api.unpause(BY_PARTITION)
    run_id = api.trigger(BY_PARTITION, conf={"table": "Tables/no_partition"})
    assert api.wait_for_run(BY_PARTITION, run_id)["state"] == "failed"
    assert [task["state"] for task in api.tries(BY_PARTITION, run_id, WRITE, 0)] == ["failed"]
    said = api.log(BY_PARTITION, run_id, WRITE, 0)
    assert "this run has none. Nothing was staged: trigger the DAG with a partition key of the form %Y-%m" in said
    assert not list((live_stack.lakehouse / "Tables" / "no_partition").glob("*"))


@pytest.mark.nightly
def test_a_data_interval_that_is_backfilled_again_is_the_same_run(live_stack: LiveStack, tmp_path: Path) -> None:
    table = live_stack.lakehouse / "Tables" / "intervals_again"
    # Months that no other test of this DAG has runs of.
    backfills = Backfills(live_stack, BY_INTERVAL, tmp_path, table, ("2019-09", "2019-10"))
    backfills.give(10, 20)
    first = backfills.run(run_backwards=True)
    assert [run["logical_date"][:7] for run in first] == ["2019-10", "2019-09"]
    assert backfills.counts() == {1: 30, 2: 30}

    again = backfills.run(reprocess_behavior="completed")
    assert {run["dag_run_id"] for run in again} == {run["dag_run_id"] for run in first}
    assert backfills.statuses(again) == {"skipped"}
    assert backfills.counts() == {1: 30, 2: 30}
    assert len(log_of(table)) == 4
