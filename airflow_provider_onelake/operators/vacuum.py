"""The operator that deletes a table's files that are no longer needed."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import InvalidWriteError, VacuumRefusedError
from airflow_provider_onelake.hooks.context import task_run_of
from airflow_provider_onelake.links.onelake import SparkUiLink, TableLink
from airflow_provider_onelake.observability.metrics import Metrics
from airflow_provider_onelake.operators._parameters import check_all_rendered, check_flag, check_number, check_table
from airflow_provider_onelake.operators._spark_task import SparkTaskOperator
from airflow_provider_onelake.templates import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.maintenance.vacuum import VacuumTerms
    from airflow_provider_onelake.table import Table

logger = logging.getLogger(__name__)

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
    :param through_shortcut: whether to vacuum a table that is named by a shortcut of OneLake. It deletes files of the
        table that the shortcut leads to, for all who use it. Where Fabric's REST does not say whether there is a
        shortcut, the task warns and goes on. Default: refuse, except for a dry run. Not templated.
    :param kwargs: the connections and ``spark_timeout`` of a
        :class:`~airflow_provider_onelake.operators._spark_task.SparkTaskOperator`, and the parameters of every
        operator.
    """

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
        through_shortcut: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_table("table", table)
        for name, value in {
            "dry_run": dry_run,
            "lite": lite,
            "allow_retention_below_seven_days": allow_retention_below_seven_days,
            "through_shortcut": through_shortcut,
        }.items():
            check_flag(name, value)
        if keep_days is not None:
            check_number("keep_days", keep_days)
        self.table = table
        # The name `dry_run` is taken: every operator has a method of that name.
        self.only_dry_run = dry_run
        self.lite = lite
        self.keep_versions = keep_versions
        self.release_versions = release_versions
        self.keep_days = keep_days
        self.abandoned_after = abandoned_after
        self.allow_retention_below_seven_days = allow_retention_below_seven_days
        self.through_shortcut = through_shortcut
        if is_final(keep_versions) and is_final(release_versions):
            self._vacuum_terms()

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Vacuum, or say what a vacuum would do.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it; ``None`` if the load of its group made no table.
        :raises AirflowFailException: a guard refused; nothing was deleted and nothing is retried.
        """
        from airflow_provider_onelake.steps.vacuum import Vacuum

        with self.errors_explained():
            check_all_rendered(self)
            terms, table = self._vacuum_terms(), self.begin(context)
            if self.is_without_table(context, table):
                return None
            vacuum = Vacuum(table, self.spark, terms, task_run_of(context), self.hook.namespace)
            if self.only_dry_run:
                return vacuum.preview()
            if not self.through_shortcut:
                self._check_no_shortcut(table)
            result = vacuum.vacuum()
            Metrics.of(context["ti"], table.address).vacuumed(result)
            return result

    def _check_no_shortcut(self, table: Table) -> None:
        """Refuse a table behind a shortcut, whether the connection follows shortcuts or not."""
        if table.shortcut is not None:
            where = f"{table.name} is, or lies in, a shortcut to {table}: a vacuum would delete files there"
        elif behind := self.fabric.leads_through_shortcut(self.table):
            where = f"{table.name} is, or lies in, a shortcut of OneLake: a vacuum would delete files of its target"
        elif behind is None:
            logger.warning(
                "%s: whether it lies behind a shortcut is not known, as Fabric's REST is not asked or does not say so. "
                "If it does, the vacuum deletes files of the shortcut's target",
                table.name,
            )
            return
        else:
            return
        raise VacuumRefusedError(
            f"{where}. Nothing was deleted: vacuum the table by its own address, or say through_shortcut=True."
        )

    def _vacuum_terms(self) -> VacuumTerms:
        from airflow_provider_onelake.maintenance.vacuum import VacuumTerms

        keep, release = (_versions(n, getattr(self, n)) for n in ("keep_versions", "release_versions"))
        if both := sorted(set(keep) & set(release)):
            raise InvalidWriteError(f"Version {both[0]} is to be kept and to be released. Nothing was deleted.")
        return VacuumTerms(
            lite=self.lite,
            keep_days=self.keep_days,
            keep_versions=keep,
            release_versions=release,
            abandoned_after=self.abandoned_after,
            allow_retention_below_seven_days=self.allow_retention_below_seven_days,
        )


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
