"""The night in which clocks go back, in hourly partitions with Airflow's default keys: two hours have one key.

Airflow's own timetable makes the ticks, their keys and their dates; the runs are those of a scheduler that hands them on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.sdk import DAG, CronPartitionTimetable
from airflow.timetables.trigger import CronPartitionTimetable as Core

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import Tuning
from airflow_provider_onelake.sources import SqlSource
from tests.data.of_2223e7c8.runs import Run
from tests.support.contexts import connect
from tests.support.engines import FakeEngine, use_engine
from tests.support.tables import ids

BERLIN: dict[str, Any] = {"cron": "0 * * * *", "timezone": "Europe/Berlin"}
# Airflow reads both as times of day in the timetable's zone.
NIGHT = {"earliest": pendulum.datetime(2024, 10, 27, 1), "latest": pendulum.datetime(2024, 10, 27, 3)}


def hours(name: str = "scheduled") -> list[Run]:
    """The runs of the four hours, as a schedule or a backfill makes them."""
    return [
        Run(
            "hours",
            f"{name} {tick.partition_date.isoformat()}",
            f"2024-10-{27 if name == 'scheduled' else 28}T12:00:00+00:00",
            partition_key=tick.partition_key,
            partition_date=tick.partition_date.isoformat(),
        )
        for tick in Core(**BERLIN).iter_partition_dagrun_infos(**NIGHT)
        if tick.partition_date is not None
    ]


def rows_of(number: int, *, now: bool = False) -> list[int]:
    """The two rows that the source has of an hour, at first or by now."""
    return [10 * number + at + (100 if now else 0) for at in (1, 2)]


class Hours:
    """A DAG whose only task appends the rows of an hour.

    :param on_rerun: of the task.
    :param by_hour: whether its query says which hour, or is the same text in each run.
    """

    def __init__(self, on_rerun: str, engine: FakeEngine, *, by_hour: bool) -> None:
        self.on_rerun, self.engine, self.by_hour = on_rerun, engine, by_hour

    def run(self, run: Run, rows: list[int]) -> Any:
        """Run the task in a run of an hour of which the source has these rows."""
        where = f"hour = '{run.partition_date}'" if self.by_hour else None
        self.engine.rows = {where: {"2024-10": rows}}
        with DAG("hours", schedule=CronPartitionTimetable(**BERLIN)) as dag:
            OneLakeWriteOperator(
                task_id="append",
                table="Tables/hours",
                source=SqlSource("SELECT * FROM events"),
                where=where,
                on_rerun=self.on_rerun,
                partition_by=["month"],
                tuning=Tuning(preflight=False),
            )
        return run.run(dag, "append")["status"]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="prod")
    return tmp_path / "Tables" / "hours"


@pytest.mark.parametrize("by_hour", [True, False], ids=["a query of the hour", "one query"])
@pytest.mark.parametrize("again", ["retry", "clear", "backfill"])
@pytest.mark.parametrize("on_rerun", ["skip", "replace", "append"])
def test_every_row_of_the_night_is_there_once_and_an_hour_that_runs_again_is_that_hour(
    table: Path, monkeypatch: pytest.MonkeyPatch, on_rerun: str, again: str, *, by_hour: bool
) -> None:
    dag = Hours(on_rerun, use_engine(monkeypatch, FakeEngine({})), by_hour=by_hour)
    runs = hours()
    # Without two hours of one key, this night shows nothing.
    assert [str(run.partition_key)[11:13] for run in runs] == ["01", "02", "02", "03"]
    assert [dag.run(run, rows_of(number)) for number, run in enumerate(runs)] == ["published"] * 4
    rows = {row for number in range(4) for row in rows_of(number)}
    assert ids(table) == sorted(rows)
    for number in (2, 1):
        run = runs[number]
        if again == "backfill":
            run = hours("backfilled")[number]
        else:
            getattr(run, again)("append")
        done = dag.run(run, rows_of(number, now=True))
        if again == "retry" or on_rerun == "skip":
            assert done == "skipped"
        else:
            assert done == "published"
            rows |= set(rows_of(number, now=True))
            rows -= set(rows_of(number) if on_rerun == "replace" else ())
        assert ids(table) == sorted(rows)
