"""Functions that make the assets of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Asset, AssetWatcher

from airflow_provider_onelake._airflow import check_has
from airflow_provider_onelake.assets.uris import asset_uri
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.triggers.delta_log import DeltaLogTrigger

PARTITIONED_BY = "partitioned_by"
"""In an asset's ``extra``: the columns whose values are the keys of its partitions."""


def table_asset(
    table: str,
    name: str | None = None,
    *,
    partitioned_by: str | Sequence[str] = (),
    onelake_conn_id: str = OneLakeHook.default_conn_name,
    **arguments: Any,
) -> Asset:
    """Make the asset of a table that loads update: the ``outlets`` of a write group.

    The events of a run that is for a partition itself have that run's key, unless ``partitioned_by`` gives them others;
    so they start no DAG without a partitioned timetable. For such a DAG, take :func:`watched_table_asset`.

    :param table: an address, or a path in the connection's lakehouse. No template.
    :param name: of the asset. Default: its URI.
    :param partitioned_by: partition columns. Then a load makes an event for each partition that it touched, for DAGs
        on a ``PartitionedAssetTimetable``, and none for others: they take an asset of the table without it, or a
        watched one.
    :param onelake_conn_id: the connection. Default: ``onelake_default``.
    :param arguments: more of Airflow's ``Asset``.
    :raises AddressError: the address is no table's.
    :raises InvalidWriteError: ``partitioned_by`` is given, and Airflow is older than 3.3.
    """
    by = [partitioned_by] if isinstance(partitioned_by, str) else list(partitioned_by)
    if by:
        check_has(
            f"partitioned_by={partitioned_by!r}", "Leave it out: a load is then one event, which names its partitions."
        )
    uri = asset_uri(table, onelake_conn_id, f"by={','.join(by)}" if by else "")
    extra = {**arguments.pop("extra", {}), **({PARTITIONED_BY: by} if by else {})}
    return Asset(name=name or uri, uri=uri, extra=extra, **arguments)


def watched_table_asset(
    table: str,
    name: str,
    *,
    onelake_conn_id: str = OneLakeHook.default_conn_name,
    **watching: Any,
) -> Asset:
    """Make an asset for which every commit to a table is an event, whoever made it.

    It has a watcher, so it cannot be the outlet of a load too: each of its commits would be two events. A table may
    have several, with filters of their own; the name is part of their URIs.

    :param table: an address, or a path in the connection's lakehouse. No template.
    :param name: of the asset.
    :param onelake_conn_id: the connection. Default: ``onelake_default``.
    :param watching: more of :class:`~airflow_provider_onelake.triggers.delta_log.DeltaLogTrigger`: its filters, and
        ``poll_interval``.
    :raises AddressError: the address is no table's.
    """
    trigger = DeltaLogTrigger(table=table, onelake_conn_id=onelake_conn_id, asset=name, **watching)
    uri = asset_uri(table, onelake_conn_id, f"log={name}")
    return Asset(name=name, uri=uri, watchers=[AssetWatcher(name="delta_log", trigger=trigger)])


def is_watched(asset: Any) -> bool:
    """Say whether an asset's events come from a table's log already.

    :param asset: an outlet of a task.
    """
    watchers = getattr(asset, "watchers", ())
    return any(isinstance(watcher.trigger, DeltaLogTrigger) for watcher in watchers)
