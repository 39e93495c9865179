"""Which of Spark's packages for Python are installed on this worker: one version of them, or none works."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from airflow_provider_onelake.exceptions import SparkSetUpError


def submit_line() -> str:
    """Return the command that installs a whole Spark beside Airflow, of the version of the client."""
    extra = "submit-4-1" if version("pyspark-client").startswith("4.1.") else "submit"
    return f"pip install 'airflow-provider-onelake[{extra}]'"


@cache
def check_one_client() -> None:
    """Refuse to run beside another client of Spark: both write ``site-packages/pyspark``, one over the other.

    :raises SparkSetUpError: ``pyspark`` is of another minor version than ``pyspark-client``, or Databricks' own client
        is there too.
    """
    client = version("pyspark-client")
    for other in ("pyspark", "databricks-connect"):
        try:
            found = version(other)
        except PackageNotFoundError:
            continue
        if other != "pyspark" or found.split(".")[:2] != client.split(".")[:2]:
            raise SparkSetUpError(
                f"This worker has {other} {found} beside pyspark-client {client}. Both write site-packages/pyspark, so "
                f"one has overwritten files of the other. Nothing was staged. Uninstall both. Then install "
                f"pyspark-client alone, for Spark Connect and Livy, or run {submit_line()}, for spark-submit too."
            )
