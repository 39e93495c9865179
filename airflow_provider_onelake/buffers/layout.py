"""Where everything below ``staged`` stands, and what one listing shows of it.

staged/<writer>/_claim-<generation>.json      which start began the generation (claims.py)
staged/<writer>/_skipped-<generation>.json    the generation found its rows in the table (writes/prepare.py)
staged/<writer>/_scan-<digest>.json           which work of the writer has rows in a shared scan (scan.py)
staged/<writer>/<attempt>/_delta_log/         the log of a buffer, and its files beside it (buffer.py)
staged/<writer>/<attempt>/_reads/_delta_log/  the log of what the writer reads of its own table (read_shadow.py)
staged/<writer>/<attempt>/_checked.json       what the writer's checks say of the buffer's rows (verdict.py)
staged/<writer>/<attempt>/_closed.json        the buffer is published, or set aside (markers.py)
staged/_begun/<digest>.json                   at which version of the table a load began (beginnings.py)
staged/_tries/<digest>-<try>.json             what a try keeps for the next ones, before Airflow 3.3 (task_state.py)
staged/scan-<digest>/_delta_log/              the log of a shared scan (scan.py)
staged/scan-<digest>/onelake_writer=<writer>/ the files that it wrote for a writer, who makes them a buffer of its own
staged/compaction-<digest>/<attempt>/         the private table of a compaction (maintenance/shadow.py)
staged/change-<digest>/_start-<generation>.json  which start of the task began the generation (claims.py)
staged/change-<digest>/<round>/               the private table of a round of a statement (statements/round_tables.py)
staged/jobs/<attempt>/                        what is handed to a driver (spark/submit/spool.py)

Every path is relative to the table.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.log.actions import LOG_DIRECTORY, version_path
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import ObjectInfo, Store

CHECKED = "_checked.json"
CLOSED = "_closed.json"
"""The marker of a closed buffer, or of a compaction that has ended, in its directory."""
JOBS = f"{STAGED_DIRECTORY}/jobs"
SCANNED_FOR = "onelake_writer"
"""The partition column of a shared scan, which names the writer of each row."""

_CLAIM = re.compile(r"/_(?:claim|start)-(\d+)\.json$")
_SKIPPED = re.compile(r"/_skipped-(\d+)\.json$")
_POINTER = re.compile(r"/_scan-([0-9a-f]+)\.json$")
_SHARE = f"{SCANNED_FOR}="


def json_at(store: Store, path: str) -> dict[str, Any]:
    """Return what a claim or a marker says, which is nothing where it is damaged.

    :raises ObjectNotFoundError: there is none.
    """
    try:
        said = json.loads(store.get(path))
    except (ValueError, RecursionError):
        said = None
    return said if isinstance(said, dict) else {}


def claim_path(writer: str, generation: int) -> str:
    """Return the path of a generation's claim.

    The claim of a task that runs statements has another name, because an earlier release, which may be at work beside
    this one, takes every ``_claim-`` for a writer's.

    :param writer: the directory of the writer, or of the task's statements.
    """
    return f"{writer}/{'_start' if writer.startswith(CHANGES) else '_claim'}-{generation}.json"


def skipped_path(writer: str, generation: int) -> str:
    """Return the path of the note that a generation was skipped.

    :param writer: the writer's directory.
    """
    return f"{writer}/_skipped-{generation}.json"


def verdict_path(buffer: str) -> str:
    """Return the path of what a writer's checks say of its buffer.

    :param buffer: the directory of the buffer.
    """
    return f"{buffer}/{CHECKED}"


def reads_path(buffer: str) -> str:
    """Return the directory of the table by which a buffer's writer reads a part of its own table.

    :param buffer: the directory of the buffer.
    """
    return f"{buffer}/_reads"


def beginning_path(load: str) -> str:
    """Return the path of the note that says at which version of the table a load began.

    :param load: its id, with what tells a rerun from the first run.
    """
    return f"{STAGED_DIRECTORY}/_begun/{hashlib.sha256(load.encode()).hexdigest()[:16]}.json"


TRIES = f"{STAGED_DIRECTORY}/_tries/"
"""Where what tries keep for the next ones lies."""


def try_path(task: str, number: int) -> str:
    """Return the path of what a try of a task keeps for the next ones.

    :param task: its name in its run, with the start of the run.
    :param number: of the try. A late write of an older try changes nothing of a newer one's.
    """
    return f"{TRIES}{hashlib.sha256(task.encode()).hexdigest()[:16]}-{number}.json"


_COMPACTIONS = f"{STAGED_DIRECTORY}/compaction-"


def compaction_path(name: str, attempt: str) -> str:
    """Return the directory of a compaction's private table.

    :param name: of the task, the same for all its attempts.
    :param attempt: an id that is new for every try, of ``a-z``, ``0-9`` and ``-``.
    """
    return f"{_COMPACTIONS}{hashlib.sha256(name.encode()).hexdigest()[:12]}/{attempt}"


CHANGES = f"{STAGED_DIRECTORY}/change-"
"""How the paths of the private tables of DELETE, UPDATE and MERGE begin."""


def changes_directory(name: str) -> str:
    """Return the directory of the private tables of a task's DELETE, UPDATE or MERGE.

    :param name: of the task, the same for all its attempts.
    """
    return f"{CHANGES}{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def scan_path(name: str) -> str:
    """Return the directory of a shared scan.

    :param name: of the scan, with everything that decides its rows.
    """
    return f"{STAGED_DIRECTORY}/scan-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def share_name(writer: str) -> str:
    """Return what a shared scan calls a writer, in the column ``SCANNED_FOR``.

    :param writer: the writer's directory.
    """
    return writer.removeprefix(f"{STAGED_DIRECTORY}/")


def share_path(scan: str, writer: str) -> str:
    """Return the directory of the files that a shared scan wrote for a writer.

    :param scan: the directory of the scan.
    :param writer: the writer's directory.
    """
    return f"{scan}/{_SHARE}{share_name(writer)}"


def pointer_path(writer: str, scan: str) -> str:
    """Return the path of the note that says which work of a writer has rows in a shared scan.

    :param writer: the writer's directory.
    :param scan: the directory of the scan.
    """
    return f"{writer}/_{scan.removeprefix(f'{STAGED_DIRECTORY}/')}.json"


def is_of_a_writer(path: str) -> bool:
    """Say whether a file of the table is as a writer staged it, not of another engine, a compaction or a statement.

    :param path: of the file, relative to the table.
    """
    return is_staged(path) and not path.startswith((_COMPACTIONS, CHANGES))


def is_staged(path: str) -> bool:
    """Say whether a path lies below ``staged``.

    :param path: of an object or a file.
    """
    return path.startswith(f"{STAGED_DIRECTORY}/")


def writer_directory(path: str) -> str:
    """Return the directory of the writer, or of a task's compactions, in which a path lies.

    :param path: below ``staged``.
    """
    parts = path.split("/")
    if parts[0] == STAGED_DIRECTORY and len(parts) > 2 and parts[2].startswith(_SHARE):
        return f"{STAGED_DIRECTORY}/{parts[2].removeprefix(_SHARE)}"
    return "/".join(parts[:2])


def attempt_directory(path: str) -> str:
    """Return the directory of the attempt in which a path lies; the directory of a scan for its log.

    :param path: below ``staged``.
    """
    parts = path.split("/")
    return "/".join(parts[: 2 if len(parts) > 2 and parts[2] == LOG_DIRECTORY else 3])


def is_share(path: str) -> bool:
    """Say whether a directory of an attempt holds what a shared scan wrote for a writer.

    :param path: of the directory.
    """
    return path.rpartition("/")[2].startswith(_SHARE)


@attrs.frozen
class Directory:
    """A directory, as one listing shows it.

    :param path: relative to the table.
    :param objects: by path, in the order of the listing.
    """

    path: str
    objects: Mapping[str, ObjectInfo] = attrs.field(repr=False)

    @property
    def newest(self) -> datetime:
        """The time of the object that was written last."""
        return max(info.modified for info in self.objects.values())


class AttemptDirectory(Directory):
    """The directory of one attempt: a buffer, a compaction's private table, or files for a driver."""

    @property
    def opened(self) -> ObjectInfo | None:
        """Version 0 of a buffer or a compaction."""
        return self.objects.get(f"{self.path}/{version_path(0)}")

    @property
    def completed(self) -> ObjectInfo | None:
        """Version 1 of a buffer or a compaction."""
        return self.objects.get(f"{self.path}/{version_path(1)}")

    @property
    def marker(self) -> ObjectInfo | None:
        """The marker of a closed buffer, or of a compaction that has ended."""
        return self.objects.get(f"{self.path}/{CLOSED}")

    @property
    def log(self) -> list[str]:
        """The paths of the log's entries, and of those of the table by which a writer reads its own table."""
        logs = tuple(f"{path}/{LOG_DIRECTORY}/" for path in (self.path, reads_path(self.path)))
        return [path for path in self.objects if path.startswith(logs)]


@attrs.define(slots=False, frozen=True)
class WriterDirectory(Directory):
    """The directory of one writer, or of a task's compactions."""

    @classmethod
    def read(cls, store: Store, path: str) -> WriterDirectory:
        """List the directory of a writer, and what shared scans wrote for it; nothing needs to be there yet."""
        objects = {info.path: info for info in store.list(path)}
        for scan in cls(path, objects).scans:
            objects |= {info.path: info for info in store.list(share_path(scan, path))}
        return cls(path, objects)

    @classmethod
    def all_in(cls, objects: Iterable[ObjectInfo]) -> list[WriterDirectory]:
        """Return the directories below ``staged``.

        :param objects: of a listing, in the order of paths; objects elsewhere are skipped.
        """
        by_directory: dict[str, dict[str, ObjectInfo]] = {}
        for info in objects:
            if is_staged(info.path):
                by_directory.setdefault(writer_directory(info.path), {})[info.path] = info
        return [cls(path, found) for path, found in by_directory.items()]

    @cached_property
    def claims(self) -> dict[int, str]:
        """The paths of the claims by generation."""
        return self._numbered(_CLAIM)

    @property
    def is_of_a_writer(self) -> bool:
        """Whether a writer has claimed its key there."""
        return bool(self.claims) and not self.path.startswith(CHANGES)

    @cached_property
    def skipped(self) -> dict[int, str]:
        """The paths of the notes of generations that found their rows in the table."""
        return self._numbered(_SKIPPED)

    @cached_property
    def scans(self) -> list[str]:
        """The directories of the shared scans that have rows for the writer, the newest first."""
        found = [(info.modified, match[1]) for path, info in self.objects.items() if (match := _POINTER.search(path))]
        return [f"{STAGED_DIRECTORY}/scan-{digest}" for _, digest in sorted(found, reverse=True)]

    @property
    def generation(self) -> int:
        """The newest generation that has begun; 0 where none has."""
        return max((*self.claims, *self.skipped), default=0)

    def is_published(self, stored: int | None) -> bool:
        """Say whether the rows of the newest generation are in the table.

        :param stored: the generation that the table's ``txn`` of the writer names, if there is one.
        """
        return stored is not None and (stored >= self.generation or self.generation in self.skipped)

    @property
    def attempts(self) -> list[AttemptDirectory]:
        """The directories of the attempts."""
        below = (info for info in self.objects.values() if info.path.count("/") > 2)
        by_attempt = groupby(below, lambda info: attempt_directory(info.path))
        return [AttemptDirectory(path, {info.path: info for info in found}) for path, found in by_attempt]

    @property
    def buffers(self) -> list[str]:
        """The paths of the buffers in any state."""
        return [attempt.path for attempt in self.attempts if attempt.opened]

    def _numbered(self, name: re.Pattern[str]) -> dict[int, str]:
        return {int(match[1]): path for path in self.objects if (match := name.search(path))}
