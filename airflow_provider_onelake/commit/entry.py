"""The log entry that publishes a batch: ``commitInfo``, a ``txn`` per writer, ``remove`` and ``add`` actions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import cast

import attrs

from airflow_provider_onelake import __version__
from airflow_provider_onelake.commit.batch import Batch, Placed
from airflow_provider_onelake.commit.policy import Settled
from airflow_provider_onelake.commit.stamps import stamp as stamp_for
from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.actions import Action, Add, CommitInfo, Remove, Txn, total_rows
from airflow_provider_onelake.log.commits import FORMAT, STAGED, PublishedWriter
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.staging.spec import Mode
from airflow_provider_onelake.storage.clock import milliseconds

# The keys that a remove copies from the live add, unchanged (protocol: verbatim remove).
_COPIED = ("path", "partitionValues", "size", "stats", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")


@attrs.frozen
class Entry:
    """A log entry ready to be put, and what it says in short.

    :param actions: of the entry, in order.
    :param writers: what it records of each buffer.
    :param files: how many files it adds.
    :param rows: how many rows it adds; ``None`` where statistics do not say.
    :param files_removed: how many files it removes.
    """

    actions: list[Action] = attrs.field(repr=False)
    writers: tuple[PublishedWriter, ...]
    files: int
    rows: int | None
    files_removed: int


def build_entry(
    batch: Batch,
    snapshot: Snapshot,
    removed: Iterable[Add],
    settled: Settled,
    txn_id: str,
    now: datetime,
) -> Entry:
    """Return the entry that publishes a batch on a snapshot.

    :param snapshot: that the entry is decided on.
    :param removed: the live ``add`` actions that the batch replaces.
    :param settled: how the batch's conflicts were settled.
    :param txn_id: the id by which the committer recognises its own commit.
    :raises CorruptLogError: a file would be both added and removed.
    """
    stamp = milliseconds(now)
    adds = {placed.buffer.path: list(_published(placed, settled)) for placed in batch.placed}
    flat = [add for files in adds.values() for add in files]
    removes = [remove_of(file, stamp, data_change=True) for file in removed]
    both = {add["path"] for add in flat} & {remove["path"] for remove in removes}
    if both:
        raise CorruptLogError(f"{min(both)} would be added and removed in one commit; nothing was published.")
    writers = tuple(_record(placed, adds[placed.buffer.path]) for placed in batch.placed)
    replaces = [] if settled.set_aside else [placed.predicate.text for placed in batch.placed if placed.predicate]
    rows = None if any(writer.rows is None for writer in writers) else sum(writer.rows or 0 for writer in writers)
    info = commit_info(
        "WRITE",
        _parameters(batch, snapshot),
        snapshot,
        txn_id,
        now,
        # Decided here, never copied: a staged job that reads the table says true, too (protocol: reads its target).
        blind=batch.mode is Mode.APPEND and not removes and not any(buffer.reads_target for buffer in batch.buffers),
        metrics=_metrics(flat, removes, rows),
    )
    info[STAGED] = {
        "format": FORMAT,
        "load": batch.buffers[0].spec.identity.load.id,
        "mode": batch.mode.value,
        "readVersion": batch.read_version,
        "writers": [writer.to_json() for writer in writers],
        "replaces": replaces,
        # This write counts just before the winner of that version. Without it, the write counts last.
        **({"before": settled.before} if settled.before is not None else {}),
        "settlements": [settlement.to_json() for settlement in settled.settlements],
    }
    txns: list[Txn] = [
        {"appId": buffer.spec.identity.app_id, "version": buffer.spec.generation, "lastUpdated": stamp}
        for buffer in batch.buffers
    ]
    stamped = stamp_for(info, flat, snapshot, now)
    actions: list[Action] = [{"commitInfo": info}]
    actions += [{"txn": txn} for txn in txns]
    actions += stamped
    actions += [{"remove": remove} for remove in removes]
    actions += [{"add": add} for add in flat]
    return Entry(actions, writers, len(flat), rows, len(removes))


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
) -> CommitInfo:
    """Return the ``commitInfo`` of a commit of ours.

    :param operation: as Delta calls it.
    :param parameters: of the operation; texts (protocol: texts in commitInfo).
    :param snapshot: that the commit is decided on.
    :param txn_id: the id by which the transaction recognises its own commit.
    :param blind: whether the commit only appends, and was not computed from the table.
    :param metrics: of the operation; texts.
    :param isolation: its level, as Delta calls it.
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
    }


def _published(placed: Placed, settled: Settled) -> Iterable[Add]:
    for partition, adds in placed.inside.items():
        if not settled.yields(partition):
            for add in adds:
                yield {**add, "path": f"{placed.buffer.path}/{add['path']}"}


def remove_of(file: Add, stamp: int, *, data_change: bool) -> Remove:
    """Return the ``remove`` of a live file, copied from its ``add`` as it stands there (protocol: verbatim remove).

    :param file: the raw ``add``.
    :param stamp: the present instant, in milliseconds since the epoch.
    :param data_change: whether rows leave the table; a compaction only moves them.
    """
    copied = cast("Remove", {key: file.get(key) for key in _COPIED if file.get(key) is not None})
    return {**copied, "deletionTimestamp": stamp, "dataChange": data_change, "extendedFileMetadata": True}


def _record(placed: Placed, adds: list[Add]) -> PublishedWriter:
    buffer = placed.buffer
    return PublishedWriter(
        app_id=buffer.spec.identity.app_id,
        writer=buffer.spec.identity.key,
        generation=buffer.spec.generation,
        buffer=buffer.path,
        finished=buffer.finished,
        rows=total_rows(adds),
        fingerprint=buffer.spec.fingerprint,
        set_aside=bool(placed.inside) and not adds,
    )


def _parameters(batch: Batch, snapshot: Snapshot) -> dict[str, str]:
    parameters = {
        "mode": "Append" if batch.mode is Mode.APPEND else "Overwrite",
        "partitionBy": json.dumps(list(snapshot.partitioning.types)),
    }
    if batch.mode is Mode.OVERWRITE_PARTITIONS:
        parameters["isDynamicPartitionOverwrite"] = "true"
    predicates = [placed.predicate.text for placed in batch.placed if placed.predicate]
    if predicates and batch.mode is not Mode.OVERWRITE:
        parameters["predicate"] = json.dumps(sorted(set(predicates)))
    return parameters


def _metrics(adds: list[Add], removes: list[Remove], rows: int | None) -> dict[str, str]:
    metrics = {
        "numFiles": str(len(adds)),
        "numOutputBytes": str(sum(int(add["size"]) for add in adds)),
        "numRemovedFiles": str(len(removes)),
    }
    if rows is not None:
        metrics["numOutputRows"] = str(rows)
    return metrics
