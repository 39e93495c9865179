"""Where everything below ``staged`` stands, and how the paths are read back.

staged/<writer>/_claim-<generation>.json      which deed began the generation (claims.py)
staged/<writer>/_skipped-<generation>.json    the generation found its rows in the table (prepare.py)
staged/<writer>/<attempt>/_delta_log/         the log of a buffer, and its files beside it (buffers.py)
staged/<writer>/<attempt>/_closed.json        the buffer is published, or set aside (buffers.py)
staged/compaction-<digest>/<attempt>/         the private table of a compaction (maintenance/shadow.py)
staged/jobs/<attempt>/                        what is handed to a driver (engines/submit/spool.py)

Every path is relative to the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import ObjectInfo

CLOSED = "_closed.json"
JOBS = f"{STAGED_DIRECTORY}/jobs"

_OPENED = f"/{version_path(0)}"
_NUMBERED = re.compile(r"/_(claim|skipped)-(\d+)\.json$")


@attrs.frozen
class Numbered:
    """A claim, or the note of a generation that was skipped.

    :param path: relative to the table.
    :param generation: that was claimed or skipped.
    :param skipped: whether the generation was skipped.
    """

    path: str
    generation: int
    skipped: bool


def claim_path(writer: str, generation: int) -> str:
    """Return the path of a generation's claim.

    :param writer: the writer's directory.
    """
    return f"{writer}/_claim-{generation}.json"


def skipped_path(writer: str, generation: int) -> str:
    """Return the path of the note that a generation was skipped.

    :param writer: the writer's directory.
    """
    return f"{writer}/_skipped-{generation}.json"


def numbered(objects: Iterable[ObjectInfo]) -> Iterator[Numbered]:
    """Yield the claims and notes among some objects."""
    for info in objects:
        if match := _NUMBERED.search(info.path):
            yield Numbered(info.path, int(match[2]), match[1] == "skipped")


def marker_path(buffer: str) -> str:
    """Return the path of the marker of a closed buffer, or of a compaction that has ended.

    :param buffer: the directory of the buffer or compaction.
    """
    return f"{buffer}/{CLOSED}"


def opened_in(objects: Iterable[ObjectInfo]) -> Iterator[str]:
    """Yield the directories among some objects that have a version 0: buffers and compactions."""
    yield from (info.path.removesuffix(_OPENED) for info in objects if info.path.endswith(_OPENED))


def closed_in(objects: Iterable[ObjectInfo]) -> Iterator[str]:
    """Yield the directories among some objects that have a marker."""
    marker = f"/{CLOSED}"
    yield from (info.path.removesuffix(marker) for info in objects if info.path.endswith(marker))


def compaction_path(digest: str, attempt: str) -> str:
    """Return the directory of a compaction's private table.

    :param digest: of the task's name.
    :param attempt: an id that is new for every try.
    """
    return f"{STAGED_DIRECTORY}/compaction-{digest}/{attempt}"


def is_staged(path: str) -> bool:
    """Say whether a path lies below ``staged``.

    :param path: of an object or a file.
    """
    return path.startswith(f"{STAGED_DIRECTORY}/")


def writer_directory(path: str) -> str:
    """Return the directory of the writer, or of a task's compactions, in which a path lies.

    :param path: below ``staged``.
    """
    return "/".join(path.split("/")[:2])


def attempt_directory(path: str) -> str:
    """Return the directory of the attempt in which a path lies.

    :param path: below ``staged``.
    """
    return "/".join(path.split("/")[:3])


def by_writer(objects: Iterable[ObjectInfo]) -> Iterator[tuple[str, list[ObjectInfo]]]:
    """Yield the directories below ``staged`` with the objects in them.

    :param objects: of a listing of ``staged``, in the order of paths.
    """
    for directory, below in groupby(objects, lambda info: writer_directory(info.path)):
        yield directory, list(below)
