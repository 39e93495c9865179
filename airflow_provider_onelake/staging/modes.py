"""What a write does to what is there: one class a mode, which answers every question about it.

A new mode is a class here, with a place in :data:`MODES`; nothing else of the package asks which mode a write has. A
term of the mode becomes a parameter of the operator. Spark is asked the same by all modes here: to append the rows to a
buffer. For a merge that is not enough: its buffer is its source, see ``commit/merge.py``.

DAG files import this module, so it imports nothing heavy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.staging.clauses import (
    INSERT,
    MATCHED,
    NOT_MATCHED_BY_SOURCE,
    UPSERT,
    Clause,
)

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

    in_rounds: ClassVar[bool] = False
    """Whether the buffer's rows are the source of a statement that Spark runs in rounds, and are never appended."""

    @property
    def own_columns(self) -> bool:
        """Whether the buffer has the columns of the source, and not those of the table."""
        return False

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


def _listed(name: str, texts: object) -> tuple[str, ...]:
    if not isinstance(texts, Sequence):
        raise InvalidWriteError(f"{name}={texts!r} must be a list of texts. Nothing was staged.")
    return (texts,) if isinstance(texts, str) else tuple(texts)


def _keys(keys: Sequence[str] | str) -> tuple[str, ...]:
    if isinstance(keys, str) and "," in keys:
        # It may stand for several columns, or for one whose name has a comma.
        raise InvalidWriteError(
            f"keys={keys!r} must be a list: {[key.strip() for key in keys.split(',')]!r}, or {[keys]!r} for one column "
            "of that name. Nothing was staged."
        )
    return _listed("keys", keys)


def _clauses(when: Sequence[str] | str) -> tuple[str, ...]:
    return _listed("when", when)


@attrs.frozen
class Merge(Mode):
    """Merges the rows into those that are there.

    :param keys: the columns by which a row of the source and one of the table match.
    :param on: the condition by which they match, in Spark SQL, where no keys are given.
    :param when: the clauses, in SQL. Default: rows that match are updated, and others inserted.
    :param covers: a predicate on the table's partition columns: in no other partition does a row change or come.
        Default: all partitions.
    :raises InvalidWriteError: neither keys nor a condition is given, or both are; or a clause is none.
    """

    name = "merge"
    in_rounds = True

    keys: tuple[str, ...] = attrs.field(default=(), converter=_keys)
    on: str | None = None
    when: tuple[str, ...] = attrs.field(default=(), converter=_clauses)
    covers: str | None = None

    def __attrs_post_init__(self) -> None:
        if bool(self.keys) == bool(self.on):
            raise InvalidWriteError(
                "mode='merge' needs either `keys`, the columns by which rows match, or the condition `on`, which names "
                "the two sides target and source. Nothing was staged."
            )
        named = [key.strip().lower() if isinstance(key, str) else "" for key in self.keys]
        if self.keys and (not all(named) or len({*named}) != len(named)):
            raise InvalidWriteError(f"keys={list(self.keys)!r}: the names of different columns. Nothing was staged.")
        for text in self.when:
            Clause.parse(text)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The clauses, in their order."""
        return tuple(map(Clause.parse, self.when)) or UPSERT

    @property
    def condition(self) -> str:
        """When rows match, in Spark SQL."""
        quoted = ("`" + key.strip().replace("`", "``") + "`" for key in self.keys)
        return self.on or " AND ".join(f"target.{key} = source.{key}" for key in quoted)

    def replaced(self, rows: _Partitions, partitioning: Partitioning, writer: str) -> Range:
        """Return the partitions in which rows may change."""
        return _predicate(self.covers or EVERYTHING, partitioning)

    @property
    def own_columns(self) -> bool:
        """Only a source that is inserted and updated as it is must have the table's columns."""
        return bool(self.when or self.on)

    @property
    def inserts(self) -> bool:
        """Whether rows of the source may become rows of the table."""
        return any(clause.action == INSERT for clause in self.clauses)

    @property
    def touches_matches(self) -> bool:
        """Whether every row that matches is updated or deleted, so that a file that is left alone held none."""
        return any(clause.case == MATCHED and clause.condition is None for clause in self.clauses)

    @property
    def looks_everywhere(self) -> bool:
        """Whether rows may change that no row of the source matches."""
        return any(clause.case == NOT_MATCHED_BY_SOURCE for clause in self.clauses)


MODES: dict[str, type[Mode]] = {
    mode.name: mode for mode in (Append, Overwrite, OverwritePartitions, ReplaceWhere, Merge)
}
"""The modes by name."""


def mode_of(name: str, terms: Mapping[str, Any]) -> Mode:
    """Return a mode with its terms.

    :param name: of the mode.
    :param terms: of any mode, and whatever else stands beside them. A term that is ``None`` or empty is not given.
    :raises KeyError: there is no such mode.
    :raises InvalidWriteError: a term of the mode is missing, or one of another mode is given.
    """
    takes = attrs.fields_dict(MODES[name])
    for other in MODES.values():
        for term, field in attrs.fields_dict(other).items():
            if term in takes and field.default is attrs.NOTHING and not terms.get(term):
                raise InvalidWriteError(
                    f"mode={name!r} needs the predicate `{term}`, which the writer or its group gives."
                )
            if term not in takes and terms.get(term):
                raise InvalidWriteError(f"mode={name!r} takes no {term}; did you mean mode={other.name!r}?")
    return MODES[name](**{term: terms[term] for term in takes if terms.get(term)})


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
