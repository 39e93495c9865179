"""Pay for the writers' imports once, in the process that forks the tasks, instead of in every task.

Importing pyspark's client costs every task a second of a core (docs/operate/spark.md). A task of the local executor
and of a Celery worker is a fork of a process that lives long, and a fork has the modules of its parent. So put this
into ``airflow_local_settings.py``, which Airflow imports when it starts::

    from airflow_provider_onelake.preload import preload

    preload()

gRPC and obstore start threads when they are used, and threads do not survive a fork. So only import here: open no
channel, no store and no connection.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import airflow_provider_onelake

logger = logging.getLogger(__name__)

_FORKING = (["scheduler"], ["celery", "worker"])
"""Airflow's commands whose processes fork tasks, for the local executor and for Celery's."""

_MODULES = (
    "pyspark.sql.connect.session",
    "pyspark.sql.connect.client",
    "pyspark.sql.connect.catalog",
    "pyspark.sql.connect.dataframe",
    "pyspark.sql.connect.readwriter",
    "pyspark.sql.connect.functions",
    "pyarrow.compute",
    "pyarrow.parquet",
    "obstore.store",
    "deltalake",
    "airflow.providers.apache.spark.hooks.spark_connect",
)

_NOT_FOR_TASKS = ("airflow_provider_onelake.cli",)
"""What no task imports. It needs an extra that a scheduler may lack."""


def preload() -> None:
    """Import what a writer imports, and of this package what tasks may need, if this process forks tasks; else nothing.

    The process is known by Airflow's command. A module that cannot be imported is left to the tasks that need it, so
    that Airflow itself starts.
    """
    if not any(sys.argv[1 : 1 + len(command)] == command for command in _FORKING):
        return
    for name in (*_MODULES, *_for_tasks(airflow_provider_onelake)):
        try:
            import_module(name)
        except Exception as error:
            logger.warning("%s is not preloaded; each task that needs it imports it: %s", name, error)


def _for_tasks(package: ModuleType) -> Iterator[str]:
    """Yield the names of a package's modules that tasks may need. To look into a package is to import it."""
    for found in iter_modules(package.__path__, f"{package.__name__}."):
        if found.name in _NOT_FOR_TASKS:
            continue
        yield found.name
        if found.ispkg:
            yield from _for_tasks(import_module(found.name))
