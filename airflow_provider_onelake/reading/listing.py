"""Lists the files that a source's paths stand for, on this machine or in a store, and groups files by partition."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from urllib.parse import unquote

from airflow_provider_onelake.exceptions import ObjectNotFoundError, PlanError
from airflow_provider_onelake.reading.spark_files import (
    FoundFiles,
    Name,
    SourceFile,
    WantedFiles,
    patterns,
    split_prefix,
    visible,
)
from airflow_provider_onelake.storage.stores import ObjectInfo, Store

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NANOSECONDS = 1_000_000_000
# Up to this many files of one directory are looked up one by one. For more, the directory is listed, which takes one
# request for a thousand files.
_FEW = 10


def is_local(path: str) -> bool:
    """Say whether a path is on this machine.

    :param path: a path, an address or a glob.
    """
    prefix, _ = split_prefix(path)
    return prefix == "" or prefix.startswith("file:")


def local_files(path: str) -> Iterator[FoundFiles]:
    """List the files that a path stands for; symbolic links are followed.

    :param path: a path, an address or a glob, on this machine.
    :returns: the visible files, also those below directories. Their paths begin with ``file:`` if ``path`` does.
    """
    prefix, rest = split_prefix(path)
    roots = dict.fromkeys(root for names in patterns(rest) for root in _expand(names))
    for root in roots:
        for file in _walk(Path(root), frozenset()):
            yield FoundFiles(f"{prefix}{root}", SourceFile(f"{prefix}{file.path}", file.size, file.modified))


def _expand(names: Sequence[Name]) -> Iterator[str]:
    places = [""]
    for number, name in enumerate(names):
        places = [
            f"{place}/{entry}" if number else entry
            for place in places
            for entry in ([name] if isinstance(name, str) else _entries(place or ("/" if number else ".")))
            if isinstance(name, str) or name.fullmatch(entry)
        ]
    yield from (place or "/" for place in places)


def _entries(directory: str) -> list[str]:
    with suppress(OSError):
        return sorted(entry.name for entry in Path(directory).iterdir())
    return []


def _walk(path: Path, above: frozenset[tuple[int, int]]) -> Iterator[SourceFile]:
    # Ignore a file that disappears while it is listed, such as another job's temporary file.
    with suppress(FileNotFoundError, NotADirectoryError):
        info = path.stat()
        if path.is_file():
            if visible(path.name):
                yield SourceFile(str(path), info.st_size, info.st_mtime_ns)
        elif (info.st_dev, info.st_ino) not in above:
            for name in _entries(str(path)):
                if visible(name):
                    yield from _walk(path / name, above | {(info.st_dev, info.st_ino)})


def stored_files(store: Store, root: str, paths: Iterable[str]) -> Iterator[FoundFiles]:
    """List the files that paths in a store stand for.

    :param root: the address of the store's root, as Spark takes it.
    :param paths: paths below the root: files, directories, or globs of either.
    :returns: the visible files, also those below directories, with their whole addresses.
    :raises InvalidWriteError: a path is no glob that Hadoop takes.
    :raises StoreUnavailableError: the store did not answer.
    """
    root = root.rstrip("/")
    for directory, choices in _listings(paths).items():
        wanted, nothing = WantedFiles(choices), True
        for info in store.list(directory):
            nothing = False
            yield from _files_at(info, wanted, root)
        if nothing and directory.split("/") in wanted:
            # A listing below a file is empty, so the path may name a file. Ignore an object of size 0, because some
            # stores keep one for a directory.
            with suppress(ObjectNotFoundError):
                info = store.head(directory)
                yield from _files_at(info, wanted, root) if info.size else ()


def _listings(paths: Iterable[str]) -> dict[str, list[tuple[Name, ...]]]:
    """Return the directories to list, and the names of the paths that are wanted below each."""
    listings: dict[str, list[tuple[Name, ...]]] = defaultdict(list)
    plain: dict[str, dict[str, tuple[Name, ...]]] = defaultdict(dict)
    for names in (names for path in paths for names in patterns(path)):
        fixed = "/".join(name for name in takewhile(lambda name: isinstance(name, str), names) if isinstance(name, str))
        if all(isinstance(name, str) for name in names):
            plain[fixed.rpartition("/")[0]][fixed] = names
        else:
            listings[fixed].append(names)
    for directory, wanted in plain.items():
        for path, names in wanted.items():
            listings[directory if len(wanted) > _FEW else path].append(names)
    return listings


def _files_at(info: ObjectInfo, wanted: WantedFiles, root: str) -> Iterator[FoundFiles]:
    parts = info.path.split("/")
    for names in wanted.roots(parts):
        if all(map(visible, parts[len(names) :] or parts[-1:])):
            # A plan of new files has kept the time as it was listed.
            modified = int(info.listed.timestamp() * _NANOSECONDS)
            yield FoundFiles("/".join((root, *names)), SourceFile(f"{root}/{info.path}", info.size, modified))


def by_partition(files: Iterable[SourceFile], by: str | None) -> dict[str, list[SourceFile]]:
    """Group files by partition.

    :param files: the files of a source.
    :param by: a column of Hive-style directories (``month`` for ``…/month=2019-01/…``), or a regular expression with
        one group that is searched for in the path (``tripdata_([0-9-]+)``). ``None``: every file is a partition.
    :returns: the files of each partition, by the partition's name.
    :raises PlanError: ``by`` is neither a column nor such an expression, or a file belongs to no partition.
    """
    name = _namer(by)
    partitions: dict[str, list[SourceFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        partition = name(file.path)
        if partition is None:
            raise PlanError(
                f"{file.path} belongs to no partition by={by!r}, so no writer would read it. Nothing was planned: "
                "correct `by`, or the source's path, so that it leaves such files out."
            )
        partitions.setdefault(partition, []).append(file)
    return partitions


def _namer(by: str | None) -> Callable[[str], str | None]:
    if by is None:
        return lambda path: path
    try:
        found = re.compile(rf"/{by}=([^/]+)/" if _COLUMN.fullmatch(by) else by)
    except re.error as error:
        raise PlanError(f"by={by!r} is no regular expression: {error}. Nothing was planned.") from error
    if found.groups != 1:
        raise PlanError(
            f"by={by!r} is neither the name of a column nor a regular expression with one group, which finds the "
            "partition in a file's path. Nothing was planned."
        )
    return lambda path: unquote(match[1]) if (match := found.search(path)) and match[1] else None
