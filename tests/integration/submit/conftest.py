"""Engines that submit, to a local master and to a standalone cluster on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore

from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.spark.submit.engine import SubmitEngine
from airflow_provider_onelake.storage.stores import ObjectStore
from include.local import jars
from include.local.settings import from_environment
from tests.support import spark_jvms
from tests.support.spark import Target, open_buffer
from tests.support.spark_cluster import Cluster

NewEngine = Callable[..., SubmitEngine]


@pytest.fixture(scope="session")
def jar_files() -> list[Path]:
    """Delta's JARs."""
    try:
        return jars.resolve(from_environment().jars)
    except jars.SetUpError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def whole_cluster(tmp_path_factory: pytest.TempPathFactory, jar_files: list[Path]) -> Iterator[Cluster]:
    """A master and two workers; see ``cluster``."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(whole_cluster: Cluster) -> Cluster:
    """A master and two workers, whatever the test before did to them."""
    for worker in whole_cluster.workers:
        if worker.process is None:
            worker.start()
    whole_cluster.wait_workers(len(whole_cluster.workers))
    return whole_cluster


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Directory of the test's tables."""
    path = tmp_path / "lake"
    (path / "trips").mkdir(parents=True)
    return path


@pytest.fixture
def new_target(lake: Path) -> Callable[..., Target]:
    """Makes a table's directory with one open buffer; takes the fields and the partition columns."""

    def make(fields: Sequence[dict[str, Any]], partition_by: Sequence[str] = (), **configuration: str) -> Target:
        return open_buffer(lake / "trips", fields, partition_by, **configuration)

    return make


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch, lake: Path) -> Callable[..., SubmitEngine]:
    """Makes an engine for a connection."""

    def make(connection: dict[str, Any], **arguments: Any) -> SubmitEngine:
        monkeypatch.setenv("AIRFLOW_CONN_SUBMIT", json.dumps(connection))
        store = ObjectStore(LocalStore(prefix=lake / "trips"), "trips")
        engine = engine_for("submit", **{"store": lambda: store, **arguments})
        assert isinstance(engine, SubmitEngine)
        return engine

    return make


@pytest.fixture
def local(connect: NewEngine, jar_files: list[Path], tmp_path: Path) -> NewEngine:
    """Makes an engine for Spark in one process, with an event log."""
    (tmp_path / "events").mkdir()
    conf = {
        **spark_jvms.INTERPRETED,
        "spark.ui.enabled": False,
        "spark.driver.memory": "768m",
        # Jobs of a second: what the second compiler costs never comes back.
        "spark.driver.extraJavaOptions": spark_jvms.options(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": 2,
        "spark.databricks.delta.snapshotPartitions": 2,
        "spark.eventLog.enabled": True,
        # As text, to be searched for secrets.
        "spark.eventLog.compress": False,
        "spark.eventLog.rolling.enabled": False,
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
    }

    def make(extra: dict[str, Any] | None = None, **arguments: Any) -> SubmitEngine:
        all_of_it = {"jars": ",".join(map(str, jar_files)), "conf": conf, **(extra or {})}
        return connect({"conn_type": "spark", "host": "local[2]", "extra": all_of_it}, **arguments)

    return make
