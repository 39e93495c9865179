"""The columns of Avro files, for which Spark has no ``mergeSchema``."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from airflow_provider_onelake.spark.jobs.columns import RowsDoNotFitError
from airflow_provider_onelake.spark.jobs.stage import _read


def read(files: int, **source: Any) -> Any:
    spark = MagicMock()
    reader = spark.read.format.return_value.options.return_value
    for each in (reader, reader.schema.return_value):
        each.load.return_value.inputFiles.return_value = [f"/in/{number}.avro" for number in range(files)]
    return _read(spark, {"path": ["/in"], "format": "Avro", **source})


def test_several_avro_files_need_columns_that_their_author_gives() -> None:
    with pytest.raises(RowsDoNotFitError, match=r"/in.*avroSchema"):
        read(2)


@pytest.mark.parametrize(
    ("files", "source"),
    [(1, {}), (2, {"schema": "a INT"}), (2, {"options": {"AVROSCHEMA": "{}"}})],
    ids=["one file", "a schema", "an Avro schema"],
)
def test_avro_files_are_read_where_their_columns_are_known(files: int, source: dict[str, Any]) -> None:
    assert read(files, **source) is not None
