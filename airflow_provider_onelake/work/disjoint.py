"""Whether no row can satisfy two filters, as far as that can be proven from their text.

The proof decides whether a shared scan is worth trying. It knows nothing of the columns' types, so the Spark job also
counts, row by row, how many filters a row satisfies, and fails at two (``spark_jobs.stage.route``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import combinations
from typing import Any

import attrs

logger = logging.getLogger(__name__)

_DAY = r"\d{4}-\d\d-\d\d"
_MOMENT = rf"{_DAY} \d\d:\d\d:\d\d"
_FORMS = {"date": re.compile(_DAY), "timestamp": re.compile(_MOMENT)}
_NUMBER = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:e[+-]?\d{1,3})?")
# Functions that sqlglot does not know, and that are the same for the same row.
_DETERMINISTIC = frozenset({"typeof", "pmod", "hash", "xxhash64", "crc32", "bucket", "positive"})


# Of the functions that sqlglot knows, by the names of its classes.
_KNOWN = frozenset(
    "And Or Not Xor Cast TryCast If Case Coalesce Nullif Between In Like ILike RegexpLike RegexpExtract Year Quarter "  # noqa: SIM905
    "Month Day DayOfMonth DayOfWeek DayOfYear Week WeekOfYear Hour Minute Second Date TsOrDsToDate TsOrDsToTimestamp "
    "Typeof StrToTime DateTrunc TimestampTrunc TimeToStr Extract Lower Upper Trim Substring Left Right Length Concat "
    "StrPosition SplitPart MD5 SHA SHA2 Abs Sign Floor Ceil Round Mod Pow".split()
)


@attrs.frozen
class _Literal:
    kind: str
    value: Any


@attrs.frozen
class _Range:
    """The literals between two bounds; ``None`` is no bound."""

    low: _Literal | None = None
    high: _Literal | None = None
    with_low: bool = False
    with_high: bool = False

    def holds(self, literal: _Literal) -> bool | None:
        """Say whether a literal lies in the range; ``None`` where they cannot be compared."""
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        if any(bound.kind != literal.kind for bound in bounds):
            return None
        above = self.low is None or literal.value > self.low.value or (self.with_low and literal == self.low)
        below = self.high is None or literal.value < self.high.value or (self.with_high and literal == self.high)
        return above and below


_Constraint = frozenset[_Literal] | _Range


def why_not_disjoint(filters: Mapping[str, str]) -> str | None:
    """Say why filters may overlap, or ``None`` where it is proven that no row satisfies two of them.

    Proven are conjunctions that compare one same expression with literals of one kind: equal to different ones, or
    within ranges that do not meet.

    :param filters: Spark SQL by the name of its writer.
    """
    read = {}
    for name, text in filters.items():
        constraints = _constraints(text)
        if constraints is None:
            return f"the filter of {name}, {text!r}, cannot be read, or may differ from look to look"
        read[name] = constraints
    for one, other in combinations(read, 2):
        if not any(_apart(a, b) for expression in read[one].keys() & read[other].keys()
                   for a in read[one][expression] for b in read[other][expression]):  # fmt: skip
            return f"the filters of {one} and {other} may have rows in common: {filters[one]!r}, {filters[other]!r}"
    return None


def _apart(one: _Constraint, other: _Constraint) -> bool:
    if isinstance(one, _Range) and isinstance(other, _Range):
        return _ends_before(one, other) or _ends_before(other, one)
    if isinstance(one, _Range):
        return _apart(other, one)
    if isinstance(other, _Range):
        return all(other.holds(literal) is False for literal in one)
    values, others = ({(_kind(literal), literal.value) for literal in literals} for literals in (one, other))
    return len({kind for kind, _ in values | others}) == 1 and not values & others


def _kind(literal: _Literal) -> str:
    """Return what a literal is compared as: nothing is equal to the text of a number, and to another number."""
    if literal.kind == "text" and isinstance(literal.value, Decimal):
        return "number"
    return literal.kind.removeprefix("text of a ")


def _ends_before(one: _Range, other: _Range) -> bool:
    high, low = one.high, other.low
    if high is None or low is None or high.kind != low.kind:
        return False
    return bool(high.value < low.value or (high.value == low.value and not (one.with_high and other.with_low)))


def _constraints(text: str) -> dict[str, list[_Constraint]] | None:
    """Return what a filter asks of each expression; ``None`` where it must not be shared at all."""
    import sqlglot
    from sqlglot import exp

    try:
        tree: Any = sqlglot.parse_one(text, into=exp.Condition, dialect="spark")
        if not _is_deterministic(tree):
            return None
        found: dict[str, list[_Constraint]] = {}
        for part in _conjuncts(tree):
            for expression, constraint in _of_comparison(part):
                found.setdefault(expression, []).append(constraint)
        return {expression: _joined(constraints) for expression, constraints in found.items()}
    except Exception as error:
        # Not only sqlglot's own errors: a long filter is a tree too deep to walk, and other trees have odd shapes.
        logger.debug("No proof about the filter %r", text, exc_info=error)
        return None


def _joined(constraints: Sequence[_Constraint]) -> list[_Constraint]:
    """Return the sets, and the ranges as one where they are of one kind."""
    ranges = [one for one in constraints if isinstance(one, _Range)]
    bounds = [bound for one in ranges for bound in (one.low, one.high) if bound is not None]
    if len({bound.kind for bound in bounds}) > 1:
        return list(constraints)
    low = max((one for one in ranges if one.low), key=lambda one: (one.low.value, not one.with_low), default=None)  # type: ignore[union-attr]
    high = min((one for one in ranges if one.high), key=lambda one: (one.high.value, one.with_high), default=None)  # type: ignore[union-attr]
    joined = _Range(
        low.low if low else None,
        high.high if high else None,
        low.with_low if low else False,
        high.with_high if high else False,
    )
    return [*(one for one in constraints if not isinstance(one, _Range)), *([joined] if ranges else [])]


def _is_deterministic(tree: Any) -> bool:
    from sqlglot import exp

    for node in tree.walk():
        if isinstance(node, exp.Query | exp.AggFunc | exp.Window | exp.Placeholder | exp.Parameter | exp.Star):
            return False
        if isinstance(node, exp.Anonymous):
            if node.name.lower() not in _DETERMINISTIC:
                return False
        elif isinstance(node, exp.Func) and type(node).__name__ not in _KNOWN:
            return False
    return True


def _conjuncts(tree: Any) -> Iterator[Any]:
    from sqlglot import exp

    if isinstance(tree, exp.Paren):
        yield from _conjuncts(tree.this)
    elif isinstance(tree, exp.And):
        yield from _conjuncts(tree.left)
        yield from _conjuncts(tree.right)
    else:
        yield tree


def _of_comparison(part: Any) -> Iterator[tuple[str, _Constraint]]:
    from sqlglot import exp

    if isinstance(part, exp.Paren):
        yield from _of_comparison(part.this)
    elif isinstance(part, exp.Or):
        yield from _of_alternatives(list(part.flatten()))
    elif isinstance(part, exp.If) and part.args.get("false") is not None:
        yield from _of_alternatives([part.args["true"], part.args["false"]])
    elif isinstance(part, exp.In):
        items = [_literal(item) for item in part.expressions]
        known = [item for item in items if item is not None]
        if items and len(known) == len(items) and _literal(part.this) is None:
            yield _spelled(part.this), frozenset(known)
    elif isinstance(part, exp.Between):
        low, high = _literal(part.args["low"]), _literal(part.args["high"])
        if low is not None and high is not None and _ordered(low, high) and not part.args.get("symmetric"):
            yield _spelled(part.this), _Range(low, high, with_low=True, with_high=True)
    elif isinstance(part, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        for left, right, kind in ((part.left, part.right, type(part)), (part.right, part.left, _flipped(type(part)))):
            literal = _literal(right)
            if literal is None or _literal(left) is not None:
                continue
            if kind is exp.EQ:
                yield _spelled(left), frozenset({literal})
            elif _ordered(literal):
                closed = kind in (exp.LTE, exp.GTE)
                if kind in (exp.LT, exp.LTE):
                    yield _spelled(left), _Range(high=literal, with_high=closed)
                else:
                    yield _spelled(left), _Range(low=literal, with_low=closed)


def _of_alternatives(parts: Sequence[Any]) -> Iterator[tuple[str, _Constraint]]:
    """Yield the values of which an expression has one whichever of some conditions holds."""
    found = [{spelled: one for spelled, one in _of_comparison(part) if not isinstance(one, _Range)} for part in parts]
    for spelled in set.intersection(*(set(one) for one in found)):
        yield spelled, frozenset[_Literal]().union(*(one[spelled] for one in found))


def _flipped(kind: type) -> type:
    from sqlglot import exp

    flipped: dict[type, type] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
    return flipped.get(kind, kind)


def _ordered(*literals: _Literal) -> bool:
    """Say whether literals have the same order whatever the type of the column: not free text, which may be cast."""
    return all(literal.kind != "text" for literal in literals)


def _spelled(expression: Any) -> str:
    """Return an expression in one spelling; Spark's names of columns know no upper and lower case."""
    from sqlglot import exp

    while isinstance(expression, exp.Paren):
        expression = expression.this
    copy = expression.copy()
    for identifier in copy.find_all(exp.Identifier):
        identifier.replace(exp.to_identifier(identifier.name.lower(), quoted=True))
    return str(copy.sql(dialect="spark", comments=False))


def _literal(node: Any) -> _Literal | None:
    """Return a literal in a form of which every column type sees the same order; ``None`` for anything else."""
    from sqlglot import exp

    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Neg):
        inner = _literal(node.this)
        return _Literal("number", -inner.value) if inner is not None and inner.kind == "number" else None
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        kind = str(node.to.this.value).lower()
        kind = "timestamp" if kind in ("timestamptz", "timestampltz") else kind
        text = str(node.this.this)
        return _Literal(kind, text) if kind in _FORMS and _FORMS[kind].fullmatch(text) else None
    if not isinstance(node, exp.Literal):
        return None
    text = str(node.this)
    if not node.is_string:
        return _Literal("number", Decimal(text)) if re.fullmatch(r"\d{1,18}(?:\.\d{1,9})?", text) else None
    for kind, form in _FORMS.items():
        if form.fullmatch(text):
            return _Literal(f"text of a {kind}", text)
    # A column of another type would cast the text: 'a' and 'A', or '1' and '01', may be one value.
    folded = text.strip().casefold()
    return _Literal("text", Decimal(folded).normalize() if _NUMBER.fullmatch(folded) else folded)
