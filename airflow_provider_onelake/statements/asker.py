"""Who runs a statement, and what an earlier try of the task did: a statement has a generation, as a writer has.

A task that runs a statement claims a generation for each of its starts, and its commit has a ``txn`` with that number
(protocol: generation). A MERGE is a statement of a writer, whose claim and ``txn`` it has.

A ``txn`` stays when a RESTORE takes back the commit that set it. So whether a statement stands is read from the commits
since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import attrs

from airflow_provider_onelake.buffers.claims import begin
from airflow_provider_onelake.buffers.layout import changes_directory
from airflow_provider_onelake.exceptions import RerunRefusedError, ZombieWriterError
from airflow_provider_onelake.history.undone import is_undone
from airflow_provider_onelake.log.commits import CHANGE, STAGED, Commit

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.claims import Start
    from airflow_provider_onelake.buffers.identity import Identity
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot


_STATEMENTS = "onelake-statement/"


def task_named_by(app_id: str) -> list[str] | None:
    """Return the namespace, DAG, task and run that the ``txn`` id of a statement of ours names; else ``None``.

    :param app_id: as it stands in the table's log.
    """
    parts = [unquote(part) for part in app_id.removeprefix(_STATEMENTS).split("/")]
    return parts if app_id.startswith(_STATEMENTS) and len(parts) == 4 else None


@attrs.frozen
class TaskIdentity:
    """A task in its run, by which a table knows its statements.

    :param owner: names the task in its run, see :meth:`~airflow_provider_onelake.task_run.TaskRun.owner`.
    """

    owner: str

    @property
    def app_id(self) -> str:
        """The ``txn`` application id. It does not begin as those of writers do, whose rows a load counts."""
        return f"{_STATEMENTS}{self.owner}"

    @property
    def key(self) -> str:
        """What messages call the task."""
        return unquote(self.owner.split("/")[2]) if self.owner.count("/") > 2 else self.owner

    @property
    def directory(self) -> str:
        """The directory of the task's claims, and of the private tables of its statements."""
        return changes_directory(self.owner)


@attrs.frozen(kw_only=True)
class Asker:
    """Who runs a statement: one try of one start of a task.

    :param identity: by which the table knows the task, or the writer.
    :param generation: of the start.
    :param retried: whether an older try of the start may still be at work. Default: this is the first one.
    :param statement: what is asked for: the operation and a digest, such as ``delete/where=…``. A task that was
        corrected asks for something else. Empty for a MERGE, whose source has a fingerprint.
    :param start: the id of the start. Default: empty, for a MERGE.
    :param by: who asks; shown to people.
    :param message: of the author, for people who read the table's history. Default: none.
    """

    identity: Identity
    generation: int = 1
    retried: bool = False
    statement: str = ""
    start: str = ""
    by: str
    message: str | None = None

    @classmethod
    def of_task(
        cls, log: DeltaLog, owner: str, task_start: Start, number: int, statement: str, by: str, message: str | None
    ) -> Asker:
        """Claim a generation for a task's start, or find the one that an earlier try of the start has claimed.

        :param log: of the table.
        :param owner: names the task in its run.
        :param number: of the try, counted over all starts of the task.
        :raises ZombieWriterError: a newer start has claimed one.
        """
        identity = TaskIdentity(owner)
        generation = begin(log, identity, task_start).generation
        retried = number > task_start.first_try
        return cls(
            identity=identity,
            generation=generation,
            retried=retried,
            statement=statement,
            start=task_start.id,
            by=by,
            message=message,
        )

    @property
    def app_id(self) -> str:
        """The ``txn`` application id of the task, or of the writer."""
        return self.identity.app_id

    @property
    def former_ids(self) -> tuple[str, str]:
        """The ``txn`` ids that an earlier release gave to a statement of a start, and of the task in any start."""
        operation, _, what = self.statement.partition("/")
        owner = f"onelake-{operation}/{self.app_id.partition('/')[2]}"
        return f"{owner}/{quote(self.start, safe='')}/{what}", f"{owner}/{what}"

    def follows(self, snapshot: Snapshot) -> bool:
        """Say whether an older try or start may still be at work, and come into the table after a snapshot."""
        return self.retried or snapshot.txns.get(self.app_id, 0) < self.generation - 1

    def done_before(self, log: DeltaLog, name: str, snapshot: Snapshot) -> Earlier | None:
        """Return the commit of an earlier try of this start; ``None`` where there is none.

        :param name: what messages call the statement.
        :param snapshot: the newest of the table.
        :raises ZombieWriterError: a newer start of the task is in the table.
        :raises RerunRefusedError: the earlier try was asked for something else, or a RESTORE has taken that back.
        """
        stored = snapshot.txns.get(self.app_id, 0)
        if stored > self.generation:
            raise ZombieWriterError(
                f"A newer start of {self.by} is in {log.table} (generation {stored}, this try is of generation "
                f"{self.generation}), so {name} is not done on top of it. Nothing was changed: clear the task if it is "
                "to be done again."
            )
        ids = {self.former_ids[0], *([self.app_id] if stored == self.generation else [])}
        found = next(commits_of(log, ids, snapshot), None)
        if found is None or found.commit is None:
            return found
        why = None
        if found.statement and self.statement and found.statement != self.statement:
            why = "was asked for something else then"
        elif found.is_undone:
            why = "was taken back by a RESTORE since, or by another table in place of this one"
        if why is not None:
            raise RerunRefusedError(
                f"An earlier try of {self.by} came into {log.table} in version {found.commit.version}, and {why}. "
                f"{name[:1].upper()}{name[1:]} is not done: clear the task, which does it to the rows as they are now."
            )
        return found

    def done_by_older_start(self, log: DeltaLog, snapshot: Snapshot) -> Earlier | None:
        """Return the newest commit by which an older start has done the same, and that stands; ``None`` for none.

        :param snapshot: the newest of the table.
        """
        same = (found for found in commits_of(log, {self.app_id, self.former_ids[1]}, snapshot) if not found.nothing)
        return next((found for found in same if not found.is_undone and found.statement in ("", self.statement)), None)


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
        """Whether the table was taken back to a version before the commit."""
        return self.commit is not None and is_undone(self.commit, self.later)

    @property
    def record(self) -> Mapping[str, Any]:
        """What the commit says of the statement; empty where that is not known."""
        staged: Any = self.commit.info.get(STAGED) if self.commit is not None else None
        record = staged.get(CHANGE) if isinstance(staged, dict) else None
        return record if isinstance(record, dict) else {}

    @property
    def statement(self) -> str:
        """What the statement was; empty where the commit does not say, as in earlier releases its ``txn`` did."""
        return str(self.record.get("statement") or "")

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to do."""
        return bool(self.record.get("nothing"))


def commits_of(log: DeltaLog, ids: Collection[str], snapshot: Snapshot) -> Iterator[Earlier]:
    """Yield the commits that have one of some ``txn`` ids, the newest first, and one for those that the log has lost.

    :param snapshot: the newest of the table.
    """
    if not any(app_id in snapshot.txns for app_id in ids):
        return
    later: list[Commit] = []
    for version in range(snapshot.version, -1, -1):
        if (commit := log.commit(version)) is None:
            yield Earlier(None)
            return
        if not commit.txns.keys().isdisjoint(ids):
            yield Earlier(commit, tuple(reversed(later)))
        later.append(commit)
