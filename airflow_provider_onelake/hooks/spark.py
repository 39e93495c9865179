"""Choose the engine for a Spark connection."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import InvalidWriteError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_onelake.engines.base import Engine
    from airflow_provider_onelake.storage.spark import SparkAccess
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)

DEFAULT_SPARK_CONN_ID = "spark_connect_default"


def engine_for(
    spark_conn_id: str,
    timeout: float | None = None,
    access: Callable[[], SparkAccess] | None = None,
    store: Callable[[], Store] | None = None,
    leave: Callable[[str, float | None], None] | None = None,
    seen: Callable[[str], None] | None = None,
) -> Engine:
    """Choose the engine by the type of the connection.

    :param spark_conn_id: a connection of the type ``spark_connect`` or ``spark``.
    :param timeout: in seconds, after which a job is stopped; ``None`` for never.
    :param access: returns what Spark needs to reach the table's store. It is called only for spark-submit, because a
        Spark Connect server is set up for the store beforehand. Default: Spark needs nothing.
    :param store: opens the table's store, through which plan and verdict go in cluster mode. Default: none.
    :param leave: takes over the wait when a driver in cluster mode is at work. Default: the engine waits.
    :param seen: called with the address of Spark's UI once it is known. The address is ``spark_ui`` of the connection's
        extra, with ``{application_id}`` and ``{session_id}`` filled in, else Spark's own. Default: no call.
    :returns: the engine. It has not contacted Spark yet.
    :raises InvalidWriteError: no engine supports the connection's type, or the connection is malformed.
    """
    from airflow.sdk import BaseHook

    connection = BaseHook.get_connection(spark_conn_id)
    told = partial(_tell, connection, seen) if seen is not None else None
    if connection.conn_type == "spark_connect":
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

        from airflow_provider_onelake.engines.connect import ConnectEngine

        return ConnectEngine(SparkConnectHook(spark_conn_id).get_connection_url(), timeout, seen=told)
    if connection.conn_type == "spark":
        from airflow.sdk.log import mask_secret

        from airflow_provider_onelake.engines.submit.engine import SubmitEngine
        from airflow_provider_onelake.engines.submit.settings import SubmitTarget, secrets
        from airflow_provider_onelake.storage.spark import SparkAccess

        needed = access() if access is not None else SparkAccess()
        # Spark's output goes into the task's log, so have Airflow mask the secrets there.
        for value in secrets(needed.environment):
            mask_secret(value)
        return SubmitEngine(SubmitTarget.of(connection), timeout, needed, store, leave, told)
    raise InvalidWriteError(
        f"The connection {spark_conn_id} is of the type {connection.conn_type!r}; Spark is reached through connections "
        "of the types 'spark_connect' and 'spark'. Nothing was staged."
    )


def _tell(
    connection: Connection,
    seen: Callable[[str], None],
    application_id: str | None,
    session_id: str | None,
    page: str | None,
) -> None:
    """Pass the address of Spark's UI on, as the connection or Spark spells it."""
    from airflow_provider_onelake.storage.pages import filled

    template = str(connection.extra_dejson.get("spark_ui") or "").strip()
    try:
        found = filled(template, {"application_id": application_id, "session_id": session_id}) if template else page
    except InvalidWriteError as error:
        logger.warning("There is no link to Spark's UI: `spark_ui` of the connection %s: %s", connection.conn_id, error)
        return
    if found:
        seen(found)
