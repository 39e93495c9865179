"""The columns of a table in one version, as a reader needs them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import CorruptLogError, InvalidReadError
from airflow_provider_onelake.log.actions import Add, Metadata
from airflow_provider_onelake.log.partitions import Partitioning, compared_as
from airflow_provider_onelake.log.schema import Column, column_mapping, columns
from airflow_provider_onelake.log.types import JsonType, sql_name
from airflow_provider_onelake.log.values import PartitionValue, Unreadable
from airflow_provider_onelake.rows.arrow import arrow_field

if TYPE_CHECKING:
    import pyarrow as pa


@attrs.frozen
class Layout:
    """The columns of a table.

    :param fields: the JSON of each column's field, by name, in order.
    :param columns: the same, read.
    :param partitioning: the partition columns.
    :param mapping: the mode of column mapping: ``none``, ``name`` or ``id``.
    """

    fields: Mapping[str, Mapping[str, Any]] = attrs.field(repr=False)
    columns: Mapping[str, Column] = attrs.field(repr=False)
    partitioning: Partitioning
    mapping: str

    @classmethod
    def of(cls, metadata: Metadata) -> Layout:
        """Return the columns that a table's metadata describes.

        :param metadata: a ``metaData`` action's body.
        """
        fields = {field["name"]: field for field in json.loads(metadata["schemaString"])["fields"]}
        return cls(fields, columns(metadata), Partitioning.of(metadata), column_mapping(metadata))

    @property
    def partitioned_by(self) -> frozenset[str]:
        """The names of the partition columns."""
        return frozenset(self.partitioning.types)

    @property
    def compared_as(self) -> dict[str, JsonType]:
        """The type by which each column is compared, in order."""
        return {name: compared_as(column) for name, column in self.columns.items()}

    def chosen(self, names: Sequence[str] | None, table: str) -> list[str]:
        """Return the columns to read, as the table spells them.

        :param names: as the caller spells them, in the order that the rows are to have; ``None`` for all.
        :param table: what messages call the table.
        :raises InvalidReadError: there is no such column, a column is named twice, or none is.
        """
        if names is None:
            return list(self.fields)
        if isinstance(names, str) or not names:
            raise InvalidReadError(
                f"columns={names!r} must be a list of names of columns of {table}. Nothing was read."
            )
        by_small = {name.lower(): name for name in self.fields}
        unknown = [str(name) for name in names if str(name).lower() not in by_small]
        if unknown:
            raise InvalidReadError(
                f"{table} has no column {', '.join(map(repr, unknown))}; it has {', '.join(self.fields)}. A field of a "
                "nested column is read with the whole column. Nothing was read."
            )
        found = [by_small[name.lower()] for name in names]
        if len(set(found)) < len(found):
            raise InvalidReadError(f"columns={list(names)!r} names a column of {table} twice. Nothing was read.")
        return found

    def schema(self, names: Sequence[str]) -> pa.Schema:
        """Return Arrow's schema of some columns.

        :raises UnsupportedFeatureError: a column is of a type that we cannot read.
        """
        import pyarrow as pa

        return pa.schema([arrow_field(self.fields[name]) for name in names])

    def partition_of(self, add: Add) -> dict[str, PartitionValue]:
        """Return a file's typed partition values, by column."""
        return dict(zip(self.partitioning.types, self.partitioning.partition(add["partitionValues"]), strict=True))

    def check_partition(self, partition: Mapping[str, PartitionValue], table: str) -> None:
        """Refuse a partition that has a value which is none of its column's type.

        :raises CorruptLogError: naming the value.
        """
        for name, value in partition.items():
            if isinstance(value, Unreadable):
                kind = sql_name(self.partitioning.types[name])
                raise CorruptLogError(
                    f"{table} has files of the partition {name}={value}, which is no {kind}, so what their rows have "
                    "in that column nobody knows. Nothing was changed: leave the partition out by a condition on "
                    "another column, or rewrite it by Spark."
                )
