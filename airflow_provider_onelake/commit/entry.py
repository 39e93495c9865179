"""What every log entry of ours says: ``commitInfo``, its removes, and what the table hands out to it.

A table may hand out an in-commit timestamp to a commit, and row ids to its files. They depend on the commit's version,
so they are decided anew at every rebase (protocol: rising timestamps, fresh row ids).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import cast

from airflow_provider_onelake import __version__
from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.log.actions import Action, Add, CommitInfo, DataFile, Remove, is_absolute
from airflow_provider_onelake.log.commits import CHANGE, FORMAT, STAGED
from airflow_provider_onelake.log.snapshot import ROW_TRACKING_DOMAIN, Snapshot
from airflow_provider_onelake.storage.clock import milliseconds

# The keys that a remove copies from the live add, unchanged (protocol: verbatim remove).
_COPIED = ("path", "partitionValues", "size", "stats", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")


def commit_info(
    operation: str,
    parameters: Mapping[str, str],
    snapshot: Snapshot,
    txn_id: str,
    now: datetime,
    *,
    blind: bool,
    metrics: Mapping[str, str] | None = None,
    isolation: str = "Serializable",
    told: str | None = None,
) -> CommitInfo:
    """Return the ``commitInfo`` of a commit of ours.

    :param operation: as Delta calls it.
    :param parameters: of the operation; texts (protocol: texts in commitInfo).
    :param snapshot: that the commit is decided on.
    :param txn_id: the id by which the transaction recognises its own commit.
    :param blind: whether the commit only appends, and was not computed from the table.
    :param metrics: of the operation; texts.
    :param isolation: its level, as Delta calls it.
    :param told: what people read of the commit. Default: nothing.
    """
    return {
        "timestamp": milliseconds(now),
        "operation": operation,
        "operationParameters": dict(parameters),
        **({"readVersion": snapshot.version} if snapshot.version >= 0 else {}),
        "isolationLevel": isolation,
        "isBlindAppend": blind,
        "operationMetrics": dict(metrics or {}),
        "engineInfo": f"airflow-provider-onelake/{__version__}",
        "txnId": txn_id,
        **({"userMetadata": told} if told else {}),
    }


def entry_of_nothing(
    info: CommitInfo, record: Mapping[str, object], turns: Mapping[str, int], snapshot: Snapshot, now: datetime
) -> list[Action]:
    """Return the entry of a start that has found nothing to do: no row changes, and no older start can commit later.

    An older start decides on a version behind this entry, and finds its ``txn`` there; or it has committed before, and
    this entry is decided anew on what that left (protocol: generation).

    :param info: the commit's ``commitInfo``.
    :param record: what the commit says of the start.
    :param turns: the versions of the ``txn`` actions, by their application ids.
    :param snapshot: that the entry is decided on.
    """
    info[STAGED] = {"format": FORMAT, CHANGE: {**record, "nothing": True}}
    stamped = stamp(info, [], snapshot, now)
    return [{"commitInfo": info}, *txns_of(turns, now), *stamped]


def txns_of(turns: Mapping[str, int], now: datetime) -> list[Action]:
    """Return the ``txn`` actions of an entry (protocol: no expiring txn).

    :param turns: their versions, by application id.
    """
    written = milliseconds(now)
    return [{"txn": {"appId": app_id, "version": version, "lastUpdated": written}} for app_id, version in turns.items()]


def remove_of(file: Add, now: int, *, data_change: bool) -> Remove:
    """Return the ``remove`` of a live file, copied from its ``add`` as it stands there (protocol: verbatim remove).

    :param file: the raw ``add``.
    :param now: the present instant, in milliseconds since the epoch.
    :param data_change: whether rows leave the table; a compaction only moves them.
    """
    copied = cast("Remove", {key: file.get(key) for key in _COPIED if file.get(key) is not None})
    return {**copied, "deletionTimestamp": now, "dataChange": data_change, "extendedFileMetadata": True}


def stamp(info: CommitInfo, adds: Iterable[Add], snapshot: Snapshot, now: datetime) -> list[Action]:
    """Give a commit its in-commit timestamp and its files their row ids, where the table wants them.

    :param info: the commit's ``commitInfo``, which must be its first action; changed in place.
    :param adds: bodies of the ``add`` actions, the commit's own copies; changed in place.
    :param snapshot: that the commit is decided on; it is put at the next version.
    :returns: further actions that the commit needs: the raised high-water mark of row ids.
    :raises UnsupportedFeatureError: a file does not say how many rows it has, so that it cannot be given row ids.
    """
    if snapshot.has_in_commit_timestamps:
        # The timestamp must rise even if the committers' clocks differ.
        previous = snapshot.in_commit_timestamp
        info["inCommitTimestamp"] = max(milliseconds(now), -1 if previous is None else previous + 1)
    if snapshot.has_row_tracking:
        return _assign_row_ids(adds, snapshot)
    for add in adds:
        # The buffer was staged while row tracking was on. Drop its ids, or switching row tracking on again would make
        # them valid.
        add.pop("baseRowId", None)
        add.pop("defaultRowCommitVersion", None)
    return []


def _assign_row_ids(adds: Iterable[Add], snapshot: Snapshot) -> list[Action]:
    mark = snapshot.row_id_high_water_mark
    for add in adds:
        # Rows that a deletion vector hides have row ids too, so count the file's physical rows.
        rows = json.loads(add.get("stats") or "{}").get("numRecords")
        if rows is None:
            raise UnsupportedFeatureError(
                f"{add['path']} has no statistics, so its rows cannot be given ids, and the table tracks rows. Nothing "
                "was published: stage with spark.databricks.delta.stats.collect=true."
            )
        add["baseRowId"] = mark + 1
        add["defaultRowCommitVersion"] = snapshot.version + 1
        mark += int(rows)
    if mark == snapshot.row_id_high_water_mark:
        return []
    configuration = json.dumps({"rowIdHighWaterMark": mark}, separators=(",", ":"))
    return [{"domainMetadata": {"domain": ROW_TRACKING_DOMAIN, "configuration": configuration, "removed": False}}]


def check_paths_relative(files: Iterable[DataFile], table: str) -> None:
    """Refuse to remove a file that the log names by an absolute path.

    :param files: live ``add`` actions to remove.
    :param table: what messages call the table.
    :raises UnsupportedFeatureError: there is such a file.
    """
    absolute = next((file["path"] for file in files if is_absolute(file["path"])), None)
    if absolute is not None:
        raise UnsupportedFeatureError(
            f"{table} names its file {absolute} by an absolute path, as shallow clones do; this version does not "
            "replace such files. Nothing was published."
        )
