"""What a predicate says, as a tree: comparisons of columns with literals, joined by AND, OR and NOT.

A tree has no meaning by itself. ``predicates.py`` makes a condition on partitions of it, and the room ``rows`` a
condition on files and on rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from airflow_provider_onelake.log.comparisons import Literal, PartitionColumn


@attrs.frozen
class Compared:
    """A column stands in a relation to a literal.

    :param sign: a key of :data:`~airflow_provider_onelake.log.comparisons.COMPARISONS`.
    """

    column: PartitionColumn
    sign: str
    literal: Literal


@attrs.frozen
class Listed:
    """A column is one of several literals."""

    column: PartitionColumn
    items: tuple[Literal, ...]


@attrs.frozen
class IsNull:
    """A column is NULL."""

    column: PartitionColumn


@attrs.frozen
class Constant:
    """TRUE or FALSE.

    :param outcome: as a bit of :mod:`~airflow_provider_onelake.log.comparisons`.
    """

    outcome: int


@attrs.frozen
class Negated:
    """Another expression does not hold."""

    inner: Expression


@attrs.frozen
class AllOf:
    """All of several expressions hold; there is at least one."""

    parts: tuple[Expression, ...]


@attrs.frozen
class AnyOf:
    """One of several expressions holds; there is at least one."""

    parts: tuple[Expression, ...]


Comparison = Compared | Listed | IsNull
Expression = Comparison | Constant | Negated | AllOf | AnyOf


def columns_in(expression: Expression) -> Iterator[PartitionColumn]:
    """Yield the columns that an expression names, each as often as it names it."""
    if isinstance(expression, Compared | Listed | IsNull):
        yield expression.column
    elif isinstance(expression, Negated):
        yield from columns_in(expression.inner)
    elif isinstance(expression, AllOf | AnyOf):
        for part in expression.parts:
            yield from columns_in(part)
