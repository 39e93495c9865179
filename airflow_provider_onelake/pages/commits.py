"""The versions of a table as people are shown them: one in a line, one in full, or a page of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_onelake.commit.policy import Settlement
from airflow_provider_onelake.exceptions import InvalidWriteError, TableNotFoundError
from airflow_provider_onelake.log.commits import Commit, PublishedWriter
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.claims import deed_of
from airflow_provider_onelake.staging.identity import WriterIdentity
from airflow_provider_onelake.storage.at_once import each

MOST_COMMITS = 200
"""How many versions a page has at most: each costs a request."""

_MOST_WRITERS = 3
# Of more writers, nobody follows the links, and each costs a request.
_MOST_LINKS = 50


def summary_of(commit: Commit) -> dict[str, Any]:
    """Return what a line of a history says of a commit, as plain values by name."""
    names = [writer.writer for writer in commit.writers]
    more = f" and {len(names) - _MOST_WRITERS} more" if len(names) > _MOST_WRITERS else ""
    return {
        "version": commit.version,
        "time": commit.time,
        "operation": commit.operation or None,
        "load": commit.staged.get("load"),
        "writers": ", ".join(names[:_MOST_WRITERS]) + more if names else None,
        "engine": commit.info.get("engineInfo"),
        "rows_added": commit.rows_added,
        "rows_removed": commit.rows_removed,
        "files_added": len(commit.adds),
        "files_removed": len(commit.removes),
        "settled": len(Settlement.of(commit)) or None,
    }


def page_of_commits(log: DeltaLog, before: int | None = None, limit: int = 50) -> dict[str, Any]:
    """Return the newest versions of a table, or those before a version, the newest first.

    It costs one listing of the log's newest part and one request a version, however many versions the table has.

    :param before: the version behind the page. Default: the page of the newest.
    :param limit: how many versions, at most :data:`MOST_COMMITS`.
    :returns: ``table``, ``newest``, ``commits`` (as :func:`summary_of` makes them, with ``bytes_added``), ``before`` of
        the next page, which is ``None`` behind the last, and ``cleaned_up``: whether older entries of the log are gone.
    :raises TableNotFoundError: there is no table.
    """
    newest = log.newest_listed()
    if newest < 0:
        raise TableNotFoundError(f"There is no Delta table at {log.table}.")
    first = newest if before is None else min(before - 1, newest)
    versions = range(first, max(first - min(max(limit, 1), MOST_COMMITS), -1), -1)
    found = [commit for commit in each(log.store, log.commit, versions) if commit is not None]
    lacks = len(found) < len(versions)
    lowest = min((commit.version for commit in found), default=0)
    return {
        "table": log.table,
        "newest": newest,
        "commits": [{**summary_of(commit), "bytes_added": _bytes_added(commit)} for commit in found],
        "before": lowest if found and lowest > 0 and not lacks else None,
        "cleaned_up": lacks,
    }


def commit_in_full(log: DeltaLog, version: int) -> dict[str, Any]:
    """Return all that is known of a version.

    :raises InvalidWriteError: the log has no entry for it.
    """
    commit = log.commit(version)
    if commit is None:
        raise InvalidWriteError(f"{log.table} has no version {version} in its log, which may have been cleaned up.")
    settlements = Settlement.of(commit)
    return {
        **summary_of(commit),
        "partitions_added": sorted(partition_in_words(values) for values in commit.added_partitions),
        "partitions_removed": sorted(partition_in_words(values) for values in commit.removed_partitions),
        "published": [writer.to_json() for writer in commit.writers],
        "settlements": [settlement.to_json() for settlement in settlements],
        "settled_in_words": [str(settlement) for settlement in settlements],
        "counts_before": commit.staged.get("before"),
        "user_metadata": commit.user_metadata,
        "changes_definition": commit.metadata is not None or commit.protocol is not None,
    }


def tasks_of(log: DeltaLog, writers: Sequence[PublishedWriter], namespace: str) -> list[dict[str, Any] | None]:
    """Return which task instances a version's writers were, as far as their claims are still there.

    :param writers: of a version.
    :param namespace: of this deployment: the tasks of another one are not known here.
    :returns: for each writer ``dag``, ``run``, ``task`` and ``map_index`` (-1 for an unmapped task), or ``None``.
    """
    linked = writers[:_MOST_LINKS]
    known = each(log.store, lambda writer: _task_of(log, writer, namespace), linked)
    return [*known, *([None] * (len(writers) - len(linked)))]


def partition_in_words(values: Sequence[tuple[str, str | None]]) -> str:
    """Return the name of a partition as people read it."""
    return "/".join(f"{name}={'NULL' if value in (None, '') else value}" for name, value in values) or "the table"


def _task_of(log: DeltaLog, writer: PublishedWriter, namespace: str) -> dict[str, Any] | None:
    identity = WriterIdentity.from_app_id(writer.app_id)
    if identity is None or identity.load.namespace != namespace:
        return None
    deed = deed_of(log.store, identity, writer.generation)
    if deed is None:
        return None
    task, _, index = deed.task.removesuffix("]").partition("[")
    mapped = int(index) if index.isdecimal() else -1
    return {"dag": identity.load.dag, "run": deed.run_id, "task": task, "map_index": mapped}


def _bytes_added(commit: Commit) -> int:
    return sum(add["size"] for add in commit.adds if add.get("dataChange", True))
