"""Rounds of a DELETE, UPDATE or MERGE: Spark runs the statement in a shadow of the files that it has not read yet.

staged/change-<digest>/<round>/_delta_log/0            the table's definition and the files of the round
staged/change-<digest>/<round>/….parquet               what Spark wrote in place of rows of these files
staged/change-<digest>/<round>/deletion_vector_….bin   the vectors that Spark gave to files of the table
staged/change-<digest>/<round>/_change_data/           what Spark wrote for the table's change feed
staged/change-<digest>/<round>/_delta_log/1            what the statement did; missing where no row matched

What a round did falls into pieces, each of which can be published or dropped by itself. Spark writes rows of several
files of a partition into one file, so a piece is what happened in one partition; or what happened to one file, where
Spark gave out deletion vectors and wrote no rows. Where rows may come into another partition, the round is one piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.buffer import record_in
from airflow_provider_onelake.buffers.shadow import (
    Shadow,
    encoded_uri,
    open_shadow,
    read_shadow,
    read_version,
    shadow_invalid,
    table_paths,
)
from airflow_provider_onelake.exceptions import CorruptLogError, ObjectNotFoundError
from airflow_provider_onelake.log.actions import (
    Add,
    DataFile,
    Metadata,
    Protocol,
    StagedRecord,
    encode,
    parse_actions,
    total_rows,
    version_path,
)
from airflow_provider_onelake.log.commits import CHANGE
from airflow_provider_onelake.log.paths import parse_path
from airflow_provider_onelake.log.schema import columns
from airflow_provider_onelake.log.values import FarTime, Unreadable
from airflow_provider_onelake.log.vectors import deletion_vector_path, vector_home, without_prefix

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import Partitioning
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.log.values import Partition
    from airflow_provider_onelake.storage.stores import Store

ROW_IDS = ("baseRowId", "defaultRowCommitVersion")
"""What an ``add`` says of the ids of its rows; a file keeps it whatever vector it gets."""


@attrs.frozen
class Piece:
    """A part of what a round did that can be published by itself.

    :param removed: the table's ``add`` actions that it replaces.
    :param again: the ``add`` actions of the same files under other deletion vectors.
    :param added: the ``add`` actions of new files.
    :param cdc: the ``cdc`` actions for the change feed.
    :param vectors: the files of deletion vectors that must come to the table's root: where each lies, by where it is to
        lie.
    """

    removed: tuple[Add, ...] = attrs.field(repr=False)
    again: tuple[Add, ...] = attrs.field(default=(), repr=False)
    added: tuple[Add, ...] = attrs.field(default=(), repr=False)
    cdc: tuple[DataFile, ...] = attrs.field(default=(), repr=False)
    vectors: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @property
    def rows_gone(self) -> int | None:
        """How many rows fewer there are; ``None`` where statistics do not say."""
        before, after = total_rows(self.removed), total_rows((*self.again, *self.added))
        return None if before is None or after is None else before - after


@attrs.frozen
class Ran:
    """What a statement did in a round.

    :param pieces: one for every partition or file that changed.
    :param oldest: the store's time of the oldest file that Spark wrote.
    :param tags: of Spark's ``commitInfo``; one says, for example, that row ids were kept.
    :param metrics: the ``operationMetrics`` there.
    """

    pieces: tuple[Piece, ...]
    oldest: datetime | None = None
    tags: Mapping[str, str] = attrs.field(factory=dict)
    metrics: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class TableDefinition:
    """What ALTER TABLE statements made of the definition of a shadow.

    :param metadata: the body of its last ``metaData`` action.
    :param protocol: the body of its last ``protocol`` action.
    :param operation: what Spark calls the last statement. Default: it has run none.
    :param parameters: of the operation, as texts. Default: there are none.
    """

    metadata: Metadata = attrs.field(repr=False)
    protocol: Protocol = attrs.field(repr=False)
    operation: str = ""
    parameters: Mapping[str, str] = attrs.field(factory=dict)


def open_round(
    log: DeltaLog,
    snapshot: Snapshot,
    files: Iterable[Add],
    table_uri: str,
    directory: str,
    attempt: str,
    told: Mapping[str, object],
) -> Shadow:
    """Make the shadow of a round.

    :param snapshot: of the table.
    :param files: live ``add`` actions, with relative paths, that the statement is to read.
    :param table_uri: of the table, as Spark addresses it.
    :param directory: of the rounds of this task, relative to the table.
    :param attempt: id of the round, new for every round.
    :param told: what the shadow says of the statement.
    :raises StoreUnavailableError: the store did not answer.
    """
    base = {"base": encoded_uri(table_uri), "readVersion": snapshot.version, "tableId": snapshot.table_id}
    record: StagedRecord = {CHANGE: {**told, **base}}
    path = f"{directory}/{attempt}"
    return open_shadow(log, snapshot, files, table_uri, path, attempt, "a statement", record)


def files_of_round(store: Store, path: str) -> set[str]:
    """Return the paths of the table's files that a round reads; none where the round cannot be read.

    :param path: of the round, relative to the table.
    """
    try:
        actions = parse_actions(store.get(f"{path}/{version_path(0)}"), f"Version 0 of {path}")
    except (ObjectNotFoundError, CorruptLogError):
        return set()
    record = record_in(actions).get(CHANGE)
    return table_paths(actions, str(record.get("base"))) if isinstance(record, Mapping) else set()


def read_round(
    store: Store,
    ran: Shadow,
    *,
    keeps_rows: bool,
    moves_rows: bool,
    adds_rows: bool = False,
) -> Ran:
    """Read what Spark left in a round, and check that it is what the statement may do.

    :param keeps_rows: whether the statement leaves as many rows as there were: an UPDATE does.
    :param moves_rows: whether the statement may bring rows into other partitions.
    :param adds_rows: whether the statement may leave more rows than there were: a MERGE does.
    :raises BufferInvalidError: version 1 is not what a statement on the shadow's files leaves.
    :raises BufferLostError: a new file is gone or has another size.
    """
    left = read_shadow(store, ran, {"cdc"})
    if left is None:
        return Ran(())
    vectors: dict[str, str] = {}
    removed = {remove["path"]: file for remove, file in zip(left.commit.removes, left.removed, strict=True)}
    again = [_again(ran, add, removed.get(add["path"]), vectors) for add in left.again]
    if lost := next((path for path in vectors.values() if path not in left.present), None):
        raise shadow_invalid(ran, f"its deletion vector {lost} is gone")
    pieces = _pieces(ran.snapshot, left.removed, again, left.new, left.cdc, vectors, whole=moves_rows)
    for piece in pieces:
        gone = piece.rows_gone
        if gone is not None and not adds_rows and (gone < 0 or (keeps_rows and gone)):
            after = total_rows((*piece.again, *piece.added))
            raise shadow_invalid(ran, f"{total_rows(piece.removed)} rows became {after}")
    info = left.commit.info
    return Ran(tuple(pieces), left.oldest, info.get("tags") or {}, info.get("operationMetrics") or {})


def read_definition(store: Store, ran: Shadow) -> TableDefinition:
    """Read what ALTER TABLE statements have made of the definition of a round's shadow.

    :raises BufferInvalidError: they have done more than that.
    """
    made, version = TableDefinition(ran.snapshot.metadata, ran.snapshot.protocol), 1
    while (commit := read_version(store, ran, version)) is not None:
        if kinds := {kind for action in commit.actions for kind in action} - {"commitInfo", "protocol", "metaData"}:
            raise shadow_invalid(ran, f"an ALTER of its definition has a {min(kinds)} action", version)
        told = commit.info.get("operationParameters") or {}
        parameters = {name: value if isinstance(value, str) else encode(value) for name, value in told.items()}
        metadata, protocol = commit.metadata or made.metadata, commit.protocol or made.protocol
        made, version = TableDefinition(metadata, protocol, commit.operation, parameters), version + 1
    return made


def _again(ran: Shadow, add: Add, file: Add | None, vectors: dict[str, str]) -> Add:
    """Return the ``add`` by which a file of the table gets another deletion vector, in the table's own words."""
    if file is None:
        raise shadow_invalid(ran, f"it adds {add['path']} beside itself")
    vector = add.get("deletionVector")
    if vector is None or vector["storageType"] not in ("u", "i"):
        raise shadow_invalid(ran, f"it adds {file['path']} without a deletion vector of its own")
    if any(add.get(name) != file.get(name) for name in ROW_IDS):
        raise shadow_invalid(ran, f"{file['path']} got other row ids")
    if vector["storageType"] == "u":
        text = vector["pathOrInlineDv"]
        vector = {**vector, "pathOrInlineDv": without_prefix(text)}
        vectors[deletion_vector_path(vector["pathOrInlineDv"])] = f"{ran.path}/{deletion_vector_path(text)}"
    return {**add, "path": file["path"], "deletionVector": vector}


def _pieces(
    snapshot: Snapshot,
    removed: list[Add],
    again: list[Add],
    added: list[Add],
    cdc: list[DataFile],
    vectors: Mapping[str, str],
    *,
    whole: bool,
) -> list[Piece]:
    split = snapshot.partitioning
    old = split.divided(removed)
    # Spark may spell such a partition in another way, and nobody could tell which new file replaces which old one.
    if whole or split.folds_texts or any(_is_odd(partition, split) for partition in old):
        return [_piece(removed, again, added, cdc, vectors)] if removed or added else []
    pieces = []
    others: list[Mapping[Partition, list[Any]]] = [split.divided(again), split.divided(added), split.divided(cdc)]
    for at, of_old in old.items():
        of_again, of_new, of_cdc = (found.get(at, []) for found in others)
        if of_new or of_cdc:
            pieces.append(_piece(of_old, of_again, of_new, of_cdc, vectors))
        else:
            under = {file["path"]: file for file in of_again}
            pieces += [
                _piece([file], [under[file["path"]]] if file["path"] in under else [], [], [], vectors)
                for file in of_old
            ]
    kept = sum(len(piece.again) + len(piece.added) + len(piece.cdc) for piece in pieces)
    if kept != len(again) + len(added) + len(cdc):
        # Rows came into a partition of which the round removed no file, so the round cannot be divided.
        return [_piece(removed, again, added, cdc, vectors)]
    return pieces


def _piece(
    removed: list[Add], again: list[Add], added: list[Add], cdc: list[DataFile], vectors: Mapping[str, str]
) -> Piece:
    named = [file["deletionVector"] for file in again if file.get("deletionVector")]
    homes = {home for vector in named if (home := vector_home(vector)) is not None}
    needed = {home: vectors[home] for home in sorted(homes)}
    return Piece(tuple(removed), tuple(again), tuple(added), tuple(cdc), needed)


def _is_odd(partition: Partition, split: Partitioning) -> bool:
    return split.ambiguous(partition) or any(isinstance(value, (FarTime, Unreadable)) for value in partition)


def may_move_rows(snapshot: Snapshot, assigned: Iterable[str]) -> bool:
    """Say whether an UPDATE may bring rows into other partitions.

    :param snapshot: of the table.
    :param assigned: the columns that it sets, as the author wrote them.
    """
    split = {name.lower() for name in snapshot.partitioning.types}
    by_name = {name.lower(): column for name, column in columns(snapshot.metadata).items()}
    generated = any(column.generation for name, column in by_name.items() if name in split)

    def may_be_split(assigned: str) -> bool:
        try:
            column = parse_path(assigned.strip())[0].lower()
        except ValueError:
            return True
        return column in split or column not in by_name

    return bool(split) and (generated or any(map(may_be_split, assigned)))
