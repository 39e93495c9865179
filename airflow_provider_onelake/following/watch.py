"""Waits for a commit of a table, or for a state of it; knows nothing of Airflow.

To wait for a commit, the log is read forward: every commit in order, none skipped. To wait for a state (how many rows a
table has, how fresh they are), its newest version is looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import attrs

from airflow_provider_onelake.buffers.claims import retired
from airflow_provider_onelake.buffers.identity import RETIRED, WriterIdentity
from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    LogGapError,
    MissingStatisticsError,
    OneLakeError,
)
from airflow_provider_onelake.log.actions import Add, row_count

if TYPE_CHECKING:
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import PartitionPredicate
    from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)

LIST_EVERY = 20
"""After this many polls the log is listed, to tell "not committed yet" from "gone" (protocol: log gap)."""

# An event is a row of Airflow's database, and another engine's commit may say anything at any length.
_MOST = 50
_LONGEST_TEXT = 1_000
# Seconds: a longer time before now is no date.
_LONGEST = 1000 * 365 * 86400
_ROWS = "rows"


@attrs.frozen
class Awaited:
    """What a sensor waits for: exactly one of these, except that ``partition`` may accompany ``rows_at_least``.

    :param writers: wait until the table has these generations, or says that a policy set them aside, by ``txn`` id.
    :param version: wait until the table has this version, at least 0.
    :param partition: wait for a commit that adds rows where this predicate on partition columns holds.
    :param operation: wait for a commit of this operation, or of one of these, as the log spells them: ``WRITE``,
        ``OPTIMIZE``, ….
    :param rows_at_least: wait until the table, or its partitions where ``partition`` holds, has so many rows.
    :param fresher_than: wait until rows were changed not longer ago than so many seconds, above 0.
    :raises InvalidWriteError: none or more than one is given, or what is given can never be met, or always is.
    """

    writers: Mapping[str, int] | None = None
    version: int | None = None
    partition: str | None = None
    operation: str | Collection[str] | None = None
    rows_at_least: int | None = None
    fresher_than: float | None = None

    def __attrs_post_init__(self) -> None:
        given = {name: value for name, value in attrs.asdict(self).items() if value is not None}
        check_one_thing(given)
        for name, value in given.items():
            check_awaited(name, value)

    @property
    def is_a_commit(self) -> bool:
        """Whether a commit is awaited that is still to come, and not what the table has."""
        return self.operation is not None or (self.partition is not None and self.rows_at_least is None)


def check_one_thing(given: Collection[str]) -> None:
    """Refuse to wait for nothing, or for several things.

    :param given: the names of the parameters of :class:`Awaited` that are given.
    :raises InvalidWriteError: they name no thing to wait for, or several.
    """
    things = set(given) - ({"partition"} if "rows_at_least" in given else set())
    if len(things) != 1:
        raise InvalidWriteError(
            f"A sensor waits for one thing, of {', '.join(field.name for field in attrs.fields(Awaited))} (partition "
            f"also says where rows_at_least counts); given: {', '.join(given) or 'none'}."
        )


def check_awaited(name: str, value: object) -> None:
    """Refuse to wait for what never comes, or is there in any case, as far as it is known without the table.

    :param name: of a parameter of :class:`Awaited`.
    :param value: of the parameter.
    :raises InvalidWriteError: the message says what is taken.
    """
    if name in ("version", "rows_at_least"):
        number = not isinstance(value, bool) and isinstance(value, int) and value >= 0
        wanted = "" if number else "a whole number is wanted, at least 0"
    elif name == "fresher_than":
        period = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _LONGEST
        wanted = "" if period else "a timedelta, or a number of seconds, is wanted, above 0"
    elif name == "partition":
        wanted = "" if isinstance(value, str) else "a predicate on partition columns is wanted, as a text"
    elif name == "operation":
        names = [value] if isinstance(value, str) else value
        named = isinstance(names, Collection) and not isinstance(names, Mapping) and len(names) > 0
        named = named and all(isinstance(one, str) and one.strip() for one in cast("Collection[object]", names))
        wanted = "" if named else "an operation as the log spells it, such as 'WRITE', or a list of such is wanted"
    else:
        return
    if wanted:
        raise InvalidWriteError(f"{name}={value!r}: {wanted}. The sensor would wait for nothing, or for ever.")


def watch_for(log: DeltaLog, awaited: Awaited, after: int | None = None, digest: str | None = None) -> LogWatch:
    """Return what waits for one thing.

    :param log: the table's log; the table need not exist yet.
    :param awaited: what ends the wait.
    :param after: the last version already seen; ``None`` for the present version.
    :param digest: of that version's log entry; ``None`` if unknown.
    """
    if awaited.rows_at_least is not None:
        return StateWatch(log, awaited, after, RowsHeld(log, awaited.rows_at_least, awaited.partition).look)
    if awaited.fresher_than is not None:
        return StateWatch(log, awaited, after, Freshness(log, timedelta(seconds=awaited.fresher_than)).look)
    return LogWatch(log, awaited, after, digest)


class LogWatch:
    """Reads a log forward until a commit ends the wait.

    The cost is that of the new commits, because a poll asks for the entry of the next version. If the table was made
    again, its log is read from its beginning.

    :param log: the table's log; the table need not exist yet.
    :param awaited: what ends the wait.
    :param after: the last version already seen; ``None`` for the present version. Awaited writers and an awaited
        version that are in the table already count in any case.
    :param digest: of that version's log entry; ``None`` if unknown.
    """

    def __init__(self, log: DeltaLog, awaited: Awaited, after: int | None = None, digest: str | None = None) -> None:
        self.log = log
        self.awaited = awaited
        self.cursor = -1 if after is None else after
        self.digest = digest
        """Of the log entry of the last version seen: a table that was made again has another one there."""
        self.met: dict[str, Any] | None = None
        self._started = after is not None and not self._awaits_what_stays
        self.pending: dict[str, int] = {}
        """The writers that are not in the table yet."""
        self._idle = LIST_EVERY - 1
        self._looked = False
        self._partition_unread = awaited.partition is not None
        """Whether nobody has said yet that the predicate is one on the table's partition columns."""

    def poll(self) -> list[Commit]:
        """Read the new commits.

        :returns: the new commits, in order, up to the one that ends the wait.
        :raises LogGapError: a version is missing while a later one, or a checkpoint, exists. For awaited writers and an
            awaited version, a checkpoint is enough.
        :raises CorruptLogError: an entry cannot be read.
        :raises InvalidWriteError: ``partition`` is no predicate on the partition columns of the table.
        :raises ZombieWriterError: another run has taken over the files of a writer that is waited for.
        :raises UnsupportedFeatureError: the table has a feature of readers that is not known here.
        """
        if not self._started:
            self._start()
        if not self._looked:
            self._looked = True
            snapshot = self.log.snapshot_or_none() if self._partition_unread else None
            if snapshot is not None:
                self._predicate(snapshot)
            # Who has seen a version before has asked whether the table can be read.
            elif self.digest is None:
                self.log.check_readable()
        if self.met is not None:
            return []
        commits: list[Commit] = []
        commit = self.log.commit(self.cursor + 1)
        if (commit is not None or self._idle + 1 >= LIST_EVERY) and self._is_another():
            self._begin_anew()
            commit = self.log.commit(self.cursor + 1) if self.met is None else None
        while commit is not None:
            self._take(commit)
            commits.append(commit)
            commit = self.log.commit(self.cursor + 1) if self.met is None else None
        self._idle = 0 if commits else self._idle + 1
        if self._idle >= LIST_EVERY:
            self._idle = 0
            for commit in self._commits_since_cursor():
                if self.met is None:
                    self._take(commit)
                    commits.append(commit)
        return commits

    def _commits_since_cursor(self) -> list[Commit]:
        try:
            return self.log.commits_since(self.cursor)
        except LogGapError:
            if not self._awaits_what_stays:
                raise
            # The log was cleaned up behind a checkpoint, or is damaged. The newest version tells which of both, and
            # says what the commits that are gone have left.
            self.log = self.log.anew()
            self._start()
            return []

    @property
    def _awaits_what_stays(self) -> bool:
        """Whether the newest version tells what is awaited, whichever commit brought it."""
        return self.awaited.writers is not None or self.awaited.version is not None

    def _is_another(self) -> bool:
        """Say whether the table was dropped and made again since the last version that was seen."""
        if self.cursor < 0:
            return False
        log = self.log.anew()
        found = log.digest(self.cursor)
        if self.digest is None:
            self.digest = found
        if found is not None:
            return found != self.digest
        if self.digest is None:
            # Nobody has seen that version: it was cleaned up before, or it is yet to come.
            return False
        # The table may be away, and come back; or the entry was cleaned up. But no table loses its newest versions.
        return 0 <= log.newest_listed() < self.cursor

    def _begin_anew(self) -> None:
        logger.info("%s was made again since version %d was seen, so it is followed anew.", self.log.table, self.cursor)
        self.log = self.log.anew()
        self.cursor, self.digest = -1, None
        if self._awaits_what_stays:
            self._start()
        else:
            self.cursor = next(iter(self.log.versions_after(-1)), 0) - 1

    def _start(self) -> None:
        self._started = True
        self.pending = dict(self.awaited.writers or {})
        snapshot = self.log.snapshot_or_none()
        if snapshot is None:
            return
        self.cursor, self.digest = snapshot.version, None
        if self.awaited.writers is not None:
            self._strike_off(snapshot.txns)
        version = self.awaited.version
        if (version is not None and snapshot.version >= version) or (
            self.awaited.writers is not None and not self.pending
        ):
            self.met = {"version": snapshot.version if version is None else version}

    def _take(self, commit: Commit) -> None:
        if commit.protocol is not None:
            self.log.check_readable()
        self.cursor, self.digest = commit.version, commit.digest
        if self._ends(commit):
            self.met = describe(commit)

    def _ends(self, commit: Commit) -> bool:
        awaited = self.awaited
        if awaited.writers is not None:
            self._strike_off(commit.txns)
            return not self.pending
        if awaited.version is not None:
            return commit.version >= awaited.version
        if awaited.operation is not None:
            wanted = awaited.operation
            return commit.operation == wanted if isinstance(wanted, str) else commit.operation in wanted
        return awaited.partition is not None and self._adds_rows(commit)

    def _strike_off(self, txns: Mapping[str, int]) -> None:
        """Wait no longer for the writers that are in the table.

        :param txns: the generations of writers that are there, by application id.
        :raises ZombieWriterError: the rows of a writer never come.
        """
        for app_id in self.pending.keys() & txns.keys():
            wanted, stored = self.pending[app_id], txns[app_id]
            if stored == RETIRED != wanted and (identity := WriterIdentity.from_app_id(app_id)) is not None:
                raise retired(identity, self.log.table)
            if wanted <= stored:
                del self.pending[app_id]

    def _adds_rows(self, commit: Commit) -> bool:
        adds = [add for add in commit.adds if add.get("dataChange", True)]
        # The first commit of a table that was not there before tells whether the predicate is right.
        if not adds and not self._partition_unread:
            return False
        snapshot = self.log.snapshot()
        predicate, split = self._predicate(snapshot), snapshot.partitioning
        # A partition for which the predicate cannot be decided does not end the wait, nor one of a commit from before
        # the table got its present partition columns.
        return any(
            split.named_by(add) and predicate.judge(split.partition(add["partitionValues"])) is True for add in adds
        )

    def _predicate(self, snapshot: Snapshot) -> PartitionPredicate:
        from airflow_provider_onelake.log.partitions import PartitionPredicate

        predicate = PartitionPredicate.parse(self.awaited.partition or "", snapshot.partitioning)
        self._partition_unread = False
        return predicate


class StateWatch(LogWatch):
    """Looks at a table's newest version until its state ends the wait.

    :param look: returns what ended the wait; ``None`` while nothing has.
    """

    def __init__(
        self, log: DeltaLog, awaited: Awaited, after: int | None, look: Callable[[], dict[str, Any] | None]
    ) -> None:
        super().__init__(log, awaited, after)
        self._look = look

    def poll(self) -> list[Commit]:
        """Look at the newest version.

        :returns: no commits, because no single one ends the wait.
        :raises MissingStatisticsError: a number of rows is awaited, and the files do not say how many they have.
        """
        self.met = self._look()
        return []


@attrs.define
class RowsHeld:
    """Whether a table, or its partitions where a predicate holds, has at least so many rows.

    Rows are counted by the files' statistics, minus the rows that deletion vectors mark, so no data file is read. The
    live files are listed once for each version, and only the row count of each is kept meanwhile.

    :param at_least: the number of rows.
    :param partition: a predicate on partition columns; ``None`` for the whole table.
    """

    log: DeltaLog
    at_least: int
    partition: str | None
    _short: Snapshot | None = None

    def look(self) -> dict[str, Any] | None:
        """Count the rows of the newest version.

        :returns: the version and its rows if there are enough; else ``None``.
        :raises MissingStatisticsError: some files do not say how many rows they have, and the others have too few.
        :raises InvalidWriteError: the predicate is no predicate on partition columns.
        """
        snapshot = self.log.snapshot_or_none()
        # The log returns the same object until there is another version.
        if snapshot is None or snapshot is self._short:
            return None
        files = self.log.live_files(self._wanted(snapshot), snapshot.version, _rows)
        counts = [cast("int | None", file.get(_ROWS)) for file in files]
        rows = sum(count for count in counts if count is not None)
        if rows >= self.at_least:
            return {"version": snapshot.version, "rows": rows}
        silent = counts.count(None)
        if silent:
            where = self.log.table if self.partition is None else f"{self.log.table} where {self.partition}"
            raise MissingStatisticsError(
                f"{silent} of {len(counts)} files of {where} in version {snapshot.version} do not say how many "
                f"rows they have, and the others have {rows}, so nobody knows whether there are {self.at_least}. "
                "Nothing was changed. Compute statistics (ANALYZE TABLE … COMPUTE DELTA STATISTICS), or rewrite the "
                "files; delta.dataSkippingNumIndexedCols=0 is what leaves them out."
            )
        self._short = snapshot
        return None

    def _wanted(self, snapshot: Snapshot) -> Callable[[Add], bool]:
        if self.partition is None:
            return lambda add: True
        from airflow_provider_onelake.log.partitions import InPartitions, PartitionPredicate

        split = snapshot.partitioning
        predicate = PartitionPredicate.parse(self.partition, split)
        return InPartitions(lambda values: predicate.judge(split.partition(values)) is True)


@attrs.frozen
class Freshness:
    """Whether rows of a table were changed within a period before now.

    Commits that change no rows, such as those of a compaction or a VACUUM, do not make a table fresher. A commit's time
    is its in-commit timestamp, else what its ``commitInfo`` says, else the store's time of its log entry.

    :param within: the length of the period.
    """

    log: DeltaLog
    within: timedelta

    def look(self) -> dict[str, Any] | None:
        """Look at the newest commits.

        :returns: the version that made the table fresh, and its time; ``None`` if the table is not fresh.
        """
        snapshot = self.log.snapshot_or_none()
        oldest = self.log.clock.now() - self.within
        for version in range(-1 if snapshot is None else snapshot.version, -1, -1):
            # The log keeps the newest commits, so nothing is read twice.
            commit = self.log.commit(version)
            if commit is None or commit.time is None:
                break
            if commit.time < oldest:
                # The clock of its engine may be behind. In-commit timestamps and the store's times only grow, so stop
                # there: all versions before this one are older still, or were cleaned up too.
                if commit.in_commit_timestamp is not None or commit.landed is None or commit.landed < oldest:
                    break
            elif commit.data_change:
                return {"version": version, "time": commit.time.isoformat()}
        return None


def _rows(add: Add) -> Add:
    return cast("Add", {_ROWS: row_count(add)})


# The keys of an event, with the value of each where the commit does not tell it (any rows in any partition may have
# changed then), and how a commit tells it.
_TOLD: Mapping[str, tuple[Any, Callable[[Commit], Any]]] = {
    "time": (None, lambda commit: commit.time.isoformat() if commit.time else None),
    "operation": ("", lambda commit: commit.operation),
    "data_change": (True, lambda commit: commit.data_change),
    "rows_added": (None, lambda commit: commit.rows_added),
    "rows_removed": (None, lambda commit: commit.rows_removed),
    "partitions_added": ([], lambda commit: commit.added_partitions),
    "partitions_removed": ([], lambda commit: commit.removed_partitions),
    "partitions_complete": (
        False,
        lambda commit: max(len(commit.added_partitions), len(commit.removed_partitions)) <= _MOST,
    ),
    "txns": ({}, lambda commit: commit.txns),
    "writers": ([], lambda commit: [writer.writer for writer in commit.writers]),
    "finished": (None, lambda commit: commit.finished.isoformat() if commit.finished else None),
    "user_metadata": (None, lambda commit: commit.user_metadata),
}


def describe(commit: Commit, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a commit as an event's payload carries it.

    :param names: the partition columns' names by physical name, for those whose physical name differs.
    :returns: plain JSON with the version and the keys of ``_TOLD``. If there are many partitions, it has only the first
        ones, and ``partitions_complete`` is false. Any text has at most 1,000 characters, and any other list at most 50
        entries; ``cut`` says whether something was left out for that.
    """
    told = describe_unreadable(commit.version)
    for name, (_, tell) in _TOLD.items():
        try:
            told[name] = tell(commit)
        except OneLakeError:
            raise
        except Exception:
            # Another engine may have written something unforeseen. The watcher must go on, so report what is known.
            logger.exception("Version %d does not say its %s; it is told of without that.", commit.version, name)
    for name in ("partitions_added", "partitions_removed"):
        pairs = sorted(told[name], key=str)[:_MOST]
        told[name] = [{(names or {}).get(column, column): value for column, value in pair} for pair in pairs]
    short = {name: _shortened(value) for name, value in told.items()}
    return {**short, "cut": short != told}


def _shortened(value: Any, depth: int = 2) -> Any:
    """Return plain JSON with short texts and short lists."""
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    if isinstance(value, dict | list) and not depth:
        # Only what is not as the protocol says is as deep as this.
        return str(value)[:_LONGEST_TEXT]
    if isinstance(value, dict):
        first = islice(value.items(), _MOST)
        return {_shortened(key): _shortened(each, depth - 1) for key, each in first}
    return [_shortened(each, depth - 1) for each in value[:_MOST]] if isinstance(value, list) else value


def describe_unreadable(version: int) -> dict[str, Any]:
    """Return the event's payload for a commit whose entry cannot be read: only its version is known."""
    return {"version": version, **{name: unknown for name, (unknown, _) in _TOLD.items()}, "cut": False}
