"""The code of a Python function, for its fingerprint.

The rule: two functions are the same if they say the same, if their file says the same of the names that they use,
directly or through each other, and if the plain values are equal that they take from around them. Comments, docstrings,
layout, the function's own decorators and other modules do not count.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.reading.stable_values import plain

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def code_of(function: Callable[..., Any]) -> list[Any]:
    """Return everything that decides what a function does.

    :param function: a function made by ``def`` in a file.
    :returns: what the function and its file say, and the plain values, each with a name.
    :raises InvalidWriteError: the code cannot be read.
    """
    layers: list[Any] = [function]
    while (inner := getattr(layers[-1], "__dict__", {}).get("__wrapped__")) is not None and inner not in layers:
        layers.append(inner)
    whole, own, tree = layers[-1], None, ast.Module([], [])
    with suppress(AttributeError, OSError, TypeError, SyntaxError):
        tree = ast.parse("".join(inspect.findsource(whole.__code__)[0]))
    defined: list[Any] = [node for node in ast.walk(tree) if isinstance(node, _DEFINITIONS)]
    for node in defined:
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if (node.name, (node.decorator_list or [node])[0].lineno) == (whole.__name__, whole.__code__.co_firstlineno):
            own = node
    if not isinstance(whole, FunctionType) or not isinstance(own, ast.FunctionDef):
        raise InvalidWriteError(
            f"The code of {getattr(whole, '__qualname__', repr(whole))} cannot be read, so a clear could not tell "
            "whether it changed. Write it with `def` in a file (no lambda, no async function). Nothing was staged."
        )
    own.decorator_list = []
    scopes = [tree, *(node for node in defined if node.lineno < own.lineno <= node.end_lineno)]
    said: list[Any] = [statement for scope in scopes for statement in scope.body]
    for statement in said:
        # Of a block, each statement counts by itself.
        for block in () if isinstance(statement, _DEFINITIONS) else ("body", "orelse", "finalbody", "handlers"):
            said += getattr(statement, block, [])
            setattr(statement, block, [])
    mine = [each for each in layers if isinstance(each, FunctionType) and each.__globals__ is whole.__globals__]
    names, found, taken, values = {type(layer).__name__ for layer in layers}, [own], list[Any](), []
    for layer in mine:
        around = [each for each in said if each.lineno <= layer.__code__.co_firstlineno <= each.end_lineno]
        found += sorted(around, key=lambda each: each.lineno)[-1:] if layer is not whole else []
        taken += [("default", value) for value in (*(layer.__defaults__ or ()), *(layer.__kwdefaults__ or {}).values())]
        with suppress(ValueError):  # A cell is empty.
            taken += inspect.getclosurevars(layer).nonlocals.items()
    for node in found:
        names |= _names(node)
        found += [statement for statement in said if _named(statement) & names and statement not in found]
    taken += [(name, whole.__globals__[name]) for name in sorted(names & whole.__globals__.keys())]
    for name, value in taken:
        with suppress(TypeError, RecursionError):
            values.append([name, plain(value)])
    return [sorted({ast.unparse(node) for node in found}), values]


def _named(statement: Any) -> set[str]:
    """Return the names to which a statement gives something."""
    if isinstance(statement, _DEFINITIONS):
        return {statement.name}
    items = (item.optional_vars for item in getattr(statement, "items", ()))
    return _names(*getattr(statement, "targets", ()), getattr(statement, "target", None), *items)


def _names(*nodes: ast.AST | None) -> set[str]:
    return {each.id for node in nodes if node for each in ast.walk(node) if isinstance(each, ast.Name)}
