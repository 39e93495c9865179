"""Filters in Spark SQL that are true of exactly the rows whose column has one of some values.

A plan knows the values and not the column's type. Spark brings both sides of a comparison to one type, by rules that
depend on the column's type, on ANSI mode, and on whether the literal stands in an IN. So a value is written as a
literal of its own type, compared by ``=``, and the filter asks for the column's type (``typeof``, which Spark answers
when it plans) where one literal is not right for every type:

- a column of text is compared with text, or else ``'01'`` would be the number 1;
- a FLOAT is compared with a FLOAT, because 0.1 as a FLOAT is another number than 0.1 as a DOUBLE or a DECIMAL.

``tests/integration/spark/test_plan_filters.py`` compares the answers with Spark's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import PlanError
from airflow_provider_onelake.log.values import to_single

# Longer ones are no literals of a DECIMAL.
_MOST_DIGITS = 38
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")

_WHOLE = re.compile(r"[+-]?[0-9]+")


@attrs.frozen
class _Spelled:
    """One value as Spark SQL.

    :param text: as a column of text has it.
    :param literal: of the value's own type.
    :param single: as a FLOAT, where that is another number.
    """

    text: str
    literal: str
    single: str | None = None


def filter_of(column: str, values: Iterable[Any]) -> str:
    """Return a filter for the rows whose column has one of some values.

    :param column: its name.
    :param values: ``None`` is NULL.
    :raises PlanError: a value is of a kind that has no such filter.
    """
    name = f"`{column.replace('`', '``')}`"
    values = [_plain(value) for value in values]
    spelled = [_spelled(value) for value in values if value is not None]
    return " OR ".join([*_parts(name, spelled), *([f"{name} IS NULL"] if None in values else [])])


def check_distinct(values: Iterable[Any]) -> None:
    """Refuse values of which two may be one value of the column, so that two writers would read its rows.

    Two texts are not refused: in a column of text, ``'1'`` and ``'01'`` are two values.

    :raises PlanError: there are such values.
    """
    seen: dict[Any, Any] = {}
    for value in map(_plain, values):
        key = _compared(value)
        other = value if key is None else seen.setdefault(key, value)
        if other is not value and not (isinstance(other, str) and isinstance(value, str)):
            raise PlanError(
                f"sizes: {other!r} and {value!r} are one value in some types of columns, and two writers would read "
                "its rows. Nothing was planned: give each value once, and all of them in one type."
            )


def _plain(value: Any) -> Any:
    """Return a value of numpy as Python has it."""
    return value.item() if type(value).__module__ == "numpy" else value


def _parts(name: str, spelled: Sequence[_Spelled]) -> list[str]:
    """Return the filters that are joined by OR, one for each that asks for the column's type in another way."""
    plain = [f"{name} = {one.literal}" for one in spelled if one.literal == one.text]
    typed = [one for one in spelled if one.literal != one.text]
    if not typed:
        return plain
    as_text = " OR ".join(f"{name} = {one.text}" for one in typed)
    as_typed = " OR ".join(f"{name} = {one.literal}" for one in typed)
    if any(one.single for one in typed):
        as_float = " OR ".join(f"{name} = {one.single or one.literal}" for one in typed)
        as_typed = f"IF(typeof({name}) = 'float', {as_float}, {as_typed})"
    return [*plain, f"IF(typeof({name}) LIKE 'string%', {as_text}, {as_typed})"]


def _spelled(value: Any) -> _Spelled:
    if isinstance(value, bool):
        return _Spelled(_quoted(str(value).lower()), str(value).lower())
    if isinstance(value, bytes):
        literal = f"X'{value.hex().upper()}'"
        return _Spelled(literal, literal)
    if isinstance(value, datetime):
        instant = _in_utc(value)
        text = instant.isoformat(" ", "seconds") + f".{instant.microsecond:06d}".rstrip("0").rstrip(".")
        return _Spelled(_quoted(text), f"TIMESTAMP '{text}'")
    if isinstance(value, date):
        return _Spelled(_quoted(value.isoformat()), f"DATE '{value.isoformat()}'")
    if isinstance(value, float) and not math.isfinite(value):
        return _Spelled(_quoted(str(value)), f"CAST({_quoted(str(value))} AS DOUBLE)")
    if isinstance(value, str | int | float | Decimal):
        return _number(str(value)) or _Spelled(_quoted(str(value)), _quoted(str(value)))
    raise PlanError(
        f"sizes: {value!r} is of the type {type(value).__name__}, of which no filter is made. Nothing was planned: "
        "give texts, numbers, booleans, dates, times, bytes, or None for NULL."
    )


def _number(text: str) -> _Spelled | None:
    """Return a number, or a text that a column of numbers may take for one; ``None`` for any other text."""
    if not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    literal = format(number, "f")
    if sum(map(str.isdigit, literal)) > _MOST_DIGITS:
        literal = f"{text}D"
    single, nearest = None, to_single(text)
    if Decimal(nearest) != number:
        # A whole number that no FLOAT is must not be rounded to one; of a fraction, people mean the nearest.
        rounded = math.isfinite(nearest) and not _WHOLE.fullmatch(text)
        single = f"CAST({_quoted(text)} AS FLOAT)" if rounded else f"{text}D"
    return _Spelled(_quoted(text), literal, single)


def _compared(value: Any) -> Any:
    """Return what is equal for values that are one in some types of columns; ``None`` where only equal ones are one."""
    if isinstance(value, datetime):
        return _in_utc(value)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001 - in UTC, as sessions that stage rows are
    is_number = isinstance(value, str | int | float | Decimal) and not isinstance(value, bool)
    return Decimal(str(value)) if is_number and _NUMBER.fullmatch(str(value)) else None


def _in_utc(value: datetime) -> datetime:
    """Return an instant as the sessions that stage rows spell it, which are in UTC."""
    value = value if value.tzinfo is None else value.astimezone(UTC)
    # Subclasses, such as pendulum's and those of pandas, spell themselves in other ways.
    return datetime(*value.timetuple()[:6], value.microsecond)  # noqa: DTZ001


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
