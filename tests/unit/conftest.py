"""A table of the test's own, which most unit tests begin with; and one authority that clients of TLS trust."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_onelake.local_onelake import certificates
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.tables import make_table


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """An empty table of the columns ``id`` and ``month``, partitioned by month."""
    return make_table(tmp_path / "t")


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust one authority, because a new client takes 20 ms to read all those that a machine trusts."""
    trusted = certificates.prepare(tmp_path_factory.mktemp("tls")).authority
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(trusted))
        yield
