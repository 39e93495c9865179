"""The page Lakehouse, as a person sees it: what it draws is what the table's log says, and its links lead there and back."""

from __future__ import annotations

import re

import httpx
import pytest

from include.local.api import wait_for
from tests.live.browser import chromium, logged_in
from tests.live.harness import LiveStack
from tests.live.held_load import ROWS, WRITE, HeldLoad
from tests.live.trips import log_of


@pytest.mark.costs("It clicks through the whole view, with two loads behind it")
@pytest.mark.promise
def test_a_load_is_seen_and_its_links_lead_both_ways(live_stack: LiveStack, new_load: type[HeldLoad]) -> None:
    chromium()  # before anything is started
    # The docs have a picture of it.
    load = new_load(name="yellow_trips")
    load.start()
    assert load.end() == "success"
    table = f"Tables/{load.table.name}"
    page_of_table = f"plugin/lakehouse?connection=onelake_default&table={table}"

    with logged_in(live_stack) as ui:
        ui.open(page_of_table)
        bars = ui.page.locator("svg g.bar")
        bars.first.wait_for()
        assert bars.count() == len(log_of(load.table))

        # From a version to the task that wrote it.
        bars.last.press("Enter")
        ui.page.get_by_role("heading", name=f"Version {len(log_of(load.table)) - 1}").wait_for()
        writer = ui.page.locator("section table a").first
        writer.wait_for()
        writer.click()
        ui.page.wait_for_url(f"**/tasks/{WRITE}/mapped/*")

        # From the task's details to the version that it made.
        ui.open(f"{ui.page.url.removeprefix(live_stack.api.url + '/').partition('?')[0]}/details")
        ui.page.locator(f"a[href*='{page_of_table}&version=']").click()
        ui.page.get_by_role("heading", name="Version").first.wait_for()

        # From the run to its versions, and to the page.
        ui.open(f"dags/{load.dag_id}/runs/{load.run_id}/plugin/lakehouse-run")
        link = ui.page.get_by_role("link", name=table).first
        link.wait_for()
        # The table is asked what stands there now once the results of the run are shown.
        lines = ui.page.get_by_role("region", name="What was written").locator("tbody tr")
        for writer, rows in ROWS.items():
            lines.filter(has_text=writer).filter(
                has_text=re.compile(rf"held\.load.*published.*{rows}.*{rows}", re.S)
            ).wait_for()
        # The load's reconciliation repeats them, and has no line of its own.
        assert lines.count() == len(ROWS)
        ui.shoot("lakehouse-run", (0, 0, 1280, 420))
        link.click()
        ui.page.wait_for_url("**/plugin/lakehouse?*version=*")

        # What waits leads to its task, whose state is Airflow's own.
        load.hold("vendor-2.before-commit")
        load.start()
        load.wait_until_at("vendor-2.before-commit")
        ui.open(f"{page_of_table}&tab=Staged")
        waiting = ui.page.get_by_role("row").filter(has_text=load.run_id)
        waiting.filter(has_text="Nothing: its task is at work.").get_by_role("link", name="running").click()
        ui.page.wait_for_url(f"**/runs/*/tasks/{WRITE}/mapped/1*")
        load.release("vendor-2.before-commit")

        # One load more, one bar for each of its versions more.
        assert load.end() == "success"
        ui.open(page_of_table)
        wait_for(lambda: bars.count() == len(log_of(load.table)), "the new versions to be drawn", 30)
        for name in ("Partitions", "Staged", "Health"):
            ui.page.get_by_role("tab", name=name).click()
            ui.page.wait_for_url(f"**tab={name}")
        ui.page.get_by_role("button", name="Examine the table").click()
        ui.page.get_by_text("Every object of the table was looked at.").wait_for()

        # The list of tables says what the log says.
        ui.page.get_by_role("link", name="All tables of onelake_default").click()
        told = ui.page.get_by_role("row").filter(has=ui.page.get_by_role("link", name=table, exact=True))
        told.filter(has_text=f"{2 * sum(ROWS.values())}").filter(has_text="of held.load").wait_for()


def test_nobody_who_is_signed_out_is_answered(live_stack: LiveStack) -> None:
    for path in ("lakehouses", "static/lakehouse.js", "lakehouses/onelake_default/commits?table=Tables/trips"):
        assert httpx.get(f"{live_stack.api.url}/onelake/{path}").status_code == 401
