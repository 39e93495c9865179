"""What a writer reads: small frozen values that say which files they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.sources import FileSource, SqlSource


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("a.json", "b.json", "sub/c.json", "sub/_hidden.json", "_tmp/d.json", ".e.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "names"),
    [
        pytest.param("a.json", ["a.json"], id="file"),
        pytest.param("*.json", ["a.json", "b.json"], id="glob"),
        pytest.param("{a,b}.json", ["a.json", "b.json"], id="braces"),
        pytest.param("{a,b}.{json,csv}", ["a.json", "b.json"], id="two-braces"),
        pytest.param(".", ["a.json", "b.json"], id="directory-without-hidden-ones"),
        pytest.param("sub", ["c.json"], id="subdirectory"),
        pytest.param("missing.json", [], id="missing"),
    ],
)
def test_a_path_stands_for_the_files_that_spark_would_read(files: Path, path: str, names: list[str]) -> None:
    for prefix in ("", "file://", "file:"):
        found = FileSource(f"{prefix}{files}/{path}").files()
        assert [Path(file.path).name for file in found] == names


def test_options_of_the_reader_count(files: Path) -> None:
    source = FileSource(str(files), options={"recursiveFileLookup": "true"})
    assert [Path(file.path).name for file in source.files()] == ["a.json", "b.json", "c.json"]


def test_files_are_listed_once(files: Path) -> None:
    assert len(FileSource([f"{files}/a.json", f"file:{files}/a.json", f"{files}/*.json"]).files()) == 2


def test_a_path_elsewhere_is_not_looked_at() -> None:
    assert FileSource("s3://bucket/a.json").files() == []
    assert SqlSource("SELECT 1").files() == []


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
