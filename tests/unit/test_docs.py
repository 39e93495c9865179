"""The docs quote DAGs that CI runs, and the code cites the docs' rules; this holds each to the other."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_provider_onelake import exceptions
from include.docs.generated import with_errors
from include.docs.hooks import SHOWN

ROOT = Path(__file__).parents[2]
QUOTE = re.compile(r"<!-- quoted from (\S+): (\S+) -->\n```python\n(.*?)```", re.DOTALL)
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "include/local_onelake/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
ERRORS = ROOT / "docs" / "reference" / "errors.md"
"""The page that is made from docstrings."""
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_are_headings(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text()):
        there = page.parent / target if target else page
        headings = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in anchors, f"{page.name} links to {target}#{anchor}"


def written() -> set[str]:
    return {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}


def in_nav(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for found in entry.values() if isinstance(entry, dict) else [entry]:
            yield from in_nav(found) if isinstance(found, list) else [found]


def test_the_sites_navigation_has_every_page_once_and_no_other() -> None:
    # Behind `nav:` are no tags of MkDocs, which a plain loader does not know.
    found = list(in_nav(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert len(found) == len(set(found))
    assert set(found) == written() | set(SHOWN.values())


def test_the_readme_tells_a_race_as_it_was_measured() -> None:
    table = re.compile(r"^\| way \| wall s \| CPU s of Spark \| jobs that failed \|\n(?:\|.*\n)+", re.MULTILINE)
    told, measured = (
        table.findall(page.read_text()) for page in (ROOT / "README.md", ROOT / "docs" / "project" / "performance.md")
    )
    assert len(measured) == 1
    assert told == measured, "copy the table of docs/project/performance.md into README.md"


def test_the_readme_is_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 1100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_are_short(page: Path) -> None:
    text = QUOTE.sub("", page.read_text()) if page != ERRORS else ""
    assert [line for line in text.splitlines() if len(line) > 130 and not line.startswith("|")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_table_has_its_rule_below_its_head(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert [table for table in tables if not re.match(r"\|.*\n\|( ?-+ ?\|)+\n", table)] == []


def rows_below(page: Path, heading: str) -> list[str]:
    """The rows of the first table below a heading."""
    below = page.read_text().partition(f"\n{heading}\n")[2]
    return re.findall(r"(?:^\|.*\n)+", below, re.MULTILINE)[0].splitlines()[2:]


def test_the_words_and_the_rooms_are_few() -> None:
    words = [
        row.split(" | ")[0].strip("| `")
        for row in rows_below(ROOT / "docs" / "concepts" / "how-it-works.md", "## Words")
    ]
    assert len(set(words)) == len(words) <= 50
    assert len(rows_below(ROOT / "docs" / "project" / "contributing.md", "## The rooms")) <= 20


def test_the_page_of_changes_is_short() -> None:
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 120


TEST = re.compile(r"((?:include/local_onelake/)?tests/[\w/]+\.py)::(\w+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_test_that_a_page_names_is_there(page: Path) -> None:
    for file, name in TEST.findall(page.read_text()):
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{page.name}: {file}::{name}"


def test_every_promise_of_security_names_the_test_that_would_fail() -> None:
    tables = re.findall(
        r"^\| promise \| test \|\n\|.*\n((?:\|.*\n)+)", (ROOT / "SECURITY.md").read_text(), re.MULTILINE
    )
    promises = [row.strip("|").split(" | ") for table in tables for row in table.splitlines()]
    assert len(tables) == 6
    assert [row for row in promises if len(row) != 2 or TEST.sub("", row[1]).strip(" `,")] == []
    assert all(TEST.search(tests) for _, tests in promises)


def test_the_page_of_security_is_short() -> None:
    assert len((ROOT / "SECURITY.md").read_text().splitlines()) <= 120


# They are part of an interface inside of the package, or a base class; nobody meets them in a task's log.
INSIDE = {"OneLakeError", "TerminalError", "TransientError", "ObjectNotFoundError", "ObjectExistsError"}


def test_the_page_of_errors_names_every_error_and_links_to_its_text() -> None:
    ours = {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and value.__module__ == exceptions.__name__
    }
    page = set(re.findall(r"\w+Error\b", (ROOT / "docs" / "operate" / "errors.md").read_text()))
    assert page - INSIDE == ours - INSIDE
    assert set(re.findall(r"^## (\w+)$", ERRORS.read_text(), re.MULTILINE)) == ours


# "(protocol: young)", also over two lines of a comment or of a docstring, or as a sentence of its own.
# A name in parentheses begins with a small letter; an annotation, "(protocol: Protocol)", does not.
CITED = re.compile(r"(?:\(p(?=rotocol:\s[a-z])|\bP)rotocol:\s([\w\s,-]+)[).]")
SOURCES = [
    path for room in ("airflow_provider_onelake", "include", "tests", "dags") for path in (ROOT / room).rglob("*.py")
]


def rules() -> set[str]:
    text = (ROOT / "docs" / "concepts" / "protocol.md").read_text()
    return {rule.lower() for rule in re.findall(r"^### (.+)$", text, re.MULTILINE)}


def cited(path: Path) -> set[str]:
    text = re.sub(r"\n\s*(?:# )?", " ", path.read_text())
    return {name.strip().lower() for names in CITED.findall(text) for name in names.split(",")}


def test_every_rule_that_is_cited_stands_in_the_protocol() -> None:
    unknown = {str(path.relative_to(ROOT)): names for path in SOURCES if (names := cited(path) - rules())}
    assert not unknown


def test_every_rule_is_cited_by_the_code_that_keeps_it() -> None:
    package = [path for path in SOURCES if path.is_relative_to(ROOT / "airflow_provider_onelake")]
    assert rules() - set().union(*map(cited, package)) == set()


def quote_again() -> None:
    """Write the blocks of today into the pages."""
    for page in PAGES:
        text = page.read_text()
        fresh = QUOTE.sub(lambda m: f"<!-- quoted from {m[1]}: {m[2]} -->\n```python\n{marked(m[1], m[2])}```", text)
        page.write_text(with_errors(fresh) if page == ERRORS else fresh)


if __name__ == "__main__":
    quote_again()
