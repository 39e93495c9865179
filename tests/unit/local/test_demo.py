from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from include.local import demo
from include.local.api import AirflowApi
from include.local.demo import Plan, backfill, stretches


class Backfills:
    """Answers as Airflow's API does where backfills are made: one at a time, ended by a timer that is slow, or just
    was not. A run ends at once, and fails where its month has no file.

    :param files: months that have one.
    :param timely: whether the timer ends a backfill between a list of them and what comes of it.
    """

    def __init__(self, files: list[str], *, timely: bool) -> None:
        self.files = files
        self.timely = timely
        self.made: list[tuple[str, str]] = []
        self.active: set[int] = set()
        self.runs: dict[str, str] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/api/v2/")
        if path == "/auth/token":
            return httpx.Response(201, json={"access_token": "token"})
        if path.endswith("dagRuns"):
            return self._page("dag_runs", [{"logical_date": f"{m}-01", "state": s} for m, s in self.runs.items()])
        if path == "backfills" and request.method == "GET":
            listed = [self._backfill(number) for number in range(len(self.made))]
            if self.timely:
                self.active.clear()
            return self._page("backfills", listed)
        if path == "backfills":
            return self._make(json.loads(request.content))
        if cancelled := re.fullmatch(r"backfills/(\d+)/cancel", path):
            if int(cancelled[1]) not in self.active:
                return httpx.Response(409, json={"detail": "Backfill is already completed."})
            self.active.remove(int(cancelled[1]))
        elif asked := re.fullmatch(r"backfills/(\d+)", path):
            return httpx.Response(200, json=self._backfill(int(asked[1])))
        return httpx.Response(200, json={})

    def _backfill(self, number: int) -> dict[str, object]:
        return {"id": number, "completed_at": None if number in self.active else "2026-01-01T00:00:00Z"}

    def _make(self, asked: dict[str, str]) -> httpx.Response:
        if self.active:
            return httpx.Response(409, json={"detail": "There can be only one running backfill per Dag."})
        first, last = (datetime.fromisoformat(asked[name]) for name in ("from_date", "to_date"))
        for number in range(first.year * 12 + first.month - 1, last.year * 12 + last.month):
            month = f"{number // 12}-{number % 12 + 1:02d}"
            self.runs[month] = "success" if month in self.files else "failed"
        self.active.add(len(self.made))
        self.made.append((f"{first:%Y-%m}", f"{last:%Y-%m}"))
        return httpx.Response(200, json={"id": len(self.made) - 1})

    @staticmethod
    def _page(key: str, entries: list[dict[str, object]]) -> httpx.Response:
        return httpx.Response(200, json={key: entries, "total_entries": len(entries)})


def plan(directory: Path, months: list[str]) -> Plan:
    return Plan({month: directory / month for month in months}, directory / "lakehouse", "append", "month")


@pytest.mark.parametrize("timely", [False, True])
def test_only_the_months_that_are_there_are_loaded(tmp_path, timely):
    months = ["2018-10", "2018-11", "2019-09", "2019-12"]
    airflow = Backfills(months, timely=timely)

    with AirflowApi("http://airflow", "admin", "right", transport=httpx.MockTransport(airflow)) as api:
        ended = backfill(api, plan(tmp_path, months))

    assert ended == dict.fromkeys(months, "success")
    assert airflow.made == [("2018-10", "2018-11"), ("2019-09", "2019-09"), ("2019-12", "2019-12")]


def test_months_without_a_gap_are_one_backfill():
    assert stretches(["2018-11", "2018-12", "2019-01"]) == [["2018-11", "2018-12", "2019-01"]]


def test_gaps_are_said(tmp_path, capsys):
    demo._say_gaps(plan(tmp_path, ["2018-10", "2018-11", "2019-09", "2019-11"]))

    said = " ".join(capsys.readouterr().out.split())
    assert "There are no files for 2018-12 to 2019-08, 2019-10: these months are left out." in said


def test_nothing_is_said_of_gaps_where_there_are_none(tmp_path, capsys):
    demo._say_gaps(plan(tmp_path, ["2018-12", "2019-01"]))

    assert capsys.readouterr().out == ""
