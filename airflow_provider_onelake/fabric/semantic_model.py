"""A semantic model's refreshes, by Power BI's REST; and which of them shows a version of a table.

A refresh of a Direct Lake model is its reframe: it then shows the newest version that each of its tables had.
https://learn.microsoft.com/power-bi/connect-data/asynchronous-refresh

*One refresh a version*: none is lost, because a refresh counts only if it began after the version was in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
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
from airflow_provider_onelake.log.actions import version_path

if TYPE_CHECKING:
    import httpx

    from airflow_provider_onelake.log.delta_log import DeltaLog

logger = logging.getLogger(__name__)

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


_TRIES = 3
"""Requests for a refresh whose answer is lost; each is looked for before the next."""


@attrs.frozen
class Refresh(Operation):
    """A refresh of a semantic model.

    :param began: by Power BI's clock; ``None`` if it has not begun.
    :param ended: likewise.
    :param enhanced: whether it may be of some tables only, and can be looked at alone.
    """

    began: datetime | None = None
    ended: datetime | None = None
    enhanced: bool = True


@attrs.frozen
class Mark:
    """From where on refreshes count for a version.

    A refresh reads the tables' logs after it has begun. So it shows a version if it began after the version's commit.
    Two clocks say so only if they are further apart than :data:`CLOCKS`. Otherwise, a refresh counts that was not there
    yet when somebody who had seen the version in the log looked.

    :param at: by Power BI's clock. No refresh counts that began before.
    :param known: ids of refreshes that were there already.
    """

    at: datetime
    known: tuple[str, ...]

    def counts(self, refresh: Refresh) -> bool:
        """Say whether a refresh began after the version's commit."""
        return refresh.id not in self.known and (refresh.began is None or refresh.began >= self.at)

    def to_json(self) -> dict[str, Any]:
        """Return it for the next try."""
        return {"at": self.at.isoformat(), "seen": list(self.known)}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Mark:
        """Read what :meth:`to_json` returned."""
        return cls(datetime.fromisoformat(said["at"]), tuple(said["seen"]))


@attrs.frozen
class SemanticModel(Item):
    """A semantic model, in Power BI's REST."""

    noun = "semantic model"

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
        for state in (OperationState.COMPLETED, OperationState.RUNNING):
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

    def look(self, operation: str) -> Refresh | None:
        """Return a refresh; ``None`` if Power BI knows nothing of it, as it drops some of many at once."""
        # Ask for the list first, because only enhanced refreshes can be looked at alone.
        found = next((each for each in self.history() if each.id == operation), None)
        if found is not None and not (found.enhanced and found.state is OperationState.FAILED):
            return found
        try:
            return _refresh(operation, self._details(operation))
        except ObjectNotFoundError:
            return found

    def _end(self, operation: str) -> None:
        self.rest.ask("DELETE", f"{self._refreshes}/{operation}", self)

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


def committed_at(log: DeltaLog, version: int) -> datetime | None:
    """Return the time of a version's commit by the store's clock, as a writer's own may be wrong; else ``None``."""
    try:
        return log.store.head(version_path(version)).modified
    except ObjectNotFoundError:
        return None


def reframe(
    model: SemanticModel,
    note: Note,
    committed: Callable[[], datetime | None],
    tables: Collection[str] | None,
    longest: timedelta,
    waited: str | None = None,
) -> Refresh | Waiting:
    """See to it that a semantic model shows a version, which the caller has seen in its table's log.

    :param model: the model.
    :param note: of the task.
    :param committed: returns the time of the version's commit, by the store's clock.
    :param tables: of the model; ``None`` for all of them.
    :param longest: after which Power BI ends a refresh.
    :param waited: the refresh that this try has waited for. If it has failed, the try fails; in the place of one that
        an earlier try left behind, another one is asked for. Default: none.
    :returns: the refresh that shows the version; or one at work. When that has ended, call this again.
    :raises RefreshFailedError: the refresh that was waited for failed. A retry asks for another one.
    :raises RefreshRefusedError: Power BI refuses it.
    :raises StoreUnavailableError: Power BI does not answer. A retry looks first whether a refresh has begun.
    """
    try:
        if own := note.get("own"):
            found = model.look(own)
            if found is not None and found.state in (OperationState.COMPLETED, OperationState.RUNNING):
                return found if found.state is OperationState.COMPLETED else Waiting(own, by_this_task=True)
            note.keep(own=None)
            if found is not None and own == waited:
                raise _failed(model, note, found)
            ended = "is not known" if found is None else f"ended so: {found.words}"
            logger.warning("The refresh %s of %s %s. Another one is asked for", own, model, ended)
        if note.get("mark") is None:
            note.keep(mark=model.mark(committed()).to_json())
        return _find_or_begin(model, note, tables, longest)
    except (ObjectNotFoundError, ObjectExistsError, StoreRefusedError) as error:
        raise RefreshRefusedError(f"{model} is not refreshed for version {note.version}. {error}") from error


def _find_or_begin(
    model: SemanticModel, note: Note, tables: Collection[str] | None, longest: timedelta
) -> Refresh | Waiting:
    mark, lost = Mark.from_json(note.get("mark")), None
    for _ in range(_TRIES):
        known = model.history()
        found = model.covering(known, mark, tables)
        if found is not None:
            logger.info("The refresh %s shows version %d", found.id, note.version)
            return found if found.state is OperationState.COMPLETED else Waiting(found.id, by_this_task=False)
        if (other := _at_work(known)) is not None:
            logger.info("%s is at work on the refresh %s, which began too early", model, other.id)
            return Waiting(other.id, by_this_task=False)
        try:
            own = model.begin(tables, longest)
        except StoreUnavailableError as error:
            lost = error
            continue
        except (ObjectExistsError, StoreRefusedError):
            # Two ask at once, and Power BI takes one.
            if (other := _at_work(model.history())) is None:
                raise
            return Waiting(other.id, by_this_task=False)
        note.keep(own=own)
        logger.info("%s is refreshed for version %d: %s", model, note.version, own)
        return Waiting(own, by_this_task=True)
    assert lost is not None
    raise lost


def _at_work(known: Iterable[Refresh]) -> Refresh | None:
    return next((each for each in known if each.state is OperationState.RUNNING), None)


def _failed(model: SemanticModel, note: Note, found: Refresh) -> Exception:
    kind = RefreshRefusedError if found.state is OperationState.DISABLED else RefreshFailedError
    return kind(
        f"{model} does not show version {note.version}: its refresh {found.id} ended so: {found.words}. The table is "
        "as it was; a retry or a clear asks for another refresh."
    )


def _refresh(guid: str, said: Mapping[str, Any]) -> Refresh:
    words = [str(each.get("message")) for each in said.get("messages") or [] if each.get("message")]
    if said.get("serviceExceptionJson"):
        words.append(str(said["serviceExceptionJson"]))
    status = str(said.get("extendedStatus") or said.get("status") or "")
    return Refresh(
        guid,
        OperationState.of(said.get("status"), status),
        f"{status}: {' '.join(words)}" if words else status,
        _instant(said.get("startTime")),
        _instant(said.get("endTime")),
        str(said.get("refreshType", "ViaEnhancedApi")).lower() == "viaenhancedapi",
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
