"""Operations of Fabric and Power BI that take long, and what the tries of a task tell each other of theirs.

What the tries must know of each other is kept before the request that depends on it. So a try that dies leaves its
successor the means to find what it began, whether its answer came or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import attrs

from airflow_provider_onelake.exceptions import ObjectNotFoundError

if TYPE_CHECKING:
    from airflow_provider_onelake.fabric.rest import Fabric

_KEY = "refresh"


class OperationState(StrEnum):
    """How far a refresh has come."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    DISABLED = "disabled"
    """Of a refresh: it was switched off."""

    @classmethod
    def of(cls, *said: object) -> OperationState:
        """Return the state that the first known one of some words stands for; ``RUNNING`` if none is known."""
        return next((_STATES[word] for word in (str(each).lower() for each in said) if word in _STATES), cls.RUNNING)


_STATES = {
    "completed": OperationState.COMPLETED,
    "succeeded": OperationState.COMPLETED,
    "failed": OperationState.FAILED,
    "timedout": OperationState.FAILED,
    "cancelled": OperationState.FAILED,
    "canceled": OperationState.FAILED,
    "disabled": OperationState.DISABLED,
}


@attrs.frozen
class Operation:
    """A refresh.

    :param id: by which it is looked at.
    :param state: how far it has come.
    :param words: what is said of its end.
    """

    id: str
    state: OperationState
    words: str = ""


@attrs.frozen
class Item:
    """What refreshes are of: a semantic model, or a SQL endpoint.

    :param rest: Fabric's REST, or Power BI's.
    :param workspace: its GUID.
    :param id: the item's GUID.
    """

    rest: Fabric = attrs.field(repr=False, eq=False)
    workspace: str
    id: str

    noun: ClassVar[str]

    def __str__(self) -> str:
        return f"the {self.noun} {self.id} of the workspace {self.workspace}"

    def look(self, operation: str) -> Operation | None:
        """Return an operation; ``None`` if nothing is known of it."""
        raise NotImplementedError

    def has_ended(self, operation: str) -> bool:
        """Say whether an operation is not at work any more, or not known."""
        found = self.look(operation)
        return found is None or found.state is not OperationState.RUNNING

    def cancel(self, operation: str) -> None:
        """End an operation. It is no error if there is none.

        :raises OneLakeError: it is refused, for instance because it has ended.
        """
        with suppress(ObjectNotFoundError):
            self._end(operation)

    def _end(self, operation: str) -> None:
        raise NotImplementedError


class NoteStore(Protocol):
    """What keeps values for the tries of a task instance."""

    def get(self, key: str) -> Any:
        """Return a value; ``None`` if there is none."""

    def set(self, key: str, value: Any) -> Any:
        """Keep a value as JSON."""


@attrs.define
class Note:
    """What the tries of a task tell each other of the operation that they want.

    :param version: of the table that is to be shown.
    """

    _notes: NoteStore
    _noted: dict[str, Any]

    @classmethod
    def open(
        cls,
        kept: NoteStore,
        task_start: str,
        asked: Mapping[str, Any],
        find_version: Callable[[], int],
        digest: Callable[[int], str | None],
    ) -> Note:
        """Return the note of the tries before, if they want the same; else a new one.

        :param kept: of the task instance.
        :param task_start: the id of the task's first start or last clear. Its tries want one version.
        :param asked: what is asked for. A person may have corrected the task between two tries.
        :param find_version: returns the version that the start wants, if this is its first try.
        :param digest: returns the digest of a version's log entry. A table that was made again has another one there.
        """
        known: Any = kept.get(_KEY)
        same = isinstance(known, Mapping) and known.get("asked") == dict(asked)
        if same and known["deed"] == task_start:
            return cls(kept, dict(known))
        version = find_version()
        wanted = {"version": version, "digest": digest(version)}
        # A clear. What showed this version need not be repeated.
        again = same and all(known.get(name) == value for name, value in wanted.items())
        note = cls(kept, dict(known) if again else {"asked": dict(asked), **wanted})
        note.keep(deed=task_start)
        return note

    @property
    def version(self) -> int:
        """The version of the table that is to be shown."""
        return int(self._noted["version"])

    def get(self, name: str) -> Any:
        """Return what is noted; ``None`` if nothing is."""
        return self._noted.get(name)

    def keep(self, **said: Any) -> None:
        """Note something for the tries that follow.

        :param said: values by name, as JSON takes them.
        """
        self._noted |= said
        self._notes.set(_KEY, dict(self._noted))


@attrs.frozen
class Waiting:
    """An operation is at work.

    :param operation: its id; ``None`` if it is not known.
    :param by_this_task: whether this task has asked for it.
    """

    operation: str | None
    by_this_task: bool
