"""What a table's asset events say, for the DAG that they start: its commits, in order, each once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs
from airflow.sdk import Asset, get_current_context

from airflow_provider_onelake._airflow import check_has
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.triggers.delta_log import IN_FLIGHT

COMMITS = "commits"
"""In the ``extra`` of a load's event: its commits, as a watcher's event describes one."""

# How late an event may become visible.
_LOOK_BACK = timedelta(minutes=10)
# Keep at least this many runs, and more until they have this many commits together. A crashed triggerer repeats at most
# the commits that Airflow had not confirmed, and it may crash more than once.
_RUNS = 50
_DIGESTS = 3 * IN_FLIGHT

Values = Mapping[str, str | None]


@attrs.frozen(kw_only=True)
class TableCommit:
    """One commit, as an event tells of it.

    :param table: its address.
    :param version: of the table.
    :param time: of the commit.
    :param operation: as the log spells it.
    :param data_change: whether rows changed; compaction and VACUUM change none.
    :param rows_added: ``None`` where statistics do not say.
    :param rows_removed: likewise.
    :param partitions_added: that got files, as values by column; at most 50, see ``partitions_complete``. None in an
        event for a partition, nor ``txns``, ``writers`` and ``user_metadata``.
    :param partitions_removed: that lost files.
    :param partitions_complete: whether there were no more.
    :param txns: by application id.
    :param writers: keys of the writers, of a commit by this package.
    :param user_metadata: what its author said of it.
    :param cut: whether ``txns``, ``writers``, ``user_metadata`` or another text is not whole: an event has the first
        1,000 characters of a text, and the first 50 entries of a list. The table's log has all of it.
    :param missed: the first and the last version before it that were cleaned up from the log before they were seen.
    """

    table: str
    version: int
    time: datetime | None = None
    operation: str = ""
    data_change: bool = True
    rows_added: int | None = None
    rows_removed: int | None = None
    partitions_added: Sequence[Values] = ()
    partitions_removed: Sequence[Values] = ()
    partitions_complete: bool = True
    txns: Mapping[str, int] = attrs.field(factory=dict)
    writers: Sequence[str] = ()
    user_metadata: str | None = None
    cut: bool = False
    missed: Sequence[int] | None = None

    @property
    def partitions(self) -> list[Values]:
        """The partitions that got or lost files, each once."""
        touched = (*self.partitions_added, *self.partitions_removed)
        return [dict(found) for found in dict.fromkeys(tuple(partition.items()) for partition in touched)]

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> TableCommit:
        """Read a commit as an event carries it; what later versions of this package add is passed over.

        :param described: in the event.
        """
        known = {field.name: described[field.name] for field in attrs.fields(cls) if field.name in described}
        time = known.pop("time", None)
        return cls(**known, time=datetime.fromisoformat(time) if time else None)


def commits(events: Iterable[Any]) -> list[TableCommit]:
    """Return the commits that a run was started for, in order, each once.

    To be called in a task of a DAG that one or several assets start, with ``triggering_asset_events[asset]``; the task
    must have the asset among its ``inlets``. It gives what is there since the DAG's last run asked, so it also has
    events that Airflow has recorded and not handed to a run yet, and leaves out what an earlier run has had, and events
    that were repeated after a triggerer died. A run that asks again, as a retry does, gets the same.

    **The DAG needs** ``max_active_runs=1``. What was had is one value in the asset's state store: of two runs that ask
    at the same moment, both may get a commit, and one of them forgets that it had it.

    Where all of a run's events were had or repeated, there is nothing for it to do, and the list is empty. A run for a
    partition gets the commits of its own events.

    :param events: of one asset, as Airflow hands them to the run; others than a table's are passed over.
    :raises InvalidWriteError: the task does not have the asset among its inlets; or Airflow is older than 3.3, and
        keeps nothing for an asset.
    """
    check_has(
        "commits()", "Read the table from the version on that your task has read last, which it must keep itself."
    )
    handed = list(events)
    if not handed:
        return []
    if any(event.partition_key is not None for event in handed):
        return _once(handed)
    context = get_current_context()
    name = handed[0].asset.name
    asset = Asset.ref(name=name)
    try:
        kept = context["asset_state_store"][asset]
        history = context["inlet_events"]
        history[asset]
    except KeyError:
        raise InvalidWriteError(
            f"{context['ti'].task_id} asks for the commits of the asset {name!r}, which is not among its inlets: write "
            f"@task(inlets=[…]), or inlets=[…] of the operator."
        ) from None
    ti = context["ti"]
    key = f"commits.{ti.dag_id}.{ti.task_id}"
    had = _Had.from_json(kept.get(key), min(event.timestamp for event in handed))
    again = had.runs.get(ti.run_id)
    # An event has the time at which it was made, but it is visible only after its transaction. So a late event may be
    # older than the events seen before. Count all events of this run, and read the last minutes again.
    look_from = had.look_from if again is None else again.look_from
    recorded = list(history[asset].after(look_from.isoformat()))
    told = _once(sorted([*recorded, *handed], key=lambda event: event.timestamp))
    if again is not None:
        return [commit for commit in told if _digest(commit) in again.digests]
    before = {digest for run in had.runs.values() for digest in run.digests}
    mine = [commit for commit in told if _digest(commit) not in before]
    until = max(event.timestamp for event in (*recorded, *handed))
    digests = [_digest(commit) for commit in mine]
    kept.set(key, had.after_run(ti.run_id, _Run(look_from, until, digests)).to_json())
    return mine


@attrs.frozen
class _Run:
    """What a run had: its commits' digests, and the oldest and the newest event that it looked at."""

    look_from: datetime
    until: datetime
    digests: Sequence[str]


@attrs.frozen
class _Had:
    """What a task has had of an asset's commits; its last runs suffice, for nothing is repeated late.

    :param begin: of the first event that it was handed; others before it were before its time.
    :param until: the newest event that it has looked at.
    :param runs: by id, in the order in which they asked.
    """

    begin: datetime
    until: datetime
    runs: Mapping[str, _Run]

    @property
    def look_from(self) -> datetime:
        return max(self.begin, self.until - _LOOK_BACK)

    @classmethod
    def from_json(cls, said: Any, begin: datetime) -> _Had:
        if not isinstance(said, Mapping):
            return cls(begin, begin, {})
        runs = {
            run: _Run(datetime.fromisoformat(start), datetime.fromisoformat(end), digests)
            for run, start, end, digests in said["runs"]
        }
        return cls(datetime.fromisoformat(said["begin"]), datetime.fromisoformat(said["until"]), runs)

    def to_json(self) -> dict[str, Any]:
        runs = [
            [run, had.look_from.isoformat(), had.until.isoformat(), list(had.digests)] for run, had in self.runs.items()
        ]
        return {"begin": self.begin.isoformat(), "until": self.until.isoformat(), "runs": runs}

    def after_run(self, run_id: str, run: _Run) -> _Had:
        had = _Had(self.begin, max(self.until, run.until), {**self.runs, run_id: run})
        runs = dict(had.runs)
        while len(runs) > _RUNS and sum(len(each.digests) for each in runs.values()) > _DIGESTS:
            oldest = next(iter(runs))
            # The next run reads these minutes again, so it must still know which commits were returned.
            if runs[oldest].until >= had.look_from:
                break
            del runs[oldest]
        return attrs.evolve(had, runs=runs)


def _once(events: Iterable[Any]) -> list[TableCommit]:
    """Return the commits that events tell of, in order. One that is told of again is left out."""
    found: dict[object, TableCommit] = {}
    for event in events:
        for commit in _commits_of(event):
            found.setdefault(_identity(commit), commit)
    return list(found.values())


def _identity(commit: TableCommit) -> tuple[str, int, datetime | None]:
    # A table that was made again has the same version numbers, but at other times.
    return commit.table, commit.version, commit.time


def _digest(commit: TableCommit) -> str:
    return hashlib.sha256(repr(_identity(commit)).encode()).hexdigest()[:16]


def _commits_of(event: Any) -> list[TableCommit]:
    extra = event.extra or {}
    described = [extra.get("payload")] if extra.get("from_trigger") else extra.get(COMMITS, [])
    return [TableCommit.from_json(each) for each in described if isinstance(each, Mapping) and "version" in each]
