"""Whether rows that were published are in the table still."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import LogGapError

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.staging.published import Publishing


def rows_gone(log: DeltaLog, found: Publishing, snapshot: Snapshot) -> str | None:
    """Say what took all rows of a writer out of the table, or ``None`` where some are there, or may be.

    Rows that a compaction has put into other files may be there; and so may those of which the log no longer tells.

    :param log: of the table.
    :param found: where the rows were published.
    :param snapshot: of the table.
    """
    prefix = f"{found.record.buffer}/"
    if found.record.rows == 0 or log.live_files(lambda add: add["path"].startswith(prefix), snapshot.version):
        return None
    try:
        since = log.commits_between(found.version, snapshot.version)
    except LogGapError:
        return None
    last = None
    for commit in since:
        for remove in commit.removes:
            if remove["path"].startswith(prefix):
                if not remove.get("dataChange", True):
                    return None
                last = commit
    if last is None:
        return None
    return f"{last.operation or 'another commit'} in version {last.version} took its rows out of the table"
