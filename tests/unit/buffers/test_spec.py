"""What a writer promises, and how it is read back from the buffer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.buffers.spec import WriteSpec, equal_terms, equal_work
from airflow_provider_onelake.choices import OnRerun, OnUnexpectedRows, PublishMode
from airflow_provider_onelake.modes import Append, Mode, Overwrite, OverwritePartitions, ReplaceWhere
from tests.support.tables import make_table, writer_spec


@pytest.mark.parametrize(
    ("mode", "default"),
    [
        (Append(), OnRerun.SKIP),
        (Overwrite(), OnRerun.REPLACE),
        (OverwritePartitions(), OnRerun.REPLACE),
        (ReplaceWhere("month = '2019-01'"), OnRerun.REPLACE),
    ],
)
def test_a_rerun_skips_an_append_and_replaces_an_overwrite_unless_told_otherwise(mode: Mode, default: OnRerun) -> None:
    assert writer_spec(mode=mode).on_rerun is default
    assert writer_spec(mode=mode, on_rerun=OnRerun.APPEND).on_rerun is OnRerun.APPEND


@pytest.mark.parametrize("on_rerun", list(OnRerun))
def test_only_an_append_takes_back_what_it_added_or_may_repeat_it(on_rerun: OnRerun) -> None:
    append, overwrite = (writer_spec(mode=mode, on_rerun=on_rerun) for mode in (Append(), OverwritePartitions()))
    assert append.takes_back == (on_rerun is OnRerun.REPLACE)
    assert append.must_not_repeat == (on_rerun is not OnRerun.APPEND)
    assert not overwrite.takes_back
    assert not overwrite.must_not_repeat


def test_a_spec_comes_back_from_json_and_fields_of_later_formats_are_passed_over() -> None:
    terms: dict[str, Any] = {"expected_partitions": "month > '2018'", "on_unexpected_rows": OnUnexpectedRows.REFUSE}
    terms |= {"on_rerun": OnRerun.SKIP, "publish": PublishMode.TOGETHER, "generation": 3, "task": "load.write[3]"}
    terms |= {"fingerprint": "f", "source": "function", "message": "for Ann"}
    spec = writer_spec("vendor/1", mode=ReplaceWhere("month = '2019-01'", allow_empty=True), **terms)
    value = json.loads(json.dumps(spec.to_json()))
    assert WriteSpec.from_json({**value, "from": "the future"}) == spec
    whose = {"namespace": "test", "dag": "taxi", "group": "load", "run": "2019-01-01T00:00:00+00:00"}
    assert value["identity"] == {**whose, "writer": "vendor/1"}


def test_a_generation_counts_from_1() -> None:
    with pytest.raises(ValueError, match="generation"):
        writer_spec(generation=0)


@pytest.mark.parametrize(
    ("terms", "inside", "outside"),
    [
        ({"expected_partitions": "month >= '2019-01'"}, ["2019-01", "2019-02"], ["2018-12", None]),
        ({"mode": ReplaceWhere("month = '2019-01'")}, ["2019-01"], ["2019-02", None]),
        (
            {"mode": ReplaceWhere("month >= '2019-01'"), "expected_partitions": "month < '2019-03' OR false"},
            ["2019-01", "2019-02"],
            ["2019-03", "2018-12"],
        ),
    ],
)
def test_rows_lie_where_both_hold(
    tmp_path: Path, terms: dict[str, Any], inside: list[str], outside: list[str | None]
) -> None:
    snapshot = make_table(tmp_path).snapshot()
    found = writer_spec(**terms).range(snapshot)
    assert found is not None
    assert [month for month in (*inside, *outside) if found.covers((month,))] == inside
    # Without a predicate, they may lie anywhere.
    assert writer_spec().range(snapshot) is None


def test_a_buffer_of_a_release_without_messages_and_kinds_of_sources_is_read() -> None:
    value = writer_spec(source="sql", message="for Ann").to_json()
    del value["source"], value["message"]
    read = WriteSpec.from_json(value)
    assert (read.source, read.message) == (None, None)
    assert equal_terms(read, writer_spec(source="sql"))


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        pytest.param(("f", "function"), ("f", "function"), True, id="a-function"),
        pytest.param(("f", "function"), ("g", "function"), False, id="a-function-that-changed"),
        pytest.param(("old rule", None), ("new rule", "function"), True, id="a-function-of-an-earlier-release"),
        pytest.param(("", None), ("new rule", "function"), False, id="nobody-knows"),
        pytest.param(("f", None), ("f", "sql"), True, id="a-query-of-an-earlier-release"),
        pytest.param(("f", None), ("g", "sql"), False, id="a-query-that-changed-since"),
        pytest.param(("f", "sql"), ("g", "function"), False, id="a-query-that-became-a-function"),
        pytest.param(("f", "files"), ("g", "files"), False, id="other-files"),
    ],
)
def test_fingerprints_are_compared_by_the_rule_that_made_them(one: Any, other: Any, equal: bool) -> None:
    both = [writer_spec(fingerprint=fingerprint, source=source) for fingerprint, source in (one, other)]
    assert equal_work(*both) is equal
    assert equal_work(*reversed(both)) is equal


def test_another_message_is_no_other_work() -> None:
    one = writer_spec(message="for Ann")
    assert equal_terms(one, writer_spec(message=None))
    assert not equal_terms(one, writer_spec(message="for Ann", fingerprint="other"))
