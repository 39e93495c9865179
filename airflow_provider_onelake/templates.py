"""What is known of a DAG author's values before Airflow has rendered their templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import attrs

_TEMPLATE = re.compile(r"\{\{|\{%|\{#")


def is_final(value: object) -> bool:
    """Say whether a value is known now: it holds no template and no other task's output."""
    if isinstance(value, str):
        return _TEMPLATE.search(value) is None
    if isinstance(value, Templated):
        return all(is_final(getattr(value, name)) for name in value.template_fields)
    if isinstance(value, Mapping):
        return all(is_final(item) for item in value.values())
    if isinstance(value, Sequence):
        return all(is_final(item) for item in value)
    return value is None or isinstance(value, bool | int | float)


@attrs.frozen
class Templated:
    """A small frozen value with templates in some of its fields."""

    template_fields: ClassVar[tuple[str, ...]] = ()

    def rendered(self, render: Callable[[Any], Any]) -> Self:
        """Return a copy with its templates rendered, because one value may serve many tasks and runs.

        :param render: renders one value.
        """
        return attrs.evolve(self, **{name: render(getattr(self, name)) for name in self.template_fields})


def text_or_none(value: Any) -> Any:
    """Return a text without blanks around it. A blank text, as a template may render it, counts as not given."""
    return (value.strip() or None) if isinstance(value, str) else value


def known_mapping(value: object) -> bool:
    """Say whether a value is a dict, or may be one when it is rendered."""
    return value is None or isinstance(value, Mapping) or not is_final(value)


def known_items(value: object) -> list[tuple[Any, Any]]:
    """Return what a dict holds that is known now."""
    return [item for item in value.items() if is_final(item)] if isinstance(value, Mapping) else []
