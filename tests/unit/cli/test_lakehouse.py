"""``onelake tables``, on real tables and on a local OneLake."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from airflow_provider_onelake.cli import main
from tests.support.tables import foreign_append, make_table


@pytest.fixture
def lakehouse(tmp_path: Path) -> Path:
    foreign_append(make_table(tmp_path / "Tables" / "trips"), {"2019-01": [1, 2, 3]}, timestamp=1_548_979_200_000)
    make_table(tmp_path / "Tables" / "dbo" / "orders")
    return tmp_path


def ask(*words: object) -> Result:
    return CliRunner().invoke(main.app, ["tables", *map(str, words)])


def told(*words: object, status: int = 0) -> Any:
    result = ask(*words, "--json")
    assert result.exit_code == status, result.output
    return {row["table"]: row for row in json.loads(result.stdout)}


def test_each_table_has_a_line(lakehouse: Path) -> None:
    found = told(lakehouse)
    assert list(found) == ["Tables/dbo/orders", "Tables/trips"]
    trips = found["Tables/trips"]
    assert (trips["version"], trips["rows"], trips["files"], trips["operation"]) == (1, 3, 1, "WRITE")
    assert trips["time"] == "2019-02-01T00:00:00+00:00"
    said = ask(lakehouse).output
    assert re.search(r" +1 +3 +1 +\d+ bytes +2019-02-01 00:00:00 +WRITE +Tables/trips\n", said), said


def test_a_table_that_cannot_be_read_does_not_hide_the_others(lakehouse: Path) -> None:
    log = lakehouse / "Tables" / "trips" / "_delta_log"
    (log / "00000000000000000000.json").unlink()
    found = told(lakehouse, status=1)
    assert "Version 0 of" in found["Tables/trips"]["error"]
    assert (found["Tables/dbo/orders"]["version"], found["Tables/dbo/orders"]["error"]) == (0, None)
    result = ask(lakehouse)
    assert (result.exit_code, "Tables/trips: Version 0 of" in result.output) == (1, True)


def test_a_connection_of_the_environment_names_the_lakehouse(lakehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"lakehouse": str(lakehouse)}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "onelake", "extra": extra}))
    monkeypatch.setenv("AIRFLOW_CONN_ANY", json.dumps({"conn_type": "onelake"}))
    assert told("--connection", "lake") == told(lakehouse)
    assert told(lakehouse, "--connection", "any") == told(lakehouse)
    result = ask("--connection", "any")
    assert (result.exit_code, "'any' has no lakehouse" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "No lakehouse is given: give its address"),
        (("/no/such/directory",), "There is no directory /no/such/directory"),
        (("--connection", "nowhere"), "There is no connection 'nowhere'"),
        (("onelake://ws/raw.Lakehouse/Tables",), "ends with the item"),
    ],
)
def test_a_lakehouse_that_is_not_there_is_said_in_a_line(words: tuple[str, ...], said: str) -> None:
    result = ask(*words)
    assert (result.exit_code, said in result.stderr, "Traceback" in result.output) == (1, True, False)
