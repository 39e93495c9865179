"""The command ``onelake`` itself: its statuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from airflow_provider_onelake.choices import OnMissingWriter, Policy
from airflow_provider_onelake.cli.main import app
from tests.support.tables import make_table


@pytest.mark.parametrize(
    "words",
    [
        ("health", "TABLE", "--jsn"),
        ("--jsn",),
        ("helth", "TABLE"),
        ("health",),
        ("show", "TABLE", "newest"),
        ("history", "TABLE", "-n", "0"),
        (),
    ],
)
def test_a_command_that_is_spelled_wrongly_has_no_status_of_a_table(tmp_path: Path, words: tuple[str, ...]) -> None:
    log = make_table(tmp_path / "t")
    result = CliRunner().invoke(app, [log.table if word == "TABLE" else word for word in words])
    assert (result.exit_code, "Usage: " in result.output) == (64, True)


def test_help_is_no_mistake() -> None:
    assert CliRunner().invoke(app, ["--help"]).exit_code == 0
    assert CliRunner().invoke(app, ["health", "--help"]).exit_code == 0


def test_serve_says_what_serves_a_local_onelake_and_repeats_no_secret() -> None:
    result = CliRunner().invoke(app, ["serve", "lake", "--token", "me=s3cret", "--tls"])
    assert result.exit_code == 64
    assert "local-onelake DIR, with the same options" in result.output
    assert "pip install include/local_onelake" in result.output
    assert "s3cret" not in result.output


def test_all_help_is_whole_sentences() -> None:
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        said = [
            command.help,
            *(option.help for option in command.params if not option.hidden and option.name != "number"),
        ]
        for text in said:
            assert re.fullmatch(r"[A-Z].*\.", text, re.DOTALL), f"{name}: {text}"


def test_help_at_80_columns_has_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = CliRunner().invoke(app, ["reconcile", "--help"]).output
    for name in (*Policy, *OnMissingWriter):
        assert name in said
