"""Footers of staged files: read once, when the files are published, and never a reason not to publish."""

from __future__ import annotations

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.buffer import Buffer, read_open_buffer
from airflow_provider_onelake.buffers.footers import read_footer, with_statistics
from airflow_provider_onelake.buffers.statistics import INDEXED_COLUMNS
from airflow_provider_onelake.choices import PublishMode
from airflow_provider_onelake.exceptions import StoreUnavailableError
from airflow_provider_onelake.log.actions import dump_actions, of_kind, parse_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.stores import Part
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from airflow_provider_onelake.writes.reconcile import reconcile
from tests.support.stores import Counted, LoserHeld, PassingOn, through
from tests.support.tables import (
    LOAD,
    Stage,
    append_files,
    complete,
    foreign_append,
    ids,
    make_table,
    of_attempt,
    prepare,
    stage,
    writer_spec,
)

ROWS: dict[str | None, list[int]] = {"2019-01": [1, 2], "2019-02": [3], "2019-03": [4, 5, 6]}


def count_alone(actions: list[dict[str, Any]]) -> None:
    for add in of_kind(actions, "add"):  # type: ignore[arg-type]
        add["stats"] = json.dumps({"numRecords": json.loads(add["stats"])["numRecords"], "tightBounds": True})


def staged(log: DeltaLog, rows: dict[str | None, list[int]] = ROWS, writer: str = "w") -> Buffer:
    """A buffer as Spark leaves it that was told to count rows only."""
    spec = writer_spec(writer)
    task = prepare(log, spec, footers=True)
    assert isinstance(task, Stage)
    actions = append_files(log.store, task.path, rows, **of_attempt(spec.attempt))
    count_alone(actions)
    log.store.create(f"{task.path}/{version_path(1)}", dump_actions(actions))  # type: ignore[arg-type]
    return complete(log, task.path)


def statistics(buffer: Buffer) -> dict[str, Any]:
    return {str(add["partitionValues"]["month"]): json.loads(add["stats"]) for add in buffer.adds}


def test_the_twin_tells_spark_to_count_rows_only_and_remembers_what_the_table_wants(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{INDEXED_COLUMNS: "7"})
    task = prepare(log, writer_spec(), footers=True)
    opened = read_open_buffer(log.store, task.path)  # type: ignore[union-attr]
    assert opened.metadata["configuration"] == {INDEXED_COLUMNS: "0"}
    assert opened.indexed_columns == 7
    assert log.snapshot().configuration == {INDEXED_COLUMNS: "7"}


@pytest.mark.parametrize("footers", [True, False])
def test_where_delta_writes_its_own_statistics_the_twin_is_like_the_table(tmp_path: Path, footers: bool) -> None:
    properties = {"delta.dataSkippingStatsColumns": "id"} if footers else {}
    log = make_table(tmp_path / "t", **properties)
    task = prepare(log, writer_spec(), footers=footers)
    opened = read_open_buffer(log.store, task.path)  # type: ignore[union-attr]
    assert opened.metadata["configuration"] == properties
    assert opened.indexed_columns is None


def test_what_is_published_has_the_statistics_of_the_footers(log: DeltaLog) -> None:
    buffer = staged(log)
    assert Committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    live = log.live_files(lambda _: True, log.snapshot().version)
    found = {add["partitionValues"]["month"]: json.loads(add["stats"]) for add in live}
    bounds = {"minValues": {"id": 4}, "maxValues": {"id": 6}, "nullCount": {"id": 0}}
    assert found["2019-03"] == {"numRecords": 3, "tightBounds": True, **bounds}
    dataset = DeltaTable(log.table).to_pyarrow_dataset()
    assert len(list(dataset.get_fragments(filter=pa.compute.field("id") > 3))) == 1
    assert ids(Path(log.table)) == [1, 2, 3, 4, 5, 6]


def test_a_buffer_with_statistics_of_its_own_or_files_without_any_is_as_it_is(log: DeltaLog) -> None:
    without = staged(log, writer="without")
    for add in without.adds:
        del add["stats"]
    counted = Counted(log.store)
    for buffer in (stage(log, writer_spec(), ROWS), without):
        assert with_statistics(through(counted, log), [buffer]) == (buffer,)
    # No footer is read.
    assert not counted.calls
    (completed,) = with_statistics(log, [staged(log, writer="completed")])
    assert with_statistics(log, [completed]) == (completed,)


def test_footers_are_read_once_a_file_though_races_are_lost(log: DeltaLog) -> None:
    buffer = staged(log)
    winners = [lambda: foreign_append(log, {"2018-01": [9]})] * 3
    counted = Counted(LoserHeld(log.store, *winners))
    ended = Committer(through(counted, log)).publish([buffer])
    assert ended.tally.lost_races == 3
    assert counted.calls["get_range"] == len(ROWS)


def test_a_long_footer_is_read_in_two_parts(log: DeltaLog) -> None:
    table = pa.table({"id": list(range(2000))})
    path = Path(log.table, "long.parquet")
    pq.write_table(table, path, row_group_size=2)
    counted = Counted(log.store)
    footer = read_footer(counted, "long.parquet", path.stat().st_size)
    assert footer.equals(pq.read_metadata(path))
    assert counted.calls["get_range"] == 2


class Broken(PassingOn):
    """Does not let some footers be read."""

    def __init__(self, inner: Any, what: Any, word: str = "2019-02") -> None:
        super().__init__(inner)
        self.what = what
        self.word = word

    def get_range(self, path: str, start: int, end: int) -> Part:
        part = super().get_range(path, start, end)
        if self.word not in path:
            return part
        if isinstance(self.what, Exception):
            raise self.what
        return attrs.evolve(part, data=bytes(self.what(part.data)))


@pytest.mark.parametrize(
    "what",
    [
        StoreUnavailableError("no answer"),
        RuntimeError("a bug"),
        lambda data: b"",
        lambda data: data[:-4] + b"PARE",
        lambda data: b"\xff" * (len(data) - 8) + data[-8:],
        lambda data: data[:-8] + b"\xff\xff\xff\xffPAR1",
    ],
    ids=["unavailable", "bug", "empty", "encrypted", "damaged", "too long"],
)
def test_an_unreadable_footer_leaves_the_row_count(log: DeltaLog, what: Any, caplog: pytest.LogCaptureFixture) -> None:
    buffer = staged(log)
    with caplog.at_level(logging.WARNING):
        ended = Committer(through(Broken(log.store, what), log)).publish([buffer])
    assert ended.status is PublishStatus.PUBLISHED
    assert ended.batch is not None
    found = statistics(ended.batch.buffers[0])
    assert found["2019-02"] == {"numRecords": 1, "tightBounds": True}
    assert found["2019-01"].get("minValues") == {"id": 1}
    assert "1 of 3 files have their row counts alone" in caplog.text
    assert ids(Path(log.table)) == [1, 2, 3, 4, 5, 6]


def test_a_reconciliation_knows_its_buffers_again_once_they_have_statistics(log: DeltaLog) -> None:
    for writer in "ab":
        staged(log, {"2019-01": [7]}, writer)
    report = reconcile(Committer(log), LOAD, ["a", "b"], publish=PublishMode.TOGETHER)
    assert [(outcome.status, outcome.rows_published) for outcome in report.outcomes] == [("published", 1)] * 2


def test_whatever_fails_in_reading_footers_rows_are_published(
    log: DeltaLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    with caplog.at_level(logging.WARNING):
        assert Committer(log).publish([staged(log)]).status is PublishStatus.PUBLISHED
    assert "can't start new thread" in caplog.text
    assert ids(Path(log.table)) == [1, 2, 3, 4, 5, 6]


def test_a_footer_that_does_not_come_holds_nothing_up(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    buffer, never = staged(log), threading.Event()

    def wait(data: bytes) -> bytes:
        never.wait(30)
        return data

    try:
        (found,) = with_statistics(through(Broken(log.store, wait), log), [buffer], patience=0.5)
    finally:
        never.set()
    assert statistics(found)["2019-02"] == {"numRecords": 1, "tightBounds": True}
    assert "no answer yet" in caplog.text


def test_a_footer_of_another_number_of_rows_says_nothing(log: DeltaLog) -> None:
    buffer = staged(log)
    buffer.adds[0]["stats"] = '{"numRecords":7}'
    (found,) = with_statistics(log, [buffer])
    assert found.adds[0]["stats"] == '{"numRecords":7}'


def test_the_footers_of_all_buffers_of_a_commit_are_read(log: DeltaLog) -> None:
    buffers = [staged(log, {"2019-01": [number]}, writer) for number, writer in enumerate(("a", "b"))]
    own = stage(log, writer_spec("c"), {"2019-01": [7]})
    found = with_statistics(log, [*buffers, own])
    assert [statistics(buffer)["2019-01"]["minValues"]["id"] for buffer in found] == [0, 1, 7]


def test_a_buffer_remembers_the_tables_own_number_in_version_0(log: DeltaLog) -> None:
    buffer = staged(log)
    actions = parse_actions(log.store.get(f"{buffer.path}/{version_path(0)}"), "twin")
    assert of_kind(actions, "commitInfo")[0]["staged"]["indexedColumns"] == 32
    assert buffer.indexed_columns == 32
