"""``onelake reconcile`` and ``restore``: a rehearsal changes nothing, and ``--yes`` does what was rehearsed."""

from __future__ import annotations

import getpass
import json
import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from airflow_provider_onelake.choices import PublishMode
from airflow_provider_onelake.cli import main
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.tables import (
    EARLIER_LOAD,
    LOAD,
    OVERWRITE,
    foreign_append,
    ids,
    landed_at,
    make_table,
    newest,
    prepare,
    stage,
    writer_spec,
)

NOON = datetime(2019, 1, 31, 12, tzinfo=UTC)


def ask(*words: object) -> Result:
    return CliRunner().invoke(main.app, [str(word) for word in words])


def told(*words: object, status: int = 0) -> Any:
    result = ask(*words, "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def refused(*words: object) -> str:
    result = ask(*words)
    assert (result.exit_code, "Traceback" in result.output) == (1, False), result.output
    return result.stderr


def files(table: Path) -> Mapping[Path, bytes]:
    return {path: path.read_bytes() for path in table.rglob("*") if path.is_file()}


@pytest.fixture
def table(tmp_path: Path) -> DeltaLog:
    return make_table(tmp_path / "trips")


def statuses(reports: Any) -> dict[str, str]:
    return {writer["writer"]: writer["status"] for report in reports for writer in report["writers"]}


def test_a_rehearsal_says_what_would_be_published_and_its_own_last_line_does_it(table: DeltaLog) -> None:
    foreign_append(table, {"2019-01": [1]})
    stage(table, writer_spec("a", **OVERWRITE), {"2019-01": [2]})
    stage(table, writer_spec("b", **OVERWRITE), {"2019-02": [3]})
    before = files(Path(table.table))
    rehearsed = ask("reconcile", table.table)
    assert rehearsed.exit_code == 0, rehearsed.output
    assert files(Path(table.table)) == before
    (report,) = told("reconcile", table.table)
    assert (statuses([report]), report["version"], report["done"]) == ({"a": "published", "b": "published"}, 3, False)
    done = ask(*shlex.split(rehearsed.output.splitlines()[-1])[1:])
    assert (done.exit_code, "Nothing was changed" in done.output) == (0, False), done.output
    assert ids(Path(table.table)) == [2, 3]
    assert "No complete buffer waits" in ask("reconcile", table.table).output


def test_a_conflict_is_refused_unless_a_policy_is_named(table: DeltaLog) -> None:
    stage(table, writer_spec("late", **OVERWRITE), {"2019-01": [2]})
    winner = stage(table, writer_spec("w", EARLIER_LOAD, **OVERWRITE), {"2019-01": [1]})
    table_of = [table.table, "--load", EARLIER_LOAD.id]
    assert statuses(told("reconcile", *table_of, "--yes")) == {"w": "published"}
    assert winner.spec.identity.load == EARLIER_LOAD
    (refused_,) = told("reconcile", table.table, "--yes", status=2)
    assert (statuses([refused_]), "late" in refused_["failure"]) == ({"late": "refused"}, True)
    assert ids(Path(table.table)) == [1]
    # A command that would do nothing is none to end with.
    useless = ask("reconcile", table.table).output
    assert (useless.splitlines()[-1], "clear the writers" in useless) == (
        "Nothing was changed, and --yes would change nothing: do what is said above.",
        True,
    )
    rehearsed = ask("reconcile", table.table, "--on-conflict", "first_writer_wins")
    # All of the write, and whose rows stand.
    whose = "(w of taxi.load, run 2018-12-01T00:00:00+00:00) put 1 row into month=2019-01, and was there first"
    assert f"late: all of it is set aside, 1 row in month=2019-01: version 1 {whose}" in rehearsed.output
    assert statuses(told("reconcile", table.table, "--on-conflict", "first_writer_wins", "--yes")) == {
        "late": "set_aside"
    }
    assert ids(Path(table.table)) == [1]


def test_a_policy_that_is_gone_is_refused_with_what_to_take(table: DeltaLog) -> None:
    result = ask("reconcile", table.table, "--on-conflict", "first_writer_wins_per_partition")
    said = " ".join(result.output.replace("│", "").split())
    assert result.exit_code == 64
    assert re.search(r"'--on-conflict': .* is gone.* Take 'first_writer_wins', and one writer", said)


def test_a_writer_that_is_not_complete_holds_the_others_back_unless_told_otherwise(table: DeltaLog) -> None:
    stage(table, writer_spec("a"), {"2019-01": [1]})
    prepare(table, writer_spec("b"))
    result = ask("reconcile", table.table, "--yes")
    assert result.exit_code == 2
    assert "1 of 2 writers" in result.output
    assert "b" in result.output
    assert "may still be at work" in result.output
    assert newest(table).version == 0
    (report,) = told("reconcile", table.table, "--on-missing-writer", "publish_others", "--yes", status=2)
    assert statuses([report]) == {"a": "published", "b": "missing"}
    assert ids(Path(table.table)) == [1]


def test_of_a_load_that_is_published_together_all_writers_are_to_be_named(table: DeltaLog) -> None:
    for key in ("a", "b"):
        stage(table, writer_spec(key, publish=PublishMode.TOGETHER), {"2019-01": [1]})
    assert "Those that began: a, b" in refused("reconcile", table.table, "--yes")
    named = [word for key in ("a", "b", "never began") for word in ("--writer", key)]
    (report,) = told("reconcile", table.table, *named, "--yes", status=2)
    assert (report["missing"], newest(table).version) == (["never began"], 0)
    assert ask("reconcile", table.table, *named[:4], "--yes").exit_code == 0
    assert newest(table).version == 1


def test_of_several_loads_one_is_to_be_named(table: DeltaLog) -> None:
    stage(table, writer_spec("a"), {"2019-01": [1]})
    stage(table, writer_spec("b", EARLIER_LOAD), {"2019-02": [2]})
    rehearsed = told("reconcile", table.table)
    assert [report["load"] for report in rehearsed] == [EARLIER_LOAD.id, LOAD.id]
    # What is rehearsed second is rehearsed after the first.
    assert [report["version"] for report in rehearsed] == [1, 2]
    said = refused("reconcile", table.table, "--yes")
    assert EARLIER_LOAD.id in said
    assert LOAD.id in said
    assert "No complete buffer of load 'x'" in refused("reconcile", table.table, "--load", "x")
    told("reconcile", table.table, "--load", LOAD.id, "--yes")
    assert ids(Path(table.table)) == [1]


@pytest.fixture
def grown(table: DeltaLog) -> DeltaLog:
    """Three appends, an hour apart."""
    for version in range(1, 4):
        foreign_append(table, {f"2019-0{version}": [version]})
    for version in range(4):
        landed_at(table, version, NOON + timedelta(hours=version))
    return table


def test_a_restore_is_rehearsed_and_its_own_last_line_does_it(grown: DeltaLog) -> None:
    before = files(Path(grown.table))
    rehearsed = ask("restore", grown.table, "--timestamp", "2019-01-31T13:30Z")
    assert rehearsed.exit_code == 0, rehearsed.output
    assert "undoes versions 2 to 3" in rehearsed.output
    assert "month=2019-02, month=2019-03" in rehearsed.output
    assert files(Path(grown.table)) == before
    plain = told("restore", grown.table, "--version", 1)
    assert (plain["done"], plain["restored_to"], plain["files_removed"], plain["rows_removed"]) == (False, 1, 2, 2)
    assert [commit["version"] for commit in plain["undone_commits"]] == [3, 2]
    assert files(Path(grown.table)) == before
    done = ask(*shlex.split(rehearsed.output.splitlines()[-1])[1:])
    assert (done.exit_code, "Nothing was changed" in done.output) == (0, False), done.output
    assert ids(Path(grown.table)) == [1]
    assert "nothing to do" in ask("restore", grown.table, "--version", 1).output


def test_what_came_after_the_rehearsal_is_not_undone_unseen(grown: DeltaLog) -> None:
    foreign_append(grown, {"2019-04": [4]})
    said = refused("restore", grown.table, "--version", 1, "--newest", 3, "--yes")
    assert "newest version of" in said
    assert "is 4, not 3" in said
    assert ids(Path(grown.table)) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Give either --version or --timestamp"),
        (("--version", 1, "--timestamp", "2019-01-31"), "Give either --version or --timestamp"),
        (("--timestamp", "yesterday"), "a time with its zone"),
        (("--version", 9), "has no version 9"),
        (("--timestamp", "2018-01-31T00:00Z"), "does not reach back"),
    ],
)
def test_what_a_table_cannot_go_back_to_is_said_in_a_line(
    grown: DeltaLog, words: tuple[object, ...], said: str
) -> None:
    assert said in refused("restore", grown.table, *words)
    assert newest(grown).version == 3


def test_a_person_without_a_name_can_restore(grown: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(getpass, "getuser", nameless)
    told("restore", grown.table, "--version", 1, "--yes")
    assert DeltaTable(grown.table).history(1)[0]["userMetadata"].startswith("onelake restore, by somebody")
