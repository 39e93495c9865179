"""ALTER TABLE … SET TBLPROPERTIES (delta.enableRowTracking = true) as Delta does it: in three commits."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.tables import foreign_commit, newest

_PROTOCOL: Any = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["appendOnly", "invariants", "deletionVectors", "rowTracking", "domainMetadata"],
}


def begin_row_tracking(log: DeltaLog) -> None:
    """The first commit: the table may track rows from now on."""
    foreign_commit(log, [{"commitInfo": {"operation": "UPGRADE PROTOCOL"}}, {"protocol": _PROTOCOL}])


def backfill_row_ids(log: DeltaLog) -> None:
    """The second commit: every file that is there gets row ids, and no row changes. The third sets the property."""
    version, first = newest(log).version, 0
    entry: list[Any] = [{"commitInfo": {"operation": "ROW TRACKING BACKFILL"}}]
    for add in log.live_files(lambda _: True, version):
        numbered = {"baseRowId": first, "defaultRowCommitVersion": version + 1}
        entry.append({"add": {**add, "dataChange": False, **numbered}})
        first += json.loads(str(add["stats"]))["numRecords"]
    mark = json.dumps({"rowIdHighWaterMark": first - 1})
    entry.append({"domainMetadata": {"domain": "delta.rowTracking", "configuration": mark, "removed": False}})
    foreign_commit(log, entry)
