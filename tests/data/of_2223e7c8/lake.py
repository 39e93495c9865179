"""The tables at a place of their own, with what their tasks need: connections and an engine."""

from __future__ import annotations

import atexit
import gzip
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from tests.data.of_2223e7c8.dags import ROWS, Rows
from tests.data.of_2223e7c8.runs import Run, read_runs
from tests.support.contexts import connect
from tests.support.engines import FakeEngine, use_engine
from tests.support.sql_by_hand import SqlByHand

HERE = Path(__file__).parent
# Stands in the files for the directory in which they were made: private tables of statements name files by their paths.
PLACE = "/the/lakehouse/of/2223e7c8"


class _Sources(FakeEngine):
    """Its files hold a number each, which is the id of a row."""

    def _appended(self, store: Any, job: Any) -> list[dict[str, Any]]:
        if job.source["kind"] == "files":
            files = [Path(path.replace("\\", "")) for path in job.source["path"]]
            self.rows = {job.where: {"2019-01": [int(file.read_text()) for file in files]}}
        return super()._appended(store, job)


class Engine(SqlByHand):
    """Stages what the DAGs' sources give, and does statements by hand.

    :param rows: what the sources give, by ``where`` and by month.
    :param before: called before Spark stages rows.
    """

    def __init__(self, rows: Mapping[str | None, Rows], *, vectors: bool, before: Callable[[Any], object]) -> None:
        super().__init__(vectors=vectors)
        self.fake = _Sources(rows, before=before)  # type: ignore[arg-type]

    def analyze(self, job: Any) -> str:
        return self.fake.analyze(job)

    def stage(self, job: Any) -> Any:
        return super().stage(job) if "CAST(" in job.source.get("query", "") else self.fake.stage(job)

    def audit(self, job: Any) -> Any:
        return self.fake.audit(job)


@contextmanager
def lake(path: Path) -> Iterator[pytest.MonkeyPatch]:
    """Let tasks find their tables below a directory."""
    with pytest.MonkeyPatch.context() as patch:
        connect(patch, OneLakeHook, lakehouse=str(path), namespace="prod")
        spark = {"conn_type": "spark_connect", "host": "sc://127.0.0.1"}
        patch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(spark))
        yield patch


@contextmanager
def engine(
    dag_id: str,
    rows: Mapping[str | None, Rows] | None = None,
    *,
    vectors: bool = False,
    before: Callable[[Any], object] = lambda job: None,
) -> Iterator[Engine]:
    """Let tasks use an engine.

    :param dag_id: of the DAG whose sources it knows.
    :param rows: what some of them give by now.
    """
    with pytest.MonkeyPatch.context() as patch:
        sources = {**ROWS.get(dag_id, {}), **(rows or {})}
        yield use_engine(patch, Engine(sources, vectors=vectors, before=before))


def move(directory: Path, old: str, new: str) -> None:
    """Let files name another place than the one in which they were made."""
    for file in directory.rglob("*.json"):
        file.write_text(file.read_text().replace(old, new))
    for file in directory.rglob("*.json.gz"):
        file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()).replace(old.encode(), new.encode())))


def put_file(path: Path, row: int) -> None:
    """Put a file for :func:`~tests.data.of_2223e7c8.dags.new_files`: its size and its time say which one it is."""
    file = path / "Files" / "in" / f"{row}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(row))
    os.utime(file, (row, row))


@cache
def _unpacked() -> Path:
    """The tables as they were made, once for all tests of a process."""
    directory = Path(tempfile.mkdtemp(prefix="of_2223e7c8-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with tarfile.open(HERE / "tables.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "Tables"


def copied(path: Path, modified: float, table: str) -> dict[str, Run]:
    """Copy a table to a lakehouse, and its quarantine if it has one; return the runs that made all tables.

    :param path: of the lakehouse.
    :param modified: when every object of the tables was put, in seconds since the epoch.
    :param table: its name.
    """
    for found in _unpacked().glob(f"{table}*"):
        shutil.copytree(found, path / "Tables" / found.name)
    move(path, PLACE, str(path))
    for file in path.rglob("*"):
        os.utime(file, (modified, modified))
    return read_runs((HERE / "runs.json").read_text().replace(PLACE, str(path)))
