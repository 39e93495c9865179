"""Dates and times that Spark writes in the calendar of Spark 2: a read without Spark returns what Spark does, or refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import ReadRefusedError
from tests.support.data_files import opened
from tests.support.tables import local_log

pytestmark = pytest.mark.spark

MODES = ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite")
TYPE = "spark.sql.parquet.outputTimestampType"
VALUES = {
    "date": ("0001-01-01", "1582-10-04", "1582-10-15", "2019-01-31"),
    "timestamp": ("0001-01-01 00:00:00", "1582-10-15 00:00:00", "1899-12-31 23:59:59", "1900-01-01 00:00:00"),
}


@pytest.mark.parametrize(
    ("kind", "zone"),
    [("TIMESTAMP_MICROS", "Europe/Amsterdam"), ("TIMESTAMP_MICROS", "UTC"), ("INT96", "Europe/Amsterdam")],
)
def test_a_read_never_returns_other_days_than_spark(spark: Any, tmp_path: Path, kind: str, zone: str) -> None:
    written = {TYPE: kind, "spark.sql.session.timeZone": zone}
    refused, read = set(), set()
    for mode in ("LEGACY", "CORRECTED"):
        for key, value in {**written, **dict.fromkeys(MODES, mode)}.items():
            spark.conf.set(key, value)
        for sql_type, texts in VALUES.items():
            path = tmp_path / mode / sql_type
            rows = ", ".join(f"({number}, {sql_type} '{text}')" for number, text in enumerate(texts))
            # A file for each value.
            values = spark.sql(f"SELECT * FROM VALUES {rows} AS rows(number, at)")
            values.write.format("delta").partitionBy("number").save(str(path))
            plain = "unix_date" if sql_type == "date" else "unix_micros"
            expected = dict(spark.sql(f"SELECT number, {plain}(at) FROM delta.`{path}`").collect())
            for number, text in enumerate(texts):
                try:
                    found = opened(local_log(path)).read(["at"], f"number = {number}").read_all().column(0)
                except ReadRefusedError:
                    refused.add((mode, text))
                else:
                    assert found.cast("int32" if sql_type == "date" else "int64").to_pylist() == [expected[number]], (
                        text
                    )
                    read.add((mode, text))
    for key in (*written, *MODES):
        spark.conf.unset(key)
    assert {text for mode, text in read if mode == "CORRECTED"} == {text for texts in VALUES.values() for text in texts}
    assert {("LEGACY", text) for text in ("1582-10-15", "2019-01-31")} <= read
    assert {("LEGACY", text) for text in ("0001-01-01", "1582-10-04", "0001-01-01 00:00:00")} <= refused
    assert ("LEGACY", "1899-12-31 23:59:59") in (read if zone == "UTC" else refused)
