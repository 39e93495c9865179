"""The fingerprint of a Python function: everything that decides what the function returns.

When a task is cleared, the fingerprint says whether its function has changed. It consists of the function's own code
without comments, docstring and layout; the code of the functions and classes in the same file that it uses or is
wrapped by, also out of collections, partials and objects; and the plain values that it takes from its surroundings.
Other modules do not count, and nor do libraries.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial, partialmethod, singledispatchmethod
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, NoneType
from typing import Any
from uuid import UUID

from airflow_provider_onelake.exceptions import InvalidWriteError


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


def code_of(function: Callable[..., Any]) -> list[Any]:
    """Return everything that decides what a function does.

    :param function: a function made by ``def`` in a file.
    :returns: for the function, and for everything in its file that it uses: name, code, and the plain values that it
        takes from its surroundings.
    :raises InvalidWriteError: the code cannot be read.
    """
    layers = list(_layers(function))
    whole = layers[-1]
    if not isinstance(whole, FunctionType) or _source(whole) is None:
        raise InvalidWriteError(
            f"The code of {getattr(whole, '__qualname__', repr(whole))} cannot be read, so a clear could not tell "
            "whether it changed. Write it with `def` in a file (no lambda, no async function). Nothing was staged."
        )
    found: list[Any] = []
    seen: set[int] = set()
    for layer in reversed(layers):
        part = _code_in(layer)
        if part is not None and _module(part) == _module(whole):
            _collect(part, found, seen)
    return found


def _collect(part: Any, found: list[Any], seen: set[int]) -> None:
    if id(part) in seen:
        return
    seen.add(id(part))
    values: dict[str, Any] = {}
    used: list[Any] = []
    around = sorted(_around(part), key=lambda pair: pair[0])
    apart: dict[int, tuple[str, Any]] = {}
    for name, value in (inner for pair in around for inner in _taken_apart(*pair, apart)):
        parts = [other for layer in _layers(value) if (other := _code_in(layer)) is not None]
        used += [other for other in parts if _module(other) == _module(part)]
        if not parts:
            # Of an object of the file, what its methods do. Which one it is nobody can tell, unless it is plain.
            used += [type(value)] if _module(type(value)) == _module(part) else []
            with suppress(TypeError):
                values[name] = plain(value)
    # A part without readable source is a lambda, or a class that was made by a call.
    found.append([part.__qualname__, _source(part) or _compiled(part), values])
    for other in used:
        _collect(other, found, seen)


def _taken_apart(name: str, value: Any, seen: dict[int, tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield a value, or what is in it where it is no plain value: of a collection, a partial, or a bound method.

    :param name: of the value.
    :param seen: the values that were taken apart, with their names, by identity. One that comes again is yielded as the
        name that it had, so that nothing goes round in circles, or is taken apart once for each way to it.
    """
    inner = _inner(value)
    if not inner:
        yield name, value
    elif id(value) in seen:
        yield name, seen[id(value)][0]
    else:
        seen[id(value)] = (name, value)
        if isinstance(value, set | frozenset):
            # The order of a set is another one in each process.
            inner = sorted(inner, key=lambda each: _order(each, seen))
        for number, each in enumerate(inner):
            # The order of functions counts too, also where each of them was found before.
            yield f"{name}[{number}]", _kind(each)
            yield from _taken_apart(f"{name}.{number}", each, seen)


def _inner(value: Any) -> list[Any]:
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if not isinstance(value, dict | MappingProxyType | list | tuple | deque | set | frozenset) or _is_plain(value):
        return []
    if isinstance(value, dict | MappingProxyType):
        return [each for pair in value.items() for each in pair]
    return list(value)


def _is_plain(value: Any) -> bool:
    try:
        plain(value)
    except (TypeError, RecursionError):
        return False
    return True


def _kind(value: Any) -> str:
    """Return the name of a function or a class, and the name of the type of another value."""
    # Ask no other value for its name: some answer whatever they are asked, with their address for example.
    return str((value if isinstance(value, FunctionType | BuiltinFunctionType | type) else type(value)).__qualname__)


def _order(value: Any, seen: Mapping[int, tuple[str, Any]]) -> str:
    """Return a text that is the same for a value of a set in every process, and another one for another value."""
    found: list[Any] = []
    for _, each in _taken_apart("", value, dict(seen)):
        if isinstance(each, FunctionType):
            around = sorted(_around(each), key=lambda pair: pair[0])
            found += [_source(each) or _compiled(each), [(name, plain(one)) for name, one in around if _is_plain(one)]]
        else:
            found += [_kind(each), plain(each) if _is_plain(each) else None]
    return json.dumps(found)


def _layers(value: Any) -> Iterator[Any]:
    """Yield a value and the objects that it wraps, as ``functools.wraps`` records them, the innermost last."""
    seen: set[int] = set()
    while id(value) not in seen:
        seen.add(id(value))
        yield value
        value = value.__wrapped__ if _wraps(value) else value


def _wraps(value: Any) -> bool:
    # Do not use hasattr: a proxy or a mock has every attribute.
    return "__wrapped__" in getattr(value, "__dict__", {}) or isinstance(value, staticmethod | classmethod)


def _code_in(layer: Any) -> Any:
    """Return the function or the class that has the code of a layer; ``None`` for a plain value."""
    if isinstance(layer, FunctionType | type):
        return layer
    return type(layer) if _wraps(layer) else None


def _module(part: Any) -> Any:
    # A function that wraps another one takes over that one's name and module, but keeps its own globals.
    return part.__globals__.get("__name__") if isinstance(part, FunctionType) else part.__module__


def _around(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values that a function or a class takes from its surroundings, by name."""
    if isinstance(part, type):
        yield from ((base.__name__, base) for base in (*part.__bases__, type(part)))
        around = vars(sys.modules[part.__module__]) if part.__module__ in sys.modules else {}
        yield from ((name, around[name]) for name in _names_in_body(part) if name in around)
        for member, value in vars(part).items():
            if isinstance(value, type) and value.__qualname__ == f"{part.__qualname__}.{member}":
                yield from ((f"{member}.{name}", other) for name, other in _around(value))
            for method in _methods(value):
                if _module(method) == part.__module__:
                    yield from ((f"{member}.{name}", other) for name, other in _around(method))
        return
    code: CodeType = part.__code__
    for name, cell in zip(code.co_freevars, part.__closure__ or (), strict=True):
        # The cell of a name that is not bound yet is empty, and reading it raises ValueError.
        with suppress(ValueError):
            yield name, cell.cell_contents
    for name in set(_names(code)):
        if name in part.__globals__:
            yield name, part.__globals__[name]
    yield "defaults", [*(part.__defaults__ or ()), *(part.__kwdefaults__ or {}).items()]


def _names_in_body(part: type) -> set[str]:
    """Return the names that the body of a class uses outside of its methods and of the classes in it."""
    text = _source(part)
    nodes = list(ast.iter_child_nodes(ast.parse(text).body[0])) if text is not None else []
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name):
            # A name that is only assigned to, such as a field's, is none of the module's.
            names |= {node.id} if isinstance(node.ctx, ast.Load) else set()
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            nodes += ast.iter_child_nodes(node)
    return names


def _methods(member: Any) -> Iterator[FunctionType]:
    """Yield the functions behind a member of a class, such as a property's accessors or a wrapped method."""
    for layer in _layers(member):
        if isinstance(layer, FunctionType):
            yield layer
        elif isinstance(layer, property):
            for accessor in (layer.fget, layer.fset, layer.fdel):
                yield from _methods(accessor)
        elif isinstance(layer, cached_property | partialmethod | singledispatchmethod):
            yield from _methods(layer.func)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _source(part: Any) -> str | None:
    """Return the code of a function or a class as text; ``None`` if it cannot be read."""
    # Ask inspect for the code object: for a function that wraps another one, inspect returns the other one's source.
    code = part.__code__ if isinstance(part, FunctionType) else None
    try:
        text = inspect.getsource(code or part)
        # The source of a nested function is indented. Put it under an `if` instead of dedenting it, because the lines
        # of a text of several lines need not be indented.
        node = ast.parse(f"if True:\n{text}" if text[:1].isspace() else text).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    if isinstance(node, ast.If):
        node = node.body[0]
    # For a lambda, inspect returns the whole statement in which it stands, so refuse what is no definition.
    if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name != (code.co_name if code else part.__name__):
        return None
    node.decorator_list = []
    if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(node)


def _compiled(part: Any) -> list[Any]:
    """Return a lambda's compiled code, which is the same in every process of one version of Python."""
    if isinstance(part, type):
        return []
    return _instructions(part.__code__)


def _instructions(code: CodeType) -> list[Any]:
    constants = [_constant(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]
    # Such as a comprehension, and a lambda in a lambda.
    inner = [_instructions(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return [code.co_code.hex(), constants, list(code.co_names), *inner]


def _constant(value: object) -> str:
    # Python makes a frozenset of `in {…}`, whose order is another one in each process.
    return str(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
