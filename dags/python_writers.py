"""Writers in Python: what a function returns as a data frame is staged and published like any writer's rows."""

# [START howto_function]
from pathlib import Path

import pendulum
from airflow.sdk import DAG, task

from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

TRIPS = Path(__file__).parents[1] / "include/data/nyc_taxi/yellow_tripdata_2019-01.json.gz"
COLUMNS = "vendor_id INT, pickup_datetime BIGINT, trip_distance DOUBLE, total_amount DOUBLE"

with (
    DAG("python_writers", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")),
    OneLakeWriteTaskGroup(group_id="load", table="Tables/python_writers", partition_by=["vendor_id"]),
):

    @task.onelake_write(writer="vendor-{{ op_kwargs.vendor }}")
    def cleaned(spark, vendor):
        from pyspark.sql import functions as F

        trips = spark.read.json(str(TRIPS), schema=COLUMNS, mode="FAILFAST")
        return (
            trips.where((F.col("vendor_id") == vendor) & (F.col("trip_distance") > 0))
            .withColumn("picked_up", F.timestamp_millis("pickup_datetime"))
            .drop("pickup_datetime")
        )

    cleaned.expand(vendor=[1, 2])
# [END howto_function]
