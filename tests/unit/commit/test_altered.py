"""What a table's definition becomes by an ALTER, and what is refused; beside Spark in integration/spark/test_alter.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.commit.alteration import Alteration
from airflow_provider_onelake.commit.altered import Target, apply, holds
from airflow_provider_onelake.exceptions import InvalidWriteError, StatementRefusedError, UnsupportedFeatureError
from airflow_provider_onelake.log.snapshot import Snapshot
from tests.support.schemas import struct

MAPPED = {"delta.columnMapping.mode": "name"}
WIDENING = {"delta.enableTypeWidening": "true"}
LEGACY = {"minReaderVersion": 1, "minWriterVersion": 2}


def field(name: str, kind: Any = "integer", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


FIELDS = (field("id"), field("v", "string"), field("s", struct(field("a"), field("b"))), field("month", "string"))


def snapshot(*fields: Any, protocol: Any = None, domains: Any = None, **configuration: str) -> Snapshot:
    metadata: Any = {
        "id": "t",
        "schemaString": json.dumps(struct(*(fields or FIELDS))),
        "partitionColumns": ["month"] if not fields else [],
        "configuration": configuration,
    }
    every = ["appendOnly", "invariants", "columnMapping", "typeWidening", "checkConstraints"]
    every += ["deletionVectors", "changeDataFeed", "icebergCompatV2", "clustering", "domainMetadata"]
    named: Any = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": every}
    return Snapshot(1, protocol or named, metadata, {}, domains or {})


def altered(before: Snapshot, **asked: Any) -> Target:
    return apply(Alteration(**asked), before, "the table")


def refused(before: Snapshot, why: str, **asked: Any) -> None:
    with pytest.raises(StatementRefusedError, match=why):
        altered(before, **asked)


def names(target: Target) -> list[str]:
    return [field["name"] for field in json.loads(target.metadata["schemaString"])["fields"]]


def after(before: Snapshot, target: Target) -> Snapshot:
    return Snapshot(2, target.protocol, target.metadata, {}, before.domains)


# -- columns -----------------------------------------------------------------------------------------------------------


def test_a_rename_changes_names_alone_and_two_names_can_be_swapped() -> None:
    before = snapshot(**MAPPED)
    target = altered(before, rename_columns={"id": "v", "V": "id", "s.a": "`", "month": "Month"})
    assert names(target) == ["v", "id", "s", "Month"]
    assert target.metadata["partitionColumns"] == ["Month"]
    assert [step.operation for step in target.steps] == ["RENAME COLUMN"] * 4
    assert target.steps[2].parameters == {"oldColumnPath": "s.a", "newColumnPath": "s.````"}
    assert target.protocol == before.protocol


def test_a_name_that_another_column_has_is_refused_in_any_case() -> None:
    refused(snapshot(**MAPPED), "another one is called so", rename_columns={"id": "V"})
    refused(snapshot(**MAPPED), "another one is called so", rename_columns={"s.a": "B"})


def test_columns_are_renamed_and_dropped_only_with_column_mapping_which_the_same_task_can_switch_on() -> None:
    plain = snapshot(protocol=LEGACY)
    for asked in ({"rename_columns": {"id": "k"}}, {"drop_columns": ("id",)}):
        refused(plain, r"switch column mapping on, by set_properties=.*'name'", **asked)
    target = altered(plain, set_properties=MAPPED, rename_columns={"id": "k"})
    first, *_ = fields = json.loads(target.metadata["schemaString"])["fields"]
    assert first["metadata"] == {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "id"}
    assert [f["metadata"]["delta.columnMapping.id"] for f in fields] == [1, 2, 3, 6]
    assert target.metadata["configuration"] == {**MAPPED, "delta.columnMapping.maxColumnId": "6"}
    features = ["appendOnly", "columnMapping", "invariants"]
    assert target.protocol == {"minReaderVersion": 2, "minWriterVersion": 7, "writerFeatures": features}
    assert target.raised == ("columnMapping",)


def test_numbers_that_a_column_mapping_of_before_has_left_are_refused() -> None:
    left = snapshot(field("id", **{"delta.columnMapping.id": 4}), field("v"))
    refused(left, "numbers of then", set_properties=MAPPED)
    refused(snapshot(**{"delta.columnMapping.mode": "id"}), "by id", set_properties=MAPPED)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (("month",), "partition column"),
        (("s.a", "s.b"), "last field of its struct"),
        (("id", "v", "s"), "nothing but partition columns"),
        (("nope",), "no column nope"),
        (("s.nope",), "no column s.nope"),
    ],
)
def test_columns_that_cannot_be_dropped(columns: tuple[str, ...], why: str) -> None:
    refused(snapshot(**MAPPED), why, drop_columns=columns)


def test_a_clustering_column_is_not_dropped_under_any_name() -> None:
    domain = {"delta.clustering": {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["c1"]]}'}}
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"}
    before = snapshot(field("id", **mapped), field("v"), domains=domain, **MAPPED)
    refused(before, "clustered by id", drop_columns=("id",))
    assert names(altered(before, rename_columns={"id": "k"})) == ["k", "v"]


def test_a_column_that_an_expression_names_stays_as_it_is() -> None:
    checked = snapshot(**MAPPED, **WIDENING, **{"delta.constraints.pos": "S . a > 0"})
    for asked in (
        {"rename_columns": {"s.a": "x"}},
        {"rename_columns": {"s": "x"}},
        {"drop_columns": ("s",)},
        {"column_types": {"s.a": "BIGINT"}},
    ):
        refused(checked, "CHECK pos .* names it; name it in drop_checks", **asked)
    assert names(altered(checked, rename_columns={"s.b": "x", "id": "k"}))[0] == "k"
    both = {"drop_checks": ("POS",), "rename_columns": {"s": "x"}, "add_checks": {"pos": "x.a > 0"}}
    target = altered(checked, **both)
    assert target.metadata["configuration"]["delta.constraints.pos"] == "x.a > 0"
    assert target.checks == {"pos": "x.a > 0"}


def test_a_column_that_an_invariant_names_keeps_its_name() -> None:
    rule = json.dumps({"expression": {"expression": "g > 3"}})
    before = snapshot(field("g", **{"delta.invariants": rule}), field("v"), **MAPPED)
    refused(before, r"cannot be renamed: the invariant of column g \(g > 3\)", rename_columns={"g": "x"})
    assert names(altered(before, drop_columns=("g",))) == ["v"]


def test_a_generated_column_can_be_dropped_with_what_it_is_made_of() -> None:
    made = snapshot(field("g"), field("h", **{"delta.generationExpression": "g + 1"}), field("v"), **MAPPED, **WIDENING)
    for asked in ({"rename_columns": {"g": "x"}}, {"drop_columns": ("g",)}, {"column_types": {"g": "BIGINT"}}):
        refused(made, "generated column h .* drop that column first", **asked)
    refused(made, "h is generated", column_types={"h": "BIGINT"})
    assert names(altered(made, drop_columns=("g", "h"))) == ["v"]


@pytest.mark.parametrize(
    ("before", "types", "why"),
    [
        (snapshot(), {"id": "BIGINT"}, "delta.enableTypeWidening='true', in the same task"),
        (snapshot(**WIDENING), {"id": "SMALLINT"}, "no wider type"),
        (snapshot(**WIDENING), {"id": "DECIMAL(9,0)"}, "no wider type"),
        (snapshot(**WIDENING), {"v": "BIGINT"}, "no wider type"),
        (snapshot(**WIDENING), {"s": "BIGINT"}, "no wider type"),
        (snapshot(**WIDENING), {"month": "BIGINT"}, "no wider type"),
        (snapshot(**WIDENING, **{"delta.enableIcebergCompatV2": "true"}), {"id": "BIGINT"}, "Iceberg"),
    ],
)
def test_types_that_are_not_widened(before: Snapshot, types: dict[str, str], why: str) -> None:
    refused(before, why, column_types=types)


def test_a_partition_column_keeps_its_type() -> None:
    before = snapshot(field("p"), field("v"), **WIDENING)
    before.metadata["partitionColumns"] = ["p"]
    refused(before, "partition column", column_types={"p": "BIGINT"})


# -- properties, constraints, protocol ---------------------------------------------------------------------------------


def test_a_table_that_is_not_supported_is_refused() -> None:
    named = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inventedTomorrow"]}
    with pytest.raises(UnsupportedFeatureError, match="inventedTomorrow"):
        altered(snapshot(protocol=named), table_comment="x")


def test_what_does_not_go_together_is_refused() -> None:
    manifests = {"delta.compatibility.symlinkFormatManifest.enabled": "true"}
    refused(snapshot(**MAPPED), "column mapping, which they do not know", set_properties=manifests)
    refused(snapshot(**manifests), "whose rows they would show", set_properties={"delta.enableDeletionVectors": "true"})
    iceberg = snapshot(**{"delta.enableIcebergCompatV2": "true"})
    refused(iceberg, "deletion vectors do not go", set_properties={"delta.enableDeletionVectors": "true"})
    feed = {"delta.enableChangeDataFeed": "true"}
    refused(snapshot(field("_change_type"), field("v")), "keeps the name", set_properties=feed)
    refused(snapshot(**MAPPED, **feed), "keeps the name", rename_columns={"id": "_Commit_Version"})


# -- what is so already ------------------------------------------------------------------------------------------------

EVERYTHING: Any = {
    "rename_columns": {"s": "t", "s.a": "x"},
    "drop_columns": ("s.b",),
    "column_types": {"id": "BIGINT", "s.a": "BIGINT"},
    "column_comments": {"s.a": "inner"},
    "table_comment": "trips",
    "set_properties": {"mine": "1"},
    "unset_properties": ("old",),
    "add_checks": {"pos": "t.x > 0"},
    "drop_checks": ("was",),
}


def test_a_table_is_as_asked_for_once_it_was_altered() -> None:
    before = snapshot(old="1", **MAPPED, **WIDENING, **{"delta.constraints.was": "id > 0"})
    asked = Alteration(**EVERYTHING)
    assert not holds(asked, before)
    target = apply(asked, before, "the table")
    there = after(before, target)
    assert holds(asked, there)
    for undo in (
        {"rename_columns": {"month": "s"}},
        {"column_comments": {"t.x": "other"}},
        {"table_comment": ""},
        {"set_properties": {"mine": "2"}},
        {"set_properties": {"old": "2"}},
        {"drop_checks": ("pos",)},
        {"add_checks": {"was": "id > 0"}},
    ):
        assert not holds(asked, after(there, altered(there, **undo))), undo


# -- what is refused without a table -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "Nothing is to be altered"),
        ({"rename_columns": {"a..b": "c"}}, "is no column"),
        ({"rename_columns": {"a": " "}}, "a name"),
        ({"drop_columns": (3,)}, "is no column"),
        ({"drop_columns": ("s",), "column_comments": {"S.a": "x"}}, "is to be dropped too"),
        ({"column_types": {"id": "wide"}}, "a type such as BIGINT"),
        ({"column_types": {"id": 7}}, "a type such as BIGINT"),
        ({"column_types": {"id": "DECIMAL(39,0)"}}, "a type such as BIGINT"),
        ({"column_comments": {"id": None}}, "a text"),
        ({"table_comment": 7}, "a text"),
        ({"add_checks": {"": "id > 0"}}, "no name of a constraint"),
        ({"add_checks": {"a": " "}}, "an expression in Spark SQL"),
        ({"add_checks": {"a": "id IN (SELECT 1)"}}, "has a subquery"),
        ({"add_checks": {"a": "rand() > 0"}}, "changes from run to run"),
        ({"add_checks": {"a": "id > 0", "A": "id > 1"}}, "is there twice"),
        ({"drop_checks": (None,)}, "no name of a constraint"),
        ({"rename_columns": {"s.a": "b", "S.A": "c"}}, "one is there twice"),
        ({"set_properties": {"delta.appendOnly": "true", "delta.appendonly": "false"}}, "one is there twice"),
        ({"set_properties": {"a": "1"}, "unset_properties": ("a",)}, "to be set and to be unset"),
    ],
)
def test_what_is_right_for_no_table(asked: Any, why: str) -> None:
    with pytest.raises(InvalidWriteError, match=why):
        Alteration(**asked)


def test_another_alter_has_another_digest() -> None:
    one, two = Alteration(table_comment="a"), Alteration(table_comment="b")
    assert one.digest == Alteration(table_comment="a").digest != two.digest
    assert Path(one.digest).name == one.digest
