"""Lists the files of a source that an operator can see: on this machine, and in the connection's lakehouse."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.reading.listing import is_local, local_files, stored_files
from airflow_provider_onelake.reading.spark_files import (
    Reading,
    SourceFile,
    WantedFiles,
    normal,
    patterns,
    read_by_spark,
)
from airflow_provider_onelake.sources import FileSource, Source

if TYPE_CHECKING:
    from airflow_provider_onelake.hooks.onelake import OneLakeHook


@attrs.frozen
class Listing:
    """The files that a source's paths stand for.

    :param reading: the files that Spark reads of them.
    :param empty: the paths that stand for no file.
    :param unseen: the paths that cannot be listed from here. They are of another machine, or outside of the
        connection's lakehouse.
    :param root: the lakehouse's address as Spark spells it; empty if the connection names no lakehouse.
    """

    reading: Reading
    empty: tuple[str, ...]
    unseen: tuple[str, ...]
    root: str


def list_source(source: FileSource, hook: OneLakeHook) -> Listing:
    """List the files that Spark reads for a source.

    :param source: the rendered source.
    :param hook: the hook of the lakehouse.
    :raises InvalidWriteError: a path is no glob that Hadoop takes.
    :raises StoreUnavailableError: the store did not answer.
    """
    from airflow_provider_onelake.storage.addresses import TableAddress

    root = TableAddress.parse_root(hook.lakehouse).spark_uri if hook.lakehouse else ""
    inside = [path for path in source.paths if root and normal(path).startswith(f"{root}/")]
    seen = {path for path in source.paths if is_local(path) or path in inside}
    found = [each for path in source.paths if is_local(path) for each in local_files(path)]
    if inside:
        found += stored_files(hook.get_conn(), root, [normal(path).removeprefix(f"{root}/") for path in inside])
    roots = {each.root for each in found}
    empty = [path for path in source.paths if path in seen and not _any_of(path, roots)]
    unseen = [path for path in source.paths if path not in seen]
    return Listing(read_by_spark(found, source.options), tuple(empty), tuple(unseen), root)


def _any_of(path: str, roots: Collection[str]) -> bool:
    """Say whether a path stands for one of the files that were found."""
    choices = list(patterns(path))
    if all(isinstance(name, str) for names in choices for name in names):
        return any("/".join(map(str, names)) in roots for names in choices)
    wanted = WantedFiles(choices)
    return any(True for root in roots for _ in wanted.roots(root.split("/")))


def seen_files(source: Source, hook: OneLakeHook) -> list[SourceFile]:
    """Return the files of a source that can be seen from here.

    Their sizes and times tell a rerun whether its input changed (protocol: same source).

    :param source: the rendered source.
    :param hook: the hook of the lakehouse.
    :returns: the files. A query and a function have none, and neither has a source that cannot be listed from here.
    :raises StoreUnavailableError: the store did not answer.
    """
    return list(list_source(source, hook).reading.files) if isinstance(source, FileSource) else []
