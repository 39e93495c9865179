"""A table's columns, read from the JSON that Delta keeps of them."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_onelake.log.schema import columns, constraints, partition_columns
from tests.support.schemas import field


def metadata(*fields: dict[str, Any], by: tuple[str, ...] = ("month",), **configuration: str) -> dict[str, Any]:
    schema = json.dumps({"type": "struct", "fields": list(fields)})
    return {"id": "t", "schemaString": schema, "partitionColumns": list(by), "configuration": configuration}


def test_columns_say_what_generates_and_defaults_them() -> None:
    found = columns(metadata(field("m", **{"delta.generationExpression": "x"}), field("d", CURRENT_DEFAULT="7")))
    assert (found["m"].generation, found["m"].default) == ("x", None)
    assert (found["d"].generation, found["d"].default) == (None, "7")
    assert constraints(metadata(**{"delta.constraints.c": "id > 0", "delta.appendOnly": "true"})) == {"c": "id > 0"}
    assert partition_columns({"schemaString": ""}) == ()


def test_columns_say_what_files_call_them() -> None:
    names = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}
    (column,) = columns(metadata(field("id", **names), **{"delta.columnMapping.mode": "name"})).values()
    assert (column.name, column.physical_name, column.field_id) == ("id", "col-1", 1)
    (column,) = columns(metadata(field("id"))).values()
    assert (column.physical_name, column.field_id) == ("id", None)
