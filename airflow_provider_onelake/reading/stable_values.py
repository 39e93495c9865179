"""Plain values: text, numbers, dates and collections of them, in a form that is the same in every process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import NoneType
from typing import Any
from uuid import UUID


def plain(value: object) -> Any:
    """Return a value in a form that JSON can write, and that is the same for equal values in every process.

    :param value: text, a number, a date, a path, a member of an enumeration, or a collection of such values.
    :raises TypeError: the value is of another kind, such as an object that only its address in memory identifies.
    """
    for kinds, form in _FORMS:
        if isinstance(value, kinds):
            return form(value)
    raise TypeError(f"{type(value).__qualname__} has no form that is the same in every process")


# The first kind that fits counts. Texts and numbers are made anew, because Airflow may pass lazy proxies, which JSON
# cannot write.
_FORMS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (NoneType, lambda value: None),
    (Enum, lambda value: f"{type(value).__qualname__}.{value.name}"),
    *((kind, kind) for kind in (bool, str, int, float)),
    (date | time, lambda value: value.isoformat()),
    (timedelta | Decimal | UUID | PurePath | range, str),
    (bytes | bytearray, lambda value: value.hex()),
    (
        Mapping,
        lambda value: {"pairs": sorted(([plain(key), plain(each)] for key, each in value.items()), key=json.dumps)},
    ),
    (Set, lambda value: {"set": sorted(map(plain, value), key=json.dumps)}),
    (Sequence, lambda value: list(map(plain, value))),
)
