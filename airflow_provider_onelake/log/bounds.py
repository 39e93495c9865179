"""What the statistics of a file say of the values of its columns: bounds that hold for every row, and never too narrow.

Statistics are written by many engines, and a file that is skipped wrongly loses rows without a word. So a bound is
taken with what the engines are known to leave out of it:

- NaN is greater than any other number, and no engine's bounds show it: floating point columns have no upper bound.
- A FLOAT is written with as few digits as name it among the floats, and a DECIMAL of many digits as a double, so both
  may be a little off. Bounds of these types are widened by more than that, once a FLOAT is the float that is named:
  close to zero, few digits are off by much.
- deltalake writes a DECIMAL without a fraction as a BIGINT, and one beyond as the last BIGINT: such a bound is none.
- Times are cut to milliseconds, so an upper bound counts to the end of its millisecond.
- A text with more characters than Delta keeps has a shorter lower bound, and an upper bound that is greater than it.
  But earlier versions of Delta end that bound by U+FFFD, and characters beyond the basic plane are greater. They also
  cut such a character in two, and what is left of it becomes a question mark. Other engines may cut a greatest text
  without raising it. So a long upper bound is taken for what is left of any text that begins so.
- Engines write U+FFFD, or half a pair of UTF-16, for bytes that are no text: such a bound is none.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import attrs

from airflow_provider_onelake.log.actions import Add
from airflow_provider_onelake.log.schema import Column
from airflow_provider_onelake.log.types import INTEGERS, JsonType, precision_and_scale
from airflow_provider_onelake.log.values import (
    FarTime,
    PartitionValue,
    Unreadable,
    micros_in,
    time_of,
    to_single,
    typed_value,
    without_zone,
)

_MILLISECOND = timedelta(milliseconds=1) // timedelta(microseconds=1)
# A double holds every decimal of fewer digits so that it reads back the same.
_DIGITS_OF_A_DOUBLE = 15
# A single has 24 binary digits, and a double 53.
_OFF_IN_SINGLE = Fraction(1, 1 << 22)
_OFF_IN_DOUBLE = Fraction(1, 1 << 50)
_ENDS_OF_BIGINT = {1: Decimal((1 << 63) - 1), -1: Decimal(-(1 << 63))}
_MOST_DIGITS = 100
_END_OF_CUT_TEXT = "\ufffd"
_NO_TEXT = re.compile("[\ud800-\udfff\ufffd]")
# Delta keeps 32 units of UTF-16, which may be this many characters.
_SHORTEST_CUT = 16
_GREATEST_CHARACTER = "\U0010ffff"


@attrs.frozen
class Bounds:
    """What is known of the values of a column in a file.

    :param low: no value is less; ``None`` where that is not known.
    :param high: no value is greater; ``None`` where that is not known.
    :param nulls: whether there may be a NULL.
    :param values: whether there may be another value than NULL.
    """

    low: PartitionValue = None
    high: PartitionValue = None
    nulls: bool = True
    values: bool = True


UNKNOWN = Bounds()
"""Of a column of which nothing is known."""


def exactly(value: PartitionValue, kind: JsonType) -> Bounds:
    """Return what is known of a column that has one value in all rows, as a partition column has.

    :param value: typed.
    :param kind: the column's type.
    """
    if value is None:
        return Bounds(values=False)
    # Some engines read a value that they cannot parse as NULL.
    if isinstance(value, Unreadable):
        return UNKNOWN
    known = None if kind == "timestamp" and without_zone(value) else value
    return Bounds(known, known, nulls=False)


def bounds_of(add: Add, columns: Mapping[int, Column]) -> dict[int, Bounds]:
    """Return what a file's statistics say of some columns; statistics that cannot be read say nothing.

    :param add: the file.
    :param columns: that are wanted, no partition columns, by whatever number the caller gives them.
    """
    try:
        said = json.loads(add.get("stats") or "null", parse_float=Decimal)
    except (TypeError, ValueError, RecursionError):
        said = None
    if not isinstance(said, Mapping):
        return dict.fromkeys(columns, UNKNOWN)
    lows, highs, nulls = (_part(said, name) for name in ("minValues", "maxValues", "nullCount"))
    rows = said.get("numRecords")
    found = {}
    for number, column in columns.items():
        name = column.physical_name
        count = nulls.get(name)
        known = isinstance(count, int) and not isinstance(count, bool)
        found[number] = Bounds(
            _low(lows.get(name), column.type),
            _high(highs.get(name), column.type),
            nulls=not known or count != 0,
            values=not known or count != rows,
        )
    return found


def _part(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = said.get(name)
    return part if isinstance(part, Mapping) else {}


def _low(said: Any, kind: JsonType) -> PartitionValue:
    value = _typed(said, kind)
    if isinstance(value, float):
        return float(value - abs(Fraction(value)) * _OFF_IN_SINGLE) if abs(value) < float("inf") else None
    if isinstance(value, str):
        return None if _NO_TEXT.search(value) else value
    return _moved(value, kind, -1)


def _high(said: Any, kind: JsonType) -> PartitionValue:
    value = _typed(said, kind)
    if isinstance(value, float):
        return None
    if isinstance(value, str):
        return _uncut(value)
    if kind in ("timestamp", "timestamp_ntz") and value is not None:
        zone = None if kind == "timestamp_ntz" else 0
        return time_of(micros_in(value) + _MILLISECOND, zone)
    return _moved(value, kind, 1)


def _uncut(text: str) -> str | None:
    """Return an upper bound of every text that an engine may have cut to this one; ``None`` where it is no text."""
    cut = text.removesuffix(_END_OF_CUT_TEXT)
    if len(cut) < _SHORTEST_CUT:
        return None if _NO_TEXT.search(text) else text
    if cut != text and (cut.endswith("?") or "\ud800" <= cut[-1:] <= "\udbff"):
        cut = cut[:-1]
    return None if _NO_TEXT.search(cut) else cut + _GREATEST_CHARACTER


def _moved(value: PartitionValue, kind: JsonType, sign: int) -> PartitionValue:
    """Return a bound as far out as an engine may have rounded it."""
    sized = precision_and_scale(kind)
    if sized is None or not isinstance(value, Decimal) or sized[0] <= _DIGITS_OF_A_DOUBLE:
        return value
    if value == _ENDS_OF_BIGINT[sign]:
        return None
    moved = Fraction(value) + sign * abs(Fraction(value)) * _OFF_IN_DOUBLE
    with localcontext(prec=_MOST_DIGITS):
        return Decimal(moved.numerator) / Decimal(moved.denominator)


def _typed(said: Any, kind: JsonType) -> PartitionValue:
    """Return the value that stands in statistics; ``None`` where it is no value of the column's type."""
    if said is None or isinstance(said, bool | Mapping | list) or not isinstance(kind, str):
        return None
    number = isinstance(said, int | Decimal)
    if kind in INTEGERS:
        return said if isinstance(said, int) else None
    if kind == "float":
        return to_single(str(said)) if number else None
    if kind == "double":
        return float(said) if number else None
    if precision_and_scale(kind) is not None:
        return Decimal(said) if number else None
    if kind == "string":
        return said if isinstance(said, str) else None
    if kind not in ("date", "timestamp", "timestamp_ntz") or not isinstance(said, str):
        return None
    try:
        value = typed_value(said, kind)
    except ValueError:
        return None
    # Nobody knows which instant a time without its zone is.
    return None if kind == "timestamp" and (without_zone(value) or isinstance(value, FarTime)) else value
