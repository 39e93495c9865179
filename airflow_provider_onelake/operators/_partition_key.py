"""Notices a template that uses the partition key of a run without one. Jinja would render the key as ``None``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import jinja2

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES = ("partition_key", "partition_date")
_OF_THE_RUN = re.compile(rf"\bdag_run\.(?=({'|'.join(_NAMES)})\b)")
_LOOKED_AFTER = re.compile(rf"\b({'|'.join(_NAMES)})\s+is\s+(not\s+)?none\b", re.IGNORECASE)


class NoPartitionKeyError(jinja2.UndefinedError):
    """A template uses the partition key of a run that has none. The message is the name that the template uses."""


class _Nothing(jinja2.StrictUndefined):
    """Stands for the missing key. A template may test it, but not use it."""

    __slots__ = ()

    def __bool__(self) -> bool:  # type: ignore[override]
        return False


def guarded(template: str, context: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return a template, and a context in which it cannot use a partition key that the run does not have.

    A template that tests the key first, by ``{% if partition_key %}``, ``partition_key or …`` or ``is none``, renders
    as always.

    :param template: the template of a field.
    :param context: the context of the running task.
    :returns: the template and the context to render it with.
    """
    missing = [name for name in _NAMES if context.get(name, "") is None]
    if not missing or _LOOKED_AFTER.search(template):
        return template, context
    nothing = {name: _Nothing(name=name, exc=NoPartitionKeyError) for name in missing}
    return _OF_THE_RUN.sub("", template), {**context, **nothing}


def is_missing(rendered: Any) -> bool:
    """Say whether a template rendered to the missing key itself.

    :param rendered: the value that the template rendered to.
    """
    return isinstance(rendered, _Nothing)
