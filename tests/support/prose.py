"""The sentences of a page, for tests of how long they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCED = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
_RULE = re.compile(r"[|\s:-]+")
_END = re.compile(r"(?<=[.?!])[)\]*_\"']*\s+")


def sentences(text: str) -> list[str]:
    """Return a page's sentences, with ``X`` for code and without the addresses of links.

    A sentence ends at a full stop, a question mark or an exclamation mark; at the end of a table's cell, a list's item
    or a paragraph. A semicolon or a colon ends none. Headings and code blocks, fenced or indented, have none.

    :param text: the page, in Markdown.
    """
    return [one.strip() for part in _parts(text) for one in _END.split(_plain(part)) if one.strip()]


def _plain(part: str) -> str:
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "X", part))


def _parts(text: str) -> Iterator[str]:
    """Yield paragraphs, items and cells."""
    text = _FENCED.sub("\n\n", _COMMENT.sub("", text))
    for paragraph in re.split(r"\n(?:[ \t]*\n)+", text):
        if all(line.startswith("    ") and not _ITEM.match(line) for line in paragraph.splitlines()):
            continue
        part: list[str] = []
        for line in paragraph.splitlines():
            if line.startswith("#") or (line.startswith("|") and _RULE.fullmatch(line)):
                continue
            if line.startswith("|"):
                yield from re.split(r"(?<!\\)\|", line.strip("|"))
                continue
            if item := _ITEM.match(line):
                yield " ".join(part)
                part = [line[item.end() :]]
            else:
                part.append(line.strip())
        yield " ".join(part)
