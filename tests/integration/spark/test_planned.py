"""The planner's word on which files Spark reads, and with which columns: Spark is asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.reading.spark_files import base_of, literal
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.spark.jobs.stage import _read
from tests.support.contexts import connect, context_of
from tests.support.spark_paths import CASES, Case, grow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """All rows as one job."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return together(parts[:half]).unionAll(together(parts[half:]))


def test_spark_reads_what_the_planner_lists_and_the_shares_are_the_whole(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    tree = grow(tmp_path)
    asked: list[DataFrame] = []
    expected: list[tuple[str, list[str]]] = []

    def ask(name: str, paths: list[str], options: dict[str, str], case: Case) -> None:
        rows = spark.read.format("text").options(**options).load(paths)
        assert rows.columns == ["value", *case.columns], name
        asked.append(rows.selectExpr(f"'{len(asked)}' AS number", "value"))
        # A link's lines are those of what it leads to.
        expected.append((name, sorted(line.replace("link/", "plain/") for line in case.names or ())))

    for case in CASES:
        options = {name: value.replace("TREE", str(tree)) for name, value in case.options.items()}
        paths = [f"{tree}/{path}" for path in case.paths]
        if case.names is None:
            with pytest.raises(PySparkException, match="CONFLICTING"):
                _ = spark.read.format("text").options(**options).load(paths).columns
            continue
        ask(f"{case}", paths, options, case)
        files = [literal(f"{tree}/{name}") for name in case.names]
        if files:
            base = base_of(paths, files, options).base
            ask(f"{case} planned", files, options | ({} if base is None else {"basePath": base}), case)

    found: list[list[str]] = [[] for _ in expected]
    for number, line in together(asked).collect():
        found[int(number)].append(line)
    assert [(name, sorted(lines)) for (name, _), lines in zip(expected, found, strict=True)] == expected


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_column_of_directories_is_in_every_share(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    place = tmp_path / "Files" / "in"
    rows = spark.sql("SELECT id, concat('2019-0', 1 + id % 3) AS month FROM range(0, 9, 1, 1)")
    rows.write.partitionBy("month").format(form).save(str(place))
    for schema in (None, "id BIGINT, month STRING"):
        source = FileSource(str(place), format=form, schema=schema)
        plan: Any = OneLakePlanOperator(task_id="plan", table=f"Tables/t{schema is None}", source=source, by="month")
        plan.writers = 2
        shares = []
        for entry in plan.execute(context_of(plan)):
            writer = OneLakeWriteOperator(task_id="write", table="Tables/t", source=source, **entry)
            shares.append(_read(spark, writer.terms().query.source.job()).selectExpr("id", "CAST(month AS STRING)"))
        assert len(shares) == 2
        assert sorted(map(tuple, together(shares).collect())) == sorted(map(tuple, rows.collect()))
