"""Tables as the commands print them: on a terminal of 80 columns, and in a pipe."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from airflow_provider_onelake.cli import output

LONG = "Tables/dbo/trips_of_the_yellow_taxis_of_new_york_by_month_and_vendor_since_the_year_2009"
ROWS = [(3, "[WRITE]", "Tables/trips"), (12, None, LONG), (1, "two\nlines", "x" * 60)]


def printed(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> list[str]:
    """What is printed, as lines."""
    file = StringIO()
    console = Console(file=file, width=80, force_terminal=terminal, color_system=None, highlight=False, soft_wrap=True)
    monkeypatch.setattr(output, "console", console)
    output.print_table(("version", "operation", "table"), ROWS, {0})
    return file.getvalue().splitlines()


def test_in_a_pipe_each_row_is_a_line_with_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, terminal=False) == [
        "version  operation   table",
        "      3  [WRITE]     Tables/trips",
        f"     12              {LONG}",
        f"      1  two\\nlines  {'x' * 60}",
    ]


def test_on_a_terminal_a_last_cell_without_room_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, terminal=True) == [
        "version  operation   table",
        "      3  [WRITE]     Tables/trips",
        "     12",
        f"    {LONG}",
        "      1  two\\nlines",
        f"    {'x' * 60}",
    ]
