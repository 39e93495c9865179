"""Lists the files that a path stands for on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from airflow_provider_onelake.reading.spark_files import Found, Name, SourceFile, patterns, split_prefix, visible


def is_local(path: str) -> bool:
    """Say whether a path is on this machine.

    :param path: a path, an address or a glob.
    """
    prefix, _ = split_prefix(path)
    return prefix == "" or prefix.startswith("file:")


def local_files(path: str) -> Iterator[Found]:
    """List the files that a path stands for; symbolic links are followed.

    :param path: a path, an address or a glob, on this machine.
    :returns: the visible files, also those below directories. Their paths begin with ``file:`` if ``path`` does.
    """
    prefix, rest = split_prefix(path)
    roots = dict.fromkeys(root for names in patterns(rest) for root in _expand(names))
    for root in roots:
        for file in _walk(Path(root), frozenset()):
            yield Found(f"{prefix}{root}", SourceFile(f"{prefix}{file.path}", file.size, file.modified))


def _expand(names: Sequence[Name]) -> Iterator[str]:
    places = [""]
    for number, name in enumerate(names):
        if isinstance(name, str):
            places = [f"{place}/{name}" if number else name for place in places]
        else:
            places = [
                f"{place}/{entry}" if number else entry
                for place in places
                for entry in _entries(place or ("/" if number else "."))
                if name.fullmatch(entry)
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
