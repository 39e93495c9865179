"""Which engine a Spark connection stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import InvalidWriteError

if TYPE_CHECKING:
    from airflow_provider_onelake.engines.base import Engine

DEFAULT_SPARK_CONN_ID = "spark_connect_default"


def engine_for(spark_conn_id: str, timeout: float | None = None) -> Engine:
    """Choose the engine by the type of the connection.

    :param spark_conn_id: a connection of the type ``spark_connect``.
    :param timeout: in seconds, after which a job is stopped; ``None`` for never.
    :returns: the engine; nothing has been asked of Spark yet.
    :raises InvalidWriteError: the connection is of a type that no engine speaks.
    """
    from airflow.sdk import BaseHook

    kind = BaseHook.get_connection(spark_conn_id).conn_type
    if kind == "spark_connect":
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

        from airflow_provider_onelake.engines.connect import ConnectEngine

        return ConnectEngine(remote=SparkConnectHook(spark_conn_id).get_connection_url(), timeout=timeout)
    raise InvalidWriteError(
        f"The connection {spark_conn_id} is of the type {kind!r}; this version speaks to Spark through connections of "
        "the type 'spark_connect' only. Nothing was staged."
    )
