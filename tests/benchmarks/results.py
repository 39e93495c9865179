"""What a run of the bench found: plain values that JSON keeps, and what they say together."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

import attrs

DELTA = "one Delta job"
PARQUET = "one Parquet job"
OURS = "this package"
AGAIN = "this package, table there"
APPENDS = "appends in one session"
SUBMITS = "`spark-submit` jobs that commit by themselves"
WAYS = (PARQUET, DELTA, OURS, AGAIN, APPENDS)
"""To load, in the order in which they are shown."""
DELTA_MERGE = "Delta's own MERGE"

_T = TypeVar("_T")


@attrs.frozen(kw_only=True)
class Machine:
    """Where and when a run was made.

    :param began: in UTC.
    :param full: whether it was run with ``FULL=1``.
    :param seconds: of the whole run.
    :param revision: of the package, by git.
    :param cores: that the run could use.
    :param processor: its name.
    :param gigabytes: of memory.
    :param system: the operating system.
    :param versions: of Python, Java and the packages that matter, by name.
    :param load_at_begin: the load average of a minute, before anything was started.
    :param load_at_end: the same when all was measured; it contains the bench's own load.
    :param others: the share of the processors' time that other processes used during the run.
    """

    began: str
    full: bool
    seconds: float
    revision: str
    cores: int
    processor: str
    gigabytes: float
    system: str
    versions: dict[str, str]
    load_at_begin: float
    load_at_end: float
    others: float


@attrs.frozen(kw_only=True)
class Load:
    """One load of all rows by one way.

    :param source: ``shared``, one file that no filter skips, or ``own``, a file a writer.
    :param writers: among which the rows are divided; the ways that write at once do not divide them.
    :param way: how it was done.
    :param round: in which it was measured, from 0.
    :param rows: of the source.
    :param seconds: from nothing to a table that can be read.
    :param jvm: CPU seconds of Spark's processes.
    :param tasks: CPU seconds of Spark's tasks among them.
    :param jobs: that Spark ran.
    :param client: CPU seconds of Python.
    :param data_files: that hold the rows.
    :param faults: what is wrong with the rows, or what failed.
    """

    source: str
    writers: int
    way: str
    round: int
    rows: int
    seconds: float
    jvm: float
    tasks: float
    jobs: int
    client: float
    data_files: int
    faults: list[str]


@attrs.frozen(kw_only=True)
class Race:
    """A load of all rows into a new table, from nothing: with the start of Spark.

    :param way: how it was done.
    :param writers: that ran at once, a partition each.
    :param rows: of the source.
    :param seconds: until the rows of all writers were in.
    :param jvm: CPU seconds of Spark's processes.
    :param failed: jobs that failed as another was faster, and ran again.
    :param faults: what is wrong with the rows, or what else failed.
    """

    way: str
    writers: int
    rows: int
    seconds: float
    jvm: float
    failed: int
    faults: list[str]


@attrs.frozen(kw_only=True)
class Commits:
    """Commits of several processes to one table.

    :param store: ``local disk`` or ``S3``.
    :param way: who commits.
    :param processes: that commit at the same time.
    :param commits: that they were to make.
    :param seconds: from the common start to the end of the last process.
    :param cpu: CPU seconds of all processes together, in that time.
    :param attempts: puts that were tried; ``None`` where this is not known.
    :param latencies: seconds of every commit, sorted.
    :param faults: commits that failed, and rows that are not there once.
    """

    store: str
    way: str
    processes: int
    commits: int
    seconds: float
    cpu: float
    attempts: int | None
    latencies: list[float] = attrs.field(repr=False)
    faults: list[str]

    @property
    def per_second(self) -> float:
        """Commits per second."""
        return self.commits / self.seconds

    def latency(self, share: float) -> float:
        """Return the seconds within which a share of the commits was made.

        :param share: 0.5 for the median.
        """
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))] if self.latencies else 0.0


@attrs.frozen(kw_only=True)
class Opening:
    """How long a table with a long log takes to be opened, and to be looked at again.

    :param versions: of the log.
    :param opens: seconds of every first look at it.
    :param pokes: seconds of every look of a sensor that found nothing new.
    :param listings: seconds of those looks that list the log; a sensor's every twentieth.
    :param deltalake: seconds of every opening by deltalake.
    :param faults: what was not found as it is.
    """

    versions: int
    opens: list[float]
    pokes: list[float]
    listings: list[float]
    deltalake: list[float]
    faults: list[str]


@attrs.frozen(kw_only=True)
class Publishing:
    """One commit to a table that has many files, in a process that has not seen the table before.

    :param files: live ones of the table.
    :param mode: ``append`` or ``overwrite_partitions``, of one partition of many.
    :param seconds: that it took, with the opening of the table.
    :param cpu: CPU seconds of the process, in that time.
    :param peak: bytes of memory that the process took in addition, at most.
    :param read: bytes that were read from the store.
    :param requests: to the store, without those of deltalake.
    :param removed: files that the commit replaced.
    :param faults: what the table does not hold afterwards as it should.
    """

    files: int
    mode: str
    seconds: float
    cpu: float
    peak: int
    read: int
    requests: int
    removed: int
    faults: list[str]


@attrs.frozen(kw_only=True)
class Task:
    """One task in a new process.

    :param kind: ``empty``, ``writer`` or ``preloaded writer``.
    :param seconds: from its begin to its end.
    :param cpu: CPU seconds of its process, in that time.
    :param jvm: CPU seconds of the Spark server, in that time.
    :param faults: what it did not do.
    """

    kind: str
    seconds: float
    cpu: float
    jvm: float
    faults: list[str]


@attrs.frozen(kw_only=True)
class Merging:
    """One MERGE into a copy of the same table.

    :param keys: where the keys of the source lie in the table.
    :param way: how it was done.
    :param round: in which it was measured, from 0.
    :param rows: of the table, and ``merged`` of the source.
    :param seconds: that it took.
    :param jvm: CPU seconds of the Spark server, in that time.
    :param jobs: that Spark ran.
    :param client: CPU seconds of the process that asked for it, in that time.
    :param faults: what was wrong with the rows.
    """

    keys: str
    way: str
    round: int
    rows: int
    merged: int
    seconds: float
    jvm: float
    jobs: int
    client: float
    faults: list[str]


@attrs.frozen(kw_only=True)
class Result:
    """All that one run found. Parts that were not asked for are empty.

    :param rounds: in which every way to load was measured.
    :param warm_ups: of every way to load, before the first round.
    """

    machine: Machine
    rounds: int
    warm_ups: int
    races: list[Race] = attrs.field(factory=list)
    loads: list[Load] = attrs.field(factory=list)
    commits: list[Commits] = attrs.field(factory=list)
    openings: list[Opening] = attrs.field(factory=list)
    publishings: list[Publishing] = attrs.field(factory=list)
    tasks: list[Task] = attrs.field(factory=list)
    merges: list[Merging] = attrs.field(factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether every part was measured."""
        return all(self._parts)

    @property
    def faults(self) -> list[str]:
        """What was wrong, whatever the speed."""
        samples: list[Any] = [sample for part in self._parts for sample in part]
        return [f"{_called(sample)}: {fault}" for sample in samples for fault in sample.faults]

    @property
    def _parts(self) -> tuple[list[Any], ...]:
        return self.races, self.loads, self.commits, self.openings, self.publishings, self.tasks, self.merges

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        """Read what :meth:`to_json` returned.

        :param raw: plain values.
        """
        parts = {
            "races": Race,
            "loads": Load,
            "commits": Commits,
            "openings": Opening,
            "publishings": Publishing,
            "tasks": Task,
            "merges": Merging,
        }
        samples = {name: [kind(**sample) for sample in raw[name]] for name, kind in parts.items() if name in raw}
        return cls(machine=Machine(**raw["machine"]), rounds=raw["rounds"], warm_ups=raw["warm_ups"], **samples)


def grouped(samples: Iterable[_T], key: Callable[[_T], Any]) -> dict[Any, list[_T]]:
    """Put samples that belong together beside each other, in the order of their first.

    :param key: says what belongs together.
    """
    found: dict[Any, list[_T]] = {}
    for sample in samples:
        found.setdefault(key(sample), []).append(sample)
    return found


def median(samples: Iterable[_T], of: Callable[[_T], float]) -> float | None:
    """Return the median of a figure; ``None`` where there is no sample.

    :param of: returns the figure of a sample.
    """
    figures = [of(sample) for sample in samples]
    return statistics.median(figures) if figures else None


def ratio(loads: Iterable[Load], way: str, of: Callable[[Load], float]) -> float | None:
    """Return a way's median beside the median of one Delta job; ``None`` where one of them is not known.

    :param loads: of one source, by as many writers, in one run.
    :param way: whose ratio.
    :param of: returns the figure of a load.
    """
    ways = grouped(loads, lambda load: load.way)
    ours, theirs = median(ways.get(way, ()), of), median(ways.get(DELTA, ()), of)
    return ours / theirs if ours is not None and theirs else None


def _called(sample: object) -> str:
    named = [
        value
        for field in attrs.fields(type(sample))
        if field.name
        in ("source", "writers", "way", "round", "store", "processes", "versions", "files", "mode", "kind", "keys")
        and not isinstance(value := getattr(sample, field.name), list)
    ]
    return f"{type(sample).__name__} {', '.join(map(str, named))}"
