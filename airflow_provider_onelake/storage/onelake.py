"""OneLake: the lakehouses of Microsoft Fabric."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote, unquote

import attrs

from airflow_provider_onelake.storage.addresses import (
    UNSAFE,
    Spelling,
    TableAddress,
    refuse,
    shown,
    shown_name,
)
from airflow_provider_onelake.storage.azure import Azure, container_and_host

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.errors import Doing

_GLOBAL = "onelake"
_GLOBAL_DFS = f"{_GLOBAL}.dfs.fabric.microsoft.com"
# OneLake's hosts: the global one, one for each region, and one for each workspace with a private link of its own.
_HOST = re.compile(
    r"^(?:(?P<shared>(?:[a-z0-9]+-)?onelake)\.(?:dfs|blob)"
    r"|(?P<private>(?P<guid>[0-9a-f]{32})\.z(?P<zone>[0-9a-f]{2}))\.(?:dfs|blob|onelake))\.fabric\.microsoft\.com$"
)
# By Microsoft's page on OneLake's addresses, ABFS takes no special characters in the name of a workspace.
_WORKSPACE = re.compile(r"[A-Za-z0-9._~-]+")
_LAKEHOUSE_SUFFIX = ".lakehouse"


class OneLake(Azure):
    """A lakehouse: the authority is the workspace, and the path begins with the item."""

    name = "onelake"
    schemes = ("onelake", *Azure.schemes)
    forms = ("onelake://workspace/item.Lakehouse/Tables/name", "https://onelake.dfs.fabric.microsoft.com/…")
    in_fabric = True
    asset_scheme = "onelake"
    spark_settings: ClassVar = {"fs.azure.account.hns.enabled": "true"}

    def parse(self, spelled: Spelling) -> TableAddress | None:
        """See :meth:`StoreKind.parse`."""
        workspace, host, rest = spelled.authority, None, spelled
        if spelled.scheme != "onelake":
            workspace, host_name, rest = container_and_host(spelled)
            host = _HOST.match(host_name)
            if host is None:
                return None
        text, workspace = spelled.text, unquote(workspace)
        if not workspace:
            refuse(text, "the workspace is missing", "write onelake://workspace/item.Lakehouse/Tables/name")
        if "@" in workspace or UNSAFE.search(workspace) or workspace != workspace.strip():
            refuse(text, f"{shown_name(workspace)!r} is no name of a workspace", "use its name or its GUID")
        item, *below = rest.directory(empty_allowed=True).split("/")
        if not item:
            refuse(text, "the item is missing", "write onelake://workspace/item.Lakehouse/Tables/name")
        if _is_guid(item.rpartition(".")[0]):
            refuse(text, "an item's GUID takes no type", f"write {item.rpartition('.')[0].lower()}")
        if _is_guid(workspace) != _is_guid(item):
            guid, named = ("item", "workspace") if _is_guid(item) else ("workspace", "item")
            refuse(text, f"the {guid} is a GUID, but the {named} is named", "use names for both, or GUIDs for both")
        if _is_guid(item):
            workspace, item = workspace.lower(), item.lower()
        else:
            item = _lakehouse_item(text, item)
        named_host = None if host is None else host["shared"] or _private_host(text, workspace, host)
        return TableAddress(self, "/".join([item, *below]), workspace, None if named_host == _GLOBAL else named_host)

    def check_table(self, text: str, address: TableAddress) -> None:
        """Refuse an address where Fabric knows no table."""
        parts = address.path.split("/")
        # A table is Tables/name, or Tables/schema/name if the lakehouse has schemas. Below Files, a table is an
        # ordinary Delta table too, but Fabric does not list it. OneLake refuses to make any other top directory.
        if len(parts) < 2 or parts[1] not in ("Tables", "Files"):
            refuse(text, "a table lies in Tables (or, unlisted by Fabric, in Files)", f"write …/{parts[0]}/Tables/name")
        if len(parts) == 2:
            refuse(text, "the table's name is missing", f"write …/{parts[0]}/{parts[1]}/name")
        if parts[1] == "Tables" and len(parts) > 4:
            refuse(text, "it is too deep for a table", "write …/Tables/name or …/Tables/schema/name")

    def check_root(self, text: str, address: TableAddress) -> None:
        """See :meth:`StoreKind.check_root`."""
        if "/" in address.path:
            refuse(text, "a lakehouse's address ends with the item", "leave out what follows it")

    def is_other_spelling(self, address: TableAddress, other: TableAddress) -> bool:
        """See :meth:`StoreKind.is_other_spelling`."""
        return isinstance(other.kind, OneLake) and _is_guid(address.authority) != _is_guid(other.authority)

    def spark_uri(self, address: TableAddress) -> str:
        """See :meth:`StoreKind.spark_uri`."""
        if not _WORKSPACE.fullmatch(address.authority):
            refuse(
                str(address),
                "Spark cannot reach it, as ABFS takes no other characters than letters, digits and . _ ~ - in the name "
                "of a workspace",
                "write onelake://<workspace GUID>/<item GUID>/…; both stand in the portal's address of the lakehouse",
            )
        return super().spark_uri(address)

    def deltalake_uri(self, address: TableAddress) -> str:
        """See :meth:`StoreKind.deltalake_uri`."""
        # deltalake 1.6 does not know the hosts of private links, so its storage options name the endpoint.
        return super().deltalake_uri(attrs.evolve(address, host=None) if _is_private(address) else address)

    def text(self, address: TableAddress) -> str:
        """See :meth:`StoreKind.text`."""
        if address.host is None:
            return f"onelake://{quote(address.authority)}/{quote(address.path)}"
        return super().deltalake_uri(address)

    def host(self, address: TableAddress, api: str) -> str:
        """See :meth:`Azure.host`."""
        return f"{address.host or _GLOBAL}.{api}.fabric.microsoft.com"

    def unknown_endpoint(self, address: TableAddress) -> str | None:
        """See :meth:`Azure.unknown_endpoint`."""
        return self.blob_endpoint(address) if _is_private(address) else None

    def table_page(self, address: TableAddress, region: str | None) -> str | None:
        """Return the address of the lakehouse in Fabric's portal, which needs GUIDs."""
        item = address.path.partition("/")[0]
        if not _is_guid(item):
            return None
        return f"https://app.fabric.microsoft.com/groups/{address.authority}/lakehouses/{item}"

    def security_endpoint(self, address: TableAddress, endpoint: str | None) -> str:
        """See :meth:`StoreKind.security_endpoint`."""
        # The local OneLake takes the host that is meant as the first segment of the path.
        return f"{endpoint.rstrip('/')}/{_GLOBAL_DFS}" if endpoint else f"https://{self.host(address, 'dfs')}"

    def right_to(self, doing: Doing) -> str:
        """See :meth:`StoreKind.right_to`."""
        return "the role Contributor on the workspace"


def one_host(host: str) -> str:
    """Return one name for all hosts of OneLake: the global host. Any other host is returned as it is.

    :param host: the host of an Azure address.
    """
    return _GLOBAL_DFS if _HOST.match(host.lower()) else host


def _is_private(address: TableAddress) -> bool:
    """Say whether the address names the host of a workspace's private link."""
    return address.host is not None and "." in address.host


def _is_guid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _private_host(text: str, workspace: str, host: re.Match[str]) -> str:
    if not host["guid"].startswith(host["zone"]):
        refuse(
            text,
            f"no workspace has the private link {host['private']}",
            f"after .z come the first two characters of the workspace's GUID: {host['guid']}.z{host['guid'][:2]}",
        )
    if _is_guid(workspace) and workspace.replace("-", "") != host["guid"]:
        refuse(
            text,
            "the host is the private link of another workspace",
            "write the host of this workspace's own, or onelake.dfs.fabric.microsoft.com",
        )
    return host["private"]


def _lakehouse_item(text: str, item: str) -> str:
    name, dot, suffix = item.rpartition(".")
    if not dot or not name:
        refuse(text, f"the item {shown(item)!r} has no type", f"write {shown(item.strip('.'))}.Lakehouse")
    if f".{suffix.lower()}" != _LAKEHOUSE_SUFFIX:
        refuse(
            text,
            f"items of type {shown(suffix)} are not written from outside Fabric",
            "use a lakehouse: item.Lakehouse",
        )
    return f"{name}.Lakehouse"
