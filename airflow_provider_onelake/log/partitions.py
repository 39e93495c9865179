"""Partitions by typed value, not by spelling, and predicates over them.

One partition has many spellings in a log: an instant has three by engine and time zone, ``1`` may be ``1.0``, and the
empty string means NULL (protocol: typed partition values). The typed values stand in the order of the partition
columns. A log entry calls a column by its physical name; people and predicates call it by its current name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.actions import Add, Metadata, Remove
from airflow_provider_onelake.log.bounds import exactly
from airflow_provider_onelake.log.comparisons import TRUE, Condition, all_of
from airflow_provider_onelake.log.predicates import compile_predicate
from airflow_provider_onelake.log.schema import CHAR_OR_VARCHAR, COLLATIONS, Column, columns, partition_columns
from airflow_provider_onelake.log.types import JsonType
from airflow_provider_onelake.log.values import (
    Partition,
    PartitionValue,
    Unreadable,
    typed_value,
    without_zone,
)

_File = TypeVar("_File", bound=Mapping[str, Any])
_CHAR = re.compile(r"char\([0-9]+\)")
_COLLATED = "string collate "


def compared_as(column: Column) -> JsonType:
    """Return the type by which Spark compares a column; CHAR and collated columns it compares as no plain strings."""
    declared = str(column.metadata.get(CHAR_OR_VARCHAR) or "")
    if _CHAR.fullmatch(declared):
        return declared
    collations = column.metadata.get(COLLATIONS)
    if isinstance(collations, Mapping) and collations:
        return f"{_COLLATED}{', '.join(map(str, collations.values()))}"
    return column.type


@attrs.frozen
class Partitioning:
    """How a table is partitioned: the partition columns and their types, in order.

    :param types: Spark's type names by column name, as users write it.
    :param physical: the physical name of every column whose physical name differs; ``partitionValues`` use it.
    """

    types: Mapping[str, JsonType]
    physical: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @classmethod
    def of(cls, metadata: Metadata) -> Partitioning:
        """Return the partitioning that a table's metadata describes.

        :param metadata: a ``metaData`` action's body.
        """
        by_name = columns(metadata)
        names = partition_columns(metadata)
        return cls(
            {name: compared_as(by_name[name]) for name in names},
            {name: by_name[name].physical_name for name in names if by_name[name].physical_name != name},
        )

    @property
    def names(self) -> dict[str, str]:
        """The columns' names by physical name, for the columns whose physical name differs."""
        return {physical: name for name, physical in self.physical.items()}

    def partition(self, values: Mapping[str, str | None]) -> Partition:
        """Return a file's partition, typed.

        :param values: an action's ``partitionValues``. A spelling that is no value of its column's type becomes
            :class:`Unreadable`, so that it is a problem only for a write that touches this partition.
        """
        return tuple(_value(values.get(self.physical.get(name, name)), kind) for name, kind in self.types.items())

    def divided(self, files: Iterable[_File]) -> dict[Partition, list[_File]]:
        """Return files by their typed partitions.

        :param files: raw actions that name their partitions.
        """
        found: dict[Partition, list[_File]] = {}
        for file in files:
            found.setdefault(self.partition(file["partitionValues"]), []).append(file)
        return found

    def named_by(self, file: Add | Remove) -> bool:
        """Say whether an action names its file's partition: its ``partitionValues`` must have every partition column.

        :param file: an ``add`` or ``remove``; a ``remove`` may have no ``partitionValues``.
        """
        values = file.get("partitionValues")
        return values is not None and all(self.physical.get(name, name) in values for name in self.types)

    def ambiguous(self, partition: Partition) -> bool:
        """Say whether a typed partition holds an instant whose time zone is unknown."""
        return any(
            kind == "timestamp" and without_zone(value)
            for value, kind in zip(partition, self.types.values(), strict=True)
        )

    @property
    def folds_texts(self) -> bool:
        """Whether Spark may take two texts for one value of a partition column, which is CHAR or has a collation."""
        texts = [kind for kind in self.types.values() if isinstance(kind, str)]
        return any(_CHAR.fullmatch(kind) or kind.startswith(_COLLATED) for kind in texts)

    @staticmethod
    def as_spark_reads(partition: Partition) -> Partition:
        """Return a typed partition as Spark reads it: what is no value of its column's type is NULL."""
        return tuple(None if isinstance(value, Unreadable) else value for value in partition)

    def describe(self, partition: Partition) -> str:
        """Return a typed partition as people write it: ``month=2019-01``."""
        if not self.types:
            return "the table"
        return "/".join(f"{name}={_shown(v)}" for name, v in zip(self.types, partition, strict=True))


def _value(spelling: str | None, kind: JsonType) -> PartitionValue:
    try:
        return typed_value(spelling, kind)
    except ValueError:
        return Unreadable(str(spelling))


def _shown(value: PartitionValue) -> str:
    if value is None:
        return "NULL"
    return f"X'{value.hex().upper()}'" if isinstance(value, bytes) else str(value)


def everything(_: Partition) -> bool:
    """Say yes of every partition."""
    return True


@attrs.define(eq=False)
class InPartitions:
    """A condition on files that looks at their raw ``partitionValues`` alone, and is tested once for each of these.

    :param test: says whether files with some ``partitionValues`` meet it; always the same of the same.
    """

    _test: Callable[[Mapping[str, str | None]], bool]
    _known: dict[tuple[tuple[str, str | None], ...], bool] = attrs.field(factory=dict, init=False, repr=False)

    def __call__(self, add: Add) -> bool:
        """Say whether a file meets the condition."""
        return self.meets(add["partitionValues"])

    def meets(self, values: Mapping[str, str | None]) -> bool:
        """Say whether files with some ``partitionValues`` meet the condition."""
        key = tuple(values.items())
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._test(values)
        return known


@attrs.frozen
class PartitionPredicate:
    """A condition on partition columns alone, so that a whole file either meets it or does not.

    :param text: the predicate as the user wrote it, in Spark SQL.
    """

    text: str
    partitioning: Partitioning = attrs.field(repr=False)
    _test: Condition = attrs.field(repr=False, eq=False)

    @classmethod
    def parse(cls, text: str, partitioning: Partitioning) -> PartitionPredicate:
        """Read a predicate: comparisons, IN, BETWEEN, IS NULL, AND, OR, NOT over partition columns and literals.

        :param text: the predicate, in Spark SQL.
        :raises InvalidWriteError: the text is no predicate on partition columns, or it compares a column with a literal
            of another type in a way for which Spark's answer depends on its settings.
        """
        return cls.parse_all([text], partitioning)

    @classmethod
    def parse_all(cls, texts: Iterable[str], partitioning: Partitioning) -> PartitionPredicate:
        """Read predicates that must all hold; each text is parsed by itself, so that none can change another's meaning.

        :param texts: the predicates, in Spark SQL; at least one.
        :raises InvalidWriteError: as in :meth:`parse`.
        """
        texts = list(texts)
        tests = [compile_predicate(text, partitioning.types) for text in texts]
        whole = texts[0] if len(texts) == 1 else " AND ".join(f"({text})" for text in texts)
        return cls(whole, partitioning, all_of(tests))

    def covers(self, partition: Partition) -> bool:
        """Say whether the predicate is true for a typed partition; NULL is not true.

        :raises InvalidWriteError: it cannot be known, see :meth:`judge`.
        """
        judged = self.judge(partition)
        if judged is None:
            raise InvalidWriteError(
                f"Whether {self.text!r} holds for the partition {self.partitioning.describe(partition)} nobody knows: "
                "its value is spelled without a time zone, or not as one of its type. Nothing was changed. Rewrite "
                "that partition, or leave it out by a condition on another column."
            )
        return judged

    def judge(self, partition: Partition) -> bool | None:
        """Say whether the predicate is true for a typed partition; ``None`` where that cannot be known.

        It cannot be known if the partition holds an instant without a time zone, or a spelling that is no value of its
        column's type, unless the rest of the predicate decides.
        """
        outcomes = self._test(tuple(map(exactly, partition, self.partitioning.types.values())))
        return True if outcomes == TRUE else None if outcomes & TRUE else False
