"""Commits of others as a batch meets them, made without a table."""

from __future__ import annotations

from typing import Any

from airflow_provider_onelake.log.commits import Commit


def file(month: str | None, path: str = "a", **fields: Any) -> dict[str, Any]:
    """An action of a file of a month that changes rows."""
    return {"path": path, "partitionValues": {"month": month}, "dataChange": True, **fields}


def winner(*actions: dict[str, Any], **info: Any) -> Commit:
    """Version 7, a WRITE unless it says otherwise."""
    return Commit(7, [{"commitInfo": {"timestamp": 1, "operation": "WRITE", **info}}, *actions])
