"""Columns that rows bring are added to the table by a commit of their own: once, nullable, or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.definition import create as definition
from airflow_provider_onelake.exceptions import (
    SchemaMismatchError,
    TableNotFoundError,
    TablePropertyError,
    UnsupportedFeatureError,
)
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.schema import columns
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.spark.jobs.columns import fit
from airflow_provider_onelake.storage.clock import milliseconds
from airflow_provider_onelake.writes.publish import Committer
from tests.support import tables
from tests.support.schemas import array, field, map_of, struct
from tests.support.stores import AnswerLost, LoserHeld, through

MAPPED = {"delta.columnMapping.mode": "name"}
HIGHEST = "delta.columnMapping.maxColumnId"


def add_columns(transactions: Transactions, rows_schema_json: str, **terms: Any) -> Snapshot:
    """Add columns as a writer does, which asks what Spark casts."""
    name = transactions.log.table
    return definition.add_columns(
        transactions,
        rows_schema_json,
        lambda rows, table, by: fit(rows, table, name, missing_as_null=True, partition_columns=by),
        **terms,
    )


def rows(*added: dict[str, Any] | tuple[str, Any]) -> str:
    """The schema of rows that bring columns beside those of the table."""
    more = [field(*one) if isinstance(one, tuple) else one for one in added]
    return json.dumps({"type": "struct", "fields": [field("id", "long"), field("month", "string"), *more]})


def schema_of(log: DeltaLog) -> list[dict[str, Any]]:
    snapshot = log.snapshot()
    fields: list[dict[str, Any]] = json.loads(snapshot.metadata["schemaString"])["fields"]
    return fields


def test_a_new_column_is_added_behind_the_others_by_a_commit_that_changes_no_row(log: DeltaLog) -> None:
    tables.foreign_append(log, {"2019-01": [1]})
    before = log.snapshot()
    snapshot = add_columns(Transactions(log), rows(("note", "string")))

    assert snapshot.version == 2
    assert schema_of(log) == [field("id", "long"), field("month", "string"), field("note", "string")]
    commit = tables.commit_of(log, 2)
    assert [next(iter(action)) for action in commit.actions] == ["commitInfo", "metaData"]
    assert (commit.operation, commit.data_change, commit.info["readVersion"]) == ("ADD COLUMNS", False, 1)
    assert commit.txn_id
    assert all(isinstance(value, str) for value in commit.info["operationParameters"].values())
    same = ("id", "format", "partitionColumns", "configuration", "createdTime")
    assert {k: snapshot.metadata[k] for k in same} == {k: before.metadata[k] for k in same}
    table = DeltaTable(log.table)
    assert table.to_pyarrow_table().select(["id", "note"]).to_pylist() == [{"id": 1, "note": None}]
    assert table.history(1)[0]["operation"] == "ADD COLUMNS"


def test_rows_without_new_columns_change_nothing(log: DeltaLog) -> None:
    assert add_columns(Transactions(log), rows()).version == 0
    assert add_columns(Transactions(log), json.dumps(struct(field("ID", "integer")))).version == 0


def test_what_was_staged_before_is_published_after(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), {"2019-01": [1, 2]})
    add_columns(Transactions(log), rows(("note", "string")))
    assert Committer(log).publish([buffer]).version == 2
    assert tables.ids(Path(log.table)) == [1, 2]


def test_names_are_compared_as_spark_does(log: DeltaLog) -> None:
    add_columns(Transactions(log), rows(("Note", "string")))
    assert add_columns(Transactions(log), rows(("NOTE", "string"))).version == 1
    assert [one["name"] for one in schema_of(log)] == ["id", "month", "Note"]


def test_comments_are_kept_and_everything_is_nullable_inside_too(log: DeltaLog) -> None:
    inner = struct(field("a", "long", False, comment="of a"), field("b", array("string", nulls=False), False))
    brought = [
        field("s", inner, False, comment="of s", **{"delta.generationExpression": "1", "CURRENT_DEFAULT": "2"}),
        field("m", map_of("string", inner, nulls=False), False),
    ]
    add_columns(Transactions(log), rows(*brought))
    plain = struct(field("a", "long", comment="of a"), field("b", array("string")))
    assert schema_of(log)[2:] == [
        field("s", plain, comment="of s"),
        field("m", {**map_of("string", plain, nulls=False), "valueContainsNull": True}),
    ]
    assert DeltaTable(log.table).version() == 1


def test_the_tables_own_comments_defaults_and_constraints_stay(tmp_path: Path) -> None:
    own = field("id", "long", False, comment="the id", CURRENT_DEFAULT="7")
    described = json.dumps(struct(own, field("m", "date")))
    log = tables.make_table(tmp_path / "d", described, (), **{"delta.constraints.positive": "id > 0"})
    before = log.snapshot()
    given = json.dumps(struct(field("id", "long"), field("m", "date"), field("n", "long")))
    after = add_columns(Transactions(log), given)
    assert schema_of(log)[0] == own
    assert after.configuration == before.configuration
    assert after.protocol == before.protocol


@pytest.mark.parametrize(("mine", "both"), [("NOTE", ["note"]), ("b", ["note", "b"])], ids=["one column", "two"])
def test_two_writers_that_add_columns(log: DeltaLog, mine: str, both: list[str]) -> None:
    held = LoserHeld(log.store, lambda: add_columns(Transactions(through(log.store, log)), rows(("note", "string"))))
    snapshot = add_columns(Transactions(through(held, log)), rows((mine, "string")))
    assert (held.refused, snapshot.version) == (1, len(both))
    assert list(columns(snapshot.metadata)) == ["id", "month", *both]


def test_a_column_that_another_adds_with_another_type_is_refused(log: DeltaLog) -> None:
    held = LoserHeld(log.store, lambda: add_columns(Transactions(through(log.store, log)), rows(("note", "date"))))
    mine = rows(("note", "string"), ("more", "string"))
    with pytest.raises(SchemaMismatchError, match=r"note is STRING in the rows and DATE in the table.*No column"):
        add_columns(Transactions(through(held, log)), mine)
    assert [one["name"] for one in schema_of(log)] == ["id", "month", "note"]


@pytest.mark.parametrize("effect", [True, False], ids=["put", "not put"])
def test_a_lost_answer_adds_the_column_once(log: DeltaLog, effect: bool) -> None:
    lossy = AnswerLost(log.store, effect=effect)
    snapshot = add_columns(Transactions(through(lossy, log)), rows(("note", "string")))
    assert snapshot.version == 1
    assert list(columns(snapshot.metadata)) == ["id", "month", "note"]


def test_a_column_that_somebody_drops_right_after_the_put_is_added_again(log: DeltaLog) -> None:
    before = schema_of(log)
    dropped: list[int] = []

    def drop(snapshot: Snapshot, version: int) -> None:
        if not dropped:
            dropped.append(version)
            tables.change_metadata(log, schemaString=json.dumps(struct(*before)))

    snapshot = add_columns(Transactions(log, after_commit=drop), rows(("note", "string")))
    assert (dropped, snapshot.version) == ([1], 3)
    assert "note" in columns(snapshot.metadata)


def test_a_table_that_somebody_drops_right_after_the_put_is_said_to_be_gone(log: DeltaLog) -> None:
    def drop(snapshot: Snapshot, version: int) -> None:
        shutil.rmtree(Path(log.table, "_delta_log"))
        log.doubt()

    with pytest.raises(TableNotFoundError):
        add_columns(Transactions(log, after_commit=drop), rows(("note", "string")))


def test_under_column_mapping_every_new_field_gets_an_id_and_a_physical_name(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "m", **MAPPED)
    inner = struct(field("a", "long"), field("b", array(struct(field("c", "long")), nulls=False)))
    snapshot = add_columns(Transactions(log), rows(("s", inner), ("n", "long")))
    s, n = schema_of(log)[2:]
    b = s["type"]["fields"][1]
    found = [one["metadata"] for one in (s, s["type"]["fields"][0], b, b["type"]["elementType"]["fields"][0], n)]
    assert [one["delta.columnMapping.id"] for one in found] == [3, 4, 5, 6, 7]
    names = [one["delta.columnMapping.physicalName"] for one in found]
    assert len(set(names)) == 5
    assert all(name.startswith("col-") for name in names)
    assert snapshot.configuration[HIGHEST] == "7"
    assert [field.name for field in DeltaTable(log.table).schema().fields] == ["id", "month", "s", "n"]


@pytest.mark.parametrize(("highest", "next_one"), [(9, 10), (0, 3)], ids=["after a drop", "a number that lags behind"])
def test_the_id_of_a_column_that_was_dropped_is_not_given_again(tmp_path: Path, highest: int, next_one: int) -> None:
    """Files that hold the dropped one would be read as the new one."""
    log = tables.make_table(tmp_path / "m", **MAPPED)
    tables.change_metadata(log, configuration={**log.snapshot().configuration, HIGHEST: str(highest)})
    assert add_columns(Transactions(log), rows(("n", "long"))).configuration[HIGHEST] == str(next_one)
    assert schema_of(log)[2]["metadata"]["delta.columnMapping.id"] == next_one


def test_a_highest_id_that_is_no_number_is_refused(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "t", **MAPPED)
    tables.change_metadata(log, configuration={**log.snapshot().configuration, HIGHEST: "many"})
    with pytest.raises(TablePropertyError, match="maxColumnId='many', which is no number"):
        add_columns(Transactions(log), rows(("n", "long")))
    assert log.snapshot().version == 1


def test_an_in_commit_timestamp_is_later_than_the_one_before(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "i", **{"delta.enableInCommitTimestamps": "true"})
    ahead = milliseconds(log.clock.now()) + 3_600_000
    tables.foreign_commit(log, [{"commitInfo": {"inCommitTimestamp": ahead, "timestamp": 1, "operation": "WRITE"}}])
    assert add_columns(Transactions(log), rows(("n", "long"))).in_commit_timestamp == ahead + 1
    commit = tables.commit_of(log, 2)
    assert next(iter(commit.actions[0])) == "commitInfo"


@pytest.mark.parametrize(
    ("brought", "reason"),
    [
        pytest.param([("n", "void")], "column n has no type, as all its values are NULL", id="void"),
        pytest.param([("n", array("void", nulls=False))], "column n has no type", id="void inside"),
        pytest.param([("n", "timestamp_ntz")], "does not have the feature timestampNtz: .*delta.feature.t", id="ntz"),
        pytest.param([("n", struct(field("a", "timestamp_ntz")))], "the feature timestampNtz", id="ntz inside"),
        pytest.param([("n", "variant")], "is VARIANT, which is not written here", id="variant"),
        pytest.param([("n", "interval day to second")], "is INTERVAL DAY TO SECOND, which", id="interval"),
        pytest.param([("n", {"type": "udt", "class": "x"})], "is UDT, which is not written here", id="udt"),
        pytest.param([field("n", "string", __COLLATIONS={"n": "icu.UNICODE"})], "has a collation", id="collation"),
        pytest.param([("a b", "long")], "character in 'a b' that Parquet does not allow", id="name"),
        pytest.param([("s", struct(field("a=b", "long")))], "character in 'a=b'", id="name inside"),
        pytest.param([("s", struct(field("a", "long"), field("A", "long")))], "one name twice", id="twice inside"),
        pytest.param([("s", struct())], "holds a struct without a field", id="empty struct"),
        pytest.param([("s", array(struct(), nulls=False))], "holds a struct without a field", id="empty struct inside"),
        pytest.param([("n", "long"), ("N", "long")], "column N is there twice", id="twice"),
    ],
)
def test_a_column_that_cannot_be_added_is_refused(log: DeltaLog, brought: list[Any], reason: str) -> None:
    with pytest.raises(SchemaMismatchError, match=reason) as caught:
        add_columns(Transactions(log), rows(("good", "long"), *brought))
    assert log.table in str(caught.value)
    assert log.commit(1) is None


def test_rows_that_lack_what_may_not_be_null_add_nothing(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "n", json.dumps(struct(field("id", "long", False), field("x", "long"))), ())
    with pytest.raises(SchemaMismatchError, match="column id BIGINT of the table is missing"):
        add_columns(Transactions(log), json.dumps(struct(field("n", "long"))))
    assert add_columns(Transactions(log), json.dumps(struct(field("id", "long"), field("n", "long")))).version == 1


def test_a_column_that_is_to_be_generated_is_refused(log: DeltaLog) -> None:
    with pytest.raises(SchemaMismatchError, match="column Year is to be generated, and a table gets generated columns"):
        add_columns(Transactions(log), rows(("Year", "integer")), generated=["year"])
    assert log.commit(1) is None


def test_names_of_the_change_feed_are_refused_where_there_is_one(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "c", **{"delta.enableChangeDataFeed": "true"})
    with pytest.raises(SchemaMismatchError, match="the change data feed keeps for itself"):
        add_columns(Transactions(log), rows(("_Change_Type", "string")))


def test_column_mapping_allows_every_name(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "m", **MAPPED)
    assert add_columns(Transactions(log), rows(("a b = c", "long"))).version == 1


def test_arrays_and_maps_are_not_added_where_iceberg_reads_too(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "m", **MAPPED)
    snapshot = log.snapshot()
    protocol = {**snapshot.protocol, "writerFeatures": [*snapshot.protocol["writerFeatures"], "icebergCompatV2"]}
    properties = {**snapshot.configuration, "delta.enableIcebergCompatV2": "true"}
    metadata = {**snapshot.metadata, "configuration": properties}
    tables.foreign_commit(log, [{"protocol": protocol}, {"metaData": metadata}])
    with pytest.raises(SchemaMismatchError, match="compatible with Iceberg"):
        add_columns(Transactions(log), rows(("a", array("long", nulls=False))))
    assert add_columns(Transactions(log), rows(("a", "long"))).version == 2


def test_a_table_that_is_not_supported_is_not_touched(log: DeltaLog) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["somethingNew"]}
    tables.foreign_commit(log, [{"protocol": protocol}])
    with pytest.raises(UnsupportedFeatureError, match="somethingNew"):
        add_columns(Transactions(log), rows(("n", "long")))


def test_an_entry_of_ours_reads_back_byte_for_byte(log: DeltaLog) -> None:
    add_columns(Transactions(log), rows(field("größe", "decimal(10,2)", comment="in €")))
    data = log.store.get(version_path(1))
    commit = tables.commit_of(log, 1)
    assert dump_actions(commit.actions) == data
    assert "größe" in data.decode()
