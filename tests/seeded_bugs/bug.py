"""A bug put into production code on purpose, and the import hook that puts it there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import attrs

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = "airflow_provider_onelake"


class StaleBugError(Exception):
    """The text that a bug changes is not there exactly once: the code was rewritten, so the bug is to be seeded anew."""


@attrs.frozen
class Bug:
    """A small, plausible bug.

    :param name: what is wrong with it in, as a short sentence; unique.
    :param module: below the package, such as ``commit.publish``.
    :param old: text that stands in the module exactly once.
    :param new: what stands there instead.
    :param tests: that fail because of it, as ``<file below tests/unit>::<test>``.
    :param error: the type that they fail by, where it is neither an assertion nor an error of the package.
    """

    name: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]
    error: str | None = None

    @property
    def source(self) -> Path:
        """The module's file."""
        return REPOSITORY / PACKAGE / f"{self.module.replace('.', '/')}.py"

    @property
    def nodes(self) -> tuple[str, ...]:
        """The tests as pytest names them."""
        return tuple(f"tests/unit/{test}" for test in self.tests)

    def changed(self) -> str:
        """Return the module's source with the bug in it.

        :raises StaleBugError: the text to change is not there exactly once.
        """
        source = self.source.read_text()
        if (found := source.count(self.old)) != 1:
            raise StaleBugError(
                f"{self.name!r}: {self.module} has {self.old!r} {found} times, not once. Seed this bug anew."
            )
        return source.replace(self.old, self.new)

    def seed(self) -> None:
        """Have this process import the module with the bug in it; nothing of the package may be imported yet."""
        known = [name for name in sys.modules if name.partition(".")[0] == PACKAGE]
        assert not known, f"{known[0]} is imported already"
        sys.meta_path.insert(0, _Finder(f"{PACKAGE}.{self.module}", self.changed()))


class _Finder(MetaPathFinder):
    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._source)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._changed = source

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self._changed, self.path, "exec", dont_inherit=True)
        return code
