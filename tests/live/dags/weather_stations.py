"""Two weather stations, delivered in different files and units, loaded into one table at the same time."""

from pathlib import Path

import pendulum
from airflow.sdk import DAG, task

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

INPUT = Path(__file__).parent / "weather"

# North delivers a semicolon CSV in Fahrenheit, with a quality flag.
NORTH = FileSource(
    f"{INPUT}/north.csv",
    format="csv",
    options={"header": "true", "sep": ";"},
    schema="station_id STRING, measured_at TIMESTAMP, temp_f DOUBLE, rain_mm DOUBLE, quality STRING",
    view="north",
)
NORTH_STEPS = {
    "good": "SELECT * FROM north WHERE quality = 'ok'",
    "weather": """
        SELECT station_id AS station,
               measured_at,
               round((temp_f - 32) * 5 / 9, 2) AS temp_c,
               rain_mm,
               date_format(measured_at, 'yyyy-MM') AS month
        FROM good
    """,
}

# South delivers JSON lines in Celsius.
SOUTH = SqlSource(f"SELECT * FROM json.`{INPUT}/south.jsonl`")
SOUTH_STEPS = {
    "weather": """
        SELECT station,
               to_timestamp(ts) AS measured_at,
               CAST(temperature AS DOUBLE) AS temp_c,
               CAST(rain AS DOUBLE) AS rain_mm,
               date_format(to_timestamp(ts), 'yyyy-MM') AS month
        FROM source
    """
}

with DAG("weather_stations", schedule=None, start_date=pendulum.datetime(2024, 1, 1, tz="UTC")):
    with OneLakeWriteTaskGroup(group_id="load", table="Tables/weather", partition_by=["month"]) as load:
        OneLakeWriteOperator(task_id="north", writer="north", source=NORTH, steps=NORTH_STEPS)
        OneLakeWriteOperator(task_id="south", writer="south", source=SOUTH, steps=SOUTH_STEPS)

    @task
    def after_load():
        print("the whole load is visible now")

    load >> after_load()
