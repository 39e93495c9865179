"""The expression that names the writer of each row of a shared scan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from airflow_provider_onelake.spark.jobs.stage import CLAIMED_TWICE, _configure, route


def test_each_filter_names_its_writer_and_two_filters_are_an_error() -> None:
    expression = route({"a-1": "x = 1", "b-2": "x = 2 -- of b"})
    assert expression == (
        "CASE WHEN IF((\nx = 1\n), 1, 0) + IF((\nx = 2 -- of b\n), 1, 0) > 1 "
        f"THEN raise_error('{CLAIMED_TWICE}') "
        "WHEN (\nx = 1\n) THEN 'a-1' WHEN (\nx = 2 -- of b\n) THEN 'b-2' END AS `onelake_writer`"
    )


@pytest.mark.parametrize("count", [2, 28])
def test_it_is_made_of_expressions_for_which_spark_generates_code(count: int) -> None:
    tree = sqlglot.parse_one(route({f"w-{n}": f"x = {n}" for n in range(count)}), dialect="spark")
    assert not list(tree.find_all(exp.Lambda, exp.Explode, exp.Array))
    (case,) = tree.find_all(exp.Case)
    assert len(case.args["ifs"]) == count + 1


@pytest.mark.parametrize(("routes", "limit"), [({"a-1": "x = 1"}, "8000"), (None, None)])
def test_only_a_shared_scan_has_spark_divide_methods(routes: dict[str, str] | None, limit: str | None) -> None:
    settings: dict[str, str] = {}
    spark: Any = SimpleNamespace(conf=SimpleNamespace(set=settings.__setitem__))
    _configure(spark, {"routes": routes})
    assert settings.get("spark.sql.codegen.hugeMethodLimit") == limit
