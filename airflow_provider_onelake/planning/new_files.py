"""A plan of the files that no run has loaded: what is new, who has the rest, and what is taken over.

A file belongs to the writer that the ledger names last. The ledger's entries are put create-only, one after the other,
so of two plans at the same time one gives the file to a writer, and the other one looks again. From there on the file
is this writer's, whatever becomes of the run:

    the writer's txn in the newest snapshot    the file
    no writer was given it                     is new
    none                                       waits for the writer, in its run
    a generation                               is loaded; if it is another one by now, it has changed
    a generation, and a RESTORE took its rows  waits until a run takes it over
    the highest there is (retired)             is new again, unless a RESTORE brought back rows of its writer

One rule comes before this table: a file is loaded if rows of just this version of it are in the
table, whoever brought them (protocol: one ledger, retired).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.identity import RETIRED, Load, ledger_id
from airflow_provider_onelake.choices import OnChanged
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
from airflow_provider_onelake.texts import counted
from airflow_provider_onelake.writes.prepare import TXN_RETENTION
from airflow_provider_onelake.writes.retire import retire

if TYPE_CHECKING:
    from airflow_provider_onelake.commit.loop import Transactions
    from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)

_LOOK_AGAIN = 100
"""After so many versions of the table, a plan without new files notes that it has looked for a RESTORE in them."""
_SHOWN = 3


@attrs.frozen(kw_only=True)
class PlanRequest:
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
class AssignedFiles:
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
    writers: tuple[AssignedFiles, ...]
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


class _FileState(Enum):
    """How far a writer has come, by the table's log."""

    WAITS = auto()
    LOADED = auto()
    GONE = auto()
    RETIRED = auto()


class _File(Enum):
    """What a file of the source is to the run."""

    NEW = "no writer was ever given it"
    FREED = "its writer is retired"
    LEFT = "it waits for a writer of another run, or until it is taken over"
    OURS = "it waits for a writer of this run"
    LOADED = "it is in the table as it is now"
    CHANGED = "it is in the table as it was"


@attrs.frozen
class _KnownFiles:
    """What the ledger and the table's log say of the files.

    :param states: of the writers, by their ``txn`` ids.
    :param loaded: the files of which rows are in the table, each as it was.
    """

    ledger: Ledger
    states: Mapping[str, _FileState]
    loaded: Collection[tuple[str, int, int]]

    @classmethod
    def of(cls, ledger: Ledger, snapshot: Snapshot | None) -> _KnownFiles:
        """Look up the writers of a ledger.

        :param snapshot: the newest; ``None`` if there is no table.
        """
        states = {writer.identity.app_id: _state(writer, ledger, snapshot) for writer in ledger.writers}
        known = cls(ledger, states, set())
        stood = (known.version(file) for file, writer in ledger.stood_for if known.state(writer) is _FileState.LOADED)
        return attrs.evolve(known, loaded=set(stood))

    def version(self, file: SourceFile) -> tuple[str, int, int]:
        """Return what tells a file from others, and from what it was or will be."""
        return self.ledger.key(file), file.size, file.modified

    def state(self, writer: Recorded) -> _FileState:
        """Return how far a writer has come."""
        return self.states[writer.identity.app_id]

    def run(self, file: SourceFile) -> str:
        """Return the run whose writer was given a file last, one of this ledger."""
        return self.ledger.last[self.ledger.key(file)][1].identity.load.run

    def what(self, file: SourceFile, plan: str) -> _File:
        """Say what a file is to the run that has a plan of this name."""
        if self.version(file) in self.loaded:
            return _File.LOADED
        _, writer = self.ledger.last.get(self.ledger.key(file), (None, None))
        if writer is None:
            return _File.NEW
        state = self.state(writer)
        if state is _FileState.WAITS and writer.plan == plan:
            return _File.OURS
        return {_FileState.LOADED: _File.CHANGED, _FileState.RETIRED: _File.FREED}.get(state, _File.LEFT)


def plan_new(transactions: Transactions, asked: PlanRequest, files: Iterable[SourceFile], root: str) -> NewFiles:
    """Return the plan of a run: what an earlier try has planned, or writers for the files that are new.

    :param transactions: of the table, which need not be there yet.
    :param files: of the source.
    :param root: the lakehouse's address as Spark spells it; empty if there is none.
    :raises PlanError: the ledger is not what it was, a file has changed, or as
        :func:`~airflow_provider_onelake.planning.balance.balance`.
    :raises OneLakeError: as :func:`~airflow_provider_onelake.writes.retire.retire`.
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
    _request: PlanRequest
    _listed: Mapping[str, SourceFile]
    _root: str

    def __attrs_post_init__(self) -> None:
        self._log = self._transactions.log
        self._store = self._log.store
        self._there = {(key, file.size, file.modified) for key, file in self._listed.items()}

    def look(self) -> NewFiles | None:
        """Plan on what is there now; ``None`` if that has changed meanwhile."""
        # The snapshot first: the entries that it counts were put before it.
        self._log.doubt()
        snapshot = self._log.snapshot_or_none()
        ledger = Ledger.read(self._store, self._request.ledger, self._root)
        _check_ledger(ledger, snapshot, self._log.table)
        looked = look_for_restores(self._log, ledger, snapshot) if snapshot is not None else None
        if looked is not None:
            ledger.gone, ledger.back = looked.gone, looked.back
        known = _KnownFiles.of(ledger, snapshot)
        planned_before = [writer for writer in ledger.writers if writer.plan == self._request.plan]
        own = [writer for writer in planned_before if known.state(writer) is not _FileState.RETIRED]
        if outdated := [writer for writer in ledger.writers if self._is_outdated(writer, known)]:
            self._retire(ledger, snapshot, outdated)
            return None
        found: dict[_File, list[SourceFile]] = {each: [] for each in _File}
        for file in self._listed.values():
            found[known.what(file, self._request.plan)].append(file)
        if not planned_before:
            self._check(ledger, found)
        # A run that has a plan is not asked about changed files, even if all of its writers are retired.
        on_changed = OnChanged.REFUSE if planned_before else self._request.on_changed
        again = found[_File.CHANGED] if on_changed is OnChanged.LOAD_AGAIN else []
        ignored = found[_File.CHANGED] if on_changed is OnChanged.IGNORE else []
        to_load = may_load = [*found[_File.NEW], *found[_File.FREED], *again]
        if planned_before:
            # The run gets only what was taken from its own writers, or from those of runs that it takes over.
            taken = {self._request.load.run, *self._request.take_over}
            may_load = [file for file in found[_File.FREED] if known.run(file) in taken]
        chosen = sorted(may_load, key=lambda file: (file.modified, file.path))[: self._request.max_files]
        writers = self._divide(ledger, chosen)
        noted_long_ago = snapshot is not None and snapshot.version - ledger.version > _LOOK_AGAIN
        if writers or ignored or looked is not None or (noted_long_ago and ledger.writers):
            try:
                own += ledger.add(
                    self._store,
                    table_id=snapshot.table_id if snapshot is not None else "",
                    version=snapshot.version if snapshot is not None else -1,
                    load=self._request.load,
                    plan=self._request.plan,
                    writers=writers,
                    ignored=ignored,
                    looked=looked,
                )
            except ObjectExistsError:
                return None  # Another plan was first, or our answer was lost.
        return NewFiles(
            path=ledger.path,
            writers=tuple(self._assigned(writer, ledger.version) for writer in own),
            new=len(chosen),
            loaded=len(found[_File.LOADED]),
            left_for_next_run=len(to_load) - len(chosen),
            left_to_others=dict(Counter(map(known.run, found[_File.LEFT]))),
            taken_over=len(set(chosen) & set(found[_File.FREED])),
            changed=len(found[_File.CHANGED]),
        )

    def _is_outdated(self, writer: Recorded, known: _KnownFiles) -> bool:
        """Say whether the files of a writer are to be given to others, so that it must be retired.

        Those are the waiting writers of runs that are taken over, waiting writers of this plan whose files are no
        longer as they were planned, and waiting writers of any plan whose rows a RESTORE has brought back meanwhile.
        """
        is_taken_over = writer.identity.load.run in self._request.take_over
        if known.state(writer) is not _FileState.WAITS:
            return is_taken_over and known.state(writer) is _FileState.GONE
        files = set(map(known.version, writer.files))
        has_changed = writer.plan == self._request.plan and not files <= self._there
        return is_taken_over or has_changed or not files.isdisjoint(known.loaded)

    def _retire(self, ledger: Ledger, snapshot: Snapshot | None, writers: Sequence[Recorded]) -> None:
        if snapshot is None:
            raise PlanError(
                f"There is no table at {self._log.table} yet, so {writers[0]} cannot be kept from publishing, and its "
                "files are not given to another writer. Nothing was planned: create the table; or, while there is none "
                f"and no writer is at work, delete {ledger.path} at its place, and clear this task."
            )
        seen = {writer.identity.app_id: snapshot.txns.get(writer.identity.app_id) for writer in writers}
        retired = retire(self._transactions, seen, self._request.plan)
        for writer in writers:
            if writer.identity.app_id in retired:
                logger.warning("%s: %s never publishes again; its files are new", self._log.table, writer)
            else:
                logger.info(
                    "%s: the table has changed, so what %s has loaded is looked at again", self._log.table, writer
                )

    def _check(self, ledger: Ledger, found: Mapping[_File, Sequence[SourceFile]]) -> None:
        """Refuse to load files of which the author has to say what is to become of them."""
        changed = found[_File.CHANGED]
        if changed and self._request.on_changed is OnChanged.REFUSE:
            one = len(changed) == 1
            raise PlanError(
                f"{counted(len(changed), 'file')} {'has' if one else 'have'} changed since "
                f"{'it was' if one else 'they were'} loaded into {self._log.table}: "
                f"{self._some(changed)}. Nothing was planned. on_changed='load_again' loads each of them whole, "
                "beside the rows of before with mode='append'; 'ignore' leaves the rows of before, for good."
            )
        if ledger.entries or self._request.named:
            return
        for other in ledgers_beside(self._store, ledger):
            if known := [file for file in found[_File.NEW] if other.key(file) in other.last]:
                raise PlanError(
                    f"{self._some(known)} and so on were given to writers of {self._log.table} by the plan "
                    f"{other.name!r}, and this is the first run of {ledger.name!r}. Nothing was planned. If a DAG or a "
                    f"task has another name now, say ledger={other.name!r}; if each of the two is to load every file, "
                    "give this one a `ledger` of its own."
                )

    def _divide(self, ledger: Ledger, chosen: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """Return the files of each new writer, by its key."""
        by_path = {path_of(file.path, self._root): file for file in chosen}
        spelled = [attrs.evolve(file, path=path) for path, file in by_path.items()]
        parts = by_partition(spelled, self._request.by)
        shares = balance(
            {part: sum(file.size for file in found) for part, found in parts.items()},
            writers=self._request.writers,
            max_bytes=self._request.max_bytes,
            prefix=self._request.prefix,
        )
        used = {writer.identity.key for writer in ledger.writers if writer.identity.load == self._request.load}
        given: dict[str, list[SourceFile]] = {}
        for share in shares:
            key, number = share.writer, 2
            while key in used:
                key, number = f"{share.writer}.{number}", number + 1
            used.add(key)
            given[key] = [by_path[file.path] for part in share.partitions for file in parts[part]]
        return given

    def _assigned(self, writer: Recorded, looked: int) -> AssignedFiles:
        files = tuple(attrs.evolve(file, path=path_of(file.path, self._root)) for file in writer.files)
        planned = {
            "ledger": self._request.ledger,
            "entry": writer.entry,
            "files": len(files),
            "digest": digest_of(files),
            # The commit refuses the files if a RESTORE since then may have brought back their rows.
            "version": looked,
        }
        return AssignedFiles(writer.identity.key, files, planned)

    def _some(self, files: Sequence[SourceFile]) -> str:
        return ", ".join(path_of(file.path, self._root) for file in files[:_SHOWN])


def _state(writer: Recorded, ledger: Ledger, snapshot: Snapshot | None) -> _FileState:
    app_id = writer.identity.app_id
    stored = snapshot.txns.get(app_id) if snapshot is not None else None
    if stored is None:
        return _FileState.WAITS
    if stored == RETIRED:
        return _FileState.LOADED if app_id in ledger.back else _FileState.RETIRED
    generation, _ = ledger.gone.get(app_id, (None, ""))
    return _FileState.GONE if generation == stored else _FileState.LOADED


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
