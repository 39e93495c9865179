"""A source's files: which there are in a store, and to which partition each belongs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote

from airflow_provider_onelake.exceptions import PlanError
from airflow_provider_onelake.sources import SourceFile, without_braces
from airflow_provider_onelake.storage.stores import Store

_GLOB = re.compile(r"[*?\[{]")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NANOSECONDS = 1_000_000_000


def stored_files(store: Store, root: str, pattern: str) -> Iterator[SourceFile]:
    """List what Spark would read for a path in a store.

    :param store: that holds it.
    :param root: of the store, as Spark addresses it.
    :param pattern: a path below the root: a file, a directory, or a glob of either.
    :returns: the files, with their whole addresses, in the order of their paths.
    """
    # A listing begins at a directory, so before the first name with a pattern in it.
    fixed = _GLOB.split(pattern)[0]
    directory = fixed.rpartition("/")[0] if _GLOB.search(pattern) else fixed.rstrip("/")
    wanted = re.compile("|".join(f"(?:{_regex(plain.rstrip('/'))}(?:/.*)?)" for plain in without_braces(pattern)))
    found = list(store.list(directory))
    if not found and directory and not _GLOB.search(pattern):
        # A listing of a file is empty: it holds nothing.
        found = [info for info in store.list(directory.rpartition("/")[0]) if info.path == directory]
    for info in found:
        below = info.path.removeprefix(directory)
        hidden = any(name.startswith(("_", ".")) for name in below.split("/"))
        if wanted.fullmatch(info.path) and not hidden:
            modified = int(info.modified.timestamp() * _NANOSECONDS)
            yield SourceFile(f"{root.rstrip('/')}/{info.path}", info.size, modified)


def by_partition(files: Iterable[SourceFile], by: str | None) -> dict[str, list[SourceFile]]:
    """Group files by partition.

    :param files: of a source.
    :param by: a column of Hive's directories (``month`` for ``…/month=2019-01/…``), or a regular expression with one
        group, found somewhere in the path (``tripdata_([0-9-]+)``). ``None``: every file is a partition.
    :returns: the files of each partition, by its name.
    :raises PlanError: ``by`` is neither, or a file belongs to no partition.
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


def _regex(pattern: str) -> str:
    """Return a regular expression for one of Hadoop's globs without braces."""
    parts = re.split(r"(\*|\?|\[[^\]]*\])", pattern)
    return "".join(_PIECES.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts)


_PIECES = {"*": "[^/]*", "?": "[^/]"}
