"""What every action must have: whoever reads further may rely on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from tests.support.stores import through
from tests.support.tables import SCHEMA, foreign_append, make_table

ADD = {"path": "a", "partitionValues": {"month": "2019-01"}, "size": 1, "modificationTime": 1, "dataChange": True}
METADATA = {"id": "x", "schemaString": SCHEMA, "partitionColumns": ["month"], "configuration": {}}
NESTED = {
    "type": "struct",
    "fields": [
        {"name": "s", "nullable": True, "metadata": {}, "type": {"type": "struct", "fields": []}},
        {"name": "l", "nullable": True, "type": {"type": "array", "elementType": "long", "containsNull": True}},
        {"name": "m", "nullable": True, "type": {"type": "map", "keyType": "string", "valueType": "long"}},
    ],
}


def parse(kind: str, body: Any) -> Commit:
    """Read an entry, and what the table is by it."""
    commit = Commit.parse(5, dump_actions([{kind: body}]), "trips")
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    Snapshot(4, protocol, METADATA, {}, table="trips").after([commit])  # type: ignore[arg-type]
    return commit


def without(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != name}


def schema(**changed: Any) -> str:
    column = {"name": "id", "type": "long", "nullable": True, "metadata": {}, **changed}
    return json.dumps({"type": "struct", "fields": [{k: v for k, v in column.items() if v is not None}]})


@pytest.mark.parametrize(
    ("kind", "body", "named"),
    [
        ("add", without(ADD, "path"), "path"),
        ("add", {**ADD, "path": 17}, "path"),
        ("add", without(ADD, "partitionValues"), "partitionValues"),
        ("add", {**ADD, "partitionValues": []}, "partitionValues"),
        ("add", {**ADD, "partitionValues": {"month": {}}}, "month"),
        ("add", without(ADD, "size"), "size"),
        ("add", {**ADD, "size": "large"}, "size"),
        ("add", {**ADD, "deletionVector": "x"}, "the deletionVector"),
        ("add", {**ADD, "deletionVector": {"storageType": "u"}}, "the deletionVector"),
        ("add", "x", "no JSON object"),
        ("remove", {"dataChange": True}, "path"),
        ("remove", {"path": "a", "partitionValues": "x"}, "partitionValues"),
        ("txn", {"appId": "x"}, "version"),
        ("txn", {"appId": "x", "version": "new"}, "version"),
        ("txn", {"version": 1}, "appId"),
        ("protocol", {}, "minReaderVersion"),
        ("protocol", {"minReaderVersion": 1, "minWriterVersion": "two"}, "minWriterVersion"),
        ("protocol", {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": "appendOnly"}, "writerFeatures"),
        ("domainMetadata", {"configuration": "{}"}, "domain"),
        ("domainMetadata", {"domain": "delta.clustering", "configuration": "x"}, "delta.clustering"),
        ("domainMetadata", {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":"x"}'}, "HighWater"),
        ("metaData", without(METADATA, "id"), "id"),
        ("metaData", without(METADATA, "schemaString"), "the schemaString None"),
        ("metaData", {**METADATA, "schemaString": "{"}, "no schema"),
        ("metaData", {**METADATA, "schemaString": "[]"}, "no schema"),
        ("metaData", {**METADATA, "schemaString": schema(nullable=None)}, "nullable"),
        ("metaData", {**METADATA, "schemaString": schema(name=7)}, "no column"),
        ("metaData", {**METADATA, "schemaString": schema(metadata="x")}, "no schema"),
        ("metaData", {**METADATA, "schemaString": schema(type={"type": "array"})}, "elementType"),
        ("metaData", {**METADATA, "schemaString": schema(type={"type": "tree"})}, "tree"),
        ("metaData", {**METADATA, "partitionColumns": ["nope"]}, "partition column 'nope'"),
        ("metaData", {**METADATA, "partitionColumns": "month"}, "partitionColumns"),
        ("metaData", {**METADATA, "configuration": []}, "configuration"),
    ],
)
def test_an_action_without_what_every_reader_needs_is_a_corrupt_log_that_names_version_table_and_field(
    kind: str, body: Any, named: str
) -> None:
    with pytest.raises(CorruptLogError, match=f"Version 5 of trips .*{kind} action .*{named}"):
        parse(kind, body)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("add", {**ADD, "stats": None, "tags": [], "unknown": {"a": 1}}),
        ("add", None),
        ("remove", {"path": "a"}),
        ("remove", {"path": "a", "partitionValues": None}),
        ("txn", {"appId": "x", "version": "7"}),
        ("protocol", {"minReaderVersion": 1, "minWriterVersion": 2, "readerFeatures": None}),
        ("domainMetadata", {"domain": "mine", "configuration": "x"}),
        ("domainMetadata", {"domain": "delta.clustering", "removed": True}),
        ("metaData", {**without(METADATA, "partitionColumns"), "configuration": None}),
        ("metaData", {**METADATA, "partitionColumns": [], "schemaString": json.dumps(NESTED)}),
        ("commitInfo", "x"),
        ("unknown", {"path": 7}),
    ],
)
def test_what_nobody_needs_may_be_anything(kind: str, body: Any) -> None:
    assert parse(kind, body).actions == [{kind: body}]


def test_a_number_in_a_map_of_texts_is_the_text_that_other_engines_read() -> None:
    commit = parse("add", {**ADD, "partitionValues": {"year": 2019, "leap": False, "month": None}})
    assert commit.adds[0]["partitionValues"] == {"year": "2019", "leap": "false", "month": None}
    assert commit.added_partitions == {(("year", "2019"), ("leap", "false"), ("month", None))}


@pytest.mark.parametrize("metadata", [without(METADATA, "schemaString"), {**METADATA, "partitionColumns": ["nope"]}])
def test_a_table_whose_metadata_is_none_is_refused_by_its_name_at_every_door(
    tmp_path: Path, metadata: dict[str, Any]
) -> None:
    log = make_table(tmp_path)
    log.store.create(version_path(1), dump_actions([{"metaData": metadata}]))
    foreign: list[DeltaLog] = [through(log.store, log) for _ in range(2)]
    for door in (foreign[0].snapshot, lambda: foreign[1].snapshot_at(1)):
        with pytest.raises(CorruptLogError, match=f"Version 1 of .*{tmp_path}.* metaData"):
            door()


@pytest.mark.parametrize("metadata", [without(METADATA, "schemaString"), {**METADATA, "partitionColumns": ["nope"]}])
def test_a_metadata_that_a_later_one_has_replaced_may_lack_a_schema_as_delta_live_tables_writes_it(
    tmp_path: Path, metadata: dict[str, Any]
) -> None:
    log = make_table(tmp_path)
    log.store.create(version_path(1), dump_actions([{"metaData": metadata}]))
    log.store.create(version_path(2), dump_actions([{"metaData": METADATA}]))
    log.store.create(version_path(3), dump_actions([{"add": ADD}]))
    assert through(log.store, log).snapshot().table_id == "x"
    assert [file["path"] for file in log.live_files(lambda _: True, 3)] == ["a"]


def test_a_metadata_without_a_schema_in_the_entry_that_has_a_whole_one_is_not_asked(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    log.store.create(
        version_path(1), dump_actions([{"metaData": without(METADATA, "schemaString")}, {"metaData": METADATA}])
    )
    assert through(log.store, log).snapshot().table_id == "x"


def test_an_entry_nested_too_deep_is_corrupt(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1]})
    log.store.create(version_path(2), b'{"add":' + b"[" * 100_000)
    with pytest.raises(CorruptLogError, match="Version 2"):
        through(log.store, log).snapshot()
