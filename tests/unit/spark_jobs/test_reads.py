"""Whether a text names a table's directory: the half of rule 19 that needs no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.spark_jobs.reads import reads_table

ONELAKE = "abfss://taxi@onelake.dfs.fabric.microsoft.com/raw.Lakehouse/Tables/trips"


class NoPlan:
    """A Spark whose plan says nothing."""

    def sql(self, query: str) -> Any:
        return self

    def collect(self) -> list[tuple[str]]:
        return [("== Physical Plan ==",)]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("/lake/trips", "delta.`/lake/trips`"),
        ("/lake/trips", "file:///lake/trips/month=2019-01/part-0.parquet"),
        ("/lake/trips", "file:/lake/trips"),
        ("file:///lake/trips", "PreparedDeltaFileIndex(1 paths)[file:/lake/trips]"),
        ("file:/lake/trips/", "/lake//trips"),
        ("/lake/my trips", "file:///lake/my%20trips/part-0.parquet"),
        (ONELAKE, f"SELECT * FROM delta.`{ONELAKE}/`"),
    ],
)
def test_a_text_that_names_the_table(table: str, text: str) -> None:
    assert reads_table(NoPlan(), "v", table, [text], [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("/lake/trips", "/lake/trips_2/part-0"),
        ("/lake/trips", "/lake/trips-old"),
        ("/lake/trips", "/lake/trips.bak"),
        ("/lake/trips", "/old/lake/trips"),
        ("/lake/trips", "SELECT lake/trips FROM t"),
        (ONELAKE, ONELAKE.replace("raw", "other")),
        (ONELAKE, ONELAKE.replace("taxi@", "bus-taxi@")),
    ],
)
def test_a_text_that_does_not(table: str, text: str) -> None:
    assert not reads_table(NoPlan(), "v", table, [text], [])  # type: ignore[arg-type]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two tables, and links: to one of them, to what is above it, and to the other."""
    for name in ("my lake/trips/month=2019-01", "my lake/trips_2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "my lake" / "trips")
    (tmp_path / "a link").symlink_to(tmp_path / "my lake")
    (tmp_path / "other").symlink_to(tmp_path / "my lake" / "trips_2")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM delta.`{}/link`",
        "SELECT * FROM delta.`file://{}/a link/trips` VERSION AS OF 0",
        "SELECT * FROM delta.`{}/my lake/trips_2/../trips`",
        "SELECT * FROM delta.`{}/a%20link/trips/`",
        "PreparedDeltaFileIndex(1 paths)[file:{}/a%20link/trips]",
        "file:{}/link/month=2019-01/part-0.parquet",
        "{}/a link/trips/*.parquet",
        "FROM parquet.'{}/link/month=2019-01'",
    ],
)
def test_links_to_the_table_are_seen_through(lake: Path, text: str) -> None:
    assert reads_table(NoPlan(), "v", f"{lake}/my lake/trips", [text.format(lake)], [])  # type: ignore[arg-type]
    assert reads_table(NoPlan(), "v", f"file://{lake}/a link/trips", [text.format(lake)], [])  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["SELECT * FROM delta.`{}/other`", "{}/a link/trips_2", "{}/a link", "{}/my lake"])
def test_links_to_something_else_are_too(lake: Path, text: str) -> None:
    assert not reads_table(NoPlan(), "v", f"{lake}/my lake/trips", [text.format(lake)], [])  # type: ignore[arg-type]


def test_a_table_that_is_not_on_this_machine_is_known_by_its_name() -> None:
    assert not reads_table(NoPlan(), "v", "/no/such/lake/trips", ["/no/such/lake", "/"], [])  # type: ignore[arg-type]
    assert reads_table(NoPlan(), "v", ONELAKE, [], [f"{ONELAKE}/part-0.parquet"])  # type: ignore[arg-type]
