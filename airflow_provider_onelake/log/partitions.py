"""Partition values compared by type, and predicates over them.

A log entry spells every partition value as a string, and one value may have several spellings: an instant has three,
by engine and time zone, and both ``null`` and an empty string are NULL (protocol, rule 18). Under column mapping an
entry knows a column by its physical name; people, and predicates, by the name that it has now.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.schema import columns, partition_columns

PartitionValue = str | int | float | bool | Decimal | date | datetime | None
Partition = tuple[PartitionValue, ...]

_INTEGERS = ("byte", "short", "integer", "long")
# As Spark casts strings: a date may lack its zeros, and a time behind it does not matter.
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T].*)?")
_BOOLEANS: Mapping[str, bool] = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


def typed_value(spelling: str | None, column_type: Any) -> PartitionValue:
    """Return the value that a log's string stands for.

    :param spelling: as it stands in ``partitionValues``.
    :param column_type: Spark's name of the column's type.
    :returns: ``None`` for NULL and for an empty string; instants in UTC, without a zone where the spelling has none.
    :raises ValueError: the spelling is no value of the type.
    """
    if spelling is None or spelling == "":
        return None
    if column_type in _INTEGERS:
        return int(spelling)
    if column_type == "boolean":
        if spelling.lower() not in _BOOLEANS:
            raise ValueError(spelling)
        return _BOOLEANS[spelling.lower()]
    if column_type == "date":
        parts = _DATE.fullmatch(spelling)
        if parts is None:
            raise ValueError(spelling)
        return date(int(parts[1]), int(parts[2]), int(parts[3]))
    if column_type == "timestamp":
        instant = datetime.fromisoformat(spelling)
        return instant if instant.tzinfo is None else instant.astimezone(UTC)
    if column_type == "timestamp_ntz":
        # A wall clock's time: some engines add a zone all the same, and Spark passes over it.
        return datetime.fromisoformat(spelling).replace(tzinfo=None)
    if column_type in ("float", "double"):
        return _number(float(spelling), single=column_type == "float")
    if isinstance(column_type, str) and column_type.startswith("decimal"):
        try:
            exact = Decimal(spelling)
        except InvalidOperation as error:
            raise ValueError(spelling) from error
        if not exact.is_finite():
            raise ValueError(spelling)
        return exact
    return spelling


def _number(value: float, *, single: bool) -> float:
    if math.isnan(value):
        # One object, because NaN equals nothing but itself, and as a partition it is one.
        return math.nan
    if not single:
        return value
    try:
        # 0.1 and 0.10000000149011612 are one single-precision number.
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _without_zone(value: PartitionValue, kind: Any) -> bool:
    return kind == "timestamp" and isinstance(value, datetime) and value.tzinfo is None


@attrs.frozen
class Partitioning:
    """How a table is partitioned: the partition columns and their types, in order.

    :param types: Spark's type names by column, as users name it.
    :param physical: what ``partitionValues`` call the columns, where that is something else.
    """

    types: Mapping[str, Any]
    physical: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Partitioning:
        """Return the partitioning that a table's metadata describes.

        :param metadata: a ``metaData`` action's body.
        """
        by_name = columns(metadata)
        names = partition_columns(metadata)
        return cls(
            {name: by_name[name].type for name in names},
            {name: by_name[name].physical_name for name in names if by_name[name].physical_name != name},
        )

    @property
    def names(self) -> dict[str, str]:
        """The columns' names by what ``partitionValues`` call them, where that is something else."""
        return {physical: name for name, physical in self.physical.items()}

    def partition(self, values: Mapping[str, str | None]) -> Partition:
        """Return a file's partition, typed.

        :param values: an action's ``partitionValues``.
        :raises InvalidWriteError: a spelling is no value of its column's type.
        """
        try:
            return tuple(
                typed_value(values.get(self.physical.get(name, name)), kind) for name, kind in self.types.items()
            )
        except ValueError as error:
            raise InvalidWriteError(f"The partition {dict(values)} cannot be read as {dict(self.types)}.") from error

    def named_by(self, file: Mapping[str, Any]) -> bool:
        """Say whether an action says which partition its file is of: every partition column must be a key.

        :param file: an ``add`` or ``remove``; a ``remove`` may leave it out.
        """
        values = file.get("partitionValues")
        return values is not None and all(self.physical.get(name, name) in values for name in self.types)

    def ambiguous(self, partition: Partition) -> bool:
        """Say whether a partition holds an instant whose time zone nobody knows.

        :param partition: typed.
        """
        return any(_without_zone(value, kind) for value, kind in zip(partition, self.types.values(), strict=True))

    def describe(self, partition: Partition) -> str:
        """Return a partition as people write it: ``month=2019-01``.

        :param partition: typed.
        """
        if not self.types:
            return "the table"
        return "/".join(f"{name}={'NULL' if v is None else v}" for name, v in zip(self.types, partition, strict=True))


@attrs.frozen
class PartitionPredicate:
    """A condition on partition columns alone, so that a whole file either meets it or does not.

    :param text: as the user wrote it, in Spark SQL.
    :param partitioning: of the table.
    """

    text: str
    partitioning: Partitioning = attrs.field(repr=False)
    _test: Callable[[Mapping[str, PartitionValue]], bool | None] = attrs.field(repr=False, eq=False)

    @classmethod
    def parse(cls, text: str, partitioning: Partitioning) -> PartitionPredicate:
        """Read a predicate: comparisons, IN, BETWEEN, IS NULL, AND, OR, NOT over partition columns and literals.

        :param text: in Spark SQL.
        :param partitioning: of the table.
        :raises InvalidWriteError: it is no predicate, or names a column that is no partition column.
        """
        import sqlglot

        try:
            tree = sqlglot.parse_one(text, read="spark")
        except sqlglot.ParseError as error:
            raise InvalidWriteError(f"The predicate {text!r} is not SQL: {error}") from error
        return cls(text, partitioning, _Compiler(text, partitioning).condition(tree))

    def covers(self, partition: Partition) -> bool:
        """Say whether the predicate is true for a partition; unknown, as for NULL, is not true.

        An instant whose time zone nobody knows compares as unknown.

        :param partition: typed.
        """
        return self._test(dict(zip(self.partitioning.types, partition, strict=True))) is True


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "EQ": operator.eq,
    "NEQ": operator.ne,
    "LT": operator.lt,
    "LTE": operator.le,
    "GT": operator.gt,
    "GTE": operator.ge,
}

_Row = Mapping[str, PartitionValue]
_Condition = Callable[[_Row], bool | None]


class _Compiler:
    """Turns a parsed predicate into a function, with SQL's three-valued logic."""

    def __init__(self, text: str, partitioning: Partitioning) -> None:
        self._text = text
        self._types = {name.lower(): (name, kind) for name, kind in partitioning.types.items()}

    def condition(self, node: Any) -> _Condition:
        from sqlglot import expressions as e

        match node:
            case e.Paren():
                return self.condition(node.this)
            case e.And():
                left, right = self.condition(node.this), self.condition(node.expression)
                return lambda row: _and(left(row), right(row))
            case e.Or():
                left, right = self.condition(node.this), self.condition(node.expression)
                return lambda row: _not(_and(_not(left(row)), _not(right(row))))
            case e.Not():
                inner = self.condition(node.this)
                return lambda row: _not(inner(row))
            case e.Is() if isinstance(node.expression, e.Null):
                name, _ = self._column(node.this)
                return lambda row: row[name] is None
            case e.In() if node.expressions:
                return self._any([e.EQ(this=node.this, expression=item) for item in node.expressions])
            case e.Between():
                low = self.condition(e.GTE(this=node.this, expression=node.args["low"]))
                high = self.condition(e.LTE(this=node.this, expression=node.args["high"]))
                return lambda row: _and(low(row), high(row))
            case e.EQ() | e.NEQ() | e.LT() | e.LTE() | e.GT() | e.GTE():
                return self._comparison(node)
            case e.Boolean():
                constant = bool(node.this)
                return lambda row: constant
        raise self._refuse(f"it has {node.sql('spark')!r}")

    def _any(self, nodes: list[Any]) -> _Condition:
        conditions = [self.condition(node) for node in nodes]

        def test(row: _Row) -> bool | None:
            results = [condition(row) for condition in conditions]
            return True if True in results else (None if None in results else False)

        return test

    def _comparison(self, node: Any) -> _Condition:
        from sqlglot import expressions as e

        compare = _COMPARISONS[type(node).__name__]
        left, right = node.this, node.expression
        flipped = not isinstance(left, e.Column)
        name, kind = self._column(right if flipped else left)
        literal = self._literal(left if flipped else right, kind)

        def test(row: _Row) -> bool | None:
            value = row[name]
            if value is None or literal is None or _without_zone(value, kind):
                return None
            return compare(literal, value) if flipped else compare(value, literal)

        return test

    def _column(self, node: Any) -> tuple[str, Any]:
        from sqlglot import expressions as e

        if not isinstance(node, e.Column):
            raise self._refuse(f"{node.sql('spark')!r} is no column")
        found = self._types.get(node.name.lower())
        if found is None:
            known = ", ".join(name for name, _ in self._types.values()) or "none"
            raise self._refuse(f"{node.name!r} is no partition column (the table's are: {known})")
        return found

    def _literal(self, node: Any, kind: Any) -> PartitionValue:
        from sqlglot import expressions as e

        sign = ""
        if isinstance(node, e.Neg):
            sign, node = "-", node.this
        if isinstance(node, e.Cast):  # DATE '2019-01-01'
            node = node.this
        if isinstance(node, e.Null):
            return None
        spelling = str(node.this).lower() if isinstance(node, e.Boolean) else None
        if isinstance(node, e.Literal):
            spelling = sign + str(node.this)
        if spelling is None:
            raise self._refuse(f"{node.sql('spark')!r} is no literal")
        try:
            value = typed_value(spelling, kind)
        except ValueError:
            raise self._refuse(f"{spelling!r} is no {kind}") from None
        # Staging sets UTC everywhere, so a literal without a zone means UTC too.
        if isinstance(value, datetime) and value.tzinfo is None and kind == "timestamp":
            return value.replace(tzinfo=UTC)
        return value

    def _refuse(self, reason: str) -> InvalidWriteError:
        return InvalidWriteError(
            f"The predicate {self._text!r} cannot be used: {reason}. It may compare partition columns with literals "
            "(=, <>, <, <=, >, >=, IN, BETWEEN, IS NULL), joined by AND, OR and NOT. Nothing was changed."
        )


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True
