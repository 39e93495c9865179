"""The steps of one refresh after a commit: remember the version, find the refresh that shows it, or ask for one.

*One refresh a version*: what the tries of a task must know of each other is kept before the request that depends on it.
So a try that dies leaves its successor the means to find its refresh, whether its answer came or not. None is lost,
because a refresh counts only if it began after the version was in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from airflow_provider_onelake.exceptions import (
    ObjectExistsError,
    ObjectNotFoundError,
    RefreshFailedError,
    RefreshRefusedError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.storage.refreshes import Mark, Refresh, SemanticModel, SqlEndpoint, State, Synced

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog

logger = logging.getLogger(__name__)

_KEY = "refresh"
# Requests for a refresh whose answer is lost; each is looked for before the next.
_TRIES = 3


class Store(Protocol):
    """What keeps values for the tries of a task instance."""

    def get(self, key: str) -> Any:
        """Return a value; ``None`` if there is none."""

    def set(self, key: str, value: Any) -> Any:
        """Keep a value as JSON."""


@attrs.define
class Note:
    """What the tries of a task tell each other of the refresh that they want.

    :param version: of the table that is to be shown.
    """

    _kept: Store
    _said: dict[str, Any]

    @classmethod
    def open(
        cls,
        kept: Store,
        deed: str,
        asked: Mapping[str, Any],
        find_version: Callable[[], int],
        digest: Callable[[int], str | None],
    ) -> Note:
        """Return the note of the tries before, if they want the same; else a new one.

        :param kept: of the task instance.
        :param deed: the id of the task's first start or last clear. Its tries want one version.
        :param asked: what is asked for. A person may have corrected the task between two tries.
        :param find_version: returns the version that the deed wants, if this is its first try.
        :param digest: returns the digest of a version's log entry. A table that was made again has another one there.
        """
        known: Any = kept.get(_KEY)
        same = isinstance(known, Mapping) and known.get("asked") == dict(asked)
        if same and known["deed"] == deed:
            return cls(kept, dict(known))
        version = find_version()
        wanted = {"version": version, "digest": digest(version)}
        if same and all(known.get(name) == value for name, value in wanted.items()):
            # A clear. What showed this version need not be repeated.
            note = cls(kept, {**known, "deed": deed})
        else:
            note = cls(kept, {"deed": deed, "asked": dict(asked), **wanted})
        note.keep()
        return note

    @property
    def version(self) -> int:
        """The version of the table that is to be shown."""
        return int(self._said["version"])

    def get(self, name: str) -> Any:
        """Return what is noted; ``None`` if nothing is."""
        return self._said.get(name)

    def keep(self, **said: Any) -> None:
        """Note something for the tries that follow.

        :param said: values by name, as JSON takes them.
        """
        self._said |= said
        self._kept.set(_KEY, dict(self._said))


@attrs.frozen
class Waiting:
    """A refresh is at work.

    :param refresh: its id; ``None`` if it is not known.
    :param own: whether this task has asked for it.
    """

    refresh: str | None
    own: bool


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
            if found is not None and found.state in (State.COMPLETED, State.RUNNING):
                return found if found.state is State.COMPLETED else Waiting(own, own=True)
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
            return found if found.state is State.COMPLETED else Waiting(found.id, own=False)
        if (other := _at_work(known)) is not None:
            logger.info("%s is at work on the refresh %s, which began too early", model, other.id)
            return Waiting(other.id, own=False)
        try:
            own = model.begin(tables, longest)
        except StoreUnavailableError as error:
            lost = error
            continue
        except (ObjectExistsError, StoreRefusedError):
            # Two ask at once, and Power BI takes one.
            if (other := _at_work(model.history())) is None:
                raise
            return Waiting(other.id, own=False)
        note.keep(own=own)
        logger.info("%s is refreshed for version %d: %s", model, note.version, own)
        return Waiting(own, own=True)
    assert lost is not None
    raise lost


def _at_work(known: Iterable[Refresh]) -> Refresh | None:
    return next((each for each in known if each.state is State.RUNNING), None)


def _failed(model: SemanticModel, note: Note, found: Refresh) -> Exception:
    kind = RefreshRefusedError if found.state is State.DISABLED else RefreshFailedError
    return kind(
        f"{model} does not show version {note.version}: its refresh {found.id} ended so: {found.words}. The table is "
        "as it was; a retry or a clear asks for another refresh."
    )


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
        said = _result(endpoint, note, note.get("own"), waited) if note.get("own") else None
        if said is None:
            said = endpoint.begin(longest)
        if isinstance(said, str):
            note.keep(own=said)
            return Waiting(said, own=True)
    except ObjectExistsError:
        logger.info("%s is at work on a refresh that may have begun too early", endpoint)
        return Waiting(None, own=False)
    except (ObjectNotFoundError, StoreRefusedError) as error:
        raise RefreshRefusedError(f"{endpoint} is not refreshed for version {note.version}. {error}") from error
    name = said.name_of(schema, table)
    if name in said.errors:
        note.keep(own=None)
        raise _not_shown(endpoint, note, f"of {name} it says {said.errors[name]}")
    shown = Shown(name, None if name is None else said.tables[name])
    note.keep(done=attrs.asdict(shown))
    return shown


def _result(endpoint: SqlEndpoint, note: Note, operation: str, waited: str | None) -> Synced | str | None:
    """Return what an operation did; its id if it is at work; ``None`` if it is to be asked for again."""
    try:
        state, said = endpoint.look(operation)
    except ObjectNotFoundError:
        return None
    if state is State.FAILED:
        note.keep(own=None)
        if operation != waited:
            return None
        raise _not_shown(endpoint, note, f"its refresh {operation} failed: {said}")
    return said if isinstance(said, Synced) else operation


def _not_shown(endpoint: SqlEndpoint, note: Note, why: str) -> RefreshFailedError:
    return RefreshFailedError(
        f"{endpoint} does not show version {note.version}: {why}. The table is as it was; a retry or a clear asks "
        "again."
    )
