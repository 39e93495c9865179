"""The steps of one restore: find the version, go back to it, say what that undid."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs

from airflow_provider_onelake.exceptions import LogGapError, RestoreRefusedError
from airflow_provider_onelake.log.history import version_at
from airflow_provider_onelake.maintenance.restore import Anchor, Restored, RestoreStatus, anchor_of, restore
from airflow_provider_onelake.texts import counted

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.claims import Start
    from airflow_provider_onelake.choices import OnNewerCommit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.task_run import TaskRun

logger = logging.getLogger(__name__)

Decision = tuple[Anchor, int]
"""The newest version with its digest, as it was when a restore was decided on, and the version to go back to."""


@attrs.frozen(kw_only=True)
class Restoration:
    """One task's restore of one table.

    :param version: to go back to; ``None`` where ``instant`` says it.
    :param instant: to go back to the version of that time.
    :param on_newer_commit: what happens if commits come while the task works.
    :param run: the try of the task.
    :param task_start: the task's first start or last clear; all tries of it are one restore.
    :param first_look: returns what the start's first try decided; if there was none that was asked the same, what the
        function that it is given decides.
    :param namespace: of the deployment.
    :param message: of the task's author, for people who read the table's history.
    """

    table: Table
    version: int | None
    instant: datetime | None
    on_newer_commit: OnNewerCommit
    run: TaskRun
    task_start: Start
    first_look: Callable[[Callable[[], Decision]], Decision]
    namespace: str
    message: str | None = None

    def carry_out(self) -> Restored:
        """Take the table back.

        :raises TableNotFoundError: there is no table.
        :raises RestoreRefusedError: the table is not taken back; the message says why.
        :raises ZombieWriterError: a newer start of the task has taken it back, or has found nothing to do.
        """
        log = self.table.log
        seen = log.snapshot()
        seen.check_supported(self.table.name)
        decided_on, version = self.first_look(lambda: self._decide(seen))
        done = restore(
            self.table.committer(),
            version,
            seen,
            self.run.asker(log, f"restore/{self._target}", self.task_start, self.namespace, self.message),
            on_newer_commit=self.on_newer_commit,
            decided_on=decided_on,
        )
        logger.info("%s: %s", self.table.name, _summary(done))
        return done

    def _decide(self, seen: Snapshot) -> Decision:
        log = self.table.log
        return anchor_of(log, seen), version_asked(log, seen, self.version, self.instant)

    @property
    def _target(self) -> str:
        asked = f"version={self.version}" if self.instant is None else f"timestamp={self.instant.isoformat()}"
        return quote(asked, safe="=")


def version_asked(log: DeltaLog, seen: Snapshot, version: int | None, instant: datetime | None) -> int:
    """Return the version that a table is to be taken back to.

    :param seen: the newest snapshot.
    :param version: what is asked for, or
    :param instant: the time whose version is asked for.
    :raises RestoreRefusedError: the log does not reach back to the instant.
    """
    if version is not None:
        return version
    assert instant is not None
    try:
        version = version_at(log, seen, instant)
    except LogGapError as error:
        raise RestoreRefusedError(str(error)) from error
    logger.info("%s had version %d at %s", log.table, version, instant.isoformat())
    return version


def describe_restore(done: Restored) -> dict[str, Any]:
    """Return the result of a restore for XCom."""
    undone = list(done.undone) if done.undone else None
    return {**attrs.asdict(done), "status": str(done.status), "undone": undone, "summary": _summary(done)}


def _summary(done: Restored) -> str:
    if done.status is RestoreStatus.NOTHING_TO_DO:
        return f"the table is as it was in version {done.restored_to}; nothing to do"
    if done.status is RestoreStatus.ALREADY:
        return f"an earlier try took the table back to version {done.restored_to}"
    undone = f", which undoes {_versions(*done.undone)}" if done.undone else ""
    return (
        f"version {done.version} is as version {done.restored_to}{undone}: {counted(done.files_restored, 'file')} "
        f"({_rows(done.rows_restored)}) came back, {done.files_removed} ({_rows(done.rows_removed)}) went"
    )


def _rows(count: int | None) -> str:
    return "rows unknown" if count is None else counted(count, "row")


def _versions(first: int, last: int) -> str:
    return f"version {first}" if first == last else f"versions {first} to {last}"
