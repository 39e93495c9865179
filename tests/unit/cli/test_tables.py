"""``onelake history``, ``show``, ``buffers``, ``health``, ``vacuum`` and ``doctor``, on real tables."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.cli import main
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.preflight import SCRATCH
from airflow_provider_onelake.writes.publish import Committer
from tests.support.onelake import OTHER_TOKEN, TOKEN, OneLake
from tests.support.rights import Rights, data_role
from tests.support.stores import through
from tests.support.tables import OVERWRITE, foreign_append, landed_at, make_table, stage, writer_spec

BASE = datetime.now(UTC) - timedelta(hours=5)


def ask(*words: object) -> Result:
    return CliRunner().invoke(main.app, [str(word) for word in words])


def told(*words: object) -> Any:
    result = ask(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.fixture
def table(tmp_path: Path) -> DeltaLog:
    """Version 1 is an append of another engine; 2 is ours, which finished later and replaced it; a buffer waits."""
    log = make_table(tmp_path / "trips")
    buffer = stage(log, writer_spec("late", **OVERWRITE), {"2019-01": [10, 11]})
    landed_at(log, foreign_append(log, {"2019-01": [12]}), BASE)
    Committer(through(log.store, log)).publish([buffer], Policy.LAST_WRITER_WINS)
    stage(log, writer_spec("waiting", **OVERWRITE), {"2019-02": [20]})
    return log


def test_history_says_who_wrote_what_and_what_was_settled(table: DeltaLog) -> None:
    newest, appended, created = told("history", table.table)
    assert (newest["version"], appended["version"], created["version"]) == (2, 1, 0)
    assert (newest["writers"], newest["rows_added"], newest["settled"]) == ("late", 2, 1)
    assert (appended["writers"], appended["settled"]) == (None, None)
    said = ask("history", table.table).output
    assert re.search(
        r"2 +20\S+ \S+ +WRITE +\+2 -1 +\+1 -1 +1 +late of taxi\.load, run 2019-01-01T00:00:00\+00:00\n", said
    ), said


def test_history_says_where_the_log_does_not_reach_back(table: DeltaLog) -> None:
    DeltaTable(table.table).create_checkpoint()
    table.store.delete("_delta_log/00000000000000000000.json")
    assert "Older entries of the log were cleaned up." in ask("history", table.table).output


def test_show_tells_a_version_with_its_writers_and_how_conflicts_were_settled(table: DeltaLog) -> None:
    said = ask("show", table.table, 2).output
    assert "version 1 (WRITE) put 1 row into month=2019-01, and is replaced there" in said
    assert re.search(r"late +published +2 +2 +20", said), said
    whole = told("show", table.table, 2)
    assert (whole["partitions_added"], whole["settlements"][0]["outcome"]) == (["month=2019-01"], "replaced")


def test_show_tells_what_is_in_the_table_now_of_the_rows_of_a_version(table: DeltaLog) -> None:
    Committer(table).publish([stage(table, writer_spec("red", **OVERWRITE), {"2019-01": [13]})])
    said = ask("show", table.table, 2).output
    assert re.search(r"late +superseded +2 +0 +20", said), said
    assert "late: its rows were replaced by red of taxi.load, run 2019-01-01T00:00:00+00:00 in version 3" in said


def test_buffers_that_wait_come_before_those_that_are_closed(table: DeltaLog) -> None:
    waiting, closed = told("buffers", table.table)
    assert (waiting["owner"], waiting["state"], waiting["complete"]) == ("writer waiting", "in flight", True)
    assert closed["state"] == "closed"
    said = ask("buffers", table.table).output
    assert re.search(r"in flight +writer waiting of taxi\.load, run 2019-01-01T00:00:00\+00:00 ", said), said


def test_a_table_that_is_well_has_nothing_to_do(table: DeltaLog) -> None:
    found = told("health", table.table)
    assert (found["version"], found["rows"], found["files"], found["findings"]) == (2, 2, 1, [])
    assert len(found["waiting"]) == 1
    assert "Nothing to do." in ask("health", table.table).output


def test_a_lost_file_is_an_error_with_a_status_of_its_own(table: DeltaLog) -> None:
    file = next(iter(table.live_files(lambda _: True, 2)))
    table.store.delete(file["path"])
    result = ask("health", table.table)
    assert result.exit_code == 2
    assert file["path"] in result.output
    assert "readers of it fail" in result.output


def test_an_address_where_nothing_is_makes_no_directory(tmp_path: Path) -> None:
    result = ask("history", tmp_path / "none")
    assert result.exit_code == 1
    assert f"There is no directory {tmp_path / 'none'}. Correct the address." in result.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_address_is_not_the_present_directory(
    table: DeltaLog, monkeypatch: pytest.MonkeyPatch, empty: str
) -> None:
    monkeypatch.chdir(table.table)
    for command in ("history", "tables"):
        result = ask(command, empty)
        assert (result.exit_code, f"The address {empty!r} is refused: it is empty" in result.stderr) == (1, True)


def test_a_connection_of_the_environment_opens_tables_inside_its_lakehouse(
    table: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Path(table.table)
    extra = {"lakehouse": str(directory.parent)}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "onelake", "extra": extra}))
    assert [row["version"] for row in told("history", directory.name, "--connection", "lake")] == [2, 1, 0]


def test_a_connection_that_is_not_there_is_said_in_a_line() -> None:
    result = ask("history", "Tables/trips", "--connection", "nowhere")
    assert (result.exit_code, "There is no connection 'nowhere'" in result.stderr) == (1, True)
    assert "AIRFLOW_CONN_NOWHERE" in result.stderr


def old(log: DeltaLog, path: str) -> None:
    """An object of 30 days ago that nothing names."""
    log.store.put(path, b"x" * 2048)
    then = (datetime.now(UTC) - timedelta(days=30)).timestamp()
    os.utime(Path(log.table, path), (then, then))


def test_a_vacuum_says_what_would_go_what_is_spared_and_what_deletes_it(table: DeltaLog) -> None:
    old(table, "month=2019-01/[left].parquet")
    said = ask("vacuum", table.table)
    assert said.exit_code == 0, said.output
    assert "1 object of 2.0 KiB would go" in said.output
    assert "month=2019-01/[left].parquet" in said.output
    assert "(writer waiting)" in said.output
    assert said.output.endswith(f"\n  OneLakeVacuumOperator(task_id='vacuum', table={table.table!r})\n")
    found = told("vacuum", table.table)
    assert (found["files"], found["bytes"], found["in_flight_count"]) == (1, 2048, 1)
    assert told("vacuum", table.table, "--lite")["files"] == 0
    assert "OneLakeVacuumOperator" not in ask("vacuum", table.table, "--lite").output
    assert table.store.get("month=2019-01/[left].parquet")


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_an_option_by_which_a_vacuum_would_delete_is_refused_by_name(table: DeltaLog, option: str) -> None:
    old(table, "left.parquet")
    result = ask("vacuum", table.table, option)
    said = " ".join(result.output.replace("│", "").split())
    assert (result.exit_code, "leave --dry-run and --yes out. A task with OneLakeVacuum" in said) == (64, True)
    assert table.store.get("left.parquet")


def test_the_doctor_says_that_all_is_well_and_leaves_nothing(table: DeltaLog) -> None:
    result = ask("doctor", table.table)
    assert result.exit_code == 0, result.output
    assert "All is well" in result.output
    assert "deltalake" in result.output
    assert not Path(table.table, SCRATCH).exists()


def test_the_doctor_says_what_a_store_does_not_do(table: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_onelake.cli.tables.problems_of", lambda *_: ["it cannot be listed"])
    result = ask("doctor", table.table)
    assert (result.exit_code, "Not well: it cannot be listed" in result.output) == (2, True)


def test_the_doctor_compares_the_live_files_with_those_that_deltalake_sees(table: DeltaLog) -> None:
    DeltaTable(table.table).create_checkpoint()
    checkpoint = next(Path(table.table, "_delta_log").glob("*.checkpoint.parquet"))
    pq.write_table(pq.read_table(checkpoint).drop_columns(["add"]), checkpoint)
    result = ask("doctor", table.table)
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "Not well: At version" in said
    assert "our replay and deltalake disagree about" in said


def test_the_doctor_says_that_a_log_is_damaged_beside_what_it_says_of_the_store(table: DeltaLog) -> None:
    Path(table.table, version_path(table.snapshot().version)).write_text("{")
    result = ask("doctor", table.table)
    assert (result.exit_code, "Not well:" in result.output, "Python 3" in result.output) == (2, True, True)


def test_a_right_that_is_missing_is_said_by_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    with OneLake() as server:
        Rights(server).set("Viewer", data_roles=[data_role("readers", "*")])
        monkeypatch.setenv("AIRFLOW_CONN_ANN", server.connection().replace(TOKEN, OTHER_TOKEN))
        monkeypatch.setenv("AIRFLOW_CONN_ADMIN", server.connection())
        result = ask("access", "Tables/trips", "--connection", "ann")
        assert (result.exit_code, "write: no, by the workspace role Viewer." in result.output) == (2, True)
        assert ask("access", "Tables/trips", "--connection", "admin").exit_code == 0
