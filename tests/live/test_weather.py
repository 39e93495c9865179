"""A DAG that somebody wrote who had read nothing but the README; it ran at the first try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable

if TYPE_CHECKING:
    from tests.live.harness import LiveStack

# 300 lines of CSV, of which six are flagged as bad, and 150 of JSON.
GOOD = {"N": 294, "S": 150}


def test_a_dag_written_from_the_readme_alone_runs(live_stack: LiveStack) -> None:
    live_stack.api.unpause("weather_stations")
    run = live_stack.run_dag("weather_stations")
    assert run["state"] == "success"
    table = DeltaTable(str(live_stack.lakehouse / "Tables" / "weather")).to_pyarrow_table()
    stations = table.column("station").to_pylist()
    initials = [station[0] for station in stations]
    assert {initial: initials.count(initial) for initial in GOOD} == GOOD
    measured = set(zip(stations, table.column("measured_at").to_pylist(), strict=True))
    assert len(measured) == table.num_rows == sum(GOOD.values())
