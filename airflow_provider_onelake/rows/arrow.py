"""Delta's types as Arrow's, and the columns of a data file brought to the types and names that the table has now.

A file keeps the names and types that its table had when the file was written: physical names under column mapping, a
narrower type from before a widening, fewer columns. So every column is looked up in the file by what identifies it
there, and cast if it is of another type; what the file does not have is NULL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.log.schema import MAPPING_ID, PHYSICAL_NAME
from airflow_provider_onelake.log.types import JsonType, is_primitive, name_of, struct_of, types_within
from airflow_provider_onelake.log.values import PartitionValue, days_in, micros_in

if TYPE_CHECKING:
    import pyarrow as pa

_FIELD_ID = b"PARQUET:field_id"


def arrow_type(kind: JsonType) -> pa.DataType:
    """Return Arrow's type of a column.

    :param kind: Spark's name of a primitive type, or the JSON of a nested one.
    :raises UnsupportedFeatureError: the type is none that we can read, such as a VARIANT.
    """
    import pyarrow as pa
    from deltalake import Schema

    strange = [name_of(one) for one in types_within(kind) if isinstance(one, str) and not is_primitive(one)]
    if strange:
        raise UnsupportedFeatureError(
            f"A column of the type {strange[0]} cannot be read here. Nothing was changed: read the other columns, or "
            "read the table by Spark."
        )
    schema = json.dumps(struct_of([{"name": "column", "type": kind, "nullable": True, "metadata": {}}]))
    return pa.schema(Schema.from_json(schema).to_arrow()).field(0).type


def arrow_field(field: Mapping[str, Any]) -> pa.Field[Any]:
    """Return Arrow's field of a field of a schema.

    :param field: its JSON.
    """
    import pyarrow as pa

    return pa.field(field["name"], arrow_type(field["type"]), bool(field.get("nullable", True)))


def place_of(file_fields: Sequence[pa.Field[Any]], field: Mapping[str, Any], mapping: str) -> int | None:
    """Return which field of a file, or of a struct in it, is a field of the table; ``None`` if the file has none.

    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#reader-requirements-for-column-mapping

    :param file_fields: of the file.
    :param field: the JSON of the table's field.
    :param mapping: the table's column mapping mode.
    """
    told = field.get("metadata") or {}
    if mapping == "id" and MAPPING_ID in told:
        ids = [(each.metadata or {}).get(_FIELD_ID) for each in file_fields]
        if any(ids):
            wanted = str(told[MAPPING_ID]).encode()
            return ids.index(wanted) if wanted in ids else None
    name = str(told.get(PHYSICAL_NAME) or field["name"]) if mapping != "none" else field["name"]
    names = [each.name for each in file_fields]
    if name in names:
        return names.index(name)
    # Spark does not tell capitals from small letters in names.
    alike = [at for at, each in enumerate(names) if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def as_in_table(found: pa.Array, kind: JsonType, mapping: str) -> pa.Array:
    """Return a column of a file with the names and types that the table has now.

    :param found: the values, as the file has them.
    :param kind: the column's type in the table.
    :param mapping: the table's column mapping mode.
    :raises pyarrow.ArrowException: the values cannot be brought to the table's type.
    """
    import pyarrow as pa

    wanted = arrow_type(kind)
    # Under column mapping, a nested field of the same name may be another one, which was dropped or renamed.
    if found.type == wanted and (mapping == "none" or not isinstance(kind, Mapping)):
        return found
    if isinstance(kind, Mapping) and found.offset:
        # The parts of a slice would have to be sliced too, in another way for each nested type.
        found = pa.concat_arrays([found, found.slice(0, 0)])
    if isinstance(kind, Mapping) and pa.types.is_struct(found.type) and "fields" in kind:
        return _struct(found, kind["fields"], mapping)
    if isinstance(kind, Mapping) and pa.types.is_map(found.type) and "keyType" in kind:
        keys = as_in_table(found.keys, kind["keyType"], mapping)
        items = as_in_table(found.items, kind["valueType"], mapping)
        return pa.MapArray.from_arrays(found.offsets, keys, items, type=wanted, mask=_nulls(found))
    if isinstance(kind, Mapping) and pa.types.is_list(found.type) and "elementType" in kind:
        values = as_in_table(found.values, kind["elementType"], mapping)
        return pa.ListArray.from_arrays(found.offsets, values, type=wanted, mask=_nulls(found))
    # Files have times in other units than the table only where they are finer, as in Spark's INT96.
    return found.cast(wanted, safe=not pa.types.is_timestamp(wanted))


def _struct(found: pa.Array, fields: Sequence[Mapping[str, Any]], mapping: str) -> pa.Array:
    import pyarrow as pa

    file_fields = [found.type.field(at) for at in range(found.type.num_fields)]
    parts = []
    for field in fields:
        at = place_of(file_fields, field, mapping)
        if at is None:
            parts.append(pa.nulls(len(found), arrow_type(field["type"])))
        else:
            parts.append(as_in_table(found.field(at), field["type"], mapping))
    return pa.StructArray.from_arrays(parts, fields=[arrow_field(field) for field in fields], mask=_nulls(found))


def _nulls(found: pa.Array) -> pa.Array | None:
    return found.is_null() if found.null_count else None


def constant_column(value: PartitionValue, kind: JsonType, rows: int) -> pa.Array:
    """Return a column that has one value in every row.

    :param value: a typed partition value; no :class:`~airflow_provider_onelake.log.values.Unreadable`.
    :param kind: the column's type.
    """
    import pyarrow as pa

    wanted = arrow_type(kind)
    if value is None:
        return pa.nulls(rows, wanted)
    # Python's dates and times do not cover all of Spark's years, so go by numbers.
    if pa.types.is_date32(wanted):
        return pa.repeat(pa.scalar(days_in(value), pa.int32()), rows).cast(wanted)
    if pa.types.is_timestamp(wanted):
        return pa.repeat(pa.scalar(micros_in(value), pa.int64()), rows).cast(wanted)
    return pa.repeat(pa.scalar(value, wanted), rows)
