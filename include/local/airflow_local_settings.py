"""What Airflow imports when one of its processes starts. A stack has this file in the ``config`` of Airflow's home."""

from airflow_provider_onelake.preload import preload

preload()
