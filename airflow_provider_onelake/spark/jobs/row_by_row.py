"""Whether the steps of a shared scan treat every row by itself, and so may see the rows of all writers at once."""

from __future__ import annotations

from collections.abc import Iterable

_ROW_BY_ROW = (
    *("Filter", "Generate", "PipeOperator", "Project", "RebalancePartitions", "Repartition", "RepartitionByExpression"),
    *("SubqueryAlias", "View"),
)
"""The nodes of Spark's plan that make rows of one row each, or only move rows between Spark's tasks."""


def why_not_row_by_row(plan: str, source: str, columns: Iterable[str], kept: str) -> str | None:
    """Say why steps must not see the rows of several writers at once; ``None`` where they may.

    They may if Spark plans nothing but such nodes, each below the one before, down to the source's view.

    :param plan: what ``EXPLAIN EXTENDED SELECT *`` says of the last step.
    :param source: the name of the source's view. What stands below it was there before the steps.
    :param columns: of the last step.
    :param kept: the column of the source that names the writer of a row.
    """
    if kept not in columns:
        return "the steps do not keep all columns of the source (SELECT *), and so not the one that names the writer"
    analyzed = plan.partition("== Analyzed Logical Plan ==\n")[2].partition("\n== Optimized Logical Plan ==")[0]
    # The first line lists the columns, the second is the query's own projection. Where a node has a second input or a
    # subquery, Spark begins the line below it with ":".
    for depth, line in enumerate(analyzed.splitlines()[2:]):
        if line.startswith(f"{'   ' * depth}+- View (`{source}`, "):
            return None
        if line.removeprefix(f"{'   ' * depth}+- ").partition(" ")[0] not in _ROW_BY_ROW:
            return f"a step does not treat every row by itself: Spark plans {line.lstrip(' +-')[:80]}"
    return "Spark does not say how the steps read the source"
