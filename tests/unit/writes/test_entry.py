"""The log entry that publishes a batch."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_onelake import __version__
from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.actions import of_kind
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import ReplaceWhere
from airflow_provider_onelake.writes.batch import place
from airflow_provider_onelake.writes.entry import Published, build_entry
from airflow_provider_onelake.writes.policy import Outcome, Settled, Settlement
from airflow_provider_onelake.writes.publish import Committer
from tests.support.tables import OVERWRITE, stage, writer_spec
from tests.support.vectors import deletion_vector

NOW = datetime(2019, 2, 1, 3, 4, 5, 678000, UTC)
STAMP = 1_548_990_245_678
WHERE = {"mode": ReplaceWhere("month = '2019-01'")}


def entry(log: DeltaLog, *buffers: Buffer, removed: Any = (), left_out: bool = False) -> Published:
    snapshot = log.snapshot()
    settled = Settled(left_out, (Settlement("month=2019-01", 7, "w", Outcome.REPLACED),))
    return build_entry(place(buffers, snapshot), snapshot, removed, settled, NOW)


def actions(log: DeltaLog, found: Published) -> list[Any]:
    return found.entry.on(log.snapshot(), "txn-id", NOW)


def info(log: DeltaLog, found: Published) -> dict[str, Any]:
    value: dict[str, Any] = actions(log, found)[0]["commitInfo"]
    return value


def test_actions_stand_in_the_order_commit_info_txns_removes_adds(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(**OVERWRITE), {"2019-01": [1]})
    removed = [{"path": "old", "partitionValues": {"month": "2019-01"}, "size": 1}]
    found = entry(log, buffer, removed=removed)
    assert [next(iter(action)) for action in actions(log, found)] == ["commitInfo", "txn", "remove", "add"]
    assert (found.files, found.rows, found.files_removed) == (1, 1, 1)


def test_every_add_is_the_buffers_own_but_for_the_prefixed_path(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(), {"2019-01": [1, 2], None: [3], "x y/ü:%": [4]})
    adds = of_kind(actions(log, entry(log, buffer)), "add")
    assert [{**add, "path": f"{buffer.path}/{add['path']}"} for add in buffer.adds] == adds
    assert all(add["path"].startswith("staged/w-") for add in adds)


def test_every_txn_has_generation_and_last_updated(log: DeltaLog) -> None:
    buffers = [stage(log, writer_spec(key, generation=3), {"2019-01": [1]}) for key in ("a", "b")]
    assert of_kind(actions(log, entry(log, *buffers)), "txn") == [
        {"appId": buffer.spec.identity.app_id, "version": 3, "lastUpdated": STAMP} for buffer in buffers
    ]


def test_the_commit_records_buffers_writers_and_when_they_finished(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec("vendor-1"), {"2019-01": [1]})
    found = entry(log, buffer)
    (record,) = found.writers
    assert (record.buffer, record.writer, record.finished) == (buffer.path, "vendor-1", buffer.finished)
    assert info(log, found)["txnId"] == "txn-id"
    staged = info(log, found)["staged"]
    assert staged["writers"] == [record.to_json()]
    assert staged["load"] == "test/taxi/load/2019-01-01T00:00:00+00:00"
    assert (staged["mode"], staged["readVersion"]) == ("append", 0)
    (settlement,) = staged["settlements"]
    assert (settlement["winner_version"], settlement["winner"], settlement["outcome"]) == (7, "w", "replaced")


def test_a_path_both_added_and_removed_is_never_put(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(**OVERWRITE), {"2019-01": [1]})
    own = {**buffer.adds[0], "path": f"{buffer.path}/{buffer.adds[0]['path']}"}
    with pytest.raises(CorruptLogError, match="added and removed in one commit"):
        entry(log, buffer, removed=[own])


def test_a_remove_copies_the_live_add_verbatim(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(**OVERWRITE), {"2019-01": [1]})
    live = {
        "path": "month=2019-01/a%20b.parquet",
        "partitionValues": {"month": None},
        "size": 17,
        "modificationTime": 5,
        "dataChange": False,
        "stats": '{"numRecords":2}',
        "tags": {"VORDER": "true"},
        "deletionVector": {**deletion_vector([0]), "offset": 1},
        "baseRowId": 0,
        "defaultRowCommitVersion": 3,
    }
    (remove,) = of_kind(actions(log, entry(log, buffer, removed=[live])), "remove")
    copied = {key: value for key, value in live.items() if key not in ("modificationTime", "dataChange")}
    assert remove == {**copied, "deletionTimestamp": STAMP, "dataChange": True, "extendedFileMetadata": True}


@pytest.mark.parametrize(("terms", "blind"), [({}, True), (OVERWRITE, False), (WHERE, False)])
def test_whether_the_append_was_blind_is_ours_to_say(log: DeltaLog, terms: Any, blind: bool) -> None:
    buffer = stage(log, writer_spec(**terms), {"2019-01": [1]})
    assert info(log, entry(log, buffer))["isBlindAppend"] is blind


@pytest.mark.parametrize("terms", [{}, OVERWRITE, WHERE], ids=["append", "overwrite_partitions", "replace_where"])
@pytest.mark.parametrize("rows", [{"2019-01": [1]}, {}], ids=["rows", "empty"])
def test_parameters_and_metrics_are_maps_of_strings(log: DeltaLog, terms: Any, rows: Any) -> None:
    found = info(log, entry(log, stage(log, writer_spec(**terms), rows)))
    for name in ("operationParameters", "operationMetrics"):
        assert found[name]
        assert all(isinstance(part, str) for pair in found[name].items() for part in pair)
    assert found["operation"] == "WRITE"
    assert found["engineInfo"] == f"airflow-provider-onelake/{__version__}"
    assert found["timestamp"] == STAMP


def test_the_history_reads_in_deltalake(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(**WHERE), {"2019-01": [1, 2]})
    Committer(log).publish([buffer])
    (newest,) = DeltaTable(log.table).history(1)
    assert newest["operation"] == "WRITE"
    assert newest["operationParameters"]["mode"] == "Overwrite"
    assert json.loads(newest["operationParameters"]["predicate"]) == ["month = '2019-01'"]
    assert newest["operationMetrics"]["numOutputRows"] == "2"


def test_of_a_write_that_is_left_out_no_file_is_added_and_the_txn_is(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(**WHERE), {"2019-01": [1]})
    found = entry(log, buffer, left_out=True)
    assert [next(iter(action)) for action in actions(log, found)] == ["commitInfo", "txn"]
    assert (found.rows, found.writers[0].set_aside, info(log, found)["staged"]["replaces"]) == (0, True, [])


def test_rows_outside_what_the_writer_covers_are_not_added(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(expected_partitions="month = '2019-01'"), {"2019-01": [1], "2019-05": [9]})
    found = entry(log, buffer)
    assert [add["partitionValues"]["month"] for add in of_kind(actions(log, found), "add")] == ["2019-01"]


def test_a_writer_without_rows_commits_its_txn_all_the_same(log: DeltaLog) -> None:
    found = entry(log, stage(log, writer_spec(), {}))
    assert [next(iter(action)) for action in actions(log, found)] == ["commitInfo", "txn"]
    assert (found.rows, found.files) == (0, 0)


def test_people_read_in_a_tables_history_whose_a_commit_is_and_what_was_settled(log: DeltaLog) -> None:
    buffers = [stage(log, writer_spec(key, **OVERWRITE), {f"2019-0{i}": [i]}) for i, key in enumerate("ab", 1)]
    said = info(log, entry(log, *buffers))["userMetadata"]
    assert said == (
        "taxi.load, run 2019-01-01T00:00:00+00:00 (test): a 1 row, b 1 row. "
        "Version 7 (w) changed rows in month=2019-01, and is replaced there"
    )
    Committer(log).publish(buffers[:1])
    assert DeltaTable(log.table).history(1)[0]["userMetadata"].endswith("(test): a 1 row")


def test_the_messages_of_authors_stand_beside_it_each_with_its_writers(log: DeltaLog) -> None:
    given = {"a": "fix 7", "b": "ordinary", "c": "fix 7", "d": None}
    buffers = [stage(log, writer_spec(key, message=said), {"2019-01": [1]}) for key, said in given.items()]
    Committer(log, message="by hand").publish(buffers)
    (newest,) = DeltaTable(log.table).history(1)
    assert newest["userMetadata"] == (
        "taxi.load, run 2019-01-01T00:00:00+00:00 (test): a 1 row, b 1 row, c 1 row, d 1 row. Message of a, c: fix 7. "
        "Message of b: ordinary. Message of the task that committed: by hand"
    )


@pytest.mark.parametrize(("own", "writers"), [("fix 7", None), ("fix 7", "fix 7"), (None, "fix 7")])
def test_a_message_that_all_of_them_give_is_told_once(log: DeltaLog, own: str | None, writers: str | None) -> None:
    buffers = [stage(log, writer_spec(key, message=writers), {"2019-01": [1]}) for key in "ab"]
    Committer(log, message=own).publish(buffers)
    assert DeltaTable(log.table).history(1)[0]["userMetadata"].endswith("a 1 row, b 1 row. Message: fix 7")


def test_a_tables_history_has_the_first_ten_of_many_writers(log: DeltaLog) -> None:
    buffers = [stage(log, writer_spec(f"w{number:02}"), {"2019-01": [number]}) for number in range(12)]
    assert info(log, entry(log, *buffers))["userMetadata"].count(" 1 row") == 10
    assert " and 2 more" in info(log, entry(log, *buffers))["userMetadata"]
