"""Delete a table's files that nobody needs any more, and none that somebody does."""

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

# Where Spark's own commit is safe with several drivers, so that it may record the VACUUM (protocol: no Spark commit to
# the shared log).
_LOGGED_ON = ("onelake", "adls")
_NAMES = 10
_MOST = 50

Versions = Sequence[int | str] | str | int | None


class OneLakeVacuumOperator(SparkTaskOperator):
    """Delete the files that have not been in a table for longer than its retention.

    The retention is what the table's property ``delta.deletedFileRetentionDuration`` says; without it, 7 days. What
    would go is worked out first and logged; with ``dry_run`` that is all. Spared are, besides what the table needs:
    what buffers and compactions in flight have written, whatever was part of the table since the oldest of them began,
    and the versions that somebody asked to keep. Then Spark deletes what is left, if it too finds it unknown to the
    table. Logs of closed and of abandoned buffers go as well; where nothing is to be deleted, Spark is not asked.

    The result, in XCom: ``dry_run``, ``files`` and ``bytes`` (that would go, or went), ``left`` (that Spark spared),
    ``oldest``, ``newest``, ``examples``, ``before`` (nothing needed since then goes) and ``held_by`` (why, if not by
    the property), ``in_flight`` and ``abandoned`` (the first ones, with ``in_flight_count`` and ``abandoned_count`` of
    all), ``kept_versions``, ``spared_files``, ``spared_bytes``, ``logs_deleted`` (of buffers), ``notes``.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param dry_run: only say what would go. Default: no.
    :param lite: take only files that the log says were removed, and leave what no commit ever named, such as what dead
        writers left behind. Default: no.
    :param keep_versions: versions of the table that stay readable from now on, for every vacuum of ours, until they are
        released: numbers, or a text with commas between them. Spark reads one that is older than the retention where
        its session has ``spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration=false``;
        a VACUUM of others knows nothing of it. Default: none (templated).
    :param release_versions: versions that need not be kept any longer. Default: none (templated).
    :param keep_days: spare whatever was part of the table within these days, where that is longer than its retention.
        Default: the table's retention.
    :param abandoned_after: a buffer that nobody closed and that got no file for this long is abandoned: it is not
        spared. Default: 7 days, or half of the table's retention, until when it can be published, if that is longer;
        never less than the longest writer took.
    :param allow_retention_below_seven_days: whether to vacuum a table whose property says less than 7 days; readers,
        and other engines' writers, that take longer than it says may then lose files. Default: no.
    :param kwargs: the connections and ``spark_timeout`` of a
        :class:`~airflow_provider_onelake.operators._spark_task.SparkTaskOperator` (``deferrable`` is for rows that are
        staged, and does nothing here), and what every operator takes.
    """

    # A vacuum is no commit of ours, and where Spark records it, it is two of Spark's.
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
        # `dry_run` is a method of every operator.
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
        :returns: what was done, for XCom.
        :raises AirflowFailException: a guard refused; nothing was deleted and nothing is retried.
        """
        from airflow_provider_onelake.engines.maintenance import VacuumJob
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
                    # What it deletes is planned no more.
                    self.settle(attempt, VacuumJob.doing, wanted=True)
            todo = plan(log, terms)
            result = {"dry_run": self.only_dry_run, **describe(todo)}
            self._say(todo, result)
            if self.only_dry_run:
                return result
            result |= self._delete(log, todo, run)
            self.metrics.vacuumed(result)
            return result

    def _record(self, log: DeltaLog, terms: Terms, by: str) -> None:
        from airflow_provider_onelake.maintenance.kept import keep_version, release_version

        for version in terms.keep_versions:
            self.log.info("%s: %s stays readable", log.table, keep_version(log, version, by))
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
        for kept in todo.kept:
            say("Spared: %s", kept)
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
        from airflow_provider_onelake.engines.maintenance import VacuumJob

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

    :param todo: decided.
    :returns: plain JSON; of the names the first ones only.
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
        "kept_versions": [kept.version for kept in todo.kept],
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
