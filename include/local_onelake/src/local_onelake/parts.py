"""Uploaded bytes that no reader sees yet: bodies of requests, appends before their flush, blocks before their list.

They lie in files outside the tree, and a restart forgets them: a flush or a block list that names forgotten bytes is
refused, so that the writer begins anew.
"""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs


class GapError(Exception):
    """What is to become a file was not uploaded, or not without gaps."""


@attrs.frozen
class Part:
    """Bytes that were uploaded.

    :param file: that holds them.
    :param size: how many.
    """

    file: Path
    size: int


class Parts:
    """What was uploaded for each path.

    :param directory: for the files; on the file system of the tree.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._turn = threading.Lock()
        self._appended: defaultdict[str, dict[int, Part]] = defaultdict(dict)
        self._blocks: defaultdict[str, dict[str, Part]] = defaultdict(dict)

    def new_file(self) -> Path:
        """Return the path of a file that is not there yet."""
        return self._directory / uuid.uuid4().hex

    def append(self, path: str, position: int, part: Part) -> None:
        """Remember bytes for a position of a file; the same position again replaces them, as a repeated request."""
        with self._turn:
            self._appended[path][position] = part

    def add_block(self, path: str, name: str, part: Part) -> None:
        """Remember a block; the same name again replaces it."""
        with self._turn:
            self._blocks[path][name] = part

    def appended(self, path: str, committed: int, position: int) -> list[Part]:
        """Return what was appended to a file from its end as far as a position.

        :param path: of the file.
        :param committed: its size as readers see it.
        :param position: its size after the flush.
        :raises GapError: the appended bytes have a gap, or end elsewhere.
        """
        found = []
        with self._turn:
            waiting = self._appended.get(path, {})
            while committed < position and committed in waiting:
                found.append(waiting[committed])
                # An empty append would be found again for ever.
                if not found[-1].size:
                    break
                committed += found[-1].size
        if committed != position:
            raise GapError(f"bytes from {committed} to {position} were not appended")
        return found

    def blocks(self, path: str, names: Sequence[str]) -> list[Part]:
        """Return the blocks of a list.

        :raises GapError: one of them was not uploaded.
        """
        with self._turn:
            waiting = self._blocks.get(path, {})
            missing = [name for name in names if name not in waiting]
            if missing:
                raise GapError(f"the block {missing[0]} was not uploaded")
            return [waiting[name] for name in names]

    def forget(self, path: str, but: Path | None = None) -> None:
        """Drop what was uploaded for a path and for everything below it.

        :param path: of a file or a directory.
        :param but: a file that has become the file at the path. Default: none has.
        """
        dropped: list[Part] = []
        with self._turn:
            for appended in _below(self._appended, path):
                dropped += self._appended.pop(appended).values()
            for blocks in _below(self._blocks, path):
                dropped += self._blocks.pop(blocks).values()
        self.discard(part.file for part in dropped if part.file != but)

    def discard(self, files: Iterable[Path]) -> None:
        """Delete files that became nothing."""
        for file in files:
            file.unlink(missing_ok=True)

    def join(self, files: Iterable[Path]) -> Path:
        """Return a new file that holds the bytes of several, one after the other; those stay as they are."""
        joined = self.new_file()
        with joined.open("wb") as out:
            for file in files:
                with file.open("rb") as each:
                    shutil.copyfileobj(each, out, 1 << 20)
        return joined

    def wipe(self) -> None:
        """Delete everything, as after a crash."""
        with os.scandir(self._directory) as listing:
            for at in listing:
                if at.is_dir(follow_symlinks=False):
                    shutil.rmtree(at.path)
                else:
                    Path(at.path).unlink()


def _below(paths: Iterable[str], path: str) -> list[str]:
    return [known for known in paths if known == path or known.startswith(f"{path}/")]
