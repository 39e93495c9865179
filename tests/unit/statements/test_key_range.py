"""Which files may hold a key of a MERGE's source: a file is left out only where statistics are sure."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.schema import CHAR_OR_VARCHAR, COLLATIONS, Column
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.statements.key_range import KeyRange, _bounds, _Key
from tests.support.conditions import TEXTS, VALUES, statistics
from tests.support.merges import source_of
from tests.support.tables import change_metadata, newest


def typed(log: DeltaLog, kind: str, metadata: dict[str, Any] | None = None) -> None:
    schema = json.loads(newest(log).metadata["schemaString"])
    schema["fields"][0]["type"] = kind
    for field in schema["fields"]:
        field["metadata"] = metadata or {}
    change_metadata(log, schemaString=json.dumps(schema))


def source(log: DeltaLog, least: Any, greatest: Any, mode: Merge | None = None) -> Buffer:
    found = source_of(log, {"x": [1]}, **({"mode": mode} if mode else {}))
    return attrs.evolve(found, adds=tuple({**add, "stats": stats(least, greatest)} for add in found.adds))  # type: ignore[misc]


def stats(least: Any, greatest: Any) -> str:
    return json.dumps({"numRecords": 1, "minValues": {"id": least}, "maxValues": {"id": greatest}})


def may_hold(found: KeyRange, said: str | None, month: str = "x") -> bool:
    file: Any = {"path": f"{said}{month}", "partitionValues": {"month": month}, **({"stats": said} if said else {})}
    return found(file)


@pytest.mark.parametrize(
    ("kind", "bounds", "inside", "outside"),
    [
        ("long", (10, 20), [(20, 30), (0, 10), (12, 13), (0, 99)], [(21, 30), (-5, 9)]),
        ("date", ("2024-01-10", "2024-01-20"), [("2024-01-20", "2024-02-01")], [("2024-01-21", "2025-01-01")]),
        ("string", ("b", "c"), [("a", "b"), ("bb", "z")], [("d", "z"), ("A", "a")]),
        # Compared in another way by engines, or written in several ways.
        ("double", (1.0, 2.0), [(5.0, 6.0)], []),
        ("timestamp", ("2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"), [("2025-01-01T00:00:00Z",) * 2], []),
    ],
)
def test_files_whose_bounds_lie_apart_are_left_out(
    log: DeltaLog, kind: str, bounds: tuple[Any, Any], inside: list[tuple[Any, Any]], outside: list[tuple[Any, Any]]
) -> None:
    typed(log, kind)
    found = KeyRange.of(source(log, *bounds), newest(log), ["ID"])
    assert [may_hold(found, stats(*each)) for each in inside] == [True] * len(inside)
    assert [may_hold(found, stats(*each)) for each in outside] == [False] * len(outside)
    assert may_hold(found, None)
    assert may_hold(found, stats(None, None))
    assert may_hold(found, "no JSON")


def test_a_text_that_was_cut_rules_nothing_out(log: DeltaLog) -> None:
    typed(log, "string")
    long = "k" * 32
    found = KeyRange.of(source(log, f"{long}z", f"{long}z"), newest(log), ["id"])
    assert may_hold(found, stats("a", long))


@pytest.mark.parametrize("broken", ["\ufffd", chr(0xD800)])
def test_a_bound_that_is_no_text_rules_nothing_out(log: DeltaLog, broken: str) -> None:
    typed(log, "string")
    sound = source(log, "b", "c")
    found = KeyRange.of(sound, newest(log), ["id"])
    assert may_hold(found, stats(f"x{broken}", "z"))
    assert may_hold(found, stats("A", f"a{broken}"))
    in_doubt = attrs.evolve(sound, adds=tuple({**add, "stats": stats("b", f"c{broken}")} for add in sound.adds))  # type: ignore[misc]
    assert may_hold(KeyRange.of(in_doubt, newest(log), ["id"]), stats("x", "z"))


@pytest.mark.parametrize("kind", ["byte", "integer", "long", "string", "date"])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_that_holds_a_key_is_never_left_out(log: DeltaLog, kind: str, data: st.DataObject) -> None:
    values = TEXTS if kind == "string" else VALUES[kind]
    keys = data.draw(st.lists(values, min_size=1, max_size=3))
    rows = data.draw(st.lists(values | st.sampled_from(keys) | st.none(), min_size=1, max_size=4))
    column = Column("id", kind, True, {})
    bounds = _bounds([_file(kind, [key]) for key in keys], column)
    event("bounds" if bounds else "no bounds")
    found = KeyRange(newest(log), [_Key(column, *bounds)] if bounds else [], [])
    held = found(_file(kind, rows))
    event(f"{'looked at' if held else 'left out'}, {'a match' if set(rows) & set(keys) else 'none'}")
    assert held or not set(rows) & set(keys)


def _file(kind: str, rows: list[Any]) -> Any:
    return {"path": "a", "partitionValues": {"month": "x"}, "stats": json.dumps(statistics(kind, rows, "id"))}


def test_a_source_whose_statistics_are_row_counts_alone_rules_nothing_out(log: DeltaLog) -> None:
    """Earlier releases left the bounds of a source to the footers of its files."""
    found = source(log, 10, 20)
    counted: Any = tuple({**add, "stats": json.dumps({"numRecords": 2})} for add in found.adds)
    assert not may_hold(KeyRange.of(found, newest(log), ["id"]), stats(30, 40))
    assert may_hold(KeyRange.of(attrs.evolve(found, adds=counted), newest(log), ["id"]), stats(30, 40))


def test_only_columns_of_one_type_are_compared(log: DeltaLog) -> None:
    of_rows = source(log, 10, 20)
    typed(log, "integer")
    assert may_hold(KeyRange.of(of_rows, newest(log), ["id"]), stats(30, 40))
    assert may_hold(KeyRange.of(of_rows, newest(log), ["no column"]), stats(30, 40))


@pytest.mark.parametrize("metadata", [{CHAR_OR_VARCHAR: "char(5)"}, {COLLATIONS: {"": "spark.UTF8_LCASE"}}])
@pytest.mark.parametrize("key", ["id", "month"])
def test_a_text_compared_in_another_way_rules_nothing_out(log: DeltaLog, key: str, metadata: dict[str, Any]) -> None:
    typed(log, "string")
    # Spark pads what it writes and what it reads of a CHAR; other engines write the text as it is.
    found = source(log, "ab   ", "ab   ")
    typed(log, "string", metadata)
    padded = tuple({**add, "partitionValues": {"month": "x    "}} for add in found.adds)
    found = attrs.evolve(found, adds=padded)  # type: ignore[arg-type]
    assert may_hold(KeyRange.of(found, newest(log), [key]), stats("ab", "ab"))


def test_a_varchar_is_compared_by_its_text(log: DeltaLog) -> None:
    typed(log, "string", {CHAR_OR_VARCHAR: "varchar(5)"})
    assert not may_hold(KeyRange.of(source(log, "b", "c"), newest(log), ["id"]), stats("d", "e"))


def test_a_key_that_is_a_partition_column(log: DeltaLog) -> None:
    found = KeyRange.of(source(log, 10, 20), newest(log), ["month"])
    assert [may_hold(found, None, month) for month in ("x", "y")] == [True, False]
    own = Merge(keys=["month"], when=["MATCHED THEN DELETE"])  # type: ignore[arg-type]
    assert may_hold(KeyRange.of(source(log, 10, 20, own), newest(log), ["month"]), None, "y")
