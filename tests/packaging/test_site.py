"""The docs' site in a browser: questions of a DAG author find their page, and no other host is asked for anything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import pytest

from tests.live.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
PAGES_THAT_ANSWER = {
    "CSV options": "start/first-table/",
    "one file a writer": "guides/many-files/",
    "what a writer leaves in XCom": "reference/results/",
    "an empty file": "start/first-table/",
    "renaming a DAG": "guides/rename-a-dag/",
    "make a table anew": "guides/new-table/",
    "how many writers at once": "guides/backfills/",
    "backfill by partition": "guides/backfills/",
    "installing into an image": "start/install/",
    "trying a DAG without a deployment": "start/first-table/",
    # As people type them.
    "airflow dags test": "start/first-table/",
    "decimal comma": "start/first-table/",
    "one file per writer": "guides/many-files/",
    "drop table": "guides/new-table/",
    "wrong columns": "guides/new-table/",
    "parallel writers": "guides/backfills/",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The site, built and served as any file server does; its address."""
    chromium()  # before anything is built
    built, home = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("airflow")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", built],
        env={**os.environ, "AIRFLOW_HOME": str(home), "NO_MKDOCS_2_WARNING": "1"},
        cwd=ROOT,
        check=True,
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(built))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def page(site: str) -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser.new_page()
        finally:
            browser.close()


def test_a_question_finds_its_page_among_the_first_three_and_no_other_host_is_asked(site: str, page: Page) -> None:
    asked = set[str]()
    page.on("request", lambda request: asked.add(request.url))
    found = {}
    for question in PAGES_THAT_ANSWER:
        page.goto(f"{site}?q={quote_plus(question)}")
        page.locator(".md-search-result__item").nth(2).wait_for(timeout=60_000)
        links = page.locator(".md-search-result__item > a").evaluate_all("links => links.map(link => link.href)")
        found[question] = [link.removeprefix(site).partition("?")[0] for link in links[:3]]
    assert {question: pages for question, pages in found.items() if PAGES_THAT_ANSWER[question] not in pages} == {}
    assert [url for url in asked if not url.startswith((site, "blob:", "data:"))] == []


def test_a_parameter_is_found_in_the_reference_with_its_type_and_its_default(site: str, page: Page) -> None:
    page.goto(f"{site}reference/operators/")
    rows = page.locator("#onelakewriteoperator ~ div table").first.locator("tr").filter(has_text="spark_timeout")
    assert "float | timedelta | None" in rows.first.inner_text()
    page.goto(f"{site}reference/errors/#conflicterror")
    assert page.locator("#conflicterror").is_visible()
