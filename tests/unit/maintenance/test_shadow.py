from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
import pytest

from airflow_provider_onelake.buffers.buffer import read_open_buffer
from airflow_provider_onelake.exceptions import BufferInvalidError, BufferLostError
from airflow_provider_onelake.log.actions import of_kind, parse_actions, version_path
from airflow_provider_onelake.log.commits import FORMAT
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.shadow import read_rewrite
from tests.support.shadows import optimize_by_hand, planned, rewritten, shadow_of
from tests.support.tables import foreign_append, make_table
from tests.support.vectors import delete_rows


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = make_table(tmp_path / "a lake" / "t")
    for start in (0, 10, 20):
        foreign_append(log, {"2019-01": [start, start + 1], "2019 02": [start + 5]})
    return log


def version_0(log: DeltaLog, path: str) -> list[dict[str, Any]]:
    return parse_actions(log.store.get(f"{path}/{version_path(0)}"), "shadow")


def test_a_shadow_is_the_tables_twin_over_exactly_the_inputs_by_absolute_addresses(log: DeltaLog) -> None:
    shadow = shadow_of(log, where="month = '2019 02'")
    actions = version_0(log, shadow.path)
    snapshot = log.snapshot()
    [metadata] = of_kind(actions, "metaData")
    assert metadata == {**snapshot.metadata, "id": shadow.attempt}
    assert of_kind(actions, "protocol") == [snapshot.protocol]
    adds = of_kind(actions, "add")
    inputs = [file for group in planned(log, where="month = '2019 02'").groups for file in group.inputs]
    assert len(adds) == 3
    # The table's own directory is spelled as a log spells it, and what follows is as it stood there.
    assert {add["path"] for add in adds} == {f"file:{quote(log.table)}/{file['path']}" for file in inputs}
    assert all("%20" in add["path"] for add in adds)


def test_a_shadow_says_whose_it_is_and_is_no_buffer(log: DeltaLog) -> None:
    shadow = shadow_of(log)
    [info] = of_kind(version_0(log, shadow.path), "commitInfo")
    assert info["staged"]["format"] == FORMAT
    assert info["staged"]["compaction"] == {
        "name": "upkeep",
        "attempt": shadow.attempt,
        "readVersion": 3,
        "tableId": shadow.snapshot.table_id,
        "targetFileSize": 128 << 20,
        "zOrderBy": [],
    }
    with pytest.raises(BufferInvalidError):
        read_open_buffer(log.store, shadow.path)


def test_a_relative_vector_becomes_absolute_and_an_inline_one_stays(log: DeltaLog) -> None:
    snapshot = log.snapshot()
    first, *_ = log.live_files(lambda add: add["partitionValues"]["month"] == "2019-01", snapshot.version)
    inline = delete_rows(log, first, [0])
    shadow = shadow_of(log, where="month = '2019-01'")
    vectors = [add["deletionVector"] for add in of_kind(version_0(log, shadow.path), "add") if "deletionVector" in add]
    assert vectors == [inline["deletionVector"]]


def test_a_rewrite_names_the_tables_own_files(log: DeltaLog) -> None:
    shadow = rewritten(log)
    rewrite = read_rewrite(log.store, shadow)
    assert rewrite is not None
    assert {group.name: (len(group.removed), len(group.added)) for group in rewrite.groups} == {
        "month=2019-01": (3, 1),
        "month=2019 02": (3, 1),
    }
    assert all(file["path"].startswith("month=") for group in rewrite.groups for file in group.removed)


def test_nothing_done_is_nothing_to_publish(log: DeltaLog) -> None:
    assert read_rewrite(log.store, shadow_of(log)) is None


NO_COLUMNS = '{"type":"struct","fields":[]}'


def _each(actions: list[dict[str, Any]], kind: str, **changes: Any) -> list[dict[str, Any]]:
    return [{kind: {**action[kind], **changes}} if kind in action else action for action in actions]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(
            lambda a: [
                *a,
                {"metaData": {"id": "x", "schemaString": NO_COLUMNS, "partitionColumns": [], "configuration": {}}},
            ],
            "it has a metaData action",
            id="metadata",
        ),
        pytest.param(
            lambda a: [*a, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}],
            "it has a protocol action",
            id="protocol",
        ),
        pytest.param(lambda a: [*a, {"cdc": {"path": "c", "size": 1}}], "it has a cdc action", id="change data"),
        pytest.param(lambda a: [*a, {"remove": {}}], "Version 1 of staged", id="damaged"),
        pytest.param(lambda a: _each(a, "add", dataChange=True), "change of data", id="added rows"),
        pytest.param(lambda a: _each(a, "remove", dataChange=True), "change of data", id="removed rows"),
        pytest.param(lambda a: _each(a, "remove", path="file:///else/where"), "none of its files", id="other file"),
        pytest.param(
            lambda a: _each(a, "remove", deletionVector={"storageType": "i", "pathOrInlineDv": "x"}),
            "none of its files",
            id="other vector",
        ),
        pytest.param(
            lambda a: _each(a, "add", deletionVector={"storageType": "i", "pathOrInlineDv": "x", "cardinality": 0}),
            "a new file has a deletion vector",
            id="vector",
        ),
        pytest.param(lambda a: _each(a, "add", path="file:///else/where"), "outside", id="outside"),
        pytest.param(lambda a: [*a, a[-1]], "twice", id="twice"),
        pytest.param(lambda a: a[:-1], "has 0 now", id="rows lost"),
        pytest.param(lambda a: _each(a, "add", stats='{"numRecords":5}'), "rows and has 5 now", id="other rows"),
        pytest.param(lambda a: _each(a, "add", stats="{}"), "has None now", id="uncounted rows"),
    ],
)
def test_whatever_is_more_than_moving_rows_is_refused(
    log: DeltaLog, spoil: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], said: str
) -> None:
    shadow = shadow_of(log)
    optimize_by_hand(Path(log.table, shadow.path), spoil)
    with pytest.raises(BufferInvalidError, match=said):
        read_rewrite(log.store, shadow)


def test_rows_that_nobody_counted_before_or_after_are_refused(log: DeltaLog) -> None:
    shadow = shadow_of(log)
    optimize_by_hand(Path(log.table, shadow.path), lambda actions: _each(actions, "add", stats="{}"))
    uncounted = {key: {**file, "stats": None} for key, file in shadow.inputs.items()}
    with pytest.raises(BufferInvalidError, match="had None rows and has None now"):
        read_rewrite(log.store, attrs.evolve(shadow, inputs=uncounted))


def test_half_an_entry_is_refused(log: DeltaLog) -> None:
    shadow = rewritten(log)
    entry = Path(log.table, shadow.path, version_path(1))
    entry.write_bytes(entry.read_bytes()[:-20])
    with pytest.raises(BufferInvalidError, match="not JSON"):
        read_rewrite(log.store, shadow)


@pytest.mark.parametrize("loss", ["gone", "cut short"])
def test_a_lost_file_is_noticed(log: DeltaLog, loss: str) -> None:
    shadow = rewritten(log)
    file = next(Path(log.table, shadow.path).glob("month=2019 02/*.parquet"))
    if loss == "gone":
        file.unlink()
    else:
        file.write_bytes(b"")
    with pytest.raises(BufferLostError, match="no row is lost"):
        read_rewrite(log.store, shadow)


def test_later_versions_do_not_count(log: DeltaLog) -> None:
    shadow = rewritten(log)
    late = Path(log.table, shadow.path, version_path(2))
    late.write_text(json.dumps({"metaData": {"id": "another"}}))
    assert read_rewrite(log.store, shadow) is not None
