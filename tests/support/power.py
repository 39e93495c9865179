"""What a power cut leaves of a directory: on a disk image that is mounted, or by the calls that put something there."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest


class Disk:
    """What of a directory is on the disk itself: the contents of files and the names in directories that were synced.

    :ivar calls: the calls that put something there, in order, as (call, name relative to the root).
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.calls: list[tuple[str, str]] = []
        self._contents: set[int] = set()
        self._names: dict[Path, set[str]] = {}
        fsync, link, replace = os.fsync, os.link, os.replace

        def synced(descriptor: int) -> None:
            fsync(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            self._note("fsync", path)
            self._contents.add(path.stat().st_ino)
            if path.is_dir():
                self._names[path] = {entry.name for entry in path.iterdir()}

        def linked(source: Path, target: Path) -> None:
            link(source, target)
            self._note("link", target)

        def replaced(source: Path, target: Path) -> None:
            replace(source, target)
            self._note("replace", target)

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "link", linked)
        monkeypatch.setattr(os, "replace", replaced)

    def _note(self, call: str, path: Path) -> None:
        name = str(path.relative_to(self.root)) if path.is_relative_to(self.root) else ".."
        self.calls.append((call, name.partition("#")[0]))

    def cut_the_power(self) -> Path:
        """Leave what a power cut may leave: files that were not synced are empty or, if a name was not, gone."""
        for path in sorted(self.root.rglob("*"), reverse=True):
            if not path.is_file():
                continue
            below = len(path.relative_to(self.root).parts)
            if any(each.name not in self._names.get(each.parent, set()) for each in (path, *path.parents)[:below]):
                path.unlink()
            elif path.stat().st_ino not in self._contents:
                path.write_bytes(b"")
        return self.root


class Image:
    """An image of a disk with ext4, mounted. What is in the image's file has reached the disk.

    :raises OSError, subprocess.CalledProcessError: this machine mounts no images, or not for this user.
    """

    def __init__(self, home: Path, mounts: ExitStack) -> None:
        self._home, self._mounts, self._cuts = home, mounts, 0
        self._file = home / "image"
        with self._file.open("wb") as image:
            image.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", self._file], check=True, capture_output=True)
        self.root = self._mounted(self._file)

    def _mounted(self, image: Path) -> Path:
        at = image.with_name(f"{image.name} mounted")
        at.mkdir()
        subprocess.run(["mount", "-o", "loop", image, at], check=True, capture_output=True)
        self._mounts.callback(subprocess.run, ["umount", "--lazy", at], check=True)
        return at

    def cut_the_power(self) -> Path:
        """Return what a power cut would leave five seconds later, when ext4 has written names, but no contents yet."""
        self._cuts += 1
        # Any fsync writes the names of all files, as the journal has them. So there is no need to wait.
        with (self.root / f"another {self._cuts}").open("wb") as another:
            os.fsync(another.fileno())
        return self._mounted(Path(shutil.copyfile(self._file, self._home / f"cut {self._cuts}")))
