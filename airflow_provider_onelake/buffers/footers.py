"""Reading the footers of staged files, which say the statistics that Spark did not write (statistics.py)."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.statistics import Leaf, completed, indexed_leaves
from airflow_provider_onelake.log.actions import Add, object_path
from airflow_provider_onelake.storage.ranged import RangedFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.parquet as pq

    from airflow_provider_onelake.buffers.buffer import Buffer
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)

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

    @cache
    def leaves(which: int) -> list[Leaf]:
        return indexed_leaves(buffers[which].metadata, buffers[which].indexed_columns or 0) or []

    def complete(which: int, number: int) -> Add:
        add = buffers[which].adds[number]
        footer = read_footer(log.store, f"{buffers[which].path}/{object_path(add)}", int(add["size"]))
        return {**add, "stats": completed(add["stats"], footer, leaves(which))}

    pool = ThreadPoolExecutor(min(len(places), _MOST_AT_ONCE), "footers")
    try:
        wanted = {place: pool.submit(complete, *place) for place in places}
        done, _ = wait(wanted.values(), patience)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    found = {place: future.result() for place, future in wanted.items() if future in done and not future.exception()}
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


def _why(future: Future[Add]) -> str:
    error = future.exception() if future.done() and not future.cancelled() else None
    return "no answer yet" if error is None else f"{type(error).__name__}: {error}"


def read_footer(store: Store, path: str, size: int) -> pq.FileMetaData:
    """Read the footer of a Parquet file: most are read by one request, and a long one by two.

    :param path: of the file, relative to the table.
    :param size: of the file, in bytes.
    :raises OSError: the file has another size.
    :raises pyarrow.ArrowException: the footer is damaged.
    :raises ObjectNotFoundError: the file is gone.
    :raises StoreUnavailableError: the store did not answer.
    """
    import pyarrow.parquet as pq

    return pq.read_metadata(RangedFile(store, path, size))
