"""The checks before buffers are put into a table: one function each.

In the order in which :mod:`~airflow_provider_onelake.writes.publish` runs them on every new snapshot, with the rule
that each one keeps. What cannot have changed since the last attempt is not asked again: markers after the first put, 5
and 6 under the same definition of the table, 9 where the live files are known.

Before all of them, once, :func:`check_audited`: do the rows pass the checks of their writers? (audited)

1. :func:`~airflow_provider_onelake.history.reruns.in_table`: is this generation of the writer in the table already, or
   newer work of it, or all that a skipping rerun may ask for? (generation, skip only what is there)
2. a marker: was the buffer published or set aside? (publishing closes).
   :func:`check_whole`: are the others a part of a load that is to be published whole?
3. ``Buffer.check_age``: could a VACUUM take its files? (young)
4. :func:`check_no_path_twice` (no path twice). :func:`check_not_brought_back`: may a RESTORE have brought back the rows
   of the files that a plan gave the writer? (one ledger)
5. :func:`check_definition`: would the table read its files rightly? (compatible definition)
6. :func:`~airflow_provider_onelake.writes.batch.place`: do all rows lie where the writer expects them? (typed partition
   values)
7. :func:`check_winners_known`: does the log still have every winner? (known winners)
8. :func:`stale_reads`: is what the writer read in the table still so? (reads its target)
9. :func:`~airflow_provider_onelake.commit.entry.check_paths_relative` (verbatim remove)
10. :func:`~airflow_provider_onelake.writes.colleagues.check_apart`: may a file that it would remove hold rows of the
    load's other writers? (colleagues)
11. :func:`~airflow_provider_onelake.writes.conflicts.conflicts_of`: what did others do to the rows that the batch
    replaces? The policy settles the conflicts that it finds (whole writes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.reads import read_changed
from airflow_provider_onelake.commit.loop import View
from airflow_provider_onelake.exceptions import (
    BroughtBackError,
    BufferDoesNotFitError,
    BufferIncompleteError,
    InvalidWriteError,
    LogGapError,
    MissingWritersError,
    TerminalError,
    UnknownCommitsError,
)
from airflow_provider_onelake.history.undone import UNDOING
from airflow_provider_onelake.log.actions import Metadata
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.compatibility import incompatibilities
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.log.schema import partition_columns
from airflow_provider_onelake.log.snapshot import NO_VERSION, Snapshot
from airflow_provider_onelake.writes.batch import Batch


def check_audited(buffers: Iterable[Buffer], log: DeltaLog) -> None:
    """Refuse rows that fail a check of their writer, or whose checks were not evaluated (protocol: audited).

    :param buffers: to publish.
    :param log: of the table.
    :raises ChecksFailedError: rows fail a check.
    :raises BufferIncompleteError: there is no verdict.
    """
    for buffer in buffers:
        if buffer.refused:
            raise buffer.refusal(log)
        if buffer.unchecked:
            raise BufferIncompleteError(
                f"The checks of writer {buffer.spec.identity.key!r} were not evaluated over {buffer.path} of "
                f"{log.table}. Nothing was published: a retry evaluates them."
            )


def check_whole(set_aside: Sequence[Buffer], table: str) -> None:
    """Refuse a part of a load whose author wants all writers or none.

    :param set_aside: buffers of the load that were set aside meanwhile.
    :param table: what messages call the table.
    :raises MissingWritersError: there are such buffers.
    """
    if set_aside:
        keys = ", ".join(repr(each.spec.identity.key) for each in set_aside)
        raise MissingWritersError(
            f"What {keys} had staged was set aside meanwhile, so nothing of load "
            f"{set_aside[0].spec.identity.load.id} of {table} was published: on_missing_writer='publish_nothing' wants "
            "all writers or none. Clear these writers with their downstream tasks."
        )


def check_is_rows(buffer: Buffer, table: str) -> None:
    """Refuse to append the source of a MERGE, which only its own task merges.

    :param table: what messages call the table.
    """
    if buffer.spec.mode.in_rounds:
        raise InvalidWriteError(
            f"The buffer {buffer.path} of writer {buffer.spec.identity.key!r} is the source of a MERGE into {table}, "
            "which needs Spark. Nothing was published: clear the writer's task, which merges it."
        )


def check_not_brought_back(buffers: Iterable[Buffer], snapshot: Snapshot, log: DeltaLog) -> None:
    """Refuse the files of a plan if a RESTORE since the plan has looked may have brought their rows back.

    :param snapshot: the newest of the table.
    :raises BroughtBackError: only a plan tells whose rows they are.
    """
    for spec in (buffer.spec for buffer in buffers):
        looked = (spec.planned or {}).get("version", snapshot.version)
        # What is no longer in the log is for the next plan to tell.
        with suppress(LogGapError):
            since = log.commits_between(looked, snapshot.version)
            if (back := next((each for each in since if each.operation in UNDOING and each.adds), None)) is not None:
                raise BroughtBackError(
                    f"The files of writer {spec.identity.key!r} may be in {log.table} already: {back.operation} in "
                    f"version {back.version} may have brought back their rows since the plan of its files was made. "
                    "Nothing was published: clear the plan with what follows it."
                )


def check_no_path_twice(buffers: Iterable[Buffer], winners: Iterable[Commit], table: str) -> None:
    """Refuse to add a file that was ever in the table (protocol: no path twice).

    A buffer's files can have come in only after its read version, so the winners show whether they did.

    :param buffers: to publish.
    :param winners: every commit since the buffers' read versions.
    :param table: what messages call the table.
    :raises TerminalError: a file was published before.
    """
    prefixes = tuple(f"{buffer.path}/" for buffer in buffers)
    for winner in winners:
        for add in winner.adds:
            if add["path"].startswith(prefixes):
                raise TerminalError(
                    f"{add['path']} came into {table} in version {winner.version} already; a file is published once. "
                    "Nothing was changed."
                )


def check_definition(buffer: Buffer, snapshot: Snapshot, table: str) -> None:
    """Refuse a buffer whose files the table would no longer read correctly (protocol: compatible definition).

    :param snapshot: that is committed against.
    :param table: what messages call the table.
    :raises BufferDoesNotFitError: the message says what changed and what to do.
    :raises UnsupportedFeatureError: the table has a feature outside the allow-list.
    """
    snapshot.check_supported(table)
    when, again = f"at version {buffer.read_version}", "to stage the rows again under the new definition"
    if buffer.read_version == NO_VERSION:
        when, again = "while there was no table", f"{again}. If there is none yet, give `schema`, its columns, before"
    if buffer.read_version != NO_VERSION and buffer.table_id != snapshot.table_id:
        reasons = ["the table was replaced by another"]
    elif buffer.read_version == NO_VERSION and not buffer.adds:
        reasons = []
    else:
        reasons = list(incompatibilities(buffer.metadata, snapshot.metadata))
        if buffer.spec.predicates:
            reasons += _renamed_partitions(buffer.metadata, snapshot)
    if buffer.spec.mode.replaces and snapshot.append_only:
        reasons.append("it is append-only now")
    if reasons:
        raise BufferDoesNotFitError(
            f"{table} changed since writer {buffer.spec.identity.key!r} staged {when}: "
            f"{'; '.join(reasons)} (seen at version {snapshot.version}). Nothing was published. Clear "
            f"{buffer.spec.task or 'the writer'} {again}."
        )


def _renamed_partitions(staged: Metadata, snapshot: Snapshot) -> Iterator[str]:
    """Yield the partition columns with another name: a writer's predicate could mean other partitions now."""
    for before, after in zip(partition_columns(staged), snapshot.partitioning.types, strict=False):
        if before != after:
            yield f"partition column {before} is called {after} now, and the writer's predicate has the names of before"


def stale_reads(buffers: Iterable[Buffer], winners: Sequence[Commit], partitioning: Partitioning) -> list[Commit]:
    """Return the commits that changed rows which a writer has read in the table (protocol: reads its target).

    Where a writer does not say which partitions it reads, it is not known which rows it read, so every change of rows
    counts, in any partition. For the same reason such reads need not be pinned to one version: without a change since
    the read version, all of them gave the same rows. Declared reads are pinned.

    :param buffers: to publish.
    :param winners: every commit since the read versions, in the order of versions.
    :param partitioning: of the table that is committed against.
    """
    readers = [buffer for buffer in buffers if buffer.reads_target]
    found = [read_changed(buffer.reads, since(buffer.read_version, winners), partitioning) for buffer in readers]
    by_version = {winner.version: winner for some in found for winner in some}
    return [by_version[version] for version in sorted(by_version)]


def since(read_version: int, winners: Sequence[Commit]) -> list[Commit]:
    """Return the commits after a read version, which may be later than the oldest of the buffers'."""
    return [winner for winner in winners if winner.version > read_version]


def check_winners_known(batch: Batch, view: View, table: str) -> None:
    """Refuse to replace rows, or to publish what was computed from the table, where commits are unknown.

    Protocol: known winners.

    :param table: what messages call the table.
    :raises UnknownCommitsError: commits since the batch's read version were cleaned up.
    """
    if view.complete:
        return
    if any(buffer.reads_target for buffer in batch.buffers):
        raise UnknownCommitsError(
            f"Writers {batch.names} read {table} at version {batch.read_version}, and its log since then was cleaned "
            "up, so nobody knows whether what they read has changed. Nothing was published: clear them."
        )
    if batch.replaces_anything:
        raise UnknownCommitsError(
            f"The log of {table} between version {batch.read_version}, on which writers {batch.names} were formed, and "
            f"version {view.snapshot.version} was cleaned up, so nobody knows what they would replace. Nothing was "
            "published: clear the writers to run them on the newest version."
        )
