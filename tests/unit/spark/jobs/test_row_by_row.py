"""Which plans of steps a shared scan may run on the rows of all writers; tests/integration/spark asks a real Spark."""

from __future__ import annotations

import pytest

from airflow_provider_onelake.spark.jobs.row_by_row import why_not_row_by_row

KEPT = ("id", "onelake_writer")


def plan(*nodes: str, below: tuple[str, ...] = ("Project [id#2L]", "Range (0, 10, step=1)")) -> str:
    """Return what EXPLAIN EXTENDED says of a step whose nodes stand above the source, one below the other."""
    chain = ["SubqueryAlias step", "View (`step`, [id#2L])", *nodes, "SubqueryAlias source", "View (`source`, [id#2L])"]
    lines = ["id: bigint, onelake_writer: string", "Project [id#2L]"]
    lines += [f"{'   ' * depth}+- {node}" for depth, node in enumerate([*chain, *below])]
    analyzed = "\n".join(lines)
    return (
        f"== Parsed Logical Plan ==\n'Project [*]\n\n== Analyzed Logical Plan ==\n{analyzed}\n\n"
        f"== Optimized Logical Plan ==\nRange (0, 10, step=1)\n\n== Physical Plan ==\n*(1) Range\n"
    )


@pytest.mark.parametrize(
    "nodes",
    [
        ("Project [id#2L, (id#2L + 1) AS next#3L]",),
        ("Filter (id#2L > 1)", "PipeOperator", "Project [id#2L]"),
        ("Generate explode(xs#1), false, [x#86]",),
        ("RepartitionByExpression [id#2L], 3",),
        ("SubqueryAlias earlier", "View (`earlier`, [id#2L])", "Project [id#2L]"),
    ],
)
def test_what_treats_every_row_by_itself_may_see_all_rows(nodes: tuple[str, ...]) -> None:
    assert why_not_row_by_row(plan(*nodes), "source", KEPT, "onelake_writer") is None


def test_what_stands_below_the_source_was_there_before_the_steps() -> None:
    below = ("Aggregate [id#2L], [id#2L]", "Window [row_number()]", "Range (0, 10, step=1)")
    assert why_not_row_by_row(plan("Project [id#2L]", below=below), "source", KEPT, "onelake_writer") is None


@pytest.mark.parametrize(
    "node", ["Aggregate [max(id#2L)]", "Window [row_number()]", "GlobalLimit 3", "Distinct", "New"]
)
def test_what_sees_other_rows_must_see_those_of_one_writer_only(node: str) -> None:
    why = why_not_row_by_row(plan("Project [id#2L]", node), "source", KEPT, "onelake_writer")
    assert why == f"a step does not treat every row by itself: Spark plans {node}"


@pytest.mark.parametrize(
    "beside",
    [
        "      :  +- Aggregate [max(id#2L)]\n",  # a subquery
        "      :- SubqueryAlias other\n",  # the first input of a join
        "+- View (`source`, [id#2L])\n",  # the second line of a text in the query
        "and a text of two lines\n",
        "Project of a text of two lines\n",
    ],
)
def test_more_than_one_input_is_refused(beside: str) -> None:
    whole = plan("Project [id#2L]")
    place = whole.index("      +- Project")
    odd = whole[:place] + beside + whole[place:]
    why = why_not_row_by_row(odd, "source", KEPT, "onelake_writer")
    assert why is not None
    assert "does not treat every row by itself" in why


def test_a_step_must_keep_the_column_that_names_the_writer() -> None:
    why = why_not_row_by_row(plan("Project [id#2L]"), "source", ("id",), "onelake_writer")
    assert why is not None
    assert "do not keep all columns" in why


@pytest.mark.parametrize("said", ["", plan("Project [id#2L]").replace("`source`", "`another`")])
def test_a_plan_that_is_not_understood_is_refused(said: str) -> None:
    assert why_not_row_by_row(said, "source", KEPT, "onelake_writer") is not None
