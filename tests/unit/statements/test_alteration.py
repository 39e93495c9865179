"""What an ALTER asks of Spark: what a table has already is left out, and what is right for no table is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError, StatementRefusedError
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.statements.alteration import Alteration
from tests.support.schemas import struct


def field(name: str, kind: Any = "integer", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def snapshot(*fields: Any, comment: str = "", **configuration: str) -> Snapshot:
    schema = json.dumps(struct(*fields, field("month", "string")))
    metadata: Any = {"id": "t", "schemaString": schema, "partitionColumns": ["month"], "configuration": configuration}
    metadata |= {"description": comment} if comment else {}
    protocol: Any = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}
    return Snapshot(1, protocol, metadata, {})


BEFORE = snapshot(
    field("id"),
    field("s", struct(field("a"), field("b"))),
    old="1",
    **{"delta.constraints.was": "id > 0", "delta.constraints.pos": "s.a > 1"},
)
AFTER = snapshot(
    field("id", "long"),
    field("t", struct(field("x y", "long", comment="it's \\ inner"))),
    comment="trips",
    mine="1",
    **{"delta.appendOnly": "true", "delta.constraints.pos": "t.`x y`>0"},
)
EVERYTHING = Alteration(
    rename_columns={"s": "t", "s.a": "x y"},
    drop_columns=("s.b",),
    column_types={"id": "BIGINT", "S.a": "bigint"},
    column_comments={"s.a": "it's \\ inner"},
    table_comment="trips",
    set_properties={"mine": "1", "Delta.AppendOnly": " true ", "delta.feature.appendonly": "supported"},
    unset_properties=("old",),
    add_checks={"Pos": " t.`x y`>0 "},
    drop_checks=("was", "POS"),
)


def test_each_part_is_a_statement_and_what_there_is_already_is_left_out() -> None:
    left = EVERYTHING.left(BEFORE)
    assert left.statements == (
        "DROP CONSTRAINT `was`",
        "DROP CONSTRAINT `pos`",
        "UNSET TBLPROPERTIES ('old')",
        "SET TBLPROPERTIES ('mine' = '1', 'delta.appendOnly' = 'true', 'comment' = 'trips')",
        "ALTER COLUMN `id` TYPE BIGINT",
        "ALTER COLUMN `s`.`a` TYPE BIGINT",
        r"ALTER COLUMN `s`.`a` COMMENT 'it\'s \\ inner'",
        "DROP COLUMNS (`s`.`b`)",
        "RENAME COLUMN `s`.`a` TO `x y`",
        "RENAME COLUMN `s` TO `t`",
        "ADD CONSTRAINT `pos` CHECK (\nt.`x y`>0\n)",
    )
    assert left.checks == {"pos": "t.`x y`>0"}
    assert EVERYTHING.left(AFTER).statements == ()


@pytest.mark.parametrize(
    ("asked", "statement"),
    [
        ({"table_comment": ""}, "UNSET TBLPROPERTIES ('comment')"),
        ({"column_comments": {"t.`x y`": ""}}, "ALTER COLUMN `t`.`x y` COMMENT ''"),
        ({"set_properties": {"delta.feature.timestampNTZ": "enabled"}}, "'delta.feature.timestampNtz' = 'supported'"),
        ({"rename_columns": {"id": "ID"}}, "RENAME COLUMN `id` TO `ID`"),
        ({"add_checks": {"pos": "id > 0"}}, "ADD CONSTRAINT `pos` CHECK (\nid > 0\n)"),
    ],
)
def test_what_is_another_one_is_asked_for(asked: Any, statement: str) -> None:
    (found,) = Alteration(**asked).left(AFTER).statements
    assert statement in found


def test_what_is_not_there_need_not_go() -> None:
    gone = Alteration(drop_columns=("nope", "s.b"), unset_properties=("nope",), drop_checks=("nope",))
    left = gone.left(AFTER)
    assert (left.statements, dict(left.by_hand)) == ((), {})


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"rename_columns": {"nope": "x"}}, "no column nope"),
        ({"column_types": {"s.nope": "BIGINT"}}, "no column s.nope"),
        ({"column_comments": {"s.b.c": "x"}}, "no column s.b.c"),
        ({"column_types": {"month": "BIGINT"}}, "is a partition column"),
    ],
)
def test_what_the_table_does_not_allow_is_refused_without_spark(asked: Any, why: str) -> None:
    with pytest.raises(StatementRefusedError, match=f"{why}.*Nothing was changed"):
        Alteration(**asked).left(BEFORE)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "Nothing is to be altered: give one of rename_columns"),
        ({"rename_columns": {"a..b": "c"}}, "is no name"),
        ({"drop_columns": (3,)}, "is no name"),
        ({"column_types": {"id": "wide"}}, "a type such as BIGINT"),
        ({"column_types": {"id": "DECIMAL(39,0)"}}, "a type such as BIGINT"),
        ({"column_types": {"id": 7}}, "texts only"),
        ({"column_comments": {"id": None}}, "texts only"),
        ({"table_comment": 7}, "texts only"),
        ({"add_checks": {"a": " "}}, "an expression in Spark SQL"),
        ({"add_checks": {"a": "id IN (SELECT 1)"}}, "has a subquery"),
        ({"add_checks": {"a": "rand() > 0"}}, "changes from run to run"),
        ({"add_checks": {"a": "id > 0", "A": "id > 1"}}, "one is there twice"),
        ({"drop_checks": (None,)}, "is no name"),
        ({"rename_columns": {"s.a": "b", "S.A": "c"}}, "one is there twice"),
        ({"set_properties": {"delta.appendOnly": "true", "delta.appendonly": "false"}}, "one is there twice"),
        ({"set_properties": {"a": "1"}, "unset_properties": ("a",)}, "to be set and to be unset"),
        # Neither a swap nor a chain can be told from its result when the task is cleared.
        ({"rename_columns": {"a": "B", "b": "a"}}, "in a task before this one"),
        ({"rename_columns": {"s.a": "b"}, "drop_columns": ("S.B",)}, "in a task before this one"),
    ],
)
def test_what_is_right_for_no_table(asked: Any, why: str) -> None:
    with pytest.raises(InvalidWriteError, match=why):
        Alteration(**asked)


def test_another_alter_has_another_digest() -> None:
    one, two = Alteration(table_comment="a"), Alteration(table_comment="b")
    assert one.digest == Alteration(table_comment="a").digest != two.digest
    assert Path(one.digest).name == one.digest
