"""Which files of a source an operator can see from its machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_onelake.operators._source_files import seen_files
from airflow_provider_onelake.reading.spark_files import SourceFile
from airflow_provider_onelake.sources import FileSource, Source, SqlSource

NO_LAKEHOUSE: Any = SimpleNamespace(lakehouse="")


def seen(source: Source) -> list[SourceFile]:
    return seen_files(source, NO_LAKEHOUSE)


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
        found = seen(FileSource(f"{prefix}{files}/{path}"))
        assert [Path(file.path).name for file in found] == names


def test_options_of_the_reader_count(files: Path) -> None:
    source = FileSource(str(files), options={"recursiveFileLookup": "true"})
    assert [Path(file.path).name for file in seen(source)] == ["a.json", "b.json", "c.json"]


def test_files_are_listed_once(files: Path) -> None:
    assert len(seen(FileSource([f"{files}/a.json", f"file:{files}/a.json", f"{files}/*.json"]))) == 2


def test_a_path_elsewhere_is_not_looked_at() -> None:
    assert seen(FileSource("s3://bucket/a.json")) == []
    assert seen(SqlSource("SELECT 1")) == []
