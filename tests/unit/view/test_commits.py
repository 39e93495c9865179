"""Pages of a table's versions cost the same however many versions there are."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.claims import Start, begin
from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.commit.words import task_in_words
from airflow_provider_onelake.exceptions import InvalidWriteError, TableNotFoundError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.compact import publish_rewrite
from airflow_provider_onelake.maintenance.restore import restore
from airflow_provider_onelake.maintenance.shadow import read_rewrite
from airflow_provider_onelake.statements.asker import TaskIdentity
from airflow_provider_onelake.view.commits import (
    Wanted,
    bound,
    commit_in_full,
    dag_of,
    made_by,
    page_of_commits,
    summary_of,
    task_of,
    tasks_of,
    versions_now,
    writers_now,
)
from airflow_provider_onelake.writes.policy import Policy
from airflow_provider_onelake.writes.publish import Committer
from tests.support.changes import ChangeByHand, asker, change_of, three_files
from tests.support.shadows import rewritten
from tests.support.stores import Counted, through
from tests.support.tables import (
    EARLIER_LOAD,
    LOAD,
    OVERWRITE,
    commit_of,
    foreign_append,
    foreign_commit,
    local_log,
    make_table,
    newest,
    stage,
    writer_spec,
)


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    found = make_table(tmp_path / "trips")
    for number in range(6):
        foreign_append(found, {"2019-01": [number]})
    return found


def versions(page: dict[str, Any]) -> list[int]:
    return [commit["version"] for commit in page["commits"]]


def test_pages_lead_from_the_newest_version_to_the_first(log: DeltaLog) -> None:
    first = page_of_commits(log, limit=3)
    assert (versions(first), first["newest"], first["before"]) == ([6, 5, 4], 6, 4)
    second = page_of_commits(log, first["before"], limit=3)
    assert (versions(second), second["before"]) == ([3, 2, 1], 1)
    last = page_of_commits(log, second["before"], limit=3)
    assert (versions(last), last["before"], last["cleaned_up"]) == ([0], None, False)
    assert versions(page_of_commits(log, before=99)) == [6, 5, 4, 3, 2, 1, 0]
    assert versions(page_of_commits(log, before=0)) == []


def test_a_page_costs_the_same_however_long_the_log_is(tmp_path: Path) -> None:
    costs = []
    for length in (20, 80):
        made = make_table(tmp_path / str(length))
        for number in range(length):
            foreign_append(made, {"2019-01": [number]})
        DeltaTable(made.table).create_checkpoint()
        counted = Counted(made.store)
        page_of_commits(through(counted, made), limit=10)
        costs.append(counted.calls)
    assert costs[0] == costs[1]
    # The hint, twice, and the checkpoint; and ten versions.
    assert costs[0]["get"] <= 13


def test_entries_that_were_cleaned_up_end_the_pages(log: DeltaLog) -> None:
    for version in range(3):
        log.store.delete(f"_delta_log/{version:020d}.json")
    opened = local_log(Path(log.table))
    page = page_of_commits(opened)
    assert (versions(page), page["before"], page["cleaned_up"]) == ([6, 5, 4, 3], None, True)
    with pytest.raises(InvalidWriteError, match="no version 1 in its log"):
        commit_in_full(opened, 1)


def test_there_is_no_page_where_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        page_of_commits(local_log(tmp_path / "empty"))


def test_a_version_says_which_of_its_rows_are_in_the_table_now_and_whose_stand_instead(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    blue = stage(log, writer_spec("blue", **OVERWRITE), {"2019-01": [1, 2], "2019-02": [3, 4]})
    Committer(log).publish([blue])
    rival = attrs.evolve(LOAD, group="rival")
    Committer(log).publish([stage(log, writer_spec("blue", rival, **OVERWRITE), {"2019-02": [5]})])
    late = stage(log, writer_spec("late", **OVERWRITE), {"2019-01": [6]})
    Committer(log).publish([stage(log, writer_spec("green", **OVERWRITE), {"2019-01": [7]})])
    Committer(log).publish([late], Policy.FIRST_WRITER_WINS)

    def told(version: int) -> tuple[Any, ...]:
        (writer,) = commit_in_full(log, version)["published"]
        return tuple(writer[name] for name in ("status", "rows_staged", "rows_in_table", "said"))

    whose = "run 2019-01-01T00:00:00+00:00"
    gone = [
        f"2 of its 4 rows were replaced by blue of taxi.rival, {whose} in version 2",
        f"its rows were replaced by green of taxi.load, {whose} in version 3",
    ]
    assert told(1) == ("superseded", 4, 0, gone)
    assert told(2) == ("published", 1, 1, [])
    left_out = f"version 3 (green of taxi.load, {whose}) put 1 row into month=2019-01, and was there first"
    assert told(4) == ("set_aside", 1, 0, [f"all of it is set aside, 1 row in month=2019-01: {left_out}"])
    assert versions_now(log, [4, 2, 99]) == {version: writers_now(log, commit_of(log, version)) for version in (2, 4)}
    # A version is shown also where a later one cannot be read.
    Path(log.table, version_path(3)).write_text("{not json")
    (writer,) = commit_in_full(local_log(Path(log.table)), 1)["published"]
    assert (writer["status"], writer["rows_in_table"]) == ("published", None)


def test_a_version_of_which_an_earlier_release_left_out_a_part_says_what_is_there_of_it(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    Committer(log).publish([stage(log, writer_spec(**OVERWRITE), {"2019-01": [1], "2019-02": [2]})])
    entry = Path(log.table, version_path(1))
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    actions[0]["commitInfo"]["staged"]["writers"][0]["left_out"] = True
    entry.write_bytes(dump_actions(actions))
    (writer,) = commit_in_full(local_log(Path(log.table)), 1)["published"]
    assert (writer["status"], writer["rows_in_table"]) == ("published", 2)


def test_writers_lead_to_their_task_instances(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    task_start = Start(id="d", task="load.write[3]", run_id="manual__1", chain="c")
    eu, us = LOAD.writer("eu"), LOAD.writer("us")
    begin(log, eu, task_start)
    # A DAG that was renamed goes on under its ``load_name``.
    begin(log, us, attrs.evolve(task_start, id="e", task="write_us", chain="b", dag="taxi_v2"))
    tasks = {"eu": "load.write[3]", "us": "write_us", "gone": "load.write[4]"}
    buffers = [stage(log, writer_spec(key, task=task), {"2019-01": [1]}) for key, task in tasks.items()]
    log.store.delete(f"{LOAD.writer('gone').directory}/_claim-1.json")
    Committer(log).publish(buffers)
    commit = log.commit(1)
    assert commit is not None
    found = dict(zip([w.writer for w in commit.writers], tasks_of(log, commit.writers, "test"), strict=True))
    assert found == {
        "eu": {"dag": "taxi", "run": "manual__1", "task": "load.write", "map_index": 3},
        "us": {"dag": "taxi_v2", "run": "manual__1", "task": "write_us", "map_index": -1},
        "gone": None,
    }
    assert tasks_of(log, commit.writers, "another deployment") == [None, None, None]


def test_a_statement_a_restore_and_a_compaction_are_by_their_dag_and_task(tmp_path: Path) -> None:
    log = three_files(tmp_path / "trips")
    change_of(log, ChangeByHand(), task="forget").carry_out()
    asked = attrs.evolve(asker("back"), identity=TaskIdentity("test/mend/undo[3]/r%2F1"))
    restore(Transactions(log), 2, newest(log), asked, on_newer_commit=OnNewerCommit.UNDO)
    shadow = rewritten(log)
    rewrite = read_rewrite(log.store, shadow)
    assert rewrite is not None
    publish_rewrite(Transactions(log), shadow, rewrite, by=task_in_words("upkeep", "a.compact", "r1", "test"))
    person = attrs.evolve(asker("x"), identity=TaskIdentity("terminal/1"), by="onelake restore, by root")
    restore(Transactions(log), 4, newest(log), person, on_newer_commit=OnNewerCommit.UNDO)
    foreign_append(log, {"1": [1]}, engineInfo="Spark/4", userMetadata="a.b, run r (n): no task of ours")

    def told(version: int) -> tuple[Any, ...]:
        commit = commit_of(log, version)
        return (*made_by(commit), dag_of(commit), task_of(commit, "test"))

    assert told(3) == ("dag.forget", "run", "dag", {"dag": "dag", "run": "run", "task": "forget", "map_index": -1})
    assert told(4) == ("mend.undo[3]", "r/1", "mend", {"dag": "mend", "run": "r/1", "task": "undo", "map_index": 3})
    assert told(5) == ("upkeep.a.compact", "r1", "upkeep.a.compact", None)
    assert told(6) == ("onelake restore, by root", None, None, None)
    assert told(7) == ("Spark/4", None, None, None)
    assert task_of(commit_of(log, 3), "another deployment") is None
    assert versions(page_of_commits(log, wanted=Wanted(dag="UPKEEP"))) == [5]


def test_rows_are_those_that_the_table_has_more_and_not_those_that_were_rewritten(tmp_path: Path) -> None:
    log = three_files(tmp_path / "trips")
    change_of(log, ChangeByHand(), task="delete").carry_out()
    change_of(
        log, ChangeByHand(hits=lambda row: row == 1), "UPDATE", task="update", assignments={"id": "1"}
    ).carry_out()
    Committer(log).publish([stage(log, writer_spec(**OVERWRITE), {"2019-01": [10, 11, 12]})])
    foreign_commit(log, [{"commitInfo": {"operation": "DELETE", "operationMetrics": []}}, {"remove": {"path": "x"}}])

    def told(version: int) -> list[int | None]:
        found = summary_of(commit_of(log, version))
        return [found[name] for name in ("rows", "rows_new", "rows_gone", "rows_updated", "rows_added", "rows_removed")]

    assert told(3) == [-3, 0, 3, None, 6, 9]
    assert told(4) == [0, 0, 0, 1, 4, 4]
    assert told(5) == [-1, 3, 4, None, 3, 4]
    assert told(6) == [None, 0, None, None, 0, None]


BEGAN = datetime(2019, 1, 1, tzinfo=UTC)


def at_hour(hour: int) -> int:
    """Hours since the first of the year, as a commit says its time."""
    return int((BEGAN + timedelta(hours=hour)).timestamp() * 1000)


@pytest.fixture
def told(tmp_path: Path) -> DeltaLog:
    """Versions 1 to 4, one an hour: a WRITE, a MERGE, a WRITE, an OPTIMIZE."""
    made = make_table(tmp_path / "told")
    for hour, operation in enumerate(("WRITE", "MERGE", "WRITE", "OPTIMIZE"), start=1):
        foreign_append(made, {"2019-01": [hour]}, timestamp=at_hour(hour), operation=operation)
    return made


def test_a_filter_takes_what_meets_all_of_its_conditions(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    late = stage(log, writer_spec("late", **OVERWRITE), {"2019-01": [1]})
    rival = attrs.evolve(EARLIER_LOAD, dag="rival")
    Committer(log).publish([stage(log, writer_spec("early", rival, **OVERWRITE), {"2019-01": [2]})])
    Committer(log).publish([late], Policy.LAST_WRITER_WINS)
    foreign_append(log, {"2019-01": [3]})

    def found(**terms: Any) -> list[int]:
        return versions(page_of_commits(log, wanted=Wanted(**terms)))

    assert found() == [3, 2, 1, 0]
    assert found(dag="TAX") == [2]
    assert found(dag="rival") == [1]
    assert found(writer="ear") == [1]
    assert found(writer="ear", dag="taxi") == []
    assert found(operation="write") == [3, 2, 1]
    assert found(settled=True) == [2]
    assert found(settled=True, dag="rival") == []
    assert [commit["by"] for commit in page_of_commits(log)["commits"]] == [
        None,
        "late of taxi.load",
        "early of rival.load",
        None,
    ]


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("2", "", [4, 3, 2]),
        ("", "2", [2, 1, 0]),
        ("2", "3", [3, 2]),
        ("99", "", []),
        ("", "99", [4, 3, 2, 1, 0]),
        ("2019-01-01T02:00", "", [4, 3, 2]),
        ("2019-01-01 02:00:00.001", "", [4, 3]),
        ("", "2019-01-01 01:59", [1]),
        ("", "2019-01-01 02:00", [2, 1]),
        ("2019-01-01 02:00", "2019-01-01T03:00:00Z", [3, 2]),
        ("2019-01-01 02:00+01:00", "2019-01-01 04:00+01:00", [3, 2, 1]),
        ("2019-01-01", "2019-01-01", [4, 3, 2, 1]),
        ("2019-01-02", "", []),
        ("2", "2019-01-01 03:30", [3, 2]),
    ],
)
def test_a_range_is_of_versions_or_of_times(told: DeltaLog, since: str, until: str, expected: list[int]) -> None:
    # Version 0 was made now, by the clock of this machine, so it lies in no range of times that ends in 2019.
    wanted = Wanted(since=bound("since", since), until=bound("until", until))
    assert versions(page_of_commits(told, wanted=wanted)) == expected


@pytest.mark.parametrize("text", ["yesterday", "-1", "2019-13-01", "1.5", "5" * 5_000, "\ud800"])
def test_what_is_neither_a_version_nor_a_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidWriteError, match="neither a version nor a time") as caught:
        bound("since", text)
    assert len(str(caught.value)) < 200


def test_pages_of_a_filter_lead_on_behind_what_was_looked_at_and_end_with_the_range(told: DeltaLog) -> None:
    wanted = Wanted(operation="MERGE", since=1)
    first = page_of_commits(told, limit=2, wanted=wanted)
    assert (versions(first), first["looked_at"], first["before"]) == ([], [3, 4], 3)
    second = page_of_commits(told, first["before"], limit=2, wanted=wanted)
    assert (versions(second), second["looked_at"], second["before"]) == ([2], [1, 2], None)
    beyond = page_of_commits(told, wanted=Wanted(since=99))
    assert (versions(beyond), beyond["looked_at"], beyond["before"]) == ([], None, None)


def test_a_filter_that_finds_nothing_costs_no_more_than_a_page(tmp_path: Path) -> None:
    made = make_table(tmp_path / "t")
    for number in range(60):
        foreign_append(made, {"2019-01": [number]}, timestamp=at_hour(number))
    DeltaTable(made.table).create_checkpoint()
    counted = Counted(made.store)
    page = page_of_commits(through(counted, made), limit=10, wanted=Wanted(writer="nobody"))
    assert (versions(page), page["looked_at"], page["before"]) == ([], [51, 60], 51)
    assert counted.calls["get"] <= 13
    # A time costs the steps of a search among 61 versions more.
    counted.calls.clear()
    long_ago = Wanted(until=bound("until", "2019-01-01 05:00"))
    assert versions(page_of_commits(through(counted, made), limit=3, wanted=long_ago)) == [6, 5, 4]
    assert counted.calls["get"] <= 3 + 6 + 3
