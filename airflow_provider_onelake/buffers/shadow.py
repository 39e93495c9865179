"""A shadow: a private Delta table whose version 0 names files of the table, by absolute path.

Spark sees an ordinary table and commits to the shadow's log alone. So Spark can have read no other file of the table
than those of the shadow, and it never touches the shared log (protocol: no Spark commit to the shared log).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

import attrs

from airflow_provider_onelake.buffers.buffer import check_files, put_checksum, twin
from airflow_provider_onelake.exceptions import BufferInvalidError, CorruptLogError, ObjectNotFoundError
from airflow_provider_onelake.log.actions import (
    Action,
    Add,
    DataFile,
    FileKey,
    StagedRecord,
    dump_actions,
    file_key,
    is_absolute,
    of_kind,
    version_path,
)
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.vectors import deletion_vector_path
from airflow_provider_onelake.storage.clock import milliseconds

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import ObjectInfo, Store

_AUTHORITY = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://[^/]*)(.*)$")

MOST_FILES = 200_000
"""How many files a shadow may name: its version 0 names each of them, by about a kilobyte."""

# The kinds of actions by which Spark moves rows. It has no reason for any other kind, and it would be lost.
_KINDS = {"commitInfo", "add", "remove", "domainMetadata", "txn"}
_AGAIN = "Nothing was published, and no row is lost: the table is as it was. Clear the task to run it again."


@attrs.frozen
class Shadow:
    """A shadow in which Spark is to run a statement or OPTIMIZE.

    :param path: relative to the table.
    :param attempt: which becomes the shadow's table id.
    :param snapshot: of the table, from which the shadow was made.
    :param inputs: the table's ``add`` actions, by the key of each file in the shadow.
    """

    path: str
    attempt: str
    snapshot: Snapshot = attrs.field(repr=False)
    inputs: Mapping[FileKey, Add] = attrs.field(repr=False)


@attrs.frozen
class ShadowCommit:
    """What Spark left in a shadow.

    :param commit: version 1 of the shadow.
    :param removed: the table's ``add`` actions that it removed.
    :param again: its ``add`` actions of the shadow's own files.
    :param new: its ``add`` actions of new files, by their paths in the table.
    :param cdc: its ``cdc`` actions, by their paths in the table.
    :param oldest: the store's time of the oldest file that Spark wrote; ``None`` where it wrote none.
    :param present: what lies in the shadow, by its path in the table.
    """

    commit: Commit
    removed: list[Add]
    again: list[Add]
    new: list[Add]
    cdc: list[DataFile]
    oldest: datetime | None
    present: Mapping[str, ObjectInfo]


def open_shadow(
    log: DeltaLog,
    snapshot: Snapshot,
    files: Iterable[Add],
    table_uri: str,
    path: str,
    attempt: str,
    purpose: str,
    record: StagedRecord,
) -> Shadow:
    """Make a shadow of some files of a table.

    :param snapshot: of the table.
    :param files: live ``add`` actions of the table, with relative paths.
    :param table_uri: of the table, as Spark addresses it.
    :param path: of the shadow, relative to the table.
    :param attempt: becomes the shadow's table id.
    :param purpose: what it is for, for people who look at it.
    :param record: what the shadow says of itself.
    :raises ObjectExistsError: there is a shadow already.
    :raises StoreUnavailableError: the store did not answer.
    """
    base = encoded_uri(table_uri)
    both = [(_absolute(file, base), file) for file in files]
    description = f"Shadow of {len(both)} files, for {purpose}"
    actions = [
        *twin(snapshot, attempt, description, record, milliseconds(log.clock.now())),
        *(Action(domainMetadata=body) for body in snapshot.domains.values()),
        *(Action(add=add) for add, _ in both),
    ]
    log.store.create(f"{path}/{version_path(0)}", dump_actions(actions))
    put_checksum(log.store, path, actions)
    return Shadow(path, attempt, snapshot, {file_key(there): file for there, file in both})


def read_version(store: Store, shadow: Shadow, version: int) -> Commit | None:
    """Read what Spark has committed to a shadow; ``None`` where it has not.

    :param version: of the shadow.
    :raises BufferInvalidError: the version is damaged.
    """
    try:
        return Commit.parse(version, store.get(f"{shadow.path}/{version_path(version)}"), shadow.path)
    except ObjectNotFoundError:
        return None
    except CorruptLogError as error:
        raise BufferInvalidError(f"{error} {_AGAIN}") from error


def read_shadow(store: Store, shadow: Shadow, more_kinds: Iterable[str] = ()) -> ShadowCommit | None:
    """Read version 1 of a shadow, and check that it is about the shadow's files, and that the new files are whole.

    Later versions are ignored.

    :param more_kinds: of actions that it may have beside files that are removed and added. Default: none.
    :returns: ``None`` where Spark found nothing to do.
    :raises BufferInvalidError: version 1 is not what Spark leaves.
    :raises BufferLostError: a new file is gone or has another size.
    """
    if (commit := read_version(store, shadow, 1)) is None:
        return None
    own = {path for path, _ in shadow.inputs}
    again = [add for add in commit.adds if add["path"] in own]
    new = [add for add in commit.adds if add["path"] not in own]
    cdc = of_kind(commit.actions, "cdc")
    _check_about_its_files(shadow, commit, [*new, *cdc], {*_KINDS, *more_kinds})
    present = {info.path: info for info in store.list(shadow.path)}
    oldest = check_files(present, shadow.path, [*new, *cast("list[Add]", cdc)], f"the shadow {shadow.path}", _AGAIN)
    added: list[Add] = [{**add, "path": f"{shadow.path}/{add['path']}"} for add in new]
    changes: list[DataFile] = [{**file, "path": f"{shadow.path}/{file['path']}"} for file in cdc]
    removed = [shadow.inputs[file_key(remove)] for remove in commit.removes]
    return ShadowCommit(commit, removed, again, added, changes, oldest, present)


def _check_about_its_files(shadow: Shadow, commit: Commit, written: list[DataFile], kinds: set[str]) -> None:
    removed = [file_key(remove) for remove in commit.removes]
    found = {kind for action in commit.actions for kind in action}
    problems = [f"it has a {kind} action" for kind in sorted(found - kinds)]
    if unknown := [path for path, vector in removed if (path, vector) not in shadow.inputs]:
        problems.append(f"it removes {unknown[0]}, which is none of its files")
    if len(set(removed)) != len(removed) or len({add["path"] for add in commit.adds}) != len(commit.adds):
        problems.append("a file is in it twice")
    if any(file.get("deletionVector") for file in written):
        problems.append("a new file has a deletion vector")
    if outside := [file["path"] for file in written if is_absolute(file["path"])]:
        problems.append(f"{outside[0]} lies outside of it")
    if problems:
        raise shadow_invalid(shadow, "; ".join(problems))


def shadow_invalid(shadow: Shadow, problem: str, version: int = 1) -> BufferInvalidError:
    """Return what is raised where Spark left in a shadow what it should not have.

    :param problem: in words.
    :param version: of the shadow.
    """
    return BufferInvalidError(f"Version {version} of the shadow {shadow.path} cannot be published: {problem}. {_AGAIN}")


def table_paths(actions: Iterable[Action], base: str) -> set[str]:
    """Return the paths of a shadow's files, as the table's log spells them.

    :param actions: version 0 of the shadow.
    :param base: what :func:`encoded_uri` returned for the table when the shadow was made.
    """
    return {add["path"].removeprefix(f"{base}/") for add in of_kind(actions, "add")}


def encoded_uri(table_uri: str) -> str:
    """Return Spark's address of a table as a log spells it, percent-encoded; Spark's own is not.

    A local path gets ``file:`` with one slash, as Hadoop writes it. With three slashes Delta finds no match between the
    files that it scans and those in the log, and a statement that writes deletion vectors fails.

    :param table_uri: of the table, as Spark addresses it.
    """
    match = _AUTHORITY.match(table_uri)
    scheme, path = match.groups() if match else ("file:", table_uri)
    scheme = "file:" if scheme == "file://" else scheme
    return f"{scheme}{quote(path.rstrip('/'), safe='/=:+@~!,-._')}"


def _absolute(file: Add, base: str) -> Add:
    """Return a file's ``add`` as another table's log writes it, with absolute paths."""
    absolute: Add = {**file, "path": f"{base}/{file['path']}", "dataChange": True}
    vector = file.get("deletionVector")
    if vector and vector["storageType"] == "u":
        absolute["deletionVector"] = {
            **vector,
            "storageType": "p",
            "pathOrInlineDv": f"{base}/{deletion_vector_path(vector['pathOrInlineDv'])}",
        }
    return absolute
