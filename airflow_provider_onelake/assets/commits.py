"""What a table's asset events say, for the DAG that they start: its commits, in order, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs
from airflow.sdk import Asset, get_current_context

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.triggers.delta_log import IN_FLIGHT

COMMITS = "commits"
"""In the ``extra`` of a load's event: its commits, as a watcher's event describes one."""

_RUNS = 50
_INSTANT = timedelta(microseconds=1)

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
    missed: Sequence[int] | None = None

    @property
    def partitions(self) -> list[Values]:
        """The partitions that got or lost files, each once."""
        return [dict(found) for found in dict.fromkeys(tuple(p.items()) for p in self._touched())]

    def _touched(self) -> Iterable[Values]:
        return (*self.partitions_added, *self.partitions_removed)

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
    that were repeated after a triggerer died. A run that asks again, as a retry does, gets the same. With
    ``max_active_runs=1`` the order holds from run to run.

    Where all of a run's events were had or repeated, there is nothing for it to do, and the list is empty. A run for a
    partition gets the commits of its own events.

    :param events: of one asset, as Airflow hands them to the run; others than a table's are passed over.
    :raises InvalidWriteError: the task does not have the asset among its inlets.
    """
    handed = list(events)
    if not handed:
        return []
    if any(event.partition_key is not None for event in handed):
        return list(_new(handed, set()))
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
    said: Any = kept.get(key) or []
    taken = [(run, datetime.fromisoformat(start), datetime.fromisoformat(end)) for run, start, end in said]
    moments = [event.timestamp for event in handed]
    mine = next(((start, end) for run, start, end in taken if run == ti.run_id), None)
    fresh = mine is None
    if mine is None and taken and max(moments) <= taken[0][1]:
        # It failed before it asked, and later ones asked first: nobody has had these.
        mine = (min(moments) - _INSTANT, max(moments))
    start = mine[0] if mine else taken[-1][2] if taken else min(moments) - _INSTANT
    later = [event for event in history[asset].after(start.isoformat()) if event.timestamp > start]
    end = mine[1] if mine else later[-1].timestamp if later else start
    if fresh:
        spans = sorted([*taken, (ti.run_id, start, end)], key=lambda span: span[1:])[-_RUNS:]
        kept.set(key, [[run, first.isoformat(), last.isoformat()] for run, first, last in spans])
    later = [event for event in later if event.timestamp <= end]
    # A triggerer repeats at most what it had not been told of yet.
    before = history[asset].before(start.isoformat()).ascending(False).limit(2 * IN_FLIGHT)
    return list(_new(later, {_identity(commit) for event in before for commit in _told(event)}))


def _new(events: Iterable[Any], seen: set[Any]) -> Iterator[TableCommit]:
    for event in events:
        for commit in _told(event):
            if _identity(commit) not in seen:
                seen.add(_identity(commit))
                yield commit


def _identity(commit: TableCommit) -> tuple[str, int, datetime | None]:
    # A table that was made again has the same versions, at other times.
    return commit.table, commit.version, commit.time


def _told(event: Any) -> list[TableCommit]:
    extra = event.extra or {}
    described = [extra.get("payload")] if extra.get("from_trigger") else extra.get(COMMITS, [])
    return [TableCommit.from_json(each) for each in described if isinstance(each, Mapping) and "version" in each]
