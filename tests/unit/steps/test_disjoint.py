"""Which filters are proven to ask one column for different values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_onelake.steps.disjoint import why_not_disjoint


@pytest.mark.parametrize(
    "filters",
    [
        pytest.param(["x = 1", "x = 2", "X IN (3, 4)"], id="values"),
        pytest.param(["x = 1 OR (x = 2)", "x IN (3, 4) OR x = 5"], id="or"),
        pytest.param(["s = '1'", "s = 2"], id="a-number-and-the-text-of-another"),
        pytest.param(
            ["IF(typeof(d) = 'string', d = '2019-01-01', d = DATE '2019-01-01')", "d = '2019-01-02'"], id="if"
        ),
        pytest.param(["x >= 1 AND x < 5", "x >= 5 AND (x < 9)", "x >= 9"], id="ranges"),
        pytest.param(["x BETWEEN 1 AND 5", "x BETWEEN 6 AND 9"], id="between"),
        pytest.param(["x < 5", "x IN (5, 6)"], id="a-range-and-values"),
        pytest.param(["d >= DATE '2024-01-01' AND d < DATE'2024-02-01'", "d >= DATE '2024-02-01'"], id="dates"),
        pytest.param(["t < TIMESTAMP '2024-01-01 10:00:00'", "t >= TIMESTAMP '2024-01-01 10:00:00'"], id="timestamps"),
        pytest.param(["t < '2024-02-01' AND t >= '2024-01-01'", "t >= '2024-02-01'"], id="dates-as-text"),
        pytest.param(["region = 'eu'", "region IN ('us', 'apac')"], id="texts"),
        pytest.param(["d < DATE '2024-01-01'", "d >= TIMESTAMP '2024-01-01 00:00:00'"], id="date-and-timestamp"),
        pytest.param(["x < 1e3", "x >= 1000 AND x < 2000L", "x > 2000.5D"], id="spellings-of-numbers"),
        pytest.param(["x = -1 -- a comment", "x = 1"], id="comment"),
    ],
)
def test_disjoint(filters: list[str]) -> None:
    assert why_not_disjoint(dict(zip("abc", filters, strict=False))) is None


@pytest.mark.parametrize(
    "filters",
    [
        pytest.param(["x = 1", "x = 1"], id="equal"),
        pytest.param(["x = 1", "y = 2"], id="other-columns"),
        pytest.param(["x <= 5", "x >= 5"], id="ranges-that-meet"),
        pytest.param(["x BETWEEN 1 AND 5", "x IN (5, 6)"], id="a-value-in-a-range"),
        pytest.param(["x = 1 OR y = 2", "x = 3"], id="or"),
        pytest.param(["NOT x = 1", "x = 3"], id="not"),
        pytest.param(["x <=> 1", "x = 3"], id="null-safe"),
        pytest.param(["s = 'a'", "s = 'A'"], id="collation"),
        pytest.param(["s = 'a'", "s = 'a '"], id="padding"),
        pytest.param(["s = '1'", "s = '01'"], id="cast-to-a-number"),
        pytest.param(["s = '1'", "s = '1.0'"], id="cast-to-a-decimal"),
        pytest.param(["s = 'a'", "s = 2"], id="other-types"),
        pytest.param(["s = '1'", "s = 1"], id="a-number-and-its-text"),
        pytest.param(["IF(typeof(s) = 'string', s = '1', s = 2)", "s = 1"], id="one-way-of-an-if"),
        pytest.param(["x = 1 OR x = 2", "x = 2 OR x = 3"], id="or-with-a-value-in-both"),
        pytest.param(["s < 'b'", "s >= 'b'"], id="ranges-of-free-text"),
        pytest.param(["s < '1.0'", "s >= ('1.0')"], id="ranges-of-numbers-as-text"),
        pytest.param(["s < '2024-01-01 00:00:00'", "s >= '2024-01-01'"], id="ranges-of-times-as-text"),
        pytest.param(["d < '2024-1-1'", "d >= '2024-1-1'"], id="a-date-with-less-digits"),
        pytest.param(["d <= DATE '2024-01-01'", "d = TIMESTAMP '2024-01-01 00:00:00'"], id="date-and-timestamp"),
        pytest.param(["d < DATE '2024-01-01'", "d >= TIMESTAMP '2024-01-01 00:00:00Z'"], id="with-and-without-a-zone"),
        pytest.param(["id % 7 = 0", "id % 7 = 1"], id="an-expression"),
        pytest.param(["month(d) = 1", "month(d) = 2"], id="a-function"),
        pytest.param(["x = 1 AND y = 2", "x = 2 AND y = 2"], id="a-column-besides"),
        pytest.param(["x IN (1, 2) AND x > 1", "x = 3"], id="more-than-a-range"),
        pytest.param(["1 = x", "2 = x"], id="a-literal-first"),
        pytest.param(["x = 'nan'", "x > 1"], id="not-a-number"),
        pytest.param(["rand() = 0", "rand() = 1"], id="random"),
        pytest.param(["uuid() = 'a'", "uuid() = 'b'"], id="unknown-function"),
        pytest.param(["x = (SELECT 1)", "x = 2"], id="subquery"),
        pytest.param(["x = ?", "x = 2"], id="parameter"),
        pytest.param(["x = 1) OR (y", "x = 2"], id="no-filter"),
        pytest.param(["x = 1; DROP TABLE t", "x = 2"], id="two-statements"),
        pytest.param(["", "x = 2"], id="nothing"),
        pytest.param([" AND ".join(["x = 1"] * 3000), "x = 2"], id="too-deep-to-walk"),
    ],
)
def test_not_proven(filters: list[str]) -> None:
    assert why_not_disjoint(dict(zip("ab", filters, strict=True))) is not None


_NUMBERS = st.integers(-4, 4)
_SIGNS = st.sampled_from(["=", "<", "<=", ">", ">="])


@st.composite
def _condition(draw: st.DrawFn) -> tuple[str, Any]:
    column, sign, number = draw(st.sampled_from("xxxy")), draw(_SIGNS), draw(_NUMBERS)
    if draw(st.booleans()):
        several = draw(st.lists(_NUMBERS, min_size=1, max_size=3))
        return f"{column} IN ({', '.join(map(str, several))})", lambda row: row[column] in several
    tests = {
        "=": lambda value: value == number,
        "<": lambda value: value < number,
        "<=": lambda value: value <= number,
        ">": lambda value: value > number,
        ">=": lambda value: value >= number,
    }
    return f"{column} {sign} {number}", lambda row: tests[sign](row[column])


@st.composite
def _filter(draw: st.DrawFn) -> tuple[str, Any]:
    parts = draw(st.lists(_condition(), min_size=1, max_size=3))
    word = draw(st.sampled_from([" AND ", " AND ", " OR "]))
    together = all if word == " AND " else any
    return word.join(text for text, _ in parts), lambda row: together(test(row) for _, test in parts)


@given(_filter(), _filter())
def test_no_row_satisfies_two_filters_that_were_proven_apart(one: tuple[str, Any], other: tuple[str, Any]) -> None:
    if why_not_disjoint({"a": one[0], "b": other[0]}) is None:
        values = [-5, *(n / 2 for n in range(-9, 10)), 5]
        rows = ({"x": x, "y": y} for x in values for y in values)
        assert not any(one[1](row) and other[1](row) for row in rows)
