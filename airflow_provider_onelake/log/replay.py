"""Raw replay of the log: the entries and checkpoints in it, the actions of a checkpoint, and the live files.

deltalake reads snapshots, but its Python API does not give the descriptor of a deletion vector, which a ``remove`` must
copy (protocol: verbatim remove). So we replay the actions ourselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import attrs

from airflow_provider_onelake.exceptions import CorruptLogError, LogGapError, ObjectNotFoundError
from airflow_provider_onelake.log.actions import (
    LOG_DIRECTORY,
    Action,
    Add,
    FileKey,
    Sidecar,
    file_key,
    parse_actions,
    version_path,
)
from airflow_provider_onelake.log.parquet_checkpoints import CHECKPOINT_ONLY, SMALL, STATS, bodies_in
from airflow_provider_onelake.log.wellformed import check_body
from airflow_provider_onelake.storage.clock import whole_number

if TYPE_CHECKING:
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.directories import Below
    from airflow_provider_onelake.log.partitions import InPartitions
    from airflow_provider_onelake.storage.stores import ObjectInfo, Store

LAST_CHECKPOINT = f"{LOG_DIRECTORY}/_last_checkpoint"
SIDECARS = f"{LOG_DIRECTORY}/_sidecars"

ENTRY = re.compile(rf"^{LOG_DIRECTORY}/(\d{{20}})\.json$")
"""Matches the path of a log entry; its group is the version."""
# The names of the three kinds of checkpoint: classic, in parts, and v2, whose name has a UUID.
_CHECKPOINT = re.compile(
    rf"^{LOG_DIRECTORY}/(\d{{20}})\.checkpoint"
    r"(?:\.parquet|\.(\d{10})\.(\d{10})\.parquet|\.([0-9a-fA-F-]{36})\.(?:json|parquet))$"
)
# Every v2 checkpoint must hold these actions. Only v2 checkpoints can be JSON files.
_IN_EVERY_V2 = frozenset({"checkpointMetadata", "metaData", "protocol"})
# The actions that a v2 checkpoint may keep in sidecars, which are files of their own.
_FILE_ACTIONS = frozenset({"add", "remove"})


@attrs.frozen
class Checkpoint:
    """A checkpoint whose parts are all listed; which sidecars it has is known only when it is read.

    :param version: the version that it sums up.
    :param paths: the paths of its parts, in order.
    :param sizes: the parts' sizes in bytes, as far as they are known.
    """

    version: int
    paths: tuple[str, ...]
    sizes: Mapping[str, int] = attrs.field(factory=dict, eq=False, repr=False)


@attrs.frozen
class LogFiles:
    """What a listing of the log holds.

    :param versions: the versions that have an entry, ascending.
    :param checkpoints: the checkpoints whose parts are all there, newest first.
    """

    versions: tuple[int, ...]
    checkpoints: tuple[Checkpoint, ...]

    @classmethod
    def of(cls, listing: Iterable[ObjectInfo], until: int | None = None) -> LogFiles:
        """Sort a listing of ``_delta_log`` into entries and checkpoints; other objects are ignored.

        :param until: the newest version of interest; ``None`` for all.
        """
        if until is not None:
            end = version_path(until + 1).removesuffix(".json")
            listing = (info for info in listing if info.path < end)
        versions: list[int] = []
        # A checkpoint in parts may have one part. It is another one than that of the same version without parts.
        parts: dict[tuple[int, int | None, str], dict[str, int]] = {}
        for info in listing:
            if entry := ENTRY.match(info.path):
                versions.append(int(entry[1]))
            elif found := _CHECKPOINT.match(info.path):
                count = int(found[3]) if found[3] else None
                parts.setdefault((int(found[1]), count, found[4] or ""), {})[info.path] = info.size
        complete = [
            Checkpoint(version, tuple(sorted(sizes)), sizes)
            for (version, count, _), sizes in parts.items()
            if len(sizes) == (count or 1)
        ]
        complete.sort(key=lambda checkpoint: (-checkpoint.version, checkpoint.paths))
        return cls(tuple(sorted(versions)), tuple(complete))

    @property
    def latest(self) -> int:
        """The newest version that the listing proves, or -1."""
        return max((*self.versions[-1:], *(checkpoint.version for checkpoint in self.checkpoints[:1])), default=-1)

    def check_contiguous(self, after: int, table: str, exists: Callable[[int], bool]) -> None:
        """Refuse a log in which a version is missing while a later one exists (protocol: log gap).

        :param after: entries up to this version are not needed.
        :param table: what messages call the table.
        :param exists: says whether a version has an entry after all. A listing takes time, so it may show an entry that
            was put meanwhile and miss the one before it.
        :raises LogGapError: a version is missing; the error names the first one.
        """
        present = set(self.versions)
        for version in range(after + 1, self.latest + 1):
            if version not in present and not exists(version):
                raise LogGapError(
                    f"Version {version} of {table} is missing from its log, though version {self.latest} exists. The "
                    "log was cleaned up or damaged; nothing was changed."
                )


def read_checkpoint(
    store: Store, checkpoint: Checkpoint, kinds: Iterable[str], adds: InPartitions | Below | None = None
) -> Iterator[Action]:
    """Yield the actions of a checkpoint as they would stand in a log entry.

    Sidecars are read only if ``add`` or ``remove`` is asked for.

    :param kinds: the actions to read; only their columns are fetched and decoded.
    :param adds: which ``add`` actions the caller keeps. Others are left out where that saves work. Default: all.
    :raises CorruptLogError: a file of the checkpoint is gone or cannot be read.
    """
    wanted = frozenset(kinds)
    beside = wanted & _FILE_ACTIONS
    sidecars = []
    known: set[str] = set()
    for path in checkpoint.paths:
        kinds = {*wanted, "sidecar"} if beside else wanted
        for action in _read(store, path, checkpoint.sizes.get(path), kinds, known, adds):
            if "sidecar" in action and "sidecar" not in wanted:
                sidecars.append(action["sidecar"])
            else:
                yield action
    for sidecar in sidecars:
        path = sidecar_path(sidecar)
        yield from _read(store, path, _size_of(store, path, sidecar), beside, known, adds)
    # A v2 checkpoint may leave files to sidecars. Without a sidecar and without a column of files, the table is empty.
    is_empty = "checkpointMetadata" in known and not sidecars
    if "add" in wanted and known and "add" not in known and not is_empty:
        raise CorruptLogError(f"The checkpoint {checkpoint.paths[0]} has no column of files. Nothing was changed.")


def sidecar_path(sidecar: Sidecar) -> str:
    """Return where a sidecar lies. All sidecars lie in one directory, so only the last name of the path counts.

    :param sidecar: the action's body.
    """
    return f"{SIDECARS}/{unquote(sidecar['path']).rpartition('/')[2]}"


def _size_of(store: Store, path: str, sidecar: Sidecar) -> int | None:
    """Return the size of a large sidecar; ``None`` for one that its action says to be small, or that is gone."""
    if (whole_number(sidecar.get("sizeInBytes")) or 0) < SMALL:
        return None
    try:
        return store.head(path).size
    except ObjectNotFoundError:
        return None


def _read(
    store: Store, path: str, size: int | None, kinds: Iterable[str], known: set[str], adds: InPartitions | Below | None
) -> Iterator[Action]:
    try:
        if path.endswith(".json"):
            bodies = _in_json(store.get(path), path, kinds)
        else:
            bodies = bodies_in(store, path, size, kinds, known, adds)
        for kind, body in bodies:
            check_body(kind, body, path)
            yield _as_entry(kind, body)
    except ObjectNotFoundError as error:
        raise CorruptLogError(f"{path} of a checkpoint is gone: {error} Nothing was changed.") from error


def _in_json(data: bytes, path: str, kinds: Iterable[str]) -> Iterator[tuple[str, Any]]:
    actions = parse_actions(data, path)
    missing = _IN_EVERY_V2 - {kind for action in actions for kind in action}
    if missing:
        raise CorruptLogError(f"{path} of a checkpoint has no {', '.join(sorted(missing))}: it is half written.")
    for action in actions:
        yield from ((kind, body) for kind, body in action.items() if kind in kinds and body is not None)


# In these maps, null is a value. In all other places, null means that the field is absent.
_MAPS = ("partitionValues", "tags", "configuration", "options")


def _as_entry(kind: str, body: Mapping[str, Any]) -> Action:
    def without_nulls(value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping) and key not in _MAPS:
            return {k: without_nulls(v, k) for k, v in value.items() if v is not None and k not in CHECKPOINT_ONLY}
        return value

    entry: dict[str, Any] = without_nulls(body)
    if kind == "add":
        # A checkpoint describes a state and no change, so its adds change no data.
        entry["dataChange"] = False
        parsed = body.get(STATS)
        if isinstance(parsed, Mapping) and "stats" not in entry and parsed.get("numRecords") is not None:
            # With delta.checkpoint.writeStatsAsJson=false, only parsed statistics exist. We need only the row count.
            entry["stats"] = json.dumps({"numRecords": parsed["numRecords"]})
    return cast("Action", {kind: entry})


@attrs.define(eq=False)
class LiveFiles:
    """The live ``add`` actions that meet a condition, kept up to date commit by commit.

    :param wanted: says of an ``add`` whether to keep its file.
    :param keep: returns what to keep of an ``add``. Default: all of it.
    :param version: the version of the table at which these files are live.
    """

    _wanted: Callable[[Add], bool]
    _keep: Callable[[Add], Add] = copy
    _files: dict[FileKey, Add] = attrs.field(factory=dict, init=False, repr=False)
    version: int = attrs.field(default=-1, init=False)

    def load(self, adds: Iterable[Add]) -> None:
        """Take in the files of a checkpoint.

        :param adds: bodies of ``add`` actions.
        """
        self._files.update({file_key(add): self._keep(add) for add in adds if self._wanted(add)})

    def apply(self, commit: Commit) -> None:
        """Take in one commit.

        :param commit: the next version.
        """
        # Apply the removes first: a commit that gives a file another deletion vector removes and adds the same path.
        for remove in commit.removes:
            self._files.pop(file_key(remove), None)
        for add in commit.adds:
            if self._wanted(add):
                self._files[file_key(add)] = self._keep(add)
        self.version = commit.version

    def follow(self, commits: Iterable[Commit]) -> None:
        """Take in those of some commits that are newer.

        :param commits: in the order of versions, up to the wanted one, without a gap after this version.
        """
        for commit in commits:
            if commit.version > self.version:
                self.apply(commit)

    def __iter__(self) -> Iterator[Add]:
        return iter(self._files.values())

    def __len__(self) -> int:
        return len(self._files)
