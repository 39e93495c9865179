"""The connection type ``onelake``: where the tables are, and what this deployment is called there."""

from __future__ import annotations

import json
import uuid
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk import BaseHook

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    AddressError,
    CredentialsError,
    InvalidWriteError,
    ObjectNotFoundError,
    OneLakeError,
    ShortcutError,
)
from airflow_provider_onelake.table import Table, this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.sdk import Connection

    from airflow_provider_onelake.storage.access import Asked
    from airflow_provider_onelake.storage.access_report import AccessReport
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials
    from airflow_provider_onelake.storage.fabric import Fabric, Shortcut
    from airflow_provider_onelake.storage.jobs import TableMaintenance
    from airflow_provider_onelake.storage.refreshes import SemanticModel, SqlEndpoint
    from airflow_provider_onelake.storage.shortcuts import Followed
    from airflow_provider_onelake.storage.stores import Store

DEFAULT_NAMESPACE = "default"

_SHORT_PATIENCE = 10.0
"""Seconds to wait for a store, for triggers, which ask again by themselves, and for tests of a connection."""


def _reader() -> str:
    """Name the task that runs, or else the process."""
    from airflow.sdk import get_current_context

    try:
        ti = get_current_context()["ti"]
    except RuntimeError:
        return this_process()
    return f"{ti.dag_id}.{ti.task_id} of {ti.run_id}"


class OneLakeHook(BaseHook):
    """Opens the tables of one lakehouse.

    The connection's extra has these fields, all optional. ``lakehouse`` is the directory that every table of the
    connection must lie in. ``lakehouse_alias`` is the same lakehouse with its other spelling, by names or by GUIDs.
    ``namespace`` is this Airflow deployment's name in the tables' logs. Two deployments that write the same table need
    two namespaces: else a run of one counts as a rerun of the other's. With ``iceberg_readers`` as ``may_be_stale``,
    tables with UniForm are written to, and their Iceberg readers may see them without these commits. With ``fsync`` as
    ``false``, a power cut may damage tables on a local disk or a mount, and commits are faster. Login, password and the
    other fields of the extra say how the connection signs in (``docs/stores.md``).

    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``.
    :param most_patience: an upper limit in seconds for the connection's ``patience``. Default: no limit.
    """

    conn_name_attr = "onelake_conn_id"
    default_conn_name = "onelake_default"
    conn_type = "onelake"
    hook_name = "OneLake"

    def __init__(self, onelake_conn_id: str = default_conn_name, most_patience: float | None = None) -> None:
        super().__init__()
        self.onelake_conn_id = onelake_conn_id
        self.most_patience = most_patience
        self._known: dict[TableAddress, Followed] = {}
        self.opened: dict[str, str] = {}
        """The addresses of the tables that :meth:`table` has returned, by what messages call them."""

    @classmethod
    async def from_async(cls, onelake_conn_id: str = default_conn_name) -> OneLakeHook:
        """Make a hook whose connection is read already, so that an event loop is not blocked later.

        The hook waits at most 10 seconds for a store, because a trigger asks again by itself.

        :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``.
        :returns: the hook.
        """
        hook = cls(onelake_conn_id, most_patience=_SHORT_PATIENCE)
        hook.__dict__["connection"] = await cls.aget_connection(onelake_conn_id)
        return hook

    @cached_property
    def connection(self) -> Connection:
        """The Airflow connection, read once."""
        return self.get_connection(self.onelake_conn_id)

    @cached_property
    def _extras(self) -> Mapping[str, Any]:
        """The fields of the connection's extra.

        :raises CredentialsError: the extra is no JSON object. Airflow takes such an extra for an empty one, or fails
            without a word about the connection.
        """
        try:
            parsed = json.loads(self.connection.extra or "{}")
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            # The extra itself may hold a secret.
            raise CredentialsError(
                f"The connection {self.onelake_conn_id} has an extra that is no JSON object. Nothing was done: write "
                'it as {"lakehouse": "/data/lakehouse"}.'
            )
        # Airflow's own way to the fields hides the secrets among them from logs.
        return self.connection.extra_dejson

    @property
    def lakehouse(self) -> str | None:
        """The directory that every table of the connection must lie in; ``None`` if tables may lie anywhere."""
        return self._extra("lakehouse")

    @property
    def lakehouse_alias(self) -> str | None:
        """The lakehouse's other spelling, by GUIDs or by names; ``None`` where the connection has none."""
        return self._extra("lakehouse_alias")

    @property
    def namespace(self) -> str:
        """This Airflow deployment's name in the tables' logs (protocol: writer identity)."""
        return self._extra("namespace") or DEFAULT_NAMESPACE

    @property
    def patience(self) -> float:
        """Seconds for which a request is repeated while the store does not answer.

        :raises InvalidWriteError: ``patience`` in the connection's extra is not a number of seconds, 0 or more.
        """
        from airflow_provider_onelake.storage.stores import PATIENCE

        said = self._extras.get("patience")
        try:
            seconds = PATIENCE if said in (None, "") else float(said)
        except (TypeError, ValueError):
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            raise InvalidWriteError(
                f"The connection {self.onelake_conn_id} has a `patience`, of {len(str(said))} characters, that is no "
                "number of seconds: write one, 0 or "
                f"more, or leave it empty for {PATIENCE:g}."
            )
        return seconds if self.most_patience is None else min(seconds, self.most_patience)

    def table(self, name: str) -> Table:
        """Return a table. It does not have to exist yet, and its log is not read.

        A path that leads through a shortcut of OneLake is the table that it leads to (docs/onelake.md). Once for each
        path and hook, OneLake is asked whether it is one, by a request for each folder of the path; if so, Fabric's
        REST is asked where it leads, and the store whether the target is there. ``follow_shortcuts`` in the
        connection's extra may forbid that, or have Fabric's REST asked always, whose errors then count.

        :param name: an address, or a path such as ``Tables/trips`` inside the lakehouse.
        :raises AddressError: malformed, or outside the lakehouse.
        :raises CredentialsError: the connection's sign-in is incomplete or contradictory.
        :raises ShortcutError: with ``follow_shortcuts=true``: a shortcut on the way is broken or circular, or does not
            show where it leads.
        :raises StoreUnavailableError: with ``follow_shortcuts=true``: Fabric's REST does not answer.
        """
        named = self.address(name)
        found = self._followed(named)
        shortcut, short = named if found.links else None, self._in_short(named)
        self.opened[short] = str(found.address)
        return Table(
            found.address,
            self.credentials(found.address),
            self.patience,
            self._extra,
            _reader,
            shortcut,
            found.read_only,
            short,
        )

    def address(self, name: str) -> TableAddress:
        """Return the address that a name stands for. Nothing is asked, and no shortcut is followed.

        :param name: an address, or a path such as ``Tables/trips`` inside the lakehouse.
        :raises AddressError: malformed, or outside the lakehouse.
        """
        from airflow_provider_onelake.storage.addresses import resolve_table

        return resolve_table(name, self.lakehouse, self.lakehouse_alias, self._in_words)

    def in_short(self, name: str) -> str:
        """Return what messages call a table.

        :param name: an address, or a path such as ``Tables/trips`` inside the lakehouse.
        :returns: its path in the lakehouse, or from ``Tables`` on, or its last segment.
        :raises AddressError: malformed, or outside the lakehouse.
        """
        return self._in_short(self.address(name))

    def _in_short(self, address: TableAddress) -> str:
        from airflow_provider_onelake.storage.addresses import TableAddress

        below = address.relative_to(TableAddress.parse_root(self.lakehouse)) if self.lakehouse is not None else None
        if below is not None:
            return below
        _, tables, path = address.path.rpartition("/Tables/")
        return f"Tables/{path}" if tables else address.name

    def _followed(self, named: TableAddress) -> Followed:
        from airflow_provider_onelake.storage.shortcuts import Followed

        follows = self.follows_shortcuts
        if not named.kind.in_fabric or follows is False or self.lakehouse is None:
            return Followed(named)
        if named not in self._known:
            self._known[named] = self._to_the_end(named) if follows else self._as_far_as_shown(named)
        return self._known[named]

    def _to_the_end(self, named: TableAddress, most_patience: float = float("inf")) -> Followed:
        from airflow_provider_onelake.storage.shortcuts import follow_to_table

        patience = min(self.patience, most_patience)
        return follow_to_table(self.fabric(patience), named, self._root(), self.credentials(named), patience)

    def _as_far_as_shown(self, named: TableAddress) -> Followed:
        """Follow what OneLake itself marks as a shortcut. Where the way is not shown, the table keeps its own path."""
        from airflow_provider_onelake.storage.shortcuts import Followed, is_marked, warn_of_path

        credentials = self.credentials(named)
        # Who names the host of a region or of a private link may not reach the global one, at which a target lies.
        asks = named.host is None and self._reaches_fabric(credentials)
        if asks and is_marked(named, credentials, min(self.patience, _SHORT_PATIENCE)):
            try:
                return self._to_the_end(named, _SHORT_PATIENCE)
            except OneLakeError as error:
                warn_of_path(self._in_short(named), error, self.onelake_conn_id)
        return Followed(named)

    def _reaches_fabric(self, credentials: Credentials | None) -> bool:
        """Say whether Fabric's REST can be asked: beside an endpoint of its own, a connection must say where it is."""
        return credentials is None or credentials.endpoint is None or self._extra("fabric_api") is not None

    def leads_through_shortcut(self, table: str) -> bool | None:
        """Say whether a table lies behind a shortcut of OneLake, also if the connection does not follow shortcuts.

        Fabric's REST is asked, by a request for each folder of the path.

        :param table: an address, or a path such as ``Tables/trips`` inside the lakehouse.
        :returns: ``None`` where that is not known: the connection has an ``endpoint`` of its own and no ``fabric_api``,
            or Fabric does not let this identity ask.
        :raises ShortcutError: a shortcut on the way is broken or circular, or does not show where it leads.
        :raises StoreUnavailableError: Fabric's REST does not answer.
        """
        from airflow_provider_onelake.storage.shortcuts import follow

        address = self.address(table)
        if not address.kind.in_fabric:
            return False
        if self.follows_shortcuts and self.lakehouse is not None:
            return bool(self._followed(address).links)
        if not self._reaches_fabric(self.credentials(address)):
            return None
        try:
            return bool(follow(self.fabric(), address).links)
        except (AccessDeniedError, AddressError, CredentialsError):
            return None

    def list_shortcuts(self, folder: str | None = None) -> list[Shortcut]:
        """Return the shortcuts of the lakehouse, in the order of their paths. Fabric's REST is asked, page by page.

        :param folder: of the lakehouse, at and below which they are: ``Tables``, ``Files/landing``. Default: anywhere.
        :raises AddressError: this identity sees no such lakehouse, or the folder is no path.
        :raises AccessDeniedError: this identity may not look at them.
        :raises StoreUnavailableError: Fabric's REST does not answer.
        """
        from airflow_provider_onelake.storage.addresses import clean
        from airflow_provider_onelake.storage.shortcuts import may_not_look

        fabric, root = self.fabric(), self._root()
        path = "" if folder is None else clean(folder, folder.strip("/"))
        at = attrs.evolve(fabric.folder(root), path=path)
        try:
            return sorted(fabric.list_shortcuts(at), key=lambda each: each.at.path)
        except ObjectNotFoundError as error:
            raise AddressError(
                f"There are no shortcuts to list in {root}, as this identity sees no such lakehouse: {error} "
                "Correct the `lakehouse` of the connection, or ask for the role Viewer in its workspace."
            ) from error
        except AccessDeniedError as error:
            raise may_not_look(error) from error

    def check_shortcut(self, shortcut: str) -> Followed:
        """Follow a shortcut to its end, and read there, also if the connection does not follow shortcuts.

        Fabric's REST is asked for each folder on the way, and the store for one object, which need not be there.
        Nothing is written.

        :param shortcut: a path such as ``Tables/trips`` in the lakehouse, or an address in it; or a folder below one.
        :returns: where it leads.
        :raises ShortcutError: there is no shortcut, or it is broken or circular, or does not show where it leads.
        :raises AddressError: malformed, outside the lakehouse, or this identity sees no such workspace or item.
        :raises AccessDeniedError: this identity may not look at the shortcut, or not read what it leads to.
        :raises StoreUnavailableError: Fabric's REST or the store does not answer.
        """
        from airflow_provider_onelake.storage.shortcuts import check_shortcut
        from airflow_provider_onelake.storage.stores import open_store

        address, fabric = self.address(shortcut), self.fabric()
        store = open_store(address, self.credentials(address), self.patience)
        return check_shortcut(fabric, address, self._root(), store)

    @property
    def follows_shortcuts(self) -> bool | None:
        """Whether a path through a shortcut of OneLake is the table that it leads to.

        ``None``: if OneLake marks it as a shortcut and Fabric shows where it leads. ``True``: else it is an error.

        :raises CredentialsError: ``follow_shortcuts`` in the connection's extra is neither true nor false.
        """
        from airflow_provider_onelake.storage.credentials import Fields

        given = self.connection
        fields = Fields(given.conn_id, given.login, given.password, self._extras)
        answer: bool | None = fields.filled(flags=["follow_shortcuts"]).get("follow_shortcuts")
        return answer

    def credentials(self, address: TableAddress) -> Credentials | None:
        """Read how the connection signs in to the store of an address.

        ``login`` and ``password`` are a key with its secret, or a client id with its secret; or ``password`` alone is
        an account key or a token. The extra has the rest.

        :param address: of a table or a lakehouse.
        :returns: the credentials; ``None`` for a local disk, unless ``fsync`` is off.
        :raises CredentialsError: incomplete or contradictory.
        """
        from airflow_provider_onelake.storage.credentials import Fields

        given = self.connection
        fields = Fields(given.conn_id, given.login, given.password, self._extras)
        try:
            return address.kind.credentials_of(fields)
        except CredentialsError as error:
            if given.conn_id in str(error):
                raise
            raise CredentialsError(f"The connection {given.conn_id} cannot sign in. {error}") from error

    def fabric(self, most_patience: float = float("inf")) -> Fabric:
        """Return what makes, looks at, lists and deletes shortcuts by Fabric's REST, signed in as this connection is.

        The field ``fabric_api`` of the extra is the address of the REST. Default: Fabric's own.

        :param most_patience: an upper limit in seconds for :attr:`patience`. Default: no other limit.
        :raises OneLakeError: the connection has no lakehouse, or cannot sign in to Fabric's REST.
        """
        from airflow_provider_onelake.storage.fabric import API, open_fabric

        patience = min(self.patience, most_patience)
        return open_fabric(self.credentials(self._root()), self._extra("fabric_api") or API, patience)

    def power_bi(self) -> Fabric:
        """Return what asks Power BI's REST, signed in as this connection is.

        The field ``powerbi_api`` of the extra is the address of the REST. Default: Power BI's own.

        :raises OneLakeError: the connection has no lakehouse, or cannot sign in to Power BI's REST.
        """
        from airflow_provider_onelake.storage.fabric import open_fabric
        from airflow_provider_onelake.storage.refreshes import POWER_BI, POWER_BI_SCOPE

        api = self._extra("powerbi_api") or POWER_BI
        return open_fabric(self.credentials(self._root()), api, self.patience, POWER_BI_SCOPE, "powerbi_api")

    def semantic_model(self, model: str, workspace: str | None = None) -> SemanticModel:
        """Return a semantic model, to look at its refreshes and to ask for one.

        :param model: its name or its GUID. A name is looked up by Fabric's REST.
        :param workspace: that it is in, likewise. Default: that of the lakehouse.
        :raises OneLakeError: the connection has no lakehouse, or there is no such model.
        """
        from airflow_provider_onelake.storage.refreshes import SemanticModel

        root, fabric = self._root(), self.fabric()
        place = fabric.workspace_guid(workspace or root.authority, root)
        named = SemanticModel(self.power_bi(), place, model)
        return attrs.evolve(named, id=fabric.item_guid(place, model, "SemanticModel", named))

    def sql_endpoint(self, table: str) -> SqlEndpoint:
        """Return the SQL endpoint of the lakehouse that a table is in. Fabric's REST is asked which it is.

        :param table: an address, or a path such as ``Tables/trips`` inside the lakehouse. No shortcut is followed.
        :raises ObjectNotFoundError: there is no such lakehouse.
        :raises StoreUnavailableError: its endpoint is not made yet, or Fabric does not answer.
        :raises OneLakeError: the table is not in OneLake, or Fabric refuses.
        """
        from airflow_provider_onelake.storage.refreshes import SqlEndpoint

        fabric = self.fabric()
        return SqlEndpoint.of(fabric, fabric.folder(self.address(table)))

    def table_maintenance(self, table: str) -> TableMaintenance:
        """Return Fabric's table maintenance of the lakehouse that a table is in.

        :param table: an address, or a path such as ``Tables/trips`` inside the lakehouse. No shortcut is followed.
        :raises OneLakeError: the table is not in OneLake, or Fabric does not answer.
        """
        from airflow_provider_onelake.storage.jobs import TableMaintenance

        fabric = self.fabric()
        lakehouse = fabric.folder(self.address(table))
        return TableMaintenance(fabric, lakehouse.workspace, lakehouse.item)

    def _root(self) -> TableAddress:
        from airflow_provider_onelake.storage.addresses import TableAddress

        if self.lakehouse is None:
            raise self._no_lakehouse
        return TableAddress.parse_root(self.lakehouse)

    def preflight(self, table: str, spark_settings: Mapping[str, str] | None = None) -> list[str]:
        """Try the operations of a commit at a scratch path below a table: create-only put, read, list, delete.

        :param table: an address, or a path inside the lakehouse. The table does not have to exist yet.
        :param spark_settings: settings of a Spark that writes there. They are searched for log stores that lose
            commits. Default: none.
        :returns: messages for people on what does not work or is not safe; empty if all is well.
        """
        from airflow_provider_onelake.storage.preflight import SCRATCH, problems_of, unsafe_log_stores
        from airflow_provider_onelake.storage.stores import open_store

        try:
            tried = self.table(table)
            store = open_store(tried.address, tried.credentials, min(tried.patience, _SHORT_PATIENCE))
        except OneLakeError as error:
            return [str(error)]
        problems = problems_of(store, f"{SCRATCH}/{uuid.uuid4()}", str(tried))
        return [*problems, *unsafe_log_stores(tried.address.kind, spark_settings or {})]

    def check_access(self, table: str, principal: str | None = None) -> AccessReport:
        """Say what an identity may do with a table, and which step decided (docs/onelake.md).

        For the connection's own identity, scratch objects are put below the table and deleted, in about ten requests to
        its store. In OneLake, Fabric's REST is asked too. Nothing of the table is changed.

        :param table: an address, or a path inside the lakehouse. The table does not have to exist yet.
        :param principal: the object id of another identity, by its roles in Fabric alone. The connection's identity
            must be a Member of the workspace. Default: the connection's own identity.
        :returns: for reading, writing, committing and deleting: whether it is allowed, which step decided, how that was
            found out, and what to ask an administrator for.
        :raises AddressError: malformed, or outside the lakehouse; with a principal, also if it is not in OneLake.
        :raises CredentialsError: the connection's sign-in cannot be used.
        :raises StoreUnavailableError: with a principal, if Fabric does not answer.
        """
        from airflow_provider_onelake.storage.access import check_access

        return check_access(self._asked(table), principal)

    def look_up_access(self, table: str) -> AccessReport:
        """Say what the connection's identity may do with a table, as far as reading alone tells.

        Nothing is written, in contrast to :meth:`check_access`. Where only a probe could tell, a right is unknown.

        :param table: as for :meth:`check_access`.
        :returns: as :meth:`check_access`.
        :raises AddressError: malformed, or outside the lakehouse.
        :raises CredentialsError: the connection's sign-in cannot be used.
        """
        from airflow_provider_onelake.storage.access import look_up_access

        return look_up_access(self._asked(table))

    def check_may_load(self, table: str) -> None:
        """Refuse a load that this identity may certainly not do, before Spark is asked and before anything is written.

        A table that is not in OneLake costs no request, and one that may be written costs one, or two if it is not
        there yet. Nothing is refused where rights cannot be looked up; then the load's own first write tells.

        :param table: as for :meth:`check_access`.
        :raises AccessDeniedError: it says which step decided, and what to ask an administrator for.
        """
        from airflow_provider_onelake.storage.access import refused_before_a_load

        if not self.address(table).kind.in_fabric:
            return
        try:
            report = refused_before_a_load(self._asked(table, patience=0.0))
        except OneLakeError:
            # What cannot be asked now is no reason to fail.
            return
        if report is not None:
            decided = report.refused[0]
            raise AccessDeniedError(
                f"The identity of the connection {self.onelake_conn_id} may not {decided.right} "
                f"{self.in_short(table)}, so the load did not begin. Nothing was written, and Spark was not asked. "
                f"What decided: {decided}"
            )

    def _asked(self, table: str, patience: float = _SHORT_PATIENCE) -> Asked:
        """Return who is asked what an identity may do with a table.

        :param patience: an upper limit in seconds for :attr:`patience`.
        """
        from airflow_provider_onelake.storage.access import open_asked

        try:
            address = self.table(table).address
        except (ShortcutError, AccessDeniedError):
            # A shortcut that this identity cannot follow: what it may do is to be said, not to be raised.
            address = self.address(table)
        limit = min(self.patience, patience)
        return open_asked(address, self.credentials(address), limit, self._extra("fabric_api"))

    def explained(self, table: str, error: AccessDeniedError) -> AccessDeniedError:
        """Return a refusal of a table's store with the step that decided, where that can be found out.

        Only a refused request asks anything: a load that is allowed costs no request more.

        :param table: as for :meth:`check_access`.
        :param error: of the store.
        """
        return self._explained(table, error, "A probe", self.check_access)

    def explained_by_reading(self, table: str, error: AccessDeniedError) -> AccessDeniedError:
        """Return a refusal with the step that decided, as :meth:`explained` does, as far as reading alone tells.

        :param table: as for :meth:`check_access`.
        :param error: of the store, or of Fabric's REST.
        """
        return self._explained(table, error, "A read", self.look_up_access)

    def _explained(
        self, table: str, error: AccessDeniedError, tried: str, ask: Callable[[str], AccessReport]
    ) -> AccessDeniedError:
        from airflow_provider_onelake.storage.access_report import Step

        if not self.address(table).kind.in_fabric:
            # Other stores name the right that is missing.
            return error
        try:
            report = ask(table)
        except OneLakeError as failed:
            return AccessDeniedError(f"{error} Which step decided was not found out: {failed}")
        if not report.refused:
            more = f"{tried} just now was not refused: a role that was given takes some minutes until it counts."
            return AccessDeniedError(f"{error} {more}")
        decided = report.refused[0]
        if decided.step is Step.PROBE and report.notes:
            # The probe says no more than the refusal itself.
            return AccessDeniedError(f"{error} Which step decided is not known. {' '.join(report.notes)}")
        return AccessDeniedError(f"{error} What decided: {decided}")

    @property
    def _in_words(self) -> str:
        """What messages call the connection: it may be one of another type by mistake."""
        return f"the connection {self.onelake_conn_id} of the type {self.connection.conn_type!r}"

    @property
    def _no_lakehouse(self) -> OneLakeError:
        return InvalidWriteError(
            f"T{self._in_words[1:]} has no lakehouse. Nothing was done: set `lakehouse` in its extra."
        )

    def _extra(self, name: str) -> str | None:
        return str(self._extras.get(name) or "").strip() or None

    def get_conn(self, most_patience: float = float("inf")) -> Store:
        """Open the lakehouse's store.

        :param most_patience: an upper limit in seconds for :attr:`patience`. Default: no other limit.
        :returns: a store rooted at the lakehouse.
        :raises OneLakeError: the connection has no lakehouse, or it cannot be opened.
        """
        from airflow_provider_onelake.storage.addresses import TableAddress, parse_alias
        from airflow_provider_onelake.storage.stores import open_store

        if self.lakehouse is None:
            raise self._no_lakehouse
        root = TableAddress.parse_root(self.lakehouse)
        if self.lakehouse_alias is not None:
            parse_alias(self.lakehouse_alias, root)
        # Opening a local store creates its directory. So check first, or the connection test would always succeed.
        root.kind.check_is_there(root, to_write=True)
        return open_store(root, self.credentials(root), min(self.patience, most_patience))

    def test_connection(self) -> tuple[bool, str]:
        """List, read and write the lakehouse, and prove that its store refuses a second create-only put.

        :returns: whether all of it worked, and what to tell the user.
        """
        if self.lakehouse is None:
            return (
                True,
                "The connection has no lakehouse, so there is nothing to try; tables are named by whole addresses.",
            )
        from airflow_provider_onelake.storage.preflight import problems_of

        # OneLake allows no directory beside Tables and Files. Use a new directory, because the whole of it is listed.
        path = f"Files/airflow-connection-test/{uuid.uuid4()}"
        try:
            problems = problems_of(self.get_conn(_SHORT_PATIENCE), path, self.lakehouse)
        except OneLakeError as error:
            return False, str(error)
        if problems:
            return False, " ".join(f"{number}. {problem}" for number, problem in enumerate(problems, 1))
        return True, f"{self.lakehouse} can be listed, read and written, and refuses a second create-only put."
