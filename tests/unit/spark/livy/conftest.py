"""Engines for the Livys of the tests, which ask without a pause."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.livy.client import LivyClient
from airflow_provider_onelake.spark.livy.engine import LivyEngine
from airflow_provider_onelake.storage.stores import ObjectStore
from local_onelake.batches import Batches
from tests.support.cluster_mode import RESULT
from tests.support.livy import LAKE_TABLE, InFabric, PlainLivy, batches_on, plain_livy, script
from tests.support.object_stores import Lake
from tests.support.onelake import OneLake

NewEngine = Callable[..., LivyEngine]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_onelake.spark.submit.drivers._POLL_SECONDS", 0.02)
    monkeypatch.setattr("airflow_provider_onelake.spark.submit.drivers._LONGEST_PAUSE", 0.02)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before a request is sent again, which are not waited for."""
    found: list[float] = []
    monkeypatch.setattr(LivyClient, "_pause", lambda self, seconds: found.append(seconds))
    return found


@pytest.fixture
def livy() -> Iterator[PlainLivy]:
    with plain_livy() as found:
        yield found


@pytest.fixture
def new_engine(livy: PlainLivy, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> NewEngine:
    def make(extra: dict[str, Any] | None = None, **arguments: Any) -> LivyEngine:
        said = {"conn_type": "onelake_livy", "host": livy.url, "extra": {"packages": "", **(extra or {})}}
        monkeypatch.setenv("AIRFLOW_CONN_L", json.dumps(said))
        engine = engine_for("l", **{"store": lambda: store, **arguments})
        assert isinstance(engine, LivyEngine)
        return engine

    return make


@pytest.fixture
def server() -> Iterator[OneLake]:
    with OneLake(lists_by_names=True) as found:
        yield found


@pytest.fixture
def lake(server: OneLake) -> Lake:
    return server.lake()


@pytest.fixture
def lake_job(lake: Lake) -> StageJob:
    table = lake.address(LAKE_TABLE).spark_uri
    return StageJob(
        source={"kind": "sql", "query": "SELECT 1"},
        table_uri=table,
        attempt="a1",
        buffer_uri=f"{table}/staged/w/a1",
        metadata={"schemaString": "{}", "partitionColumns": []},
    )


@pytest.fixture
def spark(server: OneLake, tmp_path: Path) -> Iterator[Callable[[str], Batches]]:
    """Lets batches do something; until it is asked to, they end well."""
    with batches_on(server, tmp_path, script(tmp_path, server, f"say(result={RESULT!r})"), {}) as found:

        def does(body: str) -> Batches:
            script(tmp_path, server, body)
            return found

        yield does


@pytest.fixture
def fabric(
    server: OneLake, spark: Callable[[str], Batches], lake: Lake, lake_job: StageJob, new_engine: NewEngine
) -> InFabric:
    """Each test file makes its own kind of engine."""
    store = lake.log(LAKE_TABLE).store
    return InFabric(server=server, spark=spark, store=store, job=lake_job, new_engine=new_engine)
