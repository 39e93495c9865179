"""How many rows a writer had in its last loads, and whether it has about as many now. Spark is not asked.

The numbers come from the table's own log, so they hold for the table that is there, whoever cleans up Airflow's
database. They are as old as the log is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from statistics import median
from typing import TYPE_CHECKING

from airflow_provider_onelake.buffers.identity import writers_among
from airflow_provider_onelake.buffers.verdict import CheckVerdict
from airflow_provider_onelake.checks import RowsLikeLast
from airflow_provider_onelake.exceptions import CorruptLogError, ObjectNotFoundError
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.storage.clock import whole_number
from airflow_provider_onelake.storage.concurrent import map_in_windows
from airflow_provider_onelake.texts import rows_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_onelake.buffers.identity import WriterIdentity
    from airflow_provider_onelake.log.delta_log import DeltaLog

_MOST_VERSIONS = 1000
"""How many versions back a load is looked for: a writer must not read a log of years because it once had few loads."""
_AHEAD = 16
_MOST_SHOWN = 10


def judged_by_loads(
    log: DeltaLog, who: WriterIdentity, checks: Mapping[str, str], rows: int
) -> dict[str, CheckVerdict]:
    """Evaluate a writer's checks of the number of its rows, by name.

    :param log: of the table.
    :param who: the writer.
    :param checks: all checks of the writer.
    :param rows: that it has staged.
    """
    asked = {name: found for name, check in checks.items() if (found := RowsLikeLast.parse(check)) is not None}
    if not asked:
        return {}
    before = rows_before(log, who, max(each.loads for each in asked.values()))
    return {name: judge(each, name, checks[name], rows, before[: each.loads]) for name, each in asked.items()}


def judge(asked: RowsLikeLast, name: str, check: str, rows: int, before: Sequence[int]) -> CheckVerdict:
    """Say whether a writer has about as many rows as in its last loads.

    :param asked: what to compare with.
    :param name: of the check.
    :param check: its text.
    :param rows: that the writer has staged.
    :param before: the rows of its last loads, the newest first.
    """
    if not before:
        found = "no earlier load of this writer is in the table's log, so there is nothing to compare with"
        return CheckVerdict(name=name, sql=check, each_row=False, met=True, found=found)
    usual = median(map(Fraction, before))
    shown = [*map(str, before[:_MOST_SHOWN]), *(["…"] if len(before) > _MOST_SHOWN else [])]
    # As the author wrote the numbers: 0.55 of 100 rows are 55.
    least = math.ceil(Fraction(str(asked.at_least)) * usual)
    most = None if asked.at_most is None else math.floor(Fraction(str(asked.at_most)) * usual)
    like = f"{least} or more" if most is None else f"{least} to {most}"
    loads = "its last load" if len(before) == 1 else f"its last {len(before)} loads"
    return CheckVerdict(
        name=name,
        sql=check,
        each_row=False,
        met=least <= rows and (most is None or rows <= most),
        found=f"{rows_in_words(rows)}, where {like} would be like {loads} ({', '.join(shown)} rows)",
    )


def rows_before(log: DeltaLog, who: WriterIdentity, loads: int) -> list[int]:
    """Return how many rows a writer had in its last loads, the newest first, as far as the log tells.

    A load is what one run published, and of a run that published again, what it published last. The writer's own run
    does not count: a clear would be compared with itself. Nor does a load whose rows were set aside, one without
    statistics, and one that a RESTORE to an older version took back.

    :param log: of the table.
    :param who: the writer.
    :param loads: the most that are returned.
    """
    snapshot = log.snapshot()
    ours = writers_among(snapshot.txns, who.load.dag_prefix)
    left = {other.app_id for other in ours if _is_same_in_other_run(who, other)}
    found: list[int] = []
    for commit in _backwards(log, snapshot.version) if left else ():
        for app_id, rows in _rows_by_writer(commit).items():
            if app_id in left:
                left.discard(app_id)
                found += [] if rows is None else [rows]
        if not left or len(found) >= loads:
            break
    return found[:loads]


def _is_same_in_other_run(who: WriterIdentity, other: WriterIdentity) -> bool:
    return other.load.run != who.load.run and (other.load.group, other.key) == (who.load.group, who.key)


def _backwards(log: DeltaLog, newest: int) -> Iterator[Commit]:
    """Yield the commits that a version is made of, the newest first, until the log ends."""
    versions = range(newest, max(-1, newest - _MOST_VERSIONS), -1)

    def read(version: int) -> Commit | None:
        # Not by the log, which keeps what it has read for the commit that follows.
        try:
            return Commit.parse(version, log.store.get(version_path(version)), log.table)
        except (ObjectNotFoundError, CorruptLogError):
            # Nobody needs an entry behind a checkpoint, so one that cannot be read must not fail a load.
            return None

    until = newest
    for commit in map_in_windows(log.store, read, versions, _AHEAD):
        if commit is None:
            return
        if commit.version > until:
            continue
        yield commit
        if commit.operation == "RESTORE" and commit.restored_to is None:
            return  # It names a time, so nobody knows which loads are still there.
        until = commit.restored_to if commit.restored_to is not None else until


def _rows_by_writer(commit: Commit) -> dict[str, int | None]:
    """Return the rows that a commit has of each writer, by ``txn`` id; ``None`` where they do not count."""
    if commit.operation == "MERGE":
        metrics = commit.info.get("operationMetrics")
        rows = whole_number(metrics.get("numSourceRows")) if isinstance(metrics, Mapping) else None
        return dict.fromkeys(commit.txns, rows)
    return {writer.app_id: None if writer.set_aside else writer.rows for writer in commit.writers}
