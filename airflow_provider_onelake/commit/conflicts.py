"""What commits that landed since the read version did to the rows that a batch replaces.

A winner is a commit of another writer. Each winner is judged partition by partition, by typed values (protocol: typed
partition values). The result is an :class:`Effect`: it says what the table would be if the winner had come after the
batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import attrs

from airflow_provider_onelake.commit.batch import Batch, read_partition
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.actions import Add, Remove, object_path
from airflow_provider_onelake.log.commits import LEFT_TO_OTHERS, Commit
from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate, everything
from airflow_provider_onelake.log.predicates import names_other_columns
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.staging.modes import EVERYTHING, MODES, Mode, OverwritePartitions
from airflow_provider_onelake.staging.published import REPLACING_TABLE

# Operations that leave nothing of what was in the table before. Those that replace the table are seen here only where a
# RESTORE has brought the old definition back since; else the buffers do not fit the table any more.
_REPLACING_ALL = ("TRUNCATE", *REPLACING_TABLE)
UNLOGGED = -1
"""Stands for the version of a winner that the log has no more."""
# Tells whether a winner replaced whatever was in a partition; ``None`` where the log does not say.
_Range = Callable[[Partition], bool | None]


class Effect(StrEnum):
    """What a winner did in one partition.

    ``APPENDED``: it only added rows, without having read the table, so it adds the same rows after any other write.
    ``REPLACED``: it put its rows in place of whatever was there, so nothing of an earlier write is left after it.
    ``CHANGED``: anything else, such as a DELETE. The log does not say what it would have done to other rows.
    """

    APPENDED = "appended"
    REPLACED = "replaced"
    CHANGED = "changed"


@attrs.frozen
class Conflict:
    """A winner that changed rows in a partition that the batch replaces.

    :param partition: typed; ``None`` for a winner that does not say where it removed rows.
    :param winner: the commit that changed the rows.
    :param effect: what the winner did in the partition.
    :param appended: the files that the winner added there; empty unless it only appended.
    """

    partition: Partition | None
    winner: Commit = attrs.field(repr=False)
    effect: Effect = Effect.CHANGED
    appended: tuple[str, ...] = ()

    @property
    def finished(self) -> tuple[datetime, str] | None:
        """When the winner finished, comparable with :attr:`Batch.finished`; ``None`` if not known.

        A foreign commit finished when its log entry arrived in the store. The store's clock also says when a buffer
        was complete, at the same resolution, so both times compare (protocol: whole writes).
        """
        if self.winner.writers:
            return max((writer.finished, writer.app_id) for writer in self.winner.writers)
        return (self.winner.landed, "") if self.winner.landed is not None else None

    def place(self, partitioning: Partitioning) -> str:
        """Describe the partition in which the winner changed rows."""
        return "a partition that it does not name" if self.partition is None else partitioning.describe(self.partition)

    def describe(self, partitioning: Partitioning) -> str:
        """Describe the conflict in a sentence."""
        return f"{version_name(self.winner.version)} ({self.winner.author}) changed {self.place(partitioning)}"


def version_name(version: int) -> str:
    """Return what messages call the version of a winner."""
    return "a version that the log has no more" if version == UNLOGGED else f"version {version}"


@attrs.define(eq=False)
class KnownConflicts:
    """Finds conflicts from attempt to attempt, and looks at each winner once.

    A batch that loses many races would otherwise look at all of its winners again in each attempt.
    """

    _on: tuple[Batch, Partitioning] | None = None
    # By identity, as no winner ever changes. The winner stands beside its conflicts, so that it lives as long.
    _known: dict[int, tuple[Commit, list[Conflict]]] = attrs.field(factory=dict)

    def find(
        self, batch: Batch, winners: Iterable[Commit], snapshot: Snapshot, seen: Collection[int] = ()
    ) -> list[Conflict]:
        """Return what winners did to the rows that a batch replaces.

        An append replaces nothing, so it has no conflicts.

        :param winners: every commit since the read version, except those of colleagues and of the batch's own writers;
            in the order in which their writes count, see :func:`serial_order`.
        :param snapshot: that the batch is committed against.
        :param seen: versions of winners that count before what the batch was formed on, see :func:`counting_before`.
        """
        if not batch.replaces_anything:
            return []
        partitioning = snapshot.partitioning
        same = self._on is not None and self._on[0] is batch and self._on[1] == partitioning
        before = self._known if same else {}
        winners = list(winners)
        renamed = _last_rename(winners, partitioning)
        self._known = {
            id(winner): before.get(id(winner))
            or (winner, list(_conflicts_with(winner, batch, partitioning, winner.version < renamed, seen)))
            for winner in winners
        }
        self._on = (batch, partitioning)
        return [conflict for _, found in self._known.values() for conflict in found]


def _last_rename(winners: Iterable[Commit], partitioning: Partitioning) -> int:
    """Return the version of the last winner that may have renamed a partition column; -1 for none."""
    # Only column mapping lets columns be renamed.
    return max((winner.version for winner in winners if partitioning.physical and winner.metadata), default=-1)


def _conflicts_with(
    winner: Commit, batch: Batch, partitioning: Partitioning, renamed: bool, seen: Collection[int]
) -> Iterator[Conflict]:
    range_ = _replaced_range(winner, partitioning, renamed=renamed)
    # Who counts before what the batch was formed on counts before the batch, too, and would have emptied nothing of it.
    if winner.version not in seen:
        yield from winner_replaced_range(batch, winner, range_, partitioning)
    if winner.data_change:
        yield from winner_changed_files(batch, winner, range_, partitioning)


def serial_order(winners: Iterable[Commit]) -> list[Commit]:
    """Return winners in the order in which their writes count.

    This is the order of the log, with one exception: a write that finished before a winner and was published after it
    counts before that winner. Its commit says so.

    :param winners: in the order of their versions.
    """
    ordered: list[Commit] = []
    before_all = 0
    for winner in winners:
        before = winner.staged.get("before")
        if before is None:
            ordered.append(winner)
            continue
        place = next((i for i, other in enumerate(ordered) if other.version == before), None)
        if place is None:
            # It counts before a commit that is older than all of these, so it goes to the front, after others like it.
            place, before_all = before_all, before_all + 1
        elif place < before_all:
            before_all += 1
        ordered.insert(place, winner)
    return ordered


def counting_before(read_version: int, ordered: Sequence[Commit]) -> frozenset[int]:
    """Return the versions of the winners that count before what a write was formed on.

    A winner may have landed after that and say that it counts before it. So do all that count before such a winner.

    :param read_version: the version that the write was formed on.
    :param ordered: winners, as :func:`serial_order` returns them.
    """
    last = -1
    for place, winner in enumerate(ordered):
        if (winner.version if (before := winner.staged.get("before")) is None else before) <= read_version:
            last = place
    return frozenset(winner.version for winner in ordered[: last + 1])


def winner_changed_files(
    batch: Batch, winner: Commit, range_: _Range, partitioning: Partitioning
) -> Iterator[Conflict]:
    """Yield the partitions of the batch in which a winner added or removed rows.

    Compaction and other commits without a change of data never count.

    :param winner: that changed data.
    :param range_: tells which partitions the winner replaced, whatever was in them.
    """
    changed = [file for file in winner.removes if file.get("dataChange", True)]
    read = read_partition(batch.mode, partitioning)
    named = [file for file in changed if partitioning.named_by(file)]
    if len(named) < len(changed):
        yield Conflict(None, winner)
    removed = {read(file["partitionValues"]) for file in named}
    added: dict[Partition, list[str]] = {}
    for add in winner.adds:
        if add.get("dataChange", True):
            added.setdefault(read(add["partitionValues"]), []).append(add["path"])
    for partition in sorted(removed | added.keys(), key=_order):
        if not batch.replaces(partition):
            continue
        if range_(partition):
            yield Conflict(partition, winner, Effect.REPLACED)
        elif winner.blind_append and partition not in removed:
            yield Conflict(partition, winner, Effect.APPENDED, tuple(added[partition]))
        else:
            yield Conflict(partition, winner)


def winner_replaced_range(
    batch: Batch, winner: Commit, range_: _Range, partitioning: Partitioning
) -> Iterator[Conflict]:
    """Yield the partitions of the batch's rows that a winner replaced, or may have, without touching a file there.

    :param winner: a commit that may have replaced more partitions than those whose files it touched.
    :param range_: tells which partitions the winner replaced, whatever was in them.
    """
    own = {partition for placed in batch.placed for partition in placed.inside}
    files: list[Add | Remove] = [*winner.adds, *winner.removes]
    touched = {partitioning.partition(file["partitionValues"]) for file in files if partitioning.named_by(file)}
    for partition in sorted(own - touched, key=_order):
        covered = range_(partition)
        if batch.replaces(partition) and covered is not False:
            yield Conflict(partition, winner, Effect.REPLACED if covered else Effect.CHANGED)


def replaced_all(winner: Commit, predicates: Collection[str], partitioning: Partitioning) -> bool:
    """Say whether a winner replaced all that some predicates cover, as far as their texts tell.

    :param predicates: of a write, as its commit records them.
    """
    if winner.only_moves_rows:
        return False
    if not winner.staged:
        return not winner.parameters.get("predicate") and _foreign_range(winner, set(), partitioning) is everything
    theirs = set(winner.staged.get("replaces", ()))
    same_names = winner.partitioned_by == list(partitioning.types)
    return same_names and not left_to_others(winner) and (EVERYTHING in theirs or theirs.issuperset(predicates))


def _nobody_knows(_: Partition) -> None:
    return None


def _replaced_range(winner: Commit, partitioning: Partitioning, *, renamed: bool = False) -> _Range:
    """Return a function that tells which partitions a winner replaced, whatever was in them.

    :param renamed: whether a partition column may have another name since.
    """
    if winner.only_moves_rows:
        return lambda _: False  # Delta calls a compaction by `dataChange=false` an overwrite.
    with_files = {partitioning.partition(add["partitionValues"]) for add in winner.adds if partitioning.named_by(add)}
    if not winner.staged:
        return _foreign_range(winner, with_files, partitioning, renamed=renamed)
    # A mode that a later release brings says what it replaced by predicates, or not at all.
    mode = MODES.get(str(winner.staged.get("mode")), Mode)
    texts = winner.staged.get("replaces", ())
    try:
        replaced = mode.replaced_by(texts, with_files, _named_then(winner, partitioning) if texts else partitioning)
    except InvalidWriteError:
        # It is an odd record, or of a table that was partitioned otherwise: what brought the table back since counts.
        return lambda _: False
    yielded = left_to_others(winner)
    return lambda partition: as_text(partition) not in yielded and replaced(partition)


def _foreign_range(
    winner: Commit, with_files: set[Partition], partitioning: Partitioning, *, renamed: bool = False
) -> _Range:
    parameters = winner.parameters
    if winner.operation in _REPLACING_ALL:
        return everything
    if winner.operation != "WRITE" or str(parameters.get("mode")) != "Overwrite":
        return lambda _: False
    if str(parameters.get("isDynamicPartitionOverwrite")).lower() == "true":
        return OverwritePartitions.replaced_by((), with_files, partitioning)
    if parameters.get("predicate"):
        if renamed:
            return _nobody_knows
        return _foreign_predicate(str(parameters["predicate"]), partitioning)
    if not partitioning.types or "isDynamicPartitionOverwrite" in parameters:
        return everything
    # The engine does not say whether the overwrite was dynamic. A dynamic one leaves other partitions alone.
    return lambda partition: True if partition in with_files else None


def _foreign_predicate(text: str, partitioning: Partitioning) -> _Range:
    try:
        return PartitionPredicate.parse(text, partitioning).judge_in_any_zone
    except InvalidWriteError:
        # A predicate that names data columns keeps the rows outside of it in each partition. One that names only
        # partition columns, as `month LIKE '0%'` does, replaces whole partitions, but nothing here can tell which.
        return (lambda _: False) if names_other_columns(text, partitioning.types) else _nobody_knows


def _named_then(winner: Commit, partitioning: Partitioning) -> Partitioning:
    """Return the partitioning with the columns' names of a winner's version: column mapping lets them change.

    :raises InvalidWriteError: the table had other partition columns then; a RESTORE has brought these back since.
    """
    names = winner.partitioned_by or list(partitioning.types)
    if len(names) != len(partitioning.types):
        raise InvalidWriteError(f"Version {winner.version} is of a table that was partitioned by {', '.join(names)}.")
    return Partitioning(dict(zip(names, partitioning.types.values(), strict=True)))


def may_replace(winner: Commit, partitions: Iterable[Partition], partitioning: Partitioning) -> bool:
    """Say whether a winner replaced some of these partitions, or may have, whatever was in them.

    :param partitions: typed.
    """
    range_ = _replaced_range(winner, partitioning)
    return any(range_(partition) is not False for partition in partitions)


def left_to_others(winner: Commit, outcomes: Collection[str] = LEFT_TO_OTHERS) -> set[tuple[str | None, ...]]:
    """Return the partitions, as text, that a winner of ours left to others: it changed nothing there.

    :param outcomes: of the settlements that count, as the commit records them.
    """
    return {
        tuple(settlement["values"])
        for settlement in winner.staged.get("settlements", ())
        if settlement.get("outcome") in outcomes and settlement.get("values") is not None
    }


def as_text(partition: Partition) -> tuple[str | None, ...]:
    """Return a partition's values as a commit records them; NULL becomes ``None``, not a text.

    :param partition: typed.
    """
    return tuple(None if value is None else str(value) for value in partition)


def origins(
    later: Collection[int],
    changed: Collection[tuple[int, Partition | None]],
    commits: Iterable[Commit],
    read: Callable[[Mapping[str, str | None]], Partition],
) -> tuple[set[str], set[str]]:
    """Tell the files that came with winners that count as later than a batch from older ones.

    :param later: versions of the winners that count as later.
    :param changed: versions and partitions of winners that did not only put their own rows there, but may have moved
        rows that they found, as a DELETE does that rewrites a file.
    :param commits: every commit since the read version, in the order of versions.
    :param read: returns the partition of a file, from its raw partition values.
    :returns: the paths, as the store names them, of files with rows of later winners only; and of files that may hold
        older ones beside them, as a compaction or one of the winners moved rows.
    """
    new: set[str] = set()
    mixed: set[str] = set()
    for commit in commits:
        removed = {object_path(file) for file in commit.removes}
        anywhere = {object_path(file) for file in commit.removes if not file.get("partitionValues")}
        inputs: dict[Partition, set[str]] = defaultdict(anywhere.copy)
        for file in commit.removes:
            if file.get("partitionValues"):
                inputs[read(file["partitionValues"])].add(object_path(file))
        written: dict[Partition, list[Add]] = defaultdict(list)
        for add in commit.adds:
            # Else the commit only gave the file another deletion vector.
            if object_path(add) not in removed:
                written[read(add["partitionValues"])].append(add)
        for partition, adds in written.items():
            before = inputs[partition]
            all_new, some_new = before <= new, not (before.isdisjoint(new) and before.isdisjoint(mixed))
            own = (commit.version, partition) not in changed or all_new
            for add in adds:
                if add.get("dataChange", True):
                    if commit.version in later:
                        (new if own else mixed).add(object_path(add))
                elif before and all_new:
                    new.add(object_path(add))
                elif some_new:
                    mixed.add(object_path(add))
    return new, mixed


def _order(partition: Partition) -> tuple[str, ...]:
    return tuple(str(value) for value in partition)
