"""V-Order, a layout of Parquet that Fabric's Spark writes.

See https://learn.microsoft.com/fabric/data-engineering/delta-optimization-and-v-order.

A setting of the session decides it. A workspace's resource profile sets it too, after the settings with which the
session was asked for, so a job says it in the session itself. Other Sparks take the setting and do nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Runtimes with a Spark older than 4, which these jobs do not run on, have it by the name ….vorder.enabled.
_SETTING = "spark.sql.parquet.vorder.default"


def v_order_settings(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a job's session that decide about V-Order.

    :param job: fields of a job. With ``v_order`` it asks for V-Order or for none.
    :returns: nothing where the job leaves it to the session.
    """
    asked = job.get("v_order")
    return {} if asked is None else {_SETTING: "true" if asked else "false"}
