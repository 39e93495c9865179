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
        if commit.version in certain or followers.must_follow(commit):
            if areas.meet(_read_by(commit), [place for place in placed.changed if place not in hidden]):
                return commit, "computed its rows from the table without theirs"
            if areas.meet(_looked_at_by(commit, partitioning), [place for place in placed.rows if place not in hidden]):
                return commit, "looked for rows of the table when theirs were not there"
            followers.add(commit)
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

    def meet(self, predicates: Iterable[str], partitions: Collection[Partition]) -> bool:
        """Say whether some of the partitions are in the areas. Where that cannot be known, they are.

        :param partitions: typed.
        """
        return bool(partitions) and any(self._has_any(predicate, partitions) for predicate in predicates)

    def _has_any(self, predicate: str, partitions: Collection[Partition]) -> bool:
        if predicate not in self._parsed:
            self._parsed[predicate] = None
            with suppress(InvalidWriteError):
                self._parsed[predicate] = PartitionPredicate.parse(predicate, self.partitioning)
        area = self._parsed[predicate]
        if area is None or not self.are_known:
            return True
        return any(area.judge(partition) is not False for partition in partitions)


@attrs.define
class _Followers:
    """The commits that must count after a batch, of those that were looked at so far.

    :param _partitions: in which they changed rows.
    :param _claimed: the areas that they read, looked at or replaced.
    :param _removed: whether one of them removed rows, so that a statement might have found other ones before it.
    """

    _areas: _Areas
    _partitions: set[Partition] = attrs.field(factory=set)
    _claimed: set[str] = attrs.field(factory=set)
    _removed: bool = False

    def add(self, commit: Commit) -> None:
        """Take in a commit that must count after the batch."""
        partitioning = self._areas.partitioning
        changed = _changed_by(commit, partitioning)
        self._partitions |= changed or set()
        self._claimed |= {*_read_by(commit), *_looked_at_by(commit, partitioning), *_replaced_by(commit)}
        self._claimed |= {WHOLE} if changed is None else set()
        self._removed = self._removed or not commit.blind_append

    def must_follow(self, commit: Commit) -> bool:
        """Say whether a commit must count after one of them, because it might do something else before.

        :param commit: that landed after all of them, or counts as if it had.
        """
        if not commit.data_change:
            return False
        partitioning = self._areas.partitioning
        changed = _changed_by(commit, partitioning)
        if changed is None or not changed.isdisjoint(self._partitions) or self._areas.meet(self._claimed, changed):
            return True
        needs = [*_read_by(commit), *(_looked_at_by(commit, partitioning) if self._matters_to(commit) else ())]
        return self._areas.meet(needs, self._partitions)

    def _matters_to(self, statement: Commit) -> bool:
        """Say whether a statement that changed no row of theirs might have done something else before them.

        It found none of the rows that they added. Of the rows that they removed, a DELETE would have removed some, and
        left the same. An UPDATE or a MERGE might have moved such a row elsewhere, or have inserted one less.
        """
        return self._removed and statement.operation not in ("DELETE", "WRITE")


def _changed_by(commit: Commit, partitioning: Partitioning) -> set[Partition] | None:
    """Return the partitions in which a commit changed rows; ``None`` where it does not say."""
    files: list[Add | Remove] = [*commit.adds, *commit.removes]
    changed = [file for file in files if file.get("dataChange", True)]
    if not all(map(partitioning.named_by, changed)):
        return None
    return {partitioning.partition(file["partitionValues"]) for file in changed}


def _read_by(commit: Commit) -> Iterable[str]:
    """Return the areas that writers of ours computed their rows from."""
    writers = (*commit.writers, *([commit.merger] if commit.merger is not None else ()))
    return [writer.reads for writer in writers if writer.reads is not None and not writer.set_aside]


def _replaced_by(commit: Commit) -> Iterable[str]:
    """Return the areas that a commit replaced, beside the partitions into which it put files."""
    if commit.staged:
        return list(commit.staged.get("replaces", ()))
    if commit.operation in _REPLACING:
        return (WHOLE,)
    parameters = commit.parameters
    dynamic = str(parameters.get("isDynamicPartitionOverwrite")).lower() == "true"
    if commit.operation != "WRITE" or str(parameters.get("mode")) != "Overwrite" or dynamic:
        return ()
    return (str(parameters.get("predicate") or WHOLE),)


def _looked_at_by(commit: Commit, partitioning: Partitioning) -> Iterable[str]:
    """Return the areas in which a statement looked for rows; none for a commit of another kind.

    An overwrite by data columns looks for rows as a DELETE does.
    """
    if not commit.data_change or commit.writers or commit.blind_append or commit.operation in _REPLACING:
        return ()
    predicate = str(commit.parameters.get("predicate") or "")
    if commit.operation == "WRITE":
        return (WHOLE,) if names_other_columns(predicate, partitioning.types) else ()
    record = commit.info.get(STAGED)
    said = record.get(CHANGE) if isinstance(record, dict) else None
    covers = said.get("covers") if isinstance(said, dict) else None
    if isinstance(covers, str) and covers:
        return (covers,)
    return _conditions(predicate) if commit.operation in ("DELETE", "UPDATE") else (WHOLE,)


def _conditions(predicate: str) -> Iterable[str]:
    """Return the condition of a DELETE or an UPDATE. One that names data columns is no area that anybody knows."""
    with suppress(ValueError):
        found = json.loads(predicate)
        if isinstance(found, list) and len(found) == 1 and isinstance(found[0], str):
            return (found[0],)
    return (WHOLE,)
