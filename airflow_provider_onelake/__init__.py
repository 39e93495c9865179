"""Airflow provider for many Spark jobs that write one Delta table at the same time.

A writer *stages* its rows into a buffer nested in the table's directory, and a *commit* publishes buffers by
putting one JSON file, create-only, into the table's log. See ``docs/concepts/how-it-works.md``.
"""

__version__ = "0.1.0"
