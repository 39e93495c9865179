"""What a task is in a load, by the class of its operator: a writer, or the reconciliation behind the writers."""

from __future__ import annotations

from typing import Any


class Writer:
    """Marks the operators whose tasks are writers."""


class Reconciler:
    """Marks the operators that settle the writers before them."""


def is_a(task: Any, kind: type) -> bool:
    """Say whether a task, mapped or not, is of a kind of operator."""
    found = getattr(task, "operator_class", type(task))
    return isinstance(found, type) and issubclass(found, kind)


def is_writer(task: Any) -> bool:
    """Say whether a task, mapped or not, is a writer."""
    return is_a(task, Writer)
