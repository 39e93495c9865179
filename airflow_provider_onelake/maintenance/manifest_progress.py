"""Up to which version the symlink manifests of a table are complete, as whoever writes them has left word.

Each commit of this package writes the manifests of the partitions that were touched since they were complete: its own,
and those of a commit whose manifests could not be written, of a task that was killed before it wrote them, and of an
engine that writes none. Who writes leaves empty objects, whose names say all, as many may write at the same time:

- ``complete-<version>``: all manifests are at least as new as this version;
- ``writing-<version>-<id>``: but somebody is putting manifests of this version, or was killed meanwhile, and may put
  one over a newer one. It is deleted when its writer has seen that no newer version has come.

So all manifests are at least as new as the least of the versions that are named. Readers do not see these objects, as
they are not in the directory of the manifests. They are kept apart by the table's id, because a table that was made
again has other versions.
"""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Self

import attrs

from airflow_provider_onelake.storage.concurrent import map_concurrently

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot

FOLLOWED = "_symlink_format_followed"
"""The directory inside a table that holds these objects."""

# Whoever writes for longer was killed. Until then, what it may have left is written again with each commit.
_KILLED = timedelta(hours=1)
_NAME = re.compile(r"(complete|writing)-(\d{1,20})(-.*)?")


@attrs.define
class ManifestProgress:
    """How far the manifests of a table have come.

    :param complete: the version as which all manifests are at least as new; ``None`` if nobody knows.
    """

    complete: int | None
    _log: DeltaLog
    _directory: str
    # What is out of date once the manifests are complete.
    _old: list[str]
    _mine: str | None = None

    @classmethod
    def read(cls, log: DeltaLog, snapshot: Snapshot) -> Self:
        """Read what others have left.

        :param snapshot: of the table.
        :raises StoreUnavailableError: the store did not answer.
        """
        directory = f"{FOLLOWED}/{re.sub('[^0-9A-Za-z-]', '_', snapshot.table_id)}"
        complete, writing, old = [], [], []
        for info in log.store.list(directory):
            name = _NAME.fullmatch(info.path.rpartition("/")[2])
            if name is None:
                continue
            if name[1] == "complete":
                complete.append(int(name[2]))
                old.append(info.path)
            else:
                writing.append(int(name[2]))
                if log.clock.now() - info.modified > _KILLED:
                    old.append(info.path)
        return cls(min([max(complete), *writing]) if complete else None, log, directory, old)

    def begin(self, version: int) -> None:
        """Say that manifests of a version are going to be put, before the first one is.

        :raises StoreUnavailableError: the outcome is unknown.
        """
        if self._mine is None:
            self._mine = f"{self._directory}/writing-{version}-{uuid.uuid4()}"
            self._log.store.put(self._mine, b"")

    def end(self, version: int) -> None:
        """Say that all manifests are at least as new as a version, and that no newer one has come.

        :raises StoreUnavailableError: the outcome is unknown.
        """
        now = f"{self._directory}/complete-{version}"
        self._log.store.put(now, b"")
        old = [path for path in (*self._old, self._mine) if path not in (now, None)]
        for _ in map_concurrently(self._log.store, self._log.store.delete, old):
            pass
