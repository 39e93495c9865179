"""Which files of a version a read opens, and which it skips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from airflow_provider_onelake.log.actions import Add
from airflow_provider_onelake.log.bounds import UNKNOWN, Bounds, bounds_of, exactly
from airflow_provider_onelake.log.comparisons import TRUE
from airflow_provider_onelake.log.values import PartitionValue
from airflow_provider_onelake.rows.layout import Layout
from airflow_provider_onelake.rows.where import Where


@attrs.define(kw_only=True)
class ReadReport:
    """What a read opened, and what it could leave out.

    Until the rows are taken, it says what is planned: ``bytes_fetched``, ``rows_read`` and ``rows`` grow meanwhile.

    :param table: its address.
    :param version: that is read.
    :param files: that the version has, and ``bytes`` in them.
    :param files_skipped_by_partition: whose partition has no row of those asked for, and
        ``bytes_skipped_by_partition`` in them.
    :param files_skipped_by_statistics: whose statistics say that no row is one of those asked for, and
        ``bytes_skipped_by_statistics`` in them.
    :param files_read: all others, and ``bytes_read`` in them.
    :param bytes_fetched: what came from the store of the files that are read: the columns asked for, footers, deletion
        vectors.
    :param rows_read: rows of the files that were looked at.
    :param rows: that were returned.
    """

    table: str
    version: int
    files: int = 0
    bytes: int = 0
    files_skipped_by_partition: int = 0
    bytes_skipped_by_partition: int = 0
    files_skipped_by_statistics: int = 0
    bytes_skipped_by_statistics: int = 0
    files_read: int = 0
    bytes_read: int = 0
    bytes_fetched: int = 0
    rows_read: int = 0
    rows: int = 0

    @property
    def files_skipped(self) -> int:
        """How many files are not opened."""
        return self.files_skipped_by_partition + self.files_skipped_by_statistics

    @property
    def bytes_skipped(self) -> int:
        """How many bytes are in files that are not opened."""
        return self.bytes_skipped_by_partition + self.bytes_skipped_by_statistics

    def to_json(self) -> dict[str, Any]:
        """Return it for programs, such as XCom."""
        return {**attrs.asdict(self), "files_skipped": self.files_skipped, "bytes_skipped": self.bytes_skipped}

    def __str__(self) -> str:
        return (
            f"version {self.version} of {self.table}: {self.rows} rows from {self.files_read} of {self.files} files, "
            f"{self.bytes_fetched} of {self.bytes} bytes fetched; {self.files_skipped_by_partition} files skipped by "
            f"their partition, {self.files_skipped_by_statistics} by their statistics"
        )


@attrs.frozen
class Chosen:
    """A file that is read.

    :param partition: its typed partition values, by column.
    :param filtered: whether the condition may leave out rows of it.
    """

    add: Add
    partition: Mapping[str, PartitionValue]
    filtered: bool


class FileFilter:
    """What a condition may be on the rows of a file, by the file's partition and its statistics.

    :param layout: of the table.
    :param where: the condition.
    """

    def __init__(self, layout: Layout, where: Where) -> None:
        self._layout, self._where = layout, where
        self._types = layout.compared_as
        self._wanted = {
            at: layout.columns[name]
            for at, name in enumerate(self._types)
            if name in where.names - layout.partitioned_by
        }

    def by_partition(self, partition: Mapping[str, PartitionValue]) -> int:
        """Return the outcomes that a partition leaves possible, as bits of ``log.comparisons``.

        :param partition: typed values, by column.
        """
        return self._where.outcomes(self._known(partition))

    def by_statistics(self, add: Add, partition: Mapping[str, PartitionValue]) -> int:
        """Return the outcomes that a file's partition and statistics leave possible.

        :param partition: of the file.
        """
        of_file = self._known(partition)
        for at, bounds in bounds_of(add, self._wanted).items():
            of_file[at] = bounds
        return self._where.outcomes(of_file)

    def _known(self, partition: Mapping[str, PartitionValue]) -> list[Bounds]:
        return [exactly(partition[name], kind) if name in partition else UNKNOWN for name, kind in self._types.items()]

    def may_hold(self, add: Add) -> bool:
        """Say whether a file may have a row for which the condition holds; in doubt it may.

        A deletion vector only hides rows, so bounds of all rows of the file are bounds of those that it leaves too.

        :param add: the file.
        """
        partition = self._layout.partition_of(add)
        return bool(self.by_partition(partition) & TRUE and self.by_statistics(add, partition) & TRUE)


def choose(files: Iterable[Add], layout: Layout, where: Where | None, report: ReadReport, table: str) -> list[Chosen]:
    """Choose the files that may have a row for which a condition holds.

    :param files: of the version.
    :param where: the condition; ``None`` for all rows.
    :param report: gets what was chosen and what was skipped.
    :param table: what messages call the table.
    :raises CorruptLogError: the partition of a file that is to be read has a value that is none of its column's type.
    """
    of_files = FileFilter(layout, where) if where is not None else None
    chosen = []
    for add in files:
        partition = layout.partition_of(add)
        size = int(add["size"])
        report.files += 1
        report.bytes += size
        filtered = False
        if of_files is not None:
            outcomes = of_files.by_partition(partition)
            if not outcomes & TRUE:
                report.files_skipped_by_partition += 1
                report.bytes_skipped_by_partition += size
                continue
            filtered = outcomes != TRUE
            if filtered and not of_files.by_statistics(add, partition) & TRUE:
                report.files_skipped_by_statistics += 1
                report.bytes_skipped_by_statistics += size
                continue
        layout.check_partition(partition, table)
        report.files_read += 1
        report.bytes_read += size
        chosen.append(Chosen(add, partition, filtered))
    return chosen
