"""``onelake diff``: what differs between two versions, in words and for programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from airflow_provider_onelake.cli.main import app
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.data_files import put_file, schema_of
from tests.support.tables import foreign_append, foreign_commit, landed_at, make_table


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = make_table(tmp_path / "t")
    foreign_append(log, {"2019-01": [1, 2]})
    foreign_append(log, {"2019-02": [3]})
    return log


def run(*words: Any) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["diff", *map(str, words)], env={"COLUMNS": "160"})
    return result.exit_code, result.output


def test_the_log_alone(log: DeltaLog) -> None:
    code, said = run(log.table, 1)
    assert code == 0
    assert "version 1 → version 2" in said
    assert "2 rows → 3 rows" in said
    assert "1 row added, 0 removed; 1 row of 1 file was compared" in run(log.table, 1, "--rows")[1]
    assert "between them: 1 WRITE" in said
    assert [line.split()[:2] for line in said.splitlines() if "month=" in line] == [["month=2019-02", "+1"]]
    assert "No file and no definition differs." in run(log.table, 2, 2)[1]


def test_rows_and_what_became_of_them(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", schema_of(("id", "long"), ("v", "string")), ())
    file = put_file(log, pa.table({"id": [1, 2], "v": ["a", None]}))
    put_file(log, pa.table({"id": [1, 3], "v": ["A", "c"]}))
    gone = {"path": file["path"], "deletionTimestamp": 1, "dataChange": True}
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "UPDATE"}}, {"remove": gone}])
    said = run(log.table, 1, 3, "--rows", "--limit", 1)[1]
    assert "2 rows added, 2 removed; 4 rows of 2 files were compared" in said
    assert ("- id=1, v=a" in said, "+ id=1, v=A" in said, "id=3" in said) == (True, True, False)
    said = run(log.table, 1, "--rows", "--key", "id")[1]
    assert "1 row added, 1 removed, 1 changed" in said
    shown = [line.strip() for line in said.splitlines() if line.startswith(("  +", "  -", "  changed"))]
    assert shown == ["- id=2, v=NULL", "+ id=3, v=c", "changed:", "- id=1, v=a", "+ id=1, v=A"]
    code, said = run(log.table, 1, "--rows", "--key", "id", "--json")
    found = json.loads(said)
    assert (code, found["counts"]["rows_added"]) == (0, 2)
    assert found["compared"]["changed"] == [{"before": {"id": 1, "v": "a"}, "after": {"id": 1, "v": "A"}}]
    assert found["compared"]["added"] == [{"id": 3, "v": "c"}]
    assert found["compared"]["removed"] == [{"id": 2, "v": None}]
    assert found["compared"]["rows_removed"] == 1
    assert json.loads(run(log.table, 1, "--rows", "--columns", "id", "--json")[1])["compared"]["columns"] == ["id"]


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ("id,v", ["id", "v"]),
        (" id , v ,", ["id", "v"]),
        ('"a,b"', ["a,b"]),
        ('id, "a,b"', ["id", "a,b"]),
        ('"say ""when"""', ['say "when"']),
    ],
)
def test_a_column_whose_name_has_a_comma_stands_in_quotes(tmp_path: Path, given: str, columns: list[str]) -> None:
    names = ("id", "v", "a,b", 'say "when"')
    log = make_table(tmp_path / "t", schema_of(*((name, "long") for name in names)), ())
    for row in (1, 2):
        put_file(log, pa.table({name: [row] for name in names}))
    for option in ("--columns", "--key"):
        code, said = run(log.table, 1, "--rows", option, given, "--json")
        assert code == 0, said
        assert json.loads(said)["compared"]["rows_added"] == 1
    assert json.loads(run(log.table, 1, "--rows", "--columns", given, "--json")[1])["compared"]["columns"] == columns


def test_what_cannot_be_compared_is_said_in_a_line(log: DeltaLog) -> None:
    assert run(log.table, 9)[0] == 1
    code, said = run(log.table, 1, "--where", "id = 3")
    assert (code, "no partition column" in said) == (1, True)


@pytest.mark.parametrize("option", ["--key", "--columns"])
def test_what_says_how_rows_are_compared_needs_rows(log: DeltaLog, option: str) -> None:
    code, said = run(log.table, 0, option, "id")
    assert (code, f"{option} says how rows are compared, so it needs --rows" in said) == (1, True)


def test_a_time_without_a_zone_is_in_utc(log: DeltaLog) -> None:
    for version in range(3):
        landed_at(log, version, datetime(2019, 1, 31, 11 + version, tzinfo=UTC))
    for before, after in (("2019-01-31T11:30", "2019-01-31T12:30"), ("2019-01-31T12:30+01:00", "2019-01-31T12:30Z")):
        assert "version 0 → version 1" in run(log.table, before, after)[1]
