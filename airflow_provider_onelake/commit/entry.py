"""What our log entries say: ``commitInfo``, the entry that publishes a batch, and what a table hands out to it.

A table may hand out an in-commit timestamp to a commit, and row ids to its files. They depend on the commit's version,
so they are decided anew at every rebase (protocol: rising timestamps, fresh row ids).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import cast

import attrs

from airflow_provider_onelake import __version__
from airflow_provider_onelake.commit.batch import Batch, Placed
from airflow_provider_onelake.commit.policy import Settled
from airflow_provider_onelake.commit.words import of_write
from airflow_provider_onelake.exceptions import CorruptLogError, UnsupportedFeatureError
from airflow_provider_onelake.log.actions import Action, Add, CommitInfo, Remove, Txn, total_rows
from airflow_provider_onelake.log.commits import CHANGE, FORMAT, STAGED, PublishedWriter
from airflow_provider_onelake.log.snapshot import NO_VERSION, ROW_TRACKING_DOMAIN, Snapshot
from airflow_provider_onelake.staging.identity import ledger_id
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
    message: str | None = None,
) -> Entry:
    """Return the entry that publishes a batch on a snapshot.

    :param snapshot: that the entry is decided on.
    :param removed: the live ``add`` actions that the batch replaces.
    :param settled: how the batch's conflicts were settled.
    :param txn_id: the id by which the committer recognises its own commit.
    :param message: of the task that commits; those of the writers are in their specs. Default: none.
    :raises CorruptLogError: a file would be both added and removed.
    """
    written = milliseconds(now)
    adds = {placed.buffer.path: list(_published(placed, settled)) for placed in batch.placed}
    flat = [add for files in adds.values() for add in files]
    removes = [remove_of(file, written, data_change=True) for file in removed]
    both = {add["path"] for add in flat} & {remove["path"] for remove in removes}
    if both:
        raise CorruptLogError(f"{min(both)} would be added and removed in one commit; nothing was published.")
    writers = tuple(_record(placed, adds[placed.buffer.path], settled) for placed in batch.placed)
    rows = None if any(writer.rows is None for writer in writers) else sum(writer.rows or 0 for writer in writers)
    info = commit_info(
        "WRITE",
        batch.mode.parameters(snapshot.partitioning.types, batch.predicates),
        snapshot,
        txn_id,
        now,
        # Decided here, never copied: a staged job that reads the table says true, too (protocol: reads its target).
        blind=not batch.mode.replaces and not removes and all(buffer.computed_from is None for buffer in batch.buffers),
        metrics=_metrics(flat, removes, rows),
        told=of_write(
            [buffer.spec for buffer in batch.buffers],
            writers,
            settled,
            message,
            {b.spec.identity.key: b.verdict.in_words for b in batch.buffers if b.verdict is not None},
        ),
    )
    info[STAGED] = {
        "format": FORMAT,
        "load": batch.buffers[0].spec.identity.load.id,
        "mode": batch.mode.name,
        "readVersion": batch.read_version,
        "writers": [writer.to_json() for writer in writers],
        "replaces": [] if settled.left_out else batch.predicates,
        "settlements": [settlement.to_json() for settlement in settled.settlements],
    }
    stamped = stamp(info, flat, snapshot, now)
    actions: list[Action] = [{"commitInfo": info}]
    for spec in (buffer.spec for buffer in batch.buffers):
        txn: Txn = {"appId": spec.identity.app_id, "version": spec.generation, "lastUpdated": written}
        actions.append({"txn": txn})
    actions += _ledgers(batch, snapshot, written)
    if snapshot.version == NO_VERSION:
        actions += [{"protocol": snapshot.protocol}, {"metaData": {**snapshot.metadata, "createdTime": written}}]
    actions += stamped
    actions += [{"remove": remove} for remove in removes]
    actions += [{"add": add} for add in flat]
    return Entry(actions, writers, len(flat), rows, len(removes))


def _ledgers(batch: Batch, snapshot: Snapshot, written: int) -> Iterable[Action]:
    """Yield how many entries of a ledger the table has seen, so that one that is deleted is missed.

    Protocol: one ledger.
    """
    entries: dict[str, int] = {}
    for planned in (buffer.spec.planned for buffer in batch.buffers if buffer.spec.planned):
        app_id = ledger_id(planned["ledger"])
        entries[app_id] = max(int(planned["entry"]), entries.get(app_id, 0))
    for app_id, entry in entries.items():
        if entry > snapshot.txns.get(app_id, 0):
            yield {"txn": {"appId": app_id, "version": entry, "lastUpdated": written}}


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


def _published(placed: Placed, settled: Settled) -> Iterable[Add]:
    for add in () if settled.left_out else chain.from_iterable(placed.inside.values()):
        yield {**add, "path": f"{placed.buffer.path}/{add['path']}"}


def remove_of(file: Add, now: int, *, data_change: bool) -> Remove:
    """Return the ``remove`` of a live file, copied from its ``add`` as it stands there (protocol: verbatim remove).

    :param file: the raw ``add``.
    :param now: the present instant, in milliseconds since the epoch.
    :param data_change: whether rows leave the table; a compaction only moves them.
    """
    copied = cast("Remove", {key: file.get(key) for key in _COPIED if file.get(key) is not None})
    return {**copied, "deletionTimestamp": now, "dataChange": data_change, "extendedFileMetadata": True}


def _record(placed: Placed, adds: list[Add], settled: Settled) -> PublishedWriter:
    buffer, rows = placed.buffer, total_rows(adds)
    return PublishedWriter(
        app_id=buffer.spec.identity.app_id,
        writer=buffer.spec.identity.key,
        generation=buffer.spec.generation,
        buffer=buffer.path,
        finished=buffer.finished,
        rows=rows,
        fingerprint=buffer.spec.fingerprint,
        set_aside=settled.left_out,
        planned=buffer.spec.planned,
        reads=buffer.computed_from,
        staged=buffer.rows if buffer.rows != rows else None,
        source=buffer.spec.source,
    )


def _metrics(adds: list[Add], removes: list[Remove], rows: int | None) -> dict[str, str]:
    metrics = {
        "numFiles": str(len(adds)),
        "numOutputBytes": str(sum(int(add["size"]) for add in adds)),
        "numRemovedFiles": str(len(removes)),
    }
    if rows is not None:
        metrics["numOutputRows"] = str(rows)
    return metrics


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
