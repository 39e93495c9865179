"""Writes the events of the assets that a load updates."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

from airflow_provider_onelake.assets.commits import COMMITS
from airflow_provider_onelake.assets.tables import PARTITIONED_BY, is_watched
from airflow_provider_onelake.assets.uris import may_be_in_onelake
from airflow_provider_onelake.exceptions import InvalidWriteError, LogGapError
from airflow_provider_onelake.following.watch import describe

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import Partitioning
    from airflow_provider_onelake.writes.report import Report

logger = logging.getLogger(__name__)

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Stands for NULL in a partition's key, as in directory names, because Airflow refuses an empty key."""

_BEHIND = " behind a shortcut"
_MOST_COMMITS = 50
_BRIEFLY = ("table", "version", "time", "operation", "data_change", "rows_added", "rows_removed")


def check_outlets(task_id: str, outlets: Sequence[Any]) -> None:
    """Refuse an outlet that is no asset, or has a watcher of a table's log: each commit would be two events.

    :param task_id: the id of the task that has the outlets.
    :param outlets: the task's outlets.
    :raises InvalidWriteError: an outlet is a text or another plain value, or has such a watcher.
    """
    for asset in outlets:
        if isinstance(asset, str | int | float | None):
            raise InvalidWriteError(
                f"{task_id}: outlets={list(outlets)!r}: {asset!r} is no asset; make one of it by table_asset(…)."
            )
        if is_watched(asset):
            raise InvalidWriteError(
                f"{task_id}: the asset {asset.name!r} has a watcher, which tells of this load's commits too, so that "
                "each would start its DAGs twice. Leave it out of the outlets, or make it by table_asset(…), which has "
                "no watcher."
            )


def aliases_of(outlets: Sequence[Any]) -> list[AssetAlias]:
    """Return what a task needs among its outlets to tell of a table that a shortcut of OneLake leads to.

    Where a path leads is known when the task runs, and Airflow takes events of other assets than the task's outlets by
    an alias only. An alias of its own for each table keeps the tables apart in Airflow's graph of assets.

    :param outlets: the task's outlets.
    """
    named = next((each for each in outlets if isinstance(each, Asset) and may_be_in_onelake(each.uri)), None)
    return [] if named is None else [AssetAlias(f"{named.name}{_BEHIND}")]


def tell_outlets(
    context: Context, outlets: Sequence[Any], log: DeltaLog, report: Report, other_uris: Sequence[str] = ()
) -> None:
    """Say in the events of a load's outlets what the load committed. Airflow records them once the task has succeeded.

    :param context: the context of the running task.
    :param outlets: the task's outlets.
    :param log: the log of the load's table.
    :param report: the report of the load.
    :param other_uris: of the same table, for the assets of those who do not name it by the shortcut that the load was
        given. An asset that is among the outlets gets no second event. Default: none.
    :raises LogGapError: a commit of the load is no longer in the log.
    :raises InvalidWriteError: an asset is partitioned by columns that are no partition columns of the table.
    """
    assets = [asset for asset in outlets if isinstance(asset, Asset)]
    versions = sorted({outcome.version for outcome in report.outcomes if outcome.version is not None})
    if not assets or not versions:
        return
    commits = [_commit(log, version) for version in versions]
    snapshot = log.snapshot()
    split = snapshot.partitioning
    _warn_of_keys_that_start_nothing(context, assets, log.table)
    known = [outcome.rows_published for outcome in report.outcomes if outcome.rows_published is not None]
    described: list[Any] = [{"table": log.address, **describe(commit, split.names)} for commit in commits]
    said: dict[str, Any] = {"table": log.address, "version": versions[-1], "rows": sum(known)}
    for asset in assets:
        event = context["outlet_events"][asset]
        by = asset.extra.get(PARTITIONED_BY)
        if not isinstance(by, list):
            event.extra = {**said, COMMITS: described}
        else:
            # Airflow stores the same extra for each key. With the partitions in it, its size would grow by the square.
            last = [{name: each[name] for name in _BRIEFLY} for each in described[-_MOST_COMMITS:]]
            brief: list[Any] = [{**each, "partitions_complete": False} for each in last]
            event.extra = {**said, COMMITS: brief, "complete": len(described) <= _MOST_COMMITS}
            keys = partition_keys(commits, split, [str(column) for column in by], log.table)
            try:
                event.add_partitions(keys)
            except ValueError as error:
                raise InvalidWriteError(
                    f"A partition of {log.table} cannot be one of the asset {asset.name!r}: {error} What was published "
                    "stays; leave the asset out of the outlets, or choose other columns, and clear this task."
                ) from error
    _tell_others(context, outlets, {**said, COMMITS: described}, other_uris)


def _tell_others(context: Context, outlets: Sequence[Any], extra: dict[str, Any], uris: Sequence[str]) -> None:
    """Tell the assets that some DAG has under other URIs of the table; no asset is made for nobody."""
    alias = next((each for each in outlets if isinstance(each, AssetAlias) and each.name.endswith(_BEHIND)), None)
    told = {each.uri for each in outlets if isinstance(each, Asset)}
    if alias is None:
        return
    for uri in dict.fromkeys(uris):
        if uri in told:
            continue
        try:
            # Airflow takes a reference too, by which it looks the asset up; the type that it declares does not say so.
            context["outlet_events"][alias].add(Asset.ref(uri=uri), extra)  # type: ignore[arg-type]
        except AirflowRuntimeError as error:
            if error.error.error is not ErrorType.ASSET_NOT_FOUND:
                raise
        else:
            logger.info("%s: the asset %s is told too, as it is the same table", extra["table"], uri)


def partition_keys(commits: Sequence[Commit], split: Partitioning, by: Sequence[str], table: str) -> list[str]:
    """Return the keys of the partitions that commits touched.

    The values of several columns make one key with ``|`` between them, as Airflow's ``ProductMapper`` reads it. In each
    value, what would make one key of two partitions is percent-encoded; see :func:`_segment`.

    :param commits: the commits to the table.
    :param split: how the table is partitioned.
    :param by: the partition columns whose values make the keys.
    :param table: what messages call the table.
    :raises InvalidWriteError: a column in ``by`` is no partition column.
    """
    unknown = [column for column in by if column not in split.types]
    if unknown:
        raise InvalidWriteError(
            f"An asset of {table} says partitioned_by={', '.join(by)}, and the table is partitioned by "
            f"{', '.join(split.types) or 'nothing'}. What was published stays; correct the asset and clear this task."
        )
    keys: dict[object, str] = {}
    for commit in commits:
        for values in (*commit.added_partitions, *commit.removed_partitions):
            spelled = dict(values)
            typed = dict(zip(split.types, split.partition(spelled), strict=True))
            physical = [split.physical.get(column, column) for column in by]
            key = "|".join(_segment(spelled.get(column)) for column in physical)
            # One value may have several spellings.
            keys.setdefault(tuple(typed[column] for column in by), key)
    return sorted(keys.values())


def _segment(spelling: str | None) -> str:
    """Return one value in a key. Percent-decoding gives the value back, so no two values have one segment."""
    if not spelling:
        return NO_VALUE
    if spelling == NO_VALUE:
        # A text that looks like NULL is not NULL.
        return spelling.replace("_", "%5F", 1)
    return spelling.replace("%", "%25").replace("|", "%7C")


def _warn_of_keys_that_start_nothing(context: Context, assets: Sequence[Asset], table: str) -> None:
    run_key = getattr(context["dag_run"], "partition_key", None)
    plain = [asset.name for asset in assets if PARTITIONED_BY not in asset.extra]
    if run_key is not None and plain:
        logger.warning(
            "%s: this run is for the partition %r, and Airflow gives its key to the events of %s, so that they start "
            "DAGs on a partitioned timetable only. For others take watched_table_asset(…), which tells of every "
            "commit; for an event for each partition of the table, table_asset(…, partitioned_by=…).",
            table,
            run_key,
            ", ".join(plain),
        )


def _commit(log: DeltaLog, version: int) -> Commit:
    commit = log.commit(version)
    if commit is None:
        raise LogGapError(
            f"Version {version} of {log.table} is no longer in its log, so its assets cannot be told what is in it. "
            "What was published stays."
        )
    return commit
