"""The guardrails of Direct Lake: what is counted, what is beyond, and what to compact."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.fabric import direct_lake
from airflow_provider_onelake.fabric.direct_lake import GUARDRAILS, READ, Guardrails, examine
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.tables import foreign_append, foreign_commit, make_table


def limit(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    given = {"files": 100, "row_groups": 100, "rows": 100, "bytes": None, **limits}
    monkeypatch.setitem(direct_lake.GUARDRAILS, "F2", Guardrails(**given))


def append(log: DeltaLog, rows: int, rows_in_group: int, stats: bool = True) -> None:
    """Another engine's append of one file with several row groups."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(rows))}), buffer, row_group_size=rows_in_group)
    path = f"month=01/{log.snapshot().version}.parquet"
    log.store.put(path, buffer.getvalue())
    add = {"path": path, "partitionValues": {"month": "01"}, "size": len(buffer.getvalue())}
    said = {"stats": json.dumps({"numRecords": rows})} if stats else {}
    foreign_commit(log, [{"add": {**add, "modificationTime": 1, "dataChange": True, **said}}])


def test_the_guardrails_grow_with_the_capacity() -> None:
    assert GUARDRAILS["F8"] == Guardrails(1000, 1000, 300_000_000, 10 << 30)
    assert GUARDRAILS["P1"] == GUARDRAILS["F64"] == Guardrails(5000, 5000, 1_500_000_000, None)
    sizes = [GUARDRAILS[f"F{1 << power}"] for power in range(1, 12)]
    for smaller, larger in pairwise(sizes):
        assert larger.files >= smaller.files
        assert larger.rows >= smaller.rows


def test_a_year_later_the_guardrails_are_warned_of(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    foreign_append(log, {"01": [1]})
    examine(log, "F2", today=lambda: READ + timedelta(days=364))
    assert not caplog.records
    assert examine(log, "F2", today=lambda: READ + timedelta(days=365)).findings == ()
    assert f"the guardrails of Direct Lake are those of {READ}, and may have changed since" in caplog.text


def test_a_small_table_fits_and_no_file_is_opened(log: DeltaLog) -> None:
    foreign_append(log, {"01": [1, 2], "02": [3]})
    for path in list(Path(log.table).rglob("*.parquet")):
        path.unlink()
    fit = examine(log, "F2")
    assert (fit.files, fit.rows, fit.row_groups, fit.findings, fit.to_compact) == (2, 3, None, (), ())
    assert json.loads(json.dumps(fit.to_json()))["version"] == 1


def test_too_many_files_are_said_with_what_to_compact(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, files=6)
    for number in range(5):
        foreign_append(log, {"01": [number]})
    for number in range(4):
        foreign_append(log, {"02": [number]})
    fit = examine(log, "F2")
    (finding,) = fit.findings
    assert finding.what == "9 files; Direct Lake takes 6 on F2"
    assert "9 files in 2 partitions" in finding.todo
    assert [(each["partition"], each["files"]) for each in fit.to_compact] == [("month=01", 5), ("month=02", 4)]


def test_row_groups_are_counted_where_there_may_be_too_many(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, row_groups=4)
    append(log, 4, 1)
    assert examine(log, "F2").row_groups is None
    append(log, 9, 3)
    fit = examine(log, "F2")
    assert (fit.row_groups, fit.row_groups_exact) == (7, True)
    assert [finding.what for finding in fit.findings] == ["7 row groups; Direct Lake takes 4 on F2"]
    assert "A compaction would not help" in fit.findings[0].todo


def test_files_that_are_not_opened_have_one_row_group_at_least(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, row_groups=9)
    append(log, 8, 2)
    append(log, 90, 30, stats=False)
    fit = examine(log, "F2")
    assert (fit.rows, fit.row_groups, fit.row_groups_exact) == (None, 7, True)
    monkeypatch.setattr(direct_lake, "_MOST_FOOTERS", 1)
    fit = examine(log, "F2")
    assert (fit.row_groups, fit.row_groups_exact) == (4, False)
    (gone,) = Path(log.table).rglob("1.parquet")
    gone.unlink()
    assert (examine(log, "F2").row_groups, examine(log, "F2").findings) == (2, ())


def test_a_models_size_is_of_all_its_tables(log: DeltaLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [make_table(tmp_path / name) for name in ("zones", "vendors")]
    for each in (log, *others):
        foreign_append(each, {"01": [1, 2, 3]})
    alone = examine(log, "F2")
    assert alone.model_bytes == alone.bytes
    limit(monkeypatch, bytes=3 * alone.bytes - 1)
    assert examine(log, "F2", others[:1]).findings == ()
    fit = examine(log, "F2", others)
    assert (fit.bytes, fit.model_bytes, fit.files, fit.rows) == (alone.bytes, 3 * alone.bytes, 1, 3)
    assert [finding.what for finding in fit.findings] == [
        f"{3 * alone.bytes:,} bytes in the tables of the model together; Direct Lake takes {3 * alone.bytes - 1:,} on F2"
    ]


def test_a_capacity_has_a_size_that_is_known(log: DeltaLog) -> None:
    with pytest.raises(InvalidWriteError, match="capacity='F3' is unknown; it is one of F2, F4"):
        examine(log, "F3")
