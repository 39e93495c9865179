"""Every test here runs on every kind of store."""

from __future__ import annotations

import pytest

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from tests.support.object_stores import Lake


@pytest.fixture
def hook(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> OneLakeHook:
    """A hook whose connection leads to the lake."""
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", lake.connection())
    return OneLakeHook()
