"""Whether the source of a MERGE has a key twice, or NULL in one, asked of its files without Spark.

Spark takes a query of two stages to count keys, which costs more than to read them where they are few. So the files of
a small source are read here instead. What Spark would compare otherwise than by its value is left to Spark.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import ConstraintViolatedError, ObjectNotFoundError
from airflow_provider_onelake.log.types import INTEGERS
from airflow_provider_onelake.spark.jobs.change import not_unique

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from airflow_provider_onelake.buffers.buffer import Buffer
    from airflow_provider_onelake.buffers.plain_parquet import PlainFiles
    from airflow_provider_onelake.storage.stores import Store

MOST_BYTES = 16 << 20
"""How large the files of a source may be together. They are fetched whole, as there are few of them."""

_MOST_NAMED = 5
# Of these types, two values are equal in Spark if and only if they are in a file: no NaN, no -0.0, no fields.
_BY_VALUE = frozenset((*INTEGERS, "string", "date", "timestamp", "timestamp_ntz", "boolean"))


def check_keys(store: Store, source: Buffer, plain: PlainFiles, keys: Sequence[str]) -> bool:
    """Refuse a source in which rows have equal keys or NULL in one.

    :param plain: its files.
    :param keys: names of columns, as the author spells them.
    :returns: whether the keys were looked at; else Spark has to do it.
    :raises ConstraintViolatedError: the source has a key twice, or NULL in one.
    :raises StoreUnavailableError: the store did not answer.
    """
    types = {field["name"].lower(): (field["name"], field["type"]) for field in json.loads(plain.schema)["fields"]}
    found = [types.get(key.lower()) for key in keys]
    names = [one[0] for one in found if one is not None and one[1] in _BY_VALUE and "." not in one[0]]
    if len(names) < len(keys) or sum(add["size"] for add in source.adds) > MOST_BYTES:
        return False
    rows = _rows(store, plain.paths, names)
    if rows is None:
        return False
    if wrong := _wrong(rows, names):
        raise ConstraintViolatedError(
            f"{not_unique(names, wrong)} The table is unchanged: clear the task when its source is mended."
        )
    return True


def _rows(store: Store, paths: Sequence[str], names: Sequence[str]) -> pa.Table | None:
    """Return the keys of all rows; ``None`` if a file is gone or damaged, which Spark then says in its own words."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        files = [pq.ParquetFile(pa.BufferReader(store.get(path))).read(columns=list(names)) for path in paths]
        return pa.concat_tables(files)
    except (ObjectNotFoundError, pa.ArrowException):
        return None


def _wrong(rows: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return some keys that are there twice or have NULL in them."""
    import pyarrow.compute as pc

    counted = rows.group_by(list(names)).aggregate([([], "count_all")])
    bad = pc.greater(counted["count_all"], 1)
    for name in names:
        bad = pc.or_(bad, pc.is_null(counted[name]))
    return [tuple(row[name] for name in names) for row in counted.filter(bad).slice(0, _MOST_NAMED).to_pylist()]
