"""The operator that lets Fabric compact and vacuum a table, by a job of its own Spark."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import InvalidWriteError, MaintenanceRefusedError, ObjectNotFoundError
from airflow_provider_onelake.links.onelake import TableLink
from airflow_provider_onelake.operators._terms import check_flag, given
from airflow_provider_onelake.operators.refresh import FabricWaitOperator
from airflow_provider_onelake.templates import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.fabric.jobs import TableMaintenance, Upkeep
    from airflow_provider_onelake.fabric.operations import Note, Waiting
    from airflow_provider_onelake.table import Table

logger = logging.getLogger(__name__)


class OneLakeTableMaintenanceOperator(FabricWaitOperator):
    """Let Fabric compact a table of a lakehouse, and delete files that no version needs, by a job of its own.

    It is an alternative to :class:`~airflow_provider_onelake.operators.optimize.OneLakeOptimizeOperator` and
    :class:`~airflow_provider_onelake.operators.vacuum.OneLakeVacuumOperator` that needs no Spark here, and that writes
    V-Order. The identity may execute all items of the workspace, as a Contributor may. With ``deferrable``, the task
    waits without a worker.

    **Fabric's OPTIMIZE and VACUUM know nothing of this package.** The OPTIMIZE is another writer of the table: a
    statement or a replacing write that runs beside it may lose a conflict with it. The VACUUM deletes files of buffers
    that are older than the retention, and files of kept versions. So a vacuum beside kept versions is refused unless
    ``despite_kept_versions`` says otherwise, and nothing in flight may take longer than the retention.

    **One job a start**: a retry waits for the job of the try before. Where its answer was lost, it asks again; what the
    first job has done, the second one leaves as it is. A clear asks for another job. If Fabric was at work on another
    maintenance, it skips this one: the task succeeds with the status ``deduped``, and says so in its log.

    The result in XCom is a dict: ``table`` (str); ``version`` (int): the table's newest when the task began;
    ``lakehouse``, ``job`` (str): their GUIDs; ``status`` (str): ``completed`` or ``deduped``.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param optimize: whether to compact. Default: yes. Not templated.
    :param z_order_by: columns by which to lay the files out: a list, or one name. Default: none (templated).
    :param v_order: whether to write V-Order. Default: as Fabric does it in that workspace. Not templated.
    :param vacuum_retention: a ``timedelta`` of 7 days or more. Files that no version needs for longer are deleted.
        Default: nothing is deleted. Not templated.
    :param despite_kept_versions: whether to vacuum a table that has kept versions, whose files go. Default: refuse. Not
        templated.
    :param poll_interval: seconds between two looks. Default: 15. Not templated.
    :param deferrable: whether to wait in the triggerer, without a worker. Default: Airflow's
        ``[operators] default_deferrable``. Not templated.
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    :param kwargs: the parameters of every operator.
    """

    operator_extra_links = (TableLink(),)
    template_fields: Collection[str] = ("table", "z_order_by")
    ui_color = "#ece7e1"
    _kind = "maintenance"

    def __init__(
        self,
        *,
        optimize: bool = True,
        z_order_by: Sequence[str] | str | None = None,
        v_order: bool | None = None,
        vacuum_retention: timedelta | None = None,
        despite_kept_versions: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flag("optimize", optimize)
        check_flag("v_order", v_order, or_none=True)
        check_flag("despite_kept_versions", despite_kept_versions)
        self.optimize = optimize
        self.z_order_by = z_order_by
        self.v_order = v_order
        self.vacuum_retention = vacuum_retention
        self.despite_kept_versions = despite_kept_versions
        self._check()

    def _check(self) -> None:
        from airflow_provider_onelake.fabric.jobs import SHORTEST_RETENTION

        retention = self.vacuum_retention
        if not self.optimize and retention is None:
            raise InvalidWriteError(f"{self.task_id}: neither optimize nor vacuum_retention: there is nothing to do.")
        ordered = is_final(self.z_order_by) and bool(self._columns())
        if not self.optimize and (ordered or self.v_order is not None):
            raise InvalidWriteError(f"{self.task_id}: z_order_by and v_order are of OPTIMIZE, and optimize=False.")
        if retention is not None and (not isinstance(retention, timedelta) or retention < SHORTEST_RETENTION):
            raise InvalidWriteError(
                f"{self.task_id}: vacuum_retention={retention!r} must be a timedelta of 7 days or more: with less, "
                "Fabric's job fails."
            )

    def _columns(self) -> list[str]:
        named = given(self.z_order_by)
        columns = [named] if isinstance(named, str) else list(named or ())
        if not all(isinstance(column, str) and column.strip() for column in columns):
            raise InvalidWriteError(f"z_order_by={self.z_order_by!r}: names of columns.")
        return columns

    def _client(self) -> TableMaintenance:
        try:
            return self.fabric.table_maintenance(self.table)
        except ObjectNotFoundError as error:
            raise MaintenanceRefusedError(f"Fabric does not maintain {self.table}. {error}") from error

    def _asked(self, deed: str) -> dict[str, Any]:
        # Each start of the task is a job of its own.
        return {**self._upkeep().to_json(), "deed": deed}

    def _upkeep(self) -> Upkeep:
        from airflow_provider_onelake.fabric.jobs import Upkeep

        schema, name = self._named()
        return Upkeep(name, schema, self.optimize, self._columns(), self.v_order, self.vacuum_retention)

    def _prepare(self, context: Context, table: Table, note: Note) -> None:
        if self.vacuum_retention is None or note.get("own") is not None:
            return
        from airflow_provider_onelake.maintenance.pinned_versions import pinned_versions

        kept = pinned_versions(table.log)
        if kept and not self.despite_kept_versions:
            raise MaintenanceRefusedError(
                f"{table.name} has {', '.join(map(str, kept))}, and Fabric's vacuum does not spare their files. "
                "Nothing was asked of Fabric. Use OneLakeVacuumOperator, which spares them; release them; or set "
                "despite_kept_versions=True."
            )
        logger.warning(
            "Fabric's vacuum of %s spares neither kept versions nor buffers older than %s",
            table.name,
            self.vacuum_retention,
        )

    def _refresh(self, client: TableMaintenance, table: Table, note: Note) -> dict[str, Any] | Waiting:
        from airflow_provider_onelake.fabric.jobs import maintain
        from airflow_provider_onelake.fabric.operations import State, Waiting

        found = maintain(client, note, self._upkeep(), self._waited)
        if isinstance(found, Waiting):
            return found
        if found.state is State.DEDUPED:
            logger.warning(
                "Fabric was at work on another maintenance, and did nothing to %s: its job %s is deduped",
                table.name,
                found.id,
            )
        return {"lakehouse": client.id, "job": found.id, "status": found.state.value}
