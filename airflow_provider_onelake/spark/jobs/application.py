"""The application of Spark that a job runs in: its session's settings, and where people look at it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

# What YARN gives a driver, so that its UI is reached through the resource manager: there too when it has ended.
_YARN_PROXY = "spark.org.apache.hadoop.yarn.server.webproxy.amfilter.AmIpFilter.param.PROXY_URI_BASES"

_CONNECT = "pyspark.sql.connect.session"
_NAMED = re.compile(r"\s*\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")

WHOLE_FILES = {
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}
"""Whatever the server's default is, a file that is gone or damaged must fail a job, because its rows would be left out.
An author may say otherwise of a source, by options of its reader."""

# Names and values that come from data stand in SQL of ours, where `${env:NAME}` would become a secret of the server's.
_ALWAYS = {"spark.sql.variable.substitute": "false"}


def is_connect(spark: SparkSession) -> bool:
    """Say whether a session is one of Spark Connect, so that every call is a request to a server."""
    return type(spark).__module__ == _CONNECT


def condition_of(error: Any) -> str | None:
    """Return the condition of an error of pyspark; ``None`` if the error has none."""
    # pyspark 3.5 has another name for it, and a Spark Connect server of 3.5 puts it in front of the text alone.
    ask = getattr(error, "getCondition", getattr(error, "getErrorClass", lambda: None))
    named = _NAMED.match(str(error))
    condition: str | None = ask() or (named[1] if named else None)
    return condition


def settings_of(spark: SparkSession) -> Mapping[str, str]:
    """Return all settings of a session."""
    try:
        found: Mapping[str, str] = spark.conf.getAll
    except AttributeError:
        # pyspark 3.5 has no such attribute.
        return {row["key"]: row["value"] for row in spark.sql("SET").collect()}
    return found


def configure(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Set what a job needs, whatever its session had before.

    :param spark: session of the job's own.
    """
    settings = {**_ALWAYS, **settings}
    if is_connect(spark):
        from pyspark.sql.connect.proto import ConfigRequest, KeyValue

        # `conf.set` is a request for each setting, and a request may have as many as one likes.
        pairs = [KeyValue(key=name, value=value) for name, value in settings.items()]
        spark.client.config(ConfigRequest.Operation(set=ConfigRequest.Set(pairs=pairs)))
        return
    for name, value in settings.items():
        spark.conf.set(name, value)


def application(spark: SparkSession) -> dict[str, Any]:
    """Say which application a session belongs to.

    :param spark: a session.
    :returns: ``application_id``, and ``ui``, its address for people as far as that outlives a driver.
    """
    settings = settings_of(spark)
    return {"application_id": settings.get("spark.app.id"), "ui": lasting_ui(settings)}


def lasting_ui(settings: Mapping[str, str]) -> str | None:
    """Return the address of an application's UI behind its cluster's proxy.

    :param settings: of the session.
    """
    if proxies := settings.get(_YARN_PROXY):
        return proxies.split(",")[0]
    base, app_id = settings.get("spark.ui.reverseProxyUrl"), settings.get("spark.app.id")
    return f"{base.rstrip('/')}/proxy/{app_id}/" if base and app_id else None


def driver_ui(settings: Mapping[str, str]) -> str | None:
    """Return the address of the UI that a driver serves itself for as long as it lives.

    :param settings: of the session.
    """
    host, port = settings.get("spark.driver.host"), settings.get("spark.ui.port", "4040")
    if settings.get("spark.ui.enabled", "true").lower() == "false" or not host or port in ("", "0"):
        return None
    return f"http://{host}:{port}"
