"""A plan of the files that no run has loaded: what is new, who has the rest, and what is taken over.

A file belongs to the writer that the ledger names last. The ledger's entries are put create-only, one after the other,
so of two plans at the same time one gives the file to a writer, and the other one looks again. From there on the file
is this writer's, whatever becomes of the run:

    the writer's txn in the newest snapshot    the file
    none                                       waits for the writer, in its run
    a generation                               is loaded, unless a RESTORE took the rows back
    the highest there is (retired)             is new again, unless a RESTORE brought back rows of its writer

So a file is new if the ledger does not name it, or if its writer is retired (protocol: one ledger, retired).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.choices import OnChanged
from airflow_provider_onelake.commit.retire import retire
from airflow_provider_onelake.commit.words import counted
from airflow_provider_onelake.exceptions import ObjectExistsError, PlanError
from airflow_provider_onelake.planning.balance import balance
from airflow_provider_onelake.planning.ledger import (
    Ledger,
    Recorded,
    key_of,
    ledgers_beside,
    name_of,
    path_of,
)
from airflow_provider_onelake.planning.restores import look_for_restores
from airflow_provider_onelake.reading.listing import by_partition
from airflow_provider_onelake.reading.spark_files import SourceFile, digest_of
from airflow_provider_onelake.staging.identity import RETIRED, Load, ledger_id
from airflow_provider_onelake.staging.prepare import TXN_RETENTION

if TYPE_CHECKING:
    from airflow_provider_onelake.commit.transaction import Transactions
    from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)

_LOOK_AGAIN = 100
"""After so many versions of the table, a plan without new files notes that it has looked for a RESTORE in them."""
_SHOWN = 3


@attrs.frozen(kw_only=True)
class Asked:
    """What the author asks of a plan of new files.

    :param ledger: its name: plans with one ledger load each file once.
    :param named: whether the author gave that name.
    :param load: of the writers.
    :param plan: the name of the run's plan, the same for every rerun.
    :param by: see :func:`~airflow_provider_onelake.reading.listing.by_partition`.
    :param writers: see :func:`~airflow_provider_onelake.planning.balance.balance`; ``max_bytes`` and ``prefix`` too.
    :param max_files: the most files that the run loads; the oldest first. Default: all.
    :param on_changed: what becomes of files that have changed since they were loaded.
    :param take_over: names of runs whose waiting files this run is to load.
    """

    ledger: str
    named: bool
    load: Load
    plan: str
    by: str | None = None
    writers: int | None = None
    max_bytes: int | None = None
    prefix: str = ""
    max_files: int | None = None
    on_changed: OnChanged = OnChanged.REFUSE
    take_over: Collection[str] = ()


@attrs.frozen
class Given:
    """A writer of the run.

    :param files: their paths, as a listing spells them.
    :param planned: what the writer and the table's log keep of the plan.
    """

    writer: str
    files: tuple[SourceFile, ...]
    planned: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class NewFiles:
    """A plan of new files.

    :param path: of the ledger, relative to the table.
    :param writers: of the run.
    :param new: how many files this call gave to them; an earlier try gave them the rest.
    :param loaded: how many files of the source are in the table.
    :param left_for_next_run: how many new files the run does not load.
    :param left_to_others: how many files wait for writers of other runs, by the run's name.
    :param taken_over: how many of ``new`` were given to other writers before.
    :param changed: how many files have changed since they were loaded.
    """

    path: str
    writers: tuple[Given, ...]
    new: int = 0
    loaded: int = 0
    left_for_next_run: int = 0
    left_to_others: Mapping[str, int] = attrs.field(factory=dict)
    taken_over: int = 0
    changed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the counts for XCom."""
        counts = attrs.asdict(self, filter=lambda field, _: field.name not in ("path", "writers"))
        return {"planned": sum(len(given.files) for given in self.writers), **counts}


class _State(Enum):
    """How far a writer has come, by the table's log."""

    WAITS = auto()
    LOADED = auto()
    GONE = auto()
    RETIRED = auto()


def plan_new(transactions: Transactions, asked: Asked, files: Iterable[SourceFile], root: str) -> NewFiles:
    """Return the plan of a run: what an earlier try has planned, or writers for the files that are new.

    :param transactions: of the table, which need not be there yet.
    :param files: of the source.
    :param root: the lakehouse's address as Spark spells it; empty if there is none.
    :raises PlanError: the ledger is not what it was, a file has changed, or as
        :func:`~airflow_provider_onelake.planning.balance.balance`.
    :raises OneLakeError: as :func:`~airflow_provider_onelake.commit.retire.retire`.
    """
    named = (attrs.evolve(file, path=name_of(file.path, root)) for file in files)
    planning = _Planning(transactions, asked, {key_of(file.path, root): file for file in named}, root)
    while (plan := planning.look()) is None:
        pass
    return plan


@attrs.define(eq=False, slots=False)
class _Planning:
    """One call of :func:`plan_new`."""

    _transactions: Transactions
    _asked: Asked
    _listed: Mapping[str, SourceFile]
    _root: str

    def __attrs_post_init__(self) -> None:
        self._log = self._transactions.log
        self._store = self._log.store

    def look(self) -> NewFiles | None:
        """Plan on what is there now; ``None`` if that has changed meanwhile."""
        # The snapshot first: the entries that it counts were put before it.
        self._log.doubt()
        snapshot = self._log.snapshot_or_none()
        ledger = Ledger.read(self._store, self._asked.ledger, self._root)
        _check_ledger(ledger, snapshot, self._log.table)
        looked = look_for_restores(self._log, ledger, snapshot) if snapshot is not None else None
        if looked is not None:
            ledger.gone, ledger.back = looked.gone, looked.back
        states = {writer.identity.app_id: _state(writer, ledger, snapshot) for writer in ledger.writers}
        planned_before = [writer for writer in ledger.writers if writer.plan == self._asked.plan]
        own = [writer for writer in planned_before if states[writer.identity.app_id] != _State.RETIRED]
        if outdated := list(self._to_retire(ledger, states)):
            self._retire(ledger, snapshot, outdated)
            return None
        found = _Found.of(ledger, states, self._listed, self._asked.plan)
        if not planned_before:
            self._check(ledger, found)
        # A run that has a plan is not asked about changed files, even if all of its writers are retired.
        on_changed = OnChanged.REFUSE if planned_before else self._asked.on_changed
        again = found.changed if on_changed is OnChanged.LOAD_AGAIN else []
        ignored = found.changed if on_changed is OnChanged.IGNORE else []
        chosen = self._choose(found, again, planned_before)
        writers = self._divide(ledger, chosen)
        noted_long_ago = snapshot is not None and snapshot.version - ledger.version > _LOOK_AGAIN
        if writers or ignored or looked is not None or (noted_long_ago and ledger.writers):
            try:
                own += ledger.add(
                    self._store,
                    table_id=snapshot.table_id if snapshot is not None else "",
                    version=snapshot.version if snapshot is not None else -1,
                    load=self._asked.load,
                    plan=self._asked.plan,
                    writers=writers,
                    ignored=ignored,
                    looked=looked,
                )
            except ObjectExistsError:
                return None  # Another plan was first, or our answer was lost.
        return NewFiles(
            path=ledger.path,
            writers=tuple(self._given(writer, ledger.version) for writer in own),
            new=len(chosen),
            loaded=found.loaded,
            left_for_next_run=len(found.new) + len(found.freed) + len(again) - len(chosen),
            left_to_others=dict(found.left),
            taken_over=sum(file in found.freed for file in chosen),
            changed=len(found.changed),
        )

    def _to_retire(self, ledger: Ledger, states: Mapping[str, _State]) -> Iterator[Recorded]:
        """Yield the writers whose files are to be given to others.

        Those are the waiting writers of runs that are taken over, waiting writers of this plan whose files are no
        longer as they were planned, and waiting writers of any plan whose rows a RESTORE has brought back meanwhile.
        """
        back = {
            (ledger.key(file), file.size, file.modified)
            for file, writer in ledger.stood_for
            if writer.identity.app_id in ledger.back
        }
        for writer in ledger.writers:
            state = states[writer.identity.app_id]
            taken = state in (_State.WAITS, _State.GONE) and writer.identity.load.run in self._asked.take_over
            own = state is _State.WAITS and writer.plan == self._asked.plan
            outdated = own and any(not _same(self._listed.get(ledger.key(file)), file) for file in writer.files)
            twice = state is _State.WAITS and any(
                (ledger.key(file), file.size, file.modified) in back for file in writer.files
            )
            if taken or outdated or twice:
                yield writer

    def _retire(self, ledger: Ledger, snapshot: Snapshot | None, writers: Sequence[Recorded]) -> None:
        if snapshot is None:
            raise PlanError(
                f"There is no table at {self._log.table} yet, so {writers[0]} cannot be kept from publishing, and its "
                "files are not given to another writer. Nothing was planned: create the table; or, while there is none "
                f"and no writer is at work, delete {ledger.path} at its place, and clear this task."
            )
        seen = {writer.identity.app_id: snapshot.txns.get(writer.identity.app_id) for writer in writers}
        retired = retire(self._transactions, seen, self._asked.plan)
        for writer in writers:
            if writer.identity.app_id in retired:
                logger.warning("%s: %s never publishes again; its files are new", self._log.table, writer)
            else:
                logger.info(
                    "%s: the table has changed, so what %s has loaded is looked at again", self._log.table, writer
                )

    def _check(self, ledger: Ledger, found: _Found) -> None:
        """Refuse to load files of which the author has to say what is to become of them."""
        if found.changed and self._asked.on_changed is OnChanged.REFUSE:
            one = len(found.changed) == 1
            raise PlanError(
                f"{counted(len(found.changed), 'file')} {'has' if one else 'have'} changed since "
                f"{'it was' if one else 'they were'} loaded into {self._log.table}: "
                f"{self._some(found.changed)}. Nothing was planned. on_changed='load_again' loads each of them whole, "
                "beside the rows of before with mode='append'; 'ignore' leaves the rows of before, for good."
            )
        if ledger.entries or self._asked.named:
            return
        for other in ledgers_beside(self._store, ledger):
            if known := [file for file in found.new if other.key(file) in other.last]:
                raise PlanError(
                    f"{self._some(known)} and so on were given to writers of {self._log.table} by the plan "
                    f"{other.name!r}, and this is the first run of {ledger.name!r}. Nothing was planned. If a DAG or a "
                    f"task has another name now, say ledger={other.name!r}; if each of the two is to load every file, "
                    "give this one a `ledger` of its own."
                )

    def _choose(self, found: _Found, again: list[SourceFile], planned_before: Collection[Recorded]) -> list[SourceFile]:
        """Return the files for new writers, the oldest first.

        :param again: files that are loaded again.
        :param planned_before: the writers that the run was given before, retired or not. If there are some, it gets
            only what was taken from its own writers, or from those of runs that it takes over.
        """
        new = [*found.new, *found.freed, *again]
        if planned_before:
            taken = {self._asked.load.run, *self._asked.take_over}
            new = [file for file, writer in found.freed.items() if writer.identity.load.run in taken]
        return sorted(new, key=lambda file: (file.modified, file.path))[: self._asked.max_files]

    def _divide(self, ledger: Ledger, chosen: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """Return the files of each new writer, by its key."""
        by_path = {path_of(file.path, self._root): file for file in chosen}
        spelled = [attrs.evolve(file, path=path) for path, file in by_path.items()]
        parts = by_partition(spelled, self._asked.by)
        shares = balance(
            {part: sum(file.size for file in found) for part, found in parts.items()},
            writers=self._asked.writers,
            max_bytes=self._asked.max_bytes,
            prefix=self._asked.prefix,
        )
        used = {writer.identity.key for writer in ledger.writers if writer.identity.load == self._asked.load}
        given: dict[str, list[SourceFile]] = {}
        for share in shares:
            key, number = share.writer, 2
            while key in used:
                key, number = f"{share.writer}.{number}", number + 1
            used.add(key)
            given[key] = [by_path[file.path] for part in share.partitions for file in parts[part]]
        return given

    def _given(self, writer: Recorded, looked: int) -> Given:
        files = tuple(attrs.evolve(file, path=path_of(file.path, self._root)) for file in writer.files)
        planned = {
            "ledger": self._asked.ledger,
            "entry": writer.entry,
            "files": len(files),
            "digest": digest_of(files),
            # The commit refuses the files if a RESTORE since then may have brought back their rows.
            "version": looked,
        }
        return Given(writer.identity.key, files, planned)

    def _some(self, files: Sequence[SourceFile]) -> str:
        return ", ".join(path_of(file.path, self._root) for file in files[:_SHOWN])


@attrs.define
class _Found:
    """The files of the source, by what the ledger and the table's log say of them.

    :param new: no writer was ever given them.
    :param freed: their writers are retired.
    :param changed: they are others than those that were loaded.
    :param left: how many wait for writers of other runs, by the run's name.
    :param loaded: how many are in the table as they are now.
    """

    new: list[SourceFile] = attrs.field(factory=list)
    freed: dict[SourceFile, Recorded] = attrs.field(factory=dict)
    changed: list[SourceFile] = attrs.field(factory=list)
    left: Counter[str] = attrs.field(factory=Counter)
    loaded: int = 0

    @classmethod
    def of(cls, ledger: Ledger, states: Mapping[str, _State], listed: Mapping[str, SourceFile], plan: str) -> _Found:
        """Look up each file.

        :param plan: the name of the run's own plan.
        """
        found = cls()
        # Also the versions of files that the ledger knows by a later one.
        loaded = {
            (ledger.key(file), file.size, file.modified)
            for file, writer in ledger.stood_for
            if states[writer.identity.app_id] is _State.LOADED
        }
        # The writer counts for a file whose change is ignored too: a RESTORE may take back what it has loaded.
        ignored = {ledger.key(file): (file, writer) for file, writer in ledger.ignored}
        for key, file in listed.items():
            known, writer = ledger.last.get(key, (None, None))
            if key in ignored and ignored[key][1] is writer:
                known = ignored[key][0]
            state = states[writer.identity.app_id] if writer is not None else _State.LOADED
            if known is None:
                found.new.append(file)
            elif (key, file.size, file.modified) in loaded:
                found.loaded += 1
            elif writer is not None and state is _State.RETIRED:
                found.freed[file] = writer
            elif writer is not None and state is not _State.LOADED:
                if writer.plan != plan or state is _State.GONE:
                    found.left[writer.identity.load.run] += 1
            elif _same(file, known):
                found.loaded += 1
            else:
                found.changed.append(file)
        return found


def _state(writer: Recorded, ledger: Ledger, snapshot: Snapshot | None) -> _State:
    app_id = writer.identity.app_id
    stored = snapshot.txns.get(app_id) if snapshot is not None else None
    if stored is None:
        return _State.WAITS
    if stored == RETIRED:
        return _State.LOADED if app_id in ledger.back else _State.RETIRED
    generation, _ = ledger.gone.get(app_id, (None, ""))
    return _State.GONE if generation == stored else _State.LOADED


def _same(one: SourceFile | None, other: SourceFile) -> bool:
    """Say whether a file is as it was."""
    return one is not None and (one.size, one.modified) == (other.size, other.modified)


def _check_ledger(ledger: Ledger, snapshot: Snapshot | None, table: str) -> None:
    """Refuse a ledger that is not that of the table, or that lacks entries of which the table has seen writers."""
    if snapshot is None:
        return
    if TXN_RETENTION in snapshot.configuration:
        raise PlanError(
            f"{table} sets {TXN_RETENTION}, so its log forgets which writers have published, and nobody knows which "
            "files are loaded (protocol: no expiring txn). Nothing was planned: unset the property."
        )
    if snapshot.txns.get(ledger_id(ledger.name), 0) > ledger.entries:
        raise ledger.missing(ledger.entries)
    if ledger.table_id and ledger.table_id != snapshot.table_id:
        raise PlanError(
            f"{table} was replaced, or dropped and made again, and {ledger.path} says what was loaded into the table "
            "that was there before. Nothing was planned: give the plan another `ledger`, which loads all files of the "
            "source again."
        )
