"""Orphans: writers of a run that no task names any more, as they, their group or DAG were renamed, or were removed.

Their ``txn`` is in the table's log, and the rows that they appended stay in the table. So a writer that was renamed and
appends the same rows again would double them. It is refused before Spark starts, where the renaming can be seen.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product, starmap
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.buffer import read_open_buffer
from airflow_provider_onelake.buffers.claims import claims
from airflow_provider_onelake.buffers.identity import RETIRED, writers_among
from airflow_provider_onelake.buffers.layout import WriterDirectory
from airflow_provider_onelake.buffers.markers import markers
from airflow_provider_onelake.buffers.spec import equal_work
from airflow_provider_onelake.exceptions import BufferIncompleteError, BufferInvalidError, OrphanWriterError
from airflow_provider_onelake.history.published import aftermath, find_published, publishings, still_there

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_onelake.buffers.claims import Start
    from airflow_provider_onelake.buffers.identity import Load, WriterIdentity
    from airflow_provider_onelake.buffers.spec import WriteSpec
    from airflow_provider_onelake.log.commits import PublishedWriter
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot

    _Past = tuple[Mapping[int, Start], Sequence[PublishedWriter]]

logger = logging.getLogger(__name__)


@attrs.frozen
class Orphan:
    """A writer whose rows are in the table, and that no task names any more.

    :param group: the write group that it belonged to.
    :param writer: its key.
    :param task: what people called its task; empty where this is not known.
    :param version: in which its rows were published; ``None`` where the log no longer says.
    :param rows: how many rows were published; ``None`` where they were not counted.
    :param began: the store's time of its first claim; ``None`` where that was cleaned up.
    """

    group: str
    writer: str
    task: str
    version: int | None
    rows: int | None
    began: datetime | None = None

    def __str__(self) -> str:
        """Describe the writer for messages."""
        known = [f"group {self.group}"]
        known += [f"task {self.task}"] if self.task else []
        known += [f"version {self.version}"] if self.version is not None else []
        known += [f"{self.rows} rows"] if self.rows is not None else []
        return f"{self.writer!r} ({', '.join(known)})"


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

    :param keys: the keys that tasks give to the writers of the load.
    :param groups: the groups of all writers of the DAG.
    :param complete: whether ``keys`` has all keys; where some tasks have not said theirs yet, only a warning is logged.
    :raises OrphanWriterError: the run published under a name that no task has any more.
    """
    snapshot = log.snapshot_or_none()
    if snapshot is None or not is_new_beside_others(spec.identity, snapshot):
        return
    load, key = spec.identity.load, spec.identity.key
    found = orphans(log, load, {*keys, key}, {*groups, load.group}, snapshot)
    # The DAG names all groups, so an orphan of another group is certain.
    sure = [orphan for orphan in found if complete or orphan.group != load.group]
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
        stored, dag = snapshot.txns[other.app_id], other.load.dag
        if other.load.namespace != load.namespace or stored == RETIRED:
            continue
        known = list(markers(log.store, other.directory))
        last = find_published(log, other, stored, snapshot, known)
        for found in (*publishings(log, other, snapshot, known), *([last] if last is not None else [])):
            same = equal_work(found.record, spec) and found.record.rows != 0
            if same and not found.record.set_aside and not aftermath(log, found, snapshot).gone:
                theirs = Orphan(load.group, key, "", found.version, found.record.rows)
                raise OrphanWriterError(
                    f"DAG {dag!r} has appended the same rows in this run, as writer {theirs}, to {log.table}. Nothing "
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


def doubled(log: DeltaLog, load: Load, found: Iterable[Orphan], published: Iterable[str]) -> OrphanWriterError | None:
    """Return the error of writers that began to append after an orphan had begun, and may have doubled its rows.

    Which of them published first does not matter: a task of the old name may still be at work when the new one ends.

    :param load: that was reconciled.
    :param found: its orphans.
    :param published: keys of its writers whose rows were published.
    :returns: ``None`` where there are no such writers.
    """
    before = [orphan for orphan in found if orphan.version is not None and orphan.began is not None]
    gone = {orphan: _past(log, attrs.evolve(load, group=orphan.group).writer(orphan.writer)) for orphan in before}
    new = []
    for key in published if before else ():
        mine = _past(log, load.writer(key))
        others = [orphan.began for orphan, theirs in gone.items() if not _stood_beside(mine, theirs)]
        first = min((begun for begun in others if begun is not None), default=None)
        if first is not None and _appended_anew(log, load.writer(key), first):
            new.append(key)
    if not new:
        return None
    return OrphanWriterError(
        f"Writer {', '.join(map(repr, new))} appended to {log.table} for the first time in this run, after "
        f"{_names(before)}, which no task names any more. If one is a new name of the other, the rows are in the table "
        "twice: look, delete those of one of them, and clear this task. If both are right, name both in the DAG."
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
    found = find_published(log, identity, snapshot.txns[identity.app_id], snapshot)
    if found is not None and (found.record.rows == 0 or aftermath(log, found, snapshot).gone):
        found = still_there(log, identity, snapshot)
        if found is None:
            return None
    found_claims = claims(log.store, identity)
    return Orphan(
        group=identity.load.group,
        writer=identity.key,
        task=found_claims[-1].task if found_claims else "",
        version=found.version if found is not None else None,
        rows=found.record.rows if found is not None else None,
        began=_first_claim(log, identity),
    )


def _first_claim(log: DeltaLog, identity: WriterIdentity) -> datetime | None:
    """Return the store's time of a writer's first claim; ``None`` where that was cleaned up."""
    directory = WriterDirectory.read(log.store, identity.directory)
    return directory.objects[directory.claims[1]].modified if 1 in directory.claims else None


def _past(log: DeltaLog, identity: WriterIdentity) -> _Past:
    """Return the starts that began a writer's generations, as far as its claims say, and what work it has published."""
    task_starts = {
        claim.generation: claim.task_start for claim in claims(log.store, identity) if claim.task_start is not None
    }
    return task_starts, [found.record for found in publishings(log, identity, log.snapshot())]


def _stood_beside(mine: _Past, theirs: _Past) -> bool:
    """Say whether a writer began beside another one, in one start of the run, so that it is no new name of it.

    Which of them began first does not matter then. A new name comes later: in a task instance that had another key, or
    in a later start. A task that is renamed while its run works comes in the same start, and does the same work.
    """
    first, other = mine[0].get(1), theirs[0].get(1)
    if first is None or other is None or first.began is None:
        return False
    return (
        (first.run_id, first.began, first.first_try) == (other.run_id, other.began, 1)
        and first.chain not in {task_start.chain for task_start in theirs[0].values()}
        and (
            ("[" in first.task and first.task.rpartition("[")[0] == other.task.rpartition("[")[0])
            or (all((mine[1], theirs[1])) and not any(starmap(equal_work, product(mine[1], theirs[1]))))
        )
    )


def _appended_anew(log: DeltaLog, identity: WriterIdentity, first: datetime) -> bool:
    """Say whether a writer began after some time, and published by appends that do not allow rows to be there twice.

    :param first: the store's time.
    """
    begun = _first_claim(log, identity)
    if begun is None or begun <= first:
        return False
    snapshot = log.snapshot()
    known, stored = list(markers(log.store, identity.directory)), snapshot.txns.get(identity.app_id)
    # Who published last may have died before it marked its buffer; then the log says what it published.
    last = find_published(log, identity, stored, snapshot, known) if stored is not None else None
    published = [*publishings(log, identity, snapshot, known), *([last] if last is not None else [])]
    buffers = {each.record.buffer for each in published}
    try:
        specs = [read_open_buffer(log.store, buffer).spec for buffer in buffers]
    except (BufferIncompleteError, BufferInvalidError):
        return False  # Its log was cleaned up, so it was closed long ago.
    return bool(specs) and all(spec.must_not_repeat for spec in specs)
