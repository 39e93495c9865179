"""A file is only ruled out for a statement if no row of it can match, whatever its columns, literals and statistics."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.rows.arrow import arrow_type
from airflow_provider_onelake.rows.concerned import concerned
from airflow_provider_onelake.rows.layout import Layout
from airflow_provider_onelake.rows.where import Where
from tests.support.conditions import VALUES, conditions, statistics

PHYSICAL = "delta.columnMapping.physicalName"


def snapshot_of(kinds: dict[str, Any], partition_by: tuple[str, ...] = (), *, mapped: bool = False, **more: Any) -> Any:
    """A snapshot, as far as it is looked at: its definition."""
    fields = [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {**({PHYSICAL: f"col-{name}"} if mapped else {}), **more},
        }
        for name, kind in kinds.items()
    ]
    configuration = {"delta.columnMapping.mode": "name"} if mapped else {}
    metadata = {
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(partition_by),
        "configuration": configuration,
    }
    return SimpleNamespace(metadata=metadata)


def file_with(stats: Any, **partition: str | None) -> Any:
    return {"path": "a", "partitionValues": partition, **({} if stats is None else {"stats": json.dumps(stats)})}


def said(least: Any, greatest: Any, nulls: int = 0, rows: int = 5) -> dict[str, Any]:
    bounds = {"minValues": {"c": least}, "maxValues": {"c": greatest}}
    return {"numRecords": rows, "nullCount": {"c": nulls}, **bounds}


def may_hold(text: str, kind: str, stats: Any) -> bool:
    judge = concerned(text, snapshot_of({"c": kind}))
    return judge is None or judge(file_with(stats))


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_file_with_a_row_that_matches_is_never_ruled_out(data: st.DataObject) -> None:
    kinds = {name: data.draw(st.sampled_from(list(VALUES))) for name in ("a", "b")}
    mapped = data.draw(st.booleans())
    snapshot = snapshot_of({**kinds, "p": "string"}, ("p",), mapped=mapped)
    parts = [data.draw(conditions(kind, name)) for name, kind in kinds.items()] + [data.draw(conditions("string", "p"))]
    text = data.draw(
        st.sampled_from(["({}) AND ({}) AND ({})", "({}) OR ({}) AND ({})", "NOT (({}) AND ({})) OR ({})"])
    )
    text = text.format(*parts)
    judge = concerned(text, snapshot)
    if judge is None:
        event("not judged")
        return
    count = data.draw(st.integers(1, 5))
    rows = {
        name: data.draw(st.lists(VALUES[kind] | st.none(), min_size=count, max_size=count))
        for name, kind in kinds.items()
    }
    month = data.draw(st.none() | VALUES["string"].filter(bool))
    stats: dict[str, Any] = {"numRecords": count, "tightBounds": data.draw(st.booleans())}
    for name, kind in kinds.items():
        for part, found in statistics(kind, rows[name], f"col-{name}" if mapped else name).items():
            if part != "numRecords" and data.draw(st.integers(0, 4)):
                stats.setdefault(part, {}).update(found)
    # A deletion vector hides some rows; the statistics stay those of all.
    left = data.draw(st.lists(st.integers(0, count - 1), unique=True, min_size=1))
    columns = {name: pa.array([rows[name][at] for at in left], arrow_type(kind)) for name, kind in kinds.items()}
    columns["p"] = pa.array([month] * len(left), pa.string())
    layout = Layout.of(snapshot.metadata)
    holds = Where.parse(text, layout.compared_as).evaluate(columns, len(left)).to_pylist()
    verdict = judge(file_with(stats, **{"col-p" if mapped else "p": month}))
    event(f"{'kept' if verdict else 'ruled out'}, {'a row matches' if True in holds else 'none does'}")
    assert verdict or True not in holds, (text, stats)


@pytest.mark.parametrize(
    ("kind", "text", "stats"),
    [
        ("long", "c = 9", said(1, 5)),
        ("long", "NOT c <= 9", said(1, 5)),
        ("long", "c IN (9, NULL)", said(1, 5)),
        ("long", "c <=> NULL", said(1, 5)),
        ("long", "c IS NOT NULL", said(None, None, 5)),
        ("date", "c BETWEEN DATE '2020-01-01' AND DATE '2020-12-31'", said("2019-01-01", "2019-12-31")),
        ("timestamp", "c >= TIMESTAMP '2020-01-01 00:00:00.001'", said("2019-01-01T00:00:00.000Z", "2019-12-31T23:59:59.999Z")),
        ("string", "c = 'x'", said("a", "b")),
        ("double", "c < 1.5", said(2.0, 3.0)),
        ("decimal(5,2)", "c > 1.50", said(1.0, 1.5)),
    ],
)  # fmt: skip
def test_files_are_ruled_out_where_statistics_are_sure(kind: str, text: str, stats: Any) -> None:
    assert not may_hold(text, kind, stats)
    # They say nothing, or hold for a row that is NULL.
    assert may_hold(text, kind, None)
    assert may_hold(text, kind, {"numRecords": 5})
    assert may_hold(f"({text}) IS NULL OR c IS NULL", kind, {**stats, "nullCount": {"c": 1}})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param("long", "c % 3 = 0", id="arithmetic"),
        pytest.param("string", "upper(c) = 'X'", id="a function"),
        pytest.param("string", "c LIKE 'x%'", id="a pattern"),
        pytest.param("long", "c = 9 OR no_column = 1", id="a column that is not there"),
        pytest.param("string", 'c = "x"', id="a column for some sessions"),
        pytest.param("string", r"c = 'x\y'", id="a backslash"),
        pytest.param("string", "c = 'x''y'", id="a doubled quote"),
        pytest.param("long", "c > 1e1", id="a decimal for some sessions"),
        pytest.param("long", "c = '9 '", id="a string that is a number for some sessions"),
        pytest.param("string", "c = 9", id="a number that Spark compares as such"),
    ],
)
def test_what_is_not_read_or_depends_on_the_session_rules_nothing_out(kind: str, text: str) -> None:
    # In these bounds nothing of the above matches, if it is read as it seems.
    stats = said(1, 2) if kind == "long" else said("a", "b")
    assert concerned(text, snapshot_of({"c": kind})) is None
    assert may_hold(text, kind, stats)


def test_a_comment_that_ends_at_a_carriage_return_hides_nothing_behind_it() -> None:
    assert may_hold("c = 9 -- the first\r OR c = 3", "long", said(1, 5))


def test_a_predicate_that_is_true_of_no_row_rules_every_file_out() -> None:
    for text in ("c NOT IN (1, NULL)", "c = NULL", "c <> NULL OR false"):
        assert not may_hold(text, "long", None)


def test_columns_that_spark_compares_by_other_rules_rule_nothing_out() -> None:
    for told in ({"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}, {"__COLLATIONS": {"c": "icu.UNICODE_CI"}}):
        assert concerned("c = 'x'", snapshot_of({"c": "string"}, **told)) is None


def test_partitions_and_statistics_together() -> None:
    judge = concerned("p = 'x' AND c > 5", snapshot_of({"c": "long", "p": "string"}, ("p",)))
    assert judge is not None
    assert judge(file_with(said(1, 9), p="x"))
    assert not judge(file_with(said(1, 9), p="y"))
    assert not judge(file_with(said(1, 5), p="x"))


def test_a_column_that_was_widened_or_added_since() -> None:
    # Statistics are of the narrow type, or say nothing of a column that came later.
    assert not may_hold("c > 5000000000", "long", said(1, 5))
    assert may_hold("c = 3", "long", {"numRecords": 5, "nullCount": {}, "minValues": {}, "maxValues": {}})
    assert may_hold("c IS NULL", "long", {"numRecords": 5, "nullCount": {}})
