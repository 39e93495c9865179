"""How Spark compares a column with a literal, decided only where its settings do not matter.

A comparison is a condition: a function of what is known of a file or a partition, with three outcomes, as in SQL. A
pair of a column type and a literal for which Spark's answer depends on ANSI mode or other settings is refused, and the
error names the spelling to use. ``tests/integration/spark/test_predicates.py`` compares the answers with Spark's own.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import attrs

from airflow_provider_onelake.log.bounds import Bounds
from airflow_provider_onelake.log.types import INTEGERS, JsonType, name_of, precision_and_scale, sql_name
from airflow_provider_onelake.log.values import (
    date_of,
    days_in,
    days_of,
    digits,
    fits,
    floating,
    integer,
    micros_in,
    micros_of,
    time_of,
    to_single,
    trimmed,
)

# A condition returns the set of its possible outcomes on the rows of a file, as bits, by what is known of each column's
# values in it. All rows of a partition have one value of its columns, so there the set has one outcome, unless that
# value is unknown: it cannot be read, or it is an instant without a time zone.
TRUE, FALSE, NULL = 1, 2, 4
ANY = TRUE | FALSE | NULL
Condition = Callable[[Sequence[Bounds]], int]

MOST_DIGITS = 38
# A double represents every decimal of up to this many digits without mixing two of them up.
_DOUBLE_DIGITS = 15
_INTEGER_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<=>": operator.eq,
}
_NEGATED = {"=": "<>", "<=>": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}

TYPED = {"DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMP_LTZ": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz"}
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
# Spark's own spelling of a time. In an IN, Spark may compare strings, so only this spelling is safe there.
_CANONICAL_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{0,5}[1-9])?")
_CUT_DATE = re.compile(r"[+-]?[0-9]{4,7}(?:-[0-9]{1,2})?")

# For messages: how a literal for a column of each type is written.
EXAMPLES: Mapping[str, str] = {
    **dict.fromkeys(INTEGERS, "10"),
    "float": "0.5e0",
    "double": "0.5e0",
    "decimal": "1.50",
    "boolean": "true",
    "date": "DATE '2019-01-31'",
    "timestamp": "TIMESTAMP '2019-01-31 12:00:00'",
    "timestamp_ntz": "TIMESTAMP_NTZ '2019-01-31 12:00:00'",
    "binary": "X'0A'",
}
_CALLED = {
    "string": "a string",
    **dict.fromkeys(("integer", "decimal", "double", "float"), "a number"),
    "boolean": "a boolean",
    "date": "a DATE",
    "timestamp": "a TIMESTAMP",
    "timestamp_ntz": "a TIMESTAMP_NTZ",
    "binary": "a binary value",
}


@attrs.frozen
class Literal:
    """A literal as Spark reads it.

    :param kind: ``null``, or a key of :data:`_CALLED`.
    :param value: the literal's value as a Python object.
    :param text: the literal as the user wrote it.
    """

    kind: str
    value: Any
    text: str


@attrs.frozen
class PartitionColumn:
    """A column that a predicate may name.

    :param place: where a file has what is known of the column.
    """

    name: str
    type: JsonType
    place: int


class RefusedError(ValueError):
    """The predicate is refused; the text says why."""


def days_of_text(text: str) -> int:
    """Return the days from 1970-01-01 to a date as people write it in SQL, where month and day may be missing.

    :raises ValueError: the text is no date.
    """
    plain = trimmed(text)
    if _CUT_DATE.fullmatch(plain):
        # Spark reads 2019 and 2019-01 as the first day of that year or month.
        plain += "-01" * (2 - plain.count("-", 1))
    return days_of(plain)


# Both sides of a comparison become keys that Python orders as Spark orders the values.
@attrs.frozen
class Pair:
    """How a column is compared with a literal.

    :param domain: what both sides are compared as. All literals of one IN must have the same domain.
    :param key: turns a value of the column into its key.
    :param literal: the literal's key.
    """

    domain: str
    key: Callable[[Any], Any]
    literal: Any


def _same(value: Any) -> Any:
    return value


def _double(value: Any) -> tuple[bool, float]:
    # In Spark, NaN equals NaN and is greater than any other number.
    number = float(value)
    return (True, 0.0) if number != number else (False, number)


def pair_of(column: PartitionColumn, literal: Literal, *, listed: bool) -> Pair:
    """Say how Spark compares a column with a literal.

    :param listed: whether the literal stands in an IN, where Spark may compare strings.
    :raises RefusedError: the way in which Spark compares them depends on its settings.
    """
    kind = column.type if isinstance(column.type, str) else "nested"
    if literal.kind == "string" and kind not in ("string", "binary"):
        literal = _from_string(column, kind, literal, listed=listed)
    given = literal.kind
    value = literal.value
    if kind in INTEGERS:
        if given == "integer":
            return Pair("exact", _same, value)
        # Refuse a decimal beyond a BIGINT: Spark 4.2 takes NULL to be less than such a decimal.
        if given == "decimal" and abs(value) < 1 << 63 and _room(Decimal("9" * _INTEGER_DIGITS[kind]), value):
            return Pair("exact", _same, value)
        if given == "double" or (given == "float" and kind in ("byte", "short")):
            return Pair("double", _double, _double(value))
    elif kind in ("float", "double"):
        if given in ("double", "float"):
            return Pair("double", _double, _double(value))
        if given in ("integer", "decimal") and (kind == "double" or _is_single(value, given)):
            return Pair("double", _double, _double(value))
    elif (sized := precision_and_scale(kind)) is not None:
        if given in ("integer", "decimal") and _fits_beside(*sized, value, listed=listed):
            return Pair("exact", _same, value)
        if given in ("double", "float"):
            return Pair("double", _double, _double(value))
    elif kind in ("date", "timestamp", "timestamp_ntz"):
        if kind == given == "date":
            return Pair("days", days_in, days_in(value))
        if given in ("date", "timestamp", "timestamp_ntz"):
            return Pair("micros", micros_in, micros_in(value))
    elif kind == given and kind in ("string", "boolean", "binary"):
        return Pair(kind, _same, value)
    raise _mismatch(column, kind, literal)


def _room(*numbers: Decimal) -> bool:
    """Say whether one decimal type can hold all of these numbers; if none can, Spark rounds or gives up."""
    counts = [digits(number) for number in numbers]
    return max(before for before, _ in counts) + max(behind for _, behind in counts) <= MOST_DIGITS


def _fits_beside(precision: int, scale: int, value: Any, *, listed: bool) -> bool:
    widest = Decimal((0, (9,) * precision, -scale))
    # In an IN, Spark gives a whole number as many digits as its type can have.
    return _room(widest, Decimal("9" * 20) if listed and isinstance(value, int) else Decimal(value))


def _is_single(value: Any, given: str) -> bool:
    exact = Decimal(value)
    return Decimal(to_single(str(exact))) == exact if given == "integer" else True


def _from_string(column: PartitionColumn, kind: str, literal: Literal, *, listed: bool) -> Literal:
    """Return the literal of the column's type that a string stands for; refuse it where Spark's mode matters."""
    text = literal.value
    refused = _mismatch(column, kind, literal)
    try:
        if kind in INTEGERS:
            if listed and not _WHOLE.fullmatch(text):
                raise refused
            return Literal("integer", integer(text, kind), literal.text)
        if kind in ("float", "double"):
            number = floating(text, single=False)
            # Spark's mode decides whether it compares a FLOAT with the string as floats or as doubles.
            if listed or (kind == "float" and not (number != number or floating(text, single=True) == number)):
                raise refused
            return Literal("double", number, literal.text)
        if kind == "boolean" and not listed and text in ("true", "false"):
            return Literal("boolean", text == "true", literal.text)
        if kind == "date":
            day = date_of(days_of_text(text))
            if not listed or str(day) == text:
                return Literal("date", day, literal.text)
        if kind in ("timestamp", "timestamp_ntz") and (not listed or _CANONICAL_TIME.fullmatch(text)):
            micros, offset = micros_of(trimmed(text))
            if kind == "timestamp" or offset is None:
                return Literal(kind, time_of(micros, 0 if kind == "timestamp" else None), literal.text)
        if (sized := precision_and_scale(kind)) is not None:
            precision, scale = sized
            exact = Decimal(text) if re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?", text) else None
            plain = exact is not None and precision <= _DOUBLE_DIGITS and fits(exact, precision, scale)
            if plain and (not listed or format(exact, f".{scale}f") == text):
                return Literal("decimal", exact, literal.text)
    except ValueError:
        raise refused from None
    raise refused


def _mismatch(column: PartitionColumn, kind: str, literal: Literal) -> RefusedError:
    called = sql_name(kind)
    if kind == "string":
        text = literal.text.split(" ", 1)[1] if literal.kind in TYPED.values() else f"'{literal.text}'"
        return RefusedError(
            f"{column.name} is STRING and {literal.text} is {_CALLED[literal.kind]}, so Spark would compare the values "
            f"as that, not as text: write {text} to compare text, character by character ('9' is greater than '10')"
        )
    example = EXAMPLES.get(kind.split("(")[0])
    if example is None:
        return RefusedError(
            f"{column.name} is {called}, which Spark compares by rules of its own: only IS NULL and IS NOT NULL can be "
            "said of it"
        )
    return RefusedError(
        f"{column.name} is {called} and {literal.text} is {_CALLED[literal.kind]} that Spark does not compare with it, "
        f"or not in the same way under all settings: write a literal of the column's type, such as {example}"
    )


def pairs_in_list(column: PartitionColumn, items: Sequence[Literal]) -> list[Pair]:
    """Say how Spark compares a column with each literal of an IN that is not NULL; all have the same domain.

    :raises RefusedError: Spark's answer depends on its settings, or the literals are of several kinds.
    """
    pairs = [pair_of(column, item, listed=True) for item in items if item.kind != "null"]
    strings = {item.kind == "string" for item in items if item.kind != "null"}
    if len({pair.domain for pair in pairs}) > 1 or len(strings) > 1:
        raise RefusedError(
            f"the IN of {column.name} mixes kinds of literals, which Spark brings to one type before it compares: "
            "write them all in one way"
        )
    exact = [Decimal(pair.literal) for pair in pairs if pair.domain == "exact"]
    if exact and not _room(*exact, Decimal("9" * _INTEGER_DIGITS.get(name_of(column.type), 1))):
        raise RefusedError(f"the numbers in the IN of {column.name} have more than {MOST_DIGITS} digits together")
    return pairs


def compared(column: PartitionColumn, sign: str, pairs: Sequence[Pair], without: int = FALSE) -> Condition:
    """Return the condition that a column stands in a relation to a literal, or to one of several.

    :param sign: a key of :data:`COMPARISONS`; of several literals, ``=``.
    :param pairs: how the column is compared with each literal; at least one, all of the same domain.
    :param without: the outcome for a value that is none of the literals.
    """
    at_null = FALSE if sign == "<=>" else NULL
    key, literals = pairs[0].key, frozenset(pair.literal for pair in pairs)

    def test(file: Sequence[Bounds]) -> int:
        bounds = file[column.place]
        bits = at_null if bounds.nulls else 0
        if bounds.values:
            low = None if bounds.low is None else key(bounds.low)
            high = None if bounds.high is None else key(bounds.high)
            if low is not None and low == high:
                holds = low in literals if sign in ("=", "<=>") else COMPARISONS[sign](low, pairs[0].literal)
                return bits | (TRUE if holds else without)
            bits |= TRUE if _possible(sign, low, high, literals) else 0
            bits |= without if _possible(_NEGATED[sign], low, high, literals) else 0
        # If nothing seems possible, then the bounds contradict themselves, so they say nothing.
        return bits or ANY

    return test


def _possible(sign: str, low: Any, high: Any, literals: Collection[Any]) -> bool:
    """Say whether a value within bounds, which are not the same, may stand in a relation to one of the literals."""
    if sign == "<>":
        return True
    if sign in ("<", "<="):
        return low is None or any(COMPARISONS[sign](low, literal) for literal in literals)
    if sign in (">", ">="):
        return high is None or any(COMPARISONS[sign](high, literal) for literal in literals)
    return any((low is None or low <= literal) and (high is None or literal <= high) for literal in literals)


def is_null(column: PartitionColumn) -> Condition:
    """Return the condition that a column is NULL."""

    def test(file: Sequence[Bounds]) -> int:
        bounds = file[column.place]
        return (TRUE if bounds.nulls else 0) | (FALSE if bounds.values else 0)

    return test


def constant(outcome: int) -> Condition:
    """Return the condition that has this outcome on every file."""
    return lambda file: outcome


def _both(left: int, right: int) -> int:
    found = (left & right & TRUE) | ((left | right) & FALSE)
    with_null = (left & NULL and right & (NULL | TRUE)) or (right & NULL and left & TRUE)
    return found | NULL if with_null else found


_NOT = [(bits & NULL) | (FALSE if bits & TRUE else 0) | (TRUE if bits & FALSE else 0) for bits in range(ANY + 1)]


def negated(condition: Condition) -> Condition:
    """Return the condition that another one does not hold; it is unknown where the other is."""
    return lambda file: _NOT[condition(file)]


def all_of(conditions: Sequence[Condition]) -> Condition:
    """Return the condition that all of these conditions hold; there must be at least one."""
    return lambda file: reduce(_both, (condition(file) for condition in conditions))


def any_of(conditions: Sequence[Condition]) -> Condition:
    """Return the condition that one of these conditions holds; there must be at least one."""
    return conditions[0] if len(conditions) == 1 else negated(all_of([negated(each) for each in conditions]))
