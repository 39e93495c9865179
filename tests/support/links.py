"""Two lakehouses of a workspace, and shortcuts between them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from local_onelake.shortcuts import SHORTCUTS
from tests.support.onelake import BY_GUIDS, LAKEHOUSE_GUID, TOKEN, WORKSPACE_GUID, OneLake

GOLD_GUID = "b1b2c3d4-e5f6-4789-8abc-def012345678"
GOLD = f"onelake://{WORKSPACE_GUID}/{GOLD_GUID}"
NOBODYS_GUID = "c1b2c3d4-e5f6-4789-8abc-def012345678"
S3 = {"location": "https://b.s3.us-east-1.amazonaws.com", "subpath": "/t", "connectionId": WORKSPACE_GUID}


@contextmanager
def two_lakehouses() -> Iterator[OneLake]:
    """The table Tables/trips is in the other one."""
    with OneLake() as running:
        running.served.names.add_item("taxi", "gold.Lakehouse", GOLD_GUID)
        running.served.tree.make_directory("taxi/gold.Lakehouse/Tables/trips")
        yield running


def connect(
    monkeypatch: pytest.MonkeyPatch, server: OneLake, lakehouse: str = BY_GUIDS, token: str = TOKEN, **extra: Any
) -> None:
    said = {"lakehouse": lakehouse, "sign_in": "token", "endpoint": server.url, "allow_http": "true", "patience": 1}
    said |= {"fabric_api": f"{server.url}/api.fabric.microsoft.com/v1", **extra}
    connection = {"conn_type": "onelake", "password": token, "extra": said}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps(connection))


def put_links(server: OneLake, links: dict[str, dict[str, Any]]) -> None:
    """Shortcuts that Fabric would not make, or not any more."""
    with server.served.shortcuts._kept.changing() as document:
        document.setdefault(SHORTCUTS, {}).setdefault(LAKEHOUSE_GUID, {}).update(links)


def to(path: str, item: str = LAKEHOUSE_GUID) -> dict[str, Any]:
    return {"type": "OneLake", "oneLake": {"workspaceId": WORKSPACE_GUID, "itemId": item, "path": path}}
