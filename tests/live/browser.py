"""Airflow's web UI in the system's Chromium, as a person uses it."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from include.local.settings import REPOSITORY, USER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator, Page

    from tests.live.harness import LiveStack

IMAGES = REPOSITORY / "docs" / "images"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PLACES = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/snap/bin/chromium",
)
_MISSING = (
    "No Chromium was found: install it (Debian: apt install chromium; macOS: brew install --cask chromium), or name the "
    "program in the environment variable CHROMIUM"
)
# The machine may be busy with Spark.
_PATIENCE = 60_000


def chromium() -> str:
    """Return the path of the system's Chromium; without one the test is skipped, which fails in CI."""
    named = os.environ.get("CHROMIUM")
    found = [shutil.which(name) for name in ([named] if named else _NAMES)]
    found += [] if named else [place for place in _PLACES if Path(place).exists()]
    path = next(filter(None, found), None)
    if path is None:
        pytest.skip(f"CHROMIUM={named} is no program" if named else _MISSING)
    return path


class Ui:
    """A browser that is logged in."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self._url = url

    def open(self, path: str) -> None:
        """Go to a page, such as ``dags/taxi``."""
        self.page.goto(f"{self._url}/{path}")

    def open_backfill_dialog(self, dag_id: str) -> Locator:
        """Press *Trigger* on a DAG's page, and choose *Backfill*; returns the dialog."""
        self.open(f"dags/{dag_id}")
        self.page.get_by_test_id("trigger-dag-button").click()
        dialog = self.page.get_by_role("dialog").filter(has_text=dag_id)
        dialog.get_by_text("Run this Dag for a range of dates").click()
        return dialog

    def follow(self, name: str) -> Page:
        """Press a link of the task whose details are shown; returns the page that opens."""
        with self.page.expect_popup() as opened:
            self.page.get_by_role("link", name=name).click()
        return opened.value

    def shoot(self, name: str, clip: tuple[int, int, int, int] = (0, 0, 1280, 960)) -> None:
        """Keep what is to be seen for the docs, where UI_IMAGES asks for it; of it x, y, width and height."""
        if os.environ.get("UI_IMAGES"):
            IMAGES.mkdir(exist_ok=True)
            # A directory of this machine is nobody else's business.
            hidden = [self.page.locator("#element_input")]
            self.page.screenshot(
                path=IMAGES / f"{name}.png",
                clip={"x": clip[0], "y": clip[1], "width": clip[2], "height": clip[3]},
                animations="disabled",
                mask=hidden,
                mask_color="#e2e8f0",
            )


def fill_in(dialog: Locator, first: date, last: date, *, runs: int, params: dict[str, str]) -> None:
    """Fill in the backfill's dialog."""
    for number, day in enumerate((first, last)):
        dialog.get_by_test_id("datetime-input").nth(number).click()
        picker = dialog.page.locator("[data-scope=popover][data-state=open]").filter(has_text="Su")
        picker.get_by_placeholder("YYYY/MM/DD").fill(f"{day:%Y/%m/%d}")
        picker.get_by_placeholder("HH:mm").fill("00:00")
        dialog.get_by_text("Date Range").click()
        picker.wait_for(state="hidden")
    dialog.locator("input[name=max_active_runs]").fill(str(runs))
    # Without this the form ignores what is edited below.
    dialog.get_by_text("Override parameters on existing runs").click()
    for name, value in params.items():
        dialog.locator(f"#element_{name}").fill(value)


@contextmanager
def logged_in(stack: LiveStack, *, width: int = 1280) -> Iterator[Ui]:
    """Log in by the form, as the administrator."""
    with browsing(stack.api.url, USER, stack.settings.password, width=width) as ui:
        yield ui


@contextmanager
def browsing(url: str, name: str, password: str, *, dark: bool = False, width: int = 1280) -> Iterator[Ui]:
    """Log in by the form, as any user."""
    from playwright.sync_api import sync_playwright

    program = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        try:
            page = browser.new_page(viewport={"width": width, "height": 960})
            page.set_default_timeout(_PATIENCE)
            page.add_init_script(f"localStorage.setItem('theme', '{'dark' if dark else 'light'}')")
            ui = Ui(page, url)
            ui.open("")
            page.locator("input[name=username]").fill(name)
            page.locator("input[type=password]").fill(password)
            page.keyboard.press("Enter")
            page.get_by_role("link", name="Dags").first.wait_for()
            yield ui
        finally:
            browser.close()
