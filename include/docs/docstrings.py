"""Docstrings as the site shows them: all parameters of a class in one list, and links in place of Sphinx's roles."""

from __future__ import annotations

import importlib
import posixpath
import re
from pathlib import Path
from typing import Any

import griffe

from include.docs.parameters import parameters_of, told

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)

_ROLE = re.compile(r":(?:class|func|meth|data|attr|mod|exc):`(?:([^`<]+?)\s+<([^`>]+)>|~?([^`<>]+))`", re.DOTALL)
_NAME = re.compile(r"(?<!`)``([A-Z]\w+)``(?!`)")
_PAGE = re.compile(r"(?<![\w/])(?:``)?docs/([\w/-]+\.md(?:#[\w-]+)?)(?:``)?")
_RULES = re.compile(r"\(protocol: ([\w\s,-]+)\)|^Protocol: ([\w\s,-]+)\.$", re.MULTILINE)


def documented() -> dict[str, str]:
    """Return what the reference describes: the page of each class and function."""
    return {path: page.name for page in sorted(REFERENCE.glob("*.md")) for path in DIRECTIVE.findall(page.read_text())}


def in_markdown(text: str, module: str = "", known: Any = ()) -> str:
    """Return a docstring as Markdown of a page of the reference.

    :param text: the docstring.
    :param module: the module that it stands in, for names without a module.
    :param known: what a link can lead to; other names become code.
    """

    def link(role: re.Match[str]) -> str:
        path = re.sub(r"\s+", "", role[2] or role[3])
        shown = re.sub(r"\s+", " ", role[1]) if role[1] else path.rpartition(".")[2]
        for name in (path, f"{module}.{path}"):
            if name in known:
                return f"[`{shown}`][{name}]"
        return f"`{shown}`"

    def rules(cited: re.Match[str]) -> str:
        names = re.split(r",\s+", cited[1] or cited[2])
        links = ", ".join(f"[{name}](../concepts/protocol.md#{name.replace(' ', '-')})" for name in names)
        return f"(rule: {links})" if cited[1] else f"Rule: {links}."

    def named(code: re.Match[str]) -> str:
        path = by_name.get(code[1])
        return f"[`{code[1]}`][{path}]" if path else code[0]

    by_name = {path.rpartition(".")[2]: path for path in known}
    text = _NAME.sub(named, _RULES.sub(rules, _ROLE.sub(link, text)))
    return _PAGE.sub(lambda page: f"[{_titled(page[1])}]({posixpath.relpath(page[1], 'reference')})", text)


def _titled(page: str) -> str:
    """Return a page's heading, for a link to it."""
    return (ROOT / "docs" / page.partition("#")[0]).read_text().partition("\n")[0].removeprefix("# ")


class Docstrings(griffe.Extension):
    """Rewrites what the reference shows, before it is shown."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite the docstrings of what the reference describes, and of its members.

        :param pkg: the package, read as text.
        """
        pages = documented()
        for path in pages:
            described = pkg.modules_collection[path]
            if described.is_class and _is_dict(described):
                _tell_keys(described)
            elif described.is_class:
                _give_parameters(described, path)
            for each in (described, *described.members.values()):
                if not each.is_alias and each.docstring is not None:
                    each.docstring.value = in_markdown(each.docstring.value, each.module.path, pages)


def _give_parameters(described: Any, path: str) -> None:
    """Have a class take and describe the parameters that Python sees, also those of other classes."""
    module, _, name = path.rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    found = parameters_of(kind)
    if not found:
        return
    docstring = described.docstring
    given = griffe.Parameters(griffe.Parameter("self"))
    for each in found:
        given.add(
            griffe.Parameter(
                each.name,
                annotation=griffe.parse_docstring_annotation(each.annotation, docstring) if each.annotation else None,
                default=each.default,
                kind=griffe.ParameterKind.keyword_only,
            )
        )
    text, mark, fields = docstring.value.partition("\n:param ")
    own = told(kind)
    more = [f":param {each.name}: {each.text or ''}" for each in found if each.name not in own]
    # The words on **kwargs say where the parameters come from that stand here.
    kept = re.sub(r"^:param kwargs:.*?(?=^:|\Z)", "", mark.strip("\n") + fields, flags=re.MULTILINE | re.DOTALL)
    docstring.value = "\n".join([text, "", *([kept.strip()] if kept.strip() else []), *more])
    described.set_member("__init__", griffe.Function("__init__", parameters=given))


def _is_dict(described: Any) -> bool:
    return any(str(base) == "TypedDict" for each in (described, *described.mro()) for base in each.bases)


def _tell_keys(described: Any) -> None:
    """Have a ``TypedDict`` list its keys, also those of the classes that it derives from."""
    for each in (*reversed(described.mro()), described):
        for name, key in each.attributes.items():
            if not key.is_alias and f":ivar {name}:" not in described.docstring.value:
                text = " ".join(key.docstring.value.split()) if key.docstring else ""
                described.docstring.value += f"\n:vartype {name}: {key.annotation}\n:ivar {name}: {text}"
