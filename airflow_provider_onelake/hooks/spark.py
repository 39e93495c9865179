"""Choose the engine for a Spark connection."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import InvalidWriteError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_onelake.spark.base import Engine
    from airflow_provider_onelake.storage.spark import SparkAccess
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)

DEFAULT_SPARK_CONN_ID = "spark_connect_default"

ENGINES = {
    "spark_connect": "airflow_provider_onelake.spark.connect:ConnectEngine",
    "spark": "airflow_provider_onelake.spark.submit.engine:SubmitEngine",
    "onelake_livy": "airflow_provider_onelake.spark.livy.engine:LivyEngine",
}
"""The engines' classes by type of connection. A class is imported when a connection of its type is used."""


def engine_class(connection: Connection) -> type[Engine]:
    """Choose the engine's class by the type of the connection.

    :param connection: of Spark.
    :raises InvalidWriteError: no engine supports the connection's type.
    """
    if connection.conn_type not in ENGINES:
        *others, last = map(repr, ENGINES)
        raise InvalidWriteError(
            f"The connection {connection.conn_id} is of the type {connection.conn_type!r}; Spark is reached through "
            f"connections of the types {', '.join(others)} and {last}. Nothing was staged."
        )
    found: type[Engine] = resolve_name(ENGINES[connection.conn_type])
    return found


def engine_for(
    spark_conn_id: str,
    timeout: float | None = None,
    access: Callable[[], SparkAccess] | None = None,
    store: Callable[[], Store] | None = None,
    leave: Callable[[str, float | None], None] | None = None,
    on_started: Callable[[str], None] | None = None,
) -> Engine:
    """Make the engine of a connection.

    The other parameters are those of :class:`~airflow_provider_onelake.spark.base.EngineContext`.

    :param spark_conn_id: a connection of a type in :data:`ENGINES`.
    :param on_started: called with the address of Spark's UI once it is known. The address is ``spark_ui`` of the
        connection's extra, with ``{application_id}`` and ``{session_id}`` filled in, else Spark's own. Default: no
        call.
    :returns: the engine. It has not contacted Spark yet.
    :raises InvalidWriteError: no engine supports the connection's type, or the connection is malformed.
    """
    from airflow.sdk import BaseHook

    from airflow_provider_onelake.spark.base import EngineContext

    connection = BaseHook.get_connection(spark_conn_id)
    told = partial(_tell, connection, on_started) if on_started is not None else None
    around = EngineContext(timeout=timeout, access=access, store=store, leave=leave, on_started=told)
    return engine_class(connection).of(connection, around)


def _tell(
    connection: Connection,
    on_started: Callable[[str], None],
    application_id: str | None,
    session_id: str | None,
    page: str | None,
) -> None:
    """Pass the address of Spark's UI on, as the connection or Spark spells it."""
    from airflow_provider_onelake.storage.console import filled

    template = str(connection.extra_dejson.get("spark_ui") or "").strip()
    try:
        found = filled(template, {"application_id": application_id, "session_id": session_id}) if template else page
    except InvalidWriteError as error:
        logger.warning("There is no link to Spark's UI: `spark_ui` of the connection %s: %s", connection.conn_id, error)
        return
    if found:
        on_started(found)
