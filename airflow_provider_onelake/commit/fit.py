"""Whether what Spark wrote in a shadow still fits the table.

Protocol: compatible definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_onelake.log.compatibility import incompatibilities
from airflow_provider_onelake.log.snapshot import Snapshot


def unfit(before: Snapshot, now: Snapshot) -> str | None:
    """Say why files that were rewritten under an older definition no longer fit, or ``None``.

    :param before: the snapshot from which the shadow was made.
    :param now: the newest one.
    """
    if now.table_id != before.table_id:
        return "the table was replaced by another"
    if _protocol(now) != _protocol(before):
        return f"the table's protocol was changed (seen at version {now.version})"
    reasons = list(incompatibilities(before.metadata, now.metadata))
    # If row tracking was switched on since, rows in the rewritten files would get new ids.
    if _row_tracking(before) != _row_tracking(now):
        reasons.append("row tracking was switched")
    return f"the table changed: {'; '.join(reasons)} (seen at version {now.version})" if reasons else None


def _protocol(snapshot: Snapshot) -> tuple[Any, ...]:
    versions = (snapshot.protocol["minReaderVersion"], snapshot.protocol["minWriterVersion"])
    return (*versions, snapshot.writer_features)


def _row_tracking(snapshot: Snapshot) -> Mapping[str, str]:
    return {
        key: value
        for key, value in snapshot.configuration.items()
        if key == "delta.enableRowTracking" or key.startswith("delta.rowTracking.")
    }
