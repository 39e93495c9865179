"""The operator that deletes a table's files that are no longer needed."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.task_run import TaskRun
from airflow_provider_onelake.links.onelake import SparkUiLink, TableLink
from airflow_provider_onelake.operators._spark_task import SparkTaskOperator
from airflow_provider_onelake.operators._terms import check_rendered, is_final, terminal_errors_fail

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.maintenance.vacuum import Plan, Terms

# The stores on which Spark's own commit is safe with several drivers. There Spark records the VACUUM in the log
# (protocol: no Spark commit to the shared log).
_LOGGED_ON = ("onelake", "adls")
_NAMES = 10
_MOST = 50

Versions = Sequence[int | str] | str | int | None


class OneLakeVacuumOperator(SparkTaskOperator):
    """Delete the files that have not been in a table for longer than its retention.

    The retention is the table's property ``delta.deletedFileRetentionDuration``, by default 7 days. The task first
    lists and logs the files that are to be deleted. With ``dry_run`` it stops there. Besides the files that the table
    needs, it spares the files of buffers and compactions in flight, all files that were part of the table since the
    oldest of these began, and the files of kept versions. Spark then deletes each remaining file that by its own rule
    does not belong to the table. The logs of closed and of abandoned buffers are deleted too. If no file is to be
    deleted, Spark is not asked.

    The result in XCom is a dict:

    - ``table`` (str), ``version`` (int): the table, and the version that the vacuum was planned on.
    - ``dry_run``, ``lite`` (bool): the parameters.
    - ``files``, ``bytes`` (int): what was deleted, or with ``dry_run`` would be; ``left`` (int): files Spark spared.
    - ``oldest``, ``newest`` (str or None): times of these files in ISO format; ``examples`` (list of str): up to 10
      paths.
    - ``retention_days``: the table's retention in days; ``before`` (str): files that were needed at this time or later
      stay; ``held_by``: what set that time, if not the retention.
    - ``in_flight``, ``abandoned`` (list of dict with ``path`` and ``owner``): up to 50 buffers and compactions each;
      ``in_flight_count``, ``abandoned_count`` (int): how many there are.
    - ``kept_versions`` (list of int); ``spared_files``, ``spared_bytes`` (int): files that only a kept version, or a
      buffer or compaction in flight, protects.
    - ``logs_deleted`` (int): logs of buffers; ``notes`` (list of str): what a person should know.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param dry_run: whether only to report what would be deleted. Default: no. Not templated.
    :param lite: whether to delete only files that the log says were removed, and to leave files that no commit ever
        named, such as those of dead writers. Default: no. Not templated.
    :param keep_versions: versions of the table that every later vacuum by this operator keeps readable until they are
        released: a list of numbers, or a text with commas between them. To read a kept version that is older than the
        retention, Spark's session needs
        ``spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration=false``. A VACUUM by others
        does not keep it. Default: none (templated).
    :param release_versions: versions that are no longer kept. Default: none (templated).
    :param keep_days: days. All files that were part of the table within these days are spared, if that is longer than
        the retention. Default: the table's retention. Not templated.
    :param abandoned_after: a ``timedelta``. A buffer that is not closed and got no file for this long is abandoned, and
        not spared. Default: 7 days, or half of the table's retention if that is longer, because a buffer can be
        published until then. It is never less than the longest writer took. Not templated.
    :param allow_retention_below_seven_days: whether to vacuum a table whose property says less than 7 days. Readers,
        and writers of other engines, that take longer than that may then lose files. Default: no. Not templated.
    :param kwargs: the connections and ``spark_timeout`` of a
        :class:`~airflow_provider_onelake.operators._spark_task.SparkTaskOperator`, and the parameters of every
        operator. ``deferrable`` has no effect here.
    """

    # There is no CommitLink: we commit nothing, and where Spark records a VACUUM, it makes two commits.
    operator_extra_links = (SparkUiLink(), TableLink())
    template_fields: Collection[str] = ("table", "keep_versions", "release_versions")
    ui_color = "#ece7e1"

    def __init__(
        self,
        *,
        table: str,
        dry_run: bool = False,
        lite: bool = False,
        keep_versions: Versions = None,
        release_versions: Versions = None,
        keep_days: float | None = None,
        abandoned_after: timedelta | None = None,
        allow_retention_below_seven_days: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        # The name `dry_run` is taken: every operator has a method of that name.
        self.only_dry_run = dry_run
        self.lite = lite
        self.keep_versions = keep_versions
        self.release_versions = release_versions
        self.keep_days = keep_days
        self.abandoned_after = abandoned_after
        self.allow_retention_below_seven_days = allow_retention_below_seven_days
        if is_final(keep_versions) and is_final(release_versions):
            self._terms()

    def execute(self, context: Context) -> dict[str, Any]:
        """Vacuum, or say what a vacuum would do.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a guard refused; nothing was deleted and nothing is retried.
        """
        from airflow_provider_onelake.engines.base import VacuumJob
        from airflow_provider_onelake.maintenance.vacuum import plan

        with terminal_errors_fail():
            for name in self.template_fields:
                check_rendered(name, getattr(self, name))
            terms, run = self._terms(), TaskRun.of(context)
            log = self.hook.delta_log(self.table)
            self.begin(context)
            if not self.only_dry_run:
                self._record(log, terms, f"{run.dag}.{run.label}")
                for attempt in self.left_at_work(run.owner(self.hook.namespace), VacuumJob.doing):
                    # Wait for an earlier try's job before planning, so that the plan leaves out what it deletes.
                    self.wait_for_job(attempt, VacuumJob.doing)
            todo = plan(log, terms)
            result = {"dry_run": self.only_dry_run, **describe(todo)}
            self._say(todo, result)
            if self.only_dry_run:
                return result
            result |= self._delete(log, todo, run)
            self.metrics.vacuumed(result)
            return result

    def _record(self, log: DeltaLog, terms: Terms, by: str) -> None:
        from airflow_provider_onelake.maintenance.pinned_versions import pin_version, release_version

        for version in terms.keep_versions:
            self.log.info("%s: %s stays readable", log.table, pin_version(log, version, by))
        for version in terms.release_versions:
            release_version(log, version)

    def _say(self, todo: Plan, result: dict[str, Any]) -> None:
        say = self.log.info
        say("%s at version %d: %d files of %d bytes are to go", todo.table, todo.version, result["files"], todo.bytes)
        if result["files"]:
            say("The oldest is of %s, the newest of %s", result["oldest"], result["newest"])
            say("Such as %s", ", ".join(result["examples"]))
        say("Nothing that was needed since %s goes: %s", result["before"], todo.held_by or "the table's retention")
        for staged in todo.in_flight[:_MOST]:
            say("Spared: %s (%s)", staged.path, staged.owner)
        for pinned in todo.pinned:
            say("Spared: %s", pinned)
        for staged in todo.abandoned[:_MOST]:
            self.log.warning("%s of %s was abandoned %s ago", staged.path, staged.owner, staged.age)
        for note in todo.notes[:_MOST]:
            self.log.warning("%s", note)

    def _delete(self, log: DeltaLog, todo: Plan, run: TaskRun) -> dict[str, Any]:
        from airflow_provider_onelake.maintenance.vacuum import carry_out
        from airflow_provider_onelake.staging.clean_up import clean_up

        self.check_not_stopped()
        cleaned = clean_up(log, todo.abandoned_after)
        result: dict[str, Any] = {"logs_deleted": len(cleaned)}
        if not todo.candidates:
            return result
        outcome = carry_out(log.store, todo, run.attempt, lambda path: self._spark_vacuum(path, run))
        self.log.info("%s: %d files of %d bytes went", log.table, len(outcome.deleted), outcome.bytes)
        if outcome.left:
            self.log.warning("Spark left %d files, such as %s", len(outcome.left), outcome.left[0].path)
        return {**result, "files": len(outcome.deleted), "bytes": outcome.bytes, "left": len(outcome.left)}

    def _spark_vacuum(self, inventory: str, run: TaskRun) -> None:
        from airflow_provider_onelake.engines.base import VacuumJob

        address = self.hook.address(self.table)
        self.engine().vacuum(
            VacuumJob(
                table_uri=address.spark_uri,
                attempt=run.attempt,
                inventory_uri=address.child(*inventory.split("/")).spark_uri,
                log_entries=address.kind in _LOGGED_ON,
                label=f"{run.label} vacuum",
                owner=run.owner(self.hook.namespace),
            )
        )

    def _terms(self) -> Terms:
        from airflow_provider_onelake.maintenance.vacuum import Terms

        keep, release = (_versions(n, getattr(self, n)) for n in ("keep_versions", "release_versions"))
        if both := sorted(set(keep) & set(release)):
            raise InvalidWriteError(f"Version {both[0]} is to be kept and to be released. Nothing was deleted.")
        return Terms(
            lite=self.lite,
            keep_days=self.keep_days,
            keep_versions=keep,
            release_versions=release,
            abandoned_after=self.abandoned_after,
            allow_retention_below_seven_days=self.allow_retention_below_seven_days,
        )


def describe(todo: Plan) -> dict[str, Any]:
    """Return what a vacuum is to do.

    :param todo: the plan of the vacuum.
    :returns: plain JSON, with the first names only.
    """
    times = [info.modified for info in todo.candidates]
    return {
        "table": todo.table,
        "version": todo.version,
        "lite": todo.lite,
        "retention_days": todo.retention_days,
        "before": todo.before.isoformat(),
        "held_by": todo.held_by,
        "files": len(todo.candidates),
        "bytes": todo.bytes,
        "left": 0,
        "oldest": min(times).isoformat() if times else None,
        "newest": max(times).isoformat() if times else None,
        "examples": [info.path for info in todo.candidates[:_NAMES]],
        "spared_files": todo.spared_files,
        "spared_bytes": todo.spared_bytes,
        "in_flight": [{"path": staged.path, "owner": staged.owner} for staged in todo.in_flight[:_MOST]],
        "in_flight_count": len(todo.in_flight),
        "abandoned": [{"path": staged.path, "owner": staged.owner} for staged in todo.abandoned[:_MOST]],
        "abandoned_count": len(todo.abandoned),
        "kept_versions": [pinned.version for pinned in todo.pinned],
        "logs_deleted": 0,
        "notes": list(todo.notes[:_MOST]),
    }


def _versions(name: str, value: Versions) -> tuple[int, ...]:
    """Return version numbers, however a template or an author spelled them."""
    try:
        if isinstance(value, str):
            texts: Any = json.loads(value) if value.strip().startswith("[") else value.split(",")
        else:
            texts = [value] if isinstance(value, int) else value or []
        found = [int(text) for text in texts if str(text).strip()]
    except (TypeError, ValueError):
        found = [-1]
    if any(version < 0 for version in found):
        raise InvalidWriteError(f"{name}={value!r}: versions of the table, 0 or above. Nothing was deleted.")
    return tuple(dict.fromkeys(found))
