"""The plan of a run, written once and kept (protocol, rule 8).

A rerun that grouped the partitions otherwise would have other writers, whom the table does not know, and append
everything again. So what is planned stays: which writer has which partition. Partitions that come later get writers of
their own, in a further entry.

    <table>/_plans/<plan>/00000.json    put create-only; the name begins with "_", so VACUUM passes over it
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import attrs

from airflow_provider_onelake.exceptions import ObjectExistsError, ObjectNotFoundError, PlanError
from airflow_provider_onelake.planning.balance import Share, balance
from airflow_provider_onelake.storage.stores import Store

DIRECTORY = "_plans"
_FORMAT = 1


@attrs.frozen
class Plan:
    """Who writes what in a run.

    :param path: of the entries, relative to the table.
    :param shares: of all writers.
    :param new: how many of them were planned just now; the others by an earlier try or before a clear.
    """

    path: str
    shares: tuple[Share, ...]
    new: int = 0


def make_plan(
    store: Store,
    name: str,
    sizes: Mapping[str, int],
    *,
    writers: int | None = None,
    max_bytes: int | None = None,
    prefix: str = "",
) -> Plan:
    """Return the plan of a run: what was planned before, and writers for the partitions that are new.

    :param store: of the table.
    :param name: of the plan: the run's and the task's, the same for every rerun.
    :param sizes: of the partitions as they are now, in bytes.
    :param writers: see :func:`~airflow_provider_onelake.planning.balance.balance`, as for the rest.
    :param max_bytes: the most that a writer may get, also one that was planned before.
    :param prefix: of the writers' keys.
    :returns: the plan, kept.
    :raises PlanError: as :func:`~airflow_provider_onelake.planning.balance.balance` does, or a writer that was planned
        before is above ``max_bytes`` by now.
    """
    path = f"{DIRECTORY}/{hashlib.sha256(name.encode()).hexdigest()[:20]}"
    while True:
        entries = _read(store, path)
        kept = [share for entry in entries for share in entry]
        _check_kept(kept, sizes, max_bytes, f"{path} of the table")
        planned = {partition for share in kept for partition in share.partitions}
        more = {partition: size for partition, size in sizes.items() if partition not in planned}
        new = balance(more, writers=writers, max_bytes=max_bytes, prefix=prefix)
        if not new:
            return Plan(path, tuple(kept))
        entry = {"format": _FORMAT, "plan": name, "writers": {share.writer: share.partitions for share in new}}
        try:
            store.create(_entry(path, len(entries)), json.dumps(entry, indent=1).encode())
        except ObjectExistsError:
            # Another try of the task was faster, or this one's answer was lost: what is there counts.
            continue
        return Plan(path, (*kept, *new), len(new))


def _read(store: Store, path: str) -> list[Sequence[Share]]:
    entries: list[Sequence[Share]] = []
    while True:
        try:
            data = store.get(_entry(path, len(entries)))
        except ObjectNotFoundError:
            return entries
        entry = json.loads(data)
        if entry["format"] != _FORMAT:
            raise PlanError(
                f"{_entry(path, len(entries))} is a plan of the format {entry['format']}, made by a later version of "
                "this package. Nothing was planned: use that version."
            )
        entries.append([Share(writer, tuple(partitions)) for writer, partitions in entry["writers"].items()])


def _entry(path: str, number: int) -> str:
    return f"{path}/{number:05d}.json"


def _check_kept(kept: Sequence[Share], sizes: Mapping[str, int], max_bytes: int | None, where: str) -> None:
    for share in kept:
        size = share.size(sizes)
        if max_bytes is not None and size > max_bytes:
            raise PlanError(
                f"Writer {share.writer} was planned for {', '.join(share.partitions)}, now {size} bytes, above "
                f"max_bytes={max_bytes}. A plan is not changed within its run, as its writers may have "
                "written. Nothing was planned anew: raise max_bytes and clear this task, or load the source by a new "
                f"run. Only where no writer of this run has published may {where} be deleted, to plan from the start."
            )
