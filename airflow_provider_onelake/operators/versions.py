"""The operators that keep a version of a table readable for the tasks between them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.commit.words import task_in_words
from airflow_provider_onelake.exceptions import InvalidReadError
from airflow_provider_onelake.hooks.context import start_of, task_run_of
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.links.onelake import LakehouseLink, TableLink
from airflow_provider_onelake.operators._parameters import check_rendered, value_or_none
from airflow_provider_onelake.operators._spark_task import TableTaskOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

logger = logging.getLogger(__name__)


class OneLakeKeepVersionOperator(TableTaskOperator):
    """Keep a version of a table readable for the tasks that follow, until :class:`OneLakeReleaseVersionOperator`.

    All tasks in between read the same version, whatever others commit: by ``VERSION AS OF``, or by ``read(version=…)``.
    No vacuum of ours takes a file of it. A vacuum of another engine does not know of it. The table is not changed.

    A retry keeps the version that the first try has chosen. A clear chooses again, and lets go of that version. An old
    process that wakes up after that fails, and the version of the clear stays readable.

    The result in XCom is a dict: ``table`` (str); ``version`` (int); ``until`` (str): when it ends by itself, in ISO
    8601; ``holder`` (str): what the other operator needs.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param version: of the table. Default: the newest (templated).
    :param timestamp: the version that the table had at a time, with its zone; as text in ISO 8601. Default: as
        ``version`` says (templated).
    :param keep_for: a ``timedelta``, after which it ends even if nobody lets go. Default: 7 days. Not templated.
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    :param kwargs: the parameters of every operator.
    """

    operator_extra_links = (LakehouseLink(), TableLink())
    template_fields: Collection[str] = ("table", "version", "timestamp")
    ui_color = "#ece7e1"

    def __init__(
        self,
        *,
        table: str,
        version: int | str | None = None,
        timestamp: datetime | str | None = None,
        keep_for: timedelta = timedelta(days=7),
        onelake_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.version = version
        self.timestamp = timestamp
        self.keep_for = keep_for
        self.onelake_conn_id = onelake_conn_id or OneLakeHook.default_conn_name
        if not isinstance(keep_for, timedelta) or keep_for <= timedelta():
            raise InvalidReadError(
                f"{self.task_id}: keep_for={keep_for!r} must be a timedelta above 0. Nothing was kept."
            )
        if version is not None and timestamp is not None:
            raise InvalidReadError(f"{self.task_id}: give `version` or `timestamp`, not both. Nothing was kept.")

    def execute(self, context: Context) -> dict[str, Any]:
        """Keep the version.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: there is no such version, or it is no longer readable; or a newer start of this
            task keeps one. Nothing was kept.
        """
        from airflow_provider_onelake.maintenance.pinning import hold
        from airflow_provider_onelake.rows.read import snapshot_of

        with self.errors_explained():
            for name in self.template_fields:
                if not isinstance(value := getattr(self, name), datetime):
                    check_rendered(name, value)
            version, timestamp = _number(self.version), value_or_none(self.timestamp)
            table, run = self.begin(context), task_run_of(context)
            kept = hold(
                table.log,
                lambda: snapshot_of(table.log, version, timestamp).version,
                task_in_words(run.dag, run.label, run.run_id, self.hook.namespace),
                owner=run.owner(self.hook.namespace),
                task_start=start_of(context, self.task_state(context)),
                asked=f"{version} {timestamp}",
                try_number=run.number,
                lasts=self.keep_for,
            )
            self.show_commit(kept.version)
            logger.info("%s: version %d stays readable until %s", table.name, kept.version, kept.until.isoformat())
            return {
                "table": str(table),
                "version": kept.version,
                "until": kept.until.isoformat(),
                "holder": kept.holder,
            }


class OneLakeReleaseVersionOperator(TableTaskOperator):
    """Let go of a version that :class:`OneLakeKeepVersionOperator` keeps. Then a vacuum may take its files.

    Make it the teardown of the tasks in between (``release.as_teardown(setups=keep)``), so that it also runs if they
    fail. It is no error if the version is not kept any more.

    The result in XCom is a dict: ``table`` (str or None), ``version`` (int or None): that was let go of.

    :param kept: the result of the other operator: ``keep.output`` (templated).
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    :param kwargs: the parameters of every operator.
    """

    operator_extra_links = (LakehouseLink(), TableLink())
    template_fields: Collection[str] = ("kept",)
    ui_color = "#ece7e1"

    def __init__(self, *, kept: Any, onelake_conn_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kept = kept
        self.onelake_conn_id = onelake_conn_id or OneLakeHook.default_conn_name

    def execute(self, context: Context) -> dict[str, Any]:
        """Let go of the version.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: ``kept`` is no result of the other operator.
        """
        from airflow_provider_onelake.maintenance.pinning import let_go

        with self.errors_explained():
            if self.kept is None:
                # The task before has failed, or was skipped.
                return {"table": None, "version": None}
            if not isinstance(self.kept, Mapping) or not {"table", "holder"} <= self.kept.keys():
                raise InvalidReadError(
                    f"{self.task_id}: kept={self.kept!r} is no result of OneLakeKeepVersionOperator: give its `output`."
                )
            self.table = str(self.kept["table"])
            table = self.begin(context)
            version = let_go(table.log, self.kept["holder"])
            if version is not None:
                logger.info("%s: version %d is kept no longer for this run", table.name, version)
            return {"table": str(table), "version": version}


def _number(value: Any) -> int | None:
    value = value_or_none(value)
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise InvalidReadError(f"version={value!r} must be the number of a version, 0 or above. Nothing was kept.")
