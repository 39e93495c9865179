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
from typing import TYPE_CHECKING, Any, cast

import attrs

from airflow_provider_onelake.buffers.buffer import check_files, put_checksum, record_in
from airflow_provider_onelake.buffers.shadow import encoded_uri, shadow_inputs, shadow_log, table_paths
from airflow_provider_onelake.exceptions import (
    BufferInvalidError,
    CorruptLogError,
    ObjectNotFoundError,
)
from airflow_provider_onelake.log.actions import (
    Add,
    DataFile,
    FileKey,
    Metadata,
    Protocol,
    StagedRecord,
    dump_actions,
    encode,
    file_key,
    is_absolute,
    of_kind,
    parse_actions,
    total_rows,
    version_path,
)
from airflow_provider_onelake.log.commits import CHANGE, Commit
from airflow_provider_onelake.log.paths import parse_path
from airflow_provider_onelake.log.schema import columns
from airflow_provider_onelake.log.values import FarTime, Unreadable
from airflow_provider_onelake.log.vectors import deletion_vector_path, vector_home, without_prefix
from airflow_provider_onelake.storage.clock import milliseconds, whole_number

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import Partitioning
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.log.values import Partition
    from airflow_provider_onelake.storage.stores import Store

_KINDS = {"commitInfo", "add", "remove", "cdc", "domainMetadata", "txn"}
ROW_IDS = ("baseRowId", "defaultRowCommitVersion")
"""What an ``add`` says of the ids of its rows; a file keeps it whatever vector it gets."""
_AGAIN = "Nothing was published, and the table is unchanged: clear the task to run the statement again."


@attrs.frozen
class Round:
    """A shadow in which Spark is to run a statement.

    :param path: relative to the table.
    :param attempt: id of the round, which is the shadow's table id too.
    :param snapshot: of the table, from which the shadow was made.
    :param inputs: the table's ``add`` actions, by the key of each file in the shadow.
    """

    path: str
    attempt: str
    snapshot: Snapshot = attrs.field(repr=False)
    inputs: Mapping[FileKey, Add] = attrs.field(repr=False)


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
    :param rows_updated: how many rows Spark says that it updated; ``None`` where it does not say.
    :param tags: of Spark's ``commitInfo``; one says, for example, that row ids were kept.
    :param metrics: the ``operationMetrics`` there.
    """

    pieces: tuple[Piece, ...]
    oldest: datetime | None = None
    rows_updated: int | None = 0
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
) -> Round:
    """Make the shadow of a round.

    :param snapshot: of the table.
    :param files: live ``add`` actions, with relative paths, that the statement is to read.
    :param table_uri: of the table, as Spark addresses it.
    :param directory: of the rounds of this task, relative to the table.
    :param attempt: id of the round, new for every round.
    :param told: what the shadow says of the statement.
    :raises StoreUnavailableError: the store did not answer.
    """
    path = f"{directory}/{attempt}"
    inputs = shadow_inputs(files, table_uri)
    base = {"base": encoded_uri(table_uri), "readVersion": snapshot.version, "tableId": snapshot.table_id}
    record: StagedRecord = {CHANGE: {**told, **base}}
    description = f"Shadow of {len(inputs)} files, for a statement"
    actions = shadow_log(snapshot, inputs, attempt, description, record, milliseconds(log.clock.now()))
    log.store.create(f"{path}/{version_path(0)}", dump_actions(actions))
    put_checksum(log.store, path, actions)
    return Round(path, attempt, snapshot, {key: file for key, (_, file) in inputs.items()})


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
    ran: Round,
    *,
    keeps_rows: bool,
    moves_rows: bool,
    adds_rows: bool = False,
) -> Ran:
    """Read what Spark left in a round, and check that it is what the statement may do.

    Only version 1 of the shadow counts; later versions are ignored.

    :param keeps_rows: whether the statement leaves as many rows as there were: an UPDATE does.
    :param moves_rows: whether the statement may bring rows into other partitions.
    :param adds_rows: whether the statement may leave more rows than there were: a MERGE does.
    :raises BufferInvalidError: version 1 is not what a statement on the shadow's files leaves.
    :raises BufferLostError: a new file is gone or has another size.
    """
    try:
        commit = Commit.parse(1, store.get(f"{ran.path}/{version_path(1)}"), ran.path)
    except ObjectNotFoundError:
        return Ran(())
    except CorruptLogError as error:
        raise BufferInvalidError(f"{error} {_AGAIN}") from error
    cdc = of_kind(commit.actions, "cdc")
    _check_plain_change(ran, commit, cdc)
    by_path = {path: file for (path, _), file in ran.inputs.items()}
    new = [add for add in commit.adds if add["path"] not in by_path]
    vectors: dict[str, str] = {}
    again = [_again(ran, add, by_path[add["path"]], vectors) for add in commit.adds if add["path"] in by_path]
    present = {info.path: info for info in store.list(ran.path)}
    oldest = check_files(present, ran.path, [*new, *cast("list[Add]", cdc)], f"the round {ran.path}", _AGAIN)
    if lost := next((path for path in vectors.values() if path not in present), None):
        raise _invalid(ran, f"its deletion vector {lost} is gone")
    removed = [ran.inputs[file_key(remove)] for remove in commit.removes]
    added: list[Add] = [{**add, "path": f"{ran.path}/{add['path']}"} for add in new]
    changes: list[DataFile] = [{**file, "path": f"{ran.path}/{file['path']}"} for file in cdc]
    pieces = _pieces(ran.snapshot, removed, again, added, changes, vectors, whole=moves_rows)
    for piece in pieces:
        gone = piece.rows_gone
        if gone is not None and not adds_rows and (gone < 0 or (keeps_rows and gone)):
            raise _invalid(ran, f"{total_rows(piece.removed)} rows became {total_rows((*piece.again, *piece.added))}")
    metrics = commit.info.get("operationMetrics") or {}
    updated = whole_number(metrics.get("numUpdatedRows"))
    return Ran(tuple(pieces), oldest, updated, commit.info.get("tags") or {}, metrics)


def read_definition(store: Store, ran: Round) -> TableDefinition:
    """Read what ALTER TABLE statements have made of the definition of a round's shadow.

    :raises BufferInvalidError: they have done more than that.
    """
    made, version = TableDefinition(ran.snapshot.metadata, ran.snapshot.protocol), 1
    while True:
        try:
            commit = Commit.parse(version, store.get(f"{ran.path}/{version_path(version)}"), ran.path)
        except ObjectNotFoundError:
            return made
        except CorruptLogError as error:
            raise BufferInvalidError(f"{error} {_AGAIN}") from error
        if kinds := {kind for action in commit.actions for kind in action} - {"commitInfo", "protocol", "metaData"}:
            raise _invalid(ran, f"an ALTER of its definition has a {min(kinds)} action", version)
        told = commit.info.get("operationParameters") or {}
        parameters = {name: value if isinstance(value, str) else encode(value) for name, value in told.items()}
        metadata, protocol = commit.metadata or made.metadata, commit.protocol or made.protocol
        made, version = TableDefinition(metadata, protocol, commit.operation, parameters), version + 1


def _check_plain_change(ran: Round, commit: Commit, cdc: list[DataFile]) -> None:
    kinds = {kind for action in commit.actions for kind in action}
    removed = {file_key(remove) for remove in commit.removes}
    inputs = {path for path, _ in ran.inputs}
    problems = [f"it has a {kind} action" for kind in sorted(kinds - _KINDS)]
    if unknown := [path for path, vector in removed if (path, vector) not in ran.inputs]:
        problems.append(f"it removes {unknown[0]}, which is none of its files")
    if len(removed) != len(commit.removes) or len({add["path"] for add in commit.adds}) != len(commit.adds):
        problems.append("a file is in it twice")
    for add in commit.adds:
        if add["path"] in inputs:
            if add["path"] not in {path for path, _ in removed}:
                problems.append(f"it adds {add['path']} beside itself")
            vector = add.get("deletionVector")
            if vector is None or vector["storageType"] not in ("u", "i"):
                problems.append(f"it adds {add['path']} without a deletion vector of its own")
        elif add.get("deletionVector"):
            problems.append("a new file has a deletion vector")
    if outside := [file["path"] for file in _written(commit, cdc, inputs) if is_absolute(file["path"])]:
        problems.append(f"{outside[0]} lies outside of it")
    if problems:
        raise _invalid(ran, "; ".join(problems))


def _written(commit: Commit, cdc: list[DataFile], inputs: set[str]) -> list[DataFile]:
    return [*(add for add in commit.adds if add["path"] not in inputs), *cdc]


def _again(ran: Round, add: Add, file: Add, vectors: dict[str, str]) -> Add:
    """Return the ``add`` by which a file of the table gets another deletion vector, in the table's own words."""
    if any(add.get(name) != file.get(name) for name in ROW_IDS):
        raise _invalid(ran, f"{file['path']} got other row ids")
    vector = add["deletionVector"]
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


def _invalid(ran: Round, problem: str, version: int = 1) -> BufferInvalidError:
    return BufferInvalidError(f"Version {version} of {ran.path} is not what a statement leaves: {problem}. {_AGAIN}")
