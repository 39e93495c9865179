"""What a writer published before: where, and whether it still stands there as it was (protocol, rules 10 and 11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import LogGapError, RerunRefusedError
from airflow_provider_onelake.log.actions import total_rows
from airflow_provider_onelake.log.commits import PublishedWriter
from airflow_provider_onelake.staging.buffers import markers

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.staging.identity import WriterIdentity

WAYS = (
    "on_rerun='append' adds the rows again, 'replace' takes the earlier ones back first, and the modes overwrite, "
    "overwrite_partitions and replace_where replace what is there"
)
"""What a person may choose from, where a rerun cannot be skipped."""

# Operations that take a commit's rows back without taking back its txn (rule 10).
_UNDOING = (
    "RESTORE",
    "CREATE OR REPLACE TABLE",
    "REPLACE TABLE",
    "CREATE OR REPLACE TABLE AS SELECT",
    "REPLACE TABLE AS SELECT",
    "CLONE",
)


@attrs.frozen
class Publishing:
    """Where a writer's rows were published.

    :param version: of the table.
    :param record: what the commit says of the writer.
    """

    version: int
    record: PublishedWriter


def find_published(log: DeltaLog, identity: WriterIdentity, generation: int, newest: int) -> Publishing | None:
    """Return where a writer's rows were published, or ``None`` where neither a marker nor the log says.

    :param log: of the table.
    :param identity: of the writer.
    :param generation: to look for.
    :param newest: the table's newest version.
    """
    for marker in markers(log.store, identity.directory):
        if marker.get("version") is None or "writer" not in marker:
            continue
        record = PublishedWriter.from_json(marker["writer"])
        if (record.app_id, record.generation) == (identity.app_id, generation):
            return Publishing(int(marker["version"]), record)
    version = newest
    while version >= 0 and (commit := log.commit(version)) is not None:
        if commit.txns.get(identity.app_id) == generation:
            for writer in commit.writers:
                if writer.app_id == identity.app_id:
                    return Publishing(version, writer)
        version -= 1
    return None


def undone(log: DeltaLog, found: Publishing, snapshot: Snapshot) -> str | None:
    """Say what took published rows back without taking back their ``txn``, or ``None`` (protocol, rule 10).

    :param log: of the table.
    :param found: where the rows were published.
    :param snapshot: of the table.
    """
    try:
        since = log.commits_between(found.version, snapshot.version)
    except LogGapError:
        prefix = f"{found.record.buffer}/"
        if not found.record.rows or len(log.live_files(lambda add: add["path"].startswith(prefix), snapshot.version)):
            return None
        return (
            "the log since then was cleaned up and none of its files is live: they were compacted, or deleted, and "
            "nobody knows which, so look before you append"
        )
    undoing = next((commit for commit in since if commit.operation in _UNDOING), None)
    return f"{undoing.operation} in version {undoing.version} took its rows back" if undoing is not None else None


def files_to_take_back(
    log: DeltaLog, identity: WriterIdentity, generation: int, snapshot: Snapshot
) -> list[dict[str, Any]]:
    """Return the live files of what a writer appended before, for a rerun that replaces it (protocol, rule 11).

    They must all be live and as they were: after an UPDATE, a DELETE or a compaction, the rows in them are no longer
    the writer's alone, and staging them again would bring back what somebody has changed or asked to erase.

    :param log: of the table.
    :param identity: of the writer.
    :param generation: the one that is in the table.
    :param snapshot: that is committed against.
    :returns: the raw ``add`` actions; none where that generation had no rows.
    :raises RerunRefusedError: a file is gone or has a deletion vector, or nobody knows which files they were.
    """
    found = find_published(log, identity, generation, snapshot.version)
    if found is None:
        raise _refused(log, identity, generation, snapshot, "neither a marker nor the log says which files they are")
    prefix = f"{found.record.buffer}/"
    live = list(log.live_files(lambda add: add["path"].startswith(prefix), snapshot.version))
    commit = log.commit(found.version)
    if commit is not None:
        missing = {add["path"] for add in commit.adds if add["path"].startswith(prefix)} - {f["path"] for f in live}
        if missing:
            raise _refused(log, identity, generation, snapshot, f"{min(missing)} of version {found.version} is gone")
    elif found.record.rows is None or total_rows(live) != found.record.rows:
        reason = f"version {found.version} was cleaned up, and not all of its {found.record.rows} rows are live"
        raise _refused(log, identity, generation, snapshot, reason)
    if not live and (why := undone(log, found, snapshot)):
        # A generation without files cannot be missed, so what was taken back before it may be there again.
        raise _refused(log, identity, generation, snapshot, why)
    changed = next((file["path"] for file in live if file.get("deletionVector")), None)
    if changed is not None:
        raise _refused(log, identity, generation, snapshot, f"rows of {changed} were deleted or updated since")
    return live


def _refused(
    log: DeltaLog, identity: WriterIdentity, generation: int, snapshot: Snapshot, reason: str
) -> RerunRefusedError:
    return RerunRefusedError(
        f"What writer {identity.key!r} appended to {log.table} in generation {generation} cannot be taken back: "
        f"{reason} (seen at version {snapshot.version}). Nothing was changed: use the mode overwrite_partitions or "
        "replace_where, which replace what is there, or on_rerun='append', which adds the rows beside it."
    )
