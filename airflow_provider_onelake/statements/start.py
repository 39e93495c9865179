"""Who runs a statement; what an earlier try or a newer start did, and whether it stands; whether the table is the same.

A ``txn`` stays when a RESTORE takes back the commit that set it. So whether a statement stands is read from the commits
since.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.claims import Start
from airflow_provider_onelake.exceptions import StatementRefusedError, ZombieWriterError
from airflow_provider_onelake.history.undone import is_undone
from airflow_provider_onelake.log.commits import ALTER, CHANGE, STAGED, Commit
from airflow_provider_onelake.storage.clock import whole_number

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot


@attrs.frozen(kw_only=True)
class Asker:
    """Who runs a statement, and which of the task's starts it is.

    :param task_id: the ``txn`` application id of the task's statement, the same for every start of the task in its run.
    :param id: the ``txn`` application id of this start: the same for its retries, another one after a clear.
    :param fence: the ``txn`` application id of the task in its run, whatever it is asked to do: a clear may correct the
        statement.
    :param task_start: this start: the task's first one, or its last clear.
    :param try_number: of the task, counted over all of its starts, from 1.
    :param by: who asks; shown to people.
    :param message: of the author, for people who read the table's history. Default: none.
    """

    task_id: str
    id: str
    fence: str
    task_start: Start
    try_number: int = 1
    by: str
    message: str | None = None


@attrs.frozen
class Earlier:
    """The commit of an earlier try or an earlier start.

    :param commit: ``None`` where the log was cleaned up since.
    :param later: the commits after it, in order.
    """

    commit: Commit | None
    later: tuple[Commit, ...] = attrs.field(default=(), repr=False)

    @cached_property
    def is_undone(self) -> bool:
        """Whether a RESTORE took the table back to a version before the commit."""
        return self.commit is not None and is_undone(self.commit, self.later)

    @property
    def before(self) -> int | None:
        """The version of the first append that landed before the commit and counts as later; ``None`` for none."""
        staged: Any = self.commit.info.get(STAGED) if self.commit is not None else None
        record = staged.get(CHANGE) if isinstance(staged, dict) else None
        return whole_number(record.get("before")) if isinstance(record, dict) else None


def find_earlier(log: DeltaLog, app_id: str, snapshot: Snapshot) -> Earlier | None:
    """Return the newest commit of a statement that stands, else the newest one; ``None`` where there is none.

    A RESTORE to a version between two commits of a statement undoes the newer one, and the older one stands.

    :param app_id: the statement's ``txn`` application id.
    :param snapshot: the newest of the table.
    """
    undone: Earlier | None = None
    for earlier in _commits_of(log, app_id, snapshot):
        if earlier.commit is not None and not earlier.is_undone:
            return earlier
        undone = undone or earlier
    return undone


def _commits_of(log: DeltaLog, app_id: str, snapshot: Snapshot) -> Iterator[Earlier]:
    """Yield the commits of a statement, the newest first; one that is ``None`` stands for those that the log lost."""
    if app_id not in snapshot.txns:
        return
    later: list[Commit] = []
    for version in range(snapshot.version, -1, -1):
        commit = log.commit(version)
        if commit is None:
            break
        if app_id in commit.txns:
            yield Earlier(commit, tuple(reversed(later)))
            if commit.txns[app_id] <= 1:
                return
        later.append(commit)
    yield Earlier(None)


@attrs.define
class Starts:
    """Refuses a start of a task once a newer one has ended (protocol: statements map rows, generation).

    The commit of a start says which one it is. Where two of them do not say which is the newer one, whoever committed
    while the other was at work counts as newer. A start that is not the task's first try commits its ``txn`` even if it
    finds nothing to do, because an older try may still be at work.

    :param name: what messages call the statement.
    :param asker: the start.
    """

    _log: DeltaLog
    _name: str
    _asker: Asker
    _stored: dict[str, int] = attrs.field(factory=dict, init=False)

    @property
    def record(self) -> dict[str, object]:
        """What the commit of the start says of it."""
        return {"deed": attrs.asdict(self._asker.task_start), "try": self._asker.try_number}

    @property
    def follows(self) -> bool:
        """Whether an older try of the task, of this start or of an earlier one, may still be at work."""
        return self._asker.try_number > 1

    def turns(self, snapshot: Snapshot, *, done: bool = True) -> dict[str, int]:
        """Return the versions of the ``txn`` actions of the commit, by their application ids.

        They rise where a RESTORE took an earlier try's effect back, as versions of a ``txn`` must.

        :param done: whether the commit does the statement. Else there was nothing to do: a later start is not to find
            that the statement was done.
        """
        asker = self._asker
        ids = [*([asker.task_id] if done else []), asker.id, *([asker.fence] if self.follows else [])]
        return {app_id: snapshot.txns.get(app_id, 0) + 1 for app_id in ids}

    def check(self, snapshot: Snapshot) -> None:
        """Look at the newest version, once more in every attempt.

        :raises ZombieWriterError: a newer start has done the statement, or has found nothing to do.
        """
        for app_id in (self._asker.task_id, self._asker.fence):
            is_first, known = app_id not in self._stored, self._stored.get(app_id, 0)
            self._stored[app_id] = snapshot.txns.get(app_id, 0)
            if self._stored[app_id] > known and self._follows_us(app_id, snapshot, is_first):
                raise ZombieWriterError(
                    f"Another start of this task has done {self._name} to {self._log.table} since this one began, or "
                    "has found nothing to do, and it is not done twice. Nothing more was changed: clear the task if it "
                    "is to be done again."
                )

    def _follows_us(self, app_id: str, snapshot: Snapshot, is_first: bool) -> bool:
        """Say whether the newest commit with a ``txn`` is of a newer start or try than this one.

        :param is_first: whether this start looks for the first time. Later, a commit of which nobody knows is newer.
        """
        other, number = self._done_by(app_id, snapshot)
        own = self._asker.task_start
        if other is not None and other.id == own.id:
            return number > self._asker.try_number
        if other is not None and other.precedes(own):
            return False
        return not is_first or (other is not None and own.precedes(other))

    def _done_by(self, app_id: str, snapshot: Snapshot) -> tuple[Start | None, int]:
        """Return the start that has made the newest commit with a ``txn``, and the number of its try."""
        found = next(_commits_of(self._log, app_id, snapshot), None)
        staged: Any = found.commit.info.get(STAGED) if found is not None and found.commit is not None else None
        for kind in (CHANGE, ALTER):
            record = staged.get(kind) if isinstance(staged, dict) else None
            if isinstance(record, dict):
                return Start.from_json(record.get("deed")), whole_number(record.get("try")) or 1
        return None, 1


@attrs.define
class SameTable:
    """Refuses to change another table that was made at the same place (protocol: same table).

    Unlike a write, a statement has no read version whose entry it could check instead.
    """

    _log: DeltaLog
    _operation: str
    _anchor: tuple[int, str | None, str] | None = None

    def check(self, snapshot: Snapshot) -> None:
        """Remember the table at the first call, and compare with it at every later one.

        :raises StatementRefusedError: the table was replaced, or dropped and made again, since the first call.
        """
        if self._anchor is None:
            self._anchor = snapshot.version, self._log.digest(snapshot.version), snapshot.table_id
        version, digest, table_id = self._anchor
        now = self._log.digest(version)
        # An entry that was cleaned up behind a checkpoint tells nothing.
        entry_changed = digest is not None and now is not None and now != digest
        if snapshot.version < version or entry_changed or snapshot.table_id != table_id:
            raise StatementRefusedError(
                f"{self._log.table} was replaced, or dropped and made again, while this {self._operation} was at work. "
                "The new table was not changed: look at it, and clear this task if its rows are to be changed too."
            )
