"""Conditions on columns of every type, drawn at random, and statistics of values as engines write them."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
MOMENTS = st.integers(-3_000_000, 3_000_000).map(lambda micros: EPOCH + timedelta(microseconds=micros))
DOUBLES = st.sampled_from([0.0, -0.0, 0.1, 0.7, 1.5, -1.5, 1e300, math.inf, -math.inf, math.nan])
SINGLES = DOUBLES.map(lambda number: pa.scalar(number, pa.float32()).as_py())
DECIMALS = st.integers(-99_999, 99_999).map(lambda number: Decimal(number).scaleb(-2))
LARGE = st.integers(-(10**30), 10**30).map(lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -4)))
TEXTS = st.text("ab\ud7ff\uffff\U0001f600", max_size=40)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "byte": st.integers(-128, 127),
    "integer": st.integers(-5, 5) | st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-5, 5) | st.integers(-(1 << 63), (1 << 63) - 1),
    "float": SINGLES,
    "double": DOUBLES,
    "decimal(5,2)": DECIMALS,
    "decimal(38,4)": LARGE,
    "string": TEXTS,
    "boolean": st.booleans(),
    "date": st.dates(date(1969, 12, 28), date(1970, 1, 4)),
    "timestamp": MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
    "timestamp_ntz": MOMENTS,
    "binary": st.binary(max_size=2),
}
NUMBERS = st.one_of(
    st.integers(-6, 6).map(str),
    st.integers(-(1 << 64), 1 << 64).map(str),
    DECIMALS.map(str),
    DOUBLES.filter(lambda number: abs(number) < 1e300).map(lambda number: f"{number!r}e0"),
    st.sampled_from(["'NaN'", "'1'", "0.7F", "128", "-129"]),
)
TIMES = st.one_of(
    VALUES["date"].map(lambda day: f"DATE '{day}'"),
    MOMENTS.map(lambda moment: f"TIMESTAMP '{moment}'"),
    MOMENTS.map(lambda moment: f"TIMESTAMP_NTZ '{moment}'"),
    VALUES["date"].map(lambda day: f"'{day}'"),
)


def literals(kind: str) -> st.SearchStrategy[str]:
    """Literals to compare a column with; Spark takes some of them under all settings, and the others are refused."""
    if kind == "string":
        return TEXTS.map(lambda text: f"'{text}'")
    if kind == "boolean":
        return st.sampled_from(["true", "false", "'true'"])
    if kind == "binary":
        return VALUES["binary"].map(lambda value: f"X'{value.hex()}'")
    return TIMES if kind in ("date", "timestamp", "timestamp_ntz") else NUMBERS


def conditions(kind: str, name: str = "c") -> st.SearchStrategy[str]:
    """Conditions on one column."""
    literal = literals(kind) | st.just("NULL")
    signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>", "!=", "=="])
    leaves = st.one_of(
        st.builds("{} {} {}".format, st.just(name), signs, literal),
        st.builds("{} {} {}".format, literal, signs, st.just(name.upper())),
        st.lists(literal, min_size=1, max_size=3).map(lambda items: f"{name} IN ({', '.join(items)})"),
        st.builds(f"{name} BETWEEN {{}} AND {{}}".format, literal, literal),
        st.sampled_from([f"{name} IS NULL", f"{name} IS NOT NULL", "true", "false"]),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map("NOT ({})".format),
            st.builds("({}) AND ({})".format, inner, inner),
            st.builds("({}) OR ({})".format, inner, inner),
        ),
        max_leaves=4,
    )


def statistics(kind: str, values: list[Any], name: str = "c") -> dict[str, Any]:
    """What an engine writes: cut times and texts, floats with few digits, large decimals as doubles, nothing of NaN."""
    there = [value for value in values if value is not None]
    ordered = [value for value in there if value == value]
    said: dict[str, Any] = {"numRecords": len(values), "nullCount": {name: len(values) - len(there)}}
    if ordered and kind not in ("boolean", "binary"):
        low, high = min(ordered), max(ordered)
        said |= {"minValues": {name: spelled(kind, low)}, "maxValues": {name: spelled(kind, high)}}
        if kind == "string" and len(high) > 32:
            said["maxValues"][name] = high[:32] + "\U0010ffff"
    return said


def spelled(kind: str, value: Any) -> Any:
    """A bound, as it stands in JSON."""
    if kind == "string":
        return value[:32]
    if kind == "float" and abs(value) < math.inf:
        return float(pa.array([value], pa.float32()).cast(pa.string())[0].as_py())
    if kind.startswith("decimal"):
        return float(value)
    if kind.startswith("timestamp"):
        millis = value.replace(microsecond=value.microsecond // 1000 * 1000).isoformat(timespec="milliseconds")
        return millis.replace("+00:00", "Z")
    return str(value) if kind == "date" else value
