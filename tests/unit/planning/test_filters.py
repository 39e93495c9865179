"""Filters for values: what they say, and which values are refused. Spark's word on them: tests/integration/spark."""

# ruff: noqa: DTZ001 - a time without a zone is in UTC here
from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pendulum
import pytest

from airflow_provider_onelake.exceptions import PlanError
from airflow_provider_onelake.planning.filters import check_distinct, filter_of
from airflow_provider_onelake.steps.disjoint import why_not_disjoint

NOON = datetime(2019, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text", "literal"),
    [
        (1, "'1'", "1"),
        (True, "'true'", "true"),
        (np.int64(7), "'7'", "7"),
        (np.bool_(False), "'false'", "false"),
        (pendulum.datetime(2019, 1, 1, 12, tz="UTC"), "'2019-01-01 12:00:00'", "TIMESTAMP '2019-01-01 12:00:00'"),
        (1.5, "'1.5'", "1.5"),
        (Decimal("1.50"), "'1.50'", "1.50"),
        ("01", "'01'", "1"),
        (date(2019, 1, 1), "'2019-01-01'", "DATE '2019-01-01'"),
        (NOON, "'2019-01-01 12:00:00'", "TIMESTAMP '2019-01-01 12:00:00'"),
        (datetime(2019, 1, 1, 12, 0, 0, 500), "'2019-01-01 12:00:00.0005'", "TIMESTAMP '2019-01-01 12:00:00.0005'"),
        (
            datetime(2019, 1, 1, 12, tzinfo=timezone(timedelta(hours=5))),
            "'2019-01-01 07:00:00'",
            "TIMESTAMP '2019-01-01 07:00:00'",
        ),
    ],
    ids=str,
)
def test_a_value_is_text_in_a_column_of_text_and_else_a_literal_of_its_type(
    value: Any, text: str, literal: str
) -> None:
    assert filter_of("a`b", [value]) == f"IF(typeof(`a``b`) LIKE 'string%', `a``b` = {text}, `a``b` = {literal})"


def test_a_fraction_is_a_float_in_a_column_of_floats() -> None:
    floats = "IF(typeof(`c`) = 'float', `c` = CAST('0.1' AS FLOAT) OR `c` = 2, `c` = 0.1 OR `c` = 2)"
    assert filter_of("c", [0.1, 2]) == f"IF(typeof(`c`) LIKE 'string%', `c` = '0.1' OR `c` = '2', {floats})"


@pytest.mark.parametrize(
    ("one", "other"), [(1, "01"), (1, 1.0), (Decimal("1.5"), Decimal("1.50")), (date(2019, 1, 1), datetime(2019, 1, 1))]
)
def test_two_values_that_a_column_may_have_as_one_are_refused(one: Any, other: Any) -> None:
    with pytest.raises(PlanError, match="are one value in some types of columns"):
        check_distinct([None, one, True, "a", other])
    check_distinct([None, one, 7, "a", b"a", True, 16777216, 16777217])


def test_two_texts_are_two_values_of_a_column_of_text() -> None:
    check_distinct(["1", "01", "a", "A"])


@pytest.mark.parametrize(
    "values",
    [
        ([1, 2], [3], [-4]),
        (["a", "b"], ["c"], ["d"]),
        (["1", "2"], ["3"], [4]),
        ([0.25, 1.0], [0.1], [Decimal("2.50")]),
        ([date(2019, 1, 1)], [date(2019, 1, 2), date(2019, 1, 3)]),
        ([NOON], [datetime(2019, 1, 1, 13), datetime(2019, 1, 2)]),
    ],
    ids=str,
)
def test_a_shared_scan_takes_the_filters_of_a_plan(values: tuple[list[Any], ...]) -> None:
    filters = {str(number): filter_of("c", each) for number, each in enumerate(values)}
    assert why_not_disjoint(filters) is None
    assert why_not_disjoint({**filters, "twice": filter_of("c", values[0])}) is not None
