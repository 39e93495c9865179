"""A bug put into production code on purpose: a function that behaves otherwise, whatever its text, name and place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import attrs

from tests.simulation.schedules import Schedules, kept_seeds

REPOSITORY = Path(__file__).resolve().parents[2]
_KEPT_SCHEDULE = {
    Schedules.LOADS: "tests/simulation/test_simulation.py::test_a_kept_schedule_holds",
    Schedules.STATEMENTS: "tests/simulation/test_statements.py::test_a_kept_schedule_holds",
}


@attrs.frozen
class Bug:
    """A small, plausible bug.

    :param promise: that it breaks, in one plain sentence.
    :param behaviour: what runs in place of each function; its first argument is the original. It names the bug.
    :param replaced: the functions that have the bug: functions, methods, properties.
    :param without: second lines of defence that would hide it; they return nothing.
    :param shown_by: node ids of tests that fail with it, or the kind of schedules of which ``seeds.txt`` keeps one.
    """

    promise: str
    behaviour: Callable[..., Any]
    replaced: tuple[Any, ...]
    without: tuple[Any, ...]
    shown_by: tuple[str, ...] | Schedules

    @property
    def name(self) -> str:
        """What is wrong with it in."""
        return self.behaviour.__name__.replace("_", " ")

    @property
    def module(self) -> str:
        """Of the catalogue."""
        return self.behaviour.__module__.rpartition(".")[2]

    @property
    def fails(self) -> tuple[str, ...]:
        """The tests that fail with it, as pytest names them; none where no seed is kept for it."""
        if isinstance(self.shown_by, Schedules):
            seeds = [kept.seed for kept in kept_seeds() if kept.bug == self.name]
            return tuple(f"{_KEPT_SCHEDULE[self.shown_by]}[{seed}]" for seed in seeds)
        return self.shown_by

    def put_in(self) -> Callable[[], None]:
        """Put the bug into this process."""
        undo = [_replace(function, self.behaviour) for function in self.replaced]
        undo += [_replace(function, lambda original, *args, **kwargs: None) for function in self.without]

        def take_out() -> None:
            for one in undo:
                one()

        return take_out


def seeded(
    promise: str, *, in_: Any, fails: tuple[str, ...] | Schedules, without: Any = ()
) -> Callable[[Callable[..., Any]], Bug]:
    """Make a bug of the function below, which then runs in place of others, with the original as its first argument.

    :param promise: that the bug breaks, in one plain sentence.
    :param in_: the function with the bug: a function, a method of a class, a property; several as a tuple.
    :param fails: node ids of the tests that must fail with it; or the kind of schedules of which a kept seed does.
    :param without: second lines of defence that would hide it, which return nothing meanwhile.
    """

    def make(behaviour: Callable[..., Any]) -> Bug:
        return Bug(promise, behaviour, _tuple(in_), _tuple(without), fails)

    return make


def _tuple(one_or_several: Any) -> tuple[Any, ...]:
    return one_or_several if isinstance(one_or_several, tuple) else (one_or_several,)


def _replace(target: Any, behaviour: Callable[..., Any]) -> Callable[[], None]:
    """Have a function run a behaviour.

    The function stays the same object with other code in it. So it does not matter who has imported it, and whether it
    is a method, a default or a member of a list.
    """
    function = _function_of(target)
    if hasattr(target, "cache_clear"):
        target.cache_clear()
    code, keywords, attributes = function.__code__, function.__kwdefaults__, dict(function.__dict__)
    original = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    original.__kwdefaults__ = keywords
    # Frameworks go on to see its parameters.
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    stand_in = (_awaiting if inspect.iscoroutinefunction(function) else _running).__code__
    function.__code__ = stand_in.replace(co_freevars=code.co_freevars)
    function.__kwdefaults__ = {"_run": lambda *args, **kwargs: behaviour(original, *args, **kwargs)}

    def undo() -> None:
        function.__code__, function.__kwdefaults__ = code, keywords
        function.__dict__.clear()
        function.__dict__.update(attributes)

    return undo


def _function_of(target: Any) -> FunctionType:
    for inner in ("fget", "__func__", "func", "__wrapped__"):
        if not isinstance(target, FunctionType) and hasattr(target, inner):
            target = getattr(target, inner)
    if not isinstance(target, FunctionType):
        raise TypeError(f"{target!r} is no function of Python, so no bug can be put into it.")
    return target


def _running(*args: Any, _run: Callable[..., Any], **kwargs: Any) -> Any:
    return _run(*args, **kwargs)


async def _awaiting(*args: Any, _run: Callable[..., Any], **kwargs: Any) -> Any:
    return await _run(*args, **kwargs)
