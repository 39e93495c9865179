"""Reading the footers of staged files, which say the statistics that Spark did not write (statistics.py)."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.log.actions import Add, object_path
from airflow_provider_onelake.staging.statistics import completed, indexed_leaves

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.parquet as pq

    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.staging.buffers import Buffer
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)

# Most footers are shorter than this, so that one request reads a file's.
_TAIL = 64 << 10
_MAGIC = b"PAR1"
# A footer ends with its length in four bytes, and the magic bytes.
_END = 8
_MOST_AT_ONCE = 32
PATIENCE = 60.0
"""Seconds after which a commit goes on without the statistics that have not come."""


def with_statistics(log: DeltaLog, buffers: Sequence[Buffer], patience: float = PATIENCE) -> tuple[Buffer, ...]:
    """Return buffers whose files have the statistics that their footers say, where Spark was told to leave them out.

    A file whose footer cannot be read keeps its row count alone: statistics save readers time, and are no reason to
    hold rows back.

    :param log: of the table.
    :param patience: seconds after which the footers that have not come are left out.
    """
    places = [
        (which, number)
        for which, buffer in enumerate(buffers)
        for number, add in enumerate(buffer.adds)
        if buffer.indexed_columns is not None and add.get("stats")
    ]
    if not places:
        return tuple(buffers)
    try:
        return _completed(log, buffers, places, patience)
    except Exception:
        logger.warning("%s: statistics are left out, as reading them from footers failed", log.table, exc_info=True)
        return tuple(buffers)


def _completed(
    log: DeltaLog, buffers: Sequence[Buffer], places: Sequence[tuple[int, int]], patience: float
) -> tuple[Buffer, ...]:
    # Import it before the threads do, as half imported modules have failed in threads.
    import pyarrow.parquet  # noqa: F401

    pool = ThreadPoolExecutor(min(len(places), _MOST_AT_ONCE), "footers")
    try:
        wanted = {
            (which, number): pool.submit(_with_statistics, log.store, buffers[which], buffers[which].adds[number])
            for which, number in places
        }
        wait(wanted.values(), patience)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    found = {place: future.result() for place, future in wanted.items() if _succeeded(future)}
    if missing := [place for place in wanted if place not in found]:
        which, number = missing[0]
        logger.warning(
            "%s: %d of %d files have their row counts alone, as their footers could not be read within "
            "%g s, such as that of %s/%s: %s. No row is missing; readers skip these files less often.",
            log.table,
            len(missing),
            len(wanted),
            patience,
            buffers[which].path,
            buffers[which].adds[number]["path"],
            _why(wanted[missing[0]]),
        )
    return tuple(
        attrs.evolve(buffer, adds=tuple(found.get((which, number), add) for number, add in enumerate(buffer.adds)))
        for which, buffer in enumerate(buffers)
    )


def _succeeded(future: Future[Add]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _why(future: Future[Add]) -> str:
    error = future.exception() if future.done() and not future.cancelled() else None
    return "no answer yet" if error is None else f"{type(error).__name__}: {error}"


def _with_statistics(store: Store, buffer: Buffer, add: Add) -> Add:
    leaves = indexed_leaves(buffer.metadata, buffer.indexed_columns or 0) or []
    footer = read_footer(store, f"{buffer.path}/{object_path(add)}", int(add["size"]))
    return {**add, "stats": completed(add["stats"], footer, leaves)}


def read_footer(store: Store, path: str, size: int) -> pq.FileMetaData:
    """Read the footer of a Parquet file.

    :param path: of the file, relative to the table.
    :param size: of the file, in bytes.
    :raises ValueError: the file does not end as a Parquet file does.
    :raises pyarrow.ArrowException: the footer is damaged.
    :raises ObjectNotFoundError: the file is gone.
    :raises StoreUnavailableError: the store did not answer.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    start = max(0, size - _TAIL)
    tail = store.get_range(path, start, size).data
    length = int.from_bytes(tail[-_END:-4], "little") + _END
    if tail[-4:] != _MAGIC or length > size:
        raise ValueError(f"{path} does not end as a Parquet file does")
    if length > len(tail):
        tail = store.get_range(path, size - length, start).data + tail
    return pq.read_metadata(pa.BufferReader(tail))
