"""A job for ``spark-submit``: it appends the rows of one file to a Delta table, and commits by itself."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(path: str, query: str, table: str, partition: str) -> None:
    """Append.

    :param query: that makes the rows of the view ``source``.
    """
    spark = SparkSession.builder.getOrCreate()
    spark.read.parquet(path).createOrReplaceTempView("source")
    spark.sql(query).write.format("delta").mode("append").partitionBy(partition).save(table)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
