"""The path table: files and directories below one directory of this machine, changed one path at a time.

The disk is the truth, and holds nothing but what clients see: a file at its own path, a directory as a directory. So a
restart needs no recovery, and a file that somebody puts there is there. What belongs to a file beside its bytes is its
modification time, from which its ETag is made. A symbolic link is nothing at all: it may lead anywhere on the machine.

A file is never written in place. Its bytes are collected in a file of their own outside the tree, which then takes its
place by one ``rename`` of the file system: a reader, or a server that is killed, sees the old file or the new one.
Which of two writers comes first is decided below a lock on the path, which covers the condition and the change.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import attrs

from local_onelake.clock import Clock, etag
from local_onelake.locks import PathLocks


class TreeError(Exception):
    """An operation was not carried out, and nothing was changed."""


class MissingError(TreeError):
    """There is nothing at the path."""


class SourceMissingError(MissingError):
    """There is nothing to be renamed."""


class NoParentError(TreeError):
    """The directory that something is to be renamed into is not there."""


class ExistsError(TreeError):
    """There is something at the path already."""


class ChangedError(TreeError):
    """What is at the path is not what the request's condition names."""


class NotEmptyError(TreeError):
    """The directory is not empty."""


class MismatchError(TreeError):
    """A file is where a directory is needed, or the other way round."""


@attrs.frozen
class Entry:
    """A file or a directory.

    :param path: in the tree.
    :param is_directory: and no file.
    :param size: in bytes; 0 for a directory.
    :param modified: nanoseconds since 1970.
    """

    path: str
    is_directory: bool
    size: int
    modified: int

    @property
    def etag(self) -> str:
        """Without quotes."""
        return etag(self.modified)

    @property
    def last_modified(self) -> datetime:
        """To the second, as HTTP says it."""
        return datetime.fromtimestamp(self.modified // 1_000_000_000, UTC)


@attrs.frozen
class Condition:
    """What must be true of a path for a request to be carried out. By default, nothing.

    :param match: the ETag that must be there, or ``*`` for anything.
    :param none_match: the ETag that must not be there, or ``*`` for anything.
    :param modified_since: it must have been changed after this instant.
    :param unmodified_since: it must not have been changed after this instant.
    """

    match: str | None = None
    none_match: str | None = None
    modified_since: datetime | None = None
    unmodified_since: datetime | None = None

    def check(self, entry: Entry | None) -> None:
        """Compare with what is there.

        :raises ExistsError: nothing must be there, and something is.
        :raises ChangedError: any other part of the condition is not met.
        """
        if self.none_match == "*" and entry is not None:
            raise ExistsError(entry.path)
        tag = None if entry is None else entry.etag
        if self.match is not None and (tag is None or self.match not in ("*", tag)):
            raise ChangedError(self.match)
        if self.none_match is not None and self.none_match == tag:
            raise ChangedError(self.none_match)
        if entry is None:
            return
        if self.modified_since is not None and entry.last_modified <= self.modified_since:
            raise ChangedError("modified since")
        if self.unmodified_since is not None and entry.last_modified > self.unmodified_since:
            raise ChangedError("unmodified since")


ALWAYS = Condition()
CREATE_ONLY = Condition(none_match="*")


class Tree:
    """The path table. A path is relative, with single slashes, and without ``.`` and ``..``.

    :param root: the directory that holds it.
    :param scratch: a directory on the same file system, for what is no longer seen.
    """

    def __init__(self, root: Path, scratch: Path) -> None:
        self._root = root.resolve()
        self._scratch = scratch
        self._locks = PathLocks()
        self._clock = Clock(max((entry.modified for entry in self.walk("")), default=0))

    def stat(self, path: str) -> Entry | None:
        """Say what is at a path."""
        try:
            return _entry(path, self._at(path).lstat())
        except (FileNotFoundError, NotADirectoryError, MissingError):
            return None

    def open(self, path: str) -> tuple[BinaryIO, Entry]:
        """Open a file for reading; what is read stays the same whatever happens at the path.

        :raises MissingError: there is nothing.
        :raises MismatchError: it is a directory.
        """
        try:
            file = self._at(path).open("rb")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingError(path) from error
        except IsADirectoryError as error:
            raise MismatchError(path) from error
        return file, _entry(path, os.fstat(file.fileno()))

    def put(self, path: str, part: Path, condition: Condition = ALWAYS) -> Entry:
        """Make a file, or put it in the place of another; directories above it are made as needed.

        :param path: where.
        :param part: the file that holds its bytes; it is moved.
        :param condition: on what is there before.
        :raises ExistsError: the condition is create-only, and something is there.
        :raises ChangedError: the condition is not met.
        :raises MismatchError: there is a directory, or a file above the path.
        """
        with self._locks.hold(path):
            there = self.stat(path)
            condition.check(there)
            if there is not None and there.is_directory:
                raise MismatchError(path)
            self._make_directories(path.rpartition("/")[0])
            return self._publish(part, path)

    def rewrite(self, path: str, make: Callable[[Entry, Path], Path | None], condition: Condition = ALWAYS) -> Entry:
        """Replace a file by one that is made from it, while nobody else changes it.

        :param path: of the file.
        :param make: gets the file as it is, and where it lies; returns a file to be moved there, or ``None`` if it is
            to stay as it is.
        :param condition: on what is there before.
        :raises MissingError: there is nothing.
        :raises ChangedError: the condition is not met.
        :raises MismatchError: it is a directory.
        """
        with self._locks.hold(path):
            there = self._file(path)
            condition.check(there)
            part = make(there, self._at(path))
            return there if part is None else self._publish(part, path)

    def make_directory(self, path: str, condition: Condition = ALWAYS) -> Entry:
        """Make a directory, and those above it; one that is there already stays as it is.

        :raises ExistsError: there is a file; or the condition is create-only, and there is something.
        :raises ChangedError: the condition is not met.
        :raises MismatchError: there is a file above the path.
        """
        with self._locks.hold(path):
            there = self.stat(path)
            condition.check(there)
            if there is not None and not there.is_directory:
                raise ExistsError(path)
            self._make_directories(path)
            made = self.stat(path)
            assert made is not None
            return made

    def rename(
        self, source: str, target: str, condition: Condition = ALWAYS, source_condition: Condition = ALWAYS
    ) -> Entry:
        """Rename a file or a directory with all that is below it, at once. It keeps its ETag.

        :param source: what.
        :param target: its new path. A file replaces a file; nothing replaces a directory.
        :param condition: on what is at the new path before.
        :param source_condition: on what is renamed.
        :raises SourceMissingError: there is nothing to be renamed.
        :raises NoParentError: the directory of the new path is not there.
        :raises ExistsError: there is something that is not to be replaced.
        :raises ChangedError: a condition is not met.
        :raises MismatchError: a directory cannot be renamed into itself.
        """
        with self._locks.hold(source, target):
            found = self.stat(source)
            if found is None:
                raise SourceMissingError(source)
            source_condition.check(found)
            there = self.stat(target)
            condition.check(there)
            if f"{target}/".startswith(f"{source}/"):
                raise MismatchError(target)
            if there is not None and (there.is_directory or found.is_directory):
                raise ExistsError(target)
            parent = self.stat(target.rpartition("/")[0])
            if parent is None or not parent.is_directory:
                raise NoParentError(target)
            self._at(source).rename(self._at(target))
            return attrs.evolve(found, path=target)

    def delete(self, path: str, condition: Condition = ALWAYS, *, recursive: bool = False) -> None:
        """Delete a file, an empty directory, or a directory with all that is below it, at once.

        :raises MissingError: there is nothing.
        :raises ChangedError: the condition is not met.
        :raises NotEmptyError: a directory has something in it, and only an empty one is to be deleted.
        """
        away = self._scratch / uuid.uuid4().hex
        with self._locks.hold(path):
            there = self.stat(path)
            if there is None:
                raise MissingError(path)
            condition.check(there)
            if not there.is_directory:
                self._at(path).unlink()
            elif recursive:
                self._at(path).rename(away)
            else:
                self._remove_empty(path)
        if away.exists():
            shutil.rmtree(away)

    def children(self, path: str) -> list[Entry]:
        """Return what is in a directory, in no order; nothing if there is none."""
        found = []
        try:
            with os.scandir(self._at(path)) as listing:
                for at in listing:
                    # What goes between the two looks is as well listed as not.
                    entry = self.stat(f"{path}/{at.name}" if path else at.name)
                    if entry is not None:
                        found.append(entry)
        except (FileNotFoundError, NotADirectoryError, MissingError):
            return []
        return found

    def walk(self, path: str, beginning: str = "") -> Iterator[Entry]:
        """Yield what is below a directory, at any depth and in no order.

        :param path: of the directory.
        :param beginning: what the names of its own children begin with.
        """
        for child in self.children(path):
            if child.path.rpartition("/")[2].startswith(beginning):
                yield child
                if child.is_directory:
                    yield from self.walk(child.path)

    def _at(self, path: str) -> Path:
        """Return where a path lies.

        :raises MissingError: it is a symbolic link, or lies below one.
        """
        at = self._root / path
        if os.path.realpath(at) != str(at):
            raise MissingError(path)
        return at

    def _file(self, path: str) -> Entry:
        there = self.stat(path)
        if there is None:
            raise MissingError(path)
        if there.is_directory:
            raise MismatchError(path)
        return there

    def _publish(self, part: Path, path: str) -> Entry:
        modified = self._clock.next()
        os.utime(part, ns=(modified, modified))
        part.replace(self._at(path))
        return self._file(path)

    def _make_directories(self, path: str) -> None:
        try:
            self._at(path).mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise MismatchError(path) from error

    def _remove_empty(self, path: str) -> None:
        try:
            self._at(path).rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise NotEmptyError(path) from error


def _entry(path: str, said: os.stat_result) -> Entry:
    is_directory = stat.S_ISDIR(said.st_mode)
    return Entry(path, is_directory, 0 if is_directory else said.st_size, said.st_mtime_ns)
