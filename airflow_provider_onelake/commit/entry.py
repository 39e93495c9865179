"""What every log entry of ours says: ``commitInfo``, what the commit removes and adds, and what the table hands out.

A table may hand out an in-commit timestamp to a commit, and row ids to its files. They depend on the commit's version,
so they are decided anew at every rebase (protocol: rising timestamps, fresh row ids).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import cast

import attrs

from airflow_provider_onelake import __version__
from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.log.actions import (
    Action,
    Add,
    CommitInfo,
    DataFile,
    Remove,
    StagedRecord,
    is_absolute,
)
from airflow_provider_onelake.log.commits import FORMAT, STAGED
from airflow_provider_onelake.log.snapshot import ROW_TRACKING_DOMAIN, Snapshot
from airflow_provider_onelake.storage.clock import milliseconds

# The keys that a remove copies from the live add, unchanged (protocol: verbatim remove).
_COPIED = ("path", "partitionValues", "size", "stats", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")


@attrs.frozen(kw_only=True)
class Entry:
    """What a commit does, apart from what depends on the version that it is put at.

    :param operation: as Delta calls it.
    :param parameters: of the operation; texts (protocol: texts in commitInfo).
    :param message: what people read of the commit. Default: nothing.
    :param record: what the commit says of itself for this package, by the kind of the commit. Default: nothing.
    :param blind: whether the commit only adds rows, or none, and was not computed from the table.
    :param isolation: its level, as Delta calls it.
    :param metrics: of the operation; those that are ``None`` are not known, and left out.
    :param tags: of the ``commitInfo``, such as Spark's.
    :param txns: the versions of the ``txn`` actions by application id.
    :param definition: actions that change what the table is: ``protocol``, ``metaData``, ``domainMetadata``.
    :param removed: live ``add`` actions of the files that go.
    :param with_row_ids: ``add`` actions of files that keep their row ids.
    :param added: ``add`` actions of files that get row ids where the table tracks rows, and have none elsewhere.
    :param cdc: ``cdc`` actions for the change feed.
    :param data_change: whether rows leave the table by what is removed; a compaction only moves them.
    """

    operation: str
    parameters: Mapping[str, str]
    message: str | None = None
    record: StagedRecord = attrs.field(factory=StagedRecord)
    blind: bool = False
    isolation: str = "Serializable"
    metrics: Mapping[str, int | None] = attrs.field(factory=dict)
    tags: Mapping[str, str] = attrs.field(factory=dict)
    txns: Mapping[str, int] = attrs.field(factory=dict)
    definition: Sequence[Action] = ()
    removed: Sequence[Add] = attrs.field(default=(), repr=False)
    with_row_ids: Sequence[Add] = attrs.field(default=(), repr=False)
    added: Sequence[Add] = attrs.field(default=(), repr=False)
    cdc: Sequence[DataFile] = attrs.field(default=(), repr=False)
    data_change: bool = True

    def on(self, snapshot: Snapshot, txn_id: str, now: datetime) -> list[Action]:
        """Return the actions of the entry at the version after a snapshot.

        :param txn_id: the id by which the transaction recognises its own commit (protocol: create-only).
        :raises UnsupportedFeatureError: a file does not say how many rows it has, so that it cannot be given row ids.
        """
        # Copies, because a put that loses its race gives the files other row ids the next time.
        added: list[Add] = [{**file} for file in self.added]
        info: CommitInfo = {
            "timestamp": milliseconds(now),
            "operation": self.operation,
            "operationParameters": dict(self.parameters),
            **({"readVersion": snapshot.version} if snapshot.version >= 0 else {}),
            "isolationLevel": self.isolation,
            "isBlindAppend": self.blind,
            "operationMetrics": {name: str(count) for name, count in self.metrics.items() if count is not None},
            "engineInfo": f"airflow-provider-onelake/{__version__}",
            "txnId": txn_id,
            **({"userMetadata": self.message} if self.message else {}),
        }
        if self.record:
            info[STAGED] = {"format": FORMAT, **self.record}
        if self.tags:
            info["tags"] = dict(self.tags)
        handed_out = _stamp(info, added, snapshot, now)
        written = milliseconds(now)
        removes = (remove_of(file, written, data_change=self.data_change) for file in self.removed)
        actions: list[Action] = [{"commitInfo": info}]
        for app_id, turn in self.txns.items():
            # Each says when it was written, or engines would forget it (protocol: no expiring txn).
            actions.append({"txn": {"appId": app_id, "version": turn, "lastUpdated": written}})
        actions += [*self.definition, *handed_out]
        actions += [{"remove": remove} for remove in removes]
        actions += [{"add": file} for file in (*self.with_row_ids, *added)]
        return actions + [{"cdc": file} for file in self.cdc]


def remove_of(file: Add, now: int, *, data_change: bool) -> Remove:
    """Return the ``remove`` of a live file, copied from its ``add`` as it stands there (protocol: verbatim remove).

    :param file: the raw ``add``.
    :param now: the present instant, in milliseconds since the epoch.
    :param data_change: whether rows leave the table; a compaction only moves them.
    """
    copied = cast("Remove", {key: file.get(key) for key in _COPIED if file.get(key) is not None})
    return {**copied, "deletionTimestamp": now, "dataChange": data_change, "extendedFileMetadata": True}


def _stamp(info: CommitInfo, adds: Iterable[Add], snapshot: Snapshot, now: datetime) -> list[Action]:
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
