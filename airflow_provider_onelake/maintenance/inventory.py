"""The inventory of a vacuum: the files that Spark is asked to delete, as a Parquet file beside the table.

It is there from before Spark begins until Spark is done, as far as anybody knows. So whoever has pinned a version finds
in it what a vacuum that planned before is about to delete.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import ObjectNotFoundError
from airflow_provider_onelake.storage.clock import milliseconds

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import ObjectInfo, Store

INVENTORY = "_vacuum"
"""The directory of inventories. VACUUM skips it, as its name begins with ``_``."""


def inventory(files: Iterable[ObjectInfo]) -> bytes:
    """Return a Parquet file of the columns that VACUUM … USING INVENTORY wants; the paths are relative to the table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = list(files)
    table = pa.table(
        {
            "path": pa.array([info.path for info in rows], pa.string()),
            "length": pa.array([info.size for info in rows], pa.int64()),
            "isDir": pa.array([False] * len(rows), pa.bool_()),
            "modificationTime": pa.array([milliseconds(info.modified) for info in rows], pa.int64()),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def inventories(store: Store, listing: Iterable[str]) -> Iterator[tuple[str, frozenset[str] | None]]:
    """Yield the inventories in a listing, each with the paths of the files that are to go.

    :param listing: paths in the table's directory.
    :returns: ``None`` for the files of an inventory that is gone: that vacuum is done, so the listing may be older than
        its deletions.
    """
    import pyarrow.parquet as pq

    for path in listing:
        if not path.startswith(f"{INVENTORY}/"):
            continue
        try:
            found = pq.read_table(io.BytesIO(store.get(path)), columns=["path"])
        except ObjectNotFoundError:
            yield path, None
            continue
        yield path, frozenset(found.column("path").to_pylist())
