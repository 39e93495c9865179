"""Which commits must count after a batch that is placed before a winner, and which of them have missed its rows.

The batch was not there yet when these commits were made. An append, and a write that replaces a partition, do the same
without it. But a writer that computed its rows from the table would have read the batch's rows, and a DELETE, an UPDATE
or a MERGE would have looked at them. It does no harm if such a commit has nothing to do with the winner, because it may
count before the batch as well.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.actions import Add, Remove
from airflow_provider_onelake.log.commits import CHANGE, STAGED, Commit
from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate
from airflow_provider_onelake.log.predicates import names_other_columns
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.staging.published import REPLACING_TABLE, UNDOING
from airflow_provider_onelake.staging.reads import WHOLE


@attrs.frozen
class _Area:
    """An area of a table.

    :param predicate: on its partition columns.
    :param foreign: whether another engine has logged it, whose session may have been in any time zone.
    """

    predicate: str
    foreign: bool = False


_EVERYWHERE = _Area(WHOLE)
# Operations that replace everything, or what their parameters say.
_REPLACING = ("TRUNCATE", *UNDOING, *REPLACING_TABLE)


@attrs.frozen
class Placed:
    """A batch that is placed before a winner.

    :param rows: the partitions for which it has rows.
    :param changed: the partitions in which it adds or removes rows.
    :param hidden: by the versions of later winners, the partitions that these replace as a whole: whoever counts after
        them sees nothing of the batch there.
    """

    rows: Collection[Partition]
    changed: Collection[Partition]
    hidden: Mapping[int, Collection[Partition]]


def missed_by(
    placed: Placed, since: Sequence[Commit], certain: Collection[int], partitioning: Partitioning
) -> tuple[Commit, str] | None:
    """Return the first commit that must count after a batch and would have met its rows, or ``None``.

    :param since: the commits that may count after the batch, in the order in which they count, from the winner on that
        it is placed before.
    :param certain: versions of those that do, as they are in conflict with the batch.
    :param partitioning: of the table.
    :returns: the commit, and what it has done without the batch, in words that follow its name.
    """
    # Predicates have the names of partition columns, and columns can swap their names.
    areas = _Areas(partitioning, are_known=not any(commit.metadata for commit in since))
    followers = _Followers(areas)
    hidden: set[Partition] = set()
    for commit in since:
        effect = _Effect.of(commit, partitioning)
        if commit.version in certain or followers.must_follow(effect):
            changed = [place for place in placed.changed if place not in hidden]
            if areas.meet(effect.read, changed):
                return commit, "computed its rows from the table without theirs"
            # A row that the batch removes can only have been found by who leaves rows as they are that it finds.
            met = [place for place in placed.rows if place not in hidden] if effect.changes_what_it_finds else changed
            if areas.meet(effect.looked_at, met):
                return commit, "looked for rows of the table when theirs were not there"
            followers.add(effect)
        hidden.update(placed.hidden.get(commit.version, ()))
    return None


@attrs.define
class _Areas:
    """Areas of a table, as predicates on its partition columns: each is parsed once.

    :param are_known: whether a predicate has the columns' names of now.
    """

    partitioning: Partitioning
    are_known: bool
    _parsed: dict[str, PartitionPredicate | None] = attrs.field(factory=dict)

    def meet(self, areas: Iterable[_Area], partitions: Collection[Partition]) -> bool:
        """Say whether some of the partitions are in the areas. Where that cannot be known, they are.

        :param partitions: typed.
        """
        return bool(partitions) and any(self._has_any(area, partitions) for area in areas)

    def _has_any(self, area: _Area, partitions: Collection[Partition]) -> bool:
        predicate = area.predicate
        if predicate not in self._parsed:
            self._parsed[predicate] = None
            with suppress(InvalidWriteError):
                self._parsed[predicate] = PartitionPredicate.parse(predicate, self.partitioning)
        parsed = self._parsed[predicate]
        if parsed is None or not self.are_known:
            return True
        judge = parsed.judge_in_any_zone if area.foreign else parsed.judge
        return any(judge(partition) is not False for partition in partitions)


@attrs.frozen
class _Effect:
    """What a commit did to the table.

    :param changed: the partitions in which it changed rows; ``None`` where it does not say.
    :param read: the areas that it computed rows from.
    :param looked_at: the areas in which a statement looked for rows.
    :param replaced: the areas that it replaced, beside the partitions into which it put files.
    :param removed: whether it removed rows.
    :param changes_what_it_finds: whether a statement changed every row that it found. A MERGE may find a row, leave it
        as it is, and insert none because of it.
    """

    commit: Commit
    changed: frozenset[Partition] | None
    read: Collection[_Area]
    looked_at: Collection[_Area]
    replaced: Collection[_Area]
    removed: bool
    changes_what_it_finds: bool

    @classmethod
    def of(cls, commit: Commit, partitioning: Partitioning) -> _Effect:
        return cls(
            commit,
            _changed_by(commit, partitioning),
            _read_by(commit),
            _looked_at_by(commit, partitioning),
            _replaced_by(commit),
            any(file.get("dataChange", True) for file in commit.removes),
            commit.operation in ("DELETE", "UPDATE", "WRITE") or _changes_every_match(commit),
        )

    @property
    def deletes(self) -> bool:
        """Whether it removes the rows that it finds, and does nothing else with them."""
        return self.commit.operation in ("DELETE", "WRITE", *_REPLACING) and not self.read


@attrs.define
class _Followers:
    """The commits that must count after a batch, of those that were looked at so far.

    :param _partitions: in which they changed rows.
    :param _claimed: the areas that they read, looked at or replaced.
    :param _removed: whether one of them removed rows, so that somebody might have found other ones before it.
    :param _computed: whether one of them made rows of those that it found.
    """

    _areas: _Areas
    _partitions: set[Partition] = attrs.field(factory=set)
    _claimed: set[_Area] = attrs.field(factory=set)
    _removed: bool = False
    _computed: bool = False

    def add(self, effect: _Effect) -> None:
        """Take in a commit that must count after the batch."""
        self._partitions |= effect.changed or frozenset()
        self._claimed |= {*effect.read, *effect.looked_at, *effect.replaced}
        self._claimed |= {_EVERYWHERE} if effect.changed is None else set()
        self._removed = self._removed or effect.removed
        self._computed = self._computed or not (effect.deletes or effect.commit.blind_append)

    def must_follow(self, effect: _Effect) -> bool:
        """Say whether a commit must count after one of them, because it might do something else before.

        :param effect: of a commit that landed after all of them, or counts as if it had.
        """
        if not effect.commit.data_change:
            return False
        changed = effect.changed
        if changed is None or not changed.isdisjoint(self._partitions) or self._areas.meet(self._claimed, changed):
            return True
        needs = [*effect.read, *(effect.looked_at if self._matter_to(effect) else ())]
        needs += effect.replaced if self._made_rows_of_what_is_gone else ()
        return self._areas.meet(needs, self._partitions)

    @property
    def _made_rows_of_what_is_gone(self) -> bool:
        """Whether they may have made rows of some that are gone: who removes these before leaves others."""
        return self._removed and self._computed

    def _matter_to(self, statement: _Effect) -> bool:
        """Say whether a statement that changed no row of theirs might have done something else before them.

        If it changes what it finds, it found none of the rows that they added. Of the rows that they removed, it might
        have found some: an UPDATE or a MERGE would have made other rows of them, and a DELETE would have left the same,
        unless one of them had made rows of them first.
        """
        if not statement.changes_what_it_finds:
            return True
        return self._made_rows_of_what_is_gone if statement.deletes else self._removed


def _changed_by(commit: Commit, partitioning: Partitioning) -> frozenset[Partition] | None:
    """Return the partitions in which a commit changed rows; ``None`` where it does not say."""
    files: list[Add | Remove] = [*commit.adds, *commit.removes]
    changed = [file for file in files if file.get("dataChange", True)]
    if not all(map(partitioning.named_by, changed)):
        return None
    return frozenset(partitioning.partition(file["partitionValues"]) for file in changed)


def _read_by(commit: Commit) -> Collection[_Area]:
    """Return the areas that rows were computed from: by writers of ours, or by an append that says that it has read.

    What else another engine's commit has read is not in the log.
    """
    if not commit.writers and commit.merger is None:
        appended = commit.operation == "WRITE" and str(commit.parameters.get("mode")) == "Append"
        return (_EVERYWHERE,) if appended and commit.info.get("isBlindAppend") is False else ()
    writers = (*commit.writers, *([commit.merger] if commit.merger is not None else ()))
    return [_Area(writer.reads) for writer in writers if writer.reads is not None and not writer.set_aside]


def _changes_every_match(commit: Commit) -> bool:
    """Say whether a MERGE changes each row of the table that has a match.

    Without a clause for all of them, it may leave such a row as it is, and insert nothing beside it.
    """
    with suppress(ValueError):
        clauses = json.loads(str(commit.parameters.get("matchedPredicates")))
        if commit.operation == "MERGE" and isinstance(clauses, list):
            return any(isinstance(clause, dict) and not clause.get("predicate") for clause in clauses)
    return False


def _replaced_by(commit: Commit) -> Collection[_Area]:
    """Return the areas that a commit replaced, beside the partitions into which it put files."""
    if commit.staged:
        return [_Area(text) for text in commit.staged.get("replaces", ())]
    if commit.operation in _REPLACING:
        return (_EVERYWHERE,)
    parameters = commit.parameters
    dynamic = str(parameters.get("isDynamicPartitionOverwrite")).lower() == "true"
    if commit.operation != "WRITE" or str(parameters.get("mode")) != "Overwrite" or dynamic:
        return ()
    return (_Area(str(parameters.get("predicate") or WHOLE), foreign=True),)


def _looked_at_by(commit: Commit, partitioning: Partitioning) -> Collection[_Area]:
    """Return the areas in which a statement looked for rows; none for a commit of another kind.

    An overwrite by data columns looks for rows as a DELETE does.
    """
    if not commit.data_change or commit.writers or commit.blind_append or commit.operation in _REPLACING:
        return ()
    predicate = str(commit.parameters.get("predicate") or "")
    if commit.operation == "WRITE":
        return (_EVERYWHERE,) if names_other_columns(predicate, partitioning.types) else ()
    record = commit.info.get(STAGED)
    said = record.get(CHANGE) if isinstance(record, dict) else None
    covers = said.get("covers") if isinstance(said, dict) else None
    if isinstance(covers, str) and covers:
        return (_Area(covers),)
    return (_condition(predicate, foreign=said is None) if commit.operation in ("DELETE", "UPDATE") else _EVERYWHERE,)


def _condition(predicate: str, *, foreign: bool) -> _Area:
    """Return the condition of a DELETE or an UPDATE. One that names data columns is no area that anybody knows."""
    with suppress(ValueError):
        found = json.loads(predicate)
        if isinstance(found, list) and len(found) == 1 and isinstance(found[0], str):
            return _Area(found[0], foreign)
    return _EVERYWHERE
