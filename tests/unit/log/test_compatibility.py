"""Whether staged files fit a table as it is now (protocol: compatible definition)."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from airflow_provider_onelake.log.compatibility import incompatibilities
from airflow_provider_onelake.log.schema import columns
from tests.support.schemas import array, field, map_of, struct


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
        pytest.param(metadata(field("id", tag="pii"), MONTH), id="column tagged"),
        pytest.param(metadata(ID, MONTH, **{"delta.enableDeletionVectors": "true"}), id="feature switched on"),
    ],
)
def test_fits(current: dict[str, Any]) -> None:
    assert list(incompatibilities(STAGED, current)) == []


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
def test_does_not_fit(current: dict[str, Any], reason: str) -> None:
    found = "; ".join(incompatibilities(STAGED, current))
    assert re.search(reason, found)


def test_a_check_that_was_there_fits_dropped_fits_and_changed_does_not() -> None:
    staged = metadata(ID, MONTH, **{"delta.constraints.positive": "id > 0"})
    assert list(incompatibilities(staged, staged)) == []
    assert list(incompatibilities(staged, STAGED)) == []
    assert list(incompatibilities(staged, metadata(ID, MONTH, **{"delta.constraints.positive": "id > 9"})))


def test_not_null_that_was_there_fits_and_dropped_fits() -> None:
    staged = metadata(field("id", nullable=False), MONTH)
    assert list(incompatibilities(staged, staged)) == []
    assert list(incompatibilities(staged, STAGED)) == []


def test_a_nested_field_that_changed_does_not_fit() -> None:
    staged = metadata(field("home", ADDRESS), MONTH)
    wider = {"type": "struct", "fields": [field("street", "string"), field("zip", nullable=False)]}
    assert list(incompatibilities(staged, metadata(field("home", wider), MONTH)))


# -- column mapping ------------------------------------------------------------------------------------------------

BY_NAME = {"delta.columnMapping.mode": "name"}
BY_ID = {"delta.columnMapping.mode": "id"}


def mapped(name: str, number: int, kind: Any = "long", physical: str | None = None, **extra: Any) -> dict[str, Any]:
    names = {"delta.columnMapping.physicalName": physical or f"col-{number}", "delta.columnMapping.id": number}
    return field(name, kind, **names, **extra)


MAPPED = metadata(mapped("id", 1), mapped("month", 2, "string"), **BY_NAME)


@pytest.mark.parametrize(
    "current",
    [
        pytest.param(metadata(mapped("trip", 1), mapped("month", 2, "string"), **BY_NAME), id="column renamed"),
        pytest.param(
            metadata(mapped("id", 1), mapped("m", 2, "string"), by=("m",), **BY_NAME), id="partition column renamed"
        ),
        pytest.param(
            metadata(mapped("month", 1), mapped("id", 2, "string"), by=("id",), **BY_NAME), id="names swapped"
        ),
        pytest.param(
            metadata(mapped("id", 1), mapped("month", 2, "string"), mapped("fare", 3), **BY_NAME), id="column added"
        ),
    ],
)
def test_what_files_know_by_its_physical_name_still_fits(current: dict[str, Any]) -> None:
    assert list(incompatibilities(MAPPED, current)) == []


@pytest.mark.parametrize(
    ("current", "reason"),
    [
        pytest.param(metadata(mapped("month", 2, "string"), **BY_NAME), "column id is gone", id="dropped"),
        pytest.param(
            metadata(mapped("id", 3), mapped("month", 2, "string"), **BY_NAME),
            "column id is gone",
            id="and added again",
        ),
        pytest.param(
            metadata(mapped("id", 9, physical="col-1"), mapped("month", 2, "string"), **BY_NAME),
            "column id is another column of the same name",
            id="another id",
        ),
        pytest.param(
            metadata(mapped("month", 3, "string"), mapped("id", 1), mapped("old", 2, "string"), **BY_NAME),
            "partitioned by month, not by month",
            id="partition column exchanged",
        ),
        pytest.param(
            metadata(mapped("id", 1), mapped("month", 2, "string"), **BY_ID),
            "column mapping is id, not name",
            id="by id now",
        ),
        pytest.param(metadata(ID, MONTH), "column mapping is none, not name", id="switched off"),
    ],
)
def test_the_same_name_for_something_else_does_not_fit(current: dict[str, Any], reason: str) -> None:
    assert re.search(reason, "; ".join(incompatibilities(MAPPED, current)))


def test_a_table_that_got_column_mapping_by_name_still_knows_old_files_and_by_id_does_not() -> None:
    old_names = (mapped("id", 1, physical="id"), mapped("month", 2, "string", physical="month"))
    assert list(incompatibilities(STAGED, metadata(*old_names, **BY_NAME))) == []
    assert list(incompatibilities(STAGED, metadata(*old_names, **BY_ID))) == ["its column mapping is id, not none"]
    # Renamed at once: the files have the old name, which is the physical one.
    renamed = (mapped("trip", 1, physical="id"), mapped("month", 2, "string", physical="month"))
    assert list(incompatibilities(STAGED, metadata(*renamed, **BY_NAME))) == []


def test_what_an_earlier_mapping_left_behind_does_not_count_without_one() -> None:
    left = metadata(mapped("id", 1), mapped("month", 2, "string"))
    assert [column.physical_name for column in columns(left).values()] == ["id", "month"]
    assert list(incompatibilities(STAGED, left)) == []


# -- nested fields -------------------------------------------------------------------------------------------------


STREET, ZIP = mapped("street", 11, "string"), mapped("zip", 12)


@pytest.mark.parametrize("wrap", [lambda s: s, array, lambda s: map_of("string", s), lambda s: array(array(s))])
def test_nested_fields_are_matched_by_physical_name_too(wrap: Any) -> None:
    def home(*inner: dict[str, Any]) -> dict[str, Any]:
        return metadata(mapped("home", 10, wrap(struct(*inner))), mapped("month", 2, "string"), **BY_NAME)

    staged = home(STREET, ZIP)
    renamed = {**ZIP, "name": "post_code"}
    assert list(incompatibilities(staged, staged)) == []
    assert list(incompatibilities(staged, home(STREET, renamed))) == []
    assert list(incompatibilities(staged, home(STREET, ZIP, mapped("country", 13, "string")))) == []
    for current, reason in (
        (home(STREET), r"column home\S*\.zip is gone"),
        (home(STREET, mapped("zip", 14)), r"column home\S*\.zip is gone"),
        (home(STREET, {**ZIP, "nullable": False}), r"column home\S*\.zip is NOT NULL now"),
        (home(STREET, {**ZIP, "type": "string"}), r"column home\S*\.zip is string, not long"),
        (home(STREET, ZIP, {**mapped("x", 13), "nullable": False}), r"the new column home\S*\.x is NOT NULL"),
    ):
        assert re.search(reason, "; ".join(incompatibilities(staged, current))), reason


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        (array("long"), array("string"), "column id.element is string, not long"),
        (array("long"), array("long", nulls=False), "column id may hold no NULL now"),
        (array("long", nulls=False), array("long"), ""),
        (map_of("long", "long"), map_of("string", "long"), "column id.key is string, not long"),
        (map_of("long", "long"), map_of("long", "string"), "column id.value is string, not long"),
        (array("long"), map_of("long", "long"), "column id is map, not array"),
        (array("long"), "long", "column id is long, not array"),
        (struct(ID), array(struct(ID)), "column id is array, not struct"),
    ],
)
def test_arrays_and_maps_are_compared_inside(before: Any, now: Any, reason: str) -> None:
    assert (
        "; ".join(incompatibilities(metadata(field("id", before), MONTH), metadata(field("id", now), MONTH))) == reason
    )


# -- widening ------------------------------------------------------------------------------------------------------


def widened(*kinds: str, by: tuple[str, ...] = ("month",), **more: Any) -> dict[str, Any]:
    changes = [{"fromType": a, "toType": b} for a, b in pairwise(kinds)]
    return metadata(field("id", kinds[-1], **{"delta.typeChanges": changes}, **more), MONTH, by=by)


@pytest.mark.parametrize(
    "kinds",
    [
        ("byte", "short"),
        ("byte", "short", "integer", "long"),
        ("integer", "double"),
        ("short", "double"),
        ("float", "double"),
        ("decimal(10,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(12,4)"),
        ("integer", "decimal(10,0)"),
        ("byte", "decimal(12,2)"),
        ("long", "decimal(20,0)"),
        ("short", "integer", "decimal(14,4)"),
    ],
)
def test_a_widening_that_the_table_records_fits_from_every_type_on_the_way(kinds: tuple[str, ...]) -> None:
    for staged in kinds:
        assert list(incompatibilities(metadata(field("id", staged), MONTH), widened(*kinds))) == []
    narrower = {"fromType": kinds[0], "toType": kinds[1]}
    before = metadata(field("id", kinds[1], **{"delta.typeChanges": [narrower]}), MONTH)
    assert list(incompatibilities(before, widened(*kinds))) == []


@pytest.mark.parametrize(
    ("staged", "current"),
    [
        ("integer", metadata(field("id", "long"), MONTH)),
        ("byte", widened("short", "integer")),
        ("string", widened("string", "long")),
        ("long", widened("long", "double")),
        ("double", widened("double", "float")),
        ("long", widened("long", "integer")),
        ("date", widened("date", "timestamp_ntz")),
        ("decimal(10,2)", widened("decimal(10,2)", "decimal(10,4)")),
        ("decimal(10,2)", widened("decimal(10,2)", "decimal(12,1)")),
        ("integer", widened("integer", "decimal(9,0)")),
        ("long", widened("long", "decimal(20,2)")),
    ],
)
def test_another_type_does_not_fit_whatever_the_record_says(staged: str, current: dict[str, Any]) -> None:
    (reason,) = incompatibilities(metadata(field("id", staged), MONTH), current)
    assert reason.startswith("column id is ")


def test_a_partition_column_or_a_nested_field_that_was_widened_is_refused_in_words() -> None:
    staged = metadata(field("id", "integer"), MONTH, by=("id",))
    assert "a partition column only when staged again" in "; ".join(
        incompatibilities(staged, widened("integer", "long", by=("id",)))
    )
    change = {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}
    inside = [
        metadata(field("s", struct(field("n", kind, **more)))) for kind, more in (("integer", {}), ("long", change))
    ]
    assert "a nested field only when staged again" in "; ".join(
        incompatibilities(*({**described, "partitionColumns": []} for described in inside))
    )
    change = {"delta.typeChanges": [{"fromType": "integer", "toType": "long", "fieldPath": "element"}]}
    staged, current = (
        metadata(field("id", array("integer")), MONTH),
        metadata(field("id", array("long"), **change), MONTH),
    )
    assert list(incompatibilities(staged, current)) == ["column id.element is long, not integer"]


# -- what rows must be -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        {"delta.invariants": '{"expression":{"expression":"id > 3"}}'},
        {"delta.generationExpression": "1"},
        {"delta.identity.start": 1},
        {"CURRENT_DEFAULT": "0"},
        {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"},
        {"__COLLATIONS": {"id": "icu.UNICODE_CI"}},
        {"delta.inventedTomorrow": "x"},
    ],
)
def test_a_rule_for_a_columns_values_that_is_new_or_changed_does_not_fit_and_a_dropped_one_does(
    rule: dict[str, Any],
) -> None:
    with_rule = metadata(field("id", **rule), MONTH)
    assert list(incompatibilities(STAGED, with_rule))
    assert list(incompatibilities(with_rule, metadata(field("id", **dict.fromkeys(rule, "another")), MONTH)))
    assert list(incompatibilities(with_rule, with_rule)) == []
    assert list(incompatibilities(with_rule, STAGED)) == []


def test_files_that_were_not_written_for_iceberg_do_not_fit_a_table_that_is_now() -> None:
    compatible = {**BY_NAME, "delta.enableIcebergCompatV2": "true"}
    columns_ = (mapped("id", 1), mapped("month", 2, "string"))
    assert re.search("as Iceberg now", "; ".join(incompatibilities(MAPPED, metadata(*columns_, **compatible))))
    assert list(incompatibilities(metadata(*columns_, **compatible), metadata(*columns_, **compatible))) == []
