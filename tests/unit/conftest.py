"""A table of the test's own, which most unit tests begin with; a disk in memory, one authority, and fewer examples."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from local_onelake import certificates
from tests.support.contexts import connect
from tests.support.engines import FakeEngine, use_engine
from tests.support.tables import make_table

# The tables of unit tests are small and many, and cost half where they lie in memory. A container may have little of it.
_MEMORY = Path("/dev/shm")
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

settings.register_profile("unit", max_examples=40, deadline=None)
settings.load_profile("unit")


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """An empty table of the columns ``id`` and ``month``, partitioned by month."""
    return make_table(tmp_path / "t")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    """An engine that stages two rows, whatever it is asked."""
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    return use_engine(monkeypatch, FakeEngine({None: {"2019-01": [1, 2]}}))


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust one authority, because a new client takes 20 ms to read all those that a machine trusts."""
    trusted = certificates.prepare(tmp_path_factory.mktemp("tls")).authority
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(trusted))
        yield
