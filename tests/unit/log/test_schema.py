"""Rule 17: whether staged files fit a table as it is now."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_onelake.log.schema import columns, constraints, misfits, partition_columns


def field(name: str, kind: Any = "long", nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def metadata(*fields: dict[str, Any], by: tuple[str, ...] = ("month",), **configuration: str) -> dict[str, Any]:
    schema = json.dumps({"type": "struct", "fields": list(fields)})
    return {"id": "t", "schemaString": schema, "partitionColumns": list(by), "configuration": configuration}


ID, MONTH = field("id"), field("month", "string")
STAGED = metadata(ID, MONTH)
ADDRESS = {"type": "struct", "fields": [field("street", "string")]}


@pytest.mark.parametrize(
    "current",
    [
        pytest.param(STAGED, id="nothing changed"),
        pytest.param(metadata(ID, MONTH, field("fare", "double")), id="nullable column added"),
        pytest.param(metadata(MONTH, ID), id="columns in another order"),
        pytest.param(metadata(ID, MONTH, **{"delta.checkpointInterval": "5"}), id="property set"),
        pytest.param(metadata(field("id", comment="the trip's"), MONTH), id="column commented"),
    ],
)
def test_rule_17_fits(current: dict[str, Any]) -> None:
    assert list(misfits(STAGED, current)) == []


@pytest.mark.parametrize(
    ("current", "reason"),
    [
        pytest.param(metadata(ID, MONTH, by=()), "partitioned by nothing, not by month", id="no longer partitioned"),
        pytest.param(metadata(ID, MONTH, by=("id",)), "partitioned by id, not by month", id="partitioning changed"),
        pytest.param(metadata(ID, MONTH, by=("month", "id")), "partitioned by month, id", id="partitioned further"),
        pytest.param(metadata(field("id", "string"), MONTH), "column id is string, not long", id="type changed"),
        pytest.param(metadata(field("id", "integer"), MONTH), "column id is integer, not long", id="type narrowed"),
        pytest.param(metadata(MONTH), "column id is gone", id="column dropped"),
        pytest.param(metadata(field("ID"), MONTH), "column id is gone", id="column renamed"),
        pytest.param(metadata(field("id", nullable=False), MONTH), "column id is NOT NULL now", id="NOT NULL added"),
        pytest.param(
            metadata(ID, MONTH, field("fare", nullable=False)), "the new column fare is NOT NULL", id="NOT NULL column"
        ),
        pytest.param(
            metadata(ID, MONTH, field("fare", CURRENT_DEFAULT="0")), "fare is NOT NULL, generated", id="default column"
        ),
        pytest.param(
            metadata(ID, MONTH, field("y", **{"delta.generationExpression": "id + 1"})), "the new column y", id="gen."
        ),
        pytest.param(
            metadata(field("id", **{"delta.generationExpression": "1"}), MONTH), "column id has", id="now generated"
        ),
        pytest.param(
            metadata(ID, MONTH, **{"delta.constraints.positive": "id > 0"}), r"CHECK positive \(id > 0\)", id="CHECK"
        ),
    ],
)
def test_rule_17_does_not_fit(current: dict[str, Any], reason: str) -> None:
    found = "; ".join(misfits(STAGED, current))
    assert found
    import re

    assert re.search(reason, found)


def test_rule_17_a_check_that_was_there_fits_dropped_fits_and_changed_does_not() -> None:
    staged = metadata(ID, MONTH, **{"delta.constraints.positive": "id > 0"})
    assert list(misfits(staged, staged)) == []
    assert list(misfits(staged, STAGED)) == []
    assert list(misfits(staged, metadata(ID, MONTH, **{"delta.constraints.positive": "id > 9"})))


def test_rule_17_not_null_that_was_there_fits_and_dropped_fits() -> None:
    staged = metadata(field("id", nullable=False), MONTH)
    assert list(misfits(staged, staged)) == []
    assert list(misfits(staged, STAGED)) == []


def test_rule_17_a_nested_field_that_changed_does_not_fit() -> None:
    staged = metadata(field("home", ADDRESS), MONTH)
    wider = {"type": "struct", "fields": [field("street", "string"), field("zip", nullable=False)]}
    assert list(misfits(staged, metadata(field("home", wider), MONTH)))


def test_columns_say_what_generates_and_defaults_them() -> None:
    found = columns(metadata(field("m", **{"delta.generationExpression": "x"}), field("d", CURRENT_DEFAULT="7")))
    assert (found["m"].generation, found["m"].default) == ("x", None)
    assert (found["d"].generation, found["d"].default) == (None, "7")
    assert constraints(metadata(**{"delta.constraints.c": "id > 0", "delta.appendOnly": "true"})) == {"c": "id > 0"}
    assert partition_columns({"schemaString": ""}) == ()
