"""The refresh of a lakehouse's SQL endpoint by Fabric's REST, after which it shows the newest versions of its tables.

https://learn.microsoft.com/rest/api/fabric/sqlendpoint/items/refresh-sql-endpoint-metadata
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import (
    ObjectExistsError,
    ObjectNotFoundError,
    RefreshFailedError,
    RefreshRefusedError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_provider_onelake.fabric.operations import Item, Note, Operation, OperationState, Waiting

if TYPE_CHECKING:
    import httpx

    from airflow_provider_onelake.fabric.rest import Fabric, Folder

logger = logging.getLogger(__name__)


@attrs.frozen
class Sync(Operation):
    """A refresh of a SQL endpoint.

    :param tables: what it did, by name: ``Success``; ``NotRun``, if there was nothing new; ``Failure``. ``None`` if it
        has not done it.
    :param errors: by name, in Fabric's words.
    """

    tables: dict[str, str] | None = None
    errors: dict[str, str] = attrs.field(factory=dict)

    def name_of(self, schema: str | None, table: str) -> str | None:
        """Return the name by which the endpoint knows a table; ``None`` if it does not know it.

        :param schema: of the table, where its lakehouse has schemas.
        :param table: the name of its directory.
        """
        known = {name.lower(): name for name in self.tables or ()}
        return (known.get(f"{schema}.{table}".lower()) if schema else None) or known.get(table.lower())


@attrs.frozen
class SqlEndpoint(Item):
    """The SQL endpoint of a lakehouse."""

    noun = "SQL endpoint"

    @classmethod
    def of(cls, rest: Fabric, lakehouse: Folder) -> SqlEndpoint:
        """Return the endpoint of the lakehouse that a folder is in.

        :raises ObjectNotFoundError: there is no such lakehouse.
        :raises StoreUnavailableError: its endpoint is not made yet.
        """
        path = f"/workspaces/{lakehouse.workspace}/lakehouses/{lakehouse.item}"
        said = rest.ask("GET", path, lakehouse).json().get("properties", {}).get("sqlEndpointProperties") or {}
        if not said.get("id"):
            raise StoreUnavailableError(
                f"The lakehouse of {lakehouse} has no SQL endpoint yet, as Fabric makes it after the lakehouse. "
                "Nothing was refreshed: try again later."
            )
        return cls(rest, lakehouse.workspace, str(said["id"]))

    def begin(self, longest: timedelta) -> Sync:
        """Let the endpoint see the newest versions of all tables. To ask for it twice does no harm.

        :param longest: after which Fabric ends it.
        :returns: what it did, or the operation that does it.
        """
        body = {"timeout": {"timeUnit": "Seconds", "value": int(longest.total_seconds())}}
        path = f"/workspaces/{self.workspace}/sqlEndpoints/{self.id}/refreshMetadata"
        answer = self.rest.ask("POST", path, self, json=body)
        if answer.status_code == 202:
            return Sync(str(answer.headers["x-ms-operation-id"]), OperationState.RUNNING)
        return _done("", answer)

    def look(self, operation: str) -> Sync | None:
        """Return an operation; ``None`` if Fabric knows nothing of it, or not any more."""
        try:
            said = self.rest.ask("GET", f"/operations/{operation}", self).json()
            state = OperationState.of(said.get("status"))
            if state is OperationState.COMPLETED:
                return _done(operation, self.rest.ask("GET", f"/operations/{operation}/result", self))
        except ObjectNotFoundError:
            return None
        return Sync(operation, state, _words(said))

    def _end(self, operation: str) -> None:
        # Fabric cancels none, and it does no harm.
        pass


def sync(
    endpoint: SqlEndpoint,
    note: Note,
    schema: str | None,
    table: str,
    longest: timedelta,
    waited: str | None = None,
) -> dict[str, str | None] | Waiting:
    """See to it that a SQL endpoint shows a version, which the caller has seen in its table's log.

    :param endpoint: the endpoint.
    :param note: of the task.
    :param schema: of the table; ``None`` in a lakehouse without schemas.
    :param table: the name of its directory.
    :param longest: after which Fabric ends a refresh.
    :param waited: the operation that this try has waited for. Default: none.
    :returns: ``table`` as the endpoint calls it, and its ``status``; both ``None`` if it knows no such table. Or the
        operation at work: when that has ended, call this again.
    :raises RefreshFailedError: the refresh failed. A retry asks for another one.
    :raises RefreshRefusedError: Fabric refuses it.
    :raises StoreUnavailableError: Fabric does not answer. A retry may ask again, which does no harm.
    """
    try:
        if done := note.get("done"):
            return dict(done)
        own = note.get("own")
        found = endpoint.look(own) if own else None
        if found is not None and found.state is OperationState.FAILED:
            note.keep(own=None)
            if own == waited:
                raise _not_shown(endpoint, note, f"its refresh {own} failed: {found.words}")
            found = None
        found = found or endpoint.begin(longest)
        if found.tables is None:
            note.keep(own=found.id)
            return Waiting(found.id, by_this_task=True)
    except ObjectExistsError:
        logger.info("%s is at work on a refresh that may have begun too early", endpoint)
        return Waiting(None, by_this_task=False)
    except (ObjectNotFoundError, StoreRefusedError) as error:
        raise RefreshRefusedError(f"{endpoint} is not refreshed for version {note.version}. {error}") from error
    name = found.name_of(schema, table)
    if name in found.errors:
        note.keep(own=None)
        raise _not_shown(endpoint, note, f"of {name} it says {found.errors[name]}")
    shown = {"table": name, "status": None if name is None else found.tables[name]}
    note.keep(done=shown)
    return shown


def _not_shown(endpoint: SqlEndpoint, note: Note, why: str) -> RefreshFailedError:
    return RefreshFailedError(
        f"{endpoint} does not show version {note.version}: {why}. The table is as it was; a retry or a clear asks "
        "again."
    )


def _done(operation: str, answer: httpx.Response) -> Sync:
    said = answer.json() if answer.content else []
    rows = said.get("value", []) if isinstance(said, Mapping) else said
    errors = {each["tableName"]: _words(each) for each in rows if each["status"] == "Failure"}
    return Sync(operation, OperationState.COMPLETED, "", {each["tableName"]: each["status"] for each in rows}, errors)


def _words(said: Mapping[str, Any]) -> str:
    error = said.get("error") or {}
    return f"{error.get('errorCode')}: {error.get('message')}"
