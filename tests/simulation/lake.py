"""A table in a store, in a world of bad luck, and what everybody at it needs: writers, statements, compactions, others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import quote, unquote

import attrs

from airflow_provider_onelake.commit.loop import Backoff
from airflow_provider_onelake.exceptions import OneLakeError, TerminalError, TransientError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.replay import LiveFiles
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.writes.publish import Committer
from tests.simulation.store import MemoryStore, parsed
from tests.simulation.table import (
    Row,
    TablePlan,
    data_columns,
    dump_rows,
    hidden_rows,
    high_water_mark,
    load_rows,
    partition_key,
)
from tests.simulation.world import ViolationError, World

if TYPE_CHECKING:
    from tests.simulation.compactor import Compacted
    from tests.simulation.foreign import ForeignWrite
    from tests.simulation.scenario import Column, ForeignPlan

T = TypeVar("T")

FELL_OVER = "leaves production code"
"""What a violation says where production code fell over, which is no harm to a table yet."""


class Retried(Protocol):
    """A task that is retried.

    :param lost_heartbeat: how likely a try is given up while it runs on, as a zombie.
    """

    @property
    def tries(self) -> int: ...

    @property
    def lost_heartbeat(self) -> float: ...


@attrs.frozen
class Ended(Generic[T]):
    """How a try of a task ended.

    :param how: ``done``, ``retry`` or ``failed``, as Airflow would have it.
    """

    how: str
    said: T | None = None
    error: OneLakeError | None = None


class _Log(DeltaLog):
    """A log that is not dropped between two entries of one reading: what came of that, nobody could tell."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.store, "sim", lake.world)
        self._lake = lake

    def snapshot_or_none(self) -> Snapshot | None:
        with self._lake.uninterrupted():
            return super().snapshot_or_none()

    def live_files(self, wanted: Callable[[dict[str, Any]], bool], until: int | None = None) -> LiveFiles:
        with self._lake.uninterrupted():
            return super().live_files(wanted, until)


class Lake:
    """One table, and everybody who is at work on it.

    :param world: in which all of them are.
    :param coarse: whether its store tells times in whole seconds.
    :param column: that it is partitioned by.
    """

    def __init__(self, world: World, *, coarse: bool, column: Column, table: TablePlan) -> None:
        self.world = world
        self.store = MemoryStore(world, coarse=coarse)
        self.column, self.table = column, table
        self.compacted: list[Compacted] = []
        # What commits of others do to rows, by version, and how often the table was made again.
        self.foreign_writes: dict[int, ForeignWrite] = {}
        self.epoch = 0
        self.before_remake: Callable[[], None] = lambda: None
        # Numbers that no other column, and no other deletion vector, ever had.
        self.columns, self.vectors, self.changes = 100, 0, 0
        # Processes that read the log, or are about to commit.
        self.busy = 0
        self._files = 0

    @property
    def terms(self) -> Sequence[object]:
        """What a history tells of the table and of everybody at it, before its first step."""
        raise NotImplementedError

    def log(self) -> DeltaLog:
        """A log as a new process opens it."""
        return _Log(self)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def retry(self, plan: Retried, name: str, work: Callable[[], str], is_over: Callable[[], bool]) -> None:
        """Run a task until it ends well, has no try left or is cleared; one whose heartbeat is lost runs on as a zombie.

        :param work: of a try; it returns ``retry`` where the task is to be tried again.
        :param is_over: says whether the task was cleared, or its run deleted.
        """
        world, random = self.world, self.world.random
        for number in range(1, plan.tries + 1):
            if is_over():
                return
            ended: list[str] = []
            actor = world.spawn(f"{name} try {number}", lambda e=ended: e.append(work()))  # type: ignore[misc]
            if random.random() < plan.lost_heartbeat:
                world.sleep(10 ** random.uniform(-2, 1))
                if not actor.thread.dead:
                    world.counters["zombies"] += 1
                    world.note("zombie", name, f"try {number} runs on")
                    continue
            world.join([actor])
            if ended and ended[0] != "retry":
                return
            world.sleep(random.uniform(0, 1))

    def tried(self, work: Callable[[], T]) -> Ended[T]:
        """Do the work of one try.

        :raises ViolationError: an error leaves production code that says neither to retry nor to give up.
        """
        try:
            return Ended("done", said=work())
        except TransientError as error:
            return Ended("retry", error=error)
        except TerminalError as error:
            return Ended("failed", error=error)
        except ViolationError:
            raise
        except Exception as error:
            raise ViolationError(f"{type(error).__name__} {FELL_OVER}: {error}") from error

    def committer(self, log: DeltaLog) -> Committer:
        """Return who commits to the table for a task."""
        return Committer(log, self.world.random, Backoff(budget=120))

    def committing(self, work: Callable[[], T]) -> T:
        """Do what ends in a commit: nobody can tell a table that is made again between the last look at it and the put."""
        self.world.actor.began = self.world.steps
        with self.uninterrupted():
            return work()

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Keep the table from being made again meanwhile."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    # -- what engines put ----------------------------------------------------------------------------------------------

    def spread(self, plan: ForeignPlan) -> tuple[int, ...]:
        """Return the partition of each file that another engine adds."""
        return (plan.partition,)

    def new_rows(self, count: int) -> list[str]:
        """Return the names of rows that another engine adds."""
        return [f"{self.world.actor.name}/{number}" for number in range(count)]

    def changed_row(self, row: str) -> str:
        """Return what another engine's UPDATE, the newest of :attr:`changes`, makes of a row."""
        return f"{row.split('~')[0]}~{self.changes}"

    def statistics(self, rows: Sequence[Row], metadata: dict[str, Any]) -> dict[str, Any]:
        """Return what the log says of the rows of a file."""
        return {"numRecords": len(rows)}

    def put_append(self, buffer: str, parts: Iterable[tuple[int, Sequence[str]]]) -> list[dict[str, Any]]:
        """Put the files of an ordinary Spark append into a buffer, one by one, and return their ``add`` actions."""
        metadata = self.definition(buffer)["metaData"]
        columns, given = data_columns(metadata), 0
        adds = []
        for partition, rows in parts:
            spelling = self.column.spell(partition, self.world.random)
            named = [(row, columns) for row in rows]
            add = self.file(partition, named, prefix=f"{buffer}/", spelling=spelling, metadata=metadata)
            if self.table.row_tracking:
                add |= {"baseRowId": given, "defaultRowCommitVersion": 1}
            given += len(rows)
            adds.append(add)
        return adds

    def end_append(self, buffer: str, adds: Sequence[dict[str, Any]], record: dict[str, Any]) -> None:
        """Put version 1 of a buffer, by which Spark's append is done."""
        info = {"timestamp": 1, "operation": "WRITE", "isBlindAppend": True}
        info["userMetadata"] = json.dumps({"onelake": record})
        actions: list[dict[str, Any]] = [{"commitInfo": info}, *({"add": add} for add in adds)]
        if self.table.row_tracking:
            given = sum(json.loads(add["stats"])["numRecords"] for add in adds)
            actions.append({"domainMetadata": high_water_mark(given - 1)})
        self.store.create(f"{buffer}/{version_path(1)}", dump_actions(actions))

    def file(
        self,
        partition: int,
        rows: Sequence[Row],
        *,
        prefix: str,
        spelling: str | None,
        metadata: dict[str, Any],
        at_once: bool = False,
    ) -> dict[str, Any]:
        """Put a data file, and return its ``add``.

        :param prefix: of its path, which the ``add`` leaves out.
        :param at_once: whether nobody else moves meanwhile.
        """
        self._files += 1
        name = f"part={partition}/part-{self._files:05d} of é.parquet"
        data = dump_rows(rows)
        (self.store.put_at_once if at_once else self.store.put)(f"{prefix}{name}", data)
        return {
            "path": quote(name, safe="/=-._"),
            "partitionValues": {partition_key(metadata): spelling},
            "size": len(data),
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps(self.statistics(rows, metadata)),
            "tags": {"VORDER": "true"},
        }

    # -- what is there -------------------------------------------------------------------------------------------------

    def definition(self, path: str) -> dict[str, Any]:
        """Return version 0 of a buffer or a shadow, by kind of action; of ``add`` actions the last one."""
        stored = self.store.peek(f"{path}/{version_path(0)}")
        assert stored is not None
        return {kind: body for action in parsed(stored.data) for kind, body in action.items()}

    def hidden(self, add: dict[str, Any]) -> frozenset[int]:
        """Return the positions of a file's rows that its deletion vector hides."""
        return hidden_rows(self.store, add)

    def rows_of(self, add: dict[str, Any]) -> list[Row]:
        """Return the rows of a file, as a reader finds them."""
        stored = self.store.peek(unquote(add["path"]))
        if stored is None:
            raise ViolationError(f"the live file {add['path']} is gone")
        return load_rows(stored.data, self.hidden(add))
