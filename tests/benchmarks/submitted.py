"""A job for ``spark-submit``: it appends the rows of one file to a Delta table, and commits by itself."""

import sys

from pyspark.sql import SparkSession

path, query, table, partition = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.read.parquet(path).createOrReplaceTempView("source")
spark.sql(query).write.format("delta").mode("append").partitionBy(partition).save(table)
spark.stop()
