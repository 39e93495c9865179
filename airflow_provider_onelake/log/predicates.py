"""Reads predicates on partition columns as Spark's grammar does: tokens, literals, and what joins comparisons.

What a comparison means stands in ``comparisons.py``. Times without a zone are in UTC, as in every session that stages
rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.comparisons import (
    COMPARISONS,
    EXAMPLES,
    FALSE,
    MOST_DIGITS,
    NULL,
    TRUE,
    TYPED,
    Condition,
    Literal,
    PartitionColumn,
    RefusedError,
    all_of,
    any_of,
    compared,
    constant,
    days_of_text,
    is_null,
    negated,
    pair_of,
    pairs_in_list,
)
from airflow_provider_onelake.log.expressions import (
    AllOf,
    AnyOf,
    Compared,
    Constant,
    Expression,
    IsNull,
    Listed,
    Negated,
)
from airflow_provider_onelake.log.types import JsonType
from airflow_provider_onelake.log.values import date_of, digits, integer, micros_of, time_of, to_single, trimmed

_DEEPEST = 100
_LARGEST_SINGLE = 3.4028234663852886e38

# A comment ends at a carriage return too, and a backslash at the end of its line takes it on to the next one.
_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--(?:\\\n|[^\r\n])*|/\*(?![+])(?:(?!\*/|/\*).)*\*/)
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
_CONSTANTS = {
    "NULL": Literal("null", None, "NULL"),
    "TRUE": Literal("boolean", True, "TRUE"),
    "FALSE": Literal("boolean", False, "FALSE"),
}
_KEYWORDS = ("AND", "OR", "NOT", "IN", "IS", "BETWEEN", *_CONSTANTS)
_SAME = {"==": "=", "!=": "<>"}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@attrs.frozen
class _Token:
    kind: str
    text: str

    @property
    def name(self) -> str:
        """The name without its back quotes."""
        return self.text[1:-1].replace("``", "`") if self.text.startswith("`") else self.text

    def is_any(self, *words: str) -> bool:
        """Say whether the token is one of these operators or, in whatever case, of these words."""
        return self.kind in ("name", "operator") and self.text.upper() in words


def compile_predicate(text: str, types: Mapping[str, JsonType]) -> Condition:
    """Turn a predicate into a function of what is known of a partition, see ``log.bounds.exactly``.

    :param text: the predicate, in Spark SQL.
    :param types: Spark's type names by partition column, in order.
    :returns: a function that returns the possible outcomes, as bits: exactly one of ``TRUE``, ``FALSE`` and ``NULL``
        where all values of the partition are known.
    :raises InvalidWriteError: the text is no predicate on partition columns, or Spark's answer depends on its settings.
    """
    try:
        return condition_of(parse_expression(text, types, "partition column"))
    except RefusedError as refused:
        raise InvalidWriteError(
            f"The predicate {text!r} cannot be used: {refused}. It may compare partition columns with literals (=, <>, "
            "<, <=, >, >=, <=>, IN, BETWEEN, IS NULL), joined by AND, OR and NOT. Nothing was changed."
        ) from None


def parse_expression(text: str, types: Mapping[str, JsonType], called: str) -> Expression:
    """Read a predicate without asking whether its comparisons have a meaning.

    :param text: the predicate, in Spark SQL.
    :param types: Spark's type names by the columns that it may name, in order.
    :param called: what messages call such a column.
    :raises RefusedError: the text is no predicate on these columns.
    """
    return _Parser(text, types, called).whole()


def condition_of(expression: Expression) -> Condition:
    """Return the function of a file that an expression stands for.

    :raises RefusedError: Spark's answer depends on its settings.
    """
    match expression:
        case Constant(outcome):
            return constant(outcome)
        case Negated(inner):
            return negated(condition_of(inner))
        case AllOf(parts):
            return all_of([condition_of(part) for part in parts])
        case AnyOf(parts):
            return any_of([condition_of(part) for part in parts])
        case Compared(column, sign, literal):
            if literal.kind == "null":
                return is_null(column) if sign == "<=>" else constant(NULL)
            return compared(column, sign, [pair_of(column, literal, listed=False)])
        case Listed(column, items):
            pairs = pairs_in_list(column, items)
            without = NULL if len(pairs) < len(items) else FALSE
            return compared(column, "=", pairs, without) if pairs else constant(NULL)
        case IsNull(column):
            return is_null(column)


class _Parser:
    """Reads Spark's grammar of a condition, restricted to columns and literals."""

    def __init__(self, text: str, types: Mapping[str, JsonType], called: str) -> None:
        self._called = called
        self._columns = {name.lower(): PartitionColumn(name, kind, at) for at, (name, kind) in enumerate(types.items())}
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def whole(self) -> Expression:
        condition = self._or()
        if self._peek().kind != "end":
            raise self._unexpected()
        return condition

    def _or(self) -> Expression:
        parts = [self._and()]
        while self._take("OR"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _and(self) -> Expression:
        parts = [self._not()]
        while self._take("AND"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _not(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise RefusedError("it is nested too deeply")
        try:
            if self._take("NOT", "!"):
                return Negated(self._not())
            return self._simple()
        finally:
            self._depth -= 1

    def _simple(self) -> Expression:
        if self._take("("):
            condition = self._or()
            self._expect(")")
            return condition
        column = self._column_here()
        if column is not None:
            return self._of_column(column)
        left = self._literal()
        if left.kind == "boolean" and self._ends_here():
            return Constant(TRUE if left.value else FALSE)
        sign = self._comparison()
        column = self._column_here()
        if column is None:
            raise RefusedError(f"{self._peek().text!r} is no column")
        return Compared(column, _FLIPPED.get(sign, sign), left)

    def _of_column(self, column: PartitionColumn) -> Expression:
        negative = self._take("NOT")
        condition: Expression
        if self._take("IN"):
            self._expect("(")
            items = [self._literal()]
            while self._take(","):
                items.append(self._literal())
            self._expect(")")
            condition = Listed(column, tuple(items))
        elif self._take("BETWEEN"):
            low = self._literal()
            self._expect("AND")
            condition = AllOf((Compared(column, ">=", low), Compared(column, "<=", self._literal())))
        elif negative:
            raise self._unexpected()
        elif self._take("IS"):
            negative = self._take("NOT")
            self._expect("NULL")
            condition = IsNull(column)
        elif column.type == "boolean" and self._ends_here():
            condition = Compared(column, "=", _CONSTANTS["TRUE"])
        else:
            sign = self._comparison()
            condition = Compared(column, sign, self._literal())
        return Negated(condition) if negative else condition

    def _column_here(self) -> PartitionColumn | None:
        """Take the next token if it names a column; return ``None`` if a literal begins there."""
        token = self._peek()
        if token.kind != "name" or token.is_any(*_CONSTANTS):
            return None
        if self._tokens[self._at + 1].kind == "string" and not token.text.startswith("`"):
            return None
        if token.is_any(*_KEYWORDS):
            raise self._unexpected()
        self._at += 1
        name = token.name
        following = self._peek()
        if following.is_any("("):
            raise RefusedError(f"{name}(…) is no column: functions and casts are refused")
        if following.is_any("."):
            raise RefusedError(f"{name!r} stands before a dot: write the {self._called}'s name alone")
        found = self._columns.get(name.lower())
        if found is None:
            known = ", ".join(column.name for column in self._columns.values()) or "none"
            raise RefusedError(f"{name!r} is no {self._called} (the table's are: {known})")
        return found

    def _literal(self) -> Literal:
        token = self._next()
        sign = ""
        if token.is_any("-", "+"):
            sign, token = token.text, self._next()
            if token.kind != "number":
                raise self._unexpected(token)
        if token.kind == "number":
            return _numeric(sign.replace("+", ""), token.text)
        if token.kind == "string":
            return self._string(token)
        if token.is_any(*_CONSTANTS):
            return _CONSTANTS[token.text.upper()]
        if token.kind == "name" and self._peek().kind == "string":
            return _typed(token.text.upper(), self._string(self._next()))
        if token.kind == "name" and self._peek().is_any("("):
            raise RefusedError(f"{token.text}(…) is no literal: functions, casts and queries are refused")
        if token.kind == "end":
            raise RefusedError("it is not SQL: a literal is missing at its end")
        raise RefusedError(f"{token.text!r} is no literal")

    def _string(self, token: _Token) -> Literal:
        # Spark joins string literals that stand side by side.
        tokens = [token]
        while self._peek().kind == "string":
            tokens.append(self._next())
        return Literal("string", "".join(map(_unquoted, tokens)), " ".join(each.text for each in tokens))

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _take(self, *words: str) -> bool:
        found = self._peek().is_any(*words)
        self._at += found
        return found

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._unexpected()

    def _comparison(self) -> str:
        if not self._peek().is_any(*COMPARISONS, *_SAME):
            raise self._unexpected()
        sign = self._next().text
        return _SAME.get(sign, sign)

    def _ends_here(self) -> bool:
        token = self._peek()
        return token.kind == "end" or token.is_any(")", "AND", "OR")

    def _unexpected(self, token: _Token | None = None) -> RefusedError:
        token = token or self._peek()
        if token.kind == "end":
            return RefusedError("it is not SQL: it ends too early")
        if token.is_any("LIKE", "ILIKE", "RLIKE", "REGEXP"):
            return RefusedError(
                f"it has {token.text!r}: write a range instead, such as month >= '2019' AND month < '2020'"
            )
        return RefusedError(f"it has {token.text!r} where it should not be")


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise RefusedError(f"it is not SQL at {text[at : at + 20]!r}")
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
            raise RefusedError(f"{text} is a raw string with a quote in it")
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
        raise RefusedError(f"{text} has half a character") from None


def _escaped(code: str) -> str:
    if len(code) == 1:
        return _ESCAPES.get(code, code)
    if code[0] in "uU":
        point = int(code[1:], 16)
        if point > 0x10FFFF:
            raise RefusedError(f"\\{code} is no character")
        return chr(point)
    return chr(int(code, 8))


def _numeric(sign: str, text: str) -> Literal:
    match = _NUMBER.fullmatch(text)
    assert match is not None
    spelling, suffix = sign + match[1], (match[2] or "").lower()
    written = sign + text
    if suffix in _SUFFIXES:
        try:
            return Literal("integer", integer(spelling, _SUFFIXES[suffix]), written)
        except ValueError:
            raise RefusedError(f"{written} is no number of its suffix") from None
    if suffix == "bd" or (not suffix and "e" not in match[1].lower()):
        exact = Decimal(spelling)
        if sum(digits(exact)) > MOST_DIGITS or len(match[1]) > 2 * MOST_DIGITS:
            raise RefusedError(f"{written} has more than {MOST_DIGITS} digits")
        if match[1].isdigit() and not suffix and -(1 << 63) <= exact < (1 << 63):
            return Literal("integer", int(exact), written)
        return Literal("decimal", exact, written)
    number = to_single(spelling) if suffix == "f" else float(spelling)
    if abs(Decimal(spelling)) > Decimal(_LARGEST_SINGLE if suffix == "f" else 1.7976931348623157e308):
        raise RefusedError(f"{written} is too large")
    return Literal("float" if suffix == "f" else "double", number, written)


def _typed(word: str, string: Literal) -> Literal:
    """Return a literal such as DATE '2019-01-31'."""
    text = f"{word} {string.text}"
    if word == "X":
        if not re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", string.value):
            raise RefusedError(f"{text} is no binary literal: write pairs of hexadecimal digits")
        return Literal("binary", bytes.fromhex(string.value), text)
    kind = TYPED.get(word)
    if kind is None:
        raise RefusedError(f"{text} is no literal that is known here")
    try:
        if kind == "date":
            return Literal(kind, date_of(days_of_text(string.value)), text)
        micros, offset = micros_of(trimmed(string.value))
    except ValueError:
        raise RefusedError(f"{text} is no {kind.upper()}: write it like {EXAMPLES[kind]}") from None
    if kind == "timestamp_ntz" and offset is not None:
        raise RefusedError(f"{text} has a zone, and a TIMESTAMP_NTZ has none: leave it out")
    return Literal(kind, time_of(micros, None if kind == "timestamp_ntz" else 0), text)
