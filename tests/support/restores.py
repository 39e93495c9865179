"""RESTORE as others do it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.log.actions import Action, Remove, file_key
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.restore import restore
from tests.support.changes import asker
from tests.support.tables import foreign_commit, landed_at, newest

_SOME_DAY = datetime(2020, 1, 1, tzinfo=UTC)


def time_of(log: DeltaLog, version: int) -> str:
    """The time of a version. Commits of a test may come within a millisecond, so all entries get times of their own."""
    for each in range(newest(log).version + 1):
        landed_at(log, each, _SOME_DAY + timedelta(seconds=each))
    return (_SOME_DAY + timedelta(seconds=version)).isoformat()


def restored_by_time(log: DeltaLog, version: int, _: str = "") -> None:
    """Take a table back to a version as Spark and deltalake do where they are asked for a time.

    They log the time and no version.
    """
    then, now = (
        {file_key(add): add for add in log.live_files(lambda _: True, at)} for at in (version, newest(log).version)
    )
    gone = [now[key] for key in now.keys() - then.keys()]
    removes: list[Remove] = [
        {
            "path": add["path"],
            "partitionValues": add["partitionValues"],
            "deletionTimestamp": 9,
            "dataChange": True,
            **({"deletionVector": add["deletionVector"]} if add.get("deletionVector") else {}),
        }
        for add in gone
    ]
    told: Any = {"operation": "RESTORE", "operationParameters": {"version": None, "timestamp": time_of(log, version)}}
    entry: list[Action] = [{"commitInfo": told}, {"metaData": log.snapshot_at(version).metadata}]
    entry += [{"remove": remove} for remove in removes]
    entry += [{"add": {**then[key], "dataChange": True}} for key in then.keys() - now.keys()]
    foreign_commit(log, entry)


def take_back(log: DeltaLog, version: int, name: str = "restore") -> None:
    """Take a table back to a version as another task does."""
    restore(Transactions(log), version, newest(log), asker(name), on_newer_commit=OnNewerCommit.FAIL)
