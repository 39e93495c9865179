from __future__ import annotations

import pyarrow as pa
from deltalake import write_deltalake

from include.local import report
from include.local.demo import Plan
from include.local.expected import KEY


def test_the_reports_rows_are_read_without_pythons_files_which_abort_a_process_that_ends(tmp_path, monkeypatch):
    plan = Plan({"2019-12": tmp_path / "none"}, tmp_path, "append", "month")
    row = dict.fromkeys(KEY, 1)
    rows = [{**row, "version": "202001010000"}, {**row, "vendor_id": 2, "version": "202001010000"}]
    stranger = {**row, "version": "202002010000"}
    plan.table.parent.mkdir()
    write_deltalake(plan.table, pa.Table.from_pylist([*rows, stranger]), partition_by=["vendor_id"])
    monkeypatch.setattr("deltalake.fs.DeltaStorageHandler", None)

    found, others = report._found(plan)

    assert found == {tuple(row[name] for name in KEY): 1 for row in rows}
    assert others == 1
