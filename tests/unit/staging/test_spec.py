"""What a writer promises, and how it is read back from the buffer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.choices import Mode, OnRerun, PublishMode, RowsOutside
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.staging.spec import WriteSpec, choice
from tests.support.tables import make_table, writer_spec


@pytest.mark.parametrize(
    ("mode", "default"),
    [
        (Mode.APPEND, OnRerun.SKIP),
        (Mode.OVERWRITE_PARTITIONS, OnRerun.REPLACE),
        (Mode.REPLACE_WHERE, OnRerun.REPLACE),
    ],
)
def test_a_rerun_skips_an_append_and_replaces_an_overwrite_unless_told_otherwise(mode: Mode, default: OnRerun) -> None:
    where = "month = '2019-01'" if mode is Mode.REPLACE_WHERE else None
    assert writer_spec(mode=mode, replace_where=where).on_rerun is default
    assert writer_spec(mode=mode, replace_where=where, on_rerun=OnRerun.APPEND).on_rerun is OnRerun.APPEND


@pytest.mark.parametrize(
    "terms",
    [
        {"mode": Mode.REPLACE_WHERE},
        {"mode": Mode.APPEND, "replace_where": "month = '2019-01'"},
        {"mode": Mode.OVERWRITE_PARTITIONS, "replace_where": "month = '2019-01'"},
    ],
)
def test_the_predicate_belongs_to_its_mode(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidWriteError, match="the mode replace_where needs the predicate"):
        writer_spec(**terms)


def test_an_overwrite_replaces_everything_and_an_append_nothing() -> None:
    assert writer_spec(mode=Mode.OVERWRITE).replaces == "true"
    assert writer_spec(mode=Mode.REPLACE_WHERE, replace_where="month = '2019-01'").replaces == "month = '2019-01'"
    assert writer_spec().replaces is writer_spec(mode=Mode.OVERWRITE_PARTITIONS).replaces is None


@pytest.mark.parametrize("kind", [Mode, OnRerun, RowsOutside, PublishMode])
def test_an_unknown_choice_is_refused_with_what_is_allowed(kind: Any) -> None:
    for member in kind:
        assert choice(kind, member.value, "parameter") is member
    with pytest.raises(InvalidWriteError, match=f"parameter='upsert' is unknown.*{next(iter(kind)).value}"):
        choice(kind, "upsert", "parameter")


def test_a_spec_comes_back_from_json_and_fields_of_later_formats_are_passed_over() -> None:
    spec = writer_spec(
        "vendor/1",
        mode=Mode.REPLACE_WHERE,
        replace_where="month = '2019-01'",
        covers="month > '2018'",
        rows_outside=RowsOutside.REFUSE,
        allow_empty=True,
        on_rerun=OnRerun.SKIP,
        publish=PublishMode.TOGETHER,
        generation=3,
        task="load.write[3]",
        fingerprint="f",
    )
    value = json.loads(json.dumps(spec.to_json()))
    assert WriteSpec.from_json({**value, "from": "the future"}) == spec
    assert value["identity"] == {
        "namespace": "test",
        "dag": "taxi",
        "group": "load",
        "run": "2019-01-01T00:00:00+00:00",
        "writer": "vendor/1",
    }


def test_a_generation_counts_from_1() -> None:
    with pytest.raises(ValueError, match="generation"):
        writer_spec(generation=0)


@pytest.mark.parametrize(
    ("terms", "inside", "outside"),
    [
        ({"covers": "month >= '2019-01'"}, ["2019-01", "2019-02"], ["2018-12", None]),
        ({"mode": Mode.REPLACE_WHERE, "replace_where": "month = '2019-01'"}, ["2019-01"], ["2019-02", None]),
        (
            {"mode": Mode.REPLACE_WHERE, "replace_where": "month >= '2019-01'", "covers": "month < '2019-03' OR false"},
            ["2019-01", "2019-02"],
            ["2019-03", "2018-12"],
        ),
    ],
)
def test_rows_may_lie_where_both_predicates_hold(
    tmp_path: Path, terms: dict[str, Any], inside: list[str], outside: list[str | None]
) -> None:
    snapshot = make_table(tmp_path).snapshot()
    assert snapshot is not None
    found = writer_spec(**terms).range(snapshot)
    assert found is not None
    assert [month for month in (*inside, *outside) if found.covers((month,))] == inside


def test_without_a_predicate_rows_may_lie_anywhere(tmp_path: Path) -> None:
    snapshot = make_table(tmp_path).snapshot()
    assert snapshot is not None
    assert writer_spec().range(snapshot) is None
