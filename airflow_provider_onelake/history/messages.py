"""What a table's own log says of how far a task has come: the newest message of a commit that stands in the table.

A message (``commit_message``) is in the log exactly if the rows of its commit are. So a task that remembers something
in it can neither forget what it has done, nor remember what it has not. A RESTORE takes rows back and leaves their
commits in the log, so what came after the version that it names is passed over.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import LogGapError
from airflow_provider_onelake.history.undone import REPLACING_TABLE, UNDOING

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog


def newest_told(log: DeltaLog, pattern: str) -> re.Match[str] | None:
    """Search what the commits of a table say of themselves (``userMetadata``), from the newest backwards.

    :param pattern: a regular expression.
    :returns: the first that matches; ``None`` if no commit matches that the table still has, or there is no table.
    :raises LogGapError: none matches as far as the log reaches back, or a RESTORE does not say to which version.
    """
    snapshot = log.snapshot_or_none()
    version = -1 if snapshot is None else snapshot.version
    while version >= 0:
        commit = log.commit(version)
        if commit is None:
            raise LogGapError(
                f"No commit of {log.table} since version {version + 1} says {pattern!r}, and what was before it was "
                "cleaned up, so nobody knows whether one did. Nothing was changed."
            )
        if found := re.search(pattern, commit.user_metadata or ""):
            return found
        if commit.operation in REPLACING_TABLE:
            return None
        earlier = commit.restored_to if commit.operation in UNDOING else version - 1
        if earlier is None or earlier >= version:
            raise LogGapError(
                f"Version {version} of {log.table} is a RESTORE that does not say to which version, so nobody knows "
                f"which commit that says {pattern!r} is still in the table. Nothing was changed."
            )
        version = earlier
    return None
