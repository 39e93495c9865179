"""The parameters of the package's public classes, as Python sees them, each with the words of its docstring.

The reference is made from them (``include/docs/docstrings.py``), and tests/unit/test_reference.py asks that none of
them lacks words. A class may leave a parameter's words to the class that it derives from, and a write group to the
writers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum

import attrs

from airflow_provider_onelake.decorators.write import OneLakeWriteDecoratedOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator

_PACKAGE = "airflow_provider_onelake"
# The class gives it to the one that it derives from, so a caller does not.
_GIVEN: dict[type, tuple[str, ...]] = {OneLakeWriteDecoratedOperator: ("source",)}
_FIELD = re.compile(r"^:(\w+)(?: (\w+))?:", re.MULTILINE)


@attrs.frozen
class Parameter:
    """One parameter of a class.

    :param name: of the parameter.
    :param annotation: its type, as the code spells it.
    :param default: as the code spells it; ``None`` if the parameter is required.
    :param text: what a docstring says of it; ``None`` if none does.
    """

    name: str
    annotation: str | None
    default: str | None
    text: str | None


def parameters_of(kind: type) -> list[Parameter]:
    """Return the parameters of a class: its own, and those that it hands on to classes of this package.

    :param kind: the class.
    """
    texts = _texts_of(kind)
    found = {each.name: each for each in (_of_attrs(kind) if attrs.has(kind) else _of_signatures(kind))}
    if any(each.of_writers for each in found.values()):
        texts = {**_texts_of(OneLakeWriteOperator), **texts}
    # What our docstring describes of a parameter that Airflow's class takes.
    airflows = {each.name: each for each in _of_signatures(kind, also_airflows=True)}
    for name in told(kind):
        if name not in found and name != "kwargs":
            found[name] = airflows.get(name, _Found(name, None, None))
    return [
        Parameter(each.name, each.annotation, each.default, texts.get(each.name))
        for each in found.values()
        if each.name not in _GIVEN.get(kind, ())
    ]


def told(documented: object) -> dict[str, str]:
    """Return what the docstring of a class or of a function says of its parameters.

    :param documented: a class or a function.
    """
    text = documented.__doc__
    if not text:
        return {}
    text = inspect.cleandoc(text)
    marks = [*_FIELD.finditer(text)]
    ends = (*(mark.start() for mark in marks), len(text))[1:]
    return {
        mark[2]: " ".join(text[mark.end() : end].split())
        for mark, end in zip(marks, ends, strict=True)
        if mark[1] == "param" and mark[2]
    }


@attrs.frozen
class _Found:
    name: str
    annotation: str | None
    default: str | None
    of_writers: bool = False


def _texts_of(kind: type) -> dict[str, str]:
    return {name: text for each in kind.__mro__[::-1] if _is_ours(each) for name, text in told(each).items()}


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == _PACKAGE


def _of_attrs(kind: type) -> Iterator[_Found]:
    """Yield the fields that a caller gives, and that a class of ours has."""
    ours = {name for each in kind.__mro__ if _is_ours(each) for name in inspect.get_annotations(each)}
    for field in attrs.fields(kind):
        if field.init and field.name in ours:
            default = field.default
            if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
                default = default.factory()
            shown = None if default is attrs.NOTHING else _shown(default)
            yield _Found(field.alias, _annotation(field.type), shown, field.metadata.get("of_writers", False))


def _of_signatures(kind: type, *, also_airflows: bool = False) -> Iterator[_Found]:
    """Yield what ``__init__`` takes, up to the first class that hands nothing on."""
    seen = set()
    for each in kind.__mro__:
        if "__init__" not in each.__dict__ or not (also_airflows or _is_ours(each)):
            continue
        parameters = [*inspect.signature(each.__dict__["__init__"]).parameters.values()][1:]
        for one in parameters:
            if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and one.name not in seen:
                seen.add(one.name)
                default = None if one.default is one.empty else _shown(one.default)
                yield _Found(one.name, None if one.annotation is one.empty else _annotation(one.annotation), default)
        if not any(one.kind is one.VAR_KEYWORD for one in parameters):
            return


def _annotation(found: object) -> str | None:
    if found is None:
        return None
    return found if isinstance(found, str) else inspect.formatannotation(found)


def _shown(value: object) -> str:
    if isinstance(value, Enum):
        return repr(value.value)
    if isinstance(value, timedelta):
        return repr(value).removeprefix("datetime.")
    return value.__name__ if callable(value) and hasattr(value, "__name__") else repr(value)
