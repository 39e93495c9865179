"""What the identity of a connection may do with a table, as people are shown it: by reading alone."""

from __future__ import annotations

import shlex
from typing import Any

from airflow_provider_onelake.fabric.access_report import AccessReport


def page_of_access(report: AccessReport, connection: str, path: str) -> dict[str, Any]:
    """Return a report of access, and the command that says what reading alone does not tell.

    :param report: of the connection's identity.
    :param connection: the connection's id.
    :param path: of the table in the connection's lakehouse.
    :returns: ``table``; ``rights``: for each ``right``, whether it is ``allowed`` (``None``: unknown), by which
        ``step`` and ``name``, ``why``, how that was ``found``, and what to ``ask_for``; ``notes``; and ``command``,
        ``None`` where nothing is unknown.
    """
    unknown = any(each.allowed is None for each in report.decisions)
    return {
        "table": report.table,
        "rights": [each.to_json() for each in report.decisions],
        "notes": list(report.notes),
        "command": shlex.join(["onelake", "access", path, "--connection", connection]) if unknown else None,
    }
