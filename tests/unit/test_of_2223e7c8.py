"""Tables that commit 2223e7c8 left are read, and no row of them is doubled or lost by what happens next.

``tests/data/of_2223e7c8`` says how they were made. Here are reruns, clears and reconciliations of the same runs by the
code of today, whatever the times of the files are. Where an outcome is for a policy to decide, every outcome that loses
and doubles nothing is right, and so is a refusal by name that leaves the rows alone.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.context import closest_write_group
from tests.data.of_2223e7c8 import dags
from tests.data.of_2223e7c8.dags import partitions
from tests.data.of_2223e7c8.lake import HERE, copied, engine, lake, put_file
from tests.data.of_2223e7c8.runs import Run
from tests.support.sql_by_hand import Row, in_order, table_rows
from tests.support.tables import foreign_append, local_log

EXPECTED: dict[str, list[Row]] = {
    name: [(row, month) for row, month in rows]
    for name, rows in json.loads((HERE / "expected.json").read_text()).items()
}
JANUARY = "2019-01"
# Of a try that ended well, and nothing was refused.
DONE = ""


@attrs.define
class Lake:
    """A lakehouse of a test's own, whose files are all of one time."""

    path: Path
    modified: float

    def take(self, table: str) -> dict[str, Run]:
        """Copy a table into it, and its quarantine, and return the runs of all tables."""
        return copied(self.path, self.modified, table)

    def rows(self, table: str) -> list[Row]:
        """The rows of a table as deltalake reads them."""
        return table_rows(self.path / "Tables" / table)

    def append(self, table: str, month: str, *rows: int) -> None:
        """Another engine's append."""
        foreign_append(local_log(self.path / "Tables" / table), {month: list(rows)})


@pytest.fixture(params=["long ago", "now"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A lakehouse whose files are all of one time: Git keeps none."""
    with lake(tmp_path):
        yield Lake(tmp_path, time.time() if request.param == "now" else 946_684_800.0)


def outcome(call: Callable[[], Any]) -> str:
    """Return what refused a task, by the name of the error; nothing where the task ended well."""
    try:
        call()
    except AirflowFailException as error:
        if found := re.match(r"(\w+Error): ", str(error)):
            return found[1]
        raise
    return DONE


def and_rows(rows: Sequence[Row], *more: Row) -> list[Row]:
    """Rows and others, in order."""
    return in_order([*rows, *more])


@pytest.mark.parametrize("table", sorted(EXPECTED))
def test_the_rows_are_those_that_were_read_then(here: Lake, table: str) -> None:
    from airflow_provider_onelake.hooks.onelake import OneLakeHook

    here.take(table)
    assert here.rows(table) == EXPECTED[table]
    ours = OneLakeHook().table(f"Tables/{table}").read().read_all().to_pylist()
    assert in_order((row["id"], row["month"]) for row in ours) == EXPECTED[table]


# -- appends -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Published:
    """An append with ``on_rerun="skip"`` that is in a table.

    :param run: by its name.
    :param task: its id.
    :param index: of a mapped task.
    """

    table: str
    run: str
    dag: Callable[[], Any]
    task: str
    index: int = -1

    @property
    def name(self) -> str:
        """Of the task instance."""
        return self.task if self.index < 0 else f"{self.task}_{self.index}"


APPENDS = [
    *(Published("appends", "appends", dags.appends, "load.write", index) for index in (0, 1)),
    *(Published("appends", "appends", dags.appends, task) for task in ("checked.good", "reader")),
    Published("appends", "appends", dags.appends, "functions.from_code"),
    Published("overwrites", "overwrites february", lambda: dags.overwrites("february", ()), "late_append"),
    Published("months", "months 2019-02", lambda: dags.months("2019-02"), "append"),
    Published("months", "months 2019-01 again", lambda: dags.months("2019-01"), "append"),
    Published("months", "hours", dags.hours, "append"),
    Published("months", "days", dags.days, "append_of_a_day"),
    Published("running", "running", dags.running, "load.write", 0),
]


@pytest.mark.parametrize("vacuumed", [False, True], ids=["as it was", "vacuumed"])
@pytest.mark.parametrize("append", APPENDS, ids=lambda append: f"{append.run} {append.name}")
def test_an_append_that_is_in_a_table_is_never_appended_again_nor_refused(
    here: Lake, append: Published, vacuumed: bool
) -> None:
    run, dag = here.take(append.table)[append.run], append.dag()
    if vacuumed:
        leave_what_the_log_names(here, append.table)
    with engine(run.dag_id):
        run.retry(append.name)
        run.run(dag, append.task, append.index)
        assert here.rows(append.table) == EXPECTED[append.table]
        run.clear(append.name)
        run.run(dag, append.task, append.index)
        assert here.rows(append.table) == EXPECTED[append.table]
        run.made_again().run(dag, append.task, append.index)
    assert here.rows(append.table) == EXPECTED[append.table]


@pytest.mark.parametrize("vacuumed", [False, True], ids=["as it was", "vacuumed"])
@pytest.mark.parametrize("append", APPENDS, ids=lambda append: f"{append.run} {append.name}")
def test_a_dag_that_was_renamed_since_doubles_nothing_and_its_load_name_makes_it_the_same(
    here: Lake, append: Published, vacuumed: bool
) -> None:
    run, dag = here.take(append.table)[append.run], append.dag()
    if vacuumed:
        leave_what_the_log_names(here, append.table)
    renamed = attrs.evolve(run.made_again(), dag_id="renamed")
    with engine(run.dag_id):
        assert outcome(lambda: renamed.run(dag, append.task, append.index)) == "OrphanWriterError"
        assert here.rows(append.table) == EXPECTED[append.table]
        if group := closest_write_group(dag.get_task(append.task)):
            group.load_name = run.dag_id
            renamed.run(dag, append.task, append.index)
    assert here.rows(append.table) == EXPECTED[append.table]


def leave_what_the_log_names(here: Lake, table: str) -> None:
    """Vacuum as another engine does: it leaves no claim, no marker and no log of a buffer."""
    for file in (here.path / "Tables" / table / "staged").rglob("*.json"):
        file.unlink()


def test_a_load_that_is_in_the_table_is_only_looked_at(here: Lake) -> None:
    run, dag = here.take("appends")["appends"], dags.appends()
    with engine("appends"):
        for group in ("load", "taken_back", "again", "functions"):
            run.run(dag, f"{group}.reconcile")
    assert here.rows("appends") == EXPECTED["appends"]


def test_a_clear_that_takes_rows_back_leaves_those_of_now(here: Lake) -> None:
    run, dag = here.take("appends")["appends"], dags.appends()
    others = [row for row in EXPECTED["appends"] if row[0] != 4]
    for row, month in ((4, JANUARY), (44, "2019-02")):
        with engine("appends", {"r": {month: [row]}}):
            run.clear("taken_back.r")
            run.run(dag, "taken_back.r")
            assert here.rows("appends") == and_rows(others, (row, month))
            run.retry("taken_back.r")
            run.run(dag, "taken_back.r")
            assert here.rows("appends") == and_rows(others, (row, month))


def test_a_clear_that_appends_appends_once_and_a_retry_of_it_nothing(here: Lake) -> None:
    run, dag = here.take("appends")["appends"], dags.appends()
    with engine("appends"):
        run.retry("again.p")
        run.run(dag, "again.p")
        assert here.rows("appends") == EXPECTED["appends"]
        run.clear("again.p")
        for _ in range(2):
            run.run(dag, "again.p")
            assert here.rows("appends") == and_rows(EXPECTED["appends"], (5, "2019-02"))
            run.retry("again.p")


def test_rows_that_were_refused_stay_out_and_mended_ones_come_once(here: Lake) -> None:
    run, dag = here.take("appends")["appends"], dags.appends()
    with engine("appends"):
        for _ in range(2):
            assert outcome(lambda: run.run(dag, "checked.reconcile"))
            run.retry("checked.bad")
            assert outcome(lambda: run.run(dag, "checked.bad"))
            assert here.rows("appends") == EXPECTED["appends"]
    with engine("appends", {"bad": {"2019-03": [60]}}):
        run.clear("checked.bad")
        run.run(dag, "checked.bad")
        run.run(dag, "checked.reconcile")
    assert here.rows("appends") == and_rows(EXPECTED["appends"], (60, "2019-03"))


def test_of_two_buffers_of_one_writer_only_the_corrected_one_is_published(here: Lake) -> None:
    run, dag = here.take("appends")["appends"], dags.appends("right")
    with engine("appends"):
        for _ in range(2):
            run.run(dag, "corrected.reconcile")
            assert here.rows("appends") == and_rows(EXPECTED["appends"], (51, "2019-05"))
        run.retry("corrected.w")
        run.run(dag, "corrected.w")
    assert here.rows("appends") == and_rows(EXPECTED["appends"], (51, "2019-05"))


def test_the_second_hour_of_one_key_doubles_nothing_of_the_first(here: Lake) -> None:
    first = here.take("months")["hours"]
    second = Run(
        "hours",
        "the second",
        first.began,
        partition_key=first.partition_key,
        partition_date="2024-10-27T01:00:00+00:00",
    )
    with engine("hours", {"append": {"2024-10": [2401]}}):
        outcome(lambda: second.run(dags.hours(), "append"))
    assert here.rows("months") in (EXPECTED["months"], and_rows(EXPECTED["months"], (2401, "2024-10")))


@pytest.mark.parametrize("on_rerun", ["skip", "replace"])
@pytest.mark.parametrize("how", ["retry", "clear", "made_again", "a backfill"])
@pytest.mark.parametrize("append", [each for each in APPENDS if each.table == "months"], ids=lambda each: each.run)
def test_a_partition_that_runs_again_under_its_old_name_adds_nothing(
    here: Lake, append: Published, how: str, on_rerun: str
) -> None:
    run, dag = here.take("months")[append.run], append.dag()
    dag.get_task(append.task).on_rerun = on_rerun
    if how == "a backfill":
        run = attrs.evolve(run.made_again(), run_id="by a backfill")
    elif how == "made_again":
        run = run.made_again()
    else:
        getattr(run, how)(append.task)
    with engine(run.dag_id):
        for _ in range(2):
            refused = outcome(lambda: run.run(dag, append.task))
            # Two hours had this name: nobody knows whether the other run was of this one.
            assert refused == ("OrphanWriterError" if (append.run, how) == ("hours", "a backfill") else DONE)
            assert here.rows("months") == EXPECTED["months"]
            run.retry(append.task)


def test_a_tick_whose_former_name_the_table_has_is_refused_by_name_until_its_author_says_append(here: Lake) -> None:
    first = here.take("months")["hours"]
    second = attrs.evolve(first, run_id="the second", partition_date="2024-10-27T01:00:00+00:00", tasks={})
    with engine("hours", {"append": {"2024-10": [2401]}}):
        for again in (lambda: None, second.clear):
            again()
            assert outcome(lambda: second.run(dags.hours(), "append")) == "OrphanWriterError"
            assert here.rows("months") == EXPECTED["months"]
        second.clear()
        dag = dags.hours()
        dag.get_task("append").on_rerun = "append"
        assert second.run(dag, "append")["run"] == "partition:2024-10-27T02:00:00 2024-10-27T01:00:00+00:00"
    assert here.rows("months") == and_rows(EXPECTED["months"], (2401, "2024-10"))
    # And each is found under its own name from then on.
    with engine("hours"):
        for run, name in ((first, "partition:2024-10-27T02:00:00"), (second, "partition:2024-10-27T02:00:00 2024")):
            run.clear()
            done = run.run(dags.hours(), "append")
            assert done["status"] != "published"
            assert done["run"].startswith(name)
    assert here.rows("months") == and_rows(EXPECTED["months"], (2401, "2024-10"))


# -- overwrites ----------------------------------------------------------------------------------------------------


def test_a_cleared_overwrite_replaces_its_partitions_and_a_retry_does_not(here: Lake) -> None:
    run, dag = here.take("overwrites")["overwrites january"], dags.overwrites("january", ())
    first, second = partitions("settled")
    others = [row for row in EXPECTED["overwrites"] if row[1] not in (first, second)]
    with engine("overwrites", {"settled january": {first: [7000]}}):
        here.append("overwrites", first, 7)
        run.retry("settled.w")
        # Its source is another one by now, or it is not: either way the rows of before are in the table.
        outcome(lambda: run.run(dag, "settled.w"))
        before = and_rows(EXPECTED["overwrites"], (7, first))
        assert here.rows("overwrites") == before
        run.clear("settled.w")
        run.run(dag, "settled.w")
        run.run(dag, "settled.reconcile")
        assert here.rows("overwrites") == and_rows(others, (7000, first), *(r for r in before if r[1] == second))


@pytest.mark.parametrize("task", ["everything", "a_range"])
def test_a_cleared_overwrite_of_more_than_partitions_replaces_what_it_says(here: Lake, task: str) -> None:
    run, dag = here.take("whole")["whole"], dags.whole()
    kept = [row for row in EXPECTED["whole"] if task == "a_range" and row[1] != JANUARY]
    with engine("whole", {task: {JANUARY: [77]}}):
        run.clear(task)
        for _ in range(2):
            run.run(dag, task)
            assert here.rows("whole") == and_rows(kept, (77, JANUARY))
            run.retry(task)


def test_the_newest_run_of_a_partition_has_the_last_word(here: Lake) -> None:
    runs, dag = here.take("months"), dags.months("2019-01")
    others = [row for row in EXPECTED["months"] if row[1] != "2019-07"]
    with engine("months", {"refreshed '2019-01'": {"2019-07": [700]}}):
        old, new = runs["months 2019-01"], runs["months 2019-01 again"]
        for again in (old.retry, old.clear):
            for task in ("refresh.w", "append"):
                again(task)
                assert outcome(lambda task=task: old.run(dag, task))  # type: ignore[misc]
                assert here.rows("months") == EXPECTED["months"]
        new.clear("refresh.w")
        new.run(dag, "refresh.w")
        new.run(dag, "refresh.reconcile")
    assert here.rows("months") == and_rows(others, (700, "2019-07"))


RIVALS = (*dags.POLICIES, *dags.RIVALS)
UNDECIDED = ("fail", "dead")


def in_partitions(rows: Sequence[Row], name: str) -> list[Row]:
    return [row for row in rows if row[1] in partitions(name)]


@pytest.mark.parametrize("name", [name for name in RIVALS if name not in UNDECIDED])
def test_what_was_settled_stays_settled(here: Lake, name: str) -> None:
    runs = here.take("overwrites")
    with engine("overwrites"):
        for month in ("january", "february"):
            run, dag = runs[f"overwrites {month}"], dags.overwrites(month, ())
            run.run(dag, f"{name}.reconcile")
            run.retry(f"{name}.w")
            run.run(dag, f"{name}.w")
            run.run(dag, f"{name}.reconcile")
            assert here.rows("overwrites") == EXPECTED["overwrites"]


@pytest.mark.parametrize("policies", [dags.POLICIES[:3], ()], ids=["the same policy", "the default policy"])
@pytest.mark.parametrize("name", UNDECIDED)
def test_a_buffer_beside_others_commits_is_settled_whole_or_refused(
    here: Lake, name: str, policies: Collection[str]
) -> None:
    """Among the commits since it began are some that say that they count before others."""
    run, dag = here.take("overwrites")["overwrites january"], dags.overwrites("january", policies)  # type: ignore[arg-type]
    (old, first), (kept, second) = sorted(in_partitions(EXPECTED["overwrites"], name), key=lambda row: row[1] or "")
    (mine, _), (also_mine, _) = sorted(of_january(name), key=lambda row: row[1] or "")
    others = [row for row in EXPECTED["overwrites"] if row[1] not in partitions(name)]
    whole, nothing = (mine, also_mine), (old, kept)
    with engine("overwrites"):
        refused = outcome(lambda: run.run(dag, f"{name}.reconcile"))
        settled = here.rows("overwrites")
        allowed = [nothing] if refused else [whole, nothing]
        assert settled in [and_rows(others, (one, first), (other, second)) for one, other in allowed]
        assert outcome(lambda: run.run(dag, f"{name}.reconcile")) == refused
        assert here.rows("overwrites") == settled
        # A person's clear runs on the newest version.
        run.clear(f"{name}.w")
        refused = outcome(lambda: (run.run(dag, f"{name}.w"), run.run(dag, f"{name}.reconcile")))
        if not refused:
            settled = and_rows(others, (mine, first), (also_mine, second))
        assert here.rows("overwrites") == settled


@pytest.mark.parametrize("how", ["reconcile", "retry"])
@pytest.mark.parametrize("finished", [946_684_800.0, 4_102_444_800.0], ids=["it finished first", "it finished last"])
@pytest.mark.parametrize("policy", dags.POLICIES[:3])
def test_old_and_new_code_at_once_lose_and_double_nothing(
    tmp_path: Path, policy: str, finished: float, how: str
) -> None:
    """The buffer of old code remembers neither a time nor where its load began, and a writer of now has joined it.

    Each of the two partitions has a rival: a commit of old code that says where else it counts, and one of now.
    """
    first, second = partitions("dead")
    (theirs,) = dags.ROWS["overwrites"]["dead february"][first]
    kept, mine = [(theirs, first), (9000, second)], of_january("dead")
    others = [row for row in EXPECTED["overwrites"] if row[1] not in (first, second)]
    with (
        DAG("overwrites", schedule=None) as dag,
        dags.group("overwrites", "dead", mode="overwrite_partitions", on_conflict=policy, shared_scan=False),
    ):
        dags.one("w", "dead january")
        dags.one("joined")
    with lake(tmp_path), engine("overwrites", {"joined": {second: [9000]}}):
        here = Lake(tmp_path, finished)
        run = here.take("overwrites")["overwrites january"]
        say_where_it_counts(tmp_path / "Tables" / "overwrites", "dead february")
        assert run.run(dag, "dead.joined")["status"] == "published"
        if how == "retry":
            run.retry("dead.w")
        for task in ("dead.w", "dead.reconcile") if how == "retry" else ("dead.reconcile",):
            assert outcome(lambda task=task: run.run(dag, task)) == ("ConflictError" if policy == "fail" else DONE)  # type: ignore[misc]
        wins = policy == "last_writer_wins" and finished > time.time()
        assert here.rows("overwrites") == and_rows(others, *(mine if wins else kept))
        run.clear("dead.w")
        assert run.run(dag, "dead.w")["status"] == "published"
        assert here.rows("overwrites") == and_rows(others, *mine)


def say_where_it_counts(table: Path, where: str) -> None:
    """Let a commit be as one that old code has placed before others, and that has spared rows of its load."""
    months = set(dags.ROWS["overwrites"][where])
    entries = {entry: list(map(json.loads, entry.open())) for entry in (table / "_delta_log").glob("*.json")}
    (entry,) = (
        entry
        for entry, actions in entries.items()
        if {action["add"]["partitionValues"]["month"] for action in actions if "add" in action} == months
    )
    settled = {"partition": "month=x", "winner_version": 1, "winner": "w", "values": ["x"]}
    record = next(action["commitInfo"]["staged"] for action in entries[entry] if "commitInfo" in action)
    record |= {"before": 4, "colleagues": ["w"]}
    record["settlements"] = [{**settled, "outcome": "kept"}, {**settled, "outcome": "spared"}]
    entry.write_text("\n".join(map(json.dumps, entries[entry])))


def of_january(name: str) -> list[Row]:
    return [(row, month) for month, rows in dags.ROWS["overwrites"][f"{name} january"].items() for row in rows]


@pytest.mark.parametrize("name", [name for name in RIVALS if name not in UNDECIDED])
def test_a_clear_of_a_write_that_lost_or_half_lost_writes_it_whole(here: Lake, name: str) -> None:
    run, dag = here.take("overwrites")["overwrites january"], dags.overwrites("january", ())
    others = [row for row in EXPECTED["overwrites"] if row[1] not in partitions(name)]
    with engine("overwrites"):
        run.clear(f"{name}.w")
        run.run(dag, f"{name}.w")
        run.run(dag, f"{name}.reconcile")
    assert here.rows("overwrites") == and_rows(others, *of_january(name))


# -- statements ------------------------------------------------------------------------------------------------------

STATEMENTS = ("delete_month", "delete_rows", "update", "merge", "merge_once", "alter", "optimize")
# Rows that the statements would change, if they were done again.
TEMPTING = [(100, "2019-01"), (27, "2019-02"), (22, "2019-02"), (31, "2019-02")]


@pytest.mark.parametrize("kept", ["statements", "statements before the clear"])
@pytest.mark.parametrize("task", STATEMENTS)
def test_a_statement_that_ended_is_not_done_again_by_a_retry(here: Lake, kept: str, task: str) -> None:
    run, dag = here.take("statements")[kept], dags.statements()
    for row, month in TEMPTING:
        here.append("statements", str(month), row)
    # One MERGE has brought it, and the other one has found it there.
    DeltaTable(str(here.path / "Tables" / "statements")).delete("id = 3000")
    rows = here.rows("statements")
    with engine("statements"):
        run.retry(task)
        outcome(lambda: run.run(dag, task))
    assert here.rows("statements") == rows


def test_a_clear_does_a_statement_to_what_is_there_now(here: Lake) -> None:
    run, dag = here.take("statements")["statements"], dags.statements()
    for row, month in TEMPTING[:3]:
        here.append("statements", str(month), row)
    expected = and_rows(EXPECTED["statements"], *TEMPTING[:3])
    with engine("statements", vectors=True):
        for task, gone in zip(("delete_month", "delete_rows"), TEMPTING, strict=False):
            run.clear(task)
            run.run(dag, task)
            expected.remove(gone)
            assert here.rows("statements") == expected
        for task in ("update", "merge", "merge_once"):
            run.clear(task)
            # An update is not done twice, and is refused where rows have changed since.
            outcome(lambda task=task: run.run(dag, task))  # type: ignore[misc]
            assert here.rows("statements") == expected


def test_a_table_is_emptied_by_the_newest_start_alone(here: Lake) -> None:
    runs, dag = here.take("emptied"), dags.emptied()
    with engine("emptied"):
        for run in (runs["emptied"], runs["emptied before the clear"]):
            for task in ("truncate", "restore", "late_truncate"):
                run.retry(task)
                outcome(lambda run=run, task=task: run.run(dag, task))  # type: ignore[misc]
                assert here.rows("emptied") == EXPECTED["emptied"]
        runs["emptied"].clear("truncate")
        runs["emptied"].run(dag, "truncate")
    assert here.rows("emptied") == []


ROUNDS: dict[str, tuple[list[Row], list[Row]]] = {
    "update": ([(1, JANUARY), (2, JANUARY)], [(1001, JANUARY), (1002, JANUARY)]),
    "delete": ([(5, "2019-02")], []),
    "merge": ([(3, JANUARY)], [(3, "2019-03"), (30, "2019-03")]),
}


@pytest.mark.parametrize("how", ["retry", "clear"])
@pytest.mark.parametrize("overtaken", [False, True], ids=["alone", "overtaken"])
@pytest.mark.parametrize("first", ROUNDS)
def test_what_spark_has_done_for_a_try_that_died_is_done_once(
    here: Lake, how: str, overtaken: bool, first: str
) -> None:
    run, dag = here.take("rounds")["rounds"], dags.rounds()
    rows = list(EXPECTED["rounds"])
    # Only the first one finds the files that Spark has read.
    for task, (gone, came) in sorted(ROUNDS.items(), key=lambda each: each[0] != first):
        if overtaken:
            here.append("rounds", "2019-05", 900 + len(rows))
            rows.append((900 + len(rows), "2019-05"))
        with engine("rounds", vectors=task == "delete"):
            getattr(run, how)(task)
            rows = [row for row in rows if row not in gone] + came
            for _ in range(2):
                run.run(dag, task)
                assert here.rows("rounds") == in_order(rows)
                run.retry(task)


# -- loads that are not settled yet --------------------------------------------------------------------------------

LOADED = and_rows([(at, JANUARY) for at in range(1, 6)], *((10 * at, f"2019-0{at}") for at in (2, 3, 4)))
WRITERS = [("load.write", index) for index in range(5)] + [("refresh.write", index) for index in range(3)]
BEGUN = {f"{task}_{index}" for task, index in WRITERS} - {"load.write_4", "refresh.write_2"}


def run_writers(run: Run) -> None:
    for task, index in WRITERS:
        run.run(dags.running(), task, index)


def reconcile_both(run: Run) -> list[str]:
    return [outcome(lambda group=group: run.run(dags.running(), f"{group}.reconcile")) for group in ("load", "refresh")]  # type: ignore[misc]


@pytest.mark.parametrize("how", ["retry", "clear", "made again"])
def test_a_load_that_was_running_ends_with_each_row_once(here: Lake, how: str) -> None:
    run = here.take("running")["running"]
    assert run.tasks.keys() == BEGUN
    if how == "made again":
        run = run.made_again()
    elif how == "clear":
        run.clear()
    else:
        for name in run.tasks:
            run.retry(name)
    with engine("running"):
        run_writers(run)
        for _ in range(2):
            assert reconcile_both(run) == [DONE, DONE]
            assert here.rows("running") == LOADED


def test_reconcile_publishes_what_is_complete_once_and_the_others_come_later(here: Lake) -> None:
    run = here.take("running")["running"]
    # Airflow has begun none of these, and says so.
    for name in ("load.write_4", "refresh.write_2"):
        run.tasks[name] = attrs.evolve(run.tasks["load.write_3"], state="upstream_failed", kept={}, xcoms={})
    complete = and_rows([row for row in EXPECTED["running"] if row[0] != 300], (2, JANUARY), (30, "2019-03"))
    with engine("running"):
        for _ in range(2):
            assert all(reconcile_both(run))
            assert here.rows("running") == complete
        run.clear()
        run_writers(run)
        assert reconcile_both(run) == [DONE, DONE]
    assert here.rows("running") == LOADED


@pytest.fixture
def checks_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an author have taken checks of each writer in place of those of all writers together, which are gone."""
    with pytest.raises(InvalidWriteError, match="checks of all writers of a load together are gone"):
        dags.together("march")
    group, one = dags.group, dags.one
    monkeypatch.setattr(dags, "group", lambda *named, checks, **terms: group(*named, **terms))
    monkeypatch.setattr(dags, "one", lambda *named: one(*named, checks={"some": "count(*) > 0"}))


def of_month(others: Sequence[Row], month: str, number: int) -> list[Row]:
    return and_rows(
        [row for row in others if not str(row[1]).startswith(month)],
        *((10 * number + at, f"{month}-{key}") for at, key in enumerate("ab")),
    )


@pytest.mark.usefixtures("checks_of_each")
def test_a_load_that_was_published_together_is_there_once(here: Lake) -> None:
    january, dag = here.take("together")["together january"], dags.together("january")
    with engine("together"):
        january.run(dag, "load.reconcile")
        assert here.rows("together") == EXPECTED["together"]
        for cleared in (("load.a",), ("load.scan", "load.a", "load.b")):
            january.clear(*cleared, "load.reconcile")
            for task in (*cleared, "load.reconcile"):
                january.run(dag, task)
            assert here.rows("together") == EXPECTED["together"]


@pytest.mark.usefixtures("checks_of_each")
@pytest.mark.parametrize("how", ["retry", "clear"])
def test_rows_that_were_checked_together_are_left_alone_and_come_once(here: Lake, how: str) -> None:
    run, dag = here.take("together")["together february"], dags.together("february")
    with engine("together"):
        for _ in range(2):
            assert outcome(lambda: run.run(dag, "load.reconcile")) == "MissingWritersError"
            assert here.rows("together") == EXPECTED["together"]
        for task in ("load.a", "load.b"):
            getattr(run, how)(task)
            run.run(dag, task)
        for _ in range(2):
            run.run(dag, "load.reconcile")
            assert here.rows("together") == of_month(EXPECTED["together"], "february", 2)


@pytest.mark.usefixtures("checks_of_each")
def test_a_writer_of_now_beside_one_that_was_to_be_checked_with_it(here: Lake) -> None:
    run, dag = here.take("together")["together march"], dags.together("march")
    with engine("together"):
        run.run(dag, "load.b")
        assert outcome(lambda: run.run(dag, "load.reconcile")) == "MissingWritersError"
        assert here.rows("together") == and_rows(EXPECTED["together"], (31, "march-b"))
        run.retry("load.a")
        for task in ("load.a", "load.reconcile", "load.reconcile"):
            run.run(dag, task)
    assert here.rows("together") == of_month(EXPECTED["together"], "march", 3)


@pytest.mark.usefixtures("checks_of_each")
def test_one_of_the_writers_of_march_alone_is_not_the_load(here: Lake) -> None:
    run, dag = here.take("together")["together march"], dags.together("march")
    run.tasks["load.b"] = attrs.evolve(run.tasks["load.a"], state="failed", kept={}, xcoms={})
    with engine("together"):
        assert outcome(lambda: run.run(dag, "load.reconcile"))
    assert here.rows("together") == EXPECTED["together"]


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> DAG:
    """A DAG whose check of unique keys is gone, with what its author has taken instead."""
    with pytest.raises(InvalidWriteError, match="is gone"):
        dags.keys()
    monkeypatch.setattr(dags, "unique", lambda column: "count(*) > 0")
    return dags.keys()


@pytest.mark.parametrize("how", ["retry", "clear"])
def test_rows_whose_keys_were_compared_are_in_the_table_once(here: Lake, keys: DAG, how: str) -> None:
    run = here.take("keys")["keys"]
    with engine("keys"):
        getattr(run, how)("load.published")
        assert outcome(lambda: run.run(keys, "load.published")) == "RerunRefusedError"
    assert here.rows("keys") == EXPECTED["keys"]


@pytest.mark.parametrize("how", ["retry", "clear"])
def test_a_buffer_whose_keys_were_to_be_compared_is_left_alone_and_its_rows_come_once(
    here: Lake, keys: DAG, how: str
) -> None:
    run = here.take("keys")["keys"]
    with engine("keys"):
        for _ in range(2):
            assert outcome(lambda: run.run(keys, "left.reconcile")) == "MissingWritersError"
            assert here.rows("keys") == EXPECTED["keys"]
        getattr(run, how)("left.compared")
        run.run(keys, "left.compared")
        run.run(keys, "left.reconcile")
    assert here.rows("keys") == and_rows(EXPECTED["keys"], (20, JANUARY), (21, JANUARY))


@pytest.fixture
def filtered(monkeypatch: pytest.MonkeyPatch) -> DAG:
    """A DAG whose quarantine is gone. Its author has taken a filter in place of it."""
    with pytest.raises(InvalidWriteError, match="on_failed_check='quarantine' is gone"):
        dags.divided()
    group = dags.group
    monkeypatch.setattr(dags, "group", lambda *named, on_failed_check, **terms: group(*named, **terms))
    return dags.divided()


@pytest.mark.parametrize("how", ["retry", "clear"])
def test_rows_that_were_divided_are_in_their_tables_once(here: Lake, filtered: DAG, how: str) -> None:
    run = here.take("divided")["divided"]
    with engine("divided"):
        run.run(filtered, "load.reconcile")
        getattr(run, how)("load.published")
        assert outcome(lambda: run.run(filtered, "load.published")) == "RerunRefusedError"
    for table in ("divided", "divided_quarantine"):
        assert here.rows(table) == EXPECTED[table]


@pytest.mark.parametrize("how", ["retry", "clear"])
def test_a_buffer_that_was_divided_is_left_alone_and_its_good_rows_come_once(
    here: Lake, filtered: DAG, how: str
) -> None:
    run = here.take("divided")["divided"]
    with engine("divided"):
        for _ in range(2):
            assert outcome(lambda: run.run(filtered, "left.reconcile")) == "MissingWritersError"
            assert here.rows("divided") == EXPECTED["divided"]
    with engine("divided", {"dead": {"2019-02": [2]}}):
        getattr(run, how)("left.dead")
        run.run(filtered, "left.dead")
        for _ in range(2):
            run.run(filtered, "left.reconcile")
            assert here.rows("divided") == and_rows(EXPECTED["divided"], (2, "2019-02"))
    assert here.rows("divided_quarantine") == EXPECTED["divided_quarantine"]


# -- files -----------------------------------------------------------------------------------------------------------


def test_no_file_is_loaded_twice_and_none_is_forgotten(here: Lake) -> None:
    runs = here.take("new_files")
    for row in (1, 2, 3, 4):
        put_file(here.path, row)

    def plan_and_load(run: Run) -> None:
        entries = run.run(dags.new_files(str(here.path)), "load.plan")
        for number in range(len(entries)):
            run.run(dags.new_files(str(here.path), entries), "load.write", number)

    today = Run("new_files", "today", runs["new_files 2"].began, "2019-01-03T00:00:00+00:00")
    loaded: list[Row] = EXPECTED["new_files"]
    with engine("new_files"):
        plan_and_load(today)
        # What the second day has planned is still its own.
        assert here.rows("new_files") == (loaded := and_rows(loaded, (4, JANUARY)))
        runs["new_files 2"].retry("load.plan")
        plan_and_load(runs["new_files 2"])
        assert here.rows("new_files") == (loaded := and_rows(loaded, (3, JANUARY)))
        runs["new_files 1"].clear()
        outcome(lambda: plan_and_load(runs["new_files 1"]))
        tomorrow = Run("new_files", "tomorrow", today.began, "2019-01-04T00:00:00+00:00")
        plan_and_load(tomorrow)
    assert here.rows("new_files") == loaded
