"""What a report says: which rows of a load are in the table, whose stand instead, and to which partitions it wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.buffers.progress import WriterProgress
from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.exceptions import ConflictError, RowsSetAsideError, TerminalError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.texts import counted
from airflow_provider_onelake.writes.losses import check_load
from airflow_provider_onelake.writes.policy import Outcome, Settlement
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.reconcile import reconcile
from airflow_provider_onelake.writes.report import Report
from tests.support.tables import LOAD, OVERWRITE, foreign_append, local_log, make_table, stage, writer_spec


@pytest.mark.parametrize("publish", list(PublishMode))
def test_each_partition_that_got_files_is_named_once_and_others_are_not(log: DeltaLog, publish: PublishMode) -> None:
    foreign_append(log, {"2019-09": [9]})
    stage(log, writer_spec("a"), {"2019-01": [1], None: [2]})
    stage(log, writer_spec("b"), {"2019-01": [3]})
    report = reconcile(Committer(log), LOAD, ["a", "b"], publish=publish)
    expected: list[Any] = [{"month": "2019-01"}, {"month": None}]
    assert report.touched_partitions(log) == expected
    # A second reconciliation of the same load says the same.
    assert reconcile(Committer(log), LOAD, ["a", "b"], publish=publish).touched_partitions(log) == expected


def test_it_is_plain_json_for_xcom(log: DeltaLog) -> None:
    """Airflow wraps a tuple, and who reads the XCom would find the wrapping."""
    stage(log, writer_spec("late", **OVERWRITE), {"2019-01": [1]})
    foreign_append(log, {"2019-01": [9]})
    report = reconcile(Committer(log), LOAD, ["late"], on_conflict=Policy.FIRST_WRITER_WINS)
    assert report.outcomes[0].decisions
    assert json.loads(json.dumps(report.to_json())) == report.to_json()
    settlement = Settlement("month=2019-01", 1, "WRITE", Outcome.SET_ASIDE, 1, "1 row")
    assert json.loads(json.dumps(settlement.to_json())) == settlement.to_json()


def test_it_is_a_table_in_a_log(log: DeltaLog) -> None:
    stage(log, writer_spec("eu", **OVERWRITE), {"2019-01": [1, 2]})
    stage(log, writer_spec("germany", **OVERWRITE), {"2019-02": [3]})
    report = reconcile(Committer(log), LOAD, ["eu", "germany", "us"])
    assert report.table_lines() == [
        "writer   status     version  rows staged  in the table  lost races",
        "eu       published        1            2             2           0",
        "germany  published        2            1             1           0",
        "us       missing          -            -             -           0",
    ]
    assert report.in_short == "3 of 3 rows in the table; missing: us"


OTHER = attrs.evolve(LOAD, group="other")
WHOSE = "of taxi.load, run 2019-01-01T00:00:00+00:00"
RED = f"red {WHOSE}"


def settled(log: DeltaLog, *writers: str, load: Load = LOAD, policy: Policy = Policy.LAST_WRITER_WINS) -> Report:
    return reconcile(Committer(local_log(Path(log.table))), load, writers, on_conflict=policy)


def standing(log: DeltaLog, key: str) -> list[Buffer]:
    return list(WriterProgress.of(log, LOAD.writer(key), log.snapshot()).complete)


def rivals(log: DeltaLog) -> None:
    """Blue and red have 4 rows each, 2 of them in the same partition. Blue finished first."""
    for key, at, own in (("blue", 10, "2019-01"), ("red", 20, "2019-03")):
        stage(log, writer_spec(key, **OVERWRITE), {own: [at, at + 1], "2019-02": [at + 2, at + 3]})


@pytest.mark.parametrize("settler", ["reconcile", "their own tasks"])
def test_where_the_last_wins_each_line_says_whose_rows_are_there(log: DeltaLog, settler: str) -> None:
    rivals(log)
    if settler == "their own tasks":
        for key in ("blue", "red"):
            Committer(log).publish(standing(log, key))
    # A second reconciliation, such as the retry after a worker died, knows the same.
    for _ in range(2):
        report = settled(log, "blue", "red")
        blue, red = report.outcomes
        assert [line.split()[3:5] for line in report.table_lines()[1:]] == [["4", "2"], ["4", "4"]]
        assert blue.aftermath == (f"2 of its 4 rows were replaced by {RED} in version 2",)
        assert (red.version, red.aftermath) == (2, ())
        assert report.left_out == {"blue": list(blue.aftermath)}
        assert report.in_short == "6 of 8 rows in the table; left out: blue"
        with pytest.raises(RowsSetAsideError, match=f"not in the table {log.table}. blue: 2 .*{re.escape(RED)}"):
            check_load(report)


def test_of_two_groups_with_one_key_the_loser_says_by_whom_it_was_replaced(log: DeltaLog) -> None:
    for load, row in ((LOAD, 1), (OTHER, 2)):
        stage(log, writer_spec("w", load, **OVERWRITE), {"2019-01": [row]})
        settled(log, "w", load=load)
    (loser,), (winner,) = settled(log, "w").outcomes, settled(log, "w", load=OTHER).outcomes
    assert (loser.status, loser.rows_in_table) == ("superseded", 0)
    assert loser.aftermath == (f"its rows were replaced by w {WHOSE.replace('load', 'other')} in version 2",)
    assert (winner.status, winner.rows_in_table, winner.aftermath) == ("already_published", 1, ())


@pytest.mark.parametrize(
    ("policy", "late", "outcome"),
    [
        (Policy.FIRST_WRITER_WINS, {"2019-02": [5]}, "set aside"),
        (Policy.LAST_WRITER_WINS, {"2019-01": [5], "2019-02": [6, 7]}, "superseded"),
    ],
)
def test_a_write_that_is_left_out_is_told_whole_with_the_rows_that_stand(
    log: DeltaLog, policy: Policy, late: dict[str | None, list[int]], outcome: str
) -> None:
    """Only one partition is in conflict with the first that wins, and nothing of the write is in the table."""
    blue = stage(log, writer_spec("blue", **OVERWRITE), {"2019-01": [1, 2], "2019-02": [3]})
    red = stage(log, writer_spec("red", **OVERWRITE), late)
    Committer(log).publish([red])
    (mine,) = Committer(log).publish([blue], policy).settlements[:1]
    rows = len([row for rows in late.values() for row in rows])
    places = ", ".join(f"month={month}" for month in late)
    assert str(mine) == (
        f"all of it is {outcome}, 3 rows in month=2019-01, month=2019-02: version 1 ({RED}) put "
        f"{counted(rows, 'row')} into {places}, and {'was there first' if outcome == 'set aside' else 'finished later'}"
    )
    for _ in range(2):
        (found, _) = settled(log, "blue", "red", policy=policy).outcomes
        assert (found.status.replace("_", " "), found.rows_staged, found.rows_in_table) == (outcome, 3, 0)
        assert found.decisions == (str(mine),)
    said = DeltaTable(log.table).history(1)[0]["userMetadata"]
    assert said.endswith(f"blue left out. A{str(mine)[1:]}")


def test_a_refusal_says_whose_rows_stand_and_its_clear_helps(log: DeltaLog) -> None:
    blue = stage(log, writer_spec("blue", **OVERWRITE), {"2019-01": [1, 2], "2019-02": [3]})
    Committer(log).publish([stage(log, writer_spec("red", **OVERWRITE), {"2019-02": [4, 5]})])
    for _ in range(2):
        report = settled(log, "blue", "red", policy=Policy.FAIL)
        with pytest.raises(ConflictError) as caught:
            report.raise_for_failures()
        said = str(caught.value)
        assert f"version 1 ({RED}) put 2 rows into month=2019-02. Writers 'blue' replace these rows" in said
        assert said.endswith("writers of one load that replace one partition meet in every run, so give each its own.")
        assert report.in_short == "2 of 5 rows in the table; refused: blue"
    assert log.snapshot().version == 1
    again = stage(log, attrs.evolve(blue.spec, generation=2, attempt="again", began=None), {"2019-02": [6]})
    assert Committer(log).publish([again], Policy.FAIL).status == "published"


def test_what_to_do_is_said_once_for_all_writers_that_are_refused(log: DeltaLog) -> None:
    rivals(log)
    stage(log, writer_spec("green", **OVERWRITE), {"2019-02": [30]})
    report = settled(log, "blue", "red", "green", policy=Policy.FAIL)
    with pytest.raises(TerminalError) as caught:
        report.raise_for_failures()
    said = str(caught.value)
    assert [said.count(f"Writers '{key}' replace these rows") for key in ("blue", "red", "green")] == [0, 1, 1]
    assert (said.count("clear the writers"), said.endswith("so give each its own.")) == (1, True)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("", "its task had not published its rows"),
        ("CommitContentionError", "its task gave up after lost races"),
        ("StoreUnavailableError", "the store had not answered its task"),
        ("ConflictError", "its task was refused"),
    ],
)
def test_what_reconcile_makes_good_is_said_with_what_ended_the_task(log: DeltaLog, error: str, why: str) -> None:
    stage(log, writer_spec("blue", **OVERWRITE), {"2019-01": [1]})
    (blue,) = reconcile(Committer(log), LOAD, ["blue"], ended={"blue": error}).outcomes
    assert blue.decisions == (f"published now; {why}",)
    (blue,) = settled(log, "blue").outcomes
    assert (blue.status, blue.decisions) == ("already_published", ())


def test_a_refused_write_that_a_later_one_has_replaced_since_is_superseded_and_says_so(log: DeltaLog) -> None:
    stage(log, writer_spec("blue", **OVERWRITE), {"2019-01": [1], "2019-02": [2]})
    Committer(log).publish([stage(log, writer_spec("red", **OVERWRITE), {"2019-02": [3]})])
    assert settled(log, "blue").outcomes[0].status == "refused"
    Committer(log).publish([stage(log, writer_spec("green", **OVERWRITE), {"2019-01": [4], "2019-02": [5]})])
    (blue,) = reconcile(Committer(log), LOAD, ["blue"], ended={"blue": "OutOfDateError"}).outcomes
    assert (blue.status, blue.decisions[0]) == ("superseded", "superseded now; its task was refused")


def test_a_load_whose_rows_are_all_there_is_fine(log: DeltaLog) -> None:
    stage(log, writer_spec("a", **OVERWRITE), {"2019-01": [1]})
    stage(log, writer_spec("b", **OVERWRITE), {"2019-02": [2]})
    check_load(settled(log, "a", "b"))


@pytest.mark.parametrize(("by", "rows", "touched"), [(["month"], {}, []), ([], {None: [1]}, [{}])], ids=str)
def test_a_load_without_rows_or_partitions(tmp_path: Path, by: list[str], rows: Any, touched: list[Any]) -> None:
    log = make_table(tmp_path / "t", partition_by=by)
    stage(log, writer_spec("a"), rows)
    assert reconcile(Committer(log), LOAD, ["a"]).touched_partitions(log) == touched


def test_too_many_stand_for_all(log: DeltaLog) -> None:
    stage(log, writer_spec("a"), {f"2019-{month:02}": [month] for month in range(1, 5)})
    report = reconcile(Committer(log), LOAD, ["a"])
    assert report.touched_partitions(log, most=3) is None
    assert len(report.touched_partitions(log, most=4) or ()) == 4
