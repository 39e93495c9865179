"""Fabric and Power BI beside a lakehouse: shortcuts, who may do what, refreshes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from airflow.sdk import BaseHook

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    AddressError,
    CredentialsError,
    ObjectNotFoundError,
    OneLakeError,
    ShortcutError,
)
from airflow_provider_onelake.hooks.onelake import SHORT_PATIENCE, OneLakeHook

if TYPE_CHECKING:
    from airflow_provider_onelake.fabric.access import AccessRequest
    from airflow_provider_onelake.fabric.access_report import AccessReport
    from airflow_provider_onelake.fabric.rest import Fabric, Shortcut
    from airflow_provider_onelake.fabric.semantic_model import SemanticModel
    from airflow_provider_onelake.fabric.shortcuts import FollowedShortcuts
    from airflow_provider_onelake.fabric.sql_endpoint import SqlEndpoint


class FabricHook(BaseHook):
    """Asks Fabric's REST, and Power BI's, about one lakehouse and what is beside it, signed in as its connection is.

    The connection's extra has two fields more for it, both optional: ``fabric_api`` and ``powerbi_api`` are the
    addresses of the RESTs. Default: Fabric's and Power BI's own.

    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``.
    :param lakehouse: the hook of the lakehouse, so that the connection is read once. Default: a new one.
    """

    conn_name_attr = OneLakeHook.conn_name_attr
    default_conn_name = OneLakeHook.default_conn_name
    conn_type = OneLakeHook.conn_type
    hook_name = "Fabric"

    def __init__(self, onelake_conn_id: str = default_conn_name, lakehouse: OneLakeHook | None = None) -> None:
        super().__init__()
        self.onelake = OneLakeHook(onelake_conn_id) if lakehouse is None else lakehouse

    def get_conn(self) -> Fabric:
        """Return Fabric's REST, which makes, looks at, lists and deletes shortcuts.

        :raises OneLakeError: the connection has no lakehouse, or cannot sign in to Fabric's REST.
        """
        from airflow_provider_onelake.fabric.rest import API, open_fabric

        api = self.onelake.setting("fabric_api") or API
        return open_fabric(self.onelake.credentials(self.onelake.root()), api, self.onelake.patience)

    def power_bi(self) -> Fabric:
        """Return Power BI's REST.

        :raises OneLakeError: the connection has no lakehouse, or cannot sign in to Power BI's REST.
        """
        from airflow_provider_onelake.fabric.rest import open_fabric
        from airflow_provider_onelake.fabric.semantic_model import POWER_BI, POWER_BI_SCOPE

        api = self.onelake.setting("powerbi_api") or POWER_BI
        credentials = self.onelake.credentials(self.onelake.root())
        return open_fabric(credentials, api, self.onelake.patience, POWER_BI_SCOPE, "powerbi_api")

    def semantic_model(self, model: str, workspace: str | None = None) -> SemanticModel:
        """Return a semantic model, to look at its refreshes and to ask for one.

        :param model: its name or its GUID. A name is looked up by Fabric's REST.
        :param workspace: that it is in, likewise. Default: that of the lakehouse.
        :raises OneLakeError: the connection has no lakehouse, or there is no such model.
        """
        from airflow_provider_onelake.fabric.semantic_model import SemanticModel

        root, fabric = self.onelake.root(), self.get_conn()
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
        from airflow_provider_onelake.fabric.sql_endpoint import SqlEndpoint

        fabric = self.get_conn()
        return SqlEndpoint.of(fabric, fabric.folder(self.onelake.address(table)))

    def leads_through_shortcut(self, table: str) -> bool | None:
        """Say whether a table lies behind a shortcut of OneLake, also if the connection does not follow shortcuts.

        Fabric's REST is asked, by a request for each folder of the path.

        :param table: an address, or a path such as ``Tables/trips`` inside the lakehouse.
        :returns: ``None`` where that is not known: the connection has an ``endpoint`` of its own and no ``fabric_api``,
            or Fabric does not let this identity ask.
        :raises ShortcutError: a shortcut on the way is broken or circular, or does not show where it leads.
        :raises StoreUnavailableError: Fabric's REST does not answer.
        """
        from airflow_provider_onelake.fabric.shortcuts import follow

        address = self.onelake.address(table)
        if not address.kind.in_fabric:
            return False
        if self.onelake.follows_shortcuts and self.onelake.lakehouse is not None:
            return bool(self.onelake.followed(address).links)
        if not self.onelake.reaches_fabric(address):
            return None
        try:
            return bool(follow(self.get_conn(), address).links)
        except (AccessDeniedError, AddressError, CredentialsError):
            return None

    def list_shortcuts(self, folder: str | None = None) -> list[Shortcut]:
        """Return the shortcuts of the lakehouse, in the order of their paths. Fabric's REST is asked, page by page.

        :param folder: of the lakehouse, at and below which they are: ``Tables``, ``Files/landing``. Default: anywhere.
        :raises AddressError: this identity sees no such lakehouse, or the folder is no path.
        :raises AccessDeniedError: this identity may not look at them.
        :raises StoreUnavailableError: Fabric's REST does not answer.
        """
        from airflow_provider_onelake.fabric.shortcuts import may_not_look
        from airflow_provider_onelake.storage.addresses import clean

        fabric, root = self.get_conn(), self.onelake.root()
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

    def check_shortcut(self, shortcut: str) -> FollowedShortcuts:
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
        from airflow_provider_onelake.fabric.shortcuts import check_shortcut
        from airflow_provider_onelake.storage.stores import open_store

        address, fabric = self.onelake.address(shortcut), self.get_conn()
        store = open_store(address, self.onelake.credentials(address), self.onelake.patience)
        return check_shortcut(fabric, address, self.onelake.root(), store)

    def check_access(self, table: str) -> AccessReport:
        """Say what the connection's identity may do with a table, and which step decided (docs/operate/onelake.md).

        Scratch objects are put below the table and deleted, in about ten requests to its store. In OneLake, Fabric's
        REST is asked too. Nothing of the table is changed.

        :param table: an address, or a path inside the lakehouse. The table does not have to exist yet.
        :returns: for reading, writing, committing and deleting: whether it is allowed, which step decided, how that was
            found out, and what to ask an administrator for.
        :raises AddressError: malformed, or outside the lakehouse.
        :raises CredentialsError: the connection's sign-in cannot be used.
        """
        from airflow_provider_onelake.fabric.access import check_access

        return check_access(self._request(table))

    def look_up_access(self, table: str) -> AccessReport:
        """Say what the connection's identity may do with a table, as far as reading alone tells.

        Nothing is written, in contrast to :meth:`check_access`. Where only a probe could tell, a right is unknown.

        :param table: as for :meth:`check_access`.
        :returns: as :meth:`check_access`.
        :raises AddressError: malformed, or outside the lakehouse.
        :raises CredentialsError: the connection's sign-in cannot be used.
        """
        from airflow_provider_onelake.fabric.access import look_up_access

        return look_up_access(self._request(table))

    def _request(self, table: str) -> AccessRequest:
        from airflow_provider_onelake.fabric.access import open_asked

        try:
            address = self.onelake.table(table).address
        except (ShortcutError, AccessDeniedError):
            # A shortcut that this identity cannot follow: what it may do is to be said, not to be raised.
            address = self.onelake.address(table)
        limit = min(self.onelake.patience, SHORT_PATIENCE)
        return open_asked(address, self.onelake.credentials(address), limit, self.onelake.setting("fabric_api"))

    def explained(self, table: str, error: AccessDeniedError, *, writes: bool = True) -> AccessDeniedError:
        """Return a refusal of a table's store with the step that decided, where that can be found out.

        Only a refused request asks anything: a load that is allowed costs no request more.

        :param table: as for :meth:`check_access`.
        :param error: of the store, or of Fabric's REST.
        :param writes: whether a probe may write, as :meth:`check_access` does. Default: yes.
        """
        from airflow_provider_onelake.fabric.access_report import Step

        if not self.onelake.address(table).kind.in_fabric:
            # Other stores name the right that is missing.
            return error
        try:
            report = self.check_access(table) if writes else self.look_up_access(table)
        except OneLakeError as failed:
            return AccessDeniedError(f"{error} Which step decided was not found out: {failed}")
        if not report.refused:
            tried = "A probe" if writes else "A read"
            more = f"{tried} just now was not refused: a role that was given takes some minutes until it counts."
            return AccessDeniedError(f"{error} {more}")
        decided = report.refused[0]
        if decided.step is Step.PROBE and report.notes:
            # The probe says no more than the refusal itself.
            return AccessDeniedError(f"{error} Which step decided is not known. {' '.join(report.notes)}")
        return AccessDeniedError(f"{error} What decided: {decided}")
