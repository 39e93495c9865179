"""Whether filters ask one column for different values by ``=``, ``IN`` or a range: then no row satisfies two of them.

The proof decides whether a shared scan is worth trying. It knows nothing of the column's type, so the Spark job also
counts, row by row, how many filters a row satisfies, and fails at two (``spark.jobs.stage.route``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any

logger = logging.getLogger(__name__)

# From the first bound to the second one. A bound is (1, value, n): just before the value, at it, or just after it.
_Span = tuple[tuple[Any, ...], tuple[Any, ...]]
_NO_LOW, _NO_HIGH = (0,), (2,)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def why_not_disjoint(filters: Mapping[str, str]) -> str | None:
    """Say why filters may overlap, or ``None`` where it is proven that no row satisfies two of them.

    :param filters: Spark SQL by the name of its writer. OR may join several comparisons, as in the filters of a plan.
    """
    import sqlglot
    from sqlglot import exp

    columns, spans = set[str](), []
    for name, text in filters.items():
        try:
            tree: Any = sqlglot.parse_one(text, into=exp.Condition, dialect="spark")
            columns |= {node.sql("spark", identify=True).lower() for node in tree.walk() if node.key == "column"}
            spans += [(low, high, name) for low, high in _spans(tree)]
        except Exception as error:
            # Not only sqlglot's own errors: a long filter is a tree too deep to walk, and other trees have odd shapes.
            logger.debug("No proof about the filter %r", text, exc_info=error)
            return f"the filter of {name}, {text!r}, does not compare a column with literals by =, IN or a range"
    if len(columns) > 1:
        return f"the filters are on several columns: {', '.join(sorted(columns))}"
    try:
        spans.sort(key=itemgetter(0))
        widest = spans[0]
        for span in spans[1:]:
            if span[2] != widest[2] and span[0] <= widest[1]:
                one, other = widest[2], span[2]
                common = f"{filters[one]!r}, {filters[other]!r}"
                return f"the filters of {one} and {other} may have rows in common: {common}"
            widest = max(widest, span, key=itemgetter(1))
    except (TypeError, ArithmeticError):
        return f"the filters compare {', '.join(columns)} with literals of several types"
    return None


def _spans(node: Any) -> list[_Span]:
    """Return the values that a filter asks for.

    :raises Exception: the filter is of another form.
    """
    node = node.unnest()
    if node.key == "or":
        return [span for part in node.flatten() for span in _spans(part)]
    if node.key == "and":
        (low, high), (other_low, other_high) = (span for part in node.flatten() for span in _spans(part))
        return [(max(low, other_low), min(high, other_high))]
    if node.key == "if" and node.this.this.key == "typeof":
        # A plan does not know the type of the column, so its filter spells the value for each of them.
        return _spans(node.args["true"]) + _spans(node.args["false"])
    literals = node.expressions or [node.args[name] for name in ("expression", "low", "high") if name in node.args]
    values = [_value(literal) for literal in literals]
    # Of text, only days have one order, whatever the type and the collation of the column.
    texts = [str(literal.unnest().this) for literal in literals if literal.unnest().is_string]
    if node.this.unnest().key != "column" or not (node.key in ("eq", "in") or all(map(_DAY.fullmatch, texts))):
        raise ValueError(f"{node} compares no column, or text by its order")
    first, last = values[0], values[-1]
    spans: dict[str, list[_Span]] = {
        "eq": [((1, first, 0), (1, first, 0))],
        "in": [((1, value, 0), (1, value, 0)) for value in values],
        "between": [((1, first, 0), (1, last, 0))],
        "lt": [(_NO_LOW, (1, last, -1))],
        "lte": [(_NO_LOW, (1, last, 0))],
        "gt": [((1, first, 1), _NO_HIGH)],
        "gte": [((1, first, 0), _NO_HIGH)],
    }
    return spans[node.key]


def _value(node: Any) -> Decimal | datetime | str:
    """Return a literal so that it is equal to whatever it may be equal to in a column of some type."""
    sign = 1
    while node.key in ("paren", "cast", "trycast", "neg"):
        sign, node = -sign if node.key == "neg" else sign, node.this
    if node.key != "literal":
        raise ValueError(f"{node} is no literal")
    text = str(node.this).strip()
    with suppress(ArithmeticError):
        return sign * Decimal(text)
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    return text.casefold()
