"""Which files Spark reads for a path: its globs, the names that it ignores, its directories of partitions.

The rules are those of Spark 4.2 (Hadoop's ``GlobPattern``; Spark's ``HadoopFSUtils``, ``PartitioningAwareFileIndex``
and ``PartitioningUtils``). Nothing here reads a disk or a store: callers pass in the files that exist.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError

_GLOB = re.compile(r"[{}\[\]*?\\]")
_MAGIC = re.compile(r"[*?\[{]")
_GLOB_SIGN = re.compile(r"\\.?|\[[!^]?|.", re.DOTALL)
_WILD = {"*": ".*", "?": "."}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_BRACES = re.compile(r"((?:\\.|[^\\{])*)\{((?:\\.|[^{}\\])*)\}", re.DOTALL)
_PREFIX = re.compile(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)?")
_LOCAL = re.compile(r"^file:(?://[^/]*)?")
# Characters with a meaning in a glob; and % or # after a brace, which would make the name a template.
_SPECIAL = re.compile(r"[\\{}\[\]*?]|(?<=\{)[%#]")

Name = str | re.Pattern[str]
"""One name in a wanted path: a text stands for itself, a pattern for every name that it matches."""


@attrs.frozen
class SourceFile:
    """A file that a writer reads; size and time tell whether the input changed.

    :param size: the size in bytes.
    :param modified: the time of the last change, in nanoseconds since 1970.
    """

    path: str
    size: int
    modified: int


@attrs.frozen
class FoundFiles:
    """A file that lies at or below something that a source's path stands for.

    :param root: what the path, or its glob, stands for: the file itself or a directory above it.
    """

    root: str
    file: SourceFile


@attrs.frozen
class Reading:
    """How Spark reads a source.

    :param files: the files that Spark reads, each once, sorted by path.
    :param base: the directory below which the names of directories are columns, as in ``month=2019-01``; ``None`` if
        there are no such columns.
    :param conflict: why Spark would refuse to read these files; ``None`` if it would not.
    """

    files: tuple[SourceFile, ...]
    base: str | None = None
    conflict: str | None = None


def digest_of(files: Iterable[SourceFile]) -> str:
    """Return a digest of files, as they were when they were listed: of their paths, sizes and times."""
    seen = sorted([file.path, file.size, file.modified] for file in files)
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:32]


def is_glob(path: str) -> bool:
    """Say whether Spark takes a path, as an author gives it, for a glob."""
    return _GLOB.search(path) is not None


def literal(path: str) -> str:
    """Return a glob that stands for exactly this file, whatever characters are in its path."""
    return _SPECIAL.sub(r"\\\g<0>", path)


def normal(path: str) -> str:
    """Return a path as Hadoop spells it: one slash between names, none at the end, no ``.`` and no ``..``.

    :param path: a path, an address or a glob.
    """
    prefix, rest = split_prefix(path)
    return prefix + (posixpath.normpath(re.sub("/+", "/", rest)) if rest else "")


def split_prefix(path: str) -> tuple[str, str]:
    """Split an address into a prefix (scheme and authority) and the path.

    :param path: an address, or a plain path, which has an empty prefix.
    """
    found = _PREFIX.match(path)
    end = found.end() if found else 0
    return path[:end], path[end:]


def without_local_prefix(path: str) -> str:
    """Return a path without a ``file:`` in front, so that two spellings of one local file are equal."""
    return _LOCAL.sub("", path)


def patterns(path: str) -> Iterator[tuple[Name, ...]]:
    """Yield the wanted names along a path, once for each choice of its braces.

    :param path: a path, an address or a glob.
    :raises InvalidWriteError: the path is a glob that Hadoop refuses.
    """
    if not is_glob(path):
        yield tuple(normal(path).split("/"))
        return
    for plain in _without_braces(path):
        yield tuple(_name(part, path) for part in normal(plain).split("/"))


class WantedFiles:
    """A set of wanted paths, which finds those at or above a file. Many plain paths cost no more than one.

    :param choices: the names of each path, as :func:`patterns` yields them.
    """

    def __init__(self, choices: Iterable[Sequence[Name]]) -> None:
        self._plain: set[tuple[Name, ...]] = set()
        self._globs: list[tuple[Name, ...]] = []
        for names in dict.fromkeys(map(tuple, choices)):
            if all(isinstance(name, str) for name in names):
                self._plain.add(names)
            else:
                self._globs.append(names)
        self._lengths = sorted({len(names) for names in self._plain})

    def __contains__(self, names: Sequence[str]) -> bool:
        """Say whether a path is wanted by its literal name, not only by a glob."""
        return tuple(names) in self._plain

    def roots(self, parts: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yield everything that the wanted paths stand for and that is a file itself or a directory above it.

        :param parts: the names in the file's path.
        """
        yield from (tuple(parts[:count]) for count in self._lengths if tuple(parts[:count]) in self._plain)
        for names in self._globs:
            if len(parts) >= len(names) and all(map(_fits, names, parts)):
                yield tuple(parts[: len(names)])


def visible(name: str) -> bool:
    """Say whether Spark sees a file or a directory of this name when it lists the directory around it."""
    return not ((name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_"))


def read_by_spark(found: Iterable[FoundFiles], options: Mapping[str, str]) -> Reading:
    """Say which files of a source Spark reads, and at which directory its columns of directories begin.

    If there are directories such as ``month=2019-01``, Spark reads all files in them, however deep, and no files beside
    them. Else it reads the files that lie directly in each root.

    :param found: the visible files below the roots that the source's paths stand for.
    :param options: the options of Spark's reader.
    """
    given = {name.lower(): value for name, value in options.items()}
    files: dict[str, SourceFile] = {}
    roots: set[str] = set()
    for each in found:
        files.setdefault(without_local_prefix(each.file.path), each.file)
        roots.add(without_local_prefix(each.root))
    ordered = [(path, files[path]) for path in sorted(files)]
    reading = _placed(ordered, roots, given)
    return attrs.evolve(reading, conflict=reading.conflict or _colon(reading.files))


def _placed(ordered: Sequence[tuple[str, SourceFile]], roots: set[str], given: Mapping[str, str]) -> Reading:
    files = dict(ordered)
    if str(given.get("recursivefilelookup", "")).lower() == "true":
        return Reading(_named(ordered, given))
    if "basepath" in given:
        bases = {without_local_prefix(normal(given["basepath"]))}
    else:
        bases = {posixpath.dirname(root) if root in files else root for root in roots}
    placed = {path: _columns_above(posixpath.dirname(path), bases) for path, _ in ordered}
    inferring = [placed[path] for path, file in ordered if file.size]
    if not any(columns for columns, _ in inferring):
        direct = [item for item in ordered if item[0] in roots or (posixpath.dirname(item[0]) or ".") in roots]
        return Reading(_named(direct, given))
    within = [item for item in ordered if placed[item[0]][0]]
    base = placed[within[0][0]][1]
    prefix = within[0][1].path.removesuffix(within[0][0])
    return Reading(_named(within, given), f"{prefix}{base}", _conflict(inferring))


def base_of(paths: Iterable[str], files: Iterable[str], options: Mapping[str, str]) -> Reading:
    """Say where columns of directories begin for some files of a source, without reading a disk or a store.

    :param paths: the source's paths.
    :param files: some of the files that the paths stand for, as :func:`literal` spells them.
    :param options: the options of Spark's reader.
    """
    wanted = WantedFiles(choice for path in paths for choice in patterns(without_local_prefix(path)))
    found = []
    for path in files:
        name = normal(_ESCAPED.sub(r"\1", path))
        parts = without_local_prefix(name).split("/")
        roots = ["/".join(root) for root in wanted.roots(parts)]
        found += [FoundFiles(root, SourceFile(name, 1, 0)) for root in roots or [name]]
    return read_by_spark(found, options)


def _fits(name: Name, part: str) -> bool:
    return part == name if isinstance(name, str) else name.fullmatch(part) is not None


def _named(files: Sequence[tuple[str, SourceFile]], options: Mapping[str, str]) -> tuple[SourceFile, ...]:
    wanted = options.get("pathglobfilter")
    if not wanted:
        return tuple(file for _, file in files)
    names = [_name(plain, wanted) for plain in _without_braces(wanted)]
    return tuple(file for path, file in files if any(_fits(name, posixpath.basename(path)) for name in names))


def _columns_above(directory: str, bases: set[str]) -> tuple[tuple[str, ...], str]:
    """Return the columns in the names of the directories above a file, and the directory that holds the first one."""
    columns: list[str] = []
    current = directory
    while current not in bases and current.strip("/"):
        column, equals, _ = posixpath.basename(current).partition("=")
        if equals:
            columns.insert(0, column)
        elif columns:
            break
        current = posixpath.dirname(current)
    return tuple(columns), current if columns else directory


def _colon(files: Iterable[SourceFile]) -> str | None:
    """Name a local file that Hadoop cannot open: it takes what stands before a colon for the scheme of an address."""
    for file in files:
        if _LOCAL.sub("", file.path).startswith("/") and ":" in posixpath.basename(file.path):
            return f"Spark cannot open {file.path}, a local file with a colon in its name: rename it"
    return None


def _conflict(placed: Iterable[tuple[tuple[str, ...], str]]) -> str | None:
    found = sorted(set(placed), key=lambda pair: pair[1])
    if len(bases := {base.lower() for _, base in found}) > 1:
        return (
            f"columns would begin in {len(bases)} directories, such as {found[0][1]} and {found[-1][1]}; the reader's "
            "option basePath names the one that is meant"
        )
    if len(columns := {names for names, _ in found if names}) > 1:
        spelled = " and ".join("/".join(f"{name}=…" for name in names) for names in sorted(columns)[:2])
        return f"their directories have different columns, {spelled}"
    return None


def _without_braces(pattern: str) -> Iterator[str]:
    """Yield the pattern once for each choice of ``{a,b}``; the order in which braces are expanded does not matter."""
    found = _BRACES.search(pattern)
    if found is None:
        yield pattern
        return
    start, end = found.end(1), found.end()
    for choice in re.findall(r"(?:^|,)((?:\\.|[^,\\])*)", found[2], re.DOTALL):
        yield from _without_braces(pattern[:start] + choice + pattern[end:])


def _name(part: str, whole: str) -> Name:
    """Return the wanted name for one part of a glob that has no braces."""
    if not _MAGIC.search(_ESCAPED.sub("", part)):
        return _ESCAPED.sub(r"\1", part)
    regex, inside = "", False
    for sign in _GLOB_SIGN.findall(part):
        if sign[0] == "\\":
            regex += re.escape(sign[1:])
        elif sign in _WILD:
            regex += _WILD[sign]
        elif sign[0] == "[" and not inside:
            regex, inside = regex + sign.replace("!", "^"), True
        elif sign == "]":
            regex, inside = regex + sign, False
        elif sign[0] in "[{":
            raise InvalidWriteError(
                f"{whole!r} is no glob: {sign[0]!r} is not closed. To mean it literally, write \\{sign[0]}."
            )
        else:
            regex += sign if inside else re.escape(sign)
    try:
        return re.compile(regex, re.DOTALL)
    except re.error as error:
        raise InvalidWriteError(f"{whole!r} is no glob: {error}.") from error
