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
