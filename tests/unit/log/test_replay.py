"""Raw replay: which files are live, exactly as they were added."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_onelake.exceptions import CorruptLogError, LogGapError
from airflow_provider_onelake.log.actions import of_kind, row_count, version_path
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import InPartitions
from airflow_provider_onelake.log.replay import (
    Checkpoint,
    LiveFiles,
    LogFiles,
    _as_entry,
    read_checkpoint,
    sidecar_path,
)
from airflow_provider_onelake.storage.stores import ObjectInfo
from tests.support.stores import Counted, through
from tests.support.tables import append_files, cleaned_up, foreign_append, foreign_commit, local_log, make_table
from tests.support.v2_checkpoints import write_v2_checkpoint
from tests.support.vectors import delete_rows, deletion_vector, ids_without_deleted

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def listed(*names: str) -> LogFiles:
    return LogFiles.of(ObjectInfo(f"_delta_log/{name}", 1, datetime.now(UTC)) for name in names)


def everything(log: DeltaLog, until: int) -> dict[str, dict[str, Any]]:
    return {add["path"]: add for add in log.live_files(lambda _: True, until)}


def with_checkpoint(log: DeltaLog, *, drop_until: int) -> DeltaLog:
    cleaned_up(log, *range(drop_until + 1))
    return through(log.store, log)


# -- what a listing holds ------------------------------------------------------------------------------------------


def test_a_listing_sorts_entries_and_the_latest_complete_checkpoint() -> None:
    files = listed(
        f"{3:020d}.json", f"{4:020d}.json", f"{2:020d}.checkpoint.parquet", f"{3:020d}.checkpoint.parquet", "x.crc"
    )
    assert files.versions == (3, 4)
    assert files.checkpoints[0] == Checkpoint(3, (f"_delta_log/{3:020d}.checkpoint.parquet",))
    assert files.latest == 4


def test_a_checkpoint_in_parts_counts_only_with_all_of_its_parts() -> None:
    parts = [f"{5:020d}.checkpoint.{part:010d}.{3:010d}.parquet" for part in (1, 2, 3)]
    assert not listed(*parts[:2]).checkpoints
    found = listed(*reversed(parts)).checkpoints
    assert found == (Checkpoint(5, tuple(f"_delta_log/{part}" for part in parts)),)


def test_a_checkpoint_in_one_part_is_another_than_the_one_beside_it() -> None:
    names = [f"{5:020d}.checkpoint.{1:010d}.{1:010d}.parquet", f"{5:020d}.checkpoint.parquet"]
    assert listed(*names).checkpoints == tuple(Checkpoint(5, (f"_delta_log/{name}",)) for name in names)


def test_a_checkpoint_alone_proves_its_version() -> None:
    assert listed(f"{5:020d}.checkpoint.parquet").latest == 5
    assert listed().latest == -1


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_checkpoint_of_the_v2_kind_is_one_by_its_name(kind: str) -> None:
    v2 = f"{5:020d}.checkpoint.{UUID}.{kind}"
    assert listed(v2, f"{4:020d}.checkpoint.parquet").checkpoints[0] == Checkpoint(5, (f"_delta_log/{v2}",))
    assert listed(v2).latest == 5


def test_checkpoints_are_listed_newest_first_and_two_of_one_version_are_two() -> None:
    names = [f"{5:020d}.checkpoint.{UUID}.json", f"{5:020d}.checkpoint.parquet", f"{6:020d}.checkpoint.parquet"]
    names += [f"{5:020d}.checkpoint.{part:010d}.{2:010d}.parquet" for part in (1, 2)]
    names += [f"{7:020d}.checkpoint.{part:010d}.{2:010d}.parquet" for part in (1,)]
    found = listed(*names).checkpoints
    assert [checkpoint.version for checkpoint in found] == [6, 5, 5, 5]
    assert sorted(len(checkpoint.paths) for checkpoint in found) == [1, 1, 1, 2]


# -- live files ----------------------------------------------------------------------------------------------------


def test_live_files_are_those_added_and_not_removed_up_to_the_version(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1]})
    foreign_append(log, {"2019-02": [2]})
    first = next(iter(everything(log, 1).values()))
    foreign_commit(log, [{"remove": {"path": first["path"], "dataChange": True, "deletionTimestamp": 1}}])
    assert len(everything(log, 1)) == 1
    assert len(everything(log, 2)) == 2
    assert list(everything(log, 3)) == [path for path in everything(log, 2) if path != first["path"]]


def test_live_files_are_only_those_asked_for(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1], None: [2]})
    found = list(log.live_files(lambda add: add["partitionValues"]["month"] is None, 1))
    assert [add["partitionValues"] for add in found] == [{"month": None}]


def test_a_commit_that_gives_a_file_another_vector_leaves_it_live_once(tmp_path: Path) -> None:
    log = make_table(tmp_path, **{"delta.enableDeletionVectors": "true"})
    foreign_append(log, {"2019-01": [1, 2, 3]})
    (before,) = everything(log, 1).values()
    left = delete_rows(log, before, [1])
    again = delete_rows(log, left, [0, 1])
    assert ids_without_deleted(tmp_path) == [3]
    assert list(log.live_files(lambda _: True, 3)) == [again]


def test_the_order_inside_a_commit_does_not_matter() -> None:
    add = {"path": "a", "partitionValues": {}, "size": 1}
    with_vector = {**add, "deletionVector": deletion_vector([0])}
    for actions in ([{"remove": add}, {"add": with_vector}], [{"add": with_vector}, {"remove": add}]):
        files = LiveFiles(lambda _: True)
        files.load([add])
        files.apply(Commit(2, actions))  # type: ignore[arg-type]
        assert list(files) == [with_vector]


def test_a_remove_of_the_file_without_its_vector_removes_another_logical_file() -> None:
    add = {"path": "a", "partitionValues": {}, "size": 1}
    with_vector = {**add, "deletionVector": deletion_vector([0])}
    files = LiveFiles(lambda _: True)
    files.load([with_vector])
    files.apply(Commit(2, [{"remove": add}]))
    assert list(files) == [with_vector]


# -- checkpoints ---------------------------------------------------------------------------------------------------


FORMS = [("classic", 0), ("classic", 2), ("json", 0), ("json", 1), ("json", 3), ("parquet", 0), ("parquet", 2)]


def with_every_kind_of_file(path: Path) -> tuple[DeltaLog, dict[str, dict[str, Any]]]:
    """A table whose files have vectors, tags, row ids, odd partitions; and what its log says of them."""
    log = make_table(path, **{"delta.enableDeletionVectors": "true"})
    actions = append_files(log.store, "", {"2019-01": [1, 2, 3], None: [4], "x y/ü:%": [5]})
    adds = of_kind(actions, "add")
    adds[0]["tags"] = {"VORDER": "true", "INSERTION_TIME": "17"}
    adds[1] |= {"baseRowId": 3, "defaultRowCommitVersion": 1, "clusteringProvider": "liquid"}
    foreign_commit(log, [*actions, {"txn": {"appId": "a", "version": 3, "lastUpdated": 1}}])
    marked = delete_rows(log, adds[0], [1])
    return log, {add["path"]: {**add, "dataChange": False} for add in (marked, *adds[1:])}


def test_a_file_read_from_a_classic_checkpoint_is_the_add_of_the_log_verbatim(tmp_path: Path) -> None:
    log, expected = with_every_kind_of_file(tmp_path)
    log = with_checkpoint(log, drop_until=2)
    assert everything(log, 2) == expected
    assert sum("deletionVector" in add for add in expected.values()) == 1
    assert ids_without_deleted(tmp_path) == [1, 3, 4, 5]


@pytest.mark.parametrize(("kind", "sidecars"), FORMS)
def test_a_file_read_from_a_checkpoint_of_the_v2_kind_is_the_add_of_the_log_verbatim(
    tmp_path: Path, kind: str, sidecars: int
) -> None:
    log, expected = with_every_kind_of_file(tmp_path)
    before = log.snapshot()
    assert len(write_v2_checkpoint(tmp_path, kind, sidecars)) == sidecars
    for version in range(3):
        (tmp_path / version_path(version)).unlink()
    log = through(log.store, log)
    after = log.snapshot()
    assert (after.version, after.txns, after.table_id) == (before.version, {"a": 3}, before.table_id)
    assert after.configuration == before.configuration
    assert everything(log, 2) == expected
    foreign_append(log, {"2019-02": [9]})
    assert len(everything(log, 3)) == 4


def test_a_snapshot_does_not_read_sidecars(tmp_path: Path) -> None:
    log, _ = with_every_kind_of_file(tmp_path)
    write_v2_checkpoint(tmp_path, "json", sidecars=5)
    store = Counted(log.store)
    assert through(store, log).snapshot_or_none() is not None
    # The hint, which there is none of, the top-level file, and the entry by which the table is known again.
    assert store.calls["get"] == 3


@pytest.mark.parametrize(("kind", "sidecars"), [form for form in FORMS if form[1]])
def test_a_checkpoint_that_lacks_a_sidecar_is_passed_over_for_an_older_one(
    tmp_path: Path, kind: str, sidecars: int, caplog: pytest.LogCaptureFixture
) -> None:
    log, expected = with_every_kind_of_file(tmp_path)
    write_v2_checkpoint(tmp_path, "classic", 0, version=1)
    (tmp_path / version_path(0)).unlink()
    lost = write_v2_checkpoint(tmp_path, kind, sidecars)[-1]
    content = lost.read_bytes()
    for damage in (lost.unlink, lambda: lost.write_bytes(content[: len(content) // 2])):
        damage()
        assert everything(through(log.store, log), 2).keys() == expected.keys()
        assert "checkpoint of version 2 is passed over" in caplog.text
        caplog.clear()
    lost.unlink()
    (tmp_path / version_path(2)).unlink()
    with pytest.raises(LogGapError, match="Version 2"):
        everything(through(log.store, log), 2)
    lost.write_bytes(content)
    assert everything(through(log.store, log), 2).keys() == expected.keys()


@pytest.mark.parametrize("kind", ["v2", "classic"])
def test_only_a_checkpoint_of_the_v2_kind_may_have_no_column_of_files(tmp_path: Path, kind: str) -> None:
    """It may leave files to sidecars. Without a sidecar, the table is empty."""
    log = make_table(tmp_path)
    write_v2_checkpoint(tmp_path, "parquet", 0)
    (path,) = (tmp_path / "_delta_log").glob("*.parquet")
    content = pq.read_table(path)
    content = content.select([name for name in content.column_names if name not in ("add", "remove")])
    if kind == "v2":
        said = pa.array([{"version": 0}] + [None] * (len(content) - 1), pa.struct({"version": pa.int64()}))
        content = content.append_column("checkpointMetadata", said)
    pq.write_table(content, path)
    (tmp_path / version_path(0)).unlink()
    log = through(log.store, log)
    assert log.snapshot().version == 0
    if kind == "v2":
        assert everything(log, 0) == {}
    else:
        with pytest.raises(LogGapError):
            everything(log, 0)


def test_a_checkpoint_whose_hint_is_there_but_not_its_file_is_passed_over_for_an_older_one(tmp_path: Path) -> None:
    log, expected = with_every_kind_of_file(tmp_path)
    write_v2_checkpoint(tmp_path, "json", 1, version=1)
    (tmp_path / version_path(0)).unlink()
    top = tmp_path / "_delta_log" / f"{2:020d}.checkpoint.{UUID}.parquet"
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text('{"version":2,"size":1}')
    for content in (None, b"PAR1 half"):
        if content:
            top.write_bytes(content)
        reader = through(log.store, log)
        snapshot = reader.snapshot()
        assert (snapshot.version, snapshot.txns) == (2, {"a": 3})
        assert everything(reader, 2).keys() == expected.keys()


def test_a_sidecar_is_found_by_its_name_however_its_path_is_given() -> None:
    for path in ("a%20b.parquet", "_sidecars/a%20b.parquet", "file:///t/_delta_log/_sidecars/a%20b.parquet"):
        assert sidecar_path({"path": path}) == "_delta_log/_sidecars/a b.parquet"


def test_a_checkpoint_that_cannot_be_read_says_which_file(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    for name, content in (("a.json", b"{"), ("a.parquet", b"PAR1"), ("gone.parquet", b"")):
        if content:
            log.store.put(f"_delta_log/{name}", content)
        with pytest.raises(CorruptLogError, match=name):
            list(read_checkpoint(log.store, Checkpoint(1, (f"_delta_log/{name}",)), ["add"]))


def test_null_is_kept_in_maps_and_a_count_stands_in_for_statistics_kept_in_columns() -> None:
    body = {
        "path": "a",
        "partitionValues": {"p": None},
        "tags": {"t": None},
        "stats": None,
        "stats_parsed": {"numRecords": 3, "minValues": {"id": 1}},
        "deletionVector": {"storageType": "i", "offset": None},
    }
    assert _as_entry("add", body)["add"] == {
        "path": "a",
        "partitionValues": {"p": None},
        "tags": {"t": None},
        "stats": '{"numRecords": 3}',
        "deletionVector": {"storageType": "i"},
        "dataChange": False,
    }


def test_files_are_replayed_on_from_a_checkpoint(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1]})
    (first,) = everything(log, 1)
    log = with_checkpoint(log, drop_until=1)
    foreign_append(log, {"2019-02": [2]})
    foreign_commit(log, [{"remove": {"path": first, "dataChange": True, "deletionTimestamp": 1}}])
    assert [add["partitionValues"]["month"] for add in everything(log, 3).values()] == ["2019-02"]


@pytest.mark.parametrize(
    "wanted",
    [
        lambda add: add["partitionValues"]["month"] == "2019-02",
        InPartitions(lambda values: values["month"] == "2019-02"),
    ],
    ids=["by file", "by partition"],
)
def test_of_a_checkpoint_and_of_what_follows_it_only_the_files_asked_for_are_live(tmp_path: Path, wanted: Any) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1], "2019-02": [2]})
    log = with_checkpoint(log, drop_until=1)
    foreign_append(log, {"2019-01": [3], "2019-02": [4]})
    assert [add["partitionValues"] for add in log.live_files(wanted, 2)] == [{"month": "2019-02"}] * 2
    # No more is kept of them than asked for.
    assert list(log.live_files(wanted, 2, lambda add: {"rows": row_count(add)})) == [{"rows": 1}] * 2


def test_a_version_before_the_checkpoint_whose_entries_are_gone_is_a_log_gap(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1]})
    foreign_append(log, {"2019-01": [2]})
    log = with_checkpoint(log, drop_until=2)
    with pytest.raises(LogGapError, match="Version 0"):
        log.live_files(lambda _: True, 1)


def test_a_checkpoint_in_parts_is_read_part_by_part(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    names = [f"_delta_log/{7:020d}.checkpoint.{part:010d}.{2:010d}.parquet" for part in (1, 2)]
    for name, path in zip(names, "ab", strict=True):
        body = {"path": path, "partitionValues": [("month", None)], "size": 1, "tags": None}
        kind = pa.struct(
            {"path": pa.string(), "partitionValues": pa.map_(pa.string(), pa.string()), "size": pa.int64()}
            | {"tags": pa.map_(pa.string(), pa.string())}
        )
        txn = pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()})
        txns = [None, {"appId": path, "version": 2, "lastUpdated": None}]
        table = pa.table({"add": pa.array([body, None], kind), "txn": pa.array(txns, txn)})
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        log.store.put(name, buffer.getvalue())
    checkpoint = Checkpoint(7, tuple(names))
    assert list(read_checkpoint(log.store, checkpoint, ["add", "txn", "metaData"])) == [
        {kind: body}
        for path in "ab"
        for kind, body in (
            ("add", {"path": path, "partitionValues": {"month": None}, "size": 1, "dataChange": False}),
            ("txn", {"appId": path, "version": 2}),
        )
    ]


def test_what_only_readers_of_checkpoints_need_is_left_out(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    kind = pa.struct(
        {
            "path": pa.string(),
            "partitionValues": pa.map_(pa.string(), pa.string()),
            "size": pa.int64(),
            "stats": pa.string(),
            "stats_parsed": pa.struct({"numRecords": pa.int64()}),
            "partitionValues_parsed": pa.struct({"month": pa.string()}),
        }
    )
    verbatim = {"path": "a", "partitionValues": {}, "size": 1, "stats": "{}"}
    body = {**verbatim, "stats_parsed": {"numRecords": 1}, "partitionValues_parsed": {"month": "x"}}
    buffer = io.BytesIO()
    pq.write_table(pa.table({"add": pa.array([body], kind)}), buffer)
    log.store.put("_delta_log/c.parquet", buffer.getvalue())
    found = list(read_checkpoint(log.store, Checkpoint(1, ("_delta_log/c.parquet",)), ["add"]))
    assert found == [{"add": {**verbatim, "dataChange": False}}]


@pytest.mark.parametrize("spelled", ["month=\u00e9/a.parquet", "month=%C3%A9/a.parquet", "month=%c3%a9/a.parquet"])
def test_a_remove_that_spells_its_path_otherwise_leaves_the_file_live_for_deltalake_and_for_us(
    tmp_path: Path, spelled: str
) -> None:
    log = make_table(tmp_path)
    actions = append_files(log.store, "", {"\u00e9": [1]})
    (add,) = of_kind(actions, "add")
    raw = add["path"] = unquote(add["path"])
    foreign_commit(log, actions)
    path = spelled.replace("a.parquet", raw.rpartition("/")[2])
    foreign_commit(log, [{"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1}}])
    live = everything(log, 2)
    assert len(live) == len(DeltaTable(log.table).file_uris()) == (path != raw)


# -- checkpoints that are damaged, or hold what Python does not know -------------------------------------------------


@pytest.mark.parametrize("year", [12_100, -5])
def test_a_date_beyond_pythons_years_in_a_checkpoints_statistics_is_passed_over(tmp_path: Path, year: int) -> None:
    days = (year - 1970) * 365
    table = pa.table({"day": pa.array([days], pa.int32()).cast(pa.date32())})
    properties = {"delta.checkpoint.writeStatsAsStruct": "true"}
    write_deltalake(str(tmp_path), table, configuration=properties)
    (add,) = local_log(tmp_path).live_files(lambda _: True, 0)
    log = with_checkpoint(local_log(tmp_path), drop_until=0)
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    assert pq.read_schema(checkpoint).field("add").type.get_field_index("stats_parsed") >= 0
    said = {key: value for key, value in add.items() if value is not None}
    assert list(log.live_files(lambda _: True, 0)) == [{**said, "dataChange": False}]


def test_only_the_count_of_statistics_kept_in_columns_is_decoded(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    statistics = pa.struct({"numRecords": pa.int64(), "minValues": pa.struct({"day": pa.date32()})})
    kind = pa.struct(
        {"path": pa.string(), "partitionValues": pa.map_(pa.string(), pa.string()), "size": pa.int64()}
        | {"stats_parsed": statistics}
    )
    body = {"path": "a", "partitionValues": {}, "size": 1}
    far = pa.array([10**7], pa.int32()).cast(pa.date32())
    parsed = pa.StructArray.from_arrays(
        [pa.array([3]), pa.StructArray.from_arrays([far], fields=list(statistics.field("minValues").type))],
        fields=list(statistics),
    )
    known = [pa.array([body[field.name]], field.type) for field in list(kind)[:3]]
    buffer = io.BytesIO()
    pq.write_table(pa.table({"add": pa.StructArray.from_arrays([*known, parsed], fields=list(kind))}), buffer)
    log.store.put("_delta_log/c.parquet", buffer.getvalue())
    found = list(read_checkpoint(log.store, Checkpoint(1, ("_delta_log/c.parquet",)), ["add"]))
    assert found == [{"add": {**body, "stats": '{"numRecords": 3}', "dataChange": False}}]


@pytest.mark.parametrize("lost", ["metaData", "add"])
def test_a_checkpoint_that_lacks_what_every_one_has_is_passed_over(tmp_path: Path, lost: str) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1]})
    DeltaTable(log.table).create_checkpoint()
    (path,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    pq.write_table(pq.read_table(path).drop_columns([lost]), path)
    reader = through(log.store, log)
    snapshot = reader.snapshot()
    assert snapshot.metadata
    assert len(everything(reader, 1)) == 1
    # deltalake does not notice that files are missing.
    path.unlink()


def test_a_checkpoint_with_a_damaged_page_is_passed_over(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    for number in range(5):
        foreign_append(log, {"2019-01": [number], None: [number]})
    before, snapshot = everything(log, 5), log.snapshot()
    assert snapshot is not None
    DeltaTable(log.table).create_checkpoint()
    (path,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    # With checksums, as Spark writes them; without, a byte may read as another one.
    pq.write_table(pq.read_table(path), path, write_page_checksum=True)
    whole = path.read_bytes()
    pages = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for place in range(4, pages, max(1, pages // 300)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :])
        reader = through(log.store, log)
        found = reader.snapshot()
        assert (found.version, found.table_id, found.txns) == (5, snapshot.table_id, snapshot.txns)
        assert everything(reader, 5).keys() == before.keys()
