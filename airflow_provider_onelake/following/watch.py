"""Following a table's log: every commit, in order, none skipped. Knows nothing of Airflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError, OneLakeError
from airflow_provider_onelake.following.filters import predicate_on
from airflow_provider_onelake.following.state import Freshness, RowsHeld

if TYPE_CHECKING:
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import PartitionPredicate

logger = logging.getLogger(__name__)

# How many polls may find nothing before the log is listed, to tell "not yet" from "gone" (protocol: log gap).
_LIST_EVERY = 20
_MOST_PARTITIONS = 50
# What an event says where the commit does not: its rows may have changed, anywhere.
_UNKNOWN: Mapping[str, Any] = {
    "version": -1,
    "time": None,
    "operation": "",
    "data_change": True,
    "rows_added": None,
    "rows_removed": None,
    "partitions_added": [],
    "partitions_removed": [],
    "partitions_complete": False,
    "txns": {},
    "writers": [],
    "finished": None,
    "user_metadata": None,
}


@attrs.frozen
class Awaited:
    """What is waited for: one of these, of which ``rows_at_least`` may name a partition.

    :param writers: ``txn`` ids with the generation that must be in the table.
    :param version: of the table.
    :param partition: a predicate on partition columns; a commit that adds rows to such a partition.
    :param operation: as the log spells it: ``WRITE``, ``OPTIMIZE``, ….
    :param rows_at_least: so many rows in the table, or where ``partition`` holds.
    :param fresher_than: rows changed not longer ago than so many seconds.
    :raises InvalidWriteError: more than one is given, or none.
    """

    writers: Mapping[str, int] | None = None
    version: int | None = None
    partition: str | None = None
    operation: str | None = None
    rows_at_least: int | None = None
    fresher_than: float | None = None

    def __attrs_post_init__(self) -> None:
        given = [name for name, value in attrs.asdict(self).items() if value is not None]
        check_one_thing(given)


def check_one_thing(given: Collection[str]) -> None:
    """Refuse to wait for nothing, or for several things.

    :param given: names of the parameters that say what is waited for.
    :raises InvalidWriteError: they say none, or several.
    """
    things = set(given) - ({"partition"} if "rows_at_least" in given else set())
    if len(things) != 1:
        raise InvalidWriteError(
            f"A sensor waits for one thing, of {', '.join(field.name for field in attrs.fields(Awaited))} (partition "
            f"also says where rows_at_least counts); given: {', '.join(given) or 'none'}."
        )


class LogWatch:
    """Reads a log forward until what is awaited has happened.

    Its cost is that of the new commits: it asks for the next version's file.

    :param log: of the table; there need not be a table yet.
    :param awaited: what ends the wait.
    :param after: the last version already seen; ``None`` for the version of now. Writers and versions that are in the
        table already count whatever this says.
    """

    def __init__(self, log: DeltaLog, awaited: Awaited, after: int | None = None) -> None:
        self.log = log
        self.awaited = awaited
        self.cursor = -1 if after is None else after
        self.met: dict[str, Any] | None = None
        self._started = after is not None and awaited.writers is None and awaited.version is None
        self._pending = dict(awaited.writers or {})
        self._idle = _LIST_EVERY - 1
        self._predicates: dict[Any, PartitionPredicate] = {}
        self._state: RowsHeld | Freshness | None = None
        if awaited.rows_at_least is not None:
            self._state = RowsHeld(log, awaited.rows_at_least, awaited.partition)
        elif awaited.fresher_than is not None:
            self._state = Freshness(log, timedelta(seconds=awaited.fresher_than))

    @property
    def pending(self) -> dict[str, int]:
        """The writers that are not in the table yet."""
        return dict(self._pending)

    def poll(self) -> list[Commit]:
        """Read on.

        :returns: the new commits, in order, up to the one that ends the wait; none where it is rows or their age that
            are waited for.
        :raises LogGapError: a version is missing while a later one, or a checkpoint, exists.
        :raises CorruptLogError: an entry cannot be read.
        :raises MissingStatisticsError: rows are waited for, and the files do not say how many they have.
        """
        if self._state is not None:
            self.met = self._state.look()
            return []
        if not self._started:
            self._start()
        commits: list[Commit] = []
        while self.met is None and (commit := self.log.commit(self.cursor + 1)) is not None:
            self._take(commit)
            commits.append(commit)
        self._idle = 0 if commits else self._idle + 1
        if self._idle >= _LIST_EVERY:
            self._idle = 0
            for commit in self.log.commits_since(self.cursor):
                if self.met is None:
                    self._take(commit)
                    commits.append(commit)
        return commits

    def _start(self) -> None:
        self._started = True
        snapshot = self.log.snapshot()
        if snapshot is None:
            return
        self.cursor = snapshot.version
        if self.awaited.writers is not None:
            self._pending = {
                app_id: generation
                for app_id, generation in self._pending.items()
                if snapshot.txns.get(app_id, 0) < generation
            }
        version = self.awaited.version
        if (version is not None and snapshot.version >= version) or (
            self.awaited.writers is not None and not self._pending
        ):
            self.met = {"version": snapshot.version if version is None else version}

    def _take(self, commit: Commit) -> None:
        self.cursor = commit.version
        if self._ends(commit):
            self.met = describe(commit)

    def _ends(self, commit: Commit) -> bool:
        awaited = self.awaited
        if awaited.writers is not None:
            for app_id, generation in commit.txns.items():
                if self._pending.get(app_id, generation + 1) <= generation:
                    del self._pending[app_id]
            return not self._pending
        if awaited.version is not None:
            return commit.version >= awaited.version
        if awaited.operation is not None:
            return commit.operation == awaited.operation
        return awaited.partition is not None and self._adds_rows(awaited.partition, commit)

    def _adds_rows(self, text: str, commit: Commit) -> bool:
        adds = [add for add in commit.adds if add.get("dataChange", True)]
        if not adds:
            return False
        snapshot = self.log.snapshot()
        assert snapshot is not None
        split = snapshot.partitioning
        predicate = predicate_on(text, split, self._predicates)
        # A partition of which nobody knows whether it is the one is not waited for.
        return any(predicate.judge(split.partition(add["partitionValues"])) is True for add in adds)


def describe(commit: Commit, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a commit as an event's payload carries it.

    :param commit: of the table.
    :param names: the partition columns' names by what the log calls them, where that is something else.
    :returns: plain JSON; of the partitions the first ones only, and then ``partitions_complete`` is false.
    """

    def partitions(pairs: frozenset[tuple[tuple[str, str | None], ...]]) -> list[dict[str, str | None]]:
        named = [{(names or {}).get(name, name): value for name, value in pair} for pair in sorted(pairs, key=str)]
        return named[:_MOST_PARTITIONS]

    told: dict[str, Any] = {**_UNKNOWN, "version": commit.version}
    known: Mapping[str, Callable[[], Any]] = {
        "time": lambda: commit.time.isoformat() if commit.time else None,
        "operation": lambda: commit.operation,
        "data_change": lambda: commit.data_change,
        "rows_added": lambda: commit.rows_added,
        "rows_removed": lambda: commit.rows_removed,
        "partitions_added": lambda: partitions(commit.added_partitions),
        "partitions_removed": lambda: partitions(commit.removed_partitions),
        "partitions_complete": lambda: (
            max(len(commit.added_partitions), len(commit.removed_partitions)) <= _MOST_PARTITIONS
        ),
        "txns": lambda: commit.txns,
        "writers": lambda: [writer.writer for writer in commit.writers],
        "finished": lambda: commit.finished.isoformat() if commit.finished else None,
        "user_metadata": lambda: commit.user_metadata,
    }
    for name, tell in known.items():
        try:
            told[name] = tell()
        except OneLakeError:
            raise
        except Exception:
            # A watcher must not end for what another engine wrote that nobody thought of: what is known is told.
            logger.exception("Version %d does not say its %s; it is told of without that.", commit.version, name)
    return told


def describe_unreadable(version: int) -> dict[str, Any]:
    """Return a commit whose entry cannot be read, as an event's payload carries it: no more than its version.

    :param version: of the table.
    """
    return {**_UNKNOWN, "version": version}
