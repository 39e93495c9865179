"""A version that is kept for the tasks of a run: from the task that takes it to the task that lets go of it.

The hold is a record among those of the versions that people asked to keep (pinned_versions.py). It has an end, in case
nobody lets go: the run was deleted, say. Its holder names the task and its start, so a retry finds it again, and a
clear takes another one and lets go of the old. The record says which start it is of, because an old process of the task
may wake up after a clear: it must not let go of what the newer start keeps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import attrs

from airflow_provider_onelake.buffers.claims import Start
from airflow_provider_onelake.exceptions import InvalidReadError, ZombieWriterError
from airflow_provider_onelake.log.commits import digest_of
from airflow_provider_onelake.maintenance.pinned_versions import (
    PinnedVersion,
    pin_version,
    records_held,
    release_version,
)
from airflow_provider_onelake.storage.clock import whole_number

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog

_HOLDER = re.compile(r"run[0-9a-f]{32}")


@attrs.frozen
class Hold:
    """A version that is kept.

    :param holder: what the record's name begins with.
    :param until: when it ends by itself.
    """

    version: int
    holder: str
    until: datetime


@attrs.frozen
class _TaskStart:
    """Which start of a task a record is of.

    :param task_start: the start; ``None`` where the record does not say.
    :param number: of the try that put the record.
    """

    task_start: Start | None
    number: int

    @classmethod
    def of(cls, pinned: PinnedVersion) -> _TaskStart:
        return cls(Start.from_json(pinned.note.get("deed")), whole_number(pinned.note.get("try")) or 1)

    def precedes(self, other: _TaskStart) -> bool:
        """Say whether another start, or another try that asks for something else, is known to have begun later."""
        if self.task_start is None or other.task_start is None:
            return False
        if self.task_start.id == other.task_start.id:
            return self.number < other.number
        return self.task_start.precedes(other.task_start)


def hold(
    log: DeltaLog,
    choose: Callable[[], int],
    by: str,
    *,
    owner: str,
    task_start: Start,
    asked: str,
    try_number: int = 1,
    lasts: timedelta,
) -> Hold:
    """Keep a version. Called again for the same start of a task, it finds what it kept.

    :param choose: returns the version to keep, if none is kept yet.
    :param by: who asks; shown to people.
    :param owner: names the task in its run. What an earlier start of it has kept is let go.
    :param task_start: the start of the task; its retries have the same.
    :param asked: names what the task asks for. A retry that asks for something else lets go of what was kept before.
    :param try_number: of the task, counted over all of its starts, from 1.
    :param lasts: for how long it is kept at most.
    :raises InvalidReadError: ``lasts`` is not above 0.
    :raises ZombieWriterError: a newer start of the task keeps a version.
    :raises VacuumRefusedError: the version's log or one of its files is gone.
    :raises VacuumAtWorkError: a vacuum is deleting files of the version.
    :raises StoreUnavailableError: the outcome is unknown; calling again is safe.
    """
    if lasts <= timedelta():
        raise InvalidReadError(f"A version is kept for a time above 0, not for {lasts}. Nothing was kept.")
    of_task = f"run{digest_of(owner.encode())}"
    holder = f"{of_task}{digest_of(f'{task_start.id} {asked}'.encode())}"
    there = records_held(log, of_task)
    start, others = _TaskStart(task_start, try_number), [one for one in there if not one[0].startswith(holder)]
    if newer := next((pinned for _, pinned in others if start.precedes(_TaskStart.of(pinned))), None):
        raise ZombieWriterError(
            f"A newer start of this task keeps version {newer.version} of {log.table} since "
            f"{newer.since:%Y-%m-%d %H:%M}, and the tasks behind it may read that one. This start keeps nothing, and "
            "nothing was changed."
        )
    now = log.clock.now()
    own = {name: one for name, one in there if name.startswith(holder) and (one.until is None or one.until >= now)}
    # A new record has a name of its own, because a vacuum that found an ended one may delete that only now.
    record, kept = next(iter(own.items()), (f"{holder}{uuid4().hex}", None))
    version = choose() if kept is None else kept.version
    pin_version(
        log, version, by, holder=record, lasts=lasts, note={"deed": attrs.asdict(task_start), "try": try_number}
    )
    for name, earlier in there:
        # A record that does not say which start it is of ends by itself.
        if name not in own and (name.startswith(holder) or _TaskStart.of(earlier).precedes(start)):
            release_version(log, earlier.version, holder=name)
    return Hold(version, holder, (kept and kept.until) or now + lasts)


def let_go(log: DeltaLog, holder: str) -> int | None:
    """Keep a version no longer.

    :param holder: of the :class:`Hold`.
    :returns: the version; ``None`` if it was not kept any more.
    :raises InvalidReadError: the text names no holder.
    :raises StoreUnavailableError: the store did not answer; the hold ends by itself.
    """
    if not isinstance(holder, str) or not _HOLDER.fullmatch(holder):
        raise InvalidReadError(f"{holder!r} is not what OneLakeKeepVersionOperator returns as `holder`.")
    found = None
    for name, pinned in records_held(log, holder):
        release_version(log, pinned.version, holder=name)
        found = pinned.version
    return found
