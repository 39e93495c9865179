"""DAGs that are wrong, as a person sees them in the web UI: what is wrong is in sight, without a step to the side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs
import pytest

from include.local.api import wait_for
from tests.live.browser import Ui, chromium, logged_in
from tests.live.harness import LiveStack
from tests.support.failing_dags import FILES, HALF_A_KEY, PARSE, said

if TYPE_CHECKING:
    from playwright.sync_api import Locator

PARSED = [file for file in FILES if said(file)[0] != PARSE]
REFUSED = [file for file in FILES if said(file)[0] == PARSE]

# A line of a log shows about 100 characters in it.
NARROW = 1110
# Other animations, such as a spinner's, never end.
_UNFOLDED = """Promise.allSettled(document.getAnimations()
    .filter(each => each.effect.getComputedTiming().endTime !== Infinity).map(each => each.finished))"""
# The dialog shows so many errors without being scrolled.
FEW = 2


@attrs.frozen
class Failing:
    """A stack that knows some DAGs that fail, and why it does not take others."""

    stack: LiveStack
    parsed: Sequence[Path]
    refused: Sequence[Path]


@pytest.fixture
def failing(request: pytest.FixtureRequest, live_stack: LiveStack) -> Iterator[Failing]:
    """A stack with as many DAGs of each kind as asked for. Afterwards it does not know their files any more."""
    chromium()
    found = Failing(live_stack, PARSED[: request.param], REFUSED[: request.param])
    files = [*found.parsed, *found.refused]
    api = live_stack.api
    api.request("POST", "connections", json={"connection_id": "half_a_key", **HALF_A_KEY})
    for file in files:
        (live_stack.dags / file.name).write_text(file.read_text())
    dags, refused = {file.stem for file in found.parsed}, {file.name for file in found.refused}
    wait_for(lambda: dags <= {dag["dag_id"] for dag in api.dags()}, "the DAGs to be parsed", 60)
    wait_for(lambda: refused <= {error["filename"] for error in api.import_errors()}, "the others to be refused", 60)
    yield found
    for file in files:
        (live_stack.dags / file.name).unlink()
    wait_for(lambda: not api.import_errors(), "the errors to be forgotten", 60)


@pytest.mark.parametrize(
    "failing",
    [pytest.param(FEW, id="two of each kind"), pytest.param(None, id="all", marks=pytest.mark.nightly)],
    indirect=True,
)
def test_all_that_a_failing_dag_says_is_in_sight(failing: Failing) -> None:
    api, runs = failing.stack.api, {}
    for file in failing.parsed:
        api.unpause(file.stem)
        runs[file.stem] = api.trigger(file.stem)
    for dag_id, run_id in runs.items():
        assert api.wait_for_run(dag_id, run_id, 120)["state"] == "failed"

    with logged_in(failing.stack, width=NARROW) as ui:
        for file in failing.parsed:
            at, error = said(file)
            ui.open(f"dags/{file.stem}/runs/{quote(runs[file.stem])}/tasks/{at}")
            # Of the message, the first line is the log's own: below it, Airflow shows the exception, cut off.
            shown = ui.page.locator("span.event").filter(has_text=re.compile(rf"^{error.partition(':')[0]}: "))
            shown.wait_for()
            message = " ".join(shown.inner_text().split())
            assert message.startswith(error)
            assert message.endswith(f"More: docs/reference/errors.md#{error.partition(':')[0].lower()}")
            assert_in_sight(ui, shown, ui.page.get_by_test_id("virtual-scroll-container"))

        ui.open("")
        ui.page.get_by_text(re.compile("Dag Import Errors?$")).click()
        dialog = ui.page.get_by_role("dialog")
        for file in failing.refused:
            dialog.get_by_role("button", name=file.name).click()
            shown = dialog.locator("code").filter(has_text=said(file)[1])
            shown.wait_for()
            if len(failing.refused) > FEW:
                # A list of many errors is longer than the dialog: a person scrolls to the one that is of interest.
                shown.scroll_into_view_if_needed()
            assert_in_sight(ui, shown, dialog)
            dialog.get_by_role("button", name=file.name).click()
            shown.wait_for(state="hidden")


def assert_in_sight(ui: Ui, shown: Locator, inside: Locator) -> None:
    """See that nobody has to scroll to read something: not the page, and not what it stands in."""
    # What unfolds is measured when it has unfolded.
    ui.page.evaluate(_UNFOLDED)
    box, around = shown.bounding_box(), inside.bounding_box()
    assert box is not None
    assert around is not None
    size = ui.page.viewport_size
    assert size is not None
    assert box["x"] >= around["x"]
    assert box["x"] + box["width"] <= min(around["x"] + around["width"], size["width"])
    assert box["y"] >= around["y"]
    assert box["y"] + box["height"] <= min(around["y"] + around["height"], size["height"])
