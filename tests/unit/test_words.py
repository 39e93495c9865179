"""The docs are short, and so are their sentences. A bound is lowered when pages become plainer, and never raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.prose import sentences

ROOT = Path(__file__).parents[2]
LONG = 35
MOST_WORDS = 50_000
"""Of all Markdown but CHANGELOG.md and the reference, of which only the page of options is written by hand."""

# The longest sentence of a section's pages, and how many are longer than LONG.
BOUNDS: dict[str, tuple[int, int]] = {
    "docs/start": (LONG, 0),
    "docs/guides": (LONG, 0),
    "docs/concepts": (LONG, 0),
    "docs/operate": (LONG, 0),
    "docs/reference": (LONG, 0),
    "docs/project": (LONG, 0),
    "docs/index.md": (LONG, 0),
    "README.md": (LONG, 0),
    "SECURITY.md": (LONG, 0),
    "CODE_OF_CONDUCT.md": (LONG, 0),
    "include/local_onelake": (LONG, 0),
}


def pages() -> dict[str, list[Path]]:
    """The pages by section: a folder of docs, or else the page itself."""
    found = [
        *ROOT.glob("*.md"),
        *(
            page
            for room in ("docs", "include", "dags", "airflow_provider_onelake")
            for page in (ROOT / room).rglob("*.md")
        ),
    ]
    by_section: dict[str, list[Path]] = {}
    for page in sorted(found):
        path = page.relative_to(ROOT)
        if str(path) not in ("CHANGELOG.md", "docs/reference/errors.md"):
            by_section.setdefault("/".join(path.parts[:2]), []).append(page)
    return by_section


def test_every_section_has_a_bound() -> None:
    assert BOUNDS.keys() == pages().keys()


@pytest.mark.parametrize("section", BOUNDS)
def test_sentences_are_short(section: str) -> None:
    lengths = {
        f"{page.relative_to(ROOT)}: {one}": len(one.split())
        for page in pages()[section]
        for one in sentences(page.read_text())
    }
    long = [said for said, length in lengths.items() if length > LONG]
    longest, most = BOUNDS[section]
    assert max(lengths.values(), default=0) <= longest, max(lengths, key=lambda said: lengths[said])
    assert len(long) <= most, "\n".join(long)


def test_the_docs_are_short() -> None:
    written = [page for found in pages().values() for page in found if page.parent.name != "reference"]
    counted = {str(page): len(page.read_text().split()) for page in (*written, ROOT / "docs/reference/options.md")}
    assert sum(counted.values()) <= MOST_WORDS, (sum(counted.values()), counted)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One. Two? Three!", ["One.", "Two?", "Three!"]),
        ("One: two; three\nand four.", ["One: two; three and four."]),
        ("- one\n  more\n- two\n", ["one more", "two"]),
        ("| a | b |\n|---|---|\n| c `d \\| e` | f |", ["a", "b", "c X", "f"]),
        ("# Heading\nText `a. b` [link](x.md#y).\n\n```python\nno. no.\n```\n", ["Text X [link]."]),
        ("Text.\n\n    no. no.\n\n1. one\n    - two\n", ["Text.", "one", "two"]),
        ("<!-- quoted from x: y -->\nText.", ["Text."]),
    ],
)
def test_what_a_sentence_is(text: str, found: list[str]) -> None:
    assert sentences(text) == found
