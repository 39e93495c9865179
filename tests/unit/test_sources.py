"""What a writer reads: small frozen values."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.sources import FileSource, SqlSource


@pytest.mark.parametrize("path", [None, "", [], 3, [1]], ids=repr)
def test_a_path_is_text(path: Any) -> None:
    with pytest.raises(InvalidWriteError, match="a path is text"):
        FileSource(path)


@pytest.mark.parametrize("view", ["", "a-b", "1a", "a b", "_a"])
def test_a_view_has_a_name_of_a_view(view: str) -> None:
    with pytest.raises(InvalidWriteError, match="no name of a view"):
        SqlSource("SELECT 1", view=view)


def test_a_query_is_text() -> None:
    with pytest.raises(InvalidWriteError, match="as text"):
        SqlSource(" ")


def test_sources_are_frozen_values() -> None:
    assert FileSource("/x") == FileSource("/x")
    with pytest.raises(AttributeError):
        FileSource("/x").path = "/y"  # type: ignore[misc]


@pytest.mark.parametrize(
    "value",
    [
        "jdbc:postgresql://db/taxi?user=me&password=hush&ssl=true",
        "jdbc:sqlserver://db;user=me;Password=hush;encrypt=true",
        "jdbc:mysql://me:hush@db/taxi",
        "jdbc:oracle:thin:me/hush@db:1521:taxi",
        "https://acct.blob.core.windows.net/c/x.json?sv=2024&sig=hush",
    ],
)
def test_the_web_ui_shows_no_secret_of_a_source(value: str) -> None:
    source = FileSource(value, format="jdbc", options={"url": value, "password": "hush", "dbtable": "trips"})
    shown = source.serialize()
    assert "hush" not in repr(shown)
    assert shown["options"]["dbtable"] == "trips"
    assert source.job()["options"]["url"] == value
