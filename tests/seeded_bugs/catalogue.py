"""Every seeded bug: those of the modules beside this one."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import tests.seeded_bugs
from tests.seeded_bugs.bug import Bug

_NO_BUGS = ("__main__", "catalogue")


def catalogue() -> list[Bug]:
    """Return the seeded bugs, by module and in the order in which they are written."""
    names = [module.name for module in iter_modules(tests.seeded_bugs.__path__) if module.name not in _NO_BUGS]
    modules = [import_module(f"tests.seeded_bugs.{name}") for name in names]
    return [bug for module in modules for bug in vars(module).values() if isinstance(bug, Bug)]
