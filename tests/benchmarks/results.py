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
    """Where and when a run was made, and what else the machine did."""

    began: str  # in UTC
    full: bool
    seconds: float
    revision: str
    cores: int
    processor: str
    gigabytes: float
    system: str
    versions: dict[str, str]  # of Python, Java and the packages that matter
    load_at_begin: float
    load_at_end: float  # with the bench's own
    others: float  # the share of the processors' time that other processes used


@attrs.frozen(kw_only=True)
class Sample:
    """What all samples have: seconds of wall time, and what is wrong with the rows, or what failed."""

    seconds: float
    faults: list[str]


@attrs.frozen(kw_only=True)
class Load(Sample):
    """One load of all rows by one way, from nothing to a table that can be read; times are CPU seconds."""

    source: str  # ``shared``, one file that no filter skips, or ``own``, a file a writer
    writers: int
    way: str
    round: int
    rows: int
    jvm: float
    tasks: float  # of Spark, among those of the JVM
    jobs: int
    client: float  # of Python
    data_files: int


@attrs.frozen(kw_only=True)
class Race(Sample):
    """A load of all rows into a new table, from nothing: with the start of Spark."""

    way: str
    writers: int
    rows: int
    jvm: float
    failed: int  # jobs that failed as another was faster, and ran again


@attrs.frozen(kw_only=True)
class Commits(Sample):
    """Commits of several processes to one table, from their common start to the end of the last."""

    store: str
    way: str
    processes: int
    commits: int
    cpu: float
    attempts: int | None  # puts that were tried, where this is known
    latencies: list[float] = attrs.field(repr=False)  # of every commit, sorted

    @property
    def per_second(self) -> float:
        """Commits per second."""
        return self.commits / self.seconds

    def latency(self, share: float) -> float:
        """The seconds within which a share of the commits was made."""
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))] if self.latencies else 0.0


@attrs.frozen(kw_only=True)
class Opening:
    """How many seconds a table with a long log takes to be opened, and to be looked at again."""

    versions: int
    opens: list[float]  # every first look
    pokes: list[float]  # every look of a sensor that found nothing new
    listings: list[float]  # those looks that list the log; a sensor's every twentieth
    deltalake: list[float]
    faults: list[str]


@attrs.frozen(kw_only=True)
class Publishing(Sample):
    """One commit to a table that has many files, in a process that has not seen the table before, with its opening."""

    files: int
    mode: str
    cpu: float
    peak: int  # bytes of memory in addition
    read: int  # bytes
    requests: int  # without those of deltalake
    removed: int  # files that the commit replaced


@attrs.frozen(kw_only=True)
class Task(Sample):
    """One task in a new process: ``empty``, ``writer`` or ``preloaded writer``."""

    kind: str
    cpu: float
    jvm: float


@attrs.frozen(kw_only=True)
class Merging(Sample):
    """One MERGE into a copy of the same table."""

    keys: str  # where those of the source lie in the table
    way: str
    round: int
    rows: int
    merged: int  # rows of the source
    jvm: float
    jobs: int
    client: float


@attrs.frozen(kw_only=True)
class Result:
    """All that one run found. Parts that were not asked for are empty."""

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
        """Read what :meth:`to_json` returned."""
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
    """Put samples that belong together beside each other, in the order of their first."""
    found: dict[Any, list[_T]] = {}
    for sample in samples:
        found.setdefault(key(sample), []).append(sample)
    return found


def median(samples: Iterable[_T], of: Callable[[_T], float]) -> float | None:
    """Return the median of a figure; ``None`` where there is no sample."""
    figures = [of(sample) for sample in samples]
    return statistics.median(figures) if figures else None


def ratio(loads: Iterable[Load], way: str, of: Callable[[Load], float]) -> float | None:
    """Return a way's median beside the median of one Delta job; ``None`` where one of them is not known."""
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
