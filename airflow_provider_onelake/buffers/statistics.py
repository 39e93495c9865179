"""Statistics of a Parquet file from its footer, as Delta would have written them (protocol: sound statistics).

Delta computes statistics row by row, which costs a third of a write, although the Parquet writer has counted the same
things for its footer. Where both say the same, staging switches Delta's off, and the footers say them.

Engines skip a file by its bounds. So a bound must hold for every row as every engine compares it; a bound that is
wider, or missing, only costs time. Whatever is in doubt is left out.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.log.actions import Metadata, encode
from airflow_provider_onelake.log.schema import COLLATIONS, Column, columns, fields, partition_columns
from airflow_provider_onelake.log.types import INTEGERS, name_of, precision_and_scale
from airflow_provider_onelake.storage.clock import whole_number

if TYPE_CHECKING:
    import pyarrow.parquet as pq

INDEXED_COLUMNS = "delta.dataSkippingNumIndexedCols"
"""The property that says how many leaf columns of a table have statistics; -1 for all."""
_INDEXED_BY_DEFAULT = 32
# The property that names the columns with statistics. Where it is set, Delta ignores the number.
_INDEXED_BY_NAME = "delta.dataSkippingStatsColumns"

_LENGTH = 32
"""Delta keeps that many characters of a text."""
_LAST_ASCII, _LAST_CHARACTER = "\x7f", "\U0010ffff"

_WITHOUT_BOUNDS = frozenset({"boolean", "binary"})
_OF_INSTANTS = frozenset({"date", "timestamp", "timestamp_ntz"})
_SUPPORTED = _WITHOUT_BOUNDS | _OF_INSTANTS | {*INTEGERS, "float", "double", "string"}
# Metadata of a column by which its values compare in another way, or which older files have under another type.
_SPECIAL = (COLLATIONS, "delta.typeChanges")

# In these versions, NaN is the greatest number for the bounds that parquet-mr writes, as it is for Spark. Older
# versions passed over NaN, as other writers do, and later ones may.
_NAN_IS_GREATEST = re.compile(r"parquet-mr version 1\.1[0-7]\.")
# Spark writes these keys if it has shifted old dates to another calendar.
_SHIFTED = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is added as text
_MICROSECONDS = {"milliseconds": 1000, "microseconds": 1}

Bound = int | float | Decimal | str | None
"""A bound as JSON writes it; ``None`` where it is in doubt."""


@attrs.frozen
class Leaf:
    """A column that is no struct, or such a field inside structs.

    :param path: its physical name, after those of the structs that it is in.
    :param type: Delta's name of its type.
    """

    path: tuple[str, ...]
    type: str


def indexed_columns(metadata: Metadata) -> int | None:
    """Return how many leaf columns of a table have statistics, or ``None`` where Delta has to write them itself.

    :param metadata: of the table.
    """
    configuration = metadata.get("configuration") or {}
    count = whole_number(configuration.get(INDEXED_COLUMNS, _INDEXED_BY_DEFAULT))
    if _INDEXED_BY_NAME in configuration or count is None or count < -1:
        return None
    return count if indexed_leaves(metadata, count) else None


def indexed_leaves(metadata: Metadata, count: int) -> list[Leaf] | None:
    """Return the leaf columns with statistics, or ``None`` if a footer does not say those of all of them.

    Delta takes the first ones, depth first; partition columns have no statistics.

    :param metadata: of the table.
    :param count: how many have statistics; -1 for all.
    """
    partitioned_by = partition_columns(metadata)
    found: list[Leaf] = []
    for leaf in _leaves([column for name, column in columns(metadata).items() if name not in partitioned_by]):
        if count >= 0 and len(found) == count:
            break
        if leaf.type not in _SUPPORTED and precision_and_scale(leaf.type) is None:
            return None
        found.append(leaf)
    return found


def _leaves(within: Iterable[Column], prefix: tuple[str, ...] = (), special: bool = False) -> Iterator[Leaf]:
    for column in within:
        path, odd = (*prefix, column.physical_name), special or any(key in column.metadata for key in _SPECIAL)
        if isinstance(column.type, Mapping) and column.type["type"] == "struct":
            yield from _leaves(fields(column.type), path, odd)
        else:
            yield Leaf(path, "special" if odd else name_of(column.type))


def completed(stats: str, footer: pq.FileMetaData, leaves: Sequence[Leaf]) -> str:
    """Return the statistics of an ``add`` with what the footer of its file says.

    Statistics are returned unchanged if they have bounds or null counts already, or do not fit the footer.

    :param stats: as Spark wrote them.
    :param leaves: the columns that get statistics.
    """
    said = json.loads(stats)
    if any(said.get(part) for part in ("minValues", "maxValues", "nullCount")):
        return stats
    if said.get("numRecords") != footer.num_rows:
        return stats
    return _json({**said, **statistics(footer, leaves)})


def statistics(footer: pq.FileMetaData, leaves: Sequence[Leaf]) -> dict[str, Any]:
    """Return ``minValues``, ``maxValues`` and ``nullCount`` of a file.

    :param leaves: the columns that get statistics.
    """
    paths = [footer.schema.column(number).path for number in range(footer.num_columns)]
    numbers = {path: number for number, path in enumerate(paths)}
    # A name may have a dot in it, so the column `a.b` looks like the field `b` of `a`.
    times, wanted = Counter(paths), Counter(".".join(leaf.path) for leaf in leaves)
    result: dict[str, Any] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for leaf in leaves:
        path = ".".join(leaf.path)
        if times[path] == wanted[path] == 1:
            for part, value in zip(result, _of_leaf(footer, numbers[path], leaf), strict=True):
                if value is not None:
                    _put(result[part], leaf.path, value)
    return result


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Bound) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _of_leaf(footer: pq.FileMetaData, number: int, leaf: Leaf) -> tuple[Bound, Bound, int | None]:
    """Return a column's lower bound, upper bound and number of nulls; ``None`` for each that is in doubt."""
    nulls, ranges, bounded = 0, [], True
    if footer.schema.column(number).max_repetition_level:
        return None, None, None
    for group in map(footer.row_group, range(footer.num_row_groups)):
        chunk = group.column(number)
        said = chunk.statistics
        if said is None or not said.has_null_count or chunk.num_values != group.num_rows:
            return None, None, None
        nulls += said.null_count
        if said.null_count == group.num_rows:
            continue
        # A text's upper bound that is empty may stand for one that is missing.
        if said.has_min_max and said.max_raw != b"":
            ranges.append((said.min_raw, said.max_raw))
        else:
            bounded = False
    kind = _kind(footer, number, leaf) if bounded and ranges else None
    if kind is None:
        return None, None, nulls
    read, low, high = kind
    read_ranges = [(read(least), read(greatest)) for least, greatest in ranges]
    if any(_order(least) > _order(greatest) for least, greatest in read_ranges):
        return None, None, nulls
    lowest = min((least for least, _ in read_ranges), key=_order)
    highest = max((greatest for _, greatest in read_ranges), key=_order)
    return low(lowest), high(highest), nulls


def _order(value: Any) -> tuple[bool, Any, float]:
    """Order values as Spark does, but for the negative zero, which some engines put before zero."""
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1.0, value)
    return False, value, 0.0


_Kind = tuple[Callable[[Any], Any], Callable[[Any], Bound], Callable[[Any], Bound]]


def _kind(footer: pq.FileMetaData, number: int, leaf: Leaf) -> _Kind | None:
    """Return how to read a bound of a column, and how Delta writes a lower and an upper one.

    Return ``None`` if the bounds of the column's type say nothing, or if the file has it in another form than Spark
    writes.
    """
    column = footer.schema.column(number)
    physical = column.physical_type
    logical = json.loads(column.logical_type.to_json())
    kind = logical["Type"]
    if leaf.type in INTEGERS:
        signed = kind == "None" or (kind == "Int" and logical["isSigned"])
        expected = "INT64" if leaf.type == "long" else "INT32"
        return (_as_it_is, _as_it_is, _as_it_is) if signed and physical == expected else None
    if leaf.type == "string":
        text = physical == "BYTE_ARRAY" and kind == "String"
        return (_as_it_is, _text_below, _text_above) if text else None
    if scaled := precision_and_scale(leaf.type):
        same = kind == "Decimal" and (logical["precision"], logical["scale"]) == scaled
        exact = partial(_decimal, precision_scale=scaled)
        return (_unscaled, exact, exact) if same else None
    if leaf.type in ("float", "double"):
        trusted = physical == leaf.type.upper() and _NAN_IS_GREATEST.match(footer.created_by or "")
        return (_as_it_is, _number, _number) if trusted else None
    if leaf.type in _OF_INSTANTS and not any(key in (footer.metadata or {}) for key in _SHIFTED):
        if leaf.type == "date":
            return (_as_it_is, _date, _date) if (physical, kind) == ("INT32", "Date") else None
        zoned = leaf.type == "timestamp"
        unit = _MICROSECONDS.get(logical.get("timeUnit", ""))
        if physical == "INT64" and kind == "Timestamp" and logical["isAdjustedToUTC"] == zoned and unit:
            zone = "Z" if zoned else ""
            return (
                _as_it_is,
                partial(_instant, unit=unit, zone=zone, upwards=False),
                partial(_instant, unit=unit, zone=zone, upwards=True),
            )
    return None


def _as_it_is(value: Any) -> Any:
    return value


def _number(value: float) -> Bound:
    # Readers disagree whether the negative zero is less than zero.
    return None if not math.isfinite(value) or (value == 0 and math.copysign(1.0, value) < 0) else value


def _unscaled(value: int | bytes) -> int:
    return int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else value


def _decimal(unscaled: int, precision_scale: tuple[int, int]) -> Bound:
    precision, scale = precision_scale
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale)) if len(digits) <= precision else None


def _date(days: int) -> Bound:
    try:
        return date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (ValueError, OverflowError):
        return None


def _instant(value: int, unit: int, zone: str, upwards: bool) -> Bound:
    """Return an instant in whole milliseconds, which is all that Delta keeps.

    Delta cuts an upper bound too, and lets its readers add a millisecond. Not every reader does, so go upwards there.
    """
    microseconds = value * unit
    milliseconds = -(-microseconds // 1000) if upwards else microseconds // 1000
    try:
        return f"{(_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec='milliseconds')}{zone}"
    except OverflowError:
        return None


def _text_below(value: bytes) -> Bound:
    text = _text(value)
    return None if text is None else text[:_LENGTH]


def _text_above(value: bytes) -> Bound:
    """Return a text that is not less than a value: itself, or its beginning and a character above the one cut off."""
    text = _text(value)
    if text is None or len(text) <= _LENGTH:
        return text
    above = next((last for last in (_LAST_ASCII, _LAST_CHARACTER) if text[_LENGTH] < last), None)
    return None if above is None else text[:_LENGTH] + above


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _json(value: Any) -> str:
    """Return JSON as a log has it; decimals are exact numbers, which Python's own encoder cannot write."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{encode(key)}:{_json(item)}" for key, item in value.items()) + "}"
    return format(value, "f") if isinstance(value, Decimal) else encode(value)
