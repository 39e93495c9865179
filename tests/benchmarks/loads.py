"""The same rows loaded into one table in several ways, and what each costs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks import ours
from tests.benchmarks.ours import PARTITION, STEPS
from tests.benchmarks.samples import AGAIN, APPENDS, DELTA, OURS, PARQUET, Sample, metered, turns
from tests.benchmarks.tpch import OWN, SCALE, SHARED, Share, Source, source, totals

if TYPE_CHECKING:
    from tests.support.spark import Server

_WARM_UP_SCALE = 0.01


def measure(server: Server, state: Path) -> Iterator[Sample]:
    """Load by every way, from one file for all writers and from a file for each."""
    ours.connect(state, server.remote)
    for kind in (SHARED, OWN):
        little, whole = (source(state / "sources", scale, kind) for scale in (_WARM_UP_SCALE, SCALE))
        for number, way in turns((PARQUET, DELTA), (OURS, AGAIN, APPENDS), warm_ups=2, rounds=2):
            sample = _once(server, state, little if number < 0 else whole, way, number)
            # The figures of a warm-up mean nothing, but its rows have to be right.
            if number >= 0 or sample["faults"]:
                yield sample


def _once(server: Server, state: Path, rows: Source, way: str, number: int) -> Sample:
    table = state / "Tables" / way.replace(",", "").replace(" ", "-")
    shutil.rmtree(table, ignore_errors=True)
    if way in (AGAIN, APPENDS):
        _create(rows, table)
    found = metered(server, lambda: _load(server, rows, table, way))
    files, wrong = judge(table, rows, delta=way != PARQUET)
    shutil.rmtree(table, ignore_errors=True)
    found["faults"] += wrong
    return {"source": rows.kind, "writers": len(rows.shares), "way": way, "round": number, **found, "data_files": files}


def judge(table: Path, rows: Source, *, delta: bool) -> tuple[int, list[str]]:
    """Count a table's files, and compare its rows with the source's."""
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    try:
        if delta:
            read = DeltaTable(str(table))
            files, data = len(read.file_uris()), read.to_pyarrow_dataset()
        else:
            files, data = len(list(table.rglob("*.parquet"))), ds.dataset(table, partitioning="hive")
        found = totals(data)
    except Exception as error:
        return 0, [f"the rows cannot be read: {error!r}"]
    return files, [] if found == rows.totals else [f"has {found}, and the source {rows.totals}"]


def _load(server: Server, rows: Source, table: Path, way: str) -> None:
    if way in (OURS, AGAIN):
        ours.load(table, rows.shares)
        return
    from pyspark.sql.connect.session import SparkSession

    session: Any = SparkSession(connection=server.remote)

    def append(shares: list[Share], form: str = "delta") -> None:
        """Append the rows of shares by one job, as anybody would write it."""
        read = session.read.parquet(*(share.path.as_uri() for share in shares))
        view = shares[0].writer.replace("-", "_")
        (read.where(shares[0].where) if shares[0].where else read).createOrReplaceTempView(view)
        dated = session.sql(STEPS["dated"].replace("source", view))
        dated.write.format(form).mode("append").partitionBy(PARTITION).save(table.as_uri())

    try:
        if way == APPENDS:
            with ThreadPoolExecutor(len(rows.shares)) as pool:
                list(pool.map(lambda share: append([share]), rows.shares))
        else:
            append([Share("all", path, None) for path in rows.paths], "delta" if way == DELTA else "parquet")
    finally:
        session.stop()


def _create(rows: Source, table: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    columns = [pa.field(column.name, column.type) for column in pq.read_schema(rows.paths[0])]
    DeltaTable.create(str(table), pa.schema([*columns, pa.field(PARTITION, pa.int32())]), partition_by=[PARTITION])
