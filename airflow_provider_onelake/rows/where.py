"""A condition on the rows of a table: of which files it may hold, and of which rows it does.

It is written and it means what predicates on partition columns do (docs/concepts/tables.md), and may name every column.
Of a file it says which outcomes it may have on the file's rows; of rows it says the outcome of each, by Arrow.
``tests/unit/rows/test_where.py`` holds the three against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import InvalidReadError
from airflow_provider_onelake.log.comparisons import (
    COMPARISONS,
    TRUE,
    Condition,
    Pair,
    PartitionColumn,
    RefusedError,
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
    columns_in,
)
from airflow_provider_onelake.log.predicates import condition_of, parse_expression
from airflow_provider_onelake.log.types import JsonType, precision_and_scale

if TYPE_CHECKING:
    import pyarrow as pa

_DAY = 86_400_000_000


@attrs.frozen
class Where:
    """A condition on rows.

    :param text: as the user wrote it.
    :param names: of the columns that it names.
    :param outcomes: returns the outcomes that the condition may have on the rows of a file, as bits of
        ``log.comparisons``, by what is known of every column of the table, in order.
    """

    text: str
    names: frozenset[str]
    _expression: Expression = attrs.field(repr=False, eq=False)
    outcomes: Condition = attrs.field(repr=False, eq=False)

    @classmethod
    def parse(cls, text: str, types: Mapping[str, JsonType]) -> Where:
        """Read a condition.

        :param text: in Spark SQL.
        :param types: Spark's type names by column, in the order of the table.
        :raises InvalidReadError: the text is no condition on these columns, or Spark's answer depends on its settings.
        """
        try:
            expression = parse_expression(text, types, "column")
            of_file = condition_of(expression)
        except RefusedError as refused:
            raise InvalidReadError(
                f"The condition {text!r} cannot be used: {refused}. It may compare columns with literals (=, <>, <, "
                "<=, >, >=, <=>, IN, BETWEEN, IS NULL), joined by AND, OR and NOT. Nothing was read."
            ) from None
        return cls(text, frozenset(column.name for column in columns_in(expression)), expression, of_file)

    def evaluate(self, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
        """Return of each row whether the condition holds; NULL where it is unknown, which counts as no.

        :param columns: by name, of the types that ``rows.arrow`` gives them; at least those in :attr:`names`.
        :param rows: how many there are.
        """
        return _outcome(self._expression, columns, rows)


def _outcome(expression: Expression, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    match expression:
        case Compared(column, sign, literal):
            values = columns[column.name]
            if literal.kind == "null":
                return values.is_null() if sign == "<=>" else pa.nulls(rows, pa.bool_())
            found = _compared(values, column, sign, pair_of(column, literal, listed=False))
            return found.fill_null(False) if sign == "<=>" else found
        case Listed(column, items):
            pairs = pairs_in_list(column, items)
            found = pa.repeat(pa.scalar(None if len(pairs) < len(items) else False, pa.bool_()), rows)
            for pair in pairs:
                found = pc.or_kleene(found, _compared(columns[column.name], column, "=", pair))
            return pc.if_else(columns[column.name].is_valid(), found, pa.scalar(None, pa.bool_()))
        case IsNull(column):
            return columns[column.name].is_null()
        case Constant(outcome):
            return pa.repeat(pa.scalar(outcome == TRUE), rows)
        case Negated(inner):
            return pc.invert(_outcome(inner, columns, rows))
        case AllOf(parts):
            return reduce(pc.and_kleene, (_outcome(part, columns, rows) for part in parts))
        case AnyOf(parts):
            return reduce(pc.or_kleene, (_outcome(part, columns, rows) for part in parts))


def _compared(values: pa.Array, column: PartitionColumn, sign: str, pair: Pair) -> pa.Array:
    """Return of each value whether it stands in a relation to a literal; NULL for NULL."""
    import pyarrow as pa

    key, is_date = pair.key, column.type == "date"
    if pair.domain == "double" and precision_and_scale(column.type) is None:
        return _beside_double(values.cast(pa.float64(), safe=False), sign, pair.literal)
    if pair.domain in ("days", "micros"):
        # Python's dates and times do not cover all of Spark's years, so go by numbers.
        values, unit = values.cast(pa.int32() if is_date else pa.int64()), _DAY if pair.domain == "micros" else 1
        key = unit.__mul__ if is_date else int
    if pair.domain != "double" and not (is_date and pair.domain == "micros"):
        with suppress(ValueError, TypeError, OverflowError):
            literal = pa.scalar(pair.literal, values.type)
            if literal.as_py() == pair.literal:
                return _related(values, sign, literal)
    # The literal is no value of the column's type. Arrow would round one of both, so ask of each different value.
    encoded = values.dictionary_encode()
    compare = COMPARISONS[sign]
    found = [compare(key(value), pair.literal) for value in encoded.dictionary.to_pylist()]
    return pa.array(found, pa.bool_()).take(encoded.indices)


def _related(values: pa.Array, sign: str, literal: pa.Scalar) -> pa.Array:
    import pyarrow.compute as pc

    compare: Callable[[pa.Array, pa.Scalar], pa.Array] = {
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
        "<>": pc.not_equal,
    }.get(sign, pc.equal)
    return compare(values, literal)


def _beside_double(values: pa.Array, sign: str, literal: tuple[bool, float]) -> pa.Array:
    """Compare doubles with a double as Spark does: NaN equals itself and is greater than any other number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_nan, number = literal
    if is_nan:
        if sign in ("<=", ">"):
            return pc.if_else(values.is_valid(), pa.scalar(sign == "<="), pa.scalar(None, pa.bool_()))
        return pc.is_nan(values) if sign in ("=", "<=>", ">=") else pc.invert(pc.is_nan(values))
    found = _related(values, sign, pa.scalar(number))
    return pc.or_(found, pc.is_nan(values)) if sign in (">", ">=") else found
