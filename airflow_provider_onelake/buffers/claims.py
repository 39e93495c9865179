"""Claims of a writer's key: one, create-only, for every deliberate run of the writer (protocol: generation).

staged/<writer>/_claim-<N>.json      which start began generation N
staged/<writer>/_skipped-<N>.json    generation N found its rows in the table

A *start* is a deliberate run of a task: the first one, or the one after a clear. The task's retries, and its coming
back from the triggerer, belong to the start. The number of the newest claim is the generation of the writer. It rises
with every start. Airflow's own counters cannot replace it: they begin anew when a run is deleted and made again, and
follow ``retries``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from airflow_provider_onelake.buffers.identity import RETIRED, Identity, WriterIdentity
from airflow_provider_onelake.buffers.layout import WriterDirectory, claim_path, json_at
from airflow_provider_onelake.exceptions import (
    BufferInvalidError,
    DuplicateWriterError,
    ObjectExistsError,
    ObjectNotFoundError,
    ZombieWriterError,
)
from airflow_provider_onelake.storage.preflight import prove_create_only

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Start:
    """A deliberate run of a task: the first one, or the one after a clear, with all the tries that follow.

    :param id: the same for all tries of the start; no other start has it.
    :param task: what people call the task: ``load.write[3]``.
    :param run_id: of the run that the start belongs to.
    :param chain: the same for all starts of one task instance; a run that is deleted and made again has other chains.
    :param first_try: the number of the try with which it began; it rises from start to start of a chain.
    :param began: when its run began, in milliseconds, by the scheduler's clock; ``None`` where this is not known.
    :param life: tells the clears of its run from one another, and runs of one id that were deleted and made again, as
        its first try found it; empty where this is not known.
    :param dag: the DAG's id; ``None`` where an earlier release claimed: it is the one that the identity names.
    """

    id: str
    task: str
    run_id: str
    chain: str
    first_try: int = 1
    began: int | None = None
    life: str = ""
    dag: str | None = None

    def precedes(self, other: Start) -> bool:
        """Say whether another start is known to have begun later.

        :param other: start of the same writer.
        """
        if self.chain == other.chain:
            return self.first_try < other.first_try
        if self.run_id == other.run_id and self.task != other.task:
            return False  # Two tasks of one run, as after a mapped list grew: neither is a rerun of the other.
        return self.began is not None and other.began is not None and self.began < other.began

    @classmethod
    def from_json(cls, value: object) -> Start | None:
        """Read a claim's start; ``None`` where the claim does not say.

        :param value: as it stands in the claim.
        """
        if not isinstance(value, Mapping) or not all(isinstance(value.get(name), str) for name in _NAMES):
            return None
        known = {field.name: value[field.name] for field in attrs.fields(cls) if field.name in value}
        return cls(**known)


_NAMES = ("id", "task", "run_id", "chain")


@attrs.frozen
class Claim:
    """Who has begun a generation of a writer.

    :param generation: the generation that was begun.
    :param task: what people call the task that began it; empty where the claim cannot be read.
    :param task_start: of that task; ``None`` where the claim does not say.
    """

    generation: int
    task: str
    task_start: Start | None


_Who = TypeVar("_Who", bound=Identity)


@attrs.frozen
class Turn(Generic[_Who]):
    """A writer's turn at the table: its generation, and what it found there.

    :param identity: of the writer.
    :param generation: the number of the deliberate run; a retry keeps it.
    :param snapshot: the newest of the table; ``None`` where there is no table.
    :param directory: of the writer, as one listing shows it.
    """

    identity: _Who
    generation: int
    snapshot: Snapshot | None = attrs.field(repr=False)
    directory: WriterDirectory = attrs.field(repr=False)

    @classmethod
    def of(cls, log: DeltaLog, identity: _Who, generation: int) -> Turn[_Who]:
        """Look at the table, and then at the writer's directory."""
        # In this order: whatever stands in the table was claimed before, so the listing shows its claim.
        snapshot = log.snapshot_or_none()
        return cls(identity, generation, snapshot, WriterDirectory.read(log.store, identity.directory))

    def anew(self, log: DeltaLog) -> Turn[_Who]:
        """Look again, for work that begins only now.

        :raises ZombieWriterError: a newer generation has claimed the key.
        """
        return self.of(log, self.identity, self.generation)._checked()

    def _checked(self) -> Turn[_Who]:
        newest = self.directory.generation
        if newest > self.generation:
            raise ZombieWriterError(
                f"Writer {self.identity.key!r} has been rerun since (generation {newest}, this attempt is of "
                f"{self.generation}). Nothing was staged; the newer one carries on."
            )
        return self


def begin(
    log: DeltaLog,
    identity: _Who,
    task_start: Start,
    *,
    prove: bool = False,
    is_rival: Callable[[Start], bool] = lambda _: True,
) -> Turn[_Who]:
    """Claim a writer's key for a start, and return the turn: of a new generation, or of the one that it began before.

    :param log: of the table, which need not be there yet.
    :param identity: of the writer.
    :param task_start: that the attempt belongs to.
    :param prove: whether to prove, when a claim is made, that the store's create-only put is safe.
    :param is_rival: called with the newest claim's start where another task of the same run made that claim; says
        whether that task still has the key. A task loses its key where a mapped list changed and all of its tasks were
        cleared. Default: it still has the key.
    :returns: the turn, with the table as it was after the claim, and the directory as it was before.
    :raises UnsafeStoreError: the store's create-only put overwrites what is there.
    :raises DuplicateWriterError: another task of the run has the key.
    :raises ZombieWriterError: a later start has claimed the key, or another run has taken over the writer's files.
    """
    while True:
        turn = Turn.of(log, identity, 0)
        snapshot = turn.snapshot
        # A full VACUUM by deltalake may have deleted the claims. The txn in the table is still there.
        stored = snapshot.txns.get(identity.app_id, 0) if snapshot is not None else 0
        check_not_retired(identity, stored, log.table)
        found = _claims_in(log.store, turn.directory)
        newest = found[-1] if found else None
        if newest is not None:
            if newest.task_start is not None and newest.task_start.id == task_start.id:
                return attrs.evolve(turn, generation=newest.generation)._checked()
            _check_turn(identity, task_start, newest, found, is_rival)
        # The claims count, not the notes: a listing may show a note of a generation, and not the claim put before it.
        turn = attrs.evolve(turn, generation=max(newest.generation if newest is not None else 0, stored) + 1)
        try:
            _put(log, identity, turn.generation, task_start, prove)
        except ObjectExistsError:
            continue  # Another start was first, or our own put succeeded and its answer was lost: look again.
        # What landed before the claim is the ground of this generation, and its load begins after that.
        return attrs.evolve(turn, snapshot=log.snapshot_or_none())._checked()


def _check_turn(
    identity: Identity,
    task_start: Start,
    newest: Claim,
    found: Iterable[Claim],
    is_rival: Callable[[Start], bool],
) -> None:
    """Refuse the second of two tasks with one key, and a zombie, which a later start has followed.

    :param newest: the newest claim, which is of another start.
    """
    last = newest.task_start
    if last is not None and last.run_id == task_start.run_id and last.task != task_start.task and is_rival(last):
        raise DuplicateWriterError(
            f"Two writers of this run have the key {identity.key!r}: {last.task} and {task_start.task}. Give each its "
            "own `writer`. This one staged nothing; the other carries on."
        )
    followed = any(claim.task_start is not None and claim.task_start.id == task_start.id for claim in found)
    if followed or (last is not None and task_start.precedes(last)):
        by = f" by {last.task} of the run {last.run_id}" if last is not None else ""
        raise ZombieWriterError(
            f"{identity.key!r} has been rerun since{by} (generation {newest.generation}), so this attempt of "
            f"{task_start.task} is out of date. Nothing was staged; the newer one carries on."
        )


def claims(store: Store, identity: Identity) -> list[Claim]:
    """Return the claims of a writer, the newest last."""
    return _claims_in(store, WriterDirectory.read(store, identity.directory))


def _claims_in(store: Store, directory: WriterDirectory) -> list[Claim]:
    return [_read(store, path, generation) for generation, path in sorted(directory.claims.items())]


def generation_of(store: Store, identity: Identity, task_start: str) -> int | None:
    """Return the generation that a start began, or ``None`` where the start has no claim.

    :param task_start: its id.
    """
    found = (
        claim for claim in claims(store, identity) if claim.task_start is not None and claim.task_start.id == task_start
    )
    return next((claim.generation for claim in found), None)


def start_of(store: Store, identity: Identity, generation: int) -> Start | None:
    """Return the start that began a generation of a writer, or ``None`` where its claim is gone or does not say."""
    return _read(store, claim_path(identity.directory, generation), generation).task_start


def check_not_retired(identity: Identity, stored: int | None, table: str) -> None:
    """Refuse a writer whose files another run has taken over (protocol: retired).

    :param stored: the version of its ``txn``, ``None`` for none.
    :param table: what messages call the table.
    :raises ZombieWriterError: another run has.
    """
    if stored == RETIRED:
        raise retired(identity, table)


def retired(identity: Identity, table: str) -> ZombieWriterError:
    """Return what is raised for a writer whose files another run has taken over (protocol: retired).

    :param table: what messages call the table.
    """
    return ZombieWriterError(
        f"The files of writer {identity.key!r} were taken over by another run, which loads them into {table}. From now "
        "on nothing of this writer is published: clear the plan of this run, or leave the run as it is."
    )


def claimant(store: Store, path: str) -> WriterIdentity | None:
    """Return the writer whose claim lies at a path, or ``None`` where there is none.

    :param path: of the claim, relative to the table.
    :raises BufferInvalidError: the claim is damaged, so its writer is not known.
    """
    try:
        app_id = json_at(store, path).get("app_id")
    except ObjectNotFoundError:
        return None
    writer = WriterIdentity.from_app_id(app_id) if isinstance(app_id, str) else None
    if writer is None:
        raise BufferInvalidError(
            f"The claim {path} is damaged, so nobody knows which writer it is of. Nothing was changed. If no writer of "
            "that directory is at work, delete the file; else clear the writer, which claims its key anew."
        )
    return writer


def _put(log: DeltaLog, identity: Identity, generation: int, task_start: Start, prove: bool) -> None:
    """Put a claim.

    :param prove: whether to prove that the store refuses to put another one over it.
    """
    path = claim_path(identity.directory, generation)
    # `deed` is the name that it has in the claims on disk.
    claimed = {"task": task_start.task, "app_id": identity.app_id, "deed": attrs.asdict(task_start)}
    log.store.create(path, json.dumps(claimed).encode())
    if prove:
        prove_create_only(log.store, path, json.dumps({**claimed, "again": True}).encode(), log.table)


def _read(store: Store, path: str, generation: int) -> Claim:
    """Read a claim. A damaged claim still counts by its number, but its task and its start are not known."""
    try:
        said = json_at(store, path)
    except ObjectNotFoundError:
        return Claim(generation, "", None)
    if not said:
        logger.warning("The claim %s cannot be read; its number counts all the same", path)
    task = said.get("task")
    return Claim(generation, task if isinstance(task, str) else "", Start.from_json(said.get("deed")))
