"""The entry that publishes a batch: its commit's record of each writer, what it removes and adds, and what people read.

What a table hands out to the entry, such as row ids, is in :mod:`~airflow_provider_onelake.commit.entry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import cast

import attrs

from airflow_provider_onelake.buffers.identity import ledger_id
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.commit.entry import Entry
from airflow_provider_onelake.commit.words import load_in_words, with_messages
from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.actions import Action, Add, Metadata, total, total_rows
from airflow_provider_onelake.log.commits import PublishedWriter
from airflow_provider_onelake.log.snapshot import NO_VERSION, Snapshot
from airflow_provider_onelake.storage.clock import milliseconds
from airflow_provider_onelake.texts import listed, rows_in_words
from airflow_provider_onelake.writes.batch import Batch, Placed
from airflow_provider_onelake.writes.policy import Settled


@attrs.frozen
class Published:
    """The entry of a batch, and what it says in short.

    :param entry: to put.
    :param writers: what it records of each buffer.
    :param files: how many files it adds.
    :param rows: how many rows it adds; ``None`` where statistics do not say.
    :param files_removed: how many files it removes.
    """

    entry: Entry = attrs.field(repr=False)
    writers: tuple[PublishedWriter, ...]
    files: int
    rows: int | None
    files_removed: int


def build_entry(
    batch: Batch,
    snapshot: Snapshot,
    removed: Sequence[Add],
    settled: Settled,
    now: datetime,
    message: str | None = None,
) -> Published:
    """Return the entry that publishes a batch on a snapshot.

    :param snapshot: that the entry is decided on.
    :param removed: the live ``add`` actions that the batch replaces.
    :param settled: how the batch's conflicts were settled.
    :param message: of the task that commits; those of the writers are in their specs. Default: none.
    :raises CorruptLogError: a file would be both added and removed (protocol: no path twice).
    """
    specs = [buffer.spec for buffer in batch.buffers]
    adds = {placed.buffer.path: list(_published(placed, settled)) for placed in batch.placed}
    flat = [add for files in adds.values() for add in files]
    if both := {add["path"] for add in flat} & {file["path"] for file in removed}:
        raise CorruptLogError(f"{min(both)} would be added and removed in one commit; nothing was published.")
    writers = tuple(
        buffer.record(total_rows(adds[buffer.path]), set_aside=settled.left_out, planned=buffer.spec.planned)
        for buffer in batch.buffers
    )
    rows = total(writer.rows for writer in writers)
    definition: list[Action] = []
    if snapshot.version == NO_VERSION:
        made = {**snapshot.metadata, "createdTime": milliseconds(now)}
        definition = [{"protocol": snapshot.protocol}, {"metaData": cast("Metadata", made)}]
    verdicts = {b.spec.identity.key: b.verdict.in_words for b in batch.buffers if b.verdict is not None}
    entry = Entry(
        operation="WRITE",
        parameters=batch.mode.parameters(snapshot.partitioning.types, batch.predicates),
        message=of_write(specs, writers, settled, message, verdicts),
        record={
            "load": specs[0].identity.load.id,
            "mode": batch.mode.name,
            "readVersion": batch.read_version,
            "writers": [writer.to_json() for writer in writers],
            "replaces": [] if settled.left_out else batch.predicates,
            "settlements": [settlement.to_json() for settlement in settled.settlements],
        },
        # Decided here, never copied: a staged job that reads the table says true, too (protocol: reads its target).
        blind=not batch.mode.replaces and not removed and all(buffer.computed_from is None for buffer in batch.buffers),
        metrics={
            "numFiles": len(flat),
            "numOutputBytes": sum(int(add["size"]) for add in flat),
            "numRemovedFiles": len(removed),
            "numOutputRows": rows,
        },
        txns={**{spec.identity.app_id: spec.generation for spec in specs}, **_ledgers(specs, snapshot)},
        definition=definition,
        removed=removed,
        added=flat,
    )
    return Published(entry, writers, len(flat), rows, len(removed))


def _ledgers(specs: Iterable[WriteSpec], snapshot: Snapshot) -> Mapping[str, int]:
    """Return how many entries of a ledger the table has seen, so that one that is deleted is missed.

    Protocol: one ledger.
    """
    entries: dict[str, int] = {}
    for planned in (spec.planned for spec in specs if spec.planned):
        app_id = ledger_id(planned["ledger"])
        entries[app_id] = max(int(planned["entry"]), entries.get(app_id, 0))
    return {app_id: entry for app_id, entry in entries.items() if entry > snapshot.txns.get(app_id, 0)}


def _published(placed: Placed, settled: Settled) -> Iterable[Add]:
    for add in () if settled.left_out else chain.from_iterable(placed.inside.values()):
        yield {**add, "path": f"{placed.buffer.path}/{add['path']}"}


def of_write(
    specs: Sequence[WriteSpec],
    writers: Sequence[PublishedWriter],
    settled: Settled,
    own: str | None,
    checked: Mapping[str, str],
) -> str:
    """Return what is said of a commit that publishes a batch.

    :param specs: of the batch's writers.
    :param writers: what the commit records of each.
    :param settled: how their conflicts were settled.
    :param own: the message of the task that commits; ``None`` for none.
    :param checked: by writer's key, what its checks say of its rows, in a few words.
    """
    each = [
        f"{w.writer} {'left out' if w.set_aside else rows_in_words(w.rows)}"
        f"{f' ({said})' if (said := checked.get(w.writer)) else ''}"
        for w in writers
    ]
    parts = [f"{load_in_words(specs[0].identity.load)}: {listed(each)}"]
    if said := listed([str(settlement) for settlement in settled.settlements], between="; "):
        parts.append(said[0].upper() + said[1:])
    return with_messages(". ".join(parts), {spec.identity.key: spec.message for spec in specs}, own)
