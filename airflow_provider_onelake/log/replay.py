"""Raw replay of the log: which files stand in the log, which are live, and what a checkpoint says.

deltalake reads snapshots, but its Python does not hand out a deletion vector's descriptor, which a ``remove`` must copy
(protocol, rule 16). So the actions themselves are replayed, and the referee compares the result with deltalake's.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import LogGapError, UnsupportedFeatureError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, FileKey, file_key

if TYPE_CHECKING:
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.storage.stores import ObjectInfo, Store

LAST_CHECKPOINT = f"{LOG_DIRECTORY}/_last_checkpoint"

_ENTRY = re.compile(rf"^{LOG_DIRECTORY}/(\d{{20}})\.json$")
_CLASSIC = re.compile(rf"^{LOG_DIRECTORY}/(\d{{20}})\.checkpoint(?:\.(\d{{10}})\.(\d{{10}}))?\.parquet$")
_V2 = re.compile(rf"^{LOG_DIRECTORY}/(\d{{20}})\.checkpoint\.[0-9a-f-]{{36}}\.(?:json|parquet)$")


@attrs.frozen
class Checkpoint:
    """A complete checkpoint.

    :param version: that it sums up.
    :param paths: of its parts, in order.
    """

    version: int
    paths: tuple[str, ...]


@attrs.frozen
class LogFiles:
    """What a listing of the log holds.

    :param versions: of the entries found, ascending.
    :param checkpoint: the latest complete one, if any.
    """

    versions: tuple[int, ...]
    checkpoint: Checkpoint | None

    @classmethod
    def of(cls, listing: Iterable[ObjectInfo]) -> LogFiles:
        """Sort a listing of ``_delta_log``; what is neither an entry nor a checkpoint is passed over.

        :param listing: of the log's directory.
        :raises UnsupportedFeatureError: the latest checkpoint is of the v2 kind.
        """
        versions: list[int] = []
        parts: dict[tuple[int, int], list[str]] = {}
        v2 = -1
        for info in listing:
            if entry := _ENTRY.match(info.path):
                versions.append(int(entry[1]))
            elif classic := _CLASSIC.match(info.path):
                parts.setdefault((int(classic[1]), int(classic[3] or 1)), []).append(info.path)
            elif other := _V2.match(info.path):
                v2 = max(v2, int(other[1]))
        complete = [(version, paths) for (version, count), paths in parts.items() if len(paths) == count]
        latest = max(complete, default=None)
        if v2 > (latest[0] if latest else -1):
            raise UnsupportedFeatureError(
                f"The checkpoint of version {v2} is of the v2 kind, which this version does not read."
            )
        checkpoint = Checkpoint(latest[0], tuple(sorted(latest[1]))) if latest else None
        return cls(tuple(sorted(versions)), checkpoint)

    @property
    def latest(self) -> int:
        """The newest version that the listing proves, or -1."""
        return max(self.versions[-1] if self.versions else -1, self.checkpoint.version if self.checkpoint else -1)

    def check_contiguous(self, after: int, table: str, exists: Callable[[int], bool]) -> None:
        """Refuse a log in which a version is missing while a later one exists (protocol, rule 23).

        :param after: entries up to this version are not needed.
        :param table: what messages call the table.
        :param exists: says whether a version is there after all: a listing is not taken in an instant, and one that
            was put meanwhile may show without the one before.
        :raises LogGapError: naming the first missing version.
        """
        present = set(self.versions)
        for version in range(after + 1, self.latest + 1):
            if version not in present and not exists(version):
                raise LogGapError(
                    f"Version {version} of {table} is missing from its log, though version {self.latest} exists. The "
                    "log was cleaned up or damaged; nothing was changed."
                )


def read_checkpoint(store: Store, checkpoint: Checkpoint, kinds: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the actions of a checkpoint, by kind and body, as they would stand in a log entry.

    :param store: rooted at the table.
    :param checkpoint: to read.
    :param kinds: which actions to read; only their columns are decoded.
    """
    import pyarrow.parquet as pq

    wanted = list(kinds)
    for path in checkpoint.paths:
        file = pq.ParquetFile(io.BytesIO(store.get(path)))
        present = [kind for kind in wanted if kind in file.schema_arrow.names]
        for batch in file.iter_batches(columns=present, batch_size=8192):
            for kind in present:
                for body in batch.column(kind).drop_null().to_pylist(maps_as_pydicts="strict"):
                    yield kind, _as_entry(kind, body)


# Written for readers of checkpoints only; a log entry has the spelled form beside them.
_CHECKPOINT_ONLY = ("stats_parsed", "partitionValues_parsed")
# A map in which null is a value, not an absence.
_KEEP_NULLS = ("partitionValues",)


def _as_entry(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    def without_nulls(value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping) and key not in _KEEP_NULLS:
            return {k: without_nulls(v, k) for k, v in value.items() if v is not None and k not in _CHECKPOINT_ONLY}
        return value

    entry: dict[str, Any] = without_nulls(body)
    if kind == "add":
        # A checkpoint holds what is there, not what a commit changed.
        entry["dataChange"] = False
    return entry


class LiveFiles:
    """The live ``add`` actions that meet a condition, kept up to date commit by commit.

    :param wanted: which files to keep, by their ``add``.
    """

    def __init__(self, wanted: Callable[[Mapping[str, Any]], bool]) -> None:
        self._wanted = wanted
        self._files: dict[FileKey, dict[str, Any]] = {}

    def load(self, adds: Iterable[Mapping[str, Any]]) -> None:
        """Take in the files of a checkpoint.

        :param adds: bodies of ``add`` actions.
        """
        self._files.update({file_key(add): dict(add) for add in adds if self._wanted(add)})

    def apply(self, commit: Commit) -> None:
        """Take in one commit.

        :param commit: the next version.
        """
        # Removes first: a commit that gives a file another deletion vector removes and adds the same path.
        for remove in commit.removes:
            self._files.pop(file_key(remove), None)
        for add in commit.adds:
            if self._wanted(add):
                self._files[file_key(add)] = add

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._files.values())

    def __len__(self) -> int:
        return len(self._files)
