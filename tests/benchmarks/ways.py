"""The ways to load the same rows into one table. Each takes a Spark server, a source, and the table to make."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks import ours
from tests.benchmarks.ours import PARTITION, STEPS
from tests.benchmarks.results import AGAIN, APPENDS, DELTA, OURS, PARQUET
from tests.benchmarks.tpch import Share, Source

if TYPE_CHECKING:
    from tests.support.spark import Server

ENDS = (PARQUET, DELTA)
"""What others are compared with."""

MIDDLE = (OURS, AGAIN, APPENDS)


def one_job(server: Server, source: Source, table: Path, form: str) -> None:
    """Append all rows by one Spark job, as anybody would write it.

    :param form: ``delta``, or ``parquet`` for files without a log.
    """
    session = _session(server)
    try:
        session.read.parquet(*_uris(source)).createOrReplaceTempView("source")
        _append(session.sql(STEPS["dated"]), table, form)
    finally:
        session.stop()


def appends(server: Server, source: Source, table: Path) -> None:
    """Append every writer's share by a Delta job of its own, all at once in one session, to a table that is there."""
    session = _session(server)

    def append(share: Share) -> None:
        rows = session.read.parquet(share.path.as_uri())
        view = share.writer.replace("-", "_")
        (rows.where(share.where) if share.where else rows).createOrReplaceTempView(view)
        _append(session.sql(STEPS["dated"].replace("source", view)), table, "delta")

    try:
        with ThreadPoolExecutor(len(source.shares)) as pool:
            list(pool.map(append, source.shares))
    finally:
        session.stop()


def our_writers(server: Server, source: Source, table: Path) -> None:
    """Load by a write group of this package."""
    ours.load(table, source.shares)


WAYS: dict[str, Callable[[Server, Source, Path], None]] = {
    PARQUET: lambda server, source, table: one_job(server, source, table, "parquet"),
    DELTA: lambda server, source, table: one_job(server, source, table, "delta"),
    OURS: our_writers,
    AGAIN: our_writers,
    APPENDS: appends,
}

INTO_TABLES = (AGAIN, APPENDS)
"""The ways that take a table that is there before."""


def create(source: Source, table: Path) -> None:
    """Make an empty table of the source's columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    columns = [pa.field(column.name, column.type) for column in pq.read_schema(source.paths[0])]
    DeltaTable.create(str(table), pa.schema([*columns, pa.field(PARTITION, pa.int32())]), partition_by=[PARTITION])


def remove(table: Path) -> None:
    """Remove a table."""
    shutil.rmtree(table, ignore_errors=True)


def _session(server: Server) -> Any:
    from pyspark.sql.connect.session import SparkSession

    return SparkSession(connection=server.remote)


def _append(rows: Any, table: Path, form: str) -> None:
    rows.write.format(form).mode("append").partitionBy(PARTITION).save(table.as_uri())


def _uris(source: Source) -> list[str]:
    return [path.as_uri() for path in source.paths]
