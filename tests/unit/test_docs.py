"""The docs quote DAGs that CI runs; this holds the quotes to them."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUOTE = re.compile(r"<!-- quoted from (\S+): (\S+) -->\n```python\n(.*?)```", re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
QUOTES = [(page.name, *match.groups()) for page in PAGES for match in QUOTE.finditer(page.read_text())]


def marked(file: str, mark: str) -> str:
    found = re.search(rf"# \[START {mark}\]\n(.*?)\s*# \[END {mark}\]", (ROOT / file).read_text(), re.DOTALL)
    assert found, f"{file} has no block {mark}"
    return textwrap.dedent(found[1]).strip() + "\n"


@pytest.mark.parametrize(("page", "file", "mark", "quoted"), QUOTES, ids=[f"{q[0]}:{q[2]}" for q in QUOTES])
def test_a_quote_is_the_code_that_runs(page: str, file: str, mark: str, quoted: str) -> None:
    assert quoted == marked(file, mark), f"run: python tests/unit/test_docs.py (to quote {file} in {page} again)"


def test_the_readme_quotes_the_smallest_dag() -> None:
    assert ("README.md", "howto_smallest_dag") in {(q[0], q[2]) for q in QUOTES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def quote_again() -> None:
    """Write the blocks of today into the pages."""
    for page in PAGES:
        text = page.read_text()
        fresh = QUOTE.sub(lambda m: f"<!-- quoted from {m[1]}: {m[2]} -->\n```python\n{marked(m[1], m[2])}```", text)
        page.write_text(fresh)


if __name__ == "__main__":
    quote_again()
