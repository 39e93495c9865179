"""Actions are kept as they are, known or not."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_onelake.exceptions import CorruptLogError, InvalidWriteError
from airflow_provider_onelake.log.actions import (
    deletion_vector_id,
    dump_actions,
    file_key,
    object_path,
    of_kind,
    parse_actions,
    row_count,
    total_rows,
    version_path,
)

VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 40, "cardinality": 6}


def test_a_version_has_twenty_digits() -> None:
    assert version_path(42) == "_delta_log/00000000000000000042.json"


def test_unknown_actions_and_fields_pass_through_unchanged() -> None:
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"operation": "WRITE", "ours?": [1, {"deep": None}]}},
        {"domainMetadata": {"domain": "delta.rowTracking", "configuration": "{}", "removed": False}},
        {"notInvented": {"yet": "\u00fc\u2028 \U0001f695"}},
        {"add": {"path": "a%20b", "partitionValues": {"p": None}, "size": 1, "tags": {"V-ORDER": "true"}}},
    ]
    assert parse_actions(dump_actions(actions), "here") == actions


def test_a_text_that_is_no_unicode_is_refused_before_anything_is_put() -> None:
    with pytest.raises(InvalidWriteError, match=r"A text of the commit has '.ud800', half of a pair"):
        dump_actions([{"commitInfo": {"userMetadata": "a\ud800b"}}])


def test_a_line_separator_inside_a_string_ends_no_action() -> None:
    actions = [{"commitInfo": {"userMetadata": "a\u2028b\u2029c\u0085d\x0be\nf"}}]
    data = dump_actions(actions)
    assert data.count(b"\n") == 1
    assert parse_actions(data, "here") == actions


@pytest.mark.parametrize("data", [b'{"add":', b'{"add":{}}\n{"cut', b"\xff\xfe"])
def test_an_entry_that_is_no_json_is_named(data: bytes) -> None:
    with pytest.raises(CorruptLogError, match="Version 7 of trips is not JSON"):
        parse_actions(data, "Version 7 of trips")


@pytest.mark.parametrize("data", [b"1", b'"add"', b"null", b"[]"])
def test_a_line_that_is_no_object_is_named(data: bytes) -> None:
    with pytest.raises(CorruptLogError, match="Version 7 of trips"):
        parse_actions(data, "Version 7 of trips")


def test_actions_of_a_kind_come_in_order_and_null_bodies_are_passed_over() -> None:
    actions = [{"add": {"path": "1"}}, {"remove": {"path": "x"}}, {"add": None}, {"add": {"path": "2"}}]
    assert of_kind(actions, "add") == [{"path": "1"}, {"path": "2"}]


def test_the_stores_path_is_the_logs_decoded_once() -> None:
    assert object_path({"path": "month=x%2520y/%C3%BC%3A+"}) == "month=x%20y/ü:+"


def test_a_deletion_vector_is_told_by_storage_place_and_offset() -> None:
    assert deletion_vector_id({"path": "a"}) is None
    assert deletion_vector_id({"path": "a", "deletionVector": None}) is None
    assert deletion_vector_id({"path": "a", "deletionVector": VECTOR}) == "uab^-aqEH.-t@S}K{vb[*k^"
    assert deletion_vector_id({"path": "a", "deletionVector": {**VECTOR, "offset": 4}}) == "uab^-aqEH.-t@S}K{vb[*k^@4"
    assert file_key({"path": "a", "deletionVector": {**VECTOR, "offset": 0}}) == ("a", "uab^-aqEH.-t@S}K{vb[*k^@0")


def test_a_file_is_told_by_the_spelling_of_its_path() -> None:
    assert file_key({"path": "month=\u00e9/a"}) != file_key({"path": "month=%C3%A9/a"})


def test_rows_are_those_that_no_deletion_vector_marks() -> None:
    add = {"path": "a", "stats": '{"numRecords": 10}'}
    assert row_count(add) == 10
    assert row_count({**add, "deletionVector": VECTOR}) == 4


@pytest.mark.parametrize(
    "add",
    [
        {},
        {"stats": None},
        {"stats": ""},
        {"stats": "{}"},
        {"stats": "no JSON"},
        {"stats": "[1]"},
        {"stats": 17},
        {"stats": '{"numRecords": "many"}'},
        {"stats": '{"numRecords": {}}'},
        {"stats": '{"numRecords": 3}', "deletionVector": {"storageType": "u", "pathOrInlineDv": "x"}},
    ],
    ids=str,
)
def test_rows_are_unknown_where_statistics_do_not_say_and_one_unknown_makes_the_total_unknown(
    add: dict[str, Any],
) -> None:
    assert row_count(add) is None
    assert total_rows([{"stats": '{"numRecords": 1}'}, add]) is None


def test_the_total_of_no_files_is_nothing() -> None:
    assert total_rows([]) == 0
