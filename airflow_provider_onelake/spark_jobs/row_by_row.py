"""Whether the steps of a shared scan treat every row by itself, so that they may see the rows of all writers at once.

A step that filters rows or computes columns from the row alone makes the same rows for a writer, whoever's rows stand
beside them. A step that joins, groups, numbers or limits rows does not. Spark's analyzed plan says which of the two it
is; a query's text does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SECTION = re.compile(r"^== Analyzed Logical Plan ==\n(.*?)^== Optimized Logical Plan ==", re.DOTALL | re.MULTILINE)
_NODE = re.compile(r"\w+")
_ROW_BY_ROW = frozenset(
    {
        "Filter",
        "Generate",
        "PipeOperator",
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "SubqueryAlias",
        "View",
    }
)
"""The nodes of a plan that treat each row by itself, or only move rows between Spark's tasks."""


def why_not_row_by_row(plan: str, source: str, columns: Iterable[str], kept: str) -> str | None:
    """Say why steps must not see the rows of several writers at once; ``None`` where they may.

    What is not understood is refused: each writer then runs the steps on its own rows.

    :param plan: what ``EXPLAIN EXTENDED SELECT *`` says of the last step.
    :param source: the name of the source's view. What stands below it was there before the steps.
    :param columns: of the last step.
    :param kept: the column of the source that names the writer of a row.
    """
    if kept not in columns:
        return "the steps do not keep all columns of the source (SELECT *), and so not the one that names the writer"
    analyzed = _SECTION.search(plan)
    lines = analyzed.group(1).splitlines() if analyzed else []
    # The first line lists the columns, the second is the query's own projection. Each further node stands below the one
    # before. Beside a subquery, or above a second input, Spark draws a line of ":".
    for depth, line in enumerate(lines[2:]):
        before, _, said = line.partition("+- ")
        node = _NODE.match(said)
        if before != "   " * depth or node is None:
            return "a step reads more than one input, such as by a join or a subquery"
        if said.startswith(f"View (`{source}`, "):
            return None
        if node[0] not in _ROW_BY_ROW:
            return f"a step does not treat every row by itself: Spark plans {node[0]} for it"
    return "Spark does not say how the steps read the source"
