"""Bugs put into production code for a test: the text of a function is changed, and compiled again in its place."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from tests.simulation.runner import History

_PACKAGES = ("airflow_provider_onelake.", "tests.simulation.")


_HISTORIES = 3000


@attrs.frozen
class Change:
    """A change to one function of production code.

    :param owner: the module or the class in which the function is looked up.
    :param name: of the function.
    :param texts: text of it that the test relies on, and what stands there instead; where it is gone, the test says so
        instead of passing.
    """

    owner: Any
    name: str
    texts: dict[str, str]

    def apply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the changed function in its place.

        :param monkeypatch: that takes it out again.
        """
        original = getattr(self.owner, self.name)
        changed = self._changed(original)
        monkeypatch.setattr(self.owner, self.name, changed)
        # A module that imported the function by its name would go on to call the original.
        for name, module in list(sys.modules.items()):
            if name.startswith(_PACKAGES) and vars(module).get(self.name) is original:
                monkeypatch.setattr(module, self.name, changed)

    def _changed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        source = textwrap.dedent(inspect.getsource(function))
        for old, new in self.texts.items():
            assert source.count(old) == 1, f"{self.name} has no {old!r} any more: seed this bug anew"
            source = source.replace(old, new)
        if inspect.isclass(self.owner):
            # A function that is compiled alone does not know its class.
            source = source.replace("super()", f"super({self.owner.__name__}, self)")
        code = compile(f"from __future__ import annotations\n{source}", f"<changed {self.name}>", "exec")
        found: dict[str, Any] = {}
        exec(code, vars(sys.modules[function.__module__]), found)
        changed: Callable[..., Any] = found[function.__name__]
        return changed


def check_found(simulate: Callable[[int], History], says: str, first: int) -> None:
    """Fail unless the judge says of one of many histories what it must.

    :param simulate: runs and judges a history.
    :param says: a regular expression.
    :param first: the seed from which on they are run.
    """
    for seed in range(first, first + _HISTORIES):
        history = simulate(seed)
        if history.violation and re.search(says, history.violation):
            print(f"found by seed {seed}: {history.violation[:200]}")
            return
    pytest.fail(f"not found by seeds {first} to {first + _HISTORIES - 1}")
