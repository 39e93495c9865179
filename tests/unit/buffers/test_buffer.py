"""Buffers: the target's twin, complete or not, sound or not."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.buffers import buffer as buffers
from airflow_provider_onelake.buffers import markers
from airflow_provider_onelake.buffers.layout import WriterDirectory
from airflow_provider_onelake.exceptions import BufferIncompleteError, BufferInvalidError, BufferLostError
from airflow_provider_onelake.log.actions import dump_actions, of_kind, parse_actions, version_path
from airflow_provider_onelake.log.commits import FORMAT
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support import tables
from tests.support.clocks import HeldClock
from tests.support.tables import Stage, complete, prepare

ROWS: dict[str | None, list[int]] = {"2019-01": [1, 2], None: [3], "x y/ü:%": [4]}
# Enough for a remove, a metaData and a protocol.
ANY_BODY = {"path": "x", "id": "x", "schemaString": tables.SCHEMA, "minReaderVersion": 1, "minWriterVersion": 2}


def opened(log: DeltaLog, **terms: Any) -> buffers.OpenBuffer:
    snapshot = log.snapshot()
    return buffers.open_buffer(log.store, tables.writer_spec(**terms), snapshot, log.clock)


def spark_appends(log: DeltaLog, buffer: buffers.OpenBuffer, version: int = 1, **changed: Any) -> list[dict[str, Any]]:
    """What Spark leaves at a version of a buffer, with the first file changed."""
    actions = tables.append_files(log.store, buffer.path, {"2019-01": [1, 2]}, **tables.of_attempt(buffer.spec.attempt))
    of_kind(actions, "add")[0].update(changed)
    log.store.create(f"{buffer.path}/{version_path(version)}", dump_actions(actions))
    return actions


def age(log: DeltaLog, path: str, **by: float) -> None:
    instant = (datetime.now(UTC) - timedelta(**by)).timestamp()
    os.utime(Path(log.table, path), (instant, instant))


def test_the_buffer_is_the_targets_twin_and_remembers_the_target(log: DeltaLog) -> None:
    tables.foreign_append(log, {"2019-01": [9]})
    buffer = opened(log, attempt="a-1")
    target = log.snapshot()
    actions = parse_actions(log.store.get(f"{buffer.path}/{version_path(0)}"), "twin")
    (twin,), (protocol,) = of_kind(actions, "metaData"), of_kind(actions, "protocol")
    assert list(actions[0]) == ["commitInfo"]
    assert protocol == target.protocol
    assert {**twin, "id": target.table_id} == target.metadata
    assert twin["id"] == "a-1"
    assert (buffer.table_id, buffer.read_version) == (target.table_id, 1)
    assert buffers.read_open_buffer(log.store, buffer.path) == buffer
    # What only adds rows is never late, so the time of the read version does not matter.
    assert buffer.read_time is None
    replacing = opened(log, **tables.OVERWRITE)
    assert replacing.read_time == log.landed(1)
    assert buffers.read_open_buffer(log.store, replacing.path) == replacing


def test_the_twin_is_a_table_that_engines_open_with_the_targets_columns(log: DeltaLog) -> None:
    buffer = opened(log)
    twin, target = DeltaTable(f"{log.table}/{buffer.path}"), DeltaTable(log.table)
    assert twin.version() == 0
    assert twin.schema() == target.schema()
    assert twin.metadata().partition_columns == ["month"]


def test_properties_that_start_work_of_their_own_are_left_out_of_the_twin(tmp_path: Path) -> None:
    starting = {"delta.autoOptimize.autoCompact": "true", "delta.autoOptimize.optimizeWrite": "true"}
    log = tables.make_table(tmp_path / "t", **starting, **{"delta.deletedFileRetentionDuration": "interval 2 days"})
    assert opened(log).metadata["configuration"] == {"delta.deletedFileRetentionDuration": "interval 2 days"}


def test_an_attempt_that_comes_back_finds_its_own_buffer(log: DeltaLog) -> None:
    first = opened(log, attempt="a-1")
    tables.foreign_append(log, {"2019-01": [9]})
    again = opened(log, attempt="a-1")
    assert again == first
    assert again.read_version == 0


def test_a_buffer_that_nobody_opened_is_incomplete(log: DeltaLog) -> None:
    with pytest.raises(BufferIncompleteError, match="has not begun"):
        buffers.read_open_buffer(log.store, "staged/w-1/a")


def test_a_table_that_is_no_buffer_is_left_alone(log: DeltaLog) -> None:
    buffer = opened(log)
    plain = dump_actions([{"commitInfo": {"operation": "CREATE TABLE"}}, {"metaData": ANY_BODY}])
    log.store.put(f"{buffer.path}/{version_path(0)}", plain)
    with pytest.raises(BufferInvalidError, match="no buffer of this package's; it is left alone"):
        buffers.read_open_buffer(log.store, buffer.path)


@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1])
def test_a_buffer_of_another_release_s_format_is_refused_and_says_what_to_do(log: DeltaLog, other: int) -> None:
    buffer = opened(log)
    entry = f"{buffer.path}/{version_path(0)}"
    ours, theirs = (f'"staged":{{"format":{number}'.encode() for number in (FORMAT, other))
    log.store.put(entry, log.store.get(entry).replace(ours, theirs))
    said = f"has format {other}, of another release of this package; this one reads and publishes format {FORMAT}"
    with pytest.raises(BufferInvalidError, match=f"{said}.*clear its writer, which stages its rows again"):
        buffers.read_open_buffer(log.store, buffer.path)


@pytest.mark.parametrize(
    ("was", "told"),
    [
        ({"reads": {"where": "true", "isolation": "write_serializable"}}, "`reads` and isolation='write_serializable'"),
        ({"checks": {"once": "unique('id')"}}, "the check \"unique('id')\""),
        ({"checks": {"some": "id > 0"}, "on_failed_check": "quarantine"}, "on_failed_check='quarantine'"),
    ],
    ids=["reads", "checks", "quarantine"],
)
def test_a_buffer_that_asks_for_what_is_gone_is_left_alone(log: DeltaLog, was: dict[str, Any], told: str) -> None:
    buffer = tables.stage(log, tables.writer_spec(), ROWS)
    entry = f"{buffer.path}/{version_path(0)}"
    info, *others = parse_actions(log.store.get(entry), "twin")
    info["commitInfo"]["staged"]["spec"] |= was
    log.store.put(entry, dump_actions([info, *others]))
    said = re.escape(f"Writer 'w' was staged with {told}, which is gone.") + ".* left alone.*clear the writer's task"
    with pytest.raises(BufferInvalidError, match=said):
        buffers.read_buffer(log.store, buffer.path)
    assert isinstance(prepare(log, tables.writer_spec(attempt="again")), Stage)


def test_complete_means_version_1_exists(log: DeltaLog) -> None:
    buffer = opened(log)
    tables.append_files(log.store, buffer.path, {"2019-01": [1, 2]})
    with pytest.raises(BufferIncompleteError, match="not complete"):
        buffers.read_buffer(log.store, buffer.path)
    spark_appends(log, buffer)
    assert buffers.read_buffer(log.store, buffer.path).rows == 2


def test_a_complete_buffer_says_rows_bytes_files_and_when_it_finished(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), ROWS)
    on_disk = list(Path(log.table, buffer.path).rglob("*.parquet"))
    assert (buffer.rows, buffer.files) == (4, 3)
    assert buffer.bytes == sum(path.stat().st_size for path in on_disk)
    assert buffer.finished == log.store.head(f"{buffer.path}/{version_path(1)}").modified
    assert buffer.oldest is not None
    assert buffer.oldest.timestamp() == pytest.approx(min(path.stat().st_mtime for path in on_disk), abs=1e-3)
    assert buffers.read_buffer(log.store, buffer.path) == buffer


def test_rows_are_unknown_where_statistics_do_not_say(log: DeltaLog) -> None:
    buffer = opened(log)
    spark_appends(log, buffer, stats=None)
    assert buffers.read_buffer(log.store, buffer.path).rows is None


def test_a_file_that_is_gone_is_named_with_the_task_to_clear(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec("vendor-1", task="load.write[3]"), ROWS)
    next(Path(log.table, buffer.path).rglob("*2019-01*/*.parquet")).unlink()
    with pytest.raises(BufferLostError, match=r"month=2019-01.* is gone.*'vendor-1' again by clearing load.write\[3\]"):
        buffers.read_buffer(log.store, buffer.path)


def test_a_file_of_another_size_is_named(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), {"2019-01": [1]})
    file = next(Path(log.table, buffer.path).rglob("*.parquet"))
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BufferLostError, match=f"has {size - 1} bytes instead of {size}"):
        buffers.read_buffer(log.store, buffer.path)


def test_only_version_1_counts(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), {"2019-01": [1]})
    later = [{"remove": {"path": buffer.adds[0]["path"], "dataChange": False}}]
    log.store.create(f"{buffer.path}/{version_path(2)}", dump_actions(later))
    assert buffers.read_buffer(log.store, buffer.path) == buffer
    sealed = tables.stage(log, tables.writer_spec("x"), {})
    spark_appends(log, sealed, version=2)
    assert buffers.read_buffer(log.store, sealed.path).adds == ()


NOT_ITS_OWN = "does not say that its attempt wrote it"
VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "cardinality": 1}


@pytest.mark.parametrize(
    ("said", "file", "more", "problem"),
    [
        *((said, {}, [], NOT_ITS_OWN) for said in ({}, {"userMetadata": "{"}, {"userMetadata": "[1]"})),
        (tables.of_attempt("another"), {}, [], NOT_ITS_OWN),
        (None, {"dataChange": False}, [], "a file is no change of data"),
        (None, {"deletionVector": VECTOR}, [], "has a deletion vector"),
        *((None, {}, [kind], f"it has a {kind} action") for kind in ("remove", "cdc", "metaData", "protocol")),
    ],
)
def test_version_1_is_the_append_of_its_attempt(
    log: DeltaLog, said: dict[str, Any] | None, file: dict[str, Any], more: list[str], problem: str
) -> None:
    buffer = opened(log)
    said = tables.of_attempt(buffer.spec.attempt) if said is None else said
    actions = tables.append_files(log.store, buffer.path, {"2019-01": [1]}, **said)
    of_kind(actions, "add")[0].update(file)  # type: ignore[typeddict-item]
    actions += [{kind: ANY_BODY} for kind in more]
    log.store.put(f"{buffer.path}/{version_path(1)}", dump_actions(actions))
    with pytest.raises(BufferInvalidError, match=problem):
        buffers.read_buffer(log.store, buffer.path)


def test_an_empty_buffer_is_sealed_by_its_writer(log: DeltaLog) -> None:
    buffer = opened(log)
    with pytest.raises(BufferIncompleteError):
        buffers.read_buffer(log.store, buffer.path)
    sealed = complete(log, buffer.path)
    assert (sealed.rows, sealed.files, sealed.bytes, sealed.oldest) == (0, 0, 0, None)
    assert DeltaTable(f"{log.table}/{buffer.path}").version() == 1


def test_a_buffer_that_spark_completed_is_left_as_it_is(log: DeltaLog) -> None:
    buffer = opened(log)
    spark_appends(log, buffer)
    before = log.store.get(f"{buffer.path}/{version_path(1)}")
    assert complete(log, buffer.path).rows == 2
    assert log.store.get(f"{buffer.path}/{version_path(1)}") == before


@pytest.mark.parametrize(("retention", "limit"), [(7.0, 3.5), (2.0, 1.0)])
def test_a_buffer_as_old_as_half_of_the_retention_is_refused(log: DeltaLog, retention: float, limit: float) -> None:
    buffer = tables.stage(log, tables.writer_spec(task="load.write[3]"), ROWS)
    assert buffer.oldest is not None
    buffer.check_age(buffer.oldest + timedelta(days=limit, seconds=-1), retention)
    with pytest.raises(BufferLostError, match=rf"half of the table's retention of {retention:g} days.*load.write\[3\]"):
        buffer.check_age(buffer.oldest + timedelta(days=limit), retention)
    # An empty one has nothing that a VACUUM could take.
    tables.stage(log, tables.writer_spec("empty"), {}).check_age(datetime.now(UTC) + timedelta(days=900), retention)


def test_the_oldest_file_counts_by_the_stores_time(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), ROWS)
    file = next(Path(log.table, buffer.path).rglob("*.parquet"))
    age(log, str(file.relative_to(log.table)), days=4)
    with pytest.raises(BufferLostError):
        buffers.read_buffer(log.store, buffer.path).check_age(datetime.now(UTC), 7)


def test_a_closed_buffer_says_what_became_of_it(log: DeltaLog) -> None:
    buffer: buffers.Buffer = tables.stage(log, tables.writer_spec(), ROWS)
    assert markers.read_marker(log.store, buffer.path) is None
    markers.set_aside(log.store, buffer.path, "a person does not want it")
    assert markers.read_marker(log.store, buffer.path) == {"reason": "set aside: a person does not want it"}
    # What is published is published, whoever set it aside at the same time, before or after.
    markers.write_marker(log.store, buffer.path, {"version": 3})
    markers.set_aside(log.store, buffer.path, "another does not either")
    assert markers.read_marker(log.store, buffer.path) == {"version": 3}
    markers.write_marker(log.store, buffer.path, {"reason": "set aside"})
    assert markers.read_marker(log.store, buffer.path) == {"reason": "set aside"}
    assert json.loads(Path(log.table, buffer.path, "_closed.json").read_text()) == {"reason": "set aside"}


DAMAGED_MARKERS = [b"", b"{", b"[]", b"\xff", b'{"version": "x"}', b'{"version": 1, "writer": "w"}']
DAMAGED_MARKERS += [b'{"version": 1, "writer": {"generation": 1}}']


@pytest.mark.parametrize("marker", DAMAGED_MARKERS)
def test_a_damaged_marker_closes_the_buffer_and_says_nothing_more(log: DeltaLog, marker: bytes) -> None:
    buffer = tables.stage(log, tables.writer_spec(), ROWS)
    log.store.put(f"{buffer.path}/_closed.json", marker)
    assert markers.read_marker(log.store, buffer.path) == {"reason": "its marker is damaged"}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("content", [b"", b"{", b"[]\n", b'{"add":{"path":"a"}}\n', b'{"commitInfo":{"staged":"x"}}\n'])
def test_a_damaged_buffer_is_named_with_what_to_do(log: DeltaLog, version: int, content: bytes) -> None:
    buffer = tables.stage(log, tables.writer_spec(), ROWS)
    log.store.put(f"{buffer.path}/{version_path(version)}", content)
    with pytest.raises(BufferInvalidError, match=buffer.path):
        buffers.read_buffer(log.store, buffer.path)


def test_a_buffer_whose_terms_are_damaged_is_told_by_its_directory(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), ROWS)
    entry = Path(log.table, buffer.path, version_path(0))
    whole = entry.read_text()
    for damaged in (whole.replace('"dag":"taxi"', '"dag":"tax1"'), whole.replace('"attempt":"', '"attempt":"x')):
        assert damaged != whole
        entry.write_text(damaged)
        with pytest.raises(BufferInvalidError, match=r"damaged \(it says that it lies at staged/w-"):
            buffers.read_buffer(log.store, buffer.path)
    for damaged in (
        whole.replace('"mode":"append"', '"mode":"appent"'),
        whole.replace('"generation":1', '"generation":-1'),
        whole.replace('"readVersion":0', '"readVersion":"x"'),
        whole.replace('"identity":{', '"identity":{"more":1,'),
        whole.replace('"metaData"', '"metaDate"'),
    ):
        assert damaged != whole
        entry.write_text(damaged)
        with pytest.raises(BufferInvalidError, match=r"is damaged .*clear the writer's task"):
            buffers.read_buffer(log.store, buffer.path)


def test_attempts_are_found_in_whatever_state(log: DeltaLog) -> None:
    open_one = opened(log, attempt="a-1")
    complete_one = tables.stage(log, tables.writer_spec(attempt="a-2"), ROWS)
    closed_one = tables.stage(log, tables.writer_spec(attempt="a-3", fingerprint="other"), {})
    markers.write_marker(log.store, closed_one.path, {})
    tables.stage(log, tables.writer_spec("another"), {})
    found = WriterDirectory.read(log.store, tables.writer_spec().identity.directory).buffers
    assert found == [open_one.path, complete_one.path, closed_one.path]


def test_the_twin_is_stamped_by_the_clock_given(log: DeltaLog) -> None:
    snapshot, clock = log.snapshot(), HeldClock(datetime(2019, 1, 1, tzinfo=UTC))
    assert snapshot is not None
    buffer = buffers.open_buffer(log.store, tables.writer_spec(), snapshot, clock)
    (info,) = of_kind(parse_actions(log.store.get(f"{buffer.path}/{version_path(0)}"), ""), "commitInfo")
    assert info["timestamp"] == 1_546_300_800_000
