"""A version that is kept for the tasks of a run: from the task that takes it to the task that lets go of it.

The hold is a record among those of the versions that people asked to keep (pinned_versions.py). It has an end, in case
nobody lets go: the run was deleted, say. Its holder names the task and its start, so a retry finds it again, and a
clear takes another one and lets go of the old.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import attrs

from airflow_provider_onelake.exceptions import InvalidReadError
from airflow_provider_onelake.log.commits import digest_of
from airflow_provider_onelake.maintenance.pinned_versions import pin_version, records_held, release_version

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


def hold(log: DeltaLog, choose: Callable[[], int], by: str, *, owner: str, start: str, lasts: timedelta) -> Hold:
    """Keep a version. Called again for the same start of a task, it finds what it kept.

    :param choose: returns the version to keep, if none is kept yet.
    :param by: who asks; shown to people.
    :param owner: names the task in its run. What an earlier start of it has kept is let go.
    :param start: names the start of the task, and what it asks for; its retries have the same.
    :param lasts: for how long it is kept at most.
    :raises InvalidReadError: ``lasts`` is not above 0.
    :raises VacuumRefusedError: the version's log or one of its files is gone.
    :raises VacuumAtWorkError: a vacuum is deleting files of the version.
    :raises StoreUnavailableError: the outcome is unknown; calling again is safe.
    """
    if lasts <= timedelta():
        raise InvalidReadError(f"A version is kept for a time above 0, not for {lasts}. Nothing was kept.")
    of_task = f"run{digest_of(owner.encode())}"
    holder = f"{of_task}{digest_of(start.encode())}"
    there = records_held(log, of_task)
    now = log.clock.now()
    own = {name: pinned for name, pinned in there if name.startswith(holder) and _counts(pinned.until, now)}
    # A new record has a name of its own, because a vacuum that found an ended one may delete that only now.
    record, kept = next(iter(own.items()), (f"{holder}{uuid4().hex}", None))
    version = choose() if kept is None else kept.version
    pin_version(log, version, by, holder=record, lasts=lasts)
    for name, earlier in there:
        if name not in own:
            release_version(log, earlier.version, holder=name)
    return Hold(version, holder, (kept and kept.until) or now + lasts)


def _counts(until: datetime | None, now: datetime) -> bool:
    return until is None or until >= now


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
