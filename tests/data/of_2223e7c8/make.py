"""Make the tables anew. To be run by the code of 2223e7c8, and by no other: later code is judged on what this one left.

In a checkout of 2223e7c8, with this directory in its ``tests/data``:

    AIRFLOW_HOME=$(mktemp -d) python -m tests.data.of_2223e7c8.make

Kept are the tables (``tables.tar.xz``), what Airflow keeps of their runs (``runs.json``), and their rows as deltalake
reads them (``expected.json``).
"""

from __future__ import annotations

import json
import os
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_onelake.storage import stores
from tests.data.of_2223e7c8 import dags
from tests.data.of_2223e7c8.lake import HERE, PLACE, engine, lake, move, put_file
from tests.data.of_2223e7c8.runs import Run, written
from tests.support.sql_by_hand import files_of, table_rows
from tests.support.stores import PassingOn
from tests.support.tables import foreign_append, foreign_commit, local_log, make_table

COMMITS = "_delta_log/"


class KilledError(BaseException):
    """The process of a task ends here."""


class Mortal(PassingOn):
    """Lets its process write nothing any more, from a put on.

    :param path: a pattern that the path of the put matches from its beginning.
    """

    def __init__(self, inner: Any, path: str) -> None:
        super().__init__(inner)
        self.path, self.dead = re.compile(path), False

    def create(self, path: str, data: bytes) -> None:
        self._dies_at(path)
        super().create(path, data)

    def put(self, path: str, data: bytes) -> None:
        self._dies_at(path)
        super().put(path, data)

    def delete(self, path: str) -> None:
        self._dies_at(path)
        super().delete(path)

    def _dies_at(self, path: str) -> None:
        self.dead = self.dead or self.path.match(path) is not None
        if self.dead:
            raise KilledError


@contextmanager
def dying_at(path: str, table: str = "") -> Iterator[None]:
    """Kill the task that puts something, before it is put.

    :param path: a pattern that the path of the object matches from its beginning.
    :param table: how the table's address ends. Default: any table.
    """
    opened = stores.open_store
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            stores, "open_store", lambda *which: Mortal(opened(*which), path if str(which[0]).endswith(table) else "$^")
        )
        yield


class Making:
    """One run of this script.

    :param lakehouse: in which the tables are made.
    """

    def __init__(self, lakehouse: Path) -> None:
        self.tables = lakehouse / "Tables"
        self.runs: dict[str, Run] = {}

    def run_of(self, name: str, dag_id: str, **which: Any) -> Run:
        """A new run, which is kept under a name."""
        given = {"logical_date": "2019-01-01T00:00:00+00:00", "run_id": name, "began": "2019-02-01T00:00:00+00:00"}
        self.runs[name] = Run(dag_id, **{**given, **which})
        return self.runs[name]

    def keep(self, name: str, run: Run) -> None:
        """Keep a run as it is now, beside what becomes of it."""
        self.runs[name] = run.as_it_is()

    def before(self, table: str) -> None:
        """Make a table with rows of another engine."""
        log = make_table(self.tables / table, **dags.AGELESS)
        rows = [(row, month) for month, found in dags.BEFORE[table].items() for row in found]
        adds = files_of(self.tables / table, rows, ["month"])
        info = {"timestamp": 1, "operation": "WRITE", "isBlindAppend": True}
        foreign_commit(log, [{"commitInfo": info}, *({"add": add} for add in adds)])

    def append(self, table: str, month: str, *rows: int) -> None:
        """Another engine's append."""
        foreign_append(local_log(self.tables / table), {month: list(rows)})

    # -- tables ----------------------------------------------------------------------------------------------------

    def appends(self) -> None:
        dag, run = dags.appends(), self.run_of("appends", "appends")
        with engine("appends"):
            for number in (0, 1):
                run.run(dag, "load.write", number)
            run.run(dag, "load.reconcile")
            for task in ("taken_back.r", "again.p", "functions.from_code", "checked.good", "reader"):
                run.run(dag, task)
            _refused(lambda: run.run(dag, "checked.bad"))
            # A clear that finds its rows, and one that takes them back.
            run.clear("load.write_1", "taken_back.r")
            run.run(dag, "load.write", 1)
            run.run(dag, "taken_back.r")
            with dying_at(COMMITS):
                # Of two complete buffers of one try and its retry, the first one is set aside.
                killed(lambda: run.run(dag, "corrected.w"))
                run.retry("corrected.w")
                killed(lambda: run.run(dags.appends("right"), "corrected.w"))
        self.append("appends", "2019-04", 9)

    def overwrites(self) -> None:
        self.before("overwrites")
        january = self.run_of("overwrites january", "overwrites")
        february = self.run_of(
            "overwrites february", "overwrites", logical_date="2019-02-01T00:00:00+00:00",
            began="2019-03-01T00:00:00+00:00",
        )  # fmt: skip
        rivals = (*dags.POLICIES, *dags.RIVALS)
        with engine("overwrites"):
            dag = dags.overwrites("january")
            january.run(dag, "settled.w")
            january.clear("settled.w")
            january.run(dag, "settled.w")
            january.run(dag, "settled.reconcile")
            with dying_at(COMMITS):
                for name in rivals:
                    if name == "late":
                        continue
                    killed(lambda name=name: january.run(dag, f"{name}.w"))  # type: ignore[misc]
            self._long_ago("overwrites")
            dag = dags.overwrites("february")
            for name in rivals:
                if name != "late":
                    february.run(dag, f"{name}.w")
            february.run(dag, "late_append")
        lands = [lambda: february.run(dag, "late.w")]
        with engine("overwrites", before=lambda job: lands.pop()() if lands else None):
            # This one finishes after its rival has landed.
            january.run(dags.overwrites("january"), "late.w")
        with engine("overwrites"):
            dag = dags.overwrites("january")
            for name in rivals[:-1]:
                settle = lambda name=name: january.run(dag, f"{name}.reconcile")  # type: ignore[misc]  # noqa: E731
                _refused(settle) if name == "fail" else settle()

    def whole(self) -> None:
        self.before("whole")
        dag, run = dags.whole(), self.run_of("whole", "whole")
        with engine("whole"):
            run.run(dag, "everything")
            run.run(dag, "a_range")
            run.clear("a_range")
            run.run(dag, "a_range")

    def months(self) -> None:
        for key in ("2019-01", "2019-02"):
            of = {"logical_date": None, "partition_key": key, "partition_date": f"{key}-01T00:00:00+00:00"}
            run = self.run_of(f"months {key}", "months", **of)
            with engine("months"):
                run.run(dags.months(key), "append")
                if key == "2019-01":
                    run.run(dags.months(key), "refresh.w")
                    run.run(dags.months(key), "refresh.reconcile")
                    backfill = self.run_of("months 2019-01 again", "months", **of, began="2019-05-01T00:00:00+00:00")
                    backfill.run(dags.months(key), "refresh.w")
                    backfill.run(dags.months(key), "append")
        for dag_id, key, date in (
            ("hours", "2024-10-27T02:00:00", "2024-10-27T00:00:00+00:00"),
            ("days", "05", "2024-11-05T00:00:00+00:00"),
        ):
            run = self.run_of(dag_id, dag_id, logical_date=None, partition_key=key, partition_date=date)
            with engine(dag_id):
                run.run(
                    (dags.hours if dag_id == "hours" else dags.days)(),
                    "append" if dag_id == "hours" else "append_of_a_day",
                )

    def statements(self) -> None:
        self.before("statements")
        self.append("statements", "2019-04", 42)
        dag, run = dags.statements(), self.run_of("statements", "statements")
        with engine("statements", vectors=True):
            for task in ("keep", "delete_month", "delete_rows", "merge", "alter", "optimize"):
                run.run(dag, task)
        with engine("statements"):
            run.run(dag, "update")
            run.run(dag, "merge_once")
        self.keep("statements before the clear", run)
        with engine("statements"):
            # Both find nothing to do, and say so in the table: an older try must not do it later.
            run.clear("delete_month", "merge_once")
            run.run(dag, "delete_month")
            run.run(dag, "merge_once")

    def emptied(self) -> None:
        self.before("emptied")
        dag, run = dags.emptied(), self.run_of("emptied", "emptied")
        with engine("emptied"):
            run.run(dag, "truncate")
            run.run(dag, "restore")
            with dying_at(COMMITS):
                killed(lambda: run.run(dag, "late_truncate"))
            run.clear("truncate")
            run.run(dag, "truncate")
            self.keep("emptied before the clear", run)
            # Both find nothing to do, and one of them has an older try that has not ended.
            run.clear("truncate", "late_truncate")
            run.run(dag, "truncate")
            run.run(dag, "late_truncate")
        self.append("emptied", "2019-01", 9)

    def rounds(self) -> None:
        self.before("rounds")
        dag, run = dags.rounds(), self.run_of("rounds", "rounds")
        for task, vectors in (("update", False), ("delete", True), ("merge", False)):
            with engine("rounds", vectors=vectors), dying_at(COMMITS):
                killed(lambda task=task: run.run(dag, task))  # type: ignore[misc]

    def running(self) -> None:
        self.before("running")
        dag, run = dags.running(), self.run_of("running", "running")
        with engine("running"):
            run.run(dag, "load.write", 0)
            run.run(dag, "refresh.write", 0)
            with dying_at(COMMITS):
                killed(lambda: run.run(dag, "load.write", 1))
                killed(lambda: run.run(dag, "refresh.write", 1))
            # One has a claim and a buffer without rows, and one a claim.
            with dying_at(r"staged/.*\.crc"):
                killed(lambda: run.run(dag, "load.write", 2))
            with dying_at("staged/.*/_delta_log/"):
                killed(lambda: run.run(dag, "load.write", 3))

    def together(self) -> None:
        self.before("together")
        for number, month in enumerate(("january", "february", "march"), 1):
            dag = dags.together(month)
            run = self.run_of(f"together {month}", "together", logical_date=f"2019-0{number}-01T00:00:00+00:00")
            with engine("together"):
                run.run(dag, "load.scan")
                run.run(dag, "load.a")
                if month != "march":
                    run.run(dag, "load.b")
                    run.run(dag, "load.checked")
                if month == "january":
                    run.run(dag, "load.reconcile")
                    run.clear("load.b", "load.checked", "load.reconcile")
                    for task in ("b", "checked", "reconcile"):
                        run.run(dag, f"load.{task}")

    def keys(self) -> None:
        dag, run = dags.keys(), self.run_of("keys", "keys")
        with engine("keys"):
            run.run(dag, "load.published")
            with dying_at(COMMITS):
                killed(lambda: run.run(dag, "left.compared"))
        self.append("keys", "2019-01", 30)

    def divided(self) -> None:
        dag, run = dags.divided(), self.run_of("divided", "divided")
        with engine("divided"):
            run.run(dag, "load.published")
            with dying_at(COMMITS, "Tables/divided"):
                killed(lambda: run.run(dag, "left.dead"))

    def new_files(self) -> None:
        place = self.tables.parent
        for day, rows in enumerate(((1, 2), (3,)), 1):
            for row in rows:
                put_file(place, row)
            date = f"2019-01-0{day}T00:00:00+00:00"
            run = self.run_of(f"new_files {day}", "new_files", logical_date=date)
            with engine("new_files"):
                entries = run.run(dags.new_files(str(place)), "load.plan")
                # Nobody has loaded the file of the second day yet.
                for number in range(len(entries)) if day == 1 else ():
                    run.run(dags.new_files(str(place), entries), "load.write", number)
                    run.run(dags.new_files(str(place), entries), "load.reconcile")

    def _long_ago(self, table: str) -> None:
        """Let what is staged have been finished before anything that follows."""
        then = time.time() - 3600
        for file in (self.tables / table / "staged").rglob("*"):
            os.utime(file, (then, then))


def killed(call: Callable[[], object]) -> None:
    """Run a task whose process is killed."""
    try:
        call()
    except KilledError:
        return
    raise AssertionError("nobody killed it")


def _refused(task: Any) -> None:
    try:
        task()
    except AirflowFailException:
        return
    raise AssertionError("nobody refused it")


def main() -> None:
    """Make all of them."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory).resolve()
        making = Making(place)
        with lake(place):
            for make in (
                *(making.appends, making.overwrites, making.whole, making.months, making.statements, making.emptied),
                *(making.rounds, making.running, making.together, making.keys, making.divided, making.new_files),
            ):
                make()
        expected = {table.name: table_rows(table) for table in sorted(making.tables.iterdir())}
        move(place, str(place), PLACE)
        with tarfile.open(HERE / "tables.tar.xz", "w:xz") as archive:
            archive.add(making.tables, "Tables")
    lines = (f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in expected.items())
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    (HERE / "runs.json").write_text(written(making.runs).replace(str(place), PLACE))


if __name__ == "__main__":
    main()
