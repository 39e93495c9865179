"""The operators that let readers in Fabric see a commit: SQL by its endpoint, reports by their semantic model."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf

from airflow_provider_onelake.choices import check_choice
from airflow_provider_onelake.exceptions import (
    GuardrailError,
    InvalidWriteError,
    ObjectNotFoundError,
    OneLakeError,
    RefreshRefusedError,
)
from airflow_provider_onelake.hooks.context import start_of
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.links.onelake import LakehouseLink, TableLink
from airflow_provider_onelake.operators._parameters import (
    check_all_rendered,
    check_duration,
    check_flag,
    terminal_errors_fail,
    value_or_none,
)
from airflow_provider_onelake.operators._spark_task import TableTaskOperator
from airflow_provider_onelake.templates import is_final

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context

    from airflow_provider_onelake.fabric.operations import Item, Note, Waiting
    from airflow_provider_onelake.fabric.semantic_model import SemanticModel
    from airflow_provider_onelake.fabric.sql_endpoint import SqlEndpoint
    from airflow_provider_onelake.table import Table

logger = logging.getLogger(__name__)

WHOLE_MODEL = "*"
_ON_GUARDRAIL = ("fail", "warn")


class _RefreshOperator(TableTaskOperator):
    """A task that lets readers in Fabric see a version of a table. It finds what an earlier try of it has asked for."""

    operator_extra_links: Collection[BaseOperatorLink] = (LakehouseLink(), TableLink())
    template_fields: Collection[str] = ("table", "version")
    ui_color = "#e3ecf4"
    _kind: str
    _requested: tuple[Item, str] | None = None
    _waited: str | None = None

    def __init__(
        self,
        *,
        table: str,
        version: int | str | None = None,
        refresh_timeout: timedelta = timedelta(hours=1),
        poll_interval: float = 15.0,
        deferrable: bool | None = None,
        onelake_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_duration("poll_interval", poll_interval)
        check_flag("deferrable", deferrable, or_none=True)
        self.table = table
        self.version = version
        self.refresh_timeout = refresh_timeout
        self.poll_interval = poll_interval
        self.deferrable = conf.getboolean("operators", "default_deferrable") if deferrable is None else deferrable
        self.onelake_conn_id = onelake_conn_id or OneLakeHook.default_conn_name
        if not isinstance(refresh_timeout, timedelta) or not timedelta() < refresh_timeout <= timedelta(days=1):
            raise InvalidWriteError(
                f"{self.task_id}: refresh_timeout={refresh_timeout!r} must be a timedelta up to a day."
            )
        if is_final(version):
            self._number()

    def execute(self, context: Context) -> dict[str, Any] | None:
        """See to it that readers see the version.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it; ``None`` if the load of its group made no table.
        :raises AirflowFailException: a person has to act; nothing is retried.
        """
        from airflow_provider_onelake.fabric.operations import Note, Waiting

        with terminal_errors_fail(self.hook):
            check_all_rendered(self)
            table = self.begin(context)
            if self.is_without_table(context, table):
                return None
            client, state = self._client(), self.task_state(context)
            note = Note.open(
                state,
                start_of(context, state).id,
                {"table": str(table), "version": self._number(), "target": client.id, **self._request()},
                partial(self._wanted, table),
                table.log.digest,
            )
            self.show_commit(note.version)
            self._prepare(context, table, note)
            while True:
                found = self._refresh(client, table, note)
                if not isinstance(found, Waiting):
                    return {"table": str(table), "version": note.version, **found}
                self._requested = (
                    (client, found.operation) if found.by_this_task and found.operation is not None else None
                )
                self._wait(client, found)
                self._waited = found.operation

    def resume(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Look again after the triggerer.

        :param context: of the resumed task.
        :param event: the trigger's event.
        :returns: what ``execute`` returns.
        """
        self.log.info("Back from the triggerer: %s", event.get("reason"))
        self._waited, self._came_back = event.get("refresh"), True
        # Unwrap execute(): Airflow's guard against calling execute() directly would warn of this call.
        return inspect.unwrap(type(self).execute)(self, context)

    def on_kill(self) -> None:
        """Cancel what the task has asked for. Fabric cancels no refresh of a SQL endpoint."""
        if self._requested is not None:
            client, operation = self._requested
            try:
                client.cancel(operation)
            except OneLakeError as error:
                logger.warning("%s was not cancelled: %s", operation, error)

    def _wait(self, client: Item, found: Waiting) -> None:
        from airflow_provider_onelake.triggers.refresh import RefreshTrigger

        if self.deferrable:
            self.log.info("The triggerer waits for %s", found.operation)
            self.defer(
                trigger=RefreshTrigger(
                    kind=self._kind,
                    workspace=client.workspace,
                    target=client.id,
                    refresh=found.operation,
                    own=found.by_this_task,
                    onelake_conn_id=self.onelake_conn_id,
                    poll_interval=self.poll_interval,
                ),
                method_name="resume",
                # Airflow itself applies it to the time in the worker only.
                timeout=self.execution_timeout,
            )
        time.sleep(self.poll_interval)

    def _wanted(self, table: Table) -> int:
        """Return the version to be shown, once it is in the table's log."""
        asked, newest = self._number(), table.log.snapshot().version
        if asked is not None and asked > newest:
            raise RefreshRefusedError(
                f"{table.name} has no version {asked}; its newest is {newest}. Nothing was refreshed."
            )
        return newest if asked is None else asked

    def _number(self) -> int | None:
        """Return the version that is asked for; ``None`` for the newest."""
        version = value_or_none(self.version)
        if isinstance(version, str) and version.strip().isdecimal():
            return int(version)
        if version is None or (isinstance(version, int) and not isinstance(version, bool) and version >= 0):
            return version
        raise InvalidWriteError(
            f"version={version!r} must be the number of a version, 0 or above. Nothing was refreshed."
        )

    # -- what differs between them ---------------------------------------------------------------------------------

    def _client(self) -> Any:
        raise NotImplementedError

    def _request(self) -> dict[str, Any]:
        """Return what is asked for beside the version."""
        return {}

    def _prepare(self, context: Context, table: Table, note: Note) -> None:
        """Look whether the table may be shown at all."""

    def _refresh(self, client: Any, table: Table, note: Note) -> dict[str, Any] | Waiting:
        raise NotImplementedError


class OneLakeRefreshSqlEndpointOperator(_RefreshOperator):
    """Let the SQL endpoint of a lakehouse see a version of a table, which it does by itself only after some time.

    Fabric's REST is asked to refresh the endpoint's metadata, which is of all tables of the lakehouse; tables without a
    new version are left alone. The identity needs the role Contributor. With ``deferrable``, the task waits without a
    worker.

    A retry waits for the refresh of the try before; where its answer was lost, it asks again, which does nothing to
    tables that the endpoint shows already. A clear refreshes only if the table has a newer version.

    The result in XCom is a dict: ``table`` (str), ``version`` (int); ``endpoint`` (str): its GUID; ``status`` (str or
    None): what Fabric says of the table, ``Success``, or ``NotRun`` if there was nothing new; ``None`` if it lists no
    such table.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param version: of the table that is to be seen, at least. Default: the newest when the task begins (templated).
    :param refresh_timeout: a ``timedelta`` up to a day, after which Fabric ends the refresh. Default: 1 hour. Not
        templated.
    :param poll_interval: seconds between two looks. Default: 15. Not templated.
    :param deferrable: whether to wait in the triggerer, without a worker. Default: Airflow's
        ``[operators] default_deferrable``. Not templated.
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    :param kwargs: the parameters of every operator.
    """

    _kind = "endpoint"

    def _client(self) -> SqlEndpoint:
        try:
            return self.fabric.sql_endpoint(self.table)
        except ObjectNotFoundError as error:
            raise RefreshRefusedError(f"The SQL endpoint of {self.table} is not refreshed. {error}") from error

    def _refresh(self, client: SqlEndpoint, table: Table, note: Note) -> dict[str, Any] | Waiting:
        from airflow_provider_onelake.fabric.operations import Waiting
        from airflow_provider_onelake.fabric.sql_endpoint import sync

        # item/Tables/trips, or item/Tables/schema/trips
        *above, name = self.hook.address(self.table).path.split("/")
        schema = above[2] if len(above) > 2 else None
        found = sync(client, note, schema, name, self.refresh_timeout, self._waited)
        if isinstance(found, Waiting):
            return found
        if found["status"] is None:
            logger.warning(
                "%s lists no table %s, so look there whether it shows version %d", client, name, note.version
            )
        return {"endpoint": client.id, "status": found["status"]}


class OneLakeRefreshSemanticModelOperator(_RefreshOperator):
    """Let a semantic model show a version of a table. On Direct Lake, this is the reframe, which copies no data.

    Power BI's REST is asked for an enhanced refresh. The identity needs the right to write the model, as a Contributor
    of its workspace has. With ``deferrable``, the task waits without a worker. Switch the model's automatic updates
    off, or reports show what is committed before you have decided that they should.

    **One refresh a version**: a refresh shows what was committed before it began. So it counts for the version if it
    began after the task had seen the version in the table's log, or 5 minutes after the commit, whoever asked for it.
    Then the task waits for it, if it is at work, and asks for none. Power BI refreshes a model once at a time: while
    a refresh is at work that began too early, the task waits, and then asks for its own. A retry finds the refresh of
    the try before, also if its answer was lost. A clear refreshes only if the table has a newer version. Only for the
    whole model (``model_tables="*"``), a refresh whose answer was lost is not recognised, and repeated.

    With ``capacity``, the task first looks whether the table's newest version is within the guardrails of Direct Lake
    on it, and names the partitions to compact if it is not. The size on disk is limited for all tables of a model
    together, so name the others in ``other_tables``.

    The result in XCom is a dict:

    - ``table`` (str), ``version`` (int): what is shown, at least.
    - ``model`` (str), ``refresh`` (str): the GUID of the model, and the id of the refresh that shows the version.
    - ``own`` (bool): whether this task is known to have asked for it.
    - ``began``, ``ended`` (str or None): by Power BI's clock, in ISO 8601.
    - ``guardrails`` (dict or None): ``capacity``, ``version``, ``files``, ``row_groups``, ``row_groups_exact``,
      ``rows``, ``bytes``, ``model_bytes``, ``findings`` and ``to_compact``. It is in XCom with the key ``guardrails``
      if it makes the task fail.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param semantic_model: the model's name or GUID (templated).
    :param workspace: the name or GUID of the model's workspace. Default: that of the lakehouse (templated).
    :param model_tables: the model's tables to refresh, as a list or one name; ``"*"`` for all. Default: the one that is
        called as the table's directory is (templated).
    :param version: of the table that is to be shown, at least. Default: the newest when the task begins (templated).
    :param capacity: the size of the model's capacity, such as ``F64``, whose guardrails are checked. Default: none
        (templated).
    :param other_tables: the addresses or paths of the model's other tables, whose size counts for that of the model
        (templated). Default: none. They are not refreshed: ``model_tables`` says what is.
    :param on_guardrail: what happens if the table is beyond one: ``fail``, so that nothing is refreshed, or ``warn``.
        Default: ``fail``. Not templated.
    :param refresh_timeout: a ``timedelta`` up to a day, after which Power BI ends the refresh. Default: 1 hour. Not
        templated.
    :param poll_interval: seconds between two looks. Default: 15. Not templated.
    :param deferrable: whether to wait in the triggerer, without a worker. Default: Airflow's
        ``[operators] default_deferrable``. Not templated.
    :param onelake_conn_id: the connection of the lakehouse. Its field ``powerbi_api`` is the address of Power BI's
        REST. Default: ``onelake_default``. Not templated.
    :param kwargs: the parameters of every operator.
    """

    template_fields: Collection[str] = (
        "table",
        "semantic_model",
        "workspace",
        "model_tables",
        "version",
        "capacity",
        "other_tables",
    )
    _kind = "model"

    def __init__(
        self,
        *,
        semantic_model: str,
        workspace: str | None = None,
        model_tables: Sequence[str] | str | None = None,
        capacity: str | None = None,
        other_tables: Sequence[str] = (),
        on_guardrail: str = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.semantic_model = semantic_model
        self.workspace = workspace
        self.model_tables = model_tables
        self.capacity = capacity
        self.other_tables = other_tables
        self.on_guardrail = on_guardrail
        check_choice("on_guardrail", on_guardrail, _ON_GUARDRAIL)
        if capacity is not None and is_final(capacity):
            self._size()
        if is_final(other_tables):
            self._others()
        if is_final(semantic_model) and not (isinstance(semantic_model, str) and semantic_model.strip()):
            raise InvalidWriteError(f"{self.task_id}: semantic_model={semantic_model!r}: the model's name or GUID.")

    def _client(self) -> SemanticModel:
        return self.fabric.semantic_model(self.semantic_model.strip(), value_or_none(self.workspace))

    def _request(self) -> dict[str, Any]:
        return {"model_tables": self._tables()}

    def _tables(self) -> list[str] | None:
        """Return the model's tables to refresh; ``None`` for all of them."""
        named = value_or_none(self.model_tables)
        if named is None:
            return [self.hook.address(self.table).path.rpartition("/")[2]]
        names = [named] if isinstance(named, str) else list(named)
        if not names or not all(isinstance(name, str) and name.strip() for name in names):
            raise InvalidWriteError(f"model_tables={self.model_tables!r}: names of tables, or '*' for all of them.")
        return None if names == [WHOLE_MODEL] else names

    def _size(self) -> str | None:
        """Return the size of the capacity whose guardrails are checked; ``None`` for none."""
        from airflow_provider_onelake.fabric.direct_lake import check_capacity

        if (capacity := value_or_none(self.capacity)) is None:
            return None
        check_capacity(capacity)
        return str(capacity)

    def _others(self) -> list[str]:
        """Return the model's other tables."""
        named = value_or_none(self.other_tables) or ()
        if isinstance(named, str) or not all(isinstance(name, str) and name.strip() for name in named):
            raise InvalidWriteError(
                f"{self.task_id}: other_tables={named!r} must be a list of addresses or paths. Nothing was refreshed."
            )
        return list(named)

    def _prepare(self, context: Context, table: Table, note: Note) -> None:
        capacity = self._size()
        if capacity is None or note.get("guardrails") is not None:
            return
        from airflow_provider_onelake.fabric.direct_lake import examine

        fit = examine(table.log, capacity, [self.hook.table(name).log for name in self._others()])
        if fit.findings:
            context["ti"].xcom_push(key="guardrails", value=fit.to_json())
        for finding in fit.findings:
            logger.warning("%s: %s. %s.", table.name, finding.what, finding.todo)
        if fit.findings and self.on_guardrail == "fail":
            raise GuardrailError(
                f"{table.name} at version {fit.version} has {fit.findings[0].what}. Nothing was refreshed: reports "
                f"show what they showed before. {fit.findings[0].todo}."
            )
        note.keep(guardrails=fit.to_json())

    def _refresh(self, client: SemanticModel, table: Table, note: Note) -> dict[str, Any] | Waiting:
        from airflow_provider_onelake.fabric.operations import Waiting
        from airflow_provider_onelake.fabric.semantic_model import committed_at, reframe

        committed = partial(committed_at, table.log, note.version)
        found = reframe(client, note, committed, self._tables(), self.refresh_timeout, self._waited)
        if isinstance(found, Waiting):
            return found
        return {
            "model": client.id,
            "refresh": found.id,
            "own": found.id == note.get("own"),
            "began": found.began.isoformat() if found.began else None,
            "ended": found.ended.isoformat() if found.ended else None,
            "guardrails": note.get("guardrails"),
        }
