"""Predicates on partition columns: this module reads them as Spark does, and they are true where Spark says so.

A comparison is decided here only where Spark gives the same answer with ANSI mode on and off. Every other pair of a
column type and a literal is refused, and the error names the spelling to use.
``tests/integration/spark/test_predicates.py`` compares the answers with Spark's own. Times without a zone are in UTC,
as in every session that stages rows.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.values import (
    INTEGERS,
    Partition,
    PartitionValue,
    Unreadable,
    date_of,
    days_in,
    days_of,
    digits,
    fits,
    floating,
    integer,
    micros_in,
    micros_of,
    precision_and_scale,
    time_of,
    to_single,
    without_zone,
)

# A condition returns the set of its possible outcomes on a partition, as bits. The set has more than one outcome where
# a partition value is unknown: it cannot be read, or it is an instant without a time zone.
TRUE, FALSE, NULL = 1, 2, 4
_ANY = TRUE | FALSE | NULL
Condition = Callable[[Partition], int]

_MOST_DIGITS = 38
# A double represents every decimal of up to this many digits without mixing two of them up.
_DOUBLE_DIGITS = 15
_DEEPEST = 100
_LARGEST_SINGLE = 3.4028234663852886e38

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*(?![+])(?:(?!\*/|/\*).)*\*/)
    |(?P<string>[rR]?(?:'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"))
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:BD|[LSYFD])?(?![A-Za-z0-9_.]))
    |(?P<name>`(?:[^`]|``)+`|[^\W0-9]\w*|[0-9]+\w*)
    |(?P<operator><=>|<=|>=|<>|!=|==|[=<>!(),+\-.;])
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_RAW = re.compile(r"""[rR]('[^']*'|"[^"]*")""", re.DOTALL)
_NUMBER = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)(bd|[lsyfd])?", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_SUFFIXES = {"l": "long", "s": "short", "y": "byte"}
_KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "IS", "BETWEEN", "NULL", "TRUE", "FALSE"})
_TYPED = {"DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMP_LTZ": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz"}

_SQL_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<=>": operator.eq,
}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
# Spark's own spelling of a time. In an IN, Spark may compare strings, so only this spelling is safe there.
_CANONICAL_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{0,5}[1-9])?")
_CUT_DATE = re.compile(r"[+-]?[0-9]{4,7}(?:-[0-9]{1,2})?")

# For messages: how a literal for a column of each type is written.
_EXAMPLES: Mapping[str, str] = {
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
    "integer": "a number",
    "decimal": "a number",
    "double": "a number",
    "float": "a number",
    "boolean": "a boolean",
    "date": "a DATE",
    "timestamp": "a TIMESTAMP",
    "timestamp_ntz": "a TIMESTAMP_NTZ",
    "binary": "a binary value",
}


@attrs.frozen
class _Token:
    kind: str
    text: str

    def is_word(self, *words: str) -> bool:
        return self.kind == "name" and self.text.upper() in words

    def is_operator(self, *operators: str) -> bool:
        return self.kind == "operator" and self.text in operators


@attrs.frozen
class _Literal:
    """A literal as Spark reads it.

    :param kind: ``null``, or a key of :data:`_CALLED`.
    :param value: the literal's value as a Python object.
    :param text: the literal as the user wrote it.
    """

    kind: str
    value: Any
    text: str


@attrs.frozen
class _Column:
    name: str
    type: Any
    place: int


class _RefusedError(ValueError):
    """The predicate is refused; the text says why."""


def compile_predicate(text: str, types: Mapping[str, Any]) -> Condition:
    """Turn a predicate into a function of a partition.

    :param text: the predicate, in Spark SQL.
    :param types: Spark's type names by partition column, in order.
    :returns: a function that returns the possible outcomes, as bits: exactly one of ``TRUE``, ``FALSE`` and ``NULL``
        where all values of the partition are known.
    :raises InvalidWriteError: the text is no predicate on partition columns, or Spark's answer depends on its settings.
    """
    try:
        return _Parser(text, types).whole()
    except _RefusedError as refused:
        raise InvalidWriteError(
            f"The predicate {text!r} cannot be used: {refused}. It may compare partition columns with literals (=, <>, "
            "<, <=, >, >=, <=>, IN, BETWEEN, IS NULL), joined by AND, OR and NOT. Nothing was changed."
        ) from None


class _Parser:
    """Reads Spark's grammar of a condition, restricted to columns and literals."""

    def __init__(self, text: str, types: Mapping[str, Any]) -> None:
        self._columns = {name.lower(): _Column(name, kind, at) for at, (name, kind) in enumerate(types.items())}
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def whole(self) -> Condition:
        condition = self._or()
        if self._peek().kind != "end":
            raise self._unexpected()
        return condition

    def _or(self) -> Condition:
        parts = [self._and()]
        while self._take_word("OR"):
            parts.append(self._and())
        return _any_of(parts)

    def _and(self) -> Condition:
        parts = [self._not()]
        while self._take_word("AND"):
            parts.append(self._not())
        return _all_of(parts)

    def _not(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _RefusedError("it is nested too deeply")
        try:
            if self._take_word("NOT") or self._take_operator("!"):
                return _negated(self._not())
            return self._simple()
        finally:
            self._depth -= 1

    def _simple(self) -> Condition:
        if self._take_operator("("):
            condition = self._or()
            self._expect(")")
            return condition
        column = self._column_here()
        if column is not None:
            return self._of_column(column)
        left = self._literal()
        if left.kind == "boolean" and self._ends_here():
            return _constant(TRUE if left.value else FALSE)
        sign = self._comparison()
        column = self._column_here()
        if column is None:
            raise _RefusedError(f"{self._peek().text!r} is no column")
        return _compared(column, _FLIPPED.get(sign, sign), left)

    def _of_column(self, column: _Column) -> Condition:
        negative = self._take_word("NOT")
        condition: Condition
        if self._take_word("IN"):
            self._expect("(")
            items = [self._literal()]
            while self._take_operator(","):
                items.append(self._literal())
            self._expect(")")
            condition = _in_list(column, items)
        elif self._take_word("BETWEEN"):
            low = self._literal()
            if not self._take_word("AND"):
                raise self._unexpected()
            condition = _all_of([_compared(column, ">=", low), _compared(column, "<=", self._literal())])
        elif negative:
            raise self._unexpected()
        elif self._take_word("IS"):
            negative = self._take_word("NOT")
            if not self._take_word("NULL"):
                raise self._unexpected()
            condition = _is_null(column)
        elif column.type == "boolean" and self._ends_here():
            condition = _compared(column, "=", _Literal("boolean", True, "true"))
        else:
            sign = self._comparison()
            condition = _compared(column, sign, self._literal())
        return _negated(condition) if negative else condition

    def _column_here(self) -> _Column | None:
        """Take the next token if it names a column; return ``None`` if a literal begins there."""
        token = self._peek()
        if token.kind != "name" or token.is_word("NULL", "TRUE", "FALSE"):
            return None
        if self._tokens[self._at + 1].kind == "string" and not token.text.startswith("`"):
            return None
        if token.is_word(*_KEYWORDS):
            raise self._unexpected()
        self._at += 1
        name = token.text[1:-1].replace("``", "`") if token.text.startswith("`") else token.text
        following = self._peek()
        if following.is_operator("("):
            raise _RefusedError(f"{name}(…) is no column: functions and casts are refused")
        if following.is_operator("."):
            raise _RefusedError(f"{name!r} stands before a dot: write the partition column's name alone")
        found = self._columns.get(name.lower())
        if found is None:
            known = ", ".join(column.name for column in self._columns.values()) or "none"
            raise _RefusedError(f"{name!r} is no partition column (the table's are: {known})")
        return found

    def _literal(self) -> _Literal:
        token = self._next()
        sign = ""
        if token.is_operator("-", "+"):
            sign, token = token.text, self._next()
            if token.kind != "number":
                raise self._unexpected(token)
        if token.kind == "number":
            return _numeric(sign.replace("+", ""), token.text)
        if token.kind == "string":
            return self._string(token)
        word = token.text.upper() if token.kind == "name" else ""
        if word in ("NULL", "TRUE", "FALSE"):
            return _Literal("null" if word == "NULL" else "boolean", {"TRUE": True, "FALSE": False}.get(word), word)
        if token.kind == "name" and self._peek().kind == "string":
            return _typed(word, self._string(self._next()))
        if token.kind == "name" and self._peek().is_operator("("):
            raise _RefusedError(f"{token.text}(…) is no literal: functions, casts and queries are refused")
        if token.kind == "end":
            raise _RefusedError("it is not SQL: a literal is missing at its end")
        raise _RefusedError(f"{token.text!r} is no literal")

    def _string(self, token: _Token) -> _Literal:
        # Spark joins string literals that stand side by side.
        tokens = [token]
        while self._peek().kind == "string":
            tokens.append(self._next())
        return _Literal("string", "".join(map(_unquoted, tokens)), " ".join(each.text for each in tokens))

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _take_word(self, word: str) -> bool:
        found = self._peek().is_word(word)
        self._at += found
        return found

    def _take_operator(self, sign: str) -> bool:
        found = self._peek().is_operator(sign)
        self._at += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._take_operator(sign):
            raise self._unexpected()

    def _comparison(self) -> str:
        if not self._peek().is_operator(*_COMPARISONS):
            raise self._unexpected()
        return self._next().text

    def _ends_here(self) -> bool:
        token = self._peek()
        return token.kind == "end" or token.is_operator(")") or token.is_word("AND", "OR")

    def _unexpected(self, token: _Token | None = None) -> _RefusedError:
        token = token or self._peek()
        if token.kind == "end":
            return _RefusedError("it is not SQL: it ends too early")
        if token.is_word("LIKE", "ILIKE", "RLIKE", "REGEXP"):
            return _RefusedError(
                f"it has {token.text!r}: write a range instead, such as month >= '2019' AND month < '2020'"
            )
        return _RefusedError(f"it has {token.text!r} where it should not be")


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise _RefusedError(f"it is not SQL at {text[at : at + 20]!r}")
        at = match.end()
        if match.lastgroup != "space":
            yield _Token(match.lastgroup, match[0])
    # Yield two end tokens, so that the parser may look one token beyond the current one at the end too.
    yield _Token("end", "")
    yield _Token("end", "")


def _unquoted(token: _Token) -> str:
    text = token.text
    if text[0] in "rR":
        if not _RAW.fullmatch(text):
            raise _RefusedError(f"{text} is a raw string with a quote in it")
        return text[2:-1]
    inner, quote = text[1:-1], text[0]
    pieces, at = [], 0
    for match in _ESCAPE.finditer(inner):
        pieces += [inner[at : match.start()].replace(quote * 2, quote), _escaped(match[1])]
        at = match.end()
    whole = "".join([*pieces, inner[at:].replace(quote * 2, quote)])
    try:
        # Join a pair of surrogates that was written as two escapes into one character.
        return whole.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _RefusedError(f"{text} has half a character") from None


def _escaped(code: str) -> str:
    if len(code) == 1:
        return _ESCAPES.get(code, code)
    if code[0] in "uU":
        point = int(code[1:], 16)
        if point > 0x10FFFF:
            raise _RefusedError(f"\\{code} is no character")
        return chr(point)
    return chr(int(code, 8))


def _numeric(sign: str, text: str) -> _Literal:
    match = _NUMBER.fullmatch(text)
    assert match is not None
    spelling, suffix = sign + match[1], (match[2] or "").lower()
    written = sign + text
    whole = match[1].isdigit()
    if suffix in _SUFFIXES:
        try:
            return _Literal("integer", integer(spelling, _SUFFIXES[suffix]), written)
        except ValueError:
            raise _RefusedError(f"{written} is no number of its suffix") from None
    if suffix == "bd" or (not suffix and "e" not in match[1].lower()):
        exact = Decimal(spelling)
        if sum(digits(exact)) > _MOST_DIGITS or len(match[1]) > 2 * _MOST_DIGITS:
            raise _RefusedError(f"{written} has more than {_MOST_DIGITS} digits")
        if whole and not suffix and -(1 << 63) <= exact < (1 << 63):
            return _Literal("integer", int(exact), written)
        return _Literal("decimal", exact, written)
    number = to_single(spelling) if suffix == "f" else float(spelling)
    if abs(Decimal(spelling)) > Decimal(_LARGEST_SINGLE if suffix == "f" else 1.7976931348623157e308):
        raise _RefusedError(f"{written} is too large")
    return _Literal("float" if suffix == "f" else "double", number, written)


def _typed(word: str, string: _Literal) -> _Literal:
    """Return a literal such as DATE '2019-01-31'."""
    text = f"{word} {string.text}"
    if word == "X":
        if not re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", string.value):
            raise _RefusedError(f"{text} is no binary literal: write pairs of hexadecimal digits")
        return _Literal("binary", bytes.fromhex(string.value), text)
    kind = _TYPED.get(word)
    if kind is None:
        raise _RefusedError(f"{text} is no literal that is known here")
    try:
        if kind == "date":
            return _Literal(kind, date_of(_days_of(string.value)), text)
        micros, offset = micros_of(_trimmed(string.value))
    except ValueError:
        raise _RefusedError(f"{text} is no {kind.upper()}: write it like {_EXAMPLES[kind]}") from None
    if kind == "timestamp_ntz" and offset is not None:
        raise _RefusedError(f"{text} has a zone, and a TIMESTAMP_NTZ has none: leave it out")
    return _Literal(kind, time_of(micros, None if kind == "timestamp_ntz" else 0), text)


def _trimmed(text: str) -> str:
    return text.strip(" \t\n\r")


def _days_of(text: str) -> int:
    plain = _trimmed(text)
    if _CUT_DATE.fullmatch(plain):
        # Spark reads 2019 and 2019-01 as the first day of that year or month.
        plain += "-01" * (2 - plain.count("-", 1))
    return days_of(plain)


# Both sides of a comparison become keys that Python orders as Spark orders the values.
@attrs.frozen
class _Pair:
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


def _pair(column: _Column, literal: _Literal, *, listed: bool) -> _Pair:
    """Say how Spark compares a column with a literal.

    :param listed: whether the literal stands in an IN, where Spark may compare strings.
    :raises _RefusedError: the way in which Spark compares them depends on its settings.
    """
    kind = column.type if isinstance(column.type, str) else "nested"
    if literal.kind == "string" and kind not in ("string", "binary"):
        literal = _from_string(column, kind, literal, listed=listed)
    given = literal.kind
    value = literal.value
    if kind in INTEGERS:
        if given == "integer":
            return _Pair("exact", _same, value)
        # Refuse a decimal beyond a BIGINT: Spark 4.2 takes NULL to be less than such a decimal.
        if given == "decimal" and abs(value) < 1 << 63 and _room(Decimal("9" * _INTEGER_DIGITS[kind]), value):
            return _Pair("exact", _same, value)
        if given == "double" or (given == "float" and kind in ("byte", "short")):
            return _Pair("double", _double, _double(value))
    elif kind in ("float", "double"):
        if given in ("double", "float"):
            return _Pair("double", _double, _double(value))
        if given in ("integer", "decimal") and (kind == "double" or _is_single(value, given)):
            return _Pair("double", _double, _double(value))
    elif kind.startswith("decimal"):
        if given in ("integer", "decimal") and _fits_beside(kind, value, listed=listed):
            return _Pair("exact", _same, value)
        if given in ("double", "float"):
            return _Pair("double", _double, _double(value))
    elif kind in ("date", "timestamp", "timestamp_ntz"):
        if kind == given == "date":
            return _Pair("days", days_in, days_in(value))
        if given in ("date", "timestamp", "timestamp_ntz"):
            return _Pair("micros", micros_in, micros_in(value))
    elif kind == given and kind in ("string", "boolean", "binary"):
        return _Pair(kind, _same, value)
    raise _mismatch(column, kind, literal)


_INTEGER_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}


def _room(*numbers: Decimal) -> bool:
    """Say whether one decimal type can hold all of these numbers; if none can, Spark rounds or gives up."""
    counts = [digits(number) for number in numbers]
    return max(before for before, _ in counts) + max(behind for _, behind in counts) <= _MOST_DIGITS


def _fits_beside(kind: str, value: Any, *, listed: bool) -> bool:
    precision, scale = precision_and_scale(kind)
    widest = Decimal((0, (9,) * precision, -scale))
    # In an IN, Spark gives a whole number as many digits as its type can have.
    return _room(widest, Decimal("9" * 20) if listed and isinstance(value, int) else Decimal(value))


def _is_single(value: Any, given: str) -> bool:
    exact = Decimal(value)
    return Decimal(to_single(str(exact))) == exact if given == "integer" else True


def _from_string(column: _Column, kind: str, literal: _Literal, *, listed: bool) -> _Literal:
    """Return the literal of the column's type that a string stands for; refuse it where Spark's mode matters."""
    text = literal.value
    refused = _mismatch(column, kind, literal)
    try:
        if kind in INTEGERS:
            if listed and not _WHOLE.fullmatch(text):
                raise refused
            return _Literal("integer", integer(text, kind), literal.text)
        if kind in ("float", "double"):
            number = floating(text, single=False)
            # Spark's mode decides whether it compares a FLOAT with the string as floats or as doubles.
            if listed or (kind == "float" and not (number != number or floating(text, single=True) == number)):
                raise refused
            return _Literal("double", number, literal.text)
        if kind == "boolean" and not listed and text in ("true", "false"):
            return _Literal("boolean", text == "true", literal.text)
        if kind == "date":
            day = date_of(_days_of(text))
            if not listed or str(day) == text:
                return _Literal("date", day, literal.text)
        if kind in ("timestamp", "timestamp_ntz") and (not listed or _CANONICAL_TIME.fullmatch(text)):
            micros, offset = micros_of(_trimmed(text))
            if kind == "timestamp" or offset is None:
                return _Literal(kind, time_of(micros, 0 if kind == "timestamp" else None), literal.text)
        if kind.startswith("decimal"):
            precision, scale = precision_and_scale(kind)
            exact = Decimal(text) if re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?", text) else None
            plain = exact is not None and precision <= _DOUBLE_DIGITS and fits(exact, precision, scale)
            if plain and (not listed or format(exact, f".{scale}f") == text):
                return _Literal("decimal", exact, literal.text)
    except ValueError:
        raise refused from None
    raise refused


def _mismatch(column: _Column, kind: str, literal: _Literal) -> _RefusedError:
    called = _SQL_NAMES.get(kind, kind).upper()
    if kind == "string":
        text = literal.text.split(" ", 1)[1] if literal.kind in _TYPED.values() else f"'{literal.text}'"
        return _RefusedError(
            f"{column.name} is STRING and {literal.text} is {_CALLED[literal.kind]}, so Spark would compare the values "
            f"as that, not as text: write {text} to compare text, character by character ('9' is greater than '10')"
        )
    example = _EXAMPLES.get(kind.split("(")[0])
    if example is None:
        return _RefusedError(
            f"{column.name} is {called}, which Spark compares by rules of its own: only IS NULL and IS NOT NULL can be "
            "said of it"
        )
    return _RefusedError(
        f"{column.name} is {called} and {literal.text} is {_CALLED[literal.kind]} that Spark does not compare with it, "
        f"or not in the same way under all settings: write a literal of the column's type, such as {example}"
    )


def _compared(column: _Column, sign: str, literal: _Literal) -> Condition:
    place, null_safe = column.place, sign == "<=>"
    if literal.kind == "null":
        return _is_null(column) if null_safe else _constant(NULL)
    compare, pair = _COMPARISONS[sign], _pair(column, literal, listed=False)
    unknown, key, other = _unknown(column), pair.key, pair.literal
    at_null = FALSE if null_safe else NULL

    def test(partition: Partition) -> int:
        value = partition[place]
        if value is None:
            return at_null
        if unknown(value):
            return _ANY
        return TRUE if compare(key(value), other) else FALSE

    return test


def _in_list(column: _Column, items: Sequence[_Literal]) -> Condition:
    pairs = [_pair(column, item, listed=True) for item in items if item.kind != "null"]
    strings = {item.kind == "string" for item in items if item.kind != "null"}
    if len({pair.domain for pair in pairs}) > 1 or len(strings) > 1:
        raise _RefusedError(
            f"the IN of {column.name} mixes kinds of literals, which Spark brings to one type before it compares: "
            "write them all in one way"
        )
    exact = [Decimal(pair.literal) for pair in pairs if pair.domain == "exact"]
    if exact and not _room(*exact, Decimal("9" * _INTEGER_DIGITS.get(column.type, 1))):
        raise _RefusedError(f"the numbers in the IN of {column.name} have more than {_MOST_DIGITS} digits together")
    place, unknown = column.place, _unknown(column)
    wanted = {pair.literal for pair in pairs}
    key = pairs[0].key if pairs else _same
    without = NULL if len(pairs) < len(items) else FALSE

    def test(partition: Partition) -> int:
        value = partition[place]
        if value is None:
            return NULL
        if unknown(value):
            return _ANY
        return TRUE if key(value) in wanted else without

    return test


def _unknown(column: _Column) -> Callable[[PartitionValue], bool]:
    """Return a function that says whether a value of the column is unknown."""
    if column.type == "timestamp":
        return lambda value: isinstance(value, Unreadable) or without_zone(value)
    return lambda value: isinstance(value, Unreadable)


def _is_null(column: _Column) -> Condition:
    place = column.place

    def test(partition: Partition) -> int:
        value = partition[place]
        # Some engines read a value that they cannot parse as NULL, so both outcomes are possible.
        return TRUE | FALSE if isinstance(value, Unreadable) else TRUE if value is None else FALSE

    return test


def _constant(outcome: int) -> Condition:
    return lambda partition: outcome


def _outcomes(bits: int) -> list[int]:
    return [outcome for outcome in (TRUE, FALSE, NULL) if bits & outcome]


def _both(left: int, right: int) -> int:
    found = 0
    for one in _outcomes(left):
        for other in _outcomes(right):
            found |= FALSE if FALSE in (one, other) else NULL if NULL in (one, other) else TRUE
    return found


_AND = [[_both(left, right) for right in range(_ANY + 1)] for left in range(_ANY + 1)]
_NOT = [(bits & NULL) | (FALSE if bits & TRUE else 0) | (TRUE if bits & FALSE else 0) for bits in range(_ANY + 1)]


def _negated(condition: Condition) -> Condition:
    return lambda partition: _NOT[condition(partition)]


def _all_of(conditions: Sequence[Condition]) -> Condition:
    if len(conditions) == 1:
        return conditions[0]

    def test(partition: Partition) -> int:
        bits = TRUE
        for condition in conditions:
            bits = _AND[bits][condition(partition)]
        return bits

    return test


def _any_of(conditions: Sequence[Condition]) -> Condition:
    return conditions[0] if len(conditions) == 1 else _negated(_all_of([_negated(each) for each in conditions]))


def all_of(conditions: Sequence[Condition]) -> Condition:
    """Return the condition that all of these conditions hold; there must be at least one."""
    return _all_of(conditions)
