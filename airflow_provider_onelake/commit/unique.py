"""Keys that must be unique in the table: which rows they are compared with, and what makes a comparison out of date.

A check of unique keys passes on the rows of one version. Rows that others bring after it were not compared, so the
writer is not published beside them until they are. Rows that others only move or remove do not matter: a key that was
in no row is in no moved row either (protocol: unique keys).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.checks import Unique, keys_of
from airflow_provider_onelake.commit.batch import place, read_partition
from airflow_provider_onelake.commit.key_range import KeyRange
from airflow_provider_onelake.exceptions import (
    BufferDoesNotFitError,
    ConflictError,
    InvalidWriteError,
    LogGapError,
    UncomparedKeysError,
)
from airflow_provider_onelake.log.actions import Add, file_key
from airflow_provider_onelake.log.partitions import InPartitions
from airflow_provider_onelake.log.schema import columns
from airflow_provider_onelake.staging.published import files_to_take_back

if TYPE_CHECKING:
    from airflow_provider_onelake.commit.batch import Batch
    from airflow_provider_onelake.log.actions import Metadata
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.staging.buffers import Buffer
    from airflow_provider_onelake.staging.spec import WriteSpec


def key_columns(spec: WriteSpec, metadata: Metadata, table: str) -> dict[str, tuple[str, ...]]:
    """Return the columns of each check of unique keys, as the table spells them, by the check's name.

    :param metadata: of the rows.
    :param table: what messages call the table.
    :raises InvalidWriteError: there is no such column, or it is a struct, an array or a map.
    """
    there = {name.lower(): (name, column) for name, column in columns(metadata).items()}
    found: dict[str, tuple[str, ...]] = {}
    for name, asked in keys_of(spec.checks).items():
        for key in asked.columns:
            spelled, column = there.get(key.lower(), (key, None))
            if column is None or not isinstance(column.type, str) or column.type == "variant":
                what = "is not there" if column is None else f"is of the type {_kind(column.type)}"
                raise InvalidWriteError(
                    f"Writer {spec.identity.key!r} for {table}: the check {name!r} takes {spelled!r} for a key, which "
                    f"{what}. Name columns of the table that hold plain values. Nothing was published."
                )
        found[name] = tuple(there[key.lower()][0] for key in asked.columns)
    return found


def to_compare(log: DeltaLog, buffer: Buffer, snapshot: Snapshot, since: int | None = None) -> list[Add]:
    """Return the live files whose rows stay beside those of a buffer and may have one of its keys.

    Left out are files that the write replaces or takes back, and files of which partition or statistics prove that
    they have none of the keys.

    :param log: of the table.
    :param buffer: its files with their statistics.
    :param snapshot: of the table.
    :param since: a version with which the keys were compared. Only files that came later are returned, unless it is not
        known which did. Default: there is none.
    :raises BufferDoesNotFitError: a key is another column of the table now.
    :raises RerunRefusedError: what the writer appended before cannot be taken back.
    :raises OneLakeError: as :func:`~airflow_provider_onelake.commit.batch.place`.
    """
    _check_same_columns(buffer, snapshot, log.table)
    batch, spec = place((buffer,), snapshot), buffer.spec
    concerned, read = _Concerned.of(buffer, snapshot), read_partition(spec.mode, snapshot.partitioning)
    stays = InPartitions(
        lambda values: concerned.may_lie_in(values) and not (batch.replaces_anything and batch.replaces(read(values)))
    )
    files: Iterable[Add] = (file for file in log.live_files(stays, snapshot.version) if concerned(file))
    stored = snapshot.txns.get(spec.identity.app_id)
    if spec.takes_back and stored is not None:
        gone = {file_key(file) for file in files_to_take_back(log, spec.identity, stored, snapshot)}
        files = [file for file in files if file_key(file) not in gone]
    news = _news(log, spec, since, snapshot) if since is not None else None
    return [file for file in files if news is None or file_key(file) in news]


def _news(log: DeltaLog, spec: WriteSpec, since: int, snapshot: Snapshot) -> set[object] | None:
    """Return the keys of the files that came after a version; ``None`` if all files are to be compared once more."""
    try:
        commits = log.commits_between(since, snapshot.version)
    except LogGapError:
        return None
    if any(commit.metadata or spec.identity.app_id in commit.txns for commit in commits):
        # A column may have another name, or other rows of the writer are taken back now.
        return None
    return {file_key(add) for commit in commits for add in commit.adds}


def check_compared(
    batch: Batch, colleagues: Collection[object], winners: Sequence[Commit], snapshot: Snapshot, table: str
) -> None:
    """Refuse a buffer whose keys were not compared with rows that others have brought since (protocol: unique keys).

    :param colleagues: other writers of the load whose rows the batch leaves alone.
    :param winners: every commit since the read version, in the order of versions.
    :param snapshot: that is committed against.
    :param table: what messages call the table.
    :raises UncomparedKeysError: there may be such a row.
    :raises ConflictError: writers whose keys must be unique are to be published together with others.
    """
    checked = [buffer for buffer in batch.buffers if buffer.keeps_keys_unique]
    if not checked:
        return
    if len(batch.buffers) > 1 or (colleagues and batch.replaces_anything):
        raise ConflictError(
            f"Writers {batch.names} for {table} are to be published together, and keys of "
            f"{checked[0].spec.identity.key!r} must be unique: nobody has compared them with rows of the others. "
            "Nothing was published: reconcile with publish='each'."
        )
    (buffer,) = checked
    assert buffer.compared is not None
    spec, split = buffer.spec, snapshot.partitioning
    later = [winner for winner in winners if winner.version > buffer.compared]
    changing = [winner for winner in later if winner.data_change]
    # Columns may have swapped their names.
    renamed = any(winner.metadata for winner in later)
    concerned = _Concerned.of(buffer, snapshot) if changing else None

    def brings_keys(add: Add) -> bool:
        if renamed or not split.named_by(add):
            return True
        replaced = batch.replaces_anything and batch.replaces(split.partition(add["partitionValues"]))
        return not replaced and concerned is not None and concerned(add)

    for winner in later:
        # What is taken back was left out of the comparison, and another generation of the writer is taken back now.
        retaken = spec.takes_back and spec.identity.app_id in winner.txns
        if retaken or (winner in changing and any(map(brings_keys, winner.adds))):
            raise UncomparedKeysError(
                f"Writer {spec.identity.key!r} must have unique keys, and version {winner.version} ({winner.author}) "
                f"brought rows to {table} that may have them, since they were compared with version "
                f"{buffer.compared}. Nothing was published: clear {spec.task or 'the writer'}, which compares them "
                "with the newest version."
            )


@attrs.frozen
class _Concerned:
    """A condition on files of the table: whether a file may hold one of the keys of a buffer.

    :param ranges: what the buffer has in the columns of each check; none where it has no rows.
    """

    ranges: Sequence[KeyRange]

    @classmethod
    def of(cls, buffer: Buffer, snapshot: Snapshot) -> _Concerned:
        keys: Mapping[str, Unique] = keys_of(buffer.spec.checks) if buffer.adds else {}
        return cls([KeyRange.of(buffer, snapshot, asked.columns) for asked in keys.values()])

    def __call__(self, file: Add) -> bool:
        return any(keys(file) for keys in self.ranges)

    def may_lie_in(self, values: Mapping[str, str | None]) -> bool:
        return any(keys.may_lie_in(values) for keys in self.ranges)


def _check_same_columns(buffer: Buffer, snapshot: Snapshot, table: str) -> None:
    """Refuse a buffer whose keys have other names in the table now, so that Spark would compare other columns."""
    now = {name.lower(): column.physical_name for name, column in columns(snapshot.metadata).items()}
    for names in key_columns(buffer.spec, buffer.metadata, table).values():
        mine = columns(buffer.metadata)
        other = next((name for name in names if now.get(name.lower()) != mine[name].physical_name), None)
        if other is not None:
            raise BufferDoesNotFitError(
                f"{table} has another column {other} now, or none, than when writer {buffer.spec.identity.key!r} "
                f"staged at version {buffer.read_version}, and its values are keys that must be unique. Nothing was "
                f"published: clear {buffer.spec.task or 'the writer'} to stage the rows again under the new definition."
            )


def _kind(kind: object) -> str:
    return str(kind.get("type", "")) if isinstance(kind, Mapping) else str(kind)
