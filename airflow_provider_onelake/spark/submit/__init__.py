"""Spark by ``spark-submit``: a driver of its own for every job."""
