"""MkDocs' hooks: addresses from pyproject.toml, the repository's own pages, links out of the docs, the reference."""

from __future__ import annotations

import os
import posixpath
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

from include.docs.docstrings import documented
from include.docs.generated import filled

ROOT = Path(__file__).parents[2]
SHOWN = {
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changes.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "include/local_onelake/README.md": "local-onelake.md",
}
"""The pages of the site that lie elsewhere in the repository."""

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
_ADDRESS = re.compile(r"\[the author's address\]\((?:\.\./)*pyproject\.toml\)")
_MENTION = re.compile(r"(?<!`)`([A-Z]\w+)(?:\([^`\n]*\))?`(?!`)")
_NOT_PROSE = re.compile(r"(^```.*?^```|<!--.*?-->|^#.*?$|\[[^\]]*\]\([^)]*\))", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


# Before mike's, which makes the addresses of versions from the site's.
@event_priority(100)
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the site's addresses from pyproject.toml.

    :param config: of the site.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config.site_url, config.repo_url = (project["urls"][name] for name in ("Documentation", "Repository"))
    config.repo_name = "Repository"
    config.extra["address"] = project["authors"][0]["email"]
    config.site_description = project["description"]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the repository's own pages.

    :param files: of the site.
    :param config: of the site.
    """
    for path, page in SHOWN.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))
    return files


def on_page_markdown(text: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, and lead links to where things are.

    :param text: of the page.
    :param page: the page.
    :param config: of the site.
    :param files: of the site.
    """
    there = page.file.src_uri
    home = next((path for path, shown in SHOWN.items() if shown == there), f"docs/{there}")
    address = config.extra["address"]
    parts = _FENCE.split(_ADDRESS.sub(f"[{address}](mailto:{address})", text))
    # Each second part is a fenced block.
    parts[::2] = [_LINK.sub(lambda link: led(link[1], home, there, config.repo_url or ""), part) for part in parts[::2]]
    text = "".join(parts)
    if not there.startswith("reference/"):
        return with_references(text, there)
    # What a docstring links to by its whole name is the heading above its directive.
    text = re.sub(r"^(## .*\n\n)::: (\S+)$", r"[](){#\2}\n\n\1::: \2", text, flags=re.MULTILINE)
    return filled(text)


def with_references(text: str, there: str) -> str:
    """Return a page's text in which the first mention of each class of the reference is a link to it.

    :param text: of the page.
    :param there: the page's path in the site.
    """
    home, seen = posixpath.relpath("reference", posixpath.dirname(there) or "."), set[str]()

    def linked(mention: re.Match[str]) -> str:
        name = mention[1]
        if name not in _described() or name in seen:
            return mention[0]
        seen.add(name)
        return f"[{mention[0]}]({home}/{_described()[name]}#{name.lower()})"

    parts = _NOT_PROSE.split(text)
    # Each second part is a fenced block, a comment, a heading or a link.
    parts[::2] = [_MENTION.sub(linked, part) for part in parts[::2]]
    return "".join(parts)


@cache
def _described() -> dict[str, str]:
    """Return the page of each class, by its name."""
    errors = re.findall(r"^## (\w+)$", (ROOT / "docs/reference/errors.md").read_text(), re.MULTILINE)
    classes = {path.rpartition(".")[2]: page for path, page in documented().items()}
    return {name: page for name, page in classes.items() if name[0].isupper()} | dict.fromkeys(errors, "errors.md")


def led(link: str, home: str, there: str, repository: str) -> str:
    """Return where a page's link leads in the site: to a page, or to a file of the repository.

    :param link: as the page has it, without an anchor.
    :param home: the page's path in the repository.
    :param there: the page's path in the site.
    :param repository: the repository's address.
    :raises PluginError: there is no such file.
    """
    path = posixpath.normpath(posixpath.join(posixpath.dirname(home), link))
    if not (ROOT / path).exists() or path.startswith(".."):
        raise PluginError(f"{home}: there is no {link}")
    if path in SHOWN or path.startswith("docs/"):
        page = SHOWN.get(path, path.removeprefix("docs/"))
        return posixpath.relpath(page, posixpath.dirname(there) or ".")
    version = os.environ.get("MIKE_DOCS_VERSION", "")
    commit = f"v{version}" if re.fullmatch(r"\d[\d.]*", version) else "main"
    return f"{repository}/{'tree' if (ROOT / path).is_dir() else 'blob'}/{commit}/{path}"
