"""A table is made once, create-only, before its writers start."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.commit.loop import Backoff, Transactions
from airflow_provider_onelake.definition.create import _TableCreation, create_table, with_generated
from airflow_provider_onelake.exceptions import InvalidWriteError, TablePropertyError, UnsupportedFeatureError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.schema import columns
from airflow_provider_onelake.log.types import fields_within
from tests.support.schemas import array, field, struct
from tests.support.stores import AnswerLost, LoserHeld, through
from tests.support.tables import SCHEMA, foreign_append, local_log, make_table


def schema(*fields: tuple[str, Any], **metadata: Any) -> str:
    described = [{"name": n, "type": t, "nullable": True, "metadata": metadata.get(n, {})} for n, t in fields]
    return json.dumps({"type": "struct", "fields": described})


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return local_log(tmp_path / "t")


def test_a_new_table_is_opened_by_deltalake_with_columns_partitions_and_properties(log: DeltaLog) -> None:
    snapshot = create_table(log, SCHEMA, ["month"], {"delta.deletedFileRetentionDuration": "interval 2 days"})
    table = DeltaTable(log.table)
    assert (snapshot.version, table.version()) == (0, 0)
    assert [field.name for field in table.schema().fields] == ["id", "month"]
    assert table.metadata().partition_columns == ["month"]
    assert table.metadata().configuration == {"delta.deletedFileRetentionDuration": "interval 2 days"}
    assert str(table.metadata().id) == snapshot.table_id
    assert snapshot.retention_days == 2
    # What the oldest engines read.
    assert snapshot.protocol == {"minReaderVersion": 1, "minWriterVersion": 2}


def test_of_many_that_create_one_makes_the_table_and_all_use_it(log: DeltaLog) -> None:
    first = LoserHeld(log.store, lambda: create_table(through(log.store, log), SCHEMA, ["month"], random=Random(1)))
    snapshot = create_table(through(first, log), SCHEMA, ["month"], random=Random(2))
    assert first.refused == 1
    assert snapshot.version == 0
    made = DeltaTable(log.table)
    assert snapshot.table_id == str(made.metadata().id)
    assert made.version() == 0


def test_an_existing_table_is_left_as_it_is(log: DeltaLog) -> None:
    make_table(Path(log.table))
    foreign_append(log, {"2019-01": [1]})
    snapshot = create_table(log, schema(("other", "string")), ["no such"], {"delta.enableChangeDataFeed": "true"})
    assert snapshot.version == 1
    assert list(columns(snapshot.metadata)) == ["id", "month"]


@pytest.mark.parametrize("effect", [True, False])
def test_a_lost_answer_is_settled_by_looking_for_the_table(log: DeltaLog, effect: bool) -> None:
    lossy = through(AnswerLost(log.store, effect=effect), log)
    assert create_table(lossy, SCHEMA, ["month"]).version == 0
    assert DeltaTable(log.table).version() == 0


def test_who_loses_the_last_race_for_the_table_finds_it(log: DeltaLog) -> None:
    """The budget is used up with the put that met another's table."""
    held = LoserHeld(log.store, lambda: create_table(through(log.store, log), SCHEMA, ["month"]))
    late = Transactions(through(held, log), backoff=Backoff(budget=0.0))
    assert late.commit(_TableCreation(late.log, late.random, SCHEMA, ["month"], {})).version == 0


def test_a_partition_column_may_be_generated_by_an_expression(log: DeltaLog) -> None:
    expression = "date_format(at, 'yyyy-MM')"
    described = with_generated(schema(("at", "timestamp"), ("month", "string")), {"month": expression})
    snapshot = create_table(log, described, ["month"])
    assert columns(snapshot.metadata)["month"].generation == expression
    assert list(snapshot.partitioning.types) == ["month"]
    assert "generatedColumns" in snapshot.protocol["writerFeatures"]
    assert DeltaTable(log.table).metadata().partition_columns == ["month"]


MONTH = ("month", "string")
FOR_READERS = {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint"}


@pytest.mark.parametrize(
    ("made", "feature"),
    [
        ({"properties": {"delta.constraints.positive": "id > 0"}}, "checkConstraints"),
        ({"properties": {"delta.enableDeletionVectors": "true"}}, "deletionVectors"),
        ({"properties": {"delta.enableChangeDataFeed": "true"}}, "changeDataFeed"),
        ({"properties": {"delta.enableInCommitTimestamps": "true"}}, "inCommitTimestamp"),
        ({"properties": {"delta.enableTypeWidening": "true"}}, "typeWidening"),
        ({"properties": {"delta.checkpointPolicy": "v2"}}, "v2Checkpoint"),
        ({"properties": {"delta.columnMapping.mode": "name"}}, "columnMapping"),
        ({"schema_json": schema(("at", "timestamp_ntz"), MONTH)}, "timestampNtz"),
        ({"schema_json": schema(("a", array("timestamp_ntz")), MONTH)}, "timestampNtz"),
        ({"schema_json": schema(("id", "long"), MONTH, id={"CURRENT_DEFAULT": "7"})}, "allowColumnDefaults"),
    ],
)
def test_the_protocol_names_what_the_table_uses(log: DeltaLog, made: dict[str, Any], feature: str) -> None:
    snapshot = create_table(log, **{"schema_json": SCHEMA, "partition_by": ["month"], **made})
    assert feature in snapshot.protocol["writerFeatures"]
    assert snapshot.protocol.get("readerFeatures") == ([feature] if feature in FOR_READERS else None)
    snapshot.check_supported(log.table)
    assert DeltaTable(log.table).version() == 0


@pytest.mark.parametrize(
    ("described", "by", "reason"),
    [
        (SCHEMA, ["year"], "by 'year': there is no such column among id, month"),
        (SCHEMA, ["id", "month"], "by all of its columns"),
        (schema(), [], r"cannot be made from rows without a column.*NewTable\(schema=…\)"),
        (schema(), ["month"], "cannot be made from rows without a column"),
        (SCHEMA, ["month", "month"], "by one column twice"),
        (schema(("id", "long"), ("raw", "binary")), ["raw"], "by 'raw', which is binary"),
        (schema(("id", "long"), ("s", {"type": "struct", "fields": []})), ["s"], "by 's', which is"),
        (schema(("id", "long"), ("a", {"type": "array", "elementType": "long"})), ["a"], "by 'a', which is"),
    ],
)
def test_a_partitioning_that_cannot_be_is_refused(log: DeltaLog, described: str, by: Any, reason: str) -> None:
    with pytest.raises(InvalidWriteError, match=reason):
        create_table(log, described, by)
    assert log.snapshot_or_none() is None
    assert list(Path(log.table).iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        pytest.param("interval day to second", "column a: it is INTERVAL DAY TO SECOND, which is not", id="interval"),
        pytest.param("time(6)", r"is TIME\(6\), which is not written here", id="time"),
        pytest.param("variant", "is VARIANT, which is not written here", id="variant"),
        pytest.param(array("variant"), "is VARIANT", id="inside"),
        pytest.param({"type": "udt", "class": "org.apache.spark.ml.linalg.VectorUDT"}, "is UDT, which", id="udt"),
        pytest.param("void", "has no type, as all its values are NULL", id="void"),
        pytest.param({"type": "struct", "fields": []}, "holds a struct without a field", id="empty struct"),
        pytest.param(struct(field("x", "long"), field("X", "long")), "holds a struct with one name twice", id="twice"),
    ],
)
def test_a_type_that_cannot_be_written_is_refused(log: DeltaLog, kind: Any, reason: str) -> None:
    with pytest.raises(InvalidWriteError, match=f"{reason}.*Nothing was created"):
        create_table(log, schema(("id", "long"), ("a", kind)))
    assert log.snapshot_or_none() is None


@pytest.mark.parametrize("kind", ["string", "integer", "date", "timestamp", "decimal(10,2)", "boolean"])
def test_a_table_may_be_partitioned_by_every_plain_type(log: DeltaLog, kind: str) -> None:
    assert create_table(log, schema(("id", "long"), ("p", kind)), ["p"]).partitioning.types == {"p": kind}


@pytest.mark.parametrize(
    ("described", "properties", "feature"),
    [
        (SCHEMA, {"delta.enableRowTracking": "true"}, "enableRowTracking=true: .*make the table with Spark"),
        (SCHEMA, {"delta.columnMapping.mode": "id"}, "make the table with Spark"),
        (schema(("id", "long"), id={"delta.identity.start": 1}), {}, "identityColumns"),
        *(
            (SCHEMA, {name: value}, f"cannot be created with {name}={value}: .*Nothing was created")
            for name, value in (
                *(
                    (f"delta.enable{name}", "true")
                    for name in ("IcebergCompatV1", "IcebergCompatV3", "VariantShredding")
                ),
                *(("delta.feature.timestampNtz", "supported"), ("delta.minWriterVersion", "7")),
                ("delta.minReaderVersion", "7"),
            )
        ),
    ],
)
def test_a_property_that_switches_on_what_we_do_not_write_is_refused(
    log: DeltaLog, described: str, properties: dict[str, str], feature: str
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=feature):
        create_table(log, described, properties=properties)
    assert log.snapshot_or_none() is None


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"delta.checkpointInterval": "ten"}, "the value is a whole number above 0"),
        ({"delta.apendOnly": "true"}, "does not know it"),
        ({"delta.appendOnly": True}, "=True: properties are texts"),
        ({"delta.columnMapping.mode": None}, "=None: properties are texts"),
        ({"delta.columnMapping.mode": "nmae"}, "the value is name or none"),
        ({"delta.columnMapping.maxColumnId": "7"}, "the table keeps it for itself"),
        ({"delta.setTransactionRetentionDuration": "interval 30 days"}, "not given to a new table: .* would expire"),
        ({"delta.constraints.positive": " "}, "the value is a condition in Spark SQL"),
        ({"delta.dataSkippingStatsColumns": ""}, "the value is names of columns"),
        ({"delta.appendOnly": "true", "delta.appendonly": "false"}, "delta.appendOnly is there twice"),
        ({"comment": "trips"}, "table_comment of a OneLakeAlterOperator"),
        ({" ": "1"}, "no name of a property"),
        ({"delta.constraints.positive": "idd > 0"}, r"no column idd, which the property delta\..* among id, month"),
        ({"delta.dataSkippingStatsColumns": "idd, month"}, r"no column idd, which the property delta\..* among id"),
    ],
)
def test_a_property_that_works_nowhere_is_refused(log: DeltaLog, properties: dict[str, Any], reason: str) -> None:
    """The kinds of values are those of tests/unit/log/test_properties.py."""
    with pytest.raises((InvalidWriteError, TablePropertyError), match=reason):
        create_table(log, SCHEMA, properties=properties)
    assert log.snapshot_or_none() is None


def test_a_column_whose_name_the_change_feed_keeps_for_itself_is_refused(log: DeltaLog) -> None:
    columns_of_feed = schema(("id", "long"), ("_Change_Type", "string"))
    with pytest.raises(InvalidWriteError, match=r"'_Change_Type', whose name the change data feed keeps.*Nothing was"):
        create_table(log, columns_of_feed, properties={"delta.enableChangeDataFeed": "true"})
    assert log.snapshot_or_none() is None
    assert create_table(log, columns_of_feed).version == 0


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.checkpointInterval": "20", "delta.logRetentionDuration": "interval 9 days", "owner of it": "me"},
        {"delta.columnMapping.mode": "none"},
        {"delta.dataSkippingStatsColumns": "id, `month`"},
        {"delta.dataSkippingNumIndexedCols": "-1", "delta.parquet.vorder.enabled": "true"},
        {"delta.constraints.positive": "ID > 0 AND month < current_date"},
    ],
)
def test_a_property_that_a_new_table_may_have_is_written_down(log: DeltaLog, properties: dict[str, str]) -> None:
    assert create_table(log, SCHEMA, properties=properties).configuration == properties


def test_properties_that_ask_nothing_of_the_protocol(log: DeltaLog) -> None:
    properties = dict.fromkeys(["delta.enableExpiredLogCleanup", "delta.enableFullRetentionRollback"], "true")
    properties |= dict.fromkeys(["delta.enableIcebergCompatV3", "delta.enableDeletionVectors"], "false")
    snapshot = create_table(log, SCHEMA, properties=properties)
    assert (snapshot.configuration, snapshot.protocol["minWriterVersion"]) == (properties, 2)


def test_deltas_properties_are_known_in_any_case_and_written_down_in_its_own(log: DeltaLog) -> None:
    snapshot = create_table(log, SCHEMA, properties={"delta.enablechangedatafeed": " true "})
    assert snapshot.configuration == {"delta.enableChangeDataFeed": "true"}
    assert "changeDataFeed" in snapshot.protocol["writerFeatures"]


@pytest.mark.parametrize(
    ("generated", "reason"),
    [
        ({"month": "idd + 1"}, r"no column idd, which the expression 'idd \+ 1' that generates column 'month' names"),
        ({"month": "year(at.x)"}, r"no column at\.x"),
        ({"nope": "id + 1"}, "cannot generate 'nope': there is no such column among id, month"),
    ],
)
def test_a_generated_column_that_no_row_could_have_is_refused(generated: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidWriteError, match=f"{reason}.*Nothing was created"):
        with_generated(SCHEMA, generated)


@pytest.mark.parametrize(
    "expression",
    [
        "transform(array(ID), x -> x + id)[0]",
        "timestampadd(DAY, 1, timestamp '2019-01-01') || extract(DOY FROM current_date) || user",
        "CAST(id AS DECIMAL(10, 2)) + 1.5BD",
        "id :: what is this",
    ],
)
def test_a_word_of_an_expression_that_may_be_no_column_is_left_to_spark(expression: str) -> None:
    assert json.dumps({"delta.generationExpression": expression}) in with_generated(SCHEMA, {"MONTH": expression})


def test_a_mapped_table_gives_every_column_and_every_field_inside_an_id_and_a_name(log: DeltaLog) -> None:
    nested = array(struct(field("x", "long")))
    properties = {"delta.columnMapping.mode": "name"}
    snapshot = create_table(log, schema(("id", "long"), ("all", nested), ("month", "string")), ["month"], properties)
    found = list(fields_within(json.loads(snapshot.metadata["schemaString"])))
    numbers = [(each["name"], each["metadata"]["delta.columnMapping.id"]) for each in found]
    assert numbers == [("id", 1), ("all", 2), ("x", 3), ("month", 4)]
    assert len({each["metadata"]["delta.columnMapping.physicalName"] for each in found}) == 4
    assert snapshot.configuration["delta.columnMapping.maxColumnId"] == "4"
    assert [each.name for each in DeltaTable(log.table).schema().fields] == ["id", "all", "month"]


def test_a_table_with_in_commit_timestamps_has_one_from_the_first_version_on(log: DeltaLog) -> None:
    snapshot = create_table(log, SCHEMA, properties={"delta.enableInCommitTimestamps": "true"})
    assert snapshot.in_commit_timestamp is not None
    assert list(log.commits_since(-1)[0].actions[0]) == ["commitInfo"]
