"""Orphans: writers of a run that no task names any more, as they, their group or DAG were renamed, or were removed.

Their ``txn`` is in the table's log, and the rows that they appended stay in the table. So a writer that was renamed and
appends the same rows again would double them. It is refused before Spark starts, where the renaming can be seen.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.buffer import read_open_buffer
from airflow_provider_onelake.buffers.claims import claims
from airflow_provider_onelake.buffers.identity import RETIRED, writers_among
from airflow_provider_onelake.buffers.spec import equal_work
from airflow_provider_onelake.exceptions import BufferIncompleteError, BufferInvalidError, OrphanWriterError
from airflow_provider_onelake.history.writers import WriterHistory

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.identity import Load, WriterIdentity
    from airflow_provider_onelake.buffers.spec import WriteSpec
    from airflow_provider_onelake.history.published import Publishing
    from airflow_provider_onelake.log.commits import PublishedWriter
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)


@attrs.frozen
class Orphan:
    """A writer whose rows are in the table, or may be, and that no task names any more.

    :param task: what people called its task; empty where this is not known.
    :param there: where these rows were published, the newest first; empty where nobody knows.
    """

    identity: WriterIdentity
    task: str
    there: tuple[Publishing, ...]

    def __str__(self) -> str:
        """Describe the writer for messages."""
        told = self.to_json()
        known = [f"{name} {told[name]}" for name in ("group", "task", "version") if told[name] not in ("", None)]
        known += [f"{told['rows']} rows"] if told["rows"] is not None else []
        return f"{self.identity.key!r} ({', '.join(known)})"

    def to_json(self) -> dict[str, Any]:
        """Return the writer as a report has it: ``group``, ``writer``, ``task``, ``version`` and ``rows``."""
        version, rows = (self.there[0].version, self.there[0].record.rows) if self.there else (None, None)
        names = {"group": self.identity.load.group, "writer": self.identity.key, "task": self.task}
        return {**names, "version": version, "rows": rows}

    def like(self, work: WriteSpec | PublishedWriter) -> Orphan | None:
        """Return the orphan with those of its rows that are of some work; ``None`` if there are none."""
        there = tuple(each for each in self.there if work.fingerprint and equal_work(each.record, work))
        return attrs.evolve(self, there=there) if there else None


def orphans(
    log: DeltaLog, load: Load, keys: Collection[str], groups: Collection[str], snapshot: Snapshot
) -> list[Orphan]:
    """Return the writers of a run whose rows are in the table, and that no task names any more.

    :param load: of the run.
    :param keys: the keys that tasks give to the writers of the load.
    :param groups: the groups of all writers of the DAG.
    """
    return [
        found
        for identity in _of_run(load, snapshot)
        if (identity.key not in keys if identity.load == load else identity.load.group not in groups)
        and (found := _orphan(log, identity, snapshot)) is not None
    ]


def is_new_beside_others(identity: WriterIdentity, snapshot: Snapshot) -> bool:
    """Say whether a writer has published nothing in its run while others have: only then it may be a renamed one."""
    return identity.app_id not in snapshot.txns and any(True for _ in _of_run(identity.load, snapshot))


def check_no_orphans(
    log: DeltaLog, spec: WriteSpec, keys: Collection[str], groups: Collection[str], *, complete: bool
) -> None:
    """Refuse to append under a new name what the run may have appended under another, before Spark starts.

    Only a writer without a ``txn`` of its own can be a renamed one. A writer that overwrites is not refused, as it
    replaces what it meets, and neither is ``on_rerun="append"``, which says that rows may be there twice.
    Where some tasks have not said their keys yet, only the same work is refused: else the other key may be one of
    theirs.

    :param keys: the keys that tasks give to the writers of the load.
    :param groups: the groups of all writers of the DAG.
    :param complete: whether ``keys`` has all keys, as all tasks have said theirs.
    :raises OrphanWriterError: the run published under a name that no task has any more.
    """
    snapshot = log.snapshot_or_none()
    if snapshot is None or not is_new_beside_others(spec.identity, snapshot):
        return
    load, key = spec.identity.load, spec.identity.key
    found = orphans(log, load, {*keys, key}, {*groups, load.group}, snapshot)
    # The DAG names all groups, so an orphan of another group is certain.
    sure = [orphan for orphan in found if complete or orphan.identity.load.group != load.group or orphan.like(spec)]
    if sure and spec.must_not_repeat:
        raise OrphanWriterError(
            f"This run has published {_names(sure)} in {log.table}, which no task names any more, and nothing of "
            f"writer {key!r}. If that is a new name of it, appending would double rows. Nothing was staged: {_WAYS}."
        )
    for orphan in found:
        logger.warning("%s: this run also published %s, which no task names any more", log.table, orphan)


def check_other_dags(log: DeltaLog, spec: WriteSpec, snapshot: Snapshot, former: str | None = None) -> None:
    """Refuse to append what another DAG has appended in this run, before Spark starts: it may be the DAG's old name.

    The sign is the same work of a writer with the same group, run and key. A record that does not say the work is none.

    :param snapshot: in which the writer has no ``txn`` of its own.
    :param former: the run's former name; see :func:`check_former_name`. Default: it has none.
    :raises OrphanWriterError: another DAG has, and its rows are in the table.
    """
    if not spec.must_not_repeat:
        return
    load, key = spec.identity.load, spec.identity.key
    names = [attrs.evolve(load, run=run).writer(key).app_id for run in (load.run, former) if run is not None]
    mine = tuple("/" + name.removeprefix(load.dag_prefix) for name in names)
    # A table may know very many writers, so read the ids only of those that may be meant.
    for other in writers_among(app_id for app_id in snapshot.txns if app_id.endswith(mine)):
        if other.load.namespace != load.namespace or snapshot.txns[other.app_id] == RETIRED:
            continue
        found, dag = _orphan(log, other, snapshot), other.load.dag
        if found is not None and (same := found.like(spec)) is not None:
            raise OrphanWriterError(
                f"DAG {dag!r} has appended the same rows in this run, as writer {same}, to {log.table}. Nothing "
                f"was staged. If {load.dag!r} is a new name of that DAG, say load_name={dag!r} in the "
                "OneLakeWriteTaskGroup, and this is the same load; or delete those rows from the table and clear "
                "the writer; or set on_rerun='append', which adds the rows all the same."
            )


def check_former_name(log: DeltaLog, spec: WriteSpec, former: str | None) -> None:
    """Refuse to append what another run may have appended under the former name of this run, before Spark starts.

    Several ticks of the timetable had that name, and nobody knows whether the other run is of the same tick.

    :param former: the run's former name, under which it published nothing itself; ``None`` for none.
    :raises OrphanWriterError: another run published under that name, and this one nothing yet.
    """
    if former is None or not spec.must_not_repeat:
        return
    snapshot, load = log.snapshot_or_none(), spec.identity.load
    txns = snapshot.txns if snapshot is not None else {}
    other = attrs.evolve(load, run=former).writer(spec.identity.key)
    if other.app_id in txns and spec.identity.app_id not in txns:
        raise OrphanWriterError(
            f"Writer {spec.identity.key!r} may have appended its rows to {log.table} already: another run published "
            f"under {former!r}, a name that several ticks of the timetable had, and this run is {load.run!r} now. "
            "Nothing was staged. If the rows of this tick are in the table, leave this run as it is, and clear the "
            "other run to load them anew; if not, set on_rerun='append' for this run, which adds them."
        )


_WAYS = (
    "give the writer, or its group, the old name again; or delete those rows from the table and clear the writer; or "
    "set on_rerun='append', which adds the rows all the same"
)


def doubled(log: DeltaLog, load: Load, found: Collection[Orphan], published: Iterable[str]) -> OrphanWriterError | None:
    """Return the error of writers that appended what an orphan has in the table: both were at work at the same time.

    :param load: that was reconciled.
    :param found: its orphans.
    :param published: keys of its writers whose rows were published.
    :returns: ``None`` where there are no such writers.
    """
    snapshot, same = log.snapshot(), {}
    for key in published if found else ():
        for mine in WriterHistory(log, load.writer(key), snapshot).publishings():
            alike = [like for orphan in found if (like := orphan.like(mine.record)) is not None]
            if alike and _must_not_repeat(log, mine.record.buffer):
                same[key] = alike
    if not same:
        return None
    return OrphanWriterError(
        f"Writer {', '.join(map(repr, same))} appended to {log.table} the same rows as "
        f"{_names(next(iter(same.values())))}, which no task names any more. If one is a new name of the other, the "
        "rows are in the table twice: look, delete those of one of them, and clear this task. If both are right, name "
        "both in the DAG."
    )


def _names(found: Iterable[Orphan]) -> str:
    return ", ".join(str(orphan) for orphan in found)


def _of_run(load: Load, snapshot: Snapshot) -> Iterator[WriterIdentity]:
    """Return the writers of a run, in all groups, whose ``txn`` is in the table."""
    writers = writers_among(snapshot.txns, load.dag_prefix)
    return (
        identity
        for identity in writers
        # The files of a retired writer are another writer's by now.
        if identity.load.run == load.run and snapshot.txns[identity.app_id] != RETIRED
    )


def _orphan(log: DeltaLog, identity: WriterIdentity, snapshot: Snapshot) -> Orphan | None:
    """Return a writer as an orphan, or ``None`` where none of its rows is in the table any more."""
    history = WriterHistory(log, identity, snapshot)
    known = history.publishings()
    there = tuple(each for each in known if history.left(each) is not False)
    if not there and history.stored in {each.record.generation for each in known}:
        return None
    begun = claims(log.store, identity)
    return Orphan(identity, begun[-1].task if begun else "", there)


def _must_not_repeat(log: DeltaLog, buffer: str) -> bool:
    """Say whether a buffer was appended, by a writer that does not allow its rows to be there twice."""
    with suppress(BufferIncompleteError, BufferInvalidError):
        return read_open_buffer(log.store, buffer).spec.must_not_repeat
    return False  # Its log was cleaned up, so it was closed long ago.
