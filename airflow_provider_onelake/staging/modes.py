"""What a write does to what is there: one class a mode, which answers every question about it.

A new mode is a class here, with a place in :data:`MODES`; nothing else of the package asks which mode a write has. A
term of the mode becomes a parameter of the operator. Spark is asked the same by all modes here: to append the rows to a
buffer. A mode for which that is not enough also needs a Spark job, and a proposal of its own in ``commit/``.

DAG files import this module, so it imports nothing heavy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError

if TYPE_CHECKING:
    from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate
    from airflow_provider_onelake.log.values import Partition

    _Partitions = Collection[Partition]
    _Test = Callable[[Partition], bool]


EVERYTHING = "true"
"""The predicate of a write that replaces the whole table."""


class Range(Protocol):
    """The partitions that a write replaces, whatever is in them."""

    @property
    def text(self) -> str | None:
        """The predicate, in Spark SQL; ``None`` where the partitions that get rows are the range."""

    def covers(self, partition: Partition) -> bool:
        """Say whether the write replaces a partition.

        :raises InvalidWriteError: the answer is not known, because a value does not have its column's type.
        """


@attrs.frozen
class Mode:
    """What a write does to what is there; unless a mode says otherwise, it replaces the whole table.

    The fields of a mode are its terms, under the names of the operator's parameters.
    """

    name: ClassVar[str]
    """The value of the operator's parameter ``mode``, also in buffers and commits."""
    replaces: ClassVar[bool] = True
    """Whether rows that are there may go. Else a write may be a blind append, which conflicts with nothing."""
    repeats: ClassVar[bool] = False
    """Whether the same write, made again, leaves its rows there twice. A rerun is then skipped by default."""
    by_partition: ClassVar[bool] = False
    """Whether the mode replaces some partitions and leaves others alone, so that it has to tell them apart."""

    @property
    def bounds(self) -> str | None:
        """The predicate on partition columns that all rows must meet; ``None`` for no such predicate."""
        return None

    def replaced(self, rows: _Partitions, partitioning: Partitioning, writer: str) -> Range | None:
        """Return what a buffer replaces, or ``None`` for nothing.

        :param rows: the partitions to which its rows belong; without any, the author wants to empty what is replaced.
        :param writer: what messages call the writer.
        :raises InvalidWriteError: the bounds are not on partition columns.
        """
        return _predicate(self.bounds or EVERYTHING, partitioning) if self.replaces else None

    def parameters(self, columns: Iterable[str], predicates: Iterable[str]) -> dict[str, str]:
        """Return the ``operationParameters`` of the commit, as Delta writes them (protocol: texts in commitInfo).

        :param columns: the table's partition columns.
        :param predicates: texts of what the commit replaces.
        """
        return {"mode": "Overwrite" if self.replaces else "Append", "partitionBy": json.dumps(list(columns))}

    @classmethod
    def replaced_by(cls, predicates: Iterable[str], rows: _Partitions, partitioning: Partitioning) -> _Test:
        """Return a function that tells what a winner of this mode replaced, as far as its log entry says.

        :param predicates: of the entry.
        :param rows: the partitions into which the entry put files.
        :param partitioning: with the columns' names as the predicates have them.
        :raises InvalidWriteError: a predicate is not on partition columns.
        """
        ranges = [_predicate(text, partitioning) for text in predicates]
        return lambda partition: any(found.covers(partition) for found in ranges)

    def to_json(self) -> dict[str, Any]:
        """Return the mode and its terms as they stand in a buffer, where ``replace_where`` is never missing."""
        return {"mode": self.name, "replace_where": None, **attrs.asdict(self)}


@attrs.frozen
class Append(Mode):
    """Adds rows."""

    name = "append"
    replaces = False
    repeats = True


@attrs.frozen
class Overwrite(Mode):
    """Replaces the whole table."""

    name = "overwrite"


@attrs.frozen
class OverwritePartitions(Mode):
    """Replaces the partitions that get rows."""

    name = "overwrite_partitions"
    by_partition = True

    def replaced(self, rows: _Partitions, partitioning: Partitioning, writer: str) -> Range | None:
        """Return the partitions that get rows."""
        return _Filled(rows, partitioning, writer) if rows else None

    def parameters(self, columns: Iterable[str], predicates: Iterable[str]) -> dict[str, str]:
        """Say that the overwrite is dynamic."""
        return {**super().parameters(columns, predicates), "isDynamicPartitionOverwrite": "true"}

    @classmethod
    def replaced_by(cls, predicates: Iterable[str], rows: _Partitions, partitioning: Partitioning) -> _Test:
        """Tell the partitions that got files."""
        return rows.__contains__


@attrs.frozen
class ReplaceWhere(Mode):
    """Replaces what a predicate on partition columns covers.

    :param replace_where: the predicate.
    """

    name = "replace_where"
    by_partition = True

    replace_where: str

    @property
    def bounds(self) -> str:
        """The predicate."""
        return self.replace_where

    def parameters(self, columns: Iterable[str], predicates: Iterable[str]) -> dict[str, str]:
        """Say which predicates were replaced."""
        said = json.dumps(sorted(set(predicates)))
        return {**super().parameters(columns, predicates), **({"predicate": said} if predicates else {})}


MODES: dict[str, type[Mode]] = {mode.name: mode for mode in (Append, Overwrite, OverwritePartitions, ReplaceWhere)}
"""The modes by name."""


def mode_of(name: str, terms: Mapping[str, Any]) -> Mode:
    """Return a mode with its terms.

    :param name: of the mode.
    :param terms: of any mode, and whatever else stands beside them. A term that is ``None`` or empty is not given.
    :raises KeyError: there is no such mode.
    :raises InvalidWriteError: a term of the mode is missing, or one of another mode is given.
    """
    takes = [field.name for field in attrs.fields(MODES[name])]
    for other in MODES.values():
        for term in (field.name for field in attrs.fields(other)):
            if term in takes and not terms.get(term):
                raise InvalidWriteError(f"mode={name!r} needs the predicate `{term}`.")
            if term not in takes and terms.get(term):
                raise InvalidWriteError(f"mode={name!r} takes no {term}; did you mean mode={other.name!r}?")
    return MODES[name](**{term: terms[term] for term in takes})


def _predicate(text: str, partitioning: Partitioning) -> PartitionPredicate:
    from airflow_provider_onelake.log.partitions import PartitionPredicate

    return PartitionPredicate.parse(text, partitioning)


@attrs.frozen
class _Filled:
    """The partitions that get rows, as a range."""

    rows: _Partitions
    partitioning: Partitioning
    writer: str
    text: ClassVar[None] = None

    def covers(self, partition: Partition) -> bool:
        if partition in self.rows:
            return True
        # Spark reads an unreadable value as NULL, and may be the only engine that reads it at all.
        if self.partitioning.as_spark_reads(partition) not in self.rows:
            return False
        raise InvalidWriteError(
            f"Writer {self.writer!r} overwrites the partition of NULL, and the table has files whose partition is "
            f"spelled {self.partitioning.describe(partition)}, which Spark reads as NULL too. Nothing was published. "
            "Rewrite or remove those rows with Spark, or append."
        )
