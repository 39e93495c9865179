"""Where a writer's rows were published before, and whether they are still there as they were.

Protocol: skip only what is there, take back whole.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import LogGapError, RerunRefusedError
from airflow_provider_onelake.log.actions import object_path, total_rows
from airflow_provider_onelake.log.commits import PublishedWriter
from airflow_provider_onelake.staging.buffers import markers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import Partitioning
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.staging.identity import WriterIdentity

WAYS = (
    "on_rerun='append' adds the rows again, 'replace' takes the earlier ones back first, and the modes overwrite, "
    "overwrite_partitions and replace_where replace what is there"
)
"""What a person can do where a rerun cannot be skipped."""

UNDOING = (
    "RESTORE",
    "CREATE OR REPLACE TABLE",
    "REPLACE TABLE",
    "CREATE OR REPLACE TABLE AS SELECT",
    "REPLACE TABLE AS SELECT",
    "CLONE",
)
"""Operations that take a commit's rows back without taking back its txn (protocol: skip only what is there)."""

# Each commit costs a request to the store, so a load is not followed through all commits of many months.
_MOST_FOLLOWED = 1000


@attrs.frozen
class Publishing:
    """Where a writer's rows were published.

    :param version: of the table.
    :param record: what the commit records of the writer.
    """

    version: int
    record: PublishedWriter


def find_published(log: DeltaLog, identity: WriterIdentity, generation: int, newest: int) -> Publishing | None:
    """Return where a writer's rows were published, or ``None`` where neither a marker nor the log says.

    :param generation: to look for.
    :param newest: the table's newest version.
    """
    for marker in markers(log.store, identity.directory):
        if marker.get("version") is None or "writer" not in marker:
            continue
        record = PublishedWriter.from_json(marker["writer"])
        if (record.app_id, record.generation) == (identity.app_id, generation):
            return Publishing(int(marker["version"]), record)
    for commit in commits_that_set(log, identity, generation, newest):
        for writer in commit.writers:
            if writer.app_id == identity.app_id:
                return Publishing(commit.version, writer)
    return None


def commits_that_set(log: DeltaLog, identity: WriterIdentity, generation: int, newest: int) -> Iterator[Commit]:
    """Yield the commits that set a writer's ``txn`` to a generation, the newest first, as far as the log reaches back.

    :param newest: the table's newest version.
    """
    for version in range(newest, -1, -1):
        commit = log.commit(version)
        if commit is None:
            return
        if commit.txns.get(identity.app_id) == generation:
            yield commit


def restored_away(log: DeltaLog, found: Publishing, snapshot: Snapshot) -> str | None:
    """Say which operation took published rows back without taking back their ``txn``, or ``None``.

    Protocol: skip only what is there. This asks only for such operations; :func:`aftermath` follows the rows.

    :param found: where the rows were published.
    """
    try:
        since = log.commits_between(found.version, snapshot.version)
    except LogGapError:
        if not found.record.rows or _live_files(log, found, snapshot):
            return None
        return (
            "the log since then was cleaned up and none of its files is live: they were compacted, or deleted, and "
            "nobody knows which, so look before you append"
        )
    undoing = next((commit for commit in since if commit.operation in UNDOING), None)
    return f"{undoing.operation} in version {undoing.version} took its rows back" if undoing is not None else None


class Fate(StrEnum):
    """What became of rows after they were published.

    ``LIVE``: they are in the table, as far as the log says. ``SUPERSEDED``: writers replaced them. ``DELETED``: another
    engine's statement removed or changed some or all of them. ``RESTORED_AWAY``: the table was taken back to a version
    before them.
    """

    LIVE = "live"
    SUPERSEDED = "superseded"
    DELETED = "deleted"
    RESTORED_AWAY = "restored_away"


@attrs.frozen
class Aftermath:
    """What became of rows after they were published.

    :param story: sentences, in order: one for every commit that removed some of the rows, or what is not known.
    :param gone: whether none of the rows is left, as far as the log says.
    """

    fate: Fate
    story: tuple[str, ...] = ()
    gone: bool = False


def aftermath(log: DeltaLog, found: Publishing, snapshot: Snapshot) -> Aftermath:
    """Say what became of published rows, by following their files through the commits since.

    Rows that a compaction or a statement moved into other files are followed there. Where the log does not reach back,
    or too many commits follow, only the rows in files that are still live are counted.

    :param found: where the rows were published.
    """
    try:
        if snapshot.version - found.version > _MOST_FOLLOWED:
            raise LogGapError(f"More than {_MOST_FOLLOWED} versions of {log.table} are not followed.")
        commits = log.commits_between(found.version - 1, snapshot.version)
    except LogGapError:
        live = total_rows(_live_files(log, found, snapshot))
        if found.record.rows is None or live == found.record.rows:
            return Aftermath(Fate.LIVE)
        unknown = f"{live} of its {found.record.rows} rows are where they were; where the others are, nobody knows"
        return Aftermath(Fate.LIVE, (unknown,))
    original = {object_path(add) for add in _added(commits[0], found)}
    holding, fate, story = original, Fate.LIVE, []
    for commit in commits[1:]:
        taken = [file for file in commit.removes if object_path(file) in holding]
        back = original & {object_path(add) for add in commit.adds}
        moved = _moved(commit, taken, snapshot.partitioning)
        holding = (holding - {object_path(file) for file in taken}) | moved | back
        if any(file.get("dataChange", True) for file in taken):
            fate, verb = _taken_by(commit)
            by = ", ".join(writer.writer for writer in commit.writers) or commit.operation or "an unknown operation"
            some = "some of its rows were" if holding else "its rows were"
            story.append(f"{some} {verb} by {by} in version {commit.version}")
    if holding and fate in (Fate.SUPERSEDED, Fate.RESTORED_AWAY):
        fate = Fate.LIVE
    if original and not holding and fate is Fate.LIVE:
        story.append("its files are gone, and no commit says what became of its rows")
    return Aftermath(fate, tuple(story), gone=bool(original) and not holding)


def _live_files(log: DeltaLog, found: Publishing, snapshot: Snapshot) -> list[dict[str, Any]]:
    prefix = f"{found.record.buffer}/"
    return list(log.live_files(lambda add: add["path"].startswith(prefix), snapshot.version))


def _added(commit: Commit, found: Publishing) -> list[dict[str, Any]]:
    """Return the files of a writer's buffer that a commit added."""
    return [add for add in commit.adds if add["path"].startswith(f"{found.record.buffer}/")]


def _taken_by(commit: Commit) -> tuple[Fate, str]:
    if commit.operation in UNDOING:
        return Fate.RESTORED_AWAY, "taken back"
    if commit.writers or commit.operation == "WRITE":
        return Fate.SUPERSEDED, "replaced"
    return Fate.DELETED, "changed or deleted"


def _moved(commit: Commit, taken: Sequence[Mapping[str, Any]], partitioning: Partitioning) -> set[str]:
    """Return the files into which a commit wrote rows of the files that it took."""
    rewrites = not commit.writers and commit.operation not in ("WRITE", *UNDOING)
    if not taken or (not rewrites and all(file.get("dataChange", True) for file in taken)):
        return set()
    if not all(partitioning.named_by(file) for file in taken):
        return {object_path(add) for add in commit.adds}
    partitions = {partitioning.partition(file["partitionValues"]) for file in taken}
    return {object_path(add) for add in commit.adds if partitioning.partition(add["partitionValues"]) in partitions}


def files_to_take_back(
    log: DeltaLog, identity: WriterIdentity, generation: int, snapshot: Snapshot
) -> list[dict[str, Any]]:
    """Return the live files of what a writer appended before, for a rerun that replaces it (protocol: take back whole).

    All of these files must be live and as they were. After an UPDATE, a DELETE or a compaction, the writer's rows are
    changed, erased or mixed with others, and staging them again would bring back rows that were changed or erased.

    :param generation: the one that is in the table.
    :param snapshot: that is committed against.
    :returns: the raw ``add`` actions; empty where that generation had no rows.
    :raises RerunRefusedError: a file is gone or has a deletion vector, or the log does not say which files they were.
    """
    found = find_published(log, identity, generation, snapshot.version)
    live = _live_files(log, found, snapshot) if found is not None else []
    why_not = _why_not_taken_back(log, found, live, snapshot)
    if why_not is not None:
        raise RerunRefusedError(
            f"What writer {identity.key!r} appended to {log.table} in generation {generation} cannot be taken back: "
            f"{why_not} (seen at version {snapshot.version}). Nothing was changed: use the mode overwrite_partitions "
            "or replace_where, which replace what is there, or on_rerun='append', which adds the rows beside it."
        )
    return live


def _why_not_taken_back(
    log: DeltaLog, found: Publishing | None, live: Sequence[Mapping[str, Any]], snapshot: Snapshot
) -> str | None:
    if found is None:
        return "neither a marker nor the log says which files they are"
    commit = log.commit(found.version)
    if commit is not None:
        missing = {add["path"] for add in _added(commit, found)} - {file["path"] for file in live}
        if missing:
            return f"{min(missing)} of version {found.version} is gone"
    elif found.record.rows is None or total_rows(live) != found.record.rows:
        return f"version {found.version} was cleaned up, and not all of its {found.record.rows} rows are live"
    if not live and (why := restored_away(log, found, snapshot)):
        # This generation had no files, so none can be missing. But a RESTORE may have brought back the rows of an older
        # generation, which this one had taken back.
        return why
    changed = next((file["path"] for file in live if file.get("deletionVector")), None)
    return f"rows of {changed} were deleted or updated since" if changed is not None else None
