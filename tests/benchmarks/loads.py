"""The same rows loaded in three ways: seven writers staged at once, one Delta job, one plain Parquet job."""

from __future__ import annotations

import shutil
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tests.benchmarks.tpch import SHIP_YEARS, Totals

if TYPE_CHECKING:
    from airflow_provider_onelake.staging.buffers import Buffer
    from airflow_provider_onelake.staging.prepare import Stage

PARTITION = "ship_year"
_STEPS = {"dated": f"SELECT *, year(l_shipdate) AS {PARTITION} FROM source"}


@attrs.frozen
class Load:
    """One measured load.

    :param way: how it was done.
    :param seconds: from nothing to a table that can be read.
    :param files: that the table has.
    :param bytes: of these files.
    :param totals: of the rows, read back.
    :param phases: seconds of parts of the work, by name; of several writers the longest.
    :param cpu_seconds: of the Spark server: unlike seconds, little disturbed by what else the machine does.
    """

    way: str
    seconds: float
    files: int
    bytes: int
    totals: Totals
    phases: dict[str, float] = attrs.field(factory=dict)
    cpu_seconds: float = 0.0


def staged(remote: str, source: Path, table: Path) -> Load:
    """Seven writers, one a ship year, each by the road of the write operator: stage, complete, publish.

    :param remote: address of the Spark Connect server.
    :param source: lineitem, in Parquet.
    :param table: to make.
    """
    begin = time.monotonic()
    with ThreadPoolExecutor(len(SHIP_YEARS)) as pool:
        done = list(pool.map(lambda year: _write(remote, source, table, year), SHIP_YEARS))
    seconds = time.monotonic() - begin
    phases = {name: max(phase[name] for phase in done) for name in done[0]}
    return _delta("staged", table, seconds, phases)


def one_delta_job(remote: str, source: Path, table: Path) -> Load:
    """One Spark job that appends to a partitioned Delta table, as anybody would write it.

    :param remote: address of the Spark Connect server.
    :param source: lineitem, in Parquet.
    :param table: to make.
    """
    begin = time.monotonic()
    _one_job(remote, source, table, "delta")
    return _delta("one Delta job", table, time.monotonic() - begin, {})


def one_parquet_job(remote: str, source: Path, table: Path) -> Load:
    """One Spark job that writes partitioned Parquet files without any log.

    :param remote: address of the Spark Connect server.
    :param source: lineitem, in Parquet.
    :param table: directory to make.
    """
    import pyarrow.dataset as ds

    begin = time.monotonic()
    _one_job(remote, source, table, "parquet")
    seconds = time.monotonic() - begin
    files = list(table.rglob("*.parquet"))
    size = sum(file.stat().st_size for file in files)
    return Load("one Parquet job", seconds, len(files), size, Totals.of(ds.dataset(table, partitioning="hive")))


WAYS = {"staged": staged, "delta": one_delta_job, "parquet": one_parquet_job}


def write_job(source: Path, table: Path, year: int | None, buffer: Stage | None, attempt: str) -> Any:
    """Return the job of one writer.

    :param source: lineitem, in Parquet.
    :param table: the target.
    :param year: of shipment; ``None`` for all.
    :param buffer: to stage into; ``None`` for an analysis.
    :param attempt: its id.
    """
    from airflow_provider_onelake.engines.base import StageJob

    return StageJob(
        source={"kind": "files", "path": [source.as_uri()], "format": "parquet"},
        where=None if year is None else f"l_shipdate >= DATE'{year}-01-01' AND l_shipdate < DATE'{year + 1}-01-01'",
        steps=_STEPS,
        table_uri=table.as_uri(),
        buffer_uri=f"{table.as_uri()}/{buffer.path}" if buffer else None,
        metadata=buffer.metadata if buffer else None,
        attempt=attempt,
        label=f"lineitem {year or ''}".strip(),
    )


def stage(remote: str, source: Path, table: Path, year: int | None) -> tuple[Buffer, dict[str, float]]:
    """Do what the write operator does before it publishes, without Airflow.

    :param remote: address of the Spark Connect server.
    :param source: lineitem, in Parquet.
    :param table: the target; made if there is none.
    :param year: of shipment; ``None`` for all.
    :returns: the complete buffer, and seconds of every phase.
    """
    from airflow_provider_onelake.commit.definition import create_table
    from airflow_provider_onelake.engines.connect import ConnectEngine
    from airflow_provider_onelake.staging.buffers import write_checksum
    from airflow_provider_onelake.staging.identity import Load as Group
    from airflow_provider_onelake.staging.prepare import Stage, complete, prepare
    from airflow_provider_onelake.staging.spec import WriteSpec
    from tests.support.tables import local_log

    begin = time.monotonic()
    log = local_log(table)
    engine = ConnectEngine(remote)
    attempt = str(uuid.uuid4())
    if log.snapshot_or_none() is None:
        create_table(log, engine.analyze(write_job(source, table, year, None, attempt)), [PARTITION])
    created = time.monotonic()
    identity = Group("bench", "lineitem", "load", "2026-01-01").writer(f"year-{year}")
    decision = prepare(log, WriteSpec(identity=identity, attempt=attempt))
    assert isinstance(decision, Stage)
    write_checksum(log.store, decision.path)
    engine.stage(write_job(source, table, year, decision, attempt))
    buffer = complete(log, decision.path)
    return buffer, {"create": created - begin, "stage": time.monotonic() - created}


def publish(table: Path, buffer: Buffer) -> None:
    """Publish a buffer as the provider does: with deltalake's word on what is removed, and with checkpoints.

    :param table: the target.
    :param buffer: a complete one.
    """
    from airflow_provider_onelake.commit.publish import Committer, Status
    from airflow_provider_onelake.log.checkpoints import checkpointer
    from airflow_provider_onelake.log.cross_check import deltalake_cross_check
    from tests.support.tables import local_log

    uri = str(table)
    committer = Committer(local_log(table), cross_check=deltalake_cross_check(uri), after_commit=checkpointer(uri))
    publication = committer.publish([buffer])
    assert publication.status is Status.PUBLISHED, publication


def _write(remote: str, source: Path, table: Path, year: int) -> dict[str, float]:
    buffer, phases = stage(remote, source, table, year)
    begin = time.monotonic()
    publish(table, buffer)
    return {**phases, "publish": time.monotonic() - begin}


def _one_job(remote: str, source: Path, table: Path, form: str) -> None:
    from pyspark.sql.connect.session import SparkSession

    session: Any = SparkSession(connection=remote)
    try:
        session.read.parquet(source.as_uri()).createOrReplaceTempView("source")
        rows = session.sql(_STEPS["dated"])
        rows.write.format(form).mode("append").partitionBy(PARTITION).save(table.as_uri())
    finally:
        session.stop()


def _delta(way: str, table: Path, seconds: float, phases: dict[str, float]) -> Load:
    from deltalake import DeltaTable

    read = DeltaTable(str(table))
    sizes = read.get_add_actions().column("size_bytes").to_pylist()
    return Load(way, seconds, len(sizes), sum(sizes), Totals.of(read.to_pyarrow_dataset()), phases)


def remove(table: Path) -> None:
    """Remove a table.

    :param table: its directory.
    """
    shutil.rmtree(table, ignore_errors=True)
