"""The refresh of a lakehouse's SQL endpoint by Fabric's REST, after which it shows the newest versions of its tables.

https://learn.microsoft.com/rest/api/fabric/sqlendpoint/items/refresh-sql-endpoint-metadata
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import (
    ObjectExistsError,
    ObjectNotFoundError,
    RefreshFailedError,
    RefreshRefusedError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_provider_onelake.fabric.operations import Item, Note, Operation, State, Waiting

if TYPE_CHECKING:
    import httpx

    from airflow_provider_onelake.fabric.rest import Fabric, Folder

logger = logging.getLogger(__name__)


@attrs.frozen
class Synced:
    """What a refresh of a SQL endpoint did.

    :param tables: by name: ``Success``; ``NotRun``, if there was nothing new; ``Failure``.
    :param errors: by name, in Fabric's words.
    """

    tables: dict[str, str]
    errors: dict[str, str]

    def name_of(self, schema: str | None, table: str) -> str | None:
        """Return the name by which the endpoint knows a table; ``None`` if it does not know it.

        :param schema: of the table, where its lakehouse has schemas.
        :param table: the name of its directory.
        """
        spellings = ([f"{schema}.{table}"] if schema else []) + [table]
        known = {name.lower(): name for name in self.tables}
        return next((known[each.lower()] for each in spellings if each.lower() in known), None)


@attrs.frozen
class Sync(Operation):
    """A refresh of a SQL endpoint.

    :param synced: what it did; ``None`` if it has not done it.
    """

    synced: Synced | None = None


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
            return Sync(str(answer.headers["x-ms-operation-id"]), State.RUNNING)
        return Sync("", State.COMPLETED, synced=_synced(answer))

    def look(self, operation: str) -> Sync | None:
        """Return an operation; ``None`` if Fabric knows nothing of it, or not any more."""
        try:
            said = self.rest.ask("GET", f"/operations/{operation}", self).json()
            state, error = State.of(said.get("status")), said.get("error") or {}
            done = state is State.COMPLETED
            synced = _synced(self.rest.ask("GET", f"/operations/{operation}/result", self)) if done else None
        except ObjectNotFoundError:
            return None
        return Sync(operation, state, f"{error.get('errorCode')}: {error.get('message')}", synced)

    def _end(self, operation: str) -> None:
        # Fabric cancels none, and it does no harm.
        pass


@attrs.frozen
class Shown:
    """What the refresh of a SQL endpoint did to a table.

    :param table: as the endpoint calls it; ``None`` if it knows no such table.
    :param status: ``Success``; ``NotRun``, if the endpoint showed the newest version already; ``None`` likewise.
    """

    table: str | None
    status: str | None


def sync(
    endpoint: SqlEndpoint,
    note: Note,
    schema: str | None,
    table: str,
    longest: timedelta,
    waited: str | None = None,
) -> Shown | Waiting:
    """See to it that a SQL endpoint shows a version, which the caller has seen in its table's log.

    :param endpoint: the endpoint.
    :param note: of the task.
    :param schema: of the table; ``None`` in a lakehouse without schemas.
    :param table: the name of its directory.
    :param longest: after which Fabric ends a refresh.
    :param waited: the operation that this try has waited for. Default: none.
    :returns: what the refresh did; or the operation at work. When that has ended, call this again.
    :raises RefreshFailedError: the refresh failed. A retry asks for another one.
    :raises RefreshRefusedError: Fabric refuses it.
    :raises StoreUnavailableError: Fabric does not answer. A retry may ask again, which does no harm.
    """
    try:
        if done := note.get("done"):
            return Shown(**done)
        own = note.get("own")
        found = endpoint.look(own) if own else None
        if found is not None and found.state is State.FAILED:
            note.keep(own=None)
            if own == waited:
                raise _not_shown(endpoint, note, f"its refresh {own} failed: {found.words}")
            found = None
        found = found or endpoint.begin(longest)
        if found.synced is None:
            note.keep(own=found.id)
            return Waiting(found.id, own=True)
    except ObjectExistsError:
        logger.info("%s is at work on a refresh that may have begun too early", endpoint)
        return Waiting(None, own=False)
    except (ObjectNotFoundError, StoreRefusedError) as error:
        raise RefreshRefusedError(f"{endpoint} is not refreshed for version {note.version}. {error}") from error
    synced = found.synced
    name = synced.name_of(schema, table)
    if name in synced.errors:
        note.keep(own=None)
        raise _not_shown(endpoint, note, f"of {name} it says {synced.errors[name]}")
    shown = Shown(name, None if name is None else synced.tables[name])
    note.keep(done=attrs.asdict(shown))
    return shown


def _not_shown(endpoint: SqlEndpoint, note: Note, why: str) -> RefreshFailedError:
    return RefreshFailedError(
        f"{endpoint} does not show version {note.version}: {why}. The table is as it was; a retry or a clear asks "
        "again."
    )


def _synced(answer: httpx.Response) -> Synced:
    said = answer.json() if answer.content else []
    rows = said.get("value", []) if isinstance(said, Mapping) else said
    errors = {each["tableName"]: each.get("error") or {} for each in rows if each["status"] == "Failure"}
    words = {name: f"{error.get('errorCode')}: {error.get('message')}" for name, error in errors.items()}
    return Synced({each["tableName"]: each["status"] for each in rows}, words)
