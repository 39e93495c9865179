"""The plan of a run, written once and kept (protocol: plan once).

A rerun that grouped the partitions differently would have other writers. The table would not know these writers, so
they would append all rows again. So the plan keeps which writer has which partition. Partitions that come later get new
writers, in a further entry.

    <table>/_plans/<plan>/00000.json    put create-only; the name begins with "_", so VACUUM passes over it

An entry also keeps how the source was divided. If it were divided differently later, the same rows would be in
partitions of other names; these would be new to the plan and get writers that append the rows again.
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
_FORMAT = 2


@attrs.frozen
class Division:
    """How a source is divided into partitions, which decides their names.

    :param by: how a file's path tells its partition; ``None`` if each file is a partition.
    :param column: the column whose values are the partitions; ``None`` if the partitions are made of files.
    :param paths: the source's rendered paths, if the partitions are made of files.
    """

    by: str | None = None
    column: str | None = None
    paths: tuple[str, ...] = ()

    def names_as(self, other: Division) -> bool:
        """Say whether both divisions put every row that they share into a partition of the same name.

        Paths may be added, or left out. If one path was added and another one left out, the two may be spellings of the
        same place, so the answer is no.

        :param other: another division in the same run.
        """
        ours, theirs = set(self.paths), set(other.paths)
        return (self.by, self.column) == (other.by, other.column) and (ours <= theirs or theirs <= ours)

    def __str__(self) -> str:
        """Return the division as the author gave it."""
        if self.column is not None:
            return f"sizes by the column {self.column!r}"
        return f"by={self.by!r} and the paths {', '.join(self.paths)}"


@attrs.frozen
class Plan:
    """Which writer writes which partitions in a run.

    :param path: the directory of the plan's entries, relative to the table.
    :param shares: the shares of all writers.
    :param new: how many of the shares were planned just now; an earlier try, or a try before a clear, planned the rest.
    """

    path: str
    shares: tuple[Share, ...]
    new: int = 0


def make_plan(
    store: Store,
    name: str,
    sizes: Mapping[str, int],
    division: Division,
    *,
    writers: int | None = None,
    max_bytes: int | None = None,
    prefix: str = "",
) -> Plan:
    """Return the plan of a run: the shares that were planned before, and writers for the partitions that are new.

    :param store: rooted at the table.
    :param name: the plan's name, made of the run and the task; it is the same for every rerun.
    :param sizes: the present sizes of the partitions in bytes.
    :param division: how the source is divided into these partitions.
    :param writers: see :func:`~airflow_provider_onelake.planning.balance.balance`.
    :param max_bytes: the most bytes that a writer may get, also a writer that was planned before.
    :param prefix: what every writer's key begins with.
    :returns: the plan, which is stored.
    :raises PlanError: :func:`~airflow_provider_onelake.planning.balance.balance` raises it, or a writer that was
        planned before is above ``max_bytes`` by now, or the source was divided differently before.
    """
    path = f"{DIRECTORY}/{hashlib.sha256(name.encode()).hexdigest()[:20]}"
    while True:
        entries = _read(store, path)
        kept = [share for shares, _ in entries for share in shares]
        _check_division(division, [before for _, before in entries], f"{path} of the table")
        _check_kept(kept, sizes, max_bytes, f"{path} of the table")
        planned = {partition for share in kept for partition in share.partitions}
        more = {partition: size for partition, size in sizes.items() if partition not in planned}
        new = balance(more, writers=writers, max_bytes=max_bytes, prefix=prefix)
        if not new:
            return Plan(path, tuple(kept))
        entry = {
            "format": _FORMAT,
            "plan": name,
            "division": attrs.asdict(division),
            "writers": {share.writer: share.partitions for share in new},
        }
        try:
            store.create(_entry(path, len(entries)), json.dumps(entry, indent=1).encode())
        except ObjectExistsError:
            # Another try of the task was faster, or the answer to our put was lost. Use the entry that is there.
            continue
        return Plan(path, (*kept, *new), len(new))


def _read(store: Store, path: str) -> list[tuple[Sequence[Share], Division]]:
    entries: list[tuple[Sequence[Share], Division]] = []
    while True:
        try:
            data = store.get(_entry(path, len(entries)))
        except ObjectNotFoundError:
            return entries
        try:
            entry = json.loads(data)
            if entry["format"] != _FORMAT:
                raise PlanError(
                    f"{_entry(path, len(entries))} is a plan of the format {entry['format']}, made by another version "
                    "of this package. Nothing was planned: use that version, or load by a new run."
                )
            shares = [Share(writer, tuple(partitions)) for writer, partitions in entry["writers"].items()]
            how = entry["division"]
            entries.append((shares, Division(how["by"], how["column"], tuple(how["paths"]))))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PlanError(
                f"{_entry(path, len(entries))} of the table, which says who writes what in this run, is damaged "
                f"({type(error).__name__}: {error}). Nothing was planned, as its writers may have written: put it "
                "back, or load by a new run."
            ) from error


def _entry(path: str, number: int) -> str:
    return f"{path}/{number:05d}.json"


def _check_division(division: Division, before: Sequence[Division], where: str) -> None:
    for other in before:
        if not division.names_as(other):
            raise PlanError(
                f"The plan of this run was made with {other}, and is asked for with {division}. Its writers may have "
                "written; divided otherwise, the same rows would go to writers that the table does not know, again. "
                "Nothing was planned: set it back and clear this task, or load by a new run. Only where no writer of "
                f"this run has published may {where} be deleted, to plan from the start."
            )


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
