"""A MERGE of some keys into a table of many rows: by this package, and by Delta's own MERGE.

The table is ordered by its key, a range of keys a file. The keys of a source lie beside each other, as those of one day
do, or all over the table. One in ten is new. Each MERGE works on a copy of the same table, so nobody finds what another
has done.
"""

from __future__ import annotations

import inspect
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.modes import Merge
from tests.benchmarks import ours
from tests.benchmarks.order import rounds
from tests.benchmarks.results import DELTA_MERGE, OURS, Merging
from tests.benchmarks.spark_use import Meter

if TYPE_CHECKING:
    from tests.support.spark import Server

BESIDE, SPREAD = "beside each other", "all over the table"
_NEW = 10
"""One key of so many is new."""


@attrs.frozen
class Plan:
    """How much is merged, and how often.

    :param rows: of the table.
    :param files: of it.
    :param keys: of the source.
    :param rounds: in which each way is measured.
    """

    rows: int
    files: int
    keys: int
    rounds: int


def measure(plan: Plan, server: Server, lakehouse: Path, say: Callable[[str], None]) -> list[Merging]:
    """Merge both kinds of keys by both ways, in turns.

    :param plan: how much.
    :param server: that runs.
    :param lakehouse: directory for the tables.
    :param say: is told of every MERGE when it has ended.
    """
    ours.connect(lakehouse, server.remote)
    whole, state = lakehouse / "Tables" / "merge-whole", lakehouse / "sources" / "merges"
    shutil.rmtree(state, ignore_errors=True)
    say(f"Making a table of {plan.rows:,} rows in {plan.files} files")
    _make(server, whole, plan)
    found = []
    for kind in (BESIDE, SPREAD):
        source = _source(state / kind.replace(" ", "-"), kind, plan)
        # The figures of the first of each way mean nothing, as the server gets warmer, but their rows have to be right.
        for number, way in _turns(plan.rounds):
            merging = _once(server, whole, source, kind, way, number, plan)
            if number >= 0 or merging.faults:
                found.append(merging)
                say(_line(merging))
    shutil.rmtree(whole)
    shutil.rmtree(state)
    return found


def _turns(times: int) -> Iterator[tuple[int, str]]:
    yield from ((-1, way) for way in (DELTA_MERGE, OURS))
    for number, ways in enumerate(rounds((DELTA_MERGE,), (OURS,), times)):
        yield from ((number, way) for way in ways)


def _make(server: Server, table: Path, plan: Plan) -> None:
    shutil.rmtree(table, ignore_errors=True)
    with _session(server) as session:
        rows = f"SELECT id, concat('value ', id) AS v, 0 AS n FROM range(0, {plan.rows}, 1, {plan.files})"
        session.sql(f"CREATE TABLE delta.`{table}` (id BIGINT, v STRING, n INT) USING delta")
        session.sql(f"INSERT INTO delta.`{table}` {rows}")


def _source(directory: Path, kind: str, plan: Plan) -> Path:
    """Write the source as a file, and return its path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    old = plan.keys - plan.keys // _NEW
    step = 1 if kind == BESIDE else plan.rows // old
    first = plan.rows // 2 if kind == BESIDE else 0
    keys = [*range(first, first + old * step, step), *range(plan.rows, plan.rows + plan.keys - old)]
    directory.mkdir(parents=True)
    table = pa.table(
        {"id": pa.array(keys, pa.int64()), "v": ["new"] * len(keys), "n": pa.array([1] * len(keys), pa.int32())}
    )
    pq.write_table(table, directory / "source.parquet")
    return directory / "source.parquet"


def _once(server: Server, whole: Path, source: Path, kind: str, way: str, number: int, plan: Plan) -> Merging:
    table = whole.with_name(f"merge-{way.replace(' ', '-')}".replace("'", ""))
    shutil.rmtree(table, ignore_errors=True)
    shutil.copytree(whole, table)
    faults: list[str] = []
    meter, used, began = Meter(server), time.process_time(), time.monotonic()
    try:
        (_by_us if way == OURS else _by_delta)(server, source, table)
    except Exception as error:  # every failure is told, and the others are measured all the same
        faults.append(repr(error))
    seconds, client = time.monotonic() - began, time.process_time() - used
    use = meter.read()
    faults += _judge(table, plan)
    shutil.rmtree(table)
    return Merging(
        keys=kind, way=way, round=number, rows=plan.rows, merged=plan.keys,
        seconds=seconds, jvm=use.jvm, jobs=use.jobs, client=client, faults=faults,
    )  # fmt: skip


def _by_us(server: Server, source: Path, table: Path) -> None:
    from airflow_provider_onelake.operators.write import OneLakeWriteOperator
    from airflow_provider_onelake.sources import FileSource
    from tests.support.contexts import context_of

    task = OneLakeWriteOperator(
        task_id="merge", table=str(table), source=FileSource(source.as_uri()), mode=Merge(keys=["id"])
    )
    # Airflow's guard around execute() would warn that no task runner calls it.
    inspect.unwrap(type(task).execute)(task, context_of(task, dag_id="bench"))


def _by_delta(server: Server, source: Path, table: Path) -> None:
    with _session(server) as session:
        session.sql(
            f"MERGE INTO delta.`{table}` AS target USING parquet.`{source}` AS source ON target.id = source.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()


def _judge(table: Path, plan: Plan) -> list[str]:
    """Say what is wrong with the rows."""
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["id", "n"])
    ids, changed = pc.count_distinct(rows["id"]).as_py(), pc.sum(rows["n"]).as_py()
    expected = plan.rows + plan.keys // _NEW
    if (rows.num_rows, ids, changed) == (expected, expected, plan.keys):
        return []
    return [f"{rows.num_rows} rows with {ids} keys and {changed} changes, and not {expected} rows and {plan.keys}"]


def _line(merging: Merging) -> str:
    wrong = f", WRONG: {'; '.join(merging.faults)}" if merging.faults else ""
    return (
        f"{merging.merged:,} keys {merging.keys}, {merging.way}: {merging.seconds:.1f} s, JVM {merging.jvm:.1f} CPU s, "
        f"{merging.jobs} jobs, client {merging.client:.1f} CPU s{wrong}"
    )


@contextmanager
def _session(server: Server) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    session: Any = SparkSession(connection=server.remote)
    try:
        yield session
    finally:
        session.stop()
