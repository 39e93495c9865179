"""A MERGE of some keys into a table of many rows: by this package, and by Delta's own MERGE.

The table is ordered by its key, a range of keys a file. The keys of a source lie beside each other, as those of one day
do, or all over the table. One in ten is new. Each MERGE works on a copy of the same table, so nobody finds what another
has done.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.modes import Merge
from tests.benchmarks import ours
from tests.benchmarks.samples import DELTA_MERGE, OURS, Sample, metered, turns

if TYPE_CHECKING:
    from tests.support.spark import Server

BESIDE, SPREAD = "beside each other", "all over the table"
_ROWS, _FILES, _KEYS = 3_000_000, 40, 20_000
_NEW = _KEYS // 10


def measure(server: Server, lakehouse: Path) -> Iterator[Sample]:
    """Merge both kinds of keys by both ways, in turns."""
    ours.connect(lakehouse, server.remote)
    whole, state = lakehouse / "Tables" / "merge-whole", lakehouse / "sources" / "merges"
    for old in (whole, state):
        shutil.rmtree(old, ignore_errors=True)
    rows = f"SELECT id, concat('value ', id) AS v, 0 AS n FROM range(0, {_ROWS}, 1, {_FILES})"
    _sql(server, f"CREATE TABLE delta.`{whole}` (id BIGINT, v STRING, n INT) USING delta")
    _sql(server, f"INSERT INTO delta.`{whole}` {rows}")
    state.mkdir(parents=True)
    for keys in (BESIDE, SPREAD):
        source = _source(state / f"{keys.replace(' ', '-')}.parquet", keys)
        for number, way in turns((DELTA_MERGE,), (OURS,), warm_ups=1, rounds=2):
            table = whole.with_name("merged")
            shutil.rmtree(table, ignore_errors=True)
            shutil.copytree(whole, table)
            merge = _by_us if way == OURS else _by_delta
            found = metered(server, lambda do=merge, of=source, into=table: do(server, of, into))
            found["faults"] += _judge(table)
            # The figures of the first of each way mean nothing, as the server gets warmer, but its rows have to be right.
            if number >= 0 or found["faults"]:
                yield {"keys": keys, "way": way, "round": number, **found}
            shutil.rmtree(table)
    for made in (whole, state):
        shutil.rmtree(made)


def _source(file: Path, kind: str) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    old = _KEYS - _NEW
    first, step = (_ROWS // 2, 1) if kind == BESIDE else (0, _ROWS // old)
    keys = [*range(first, first + old * step, step), *range(_ROWS, _ROWS + _NEW)]
    changed = pa.array([1] * len(keys), pa.int32())
    pq.write_table(pa.table({"id": pa.array(keys, pa.int64()), "v": ["new"] * len(keys), "n": changed}), file)
    return file


def _by_us(_: Server, source: Path, table: Path) -> None:
    from airflow_provider_onelake.operators.write import OneLakeWriteOperator
    from airflow_provider_onelake.sources import FileSource

    rows = FileSource(source.as_uri())
    ours.execute(OneLakeWriteOperator(task_id="merge", table=str(table), source=rows, mode=Merge(keys=["id"])))


def _by_delta(server: Server, source: Path, table: Path) -> None:
    merge = f"MERGE INTO delta.`{table}` AS target USING parquet.`{source}` AS source ON target.id = source.id"
    _sql(server, f"{merge} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")


def _judge(table: Path) -> list[str]:
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["id", "n"])
    found = rows.num_rows, pc.count_distinct(rows["id"]).as_py(), pc.sum(rows["n"]).as_py()
    wanted = _ROWS + _NEW, _ROWS + _NEW, _KEYS
    return [] if found == wanted else [f"rows, keys and changes are {found} and not {wanted}"]


def _sql(server: Server, statement: str) -> None:
    from pyspark.sql.connect.session import SparkSession

    session: Any = SparkSession(connection=server.remote)
    try:
        session.sql(statement).collect()
    finally:
        session.stop()
