"""What is refused of a DELETE or UPDATE before Spark is asked, and how it is told and told apart."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.commits import digest_of
from airflow_provider_onelake.statements.statement import DELETE, UPDATE, Statement


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("id IN (SELECT id FROM other)", "subquery"),
        ("EXISTS ( /* a comment */ select 1)", "subquery"),
        ("id = (WITH a AS (SELECT 1) TABLE a)", "subquery"),
        ("rand() < 0.1", r"calls rand\(\)"),
        ("name = UUID ( )", r"calls UUID\(\)"),
        ("input_file_name() LIKE '%a%'", "changes from run to run"),
        ("  ", "an expression in Spark SQL"),
        (None, "an expression in Spark SQL"),
    ],
)
def test_what_cannot_be_run_in_rounds(where: Any, why: str) -> None:
    with pytest.raises(InvalidWriteError, match=f"{why}.*Nothing was changed"):
        Statement(operation=DELETE, where=where)


@pytest.mark.parametrize(
    "where",
    [
        "name = '(SELECT 1)' -- rand()",
        'name = "uuid()" /* (select 1) */',
        "`rand`(id) = 1 OR `(select)` = 2",
        "rand = 3 AND brand(id) = 2",
        "name = 'it''s (SELECT' AND name <> 'a\\' (SELECT 1)'",
    ],
)
def test_texts_comments_and_names_are_no_sql(where: str) -> None:
    assert Statement(operation=DELETE, where=where).where == where


def test_a_value_may_differ_from_run_to_run_but_has_no_subquery() -> None:
    Statement(operation=UPDATE, where="true", assignments={"key": "uuid()"})
    with pytest.raises(InvalidWriteError, match=r"set\['v'\].*subquery.*UPDATE"):
        Statement(operation=UPDATE, where="true", assignments={"v": "(SELECT max(v) FROM t)"})
    for operation, assignments in ((UPDATE, {}), (DELETE, {"v": "1"})):
        with pytest.raises(InvalidWriteError):
            Statement(operation=operation, where="true", assignments=assignments)


def test_it_is_told_in_sql_and_told_apart_by_all_that_it_asks() -> None:
    update = Statement(operation=UPDATE, where="id = 3", covers="month = 'x'", assignments={"a": "1", "b": "a"})
    assert str(update) == "UPDATE SET a = 1, b = a WHERE (id = 3) AND (month = 'x')"
    delete = Statement(operation=DELETE, where="id = 3")
    assert str(delete) == "DELETE WHERE id = 3"
    # So a try that found the predicate to be on partition columns is known by a later one that does not.
    assert delete.digest == digest_of(b"id = 3")
    others = [
        Statement(operation=DELETE, where="id = 4"),
        Statement(operation=DELETE, where="id = 3", covers="month = 'x'"),
        update,
        Statement(operation=UPDATE, where="id = 3", covers="month = 'x'", assignments={"a": "2", "b": "a"}),
    ]
    assert len({each.digest for each in (delete, *others)}) == 5
