"""The parts of a commit that depend on its version: its in-commit timestamp, and its files' row ids.

Both are decided anew at every rebase (protocol: rising timestamps, fresh row ids).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.log.actions import Action, Add, CommitInfo
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.storage.clock import milliseconds

_ROW_TRACKING = "delta.rowTracking"


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
    return [{"domainMetadata": {"domain": _ROW_TRACKING, "configuration": configuration, "removed": False}}]
