"""The versions of a table as people are shown them: one in a line, one in full, or a page of them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from airflow_provider_onelake.buffers.claims import start_of
from airflow_provider_onelake.buffers.identity import WriterIdentity
from airflow_provider_onelake.buffers.verdict import Verdict, verdict_at
from airflow_provider_onelake.choices import OnFailedCheck
from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    ObjectNotFoundError,
    TableNotFoundError,
    TerminalError,
)
from airflow_provider_onelake.history.published import Fate, Publishing, aftermath
from airflow_provider_onelake.log.commits import Commit, PublishedWriter, named_by
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.statements.asker import task_named_by
from airflow_provider_onelake.storage.clock import whole_number
from airflow_provider_onelake.storage.concurrent import map_concurrently
from airflow_provider_onelake.texts import listed
from airflow_provider_onelake.writes.policy import Settlement, left_out_as

MOST_COMMITS = 200
"""How many versions a page looks at, at most: each costs a request."""

_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)?"
# How long what people write lasts: a day, a minute, a second. What is written more finely is an instant.
_MEANT = {
    r"\d{4}-?\d\d-?\d\d": timedelta(days=1),
    rf".+[T ]\d\d:?\d\d{_ZONE}": timedelta(minutes=1),
    rf".+[T ]\d\d:?\d\d:?\d\d{_ZONE}": timedelta(seconds=1),
}
# The digits of a version in the name of its entry. Python refuses to read some thousands of digits.
_LONGEST_VERSION = 20
_LONGEST_SAID = 50
_MOST_WRITERS = 3
_OURS = "airflow-provider-onelake/"
# How commit/words.py says whose a commit is. Nobody reads more than the beginning of what another engine says.
_SAID = re.compile(r"(?P<task>\S+), run (?P<run>.+?) \([^()]*\): ")
_MOST_SAID = 1_000
# What such a statement removes, it adds again but for what it changed, so only the difference is its own doing.
_REWRITING = ("DELETE", "UPDATE", "MERGE", "OPTIMIZE", "REORG", "RESTORE")
_UPDATED = ("numUpdatedRows", "numTargetRowsUpdated")
# Of more writers, nobody follows the links, and each costs a request.
_MOST_LINKS = 50


def summary_of(commit: Commit) -> dict[str, Any]:
    """Return what a line of a history says of a commit, as plain values by name.

    ``by`` and ``run`` are as :func:`made_by` says them. ``rows`` is how many rows more the table has than before, made
    up of ``rows_new`` and ``rows_gone``. ``rows_added`` and ``rows_removed`` are those in the files that came and went,
    to which rows belong that were only rewritten.
    """
    names = [writer.writer for writer in commit.writers]
    by, run = made_by(commit)
    return {
        "version": commit.version,
        "time": commit.time,
        "operation": commit.operation or None,
        "by": by,
        "run": run,
        "load": commit.staged.get("load"),
        "writers": listed(names, _MOST_WRITERS) or None,
        "engine": commit.info.get("engineInfo"),
        **_rows_of(commit),
        "rows_added": commit.rows_added,
        "rows_removed": commit.rows_removed,
        "files_added": len(commit.adds),
        "files_removed": len(commit.removes),
        "settled": len(Settlement.of(commit)) or None,
    }


def made_by(commit: Commit) -> tuple[str | None, str | None]:
    """Return who made a version, and in which run.

    That is our writers with their DAG and group, the DAG and the task of a statement, a compaction or a restore, or a
    person at a terminal; of another engine's version, the engine, and no run.
    """
    if commit.all_writers:
        keys = listed([writer.writer for writer in commit.all_writers], _MOST_WRITERS)
        named = named_in([commit.all_writers[0].app_id])
        return (f"{keys} of {named[1]}.{named[2]}", named[3]) if named else (keys, None)
    if named := named_in(commit.txns):
        return f"{named[1]}.{named[2]}", named[3]
    said = _text_of(commit)
    if found := _SAID.match(said):
        return found["task"], found["run"]
    engine = str(commit.info.get("engineInfo") or "")[:_MOST_SAID]
    return said.partition(": ")[0] or (None if engine.startswith(_OURS) else engine) or None, None


def named_in(app_ids: Iterable[str]) -> list[str] | None:
    """Return the namespace, DAG, group or task, and run of the first ``txn`` id of a writer or a statement of ours."""
    for app_id in app_ids:
        if named := named_by(app_id) or task_named_by(app_id):
            return named[:4]
    return None


def _text_of(commit: Commit) -> str:
    """Return the beginning of what a version of ours says of itself; nothing of another engine's."""
    is_ours = str(commit.info.get("engineInfo")).startswith(_OURS)
    return str(commit.user_metadata or "")[:_MOST_SAID] if is_ours else ""


def _rows_of(commit: Commit) -> dict[str, int | None]:
    added, removed = commit.rows_added, commit.rows_removed
    net = None if added is None or removed is None else added - removed
    if commit.operation in _REWRITING and net is not None:
        added, removed = max(net, 0), max(-net, 0)
    metrics: Any = commit.info.get("operationMetrics")
    told = metrics if isinstance(metrics, Mapping) else {}
    updated = next((whole_number(told[name]) for name in _UPDATED if name in told), None)
    return {"rows": net, "rows_new": added, "rows_gone": removed, "rows_updated": updated}


@attrs.frozen
class Wanted:
    """Which versions somebody wants to see: those that meet everything that is given. Default: all of them.

    Texts are parts of what they name, in small or in capital letters.

    :param dag: the DAG whose load made the version.
    :param writer: a writer whose rows it published.
    :param operation: such as ``MERGE``.
    :param settled: whether only versions are wanted that settled conflicts.
    :param since: the first version, or the time of the first.
    :param until: the last version, or the time of the last.
    """

    dag: str = ""
    writer: str = ""
    operation: str = ""
    settled: bool = False
    since: int | datetime | None = None
    until: int | datetime | None = None

    def takes(self, commit: Commit) -> bool:
        """Say whether a version is wanted. A version that does not tell its time lies in every time."""
        dag, writers = dag_of(commit) or "", [writer.writer for writer in commit.writers]
        if self.settled and not Settlement.of(commit):
            return False
        if not _has(self.dag, [dag]) or not _has(self.writer, writers) or not _has(self.operation, [commit.operation]):
            return False
        at: dict[type, Any] = {int: commit.version, datetime: commit.time}
        first, last = (at[type(bound)] if bound is not None else None for bound in (self.since, self.until))
        return not (first is not None and first < self.since) and not (last is not None and last > self.until)


def bound(name: str, text: str | None) -> int | datetime | None:
    """Read one end of a range of versions.

    :param name: what messages call it; of ``until``, a day, a minute or a second is meant to its end.
    :param text: a version's number, or a time in ISO 8601, which is UTC where it names no zone; empty for no end.
    :raises InvalidWriteError: it is neither.
    """
    said = (text or "").strip()
    if not said:
        return None
    if said.isdecimal() and len(said) <= _LONGEST_VERSION:
        return int(said)
    try:
        time = datetime.fromisoformat(said)
    except ValueError:
        raise InvalidWriteError(
            f"{name}={said[:_LONGEST_SAID]!r} is neither a version nor a time, such as 42 or 2019-01-31 23:59. "
            "Nothing was looked up."
        ) from None
    if name == "until":
        meant = next((length for form, length in _MEANT.items() if re.fullmatch(form, said)), None)
        time += meant - timedelta(microseconds=1) if meant else timedelta()
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def page_of_commits(
    log: DeltaLog, before: int | None = None, limit: int = 50, wanted: Wanted | None = None
) -> dict[str, Any]:
    """Return the wanted ones of the newest versions of a table, or of those before a version, the newest first.

    It costs one listing of the log's newest part and one request for each version that is looked at, however many
    versions the table has; the page of the newest also reads the newest checkpoint and the entries after it. An end
    that is a time costs a binary search more, which reads 14 of 10,000 versions, and which takes for granted that times
    rise from version to version.

    :param before: the version behind the page. Default: the page of the newest that may be wanted.
    :param limit: how many versions are looked at, at most :data:`MOST_COMMITS`.
    :param wanted: which of them to return. Default: all.
    :returns: ``table``, ``newest``, ``commits`` (as :func:`summary_of` makes them, with ``bytes_added``),
        ``looked_at`` (the lowest and the highest version; ``None`` for none), ``before`` of the next page, which is
        ``None`` behind the last, and ``cleaned_up``: whether older entries of the log are gone.
    :raises TableNotFoundError: there is no table.
    :raises UnsupportedFeatureError: the table has a feature of readers that is not known here.
    """
    if before is None:
        log.check_readable()
    newest = log.newest_listed()
    if newest < 0:
        raise TableNotFoundError(f"There is no Delta table at {log.table}.")
    wanted = wanted or Wanted()
    last = _bounded(log, newest, wanted.until, bisect_right) - 1
    floor = _bounded(log, newest, wanted.since, bisect_left)
    first = last if before is None else min(before - 1, last)
    versions = range(first, max(first - min(max(limit, 1), MOST_COMMITS), floor - 1), -1)
    found = [commit for commit in map_concurrently(log.store, log.commit, versions) if commit is not None]
    lacks = len(found) < len(versions)
    lowest = min((commit.version for commit in found), default=0)
    return {
        "table": log.address,
        "newest": newest,
        "commits": [
            {**summary_of(commit), "bytes_added": sum(add["size"] for add in commit.adds)}
            for commit in found
            if wanted.takes(commit)
        ],
        "looked_at": [lowest, found[0].version] if found else None,
        "before": lowest if found and lowest > floor and not lacks else None,
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
    now = writers_now(log, commit)
    return {
        **summary_of(commit),
        "partitions_added": sorted(partition_in_words(values) for values in commit.added_partitions),
        "partitions_removed": sorted(partition_in_words(values) for values in commit.removed_partitions),
        "published": [{**writer.to_json(), **there} for writer, there in zip(commit.writers, now, strict=False)],
        "settlements": [settlement.to_json() for settlement in settlements],
        "settled_in_words": [str(settlement) for settlement in settlements],
        "user_metadata": commit.user_metadata,
        "changes_definition": commit.metadata is not None or commit.protocol is not None,
    }


def writers_now(log: DeltaLog, commit: Commit) -> list[dict[str, Any]]:
    """Say what is in the table now of the rows that a version published or merged, and whose rows stand instead.

    It costs the newest snapshot, and a request for each version since.

    :returns: for each writer ``writer``, ``status`` (``published``, ``superseded``, ``set_aside``, ``deleted`` or
        ``restored_away``), ``rows_staged``, ``rows_in_table`` (``None``: nobody knows) and ``said`` (sentences: what
        became of the rows).
    """
    snapshot = None
    # A version is shown also where a later entry of the log is damaged.
    with suppress(TerminalError):
        snapshot = log.snapshot() if commit.all_writers else None
    return _writers_at(log, commit, snapshot)


def _writers_at(log: DeltaLog, commit: Commit, snapshot: Snapshot | None) -> list[dict[str, Any]]:
    settlements, found = Settlement.of(commit), []
    for writer in commit.all_writers:
        now: dict[str, Any] = {"status": "published", "rows_in_table": None, "said": []}
        if writer.set_aside:
            now = {"status": left_out_as(settlements).value, "rows_in_table": 0, "said": list(map(str, settlements))}
        elif snapshot is None or snapshot.version - commit.version > MOST_COMMITS:
            now["said"] = [f"what became of its rows was not looked up: more than {MOST_COMMITS} versions came since"]
        else:
            since = aftermath(log, Publishing(commit.version, writer), snapshot)
            status = "published" if since.fate is Fate.LIVE else since.fate.value
            now = {"status": status, "rows_in_table": since.rows, "said": list(since.story)}
        found.append({"writer": writer.writer, "rows_staged": writer.rows_staged, **now})
    return found


def versions_now(log: DeltaLog, versions: Iterable[int]) -> dict[int, list[dict[str, Any]]]:
    """Say of several versions what is in the table of their rows, as :func:`writers_now` does.

    :param versions: of them, those are left out that are not among the newest :data:`MOST_COMMITS`.
    """
    snapshot = log.snapshot()
    wanted = [version for version in set(versions) if 0 <= snapshot.version - version < MOST_COMMITS]
    commits = filter(None, map_concurrently(log.store, log.commit, sorted(wanted)))
    return {commit.version: _writers_at(log, commit, snapshot) for commit in commits}


def tasks_of(log: DeltaLog, writers: Sequence[PublishedWriter], namespace: str) -> list[dict[str, Any] | None]:
    """Return which task instances a version's writers were, as far as their claims are still there.

    :param writers: of a version.
    :param namespace: of this deployment: the tasks of another one are not known here.
    :returns: for each writer ``dag``, ``run``, ``task`` and ``map_index`` (-1 for an unmapped task), or ``None``.
    """
    linked = writers[:_MOST_LINKS]
    known = map_concurrently(log.store, lambda writer: _task_of(log, writer, namespace), linked)
    return [*known, *([None] * (len(writers) - len(linked)))]


def task_of(commit: Commit, namespace: str) -> dict[str, Any] | None:
    """Return which task instance ran the statement or the restore that a version is, as :func:`tasks_of` does."""
    named = None if commit.all_writers else named_in(commit.txns)
    return instance(named[1], named[3], named[2]) if named and named[0] == namespace else None


def checks_of(log: DeltaLog, writers: Sequence[PublishedWriter]) -> list[list[dict[str, Any]] | None]:
    """Return what checks say of the rows that a version published: a request for each writer, of 50 at most.

    A verdict that was cleaned up since says nothing, and neither does one that cannot be read.

    :param writers: of the version.
    :returns: for each writer, in their order, the results as ``Verdict.as_results`` says them; ``None`` for a writer
        without a verdict.
    """
    looked = writers[:_MOST_LINKS]
    verdicts = map_concurrently(log.store, lambda writer: _verdict(log, writer), looked)
    # What is published although rows of it fail a check is published with a warning.
    told = [None if verdict is None else verdict.as_results(OnFailedCheck.WARN) for verdict in verdicts]
    return told + [None] * (len(writers) - len(looked))


def _verdict(log: DeltaLog, writer: PublishedWriter) -> Verdict | None:
    try:
        return verdict_at(log.store, writer.buffer)
    except (ObjectNotFoundError, TerminalError):
        return None


def dag_of(commit: Commit) -> str | None:
    """Return the DAG whose load or statement made a version; ``None`` where the version does not say.

    Of a compaction it is the DAG and the task, as only a text says it. Deployments may have equal DAGs; this one does
    not say whose it is.
    """
    named, said = named_in(commit.txns), _SAID.match(_text_of(commit))
    return named[1] if named else said["task"] if said else None


def partition_in_words(values: Sequence[tuple[str, str | None]]) -> str:
    """Return the name of a partition as people read it."""
    return "/".join(f"{name}={'NULL' if value in (None, '') else value}" for name, value in values) or "the table"


def _task_of(log: DeltaLog, writer: PublishedWriter, namespace: str) -> dict[str, Any] | None:
    identity = WriterIdentity.from_app_id(writer.app_id)
    if identity is None or identity.load.namespace != namespace:
        return None
    task_start = start_of(log.store, identity, writer.generation)
    if task_start is None:
        return None
    return instance(task_start.dag or identity.load.dag, task_start.run_id, task_start.task)


def instance(dag: str, run: str, label: str) -> dict[str, Any]:
    """Return a task instance by its parts: ``dag``, ``run``, ``task`` and ``map_index`` (-1 for an unmapped task)."""
    task, _, index = label.removesuffix("]").partition("[")
    return {"dag": dag, "run": run, "task": task, "map_index": int(index) if index.isdecimal() else -1}


def _has(part: str, texts: Sequence[str]) -> bool:
    return not part or any(part.lower() in text.lower() for text in texts)


def _bounded(log: DeltaLog, newest: int, end: int | datetime | None, search: Callable[..., int]) -> int:
    """Return the first version behind one end, if ``search`` looks to the right of it, else the first that it holds."""
    if end is None:
        return newest + 1 if search is bisect_right else 0
    versions = range(newest + 1)
    if isinstance(end, int):
        return search(versions, end)

    def time(version: int) -> datetime:
        commit = log.commit(version)
        # Entries that were cleaned up are older than those that are there.
        return (commit.time if commit else None) or datetime.min.replace(tzinfo=UTC)

    return search(versions, end, key=time)
