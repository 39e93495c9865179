"""Checks that are no conditions in SQL: what may be asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_onelake.checks import RowsLikeLast, check_known, in_sql, rows_like_last, unique
from airflow_provider_onelake.exceptions import InvalidWriteError


@pytest.mark.parametrize(
    ("check", "asked"),
    [
        pytest.param(rows_like_last(), RowsLikeLast(5, 0.5, 2.0), id="defaults"),
        pytest.param(rows_like_last(1, at_least=0, at_most=None), RowsLikeLast(1, 0, None), id="no-bounds"),
        pytest.param(rows_like_last("7", at_least="0.9", at_most="1.1"), RowsLikeLast(7, 0.9, 1.1), id="rendered"),
        pytest.param("\n rows_like_last (\n 3, at_most=3 )", RowsLikeLast(3, 0.5, 3), id="by-hand"),
        pytest.param("rows_like_last(loads=2)", RowsLikeLast(2, 0.5, 2.0), id="by-name"),
        pytest.param(f"rows_like_last(at_most=1{'0' * 400})", RowsLikeLast(5, 0.5, 10**400), id="large"),
        pytest.param("count(*) > 0", None, id="sql"),
        pytest.param("rows_like_last > 0", None, id="a-column-of-that-name"),
    ],
)
def test_a_check_says_what_it_compares_with(check: str, asked: RowsLikeLast | None) -> None:
    assert RowsLikeLast.parse(check) == asked
    assert in_sql({"it": check}) == ({"it": check} if asked is None else {})


@pytest.mark.parametrize(
    "check",
    [
        pytest.param("rows_like_last(0)", id="of-no-load"),
        pytest.param("rows_like_last(101)", id="of-too-many"),
        pytest.param("rows_like_last(2.5)", id="of-half-a-load"),
        pytest.param("rows_like_last(True)", id="of-a-truth"),
        pytest.param("rows_like_last(None)", id="of-nothing"),
        pytest.param("rows_like_last(5, at_least=-1)", id="below-nothing"),
        pytest.param("rows_like_last(5, at_least=None)", id="without-a-least"),
        pytest.param("rows_like_last(5, at_least=2, at_most=1)", id="the-wrong-way-round"),
        pytest.param("rows_like_last(5, at_most=1e999)", id="endless"),
        pytest.param("rows_like_last(5, at_most='2')", id="a-text"),
        pytest.param("rows_like_last(5, within=0.5)", id="unknown-bound"),
        pytest.param("rows_like_last(5, **{'at_most': 2})", id="stars"),
        pytest.param("rows_like_last(count(*))", id="sql-inside"),
        pytest.param("rows_like_last(5) and True", id="with-another"),
        pytest.param("rows_like_last(5) AND count(*) > 0", id="with-sql"),
        pytest.param("rows_like_last(5)(3)", id="called-again"),
        pytest.param(f"rows_like_last(5, at_least=2, at_most=1{'0' * 400}.0)", id="endless-in-digits"),
        pytest.param("rows_like_last(5", id="half"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(check: str) -> None:
    with pytest.raises(InvalidWriteError, match=r"is no check of the number of rows\. It stands alone"):
        RowsLikeLast.parse(check)


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(lambda: check_known("\n unique (\n 'id', 'b' )"), id="by-hand"),
        pytest.param(lambda: check_known("UNIQUE(id)"), id="as-if-in-sql"),
        pytest.param(lambda: unique("id"), id="by-its-function"),
    ],
)
def test_a_check_of_keys_against_the_table_is_refused_with_what_to_take(check: Callable[[], object]) -> None:
    with pytest.raises(InvalidWriteError, match=r"is gone.*mode='merge'.*'NOT MATCHED THEN INSERT \*'.*DISTINCT id"):
        check()
    check_known("is_unique(id) = 0")
