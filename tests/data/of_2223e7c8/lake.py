"""The tables at a place of their own, with what their tasks need: connections, an engine, a way to die."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.storage import stores
from tests.data.of_2223e7c8.dags import ROWS
from tests.data.of_2223e7c8.runs import KilledError
from tests.support.contexts import connect
from tests.support.engines import FakeEngine, use_engine
from tests.support.sql_by_hand import SqlByHand
from tests.support.stores import PassingOn

HERE = Path(__file__).parent
# Stands in the files for the directory in which they were made: private tables of statements name files by their paths.
PLACE = "/the/lakehouse/of/2223e7c8"


class Engine(SqlByHand):
    """Stages what the DAGs' sources give, and does statements by hand.

    :param done: called when Spark has staged rows, or run a statement.
    """

    def __init__(self, dag_id: str, *, vectors: bool, done: Callable[[], object] = lambda: None) -> None:
        super().__init__(vectors=vectors, after=lambda job: done())
        self.fake, self.done = FakeEngine(ROWS.get(dag_id, {}), compared=lambda job: None), done

    def analyze(self, job: Any) -> str:
        return self.fake.analyze(job)

    def stage(self, job: Any) -> Any:
        by_hand = "CAST(" in job.source.get("query", "")
        result = super().stage(job) if by_hand else self.fake.stage(job)
        self.done()
        return result

    def audit(self, job: Any) -> Any:
        return self.fake.audit(job)


class Mortal(PassingOn):
    """Lets its process write nothing any more, from a put on.

    :param path: a pattern that the path of the put matches from its beginning.
    """

    def __init__(self, inner: Any, path: str) -> None:
        super().__init__(inner)
        self.path, self.dead = re.compile(path), False

    def create(self, path: str, data: bytes) -> None:
        self._dies_at(path)
        super().create(path, data)

    def put(self, path: str, data: bytes) -> None:
        self._dies_at(path)
        super().put(path, data)

    def delete(self, path: str) -> None:
        self._dies_at(path)
        super().delete(path)

    def _dies_at(self, path: str) -> None:
        self.dead = self.dead or self.path.match(path) is not None
        if self.dead:
            raise KilledError


@contextmanager
def lake(path: Path) -> Iterator[pytest.MonkeyPatch]:
    """Let tasks find their tables below a directory."""
    with pytest.MonkeyPatch.context() as patch:
        connect(patch, OneLakeHook, lakehouse=str(path), namespace="prod")
        spark = {"conn_type": "spark_connect", "host": "sc://127.0.0.1"}
        patch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(spark))
        yield patch


@contextmanager
def engine(dag_id: str, *, vectors: bool = False, done: Callable[[], object] = lambda: None) -> Iterator[Engine]:
    """Let the tasks of a DAG use an engine."""
    with pytest.MonkeyPatch.context() as patch:
        yield use_engine(patch, Engine(dag_id, vectors=vectors, done=done))


@contextmanager
def dying_at(path: str, table: str = "") -> Iterator[None]:
    """Kill the task that puts something, before it is put.

    :param path: a pattern that the path of the object matches from its beginning.
    :param table: how the table's address ends. Default: any table.
    """
    opened = stores.open_store
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            stores, "open_store", lambda *which: Mortal(opened(*which), path if str(which[0]).endswith(table) else "$^")
        )
        yield


@cache
def _unpacked() -> Path:
    """The tables as they were made, once for all tests of a process."""
    directory = Path(tempfile.mkdtemp(prefix="of_2223e7c8-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with tarfile.open(HERE / "tables.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "Tables"


def copied(path: Path, modified: float, *tables: str) -> None:
    """Copy tables to a lakehouse.

    :param path: of the lakehouse.
    :param modified: when every object was put, in seconds since the epoch.
    :param tables: their names. Default: all.
    """
    for table in tables or [found.name for found in _unpacked().iterdir()]:
        shutil.copytree(_unpacked() / table, path / "Tables" / table)
    for file in path.rglob("*"):
        if file.suffix == ".json":
            file.write_text(file.read_text().replace(PLACE, str(path)))
        if file.is_file():
            os.utime(file, (modified, modified))
