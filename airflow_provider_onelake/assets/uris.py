"""What a table is called as an asset: one URI for each table, however its address is spelled.

``onelake://workspace/item.Lakehouse/Tables/trips`` is a table in OneLake. Any other is ``delta://…``, which begins with
the kind of store (``delta://s3/bucket/lake/trips``, ``delta://adls/container@account.windows.net/trips``,
``delta://local/data/lake/trips``), or, for a path in a connection's lakehouse, with the connection
(``delta://onelake_default/Tables/trips``), because a connection is not looked at when a DAG is parsed. One table by its
address and by its path are therefore two assets.

To Airflow no two assets have one name or one URI. So ``?by=month`` names the same table once more, for events that
carry a partition's key, and ``?log=name`` for each asset that watches its log.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, unquote, unquote_plus, urlsplit, urlunsplit

from airflow_provider_onelake.exceptions import AddressError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.storage.addresses import TableAddress, shown
from airflow_provider_onelake.storage.kinds import StoreKind, kinds

if TYPE_CHECKING:
    from airflow.sdk import Asset
    from openlineage.client.event_v2 import Dataset

    from airflow_provider_onelake.table import Table

_CONNECTION = re.compile(r"[A-Za-z0-9_.-]+")
_ADDRESS = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
_MARK = re.compile(r"(by|log)=[^=&#]+")


def asset_uri(table: str, onelake_conn_id: str = OneLakeHook.default_conn_name, mark: str = "") -> str:
    """Return the URI of a table's asset.

    :param table: an address, or a path in the connection's lakehouse. No template: an asset is known at parse time.
    :param onelake_conn_id: the connection, for a path.
    :param mark: tells several assets of one table apart: ``by=month``, ``log=name``. Default: none.
    :raises AddressError: the address is no table's, or the connection is called like a kind of store.
    """
    query = _quoted(mark)
    if _ADDRESS.match(table):
        return urlunsplit((*_parts(TableAddress.parse(table)), query, ""))
    stores = _stores()
    if onelake_conn_id in stores or not _CONNECTION.fullmatch(onelake_conn_id):
        raise AddressError(
            f"A connection {onelake_conn_id!r} cannot stand in the address of an asset: use letters, digits, _, . and "
            f"-, and none of {', '.join(stores)}."
        )
    return urlunsplit(("delta", onelake_conn_id, _relative(table), query, ""))


def uris_beside_shortcut(table: Table, onelake_conn_id: str) -> list[str]:
    """Return the URIs of the assets of a table that was named by a shortcut of OneLake, by what the shortcut leads to.

    They are the target's address, in both spellings if the connection knows them, and its path if it is in the
    connection's own lakehouse. Paths in lakehouses of other connections are not known.

    :param table: as a task has opened it.
    :param onelake_conn_id: the connection by which it was opened.
    """
    if table.shortcut is None:
        return []
    uris = [urlunsplit((*_parts(address), "", "")) for address in (table.address, table.other_address) if address]
    lakehouse = table.setting("lakehouse")
    path = None if lakehouse is None else table.address.relative_to(TableAddress.parse_root(lakehouse))
    return uris if path is None else [*uris, asset_uri(path, onelake_conn_id)]


def may_be_in_onelake(uri: str) -> bool:
    """Say whether a URI may be that of a table in OneLake: its address, or a path in the lakehouse of a connection.

    :param uri: of any asset.
    """
    at = urlsplit(uri)
    return at.scheme == "onelake" or (at.scheme == "delta" and at.netloc not in _stores())


def sanitize_onelake(uri: SplitResult) -> SplitResult:
    """Bring an asset's ``onelake://`` URI into its one form.

    :param uri: as the DAG has it.
    :raises ValueError: it names no table.
    """
    try:
        return SplitResult(*_parts(_address(uri)), _query(uri), "")
    except AddressError as error:
        raise ValueError(str(error)) from error


def sanitize_delta(uri: SplitResult) -> SplitResult:
    """Bring an asset's ``delta://`` URI into its one form.

    :param uri: as the DAG has it.
    :raises ValueError: it names no table.
    """
    try:
        stores = _stores()
        if uri.netloc not in stores:
            if not _CONNECTION.fullmatch(uri.netloc):
                raise AddressError(
                    f"{shown(urlunsplit(uri))!r} begins neither with a kind of store ({', '.join(stores)}) nor with a "
                    "connection's id."
                )
            return uri._replace(path=_relative(unquote(uri.path)), query=_query(uri))
        return SplitResult(*_parts(_address(uri)), _query(uri), "")
    except AddressError as error:
        raise ValueError(str(error)) from error


def create_asset(
    *, table: str, onelake_conn_id: str = OneLakeHook.default_conn_name, extra: dict[str, object] | None = None
) -> Asset:
    """Make a table's asset, for Airflow's collector of lineage.

    :param table: an address, or a path in the connection's lakehouse.
    :param onelake_conn_id: the connection, for a path.
    :param extra: of the asset.
    """
    from airflow.sdk import Asset

    return Asset(uri=asset_uri(table, onelake_conn_id), extra=extra)  # type: ignore[arg-type]


def convert_asset_to_openlineage(asset: Asset, lineage_context: object) -> Dataset:
    """Return a table's asset as OpenLineage's dataset, with the name that lineage of this package's tasks has for it.

    OpenLineage's provider asks this about inlets and outlets of other tasks. No store is asked, so no shortcut is
    followed.

    :param asset: with a URI of this module's.
    :param lineage_context: who reported the asset. It is not used.
    :raises AddressError: the connection's lakehouse does not make an address of the path.
    """
    from openlineage.client.event_v2 import Dataset

    from airflow_provider_onelake.observability.lineage import dataset_of

    return Dataset(*dataset_of(_address(urlsplit(asset.uri)).spark_uri))


def _address(uri: SplitResult) -> TableAddress:
    """Return the address that a URI in its one form stands for."""
    if uri.scheme == "onelake":
        return TableAddress.parse(urlunsplit(uri._replace(query="", fragment="")))
    kind = _stores().get(uri.netloc)
    if kind is None:
        return OneLakeHook(uri.netloc).address(unquote(uri.path).lstrip("/"))
    return TableAddress.parse(kind.asset_address(unquote(uri.path)))


def _parts(address: TableAddress) -> tuple[str, str, str]:
    path = quote(address.path.lstrip("/"), safe="/=:+@,;!$&'()~")
    authority = quote(address.authority, safe="@")
    if address.kind.asset_scheme is not None:
        return address.kind.asset_scheme, authority, f"/{path}"
    return "delta", address.kind.name, f"/{authority}/{path}" if authority else f"/{path}"


def _stores() -> dict[str, StoreKind]:
    """Return the kinds of stores that follow ``delta://``, by their names."""
    return {kind.name: kind for kind in kinds() if kind.asset_scheme is None}


def _relative(table: str) -> str:
    # Check the path like that of a local table, which may have any parent directory.
    checked = TableAddress.parse(f"/{table.strip('/')}")
    return quote(checked.path, safe="/=:+@,;!$&'()~")


def _query(uri: SplitResult) -> str:
    query = unquote_plus(uri.query)
    if query and not _MARK.fullmatch(query):
        raise AddressError(
            f"{shown(urlunsplit(uri))!r} has a query; an asset of a table has at most by=column or log=name, without "
            "any other =, & or #."
        )
    return _quoted(query)


def _quoted(mark: str) -> str:
    return quote(mark, safe="=,")
