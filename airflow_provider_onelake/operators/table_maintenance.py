"""Fabric's own table maintenance, which is gone: its VACUUM took files of kept versions and of buffers."""

from __future__ import annotations

from airflow_provider_onelake.exceptions import InvalidWriteError


def __getattr__(name: str) -> object:
    """Refuse the operator by its name.

    :raises InvalidWriteError: the message says what to take.
    """
    if name != "OneLakeTableMaintenanceOperator":
        raise AttributeError(name)
    raise InvalidWriteError(
        f"{name} is gone, because Fabric's VACUUM spares neither kept versions nor buffers. Take "
        "OneLakeOptimizeOperator(v_order=True, zorder_by=…) and OneLakeVacuumOperator, with a connection of the type "
        "'onelake_livy' to Fabric's Spark."
    )
