"""Dates and times that Spark writes in the calendar of Spark 2: a read without Spark returns what Spark does, or refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import ReadRefusedError
from tests.support.data_files import opened
from tests.support.tables import local_log

MODES = ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite")
TYPE = "spark.sql.parquet.outputTimestampType"
VALUES = {
    "date": ("0001-01-01", "1582-10-04", "1582-10-15", "2019-01-31"),
    "timestamp": ("0001-01-01 00:00:00", "1582-10-15 00:00:00", "1899-12-31 23:59:59", "1900-01-01 00:00:00"),
}
PLAIN = {"date": "unix_date", "timestamp": "unix_micros"}


@pytest.mark.parametrize(
    ("kind", "zone"),
    [("TIMESTAMP_MICROS", "Europe/Amsterdam"), ("TIMESTAMP_MICROS", "UTC"), ("INT96", "Europe/Amsterdam")],
)
def test_a_read_never_returns_other_days_than_spark(spark: Any, tmp_path: Path, kind: str, zone: str) -> None:
    written = {TYPE: kind, "spark.sql.session.timeZone": zone}
    refused, read = set(), set()
    # A file for each value.
    rows = ", ".join(
        f"({number}, DATE '{day}', TIMESTAMP '{at}')"
        for number, (day, at) in enumerate(zip(*VALUES.values(), strict=True))
    )
    for mode in ("LEGACY", "CORRECTED"):
        path = tmp_path / mode
        for key, value in {**written, **dict.fromkeys(MODES, mode)}.items():
            spark.conf.set(key, value)
        values = spark.sql(f"SELECT * FROM VALUES {rows} AS rows(number, {', '.join(VALUES)})")
        values.write.format("delta").partitionBy("number").save(str(path))
        plain = ", ".join(f"{function}({column})" for column, function in PLAIN.items())
        expected = {
            number: days for number, *days in spark.sql(f"SELECT number, {plain} FROM delta.`{path}`").collect()
        }
        for place, (column, texts) in enumerate(VALUES.items()):
            for number, text in enumerate(texts):
                try:
                    found = opened(local_log(path)).read([column], f"number = {number}").read_all().column(0)
                except ReadRefusedError:
                    refused.add((mode, text))
                else:
                    as_number = found.cast("int32" if column == "date" else "int64")
                    assert as_number.to_pylist() == [expected[number][place]], text
                    read.add((mode, text))
    for key in (*written, *MODES):
        spark.conf.unset(key)
    assert {text for mode, text in read if mode == "CORRECTED"} == {text for texts in VALUES.values() for text in texts}
    assert {("LEGACY", text) for text in ("1582-10-15", "2019-01-31")} <= read
    assert {("LEGACY", text) for text in ("0001-01-01", "1582-10-04", "0001-01-01 00:00:00")} <= refused
    assert ("LEGACY", "1899-12-31 23:59:59") in (read if zone == "UTC" else refused)
