"""Where the Lakehouse view of Airflow's web UI shows a table (docs/operate/view.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from airflow.providers.common.compat.sdk import conf

from airflow_provider_onelake.hooks.onelake import OneLakeHook

if TYPE_CHECKING:
    from airflow_provider_onelake.table import Table

_ROUTE = "plugin/lakehouse"


def shown_connections() -> tuple[str, ...]:
    """Return the connections whose tables the view shows: ``[onelake] view_connections`` names them."""
    named = conf.get("onelake", "view_connections", fallback=OneLakeHook.default_conn_name)
    return tuple(name.strip() for name in named.split(",") if name.strip())


def page_of(hook: OneLakeHook, table: Table, version: int | None = None) -> str | None:
    """Return the address of a table's page in the view; ``None`` where the view does not show the table.

    :param hook: of the connection by which the table was opened.
    :param table: that the page is of.
    :param version: to be shown in full. Default: none.
    """
    from airflow_provider_onelake.storage.addresses import TableAddress

    if hook.onelake_conn_id not in shown_connections() or hook.lakehouse is None:
        return None
    path = (table.shortcut or table.address).relative_to(TableAddress.parse_root(hook.lakehouse))
    if path is None:
        return None
    query = {"connection": hook.onelake_conn_id, "table": path} | ({} if version is None else {"version": version})
    return f"{conf.get('api', 'base_url', fallback='/').removesuffix('/')}/{_ROUTE}?{urlencode(query, safe='/')}"
