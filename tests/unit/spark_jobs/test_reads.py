"""Whether a text names a table's directory: the half of rule 19 that needs no Spark."""

from __future__ import annotations

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
