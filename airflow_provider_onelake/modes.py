"""What a write does to what is there: one class a mode, which answers every question about it.

A new mode is a class here, with a place in :data:`MODES`: the rest of the package asks it, and not for its name. An
author writes ``mode=Merge(keys=["id"])``, or the plain name of a mode that needs no terms: ``mode="overwrite"``. Spark
is asked the same by all modes here: to append the rows to a buffer. Only for a merge that is not enough: its buffer is
the source of a statement, ``statements/merge.py``, which knows no other mode.

DAG files import this module, so it imports nothing heavy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import attrs

from airflow_provider_onelake.clauses import (
    INSERT,
    MATCHED,
    NOT_MATCHED_BY_SOURCE,
    UPSERT,
    Clause,
)
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.templates import Templated, is_final, text_or_none

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


_NOT_KEPT = {"kept": False}


@attrs.frozen
class Mode(Templated):
    """What a write does to what is there; unless a mode says otherwise, it replaces the whole table.

    The fields of a mode are its terms. Buffers keep them under these names, unless a field says ``kept: False``.
    """

    name: ClassVar[str]
    """The value of the operator's parameter ``mode``, also in buffers and commits."""
    replaces: ClassVar[bool] = True
    """Whether rows that are there may go. Else a write may be a blind append, which conflicts with nothing."""
    repeats: ClassVar[bool] = False
    """Whether the same write, made again, leaves its rows there twice. A rerun is then skipped by default."""
    by_partition: ClassVar[bool] = False
    """Whether the mode replaces some partitions and leaves others alone, so that it has to tell them apart."""

    allow_empty: ClassVar[bool] = False
    """Whether a write without rows empties what it replaces. A mode that can do so has a field of this name."""
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

    @property
    def deciding(self) -> dict[str, Any]:
        """What of the mode decides which rows are there, beside its bounds: a part of the work's fingerprint.

        Rows that were appended have left those of before, which an overwrite is to replace.
        """
        return {"mode": self.name}

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
        """Return the mode and its terms as they stand in a buffer, where two of them are never missing."""
        kept = attrs.asdict(self, filter=lambda field, _: field.metadata.get("kept", True))
        return {"mode": self.name, "replace_where": None, "allow_empty": False, **kept}


@attrs.frozen
class Append(Mode):
    """Adds rows."""

    name = "append"
    replaces = False
    repeats = True

    @property
    def deciding(self) -> dict[str, Any]:
        """Nothing: an append has the fingerprint of a release in which the mode did not count."""
        return {}


def _yes_or_no(mode: Mode, field: attrs.Attribute[bool], value: bool) -> None:
    if not isinstance(value, bool):
        raise InvalidWriteError(
            f"{type(mode).__name__}({field.name}={value!r}): it is True or False; Airflow renders no templates in it. "
            "Nothing was staged."
        )


@attrs.frozen
class Overwrite(Mode):
    """Replaces the whole table.

    :param allow_empty: whether an overwrite without rows empties the table. Default: no. Not templated.
    :raises InvalidWriteError: ``allow_empty`` is neither yes nor no.
    """

    name = "overwrite"

    allow_empty: bool = attrs.field(default=False, kw_only=True, validator=_yes_or_no)  # type: ignore[misc]


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


def _text(predicate: object) -> str:
    if not isinstance(predicate, str) or not predicate.strip():
        raise InvalidWriteError(
            f"ReplaceWhere({predicate!r}) is no predicate on partition columns, such as \"month = '2019-01'\". Nothing "
            "was staged."
        )
    return predicate.strip()


@attrs.frozen
class ReplaceWhere(Mode):
    """Replaces what a predicate on partition columns covers.

    :param replace_where: the predicate, such as ``month = '2019-01'`` (templated).
    :param allow_empty: whether a write without rows empties what the predicate covers. Default: no. Not templated.
    :raises InvalidWriteError: the predicate is no text, or ``allow_empty`` is neither yes nor no.
    """

    name = "replace_where"
    by_partition = True
    template_fields: ClassVar[tuple[str, ...]] = ("replace_where",)

    replace_where: str = attrs.field(converter=_text)
    allow_empty: bool = attrs.field(default=False, kw_only=True, validator=_yes_or_no)  # type: ignore[misc]

    @property
    def bounds(self) -> str:
        """The predicate."""
        return self.replace_where

    def parameters(self, columns: Iterable[str], predicates: Iterable[str]) -> dict[str, str]:
        """Say which predicates were replaced."""
        said = json.dumps(sorted(set(predicates)))
        return {**super().parameters(columns, predicates), **({"predicate": said} if predicates else {})}


def _listed(name: str, texts: object) -> Any:
    if isinstance(texts, str) and not is_final(texts):
        return texts
    if texts is not None and not isinstance(texts, Sequence):
        raise InvalidWriteError(f"{name}={texts!r} must be a list of texts. Nothing was staged.")
    return (texts,) if isinstance(texts, str) else tuple(texts or ())


def _keys(keys: Sequence[str] | str | None) -> Any:
    if isinstance(keys, str) and is_final(keys) and "," in keys:
        # It may stand for several columns, or for one whose name has a comma.
        raise InvalidWriteError(
            f"keys={keys!r} must be a list: {[key.strip() for key in keys.split(',')]!r}, or {[keys]!r} for one column "
            "of that name. Nothing was staged."
        )
    return _listed("keys", keys)


def _clauses(when: Sequence[str] | str | None) -> Any:
    return _listed("when", when)


@attrs.frozen
class Merge(Mode):
    """Merges the rows into those that are there, as ``MERGE INTO`` does.

    :param keys: a list of the columns by which a row of the source and one of the table match. No two rows of the
        source may have equal keys, and none NULL in one (templated).
    :param on: in place of ``keys``, the condition by which a row of ``target`` and one of ``source`` match, in Spark
        SQL, as in ``target.id = source.id AND target.valid_to IS NULL``. Spark then looks at the whole table
        (templated).
    :param when: the clauses in SQL, in their order, such as ``MATCHED AND source.op = 'd' THEN DELETE``,
        ``MATCHED THEN UPDATE SET target.fare = source.fare``, ``NOT MATCHED THEN INSERT *`` or
        ``NOT MATCHED BY SOURCE AND target.day = '2024-01-01' THEN DELETE``. The source may then have other columns than
        the table. Default: ``MATCHED THEN UPDATE SET *`` and ``NOT MATCHED THEN INSERT *``, with the table's columns
        (templated).
    :param covers: a predicate on partition columns that names the partitions in which rows may change, go or come.
        Spark does not look at others, and what others do there does not matter. A row of the source that would come
        into another partition fails the task. Default: the whole table (templated).
    :param max_rounds: how many times Spark may run the merge, each time because others changed rows that it may
        concern, before the task fails. Default: 5. Not templated.
    :param allow_empty: whether a merge without rows does what its ``NOT MATCHED BY SOURCE`` says. Default: no. Not
        templated.
    :raises InvalidWriteError: neither ``keys`` nor ``on`` is given, or both are; or a term is of the wrong kind.
    """

    name = "merge"
    in_rounds = True
    template_fields: ClassVar[tuple[str, ...]] = ("keys", "on", "when", "covers")

    keys: tuple[str, ...] = attrs.field(default=(), converter=_keys)
    on: str | None = attrs.field(default=None, converter=text_or_none)
    when: tuple[str, ...] = attrs.field(default=(), converter=_clauses)
    covers: str | None = attrs.field(default=None, converter=text_or_none)
    max_rounds: int = attrs.field(default=5, metadata=_NOT_KEPT, eq=False)
    allow_empty: bool = attrs.field(default=False, kw_only=True, validator=_yes_or_no)  # type: ignore[misc]

    def __attrs_post_init__(self) -> None:
        if bool(self.keys) == bool(self.on):
            raise InvalidWriteError(
                "A merge needs either `keys`, the columns by which rows match, or the condition `on`, which names the "
                "two sides target and source: Merge(keys=['id']). Nothing was staged."
            )
        if isinstance(self.max_rounds, bool) or not isinstance(self.max_rounds, int) or self.max_rounds < 1:
            raise InvalidWriteError(f"max_rounds={self.max_rounds!r}: a whole number, at least 1. Nothing was staged.")
        if not is_final(self):
            return
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

    @property
    def deciding(self) -> dict[str, Any]:
        """How rows match, what becomes of them, and where."""
        covers = {"covers": self.covers} if self.covers else {}
        return {**super().deciding, "merge": [self.keys or None, self.on, self.when or None], **covers}

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


def mode_of(asked: object) -> Mode:
    """Return the mode that an author asks for.

    :param asked: a mode; the name of one that needs no terms; or a dict of a mode with its terms, as
        :meth:`Mode.to_json` returns it, which is what a task can leave in XCom.
    :raises InvalidWriteError: there is no such mode, or a term of it is missing, wrong or of another mode.
    """
    if isinstance(asked, Mode):
        return asked
    terms: Mapping[str, Any] = asked if isinstance(asked, Mapping) else {"mode": asked}
    name = terms["mode"].strip() if isinstance(terms.get("mode"), str) else terms.get("mode")
    if name not in MODES:
        raise InvalidWriteError(f"mode={name!r} is unknown; it is one of {', '.join(MODES)}.")
    takes = ("mode", *attrs.fields_dict(MODES[name]))
    if odd := [term for term, value in terms.items() if value and term not in takes]:
        raise InvalidWriteError(f"mode={name!r} takes no {odd[0]}. Nothing was staged.")
    return mode_from({**terms, "mode": name})


def mode_from(kept: Mapping[str, Any]) -> Mode:
    """Return the mode that a buffer has.

    :param kept: what :meth:`Mode.to_json` returned, and whatever else stands beside it.
    :raises KeyError: there is no such mode.
    :raises InvalidWriteError: a term of it is missing or wrong.
    """
    mode = MODES[kept["mode"]]
    given = {term: kept[term] for term in attrs.fields_dict(mode) if kept.get(term)}
    missing = [term.name for term in attrs.fields(mode) if term.default is attrs.NOTHING and term.name not in given]
    if missing:
        raise InvalidWriteError(
            f"mode={mode.name!r} needs its {missing[0]}: mode={mode.__name__}({missing[0]}=…). Nothing was staged."
        )
    return mode(**given)


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
