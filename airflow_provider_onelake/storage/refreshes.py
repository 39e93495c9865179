"""Refreshes by Fabric's and Power BI's REST: of a semantic model, and of a lakehouse's SQL endpoint.

A refresh of a Direct Lake model is its reframe: it then shows the newest version that each of its tables had.
https://learn.microsoft.com/power-bi/connect-data/asynchronous-refresh
https://learn.microsoft.com/rest/api/fabric/sqlendpoint/items/refresh-sql-endpoint-metadata
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import ObjectNotFoundError, StoreUnavailableError

if TYPE_CHECKING:
    import httpx

    from airflow_provider_onelake.storage.fabric import Fabric, Folder

POWER_BI = "https://api.powerbi.com/v1.0/myorg"
POWER_BI_SCOPE = "https://analysis.windows.net/powerbi/api/.default"
"""The scope of a token for Power BI's REST, which is another one than that of Fabric's."""

CLOCKS = timedelta(minutes=5)
"""How far the clocks of a store and of Power BI may be apart, at most."""

# Refreshes are one after another, so these reach far back.
_MOST_LISTED = 50
_LONG_AGO, _FAR_AWAY = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
# Those that show the tables' newest versions.
_WHOLE_TYPES = {"full", "automatic"}


class State(StrEnum):
    """How far a refresh has come."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    DISABLED = "disabled"


_STATES = {
    "completed": State.COMPLETED,
    "succeeded": State.COMPLETED,
    "failed": State.FAILED,
    "timedout": State.FAILED,
    "cancelled": State.FAILED,
    "canceled": State.FAILED,
    "disabled": State.DISABLED,
}


@attrs.frozen
class Refresh:
    """A refresh of a semantic model.

    :param id: by which it is looked at.
    :param state: how far it has come.
    :param began: by Power BI's clock; ``None`` if it has not begun.
    :param ended: likewise.
    :param enhanced: whether it may be of some tables only, and can be looked at alone.
    :param words: what Power BI says of its end.
    """

    id: str
    state: State
    began: datetime | None = None
    ended: datetime | None = None
    enhanced: bool = True
    words: str = ""


@attrs.frozen
class Mark:
    """From where on refreshes count for a version.

    A refresh reads the tables' logs after it has begun. So it shows a version if it began after the version's commit.
    Two clocks say so only if they are further apart than :data:`CLOCKS`. Otherwise, a refresh counts that was not there
    yet when somebody who had seen the version in the log looked.

    :param at: by Power BI's clock. No refresh counts that began before.
    :param seen: ids of refreshes that were there already.
    """

    at: datetime
    seen: tuple[str, ...]

    def counts(self, refresh: Refresh) -> bool:
        """Say whether a refresh began after the version's commit."""
        return refresh.id not in self.seen and (refresh.began is None or refresh.began >= self.at)

    def to_json(self) -> dict[str, Any]:
        """Return it for the next try."""
        return {"at": self.at.isoformat(), "seen": list(self.seen)}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Mark:
        """Read what :meth:`to_json` returned."""
        return cls(datetime.fromisoformat(said["at"]), tuple(said["seen"]))


@attrs.frozen
class SemanticModel:
    """A semantic model.

    :param rest: Power BI's REST.
    :param workspace: its GUID.
    :param id: the model's GUID.
    """

    rest: Fabric = attrs.field(repr=False, eq=False)
    workspace: str
    id: str

    path = ""

    def __str__(self) -> str:
        return f"the semantic model {self.id} of the workspace {self.workspace}"

    @property
    def _refreshes(self) -> str:
        return f"/groups/{self.workspace}/datasets/{self.id}/refreshes"

    def mark(self, committed: datetime | None) -> Mark:
        """Return from where on refreshes count for a version that the caller has seen in its table's log.

        :param committed: the version's commit, by the store's clock; ``None`` if it is not known.
        """
        now, known = self._listed()
        if committed is not None and committed + CLOCKS < now:
            return Mark(committed + CLOCKS, tuple(each.id for each in known if each.began is None))
        return Mark(now, tuple(each.id for each in known))

    def history(self) -> list[Refresh]:
        """Return the newest refreshes, the newest first."""
        return self._listed()[1]

    def covering(self, known: Iterable[Refresh], mark: Mark, tables: Collection[str] | None) -> Refresh | None:
        """Return a refresh that has shown, or will show, a version; one that has ended before one at work.

        :param known: the refreshes among which it is looked for.
        :param mark: of the version.
        :param tables: of the model that it must be of; ``None`` for all of them. Then an enhanced one does not count,
            because Power BI does not say whether it was of all tables.
        """
        counted = [each for each in known if mark.counts(each)]
        for state in (State.COMPLETED, State.RUNNING):
            for each in counted:
                if each.state is state and self._is_of(each, tables):
                    return each
        return None

    def begin(self, tables: Collection[str] | None, longest: timedelta) -> str:
        """Ask for a refresh. The request is sent once, because each one that is obeyed is a refresh.

        :param tables: of the model; ``None`` for all of them.
        :param longest: after which Power BI ends it.
        :returns: its id.
        :raises StoreUnavailableError: there was no answer, so it may have begun.
        :raises OneLakeError: it is refused, for instance because another one is at work.
        """
        body: dict[str, Any] = {"type": "full", "commitMode": "transactional", "timeout": _clock(longest)}
        if tables is not None:
            body["objects"] = [{"table": table} for table in tables]
        answer = self.rest.ask("POST", self._refreshes, self, once=True, json=body)
        # The address is what is documented; the header is what all services have.
        return answer.headers.get("location", "").rpartition("/")[2] or str(answer.headers["requestid"])

    def look(self, refresh: str) -> Refresh | None:
        """Return a refresh; ``None`` if Power BI knows nothing of it, as it drops some of many at once."""
        # Ask for the list first, because only enhanced refreshes can be looked at alone.
        found = next((each for each in self.history() if each.id == refresh), None)
        if found is not None and not (found.enhanced and found.state is State.FAILED):
            return found
        try:
            return _refresh(refresh, self._details(refresh))
        except ObjectNotFoundError:
            return found

    def has_ended(self, refresh: str) -> bool:
        """Say whether a refresh is not at work any more, or not known."""
        found = self.look(refresh)
        return found is None or found.state is not State.RUNNING

    def cancel(self, refresh: str) -> None:
        """End a refresh. It is no error if there is none.

        :raises OneLakeError: it is refused, for instance because the refresh has ended.
        """
        try:
            self.rest.ask("DELETE", f"{self._refreshes}/{refresh}", self)
        except ObjectNotFoundError:
            return

    def _is_of(self, refresh: Refresh, tables: Collection[str] | None) -> bool:
        if not refresh.enhanced:
            return True
        if tables is None:
            return False
        try:
            said = self._details(refresh.id)
        except ObjectNotFoundError:
            return False
        shown = {str(each.get("table")).lower() for each in said.get("objects") or []}
        return str(said.get("type", "")).lower() in _WHOLE_TYPES and {name.lower() for name in tables} <= shown

    def _details(self, refresh: str) -> dict[str, Any]:
        found: dict[str, Any] = self.rest.ask("GET", f"{self._refreshes}/{refresh}", self).json()
        return found

    def _listed(self) -> tuple[datetime, list[Refresh]]:
        answer = self.rest.ask("GET", self._refreshes, self, params={"$top": str(_MOST_LISTED)})
        listed = [_refresh(str(each["requestId"]), each) for each in answer.json()["value"]]
        return _date(answer), sorted(listed, key=lambda each: each.began or _FAR_AWAY, reverse=True)


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
class SqlEndpoint:
    """The SQL endpoint of a lakehouse.

    :param rest: Fabric's REST.
    :param workspace: its GUID.
    :param id: the endpoint's GUID.
    """

    rest: Fabric = attrs.field(repr=False, eq=False)
    workspace: str
    id: str

    path = ""

    def __str__(self) -> str:
        return f"the SQL endpoint {self.id} of the workspace {self.workspace}"

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

    def begin(self, longest: timedelta) -> Synced | str:
        """Let the endpoint see the newest versions of all tables. To ask for it twice does no harm.

        :param longest: after which Fabric ends it.
        :returns: what it did, or the id of the operation that does it.
        """
        body = {"timeout": {"timeUnit": "Seconds", "value": int(longest.total_seconds())}}
        path = f"/workspaces/{self.workspace}/sqlEndpoints/{self.id}/refreshMetadata"
        answer = self.rest.ask("POST", path, self, json=body)
        if answer.status_code == 202:
            return str(answer.headers["x-ms-operation-id"])
        return _synced(answer)

    def look(self, operation: str) -> tuple[State, Synced | str]:
        """Return how far an operation has come, and what it did; else what Fabric says of it.

        :raises ObjectNotFoundError: Fabric knows nothing of it, or not any more.
        """
        said = self.rest.ask("GET", f"/operations/{operation}", self).json()
        status = str(said.get("status", "")).lower()
        if status == "succeeded":
            return State.COMPLETED, _synced(self.rest.ask("GET", f"/operations/{operation}/result", self))
        if status == "failed":
            error = said.get("error") or {}
            return State.FAILED, f"{error.get('errorCode')}: {error.get('message')}"
        return State.RUNNING, status

    def has_ended(self, operation: str) -> bool:
        """Say whether an operation is not at work any more, or not known."""
        try:
            return self.look(operation)[0] is not State.RUNNING
        except ObjectNotFoundError:
            return True

    def cancel(self, operation: str) -> None:
        """Leave an operation alone: Fabric cancels none, and this one does no harm."""


def _synced(answer: httpx.Response) -> Synced:
    said = answer.json() if answer.content else []
    rows = said.get("value", []) if isinstance(said, Mapping) else said
    errors = {each["tableName"]: each.get("error") or {} for each in rows if each["status"] == "Failure"}
    words = {name: f"{error.get('errorCode')}: {error.get('message')}" for name, error in errors.items()}
    return Synced({each["tableName"]: each["status"] for each in rows}, words)


def _refresh(guid: str, said: Mapping[str, Any]) -> Refresh:
    words = [str(each.get("message")) for each in said.get("messages") or [] if each.get("message")]
    if said.get("serviceExceptionJson"):
        words.append(str(said["serviceExceptionJson"]))
    status = str(said.get("extendedStatus") or said.get("status") or "")
    return Refresh(
        guid,
        _STATES.get(str(said.get("status", "")).lower(), _STATES.get(status.lower(), State.RUNNING)),
        _instant(said.get("startTime")),
        _instant(said.get("endTime")),
        str(said.get("refreshType", "ViaEnhancedApi")).lower() == "viaenhancedapi",
        f"{status}: {' '.join(words)}" if words else status,
    )


def _instant(text: str | None) -> datetime | None:
    if not text:
        return None
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _date(answer: httpx.Response) -> datetime:
    """Return the service's time of an answer, to the second."""
    said = answer.headers.get("date")
    return parsedate_to_datetime(said) if said else _LONG_AGO


def _clock(length: timedelta) -> str:
    seconds = int(length.total_seconds())
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
