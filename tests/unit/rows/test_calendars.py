"""Dates and times in the calendar of Spark 2 are never returned as other days: they are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_onelake.exceptions import ReadRefusedError
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.data_files import opened, put_file, rows_of, schema_of
from tests.support.tables import make_table
from tests.support.vectors import delete_rows

VERSION, ZONE = "org.apache.spark.version", "org.apache.spark.timeZone"
LEGACY, INT96 = "org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96"
SPARK_2, SPARK_3_0, SPARK_3 = {VERSION: "2.4.8"}, {VERSION: "3.0.3"}, {VERSION: "3.5.1"}
# In days and microseconds since 1970, as Spark stores the first day of the Julian calendar.
FIRST_DAY, FIRST_GREGORIAN_DAY = -719164, -141427
YEAR_1850, YEAR_1900 = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000 for year in (1850, 1900))


def table_of(path: Path, kind: Any) -> DeltaLog:
    return make_table(path / "t", schema_of(("id", "long"), ("at", kind)), ())


def put(log: DeltaLog, values: pa.Array, told: dict[str, str], **more: Any) -> dict[str, Any]:
    rows = pa.table({"id": pa.array(range(len(values)), pa.int64()), "at": values})
    return put_file(log, rows.replace_schema_metadata(told), **more)


def dates(*days: int | None) -> pa.Array:
    return pa.array(days, pa.int32()).cast(pa.date32())


def times(*micros: int | None, zone: str | None = "UTC") -> pa.Array:
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", zone))


def assert_refused(log: DeltaLog) -> None:
    with pytest.raises(ReadRefusedError, match=r"Column at in .* in the calendar of Spark 2"):
        opened(log).read().read_all()
    assert rows_of(opened(log), ["id"])


@pytest.mark.parametrize("told", [SPARK_2, {**SPARK_3, LEGACY: ""}, {LEGACY: ""}], ids=str)
def test_dates_before_the_gregorian_calendar_are_refused(tmp_path: Path, told: dict[str, str]) -> None:
    log = table_of(tmp_path, "date")
    put(log, dates(18000, None, FIRST_DAY), told)
    assert_refused(log)
    with pytest.raises(ReadRefusedError):
        opened(log).read(["id"], "at < DATE '0001-01-01'").read_all()
    with opened(log).frame() as frame, pytest.raises(ReadRefusedError):
        frame.column("at")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (dates(FIRST_DAY), SPARK_3),
        (dates(FIRST_DAY), SPARK_3_0),
        (dates(FIRST_DAY), {}),
        (dates(FIRST_DAY), {**SPARK_3_0, INT96: ""}),
        (dates(FIRST_GREGORIAN_DAY, 18000), SPARK_2),
        (dates(None), SPARK_2),
        (dates(), SPARK_2),
    ],
    ids=str,
)
def test_dates_that_are_the_same_in_both_calendars_are_read(
    tmp_path: Path, values: pa.Array, told: dict[str, str]
) -> None:
    log = table_of(tmp_path, "date")
    put(log, values, told)
    assert opened(log).read(["at"]).read_all().column(0).combine_chunks().equals(values)


@pytest.mark.parametrize(
    ("value", "told", "int96", "moved"),
    [
        (YEAR_1850, SPARK_2, False, True),
        (YEAR_1850, SPARK_2, True, True),
        (YEAR_1850, SPARK_3_0, False, False),
        (YEAR_1850, SPARK_3_0, True, True),
        (YEAR_1850, SPARK_3, True, False),
        (YEAR_1850, {**SPARK_3, INT96: ""}, True, True),
        (YEAR_1850, {**SPARK_3, INT96: ""}, False, False),
        (YEAR_1850, {**SPARK_3, LEGACY: ""}, False, True),
        (YEAR_1850, {**SPARK_3, LEGACY: ""}, True, False),
        (YEAR_1900, SPARK_2, True, False),
        (YEAR_1850, {**SPARK_3, LEGACY: "", ZONE: "UTC"}, False, False),
        (YEAR_1850, {**SPARK_3, LEGACY: "", ZONE: "Europe/Paris"}, False, True),
        (FIRST_GREGORIAN_DAY * 86_400_000_000 - 1, {**SPARK_3, LEGACY: "", ZONE: "UTC"}, False, True),
    ],
    ids=str,
)
def test_times_are_refused_where_spark_moves_them(
    tmp_path: Path, value: int, told: dict[str, str], int96: bool, moved: bool
) -> None:
    log = table_of(tmp_path, "timestamp")
    put(log, times(value, YEAR_1900), told, int96=int96)
    if moved:
        assert_refused(log)
    else:
        assert rows_of(opened(log), ["id"], "at IS NOT NULL") == [0, 1]
        read = opened(log).read(["at"]).read_all().column(0).combine_chunks()
        assert read.equals(times(value, YEAR_1900))


def test_times_without_a_zone_are_never_moved(tmp_path: Path) -> None:
    log = table_of(tmp_path, "timestamp_ntz")
    put(log, times(YEAR_1850, zone=None), {**SPARK_3, LEGACY: ""})
    assert opened(log).read(["at"]).read_all().num_rows == 1


LIST: dict[str, Any] = {"type": "array", "elementType": "date", "containsNull": True}
MAP: dict[str, Any] = {"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": True}
STRUCT: dict[str, Any] = {"type": "struct", "fields": [{"name": "d", "type": LIST, "nullable": True, "metadata": {}}]}


@pytest.mark.parametrize(
    ("kind", "nested"),
    [
        (LIST, lambda day: pa.array([None, [18000, day]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))),
        (MAP, lambda day: pa.MapArray.from_arrays([0, 2], pa.array(["a", "b"]), dates(18000, day))),
        (STRUCT, lambda day: pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 2], dates(day, None))], ["d"])),
    ],
    ids=["list", "map", "struct"],
)
def test_dates_inside_nested_columns_are_looked_at(tmp_path: Path, kind: Any, nested: Any) -> None:
    log = table_of(tmp_path, kind)
    put(log, nested(18001), SPARK_2)
    assert opened(log).read().read_all().num_rows
    put(log, nested(FIRST_DAY), SPARK_2)
    assert_refused(log)


def test_rows_that_are_deleted_do_not_count(tmp_path: Path) -> None:
    log = table_of(tmp_path, "date")
    add = put(log, dates(FIRST_DAY, 18000), SPARK_2)
    assert_refused(log)
    delete_rows(log, add, [0])
    assert rows_of(opened(log), ["id"], "at > DATE '1900-01-01'") == [1]


def test_a_file_that_statistics_leave_out_is_not_asked(tmp_path: Path) -> None:
    log = table_of(tmp_path, "date")
    said = {"numRecords": 1, "minValues": {"at": "0001-01-01"}, "maxValues": {"at": "0001-01-01"}}
    put(log, dates(FIRST_DAY), SPARK_2, stats=said)
    put(log, dates(18000), SPARK_2)
    assert rows_of(opened(log), ["id"], "at > DATE '1900-01-01'") == [0]
    with pytest.raises(ReadRefusedError):
        rows_of(opened(log), ["id"], "at = DATE '0001-01-01'")
