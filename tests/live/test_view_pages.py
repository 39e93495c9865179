"""The page Lakehouse as people with every kind of permission see it, by mouse, by keyboard, light, dark and narrow.

No load runs here: an API server alone shows tables that are made without Spark (``test_view.py`` runs loads).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs
import httpx
import pytest
from fastapi.routing import APIRoute

from airflow_provider_onelake.buffers.buffer import audited
from airflow_provider_onelake.buffers.claims import Start, begin
from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.buffers.verdict import CheckVerdict, Verdict
from airflow_provider_onelake.choices import OnFailedCheck, PublishMode
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.view.routes import app
from airflow_provider_onelake.writes.policy import Policy
from airflow_provider_onelake.writes.publish import Committer
from tests.live.browser import Ui, browsing, chromium
from tests.support.changes import ChangeByHand, change_of
from tests.support.tables import OVERWRITE, begun, foreign_append, make_table, stage, writer_spec
from tests.support.view_server import ViewServer

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

TRIPS = "plugin/lakehouse?connection=onelake_default&table=Tables/trips"
ROUTES = [route for route in app.routes if isinstance(route, APIRoute)]
LONG = "a_table_with_a_very_long_name_" * 4 + "x"
MARKUP = "<img src=x onerror=window.ran=1>"
# The contrast of an element with what is behind it (https://www.w3.org/TR/WCAG21/#contrast-minimum).
CONTRAST = """(element, property) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (color, below) => {
    canvas.fillStyle = below; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (channels) => channels.map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const page = getComputedStyle(document.querySelector(".lh input, .lh button")).backgroundColor;
  const [one, other] = [rgb(getComputedStyle(element)[property], page), rgb(page, page)].map(light);
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
}"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ViewServer, list[int]]]:
    """An API server and its lakehouses: one with tables, an empty one, one that is gone, and none.

    With it come the statuses of the first requests that it gets, which are many at once.
    """
    root = tmp_path_factory.mktemp("view")
    for name in ("lake", "empty", "state"):
        (root / name).mkdir()
    tables = root / "lake" / "Tables"
    trips = make_table(tables / "trips")
    for number in range(4):
        spec = writer_spec("late", Load("test", "taxi", "load", f"r{number}"), task="load.write", **OVERWRITE)
        begin(trips, spec.identity, Start(id=f"d{number}", task="load.write", run_id=f"r{number}", chain=f"c{number}"))
        late = stage(trips, spec, {"1": [1, 2]})
        early = writer_spec("early", Load("test", "rival", "load", f"r{number}"), **OVERWRITE)
        Committer(trips).publish([stage(trips, early, {"1": [3] * (number + 1)})])
        Committer(trips).publish([late], Policy.LAST_WRITER_WINS)
    of_spark = {"operation": "MERGE", "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0"}
    foreign_append(trips, {"2": [9]}, timestamp=time.time_ns() // 1_000_000, **of_spark)
    fares(make_table(tables / "fares"))
    sales = make_table(tables / "sales")
    Committer(sales).publish([stage(sales, writer_spec("eu", Load("test", "sales", "load", RUN)), {"1": [1]})])
    long = make_table(root / "long" / "Tables" / LONG)
    key = "a-writer-with-a-very-long-key-" * 4
    Committer(long).publish([stage(long, writer_spec(key, Load("test", "taxi", "load", "r")), {"m" * 120: [1]})])
    marked = make_table(root / "long" / "Tables" / MARKUP)
    said = {"operation": MARKUP, "engineInfo": MARKUP, "userMetadata": MARKUP}
    foreign_append(marked, {MARKUP: [1]}, **said)
    stage(marked, writer_spec(MARKUP, Load("test", MARKUP, MARKUP, MARKUP), task=MARKUP), {"1": [1]})
    checked_load(make_table(tables / "checked"))
    many = make_table(tables / "many")
    for number in range(120):
        foreign_append(many, {"1": [number]}, timestamp=1_548_979_200_000 + number, engineInfo="Apache-Spark/4.2.0")
    Path(make_table(tables / "damaged").table, "_delta_log", f"{1:020d}.json").write_text("{not json")
    lakehouses = {
        "onelake_default": root / "lake",
        "empty": root / "empty",
        "gone": root / "gone",
        "none": None,
        "long": root / "long",
    }
    with ViewServer(root / "state", lakehouses) as running:
        client = running.signed_in("viewer")
        asked = [f"/onelake/lakehouses{path}" for path in ("", "/onelake_default/tables", "/empty/tables")] * 5
        with ThreadPoolExecutor(len(asked)) as pool:
            yield running, list(pool.map(lambda path: client.get(path).status_code, asked))


def fares(log: DeltaLog) -> None:
    """A DELETE and an UPDATE by tasks; and writers that wait, all but the second one with all their rows."""
    foreign_append(log, {"1": list(range(100))}, timestamp=time.time_ns() // 1_000_000, engineInfo="Apache-Spark/4.2.0")
    forget = change_of(log, ChangeByHand(hits=lambda row: row < 2), where="id < 2", task="forget")
    mend = change_of(log, ChangeByHand(hits=lambda row: row == 9), "UPDATE", task="mend", assignments={"id": "0"})
    for statement in (forget, mend):
        statement.run = attrs.evolve(statement.run, dag="privacy", run_id=RUN)
        statement.carry_out()
    for number, key in enumerate(WAITING):
        spec = writer_spec(key, Load("test", "taxi", "load", RUN))
        begin(log, spec.identity, Start(id=key, task=f"load.write[{number}]", run_id=RUN, chain=key))
        if number == 1:
            begun(log, spec)
        else:
            stage(log, spec, {"1": [1]})


RUN = "manual__2019-02-01"
WAITING = dict(zip(map("vendor-{}".format, range(1, 6)), ("failed", "failed", "running", "success", None), strict=True))


def checked_load(log: DeltaLog) -> None:
    """Two writers that were published together: rows of one fail a check, and both have too few."""
    checks = {"no negative fares": "fare >= 0", "enough trips": "count(*) > 9"}
    buffers = []
    for number, key in enumerate(("eu", "us")):
        spec = writer_spec(key, checks=checks, on_failed_check=OnFailedCheck.WARN, publish=PublishMode.TOGETHER)
        results = (
            CheckVerdict(name="no negative fares", sql="fare >= 0", each_row=True, met=not number, failed=7 * number),
            CheckVerdict(name="enough trips", sql="count(*) > 9", each_row=False, met=False),
        )
        buffers.append(audited(log.store, stage(log, spec, {"1": [number]}), Verdict(1, results)))
    Committer(log).publish(buffers)


@pytest.fixture
def server(fresh: tuple[ViewServer, list[int]]) -> ViewServer:
    """The API server alone."""
    return fresh[0]


# -- who may see what, by HTTP ----------------------------------------------------------------------------------------


def statuses(client: httpx.Client) -> dict[str, int]:
    """What each route answers of the table of trips."""
    paths = {
        route.path: route.path.format(name="lakehouse.js", connection="onelake_default", version=0) for route in ROUTES
    }
    return {
        route: client.get(f"/onelake{path}", params={"table": "Tables/trips"}).status_code
        for route, path in paths.items()
    }


def test_every_route_refuses_whoever_is_signed_out_or_has_no_permission(server: ViewServer) -> None:
    assert set(statuses(server.client()).values()) == {401}
    assert set(statuses(server.signed_in("viewer")).values()) == {200}
    for name in ("nobody", "no_assets"):
        refused = statuses(server.signed_in(name))
        # The page's own script holds nothing of anybody's.
        assert refused.pop("/static/{name}") == 200
        assert set(refused.values()) == {403}


def test_a_fresh_server_answers_the_first_requests_which_come_at_once(fresh: tuple[ViewServer, list[int]]) -> None:
    # Eight are answered at once, and more are told to come again.
    assert 200 in fresh[1]
    assert set(fresh[1]) <= {200, 503}


def test_tables_of_dags_that_are_not_theirs_are_refused(server: ViewServer) -> None:
    client = server.signed_in("reader_of_sales")
    # No DAG has loaded "many" or "fares".
    found = client.get("/onelake/lakehouses/onelake_default/tables").json()["tables"]
    assert sorted(row["table"] for row in found) == ["Tables/fares", "Tables/many", "Tables/sales"]
    refused = statuses(client)
    of_tables = {
        route: status for route, status in refused.items() if "{connection}" in route and "tables" not in route
    }
    assert set(of_tables.values()) == {403}
    answer = client.get("/onelake/lakehouses/onelake_default/commits", params={"table": "Tables/sales"})
    assert [commit["writers"] for commit in answer.json()["commits"]] == ["eu", None]


# -- what they see ----------------------------------------------------------------------------------------------------


def drawn(page: Page) -> list[int]:
    page.locator("svg g.bar").first.wait_for()
    return [int(bar.get_attribute("data-version") or "") for bar in page.locator("svg g.bar").all()]


def focused(page: Page) -> str:
    """What a screen reader would say of the element that has the focus: its label, or else its text."""
    said: str = page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText")
    return said.strip()


def test_a_link_with_filters_shows_the_same_to_everybody(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        ui.open(TRIPS)
        assert drawn(ui.page) == list(range(10))
        ui.page.get_by_role("textbox", name="DAG").fill("taxi")
        ui.page.get_by_label("Only with conflicts").check()
        ui.page.get_by_role("textbox", name="Since").fill("3")
        ui.page.keyboard.press("Enter")
        ui.page.get_by_text("Versions 3 to 9 searched: 3 found.").wait_for()
        assert drawn(ui.page) == [4, 6, 8]
        link = ui.page.url.removeprefix(f"{server.url}/")
        ui.page.get_by_role("button", name="Show all").click()
        ui.page.get_by_text("Versions 0 to 9").wait_for()
        ui.page.go_back()
        ui.page.get_by_text("searched: 3 found").wait_for()
        assert ui.page.get_by_role("textbox", name="DAG").input_value() == "taxi"
        ui.page.get_by_role("textbox", name="Writer").fill("nobody's")
        ui.page.get_by_role("button", name="Filter").click()
        ui.page.get_by_text("searched: none found").wait_for()
        assert ui.page.locator("svg g.bar").count() == 0
        ui.page.get_by_role("textbox", name="Until").fill("tomorrow")
        ui.page.keyboard.press("Enter")
        ui.page.get_by_role("alert").get_by_text("until='tomorrow' is neither a version nor a time").wait_for()
    with browsing(server.url, "admin", "admin") as ui:
        ui.open(link)
        assert drawn(ui.page) == [4, 6, 8]
        assert ui.page.get_by_label("Only with conflicts").is_checked()


def test_a_link_to_an_old_version_shows_it_among_its_neighbours(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        ui.open(TRIPS.replace("trips", "many") + "&version=10")
        ui.page.get_by_role("heading", name="Version 10").wait_for()
        assert drawn(ui.page) == list(range(61))
        ui.page.get_by_role("button", name="Newest").click()
        ui.page.get_by_text("Versions 21 to 120").wait_for()
        ui.page.get_by_role("button", name="Older").click()
        ui.page.get_by_text("Versions 0 to 20").wait_for()
        assert "before=21" in ui.page.url


def test_what_checks_said_stands_with_the_version(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        ui.open(TRIPS.replace("trips", "checked") + "&version=1")
        lines = ui.page.get_by_role("region", name="Checks").locator("tbody tr")
        lines.first.wait_for()
        said = [" | ".join(line.locator("td").all_inner_texts()).replace("\n", " ") for line in lines.all()]
        # What failed comes first.
        assert {line.split(" | ", 1)[1] for line in said[:2]} == {
            "failed | 7 | published, with a warning | us",
            "failed | \N{EN DASH} | published, with a warning | eu, us",
        }
        assert said[2:] == ["no negative fares fare >= 0 | passed | 0 |  | eu"]


def test_the_tab_of_a_run_says_what_is_in_the_table_now_whatever_its_tasks_said_then(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        ui.open("plugin/lakehouse")
        lake = httpx.get(f"{server.url}/onelake/lakehouses", headers=server.signed_in("viewer").headers).json()[0]
        whose = {"table": f"{lake['lakehouse']}/Tables/trips", "group": "load", "dag": "taxi"}
        told = {
            "early": {
                **whose,
                "dag": "rival",
                "writer": "early",
                "status": "published",
                "rows": 1,
                "version": 1,
                "decisions": [],
            },
            "staged": {**whose, "writer": "late", "status": "staged", "rows": 2, "version": None},
            "reconcile": {
                "table": whose["table"],
                "load": "test/taxi/load/r3",
                "version": 8,
                "writers": [
                    {"writer": "late", "status": "superseded", "version": 8, "decisions": []},
                    {"writer": "lost", "status": "missing", "version": None, "rows_staged": 0},
                ],
            },
            "elsewhere": {"table": "s3://b/t", "writer": "w", "status": "already_published", "rows": 3, "version": 7},
            "forget": {"table": whose["table"], "status": "done", "version": 3, "summary": "version 3 deleted 2 rows"},
        }
        entries = [{"task_id": task, "map_index": -1} for task in told]

        def answer(route: Route) -> None:
            task = route.request.url.split("/taskInstances/")[1].split("/")[0]
            whole = {"xcom_entries": entries, "total_entries": len(entries)}
            route.fulfill(json=whole if task == "~" else {"value": told[task]})

        ui.page.route("**/xcomEntries**", answer)
        ui.open("dags/rival/runs/r0/plugin/lakehouse-run")
        lines = ui.page.get_by_role("region", name="What was written").locator("tbody tr")
        ui.page.get_by_text("its rows were replaced by early of rival.load, run r1 in version 3").wait_for()
        said = [line.replace("\n", " ").split("\t") for line in lines.all_inner_texts()]
        late = "version 7 (early of rival.load, run r3) put 4 rows into month=1, and finished later"
        late = f"all of it is superseded, 2 rows in month=1: {late}"
        gone = "its rows were replaced by early of rival.load, run r1 in version 3"
        assert [[cell.strip() for cell in line[:6]] for line in said] == [
            ["early", "early rival.load", f"replaced by other writers {gone}", "1", "0", "1"],
            ["staged", "late taxi.load", f"replaced by other writers {late}", "2", "0", "8"],
            # Of a writer whose own task has left nothing, the load's reconciliation tells.
            ["reconcile", "lost taxi.load", "missing: it left no complete buffer", "0", "0", ""],
            ["elsewhere", "w", "published by an earlier try", "3", "?", "7"],
            ["forget", "", "version 3 deleted 2 rows", "", "", "3"],
        ]


def test_all_of_the_page_can_be_reached_and_used_by_keyboard(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        page = ui.page
        ui.open(TRIPS)
        drawn(page)
        page.get_by_role("link", name="All tables of onelake_default").focus()
        reached = []
        for _ in range(14):
            reached.append(focused(page))
            shown = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            bar = page.evaluate("document.activeElement.matches('g.bar')")
            # Of a bar, the background is outlined, as an SVG's own outline is not drawn everywhere.
            assert shown != "none" or bar, reached
            page.keyboard.press("Tab")
        assert [words for words in reached if words.startswith("Version ")] == [reached[reached.index("Filter") + 1]]
        assert "Versions" in reached  # the tab, and then the table that can be scrolled
        for needed in ("Filter", "Close version"):
            assert (needed in reached) is (needed == "Filter")

        page.locator("svg g.bar[tabindex='0']").focus()
        for key, version in (
            ("End", 9),
            ("ArrowLeft", 8),
            ("ArrowLeft", 7),
            ("ArrowRight", 8),
            ("Home", 0),
            ("End", 9),
        ):
            page.keyboard.press(key)
            assert focused(page).startswith(f"Version {version},")
        page.keyboard.press("ArrowLeft")
        assert "conflicts settled" in focused(page)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Version 8").wait_for()
        page.wait_for_function("document.activeElement.tagName === 'H2'")
        why = "version 7 (early of rival.load, run r3) put 4 rows into month=1, and finished later"
        page.get_by_role("listitem").get_by_text(why).wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("heading", name="Version 8").wait_for(state="detached")
        assert focused(page).startswith("Version 8,")
        assert "version=" not in page.url

        page.get_by_role("tab", name="Versions").focus()
        for key, tab in (
            ("ArrowRight", "Partitions"),
            ("End", "Health"),
            ("ArrowRight", "Versions"),
            ("ArrowLeft", "Health"),
        ):
            page.keyboard.press(key)
            page.wait_for_url(f"**tab={tab}*")
            page.wait_for_function("name => document.activeElement?.innerText === name", arg=tab)
            assert page.get_by_role("tab", selected=True).inner_text() == tab
            page.get_by_role("tabpanel", name=tab).wait_for()


def text_of(ui: Any, path: str) -> str:
    """All that is on the page, once it has no more to load."""
    ui.open(path)
    page = ui.page.locator(".lh")
    page.wait_for()
    page.get_by_text("Loading").first.wait_for(state="detached")
    said: str = page.inner_text()
    return said


def cells(ui: Ui, name: str) -> list[list[str]]:
    """What a table of the page says, row by row."""
    rows = ui.page.get_by_role("region", name=name).locator("tbody tr")
    rows.first.wait_for()
    return [[cell.replace("\n", " ") for cell in row.locator("td").all_inner_texts()] for row in rows.all()]


def test_the_page_opens_with_the_tables_of_the_first_lakehouse(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        ui.open("plugin/lakehouse")
        found = {row[0]: row[1:] for row in cells(ui, "Tables")}
        assert set(found) == {f"Tables/{name}" for name in ("trips", "fares", "checked", "damaged", "many", "sales")}
        # What cannot be read is told, and comes first.
        assert next(iter(found)) == "Tables/damaged"
        assert found["Tables/damaged"][-1].startswith("broken Version 1 of Tables/damaged is not JSON")
        assert found["Tables/sales"][:2] == ["1", "1"]
        assert found["Tables/sales"][-2:] == [f"eu of sales.load run {RUN}", "well"]
        assert found["Tables/fares"][4] == f"privacy.mend run {RUN}"
        assert found["Tables/many"][0] == "?"
        assert found["Tables/many"][-1] == "slow Since its newest checkpoint, its log has 121 entries."
        ui.page.get_by_text("none: The connection 'none' has no lakehouse").wait_for()
        ui.shoot("lakehouse-tables", (0, 0, 1280, 560))

        # By keyboard: a filter, which stands in the address, and a table.
        ui.page.get_by_role("textbox", name="Table").fill("SAL")
        ui.page.keyboard.press("Enter")
        ui.page.wait_for_url("**find=SAL*")
        ui.page.get_by_text("1 table. What").wait_for()
        assert focused(ui.page) == "Filter"
        ui.page.get_by_role("link", name="Tables/sales").press("Enter")
        ui.page.wait_for_url("**table=Tables%2Fsales")
        assert drawn(ui.page) == [0, 1]
        ui.page.get_by_role("link", name="All tables of onelake_default").press("Enter")
        assert len(cells(ui, "Tables")) == len(found)
        # One word leads to the numbers.
        ui.page.get_by_role("row").filter(has_text="Tables/many").get_by_role("link", name="slow").click()
        assert ["Files", "120", "Nothing."] in cells(ui, "Numbers")
        ui.page.get_by_role("link", name="All tables of onelake_default").click()
        ui.page.get_by_label("Connection").select_option("empty")
        ui.page.get_by_text("There is no table yet that you may see.").wait_for()
        ui.open("plugin/lakehouse?connection=onelake_default&find=nothing+of+this")
        ui.page.get_by_text("No table that you may see has nothing of this in its path.").wait_for()


def test_a_version_is_by_its_task_and_counts_the_rows_that_changed(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        ui.open(TRIPS.replace("trips", "fares") + "&version=2")
        told = {row[0]: row[2:5] for row in cells(ui, "Versions")}
        assert told["3"] == ["UPDATE", f"privacy.mend run {RUN}", "0 1 updated"]
        assert told["2"] == ["DELETE", f"privacy.forget run {RUN}", "\N{MINUS SIGN}2"]
        assert told["1"] == ["WRITE", "Apache-Spark/4.2.0", "+100"]
        bar = ui.page.locator("svg g.bar[data-version='2']")
        assert (bar.get_attribute("aria-label") or "").startswith("Version 2, DELETE, \N{MINUS SIGN}2 rows, ")
        link = ui.page.get_by_role("region", name="Version 2").get_by_role("link", name="privacy.forget")
        assert (link.get_attribute("href") or "").endswith(f"/dags/privacy/runs/{RUN}/tasks/forget")
        ui.page.get_by_text("DELETE WHERE id < 2").wait_for()


def test_what_waits_says_how_its_task_is_and_what_to_do(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        keys = list(WAITING)

        def answer(route: Route) -> None:
            state = WAITING[keys[int(route.request.url.rpartition("/")[2])]]
            route.fulfill(status=200 if state else 404, json={"state": state})

        ui.page.route(f"**/api/v2/dags/taxi/dagRuns/{RUN}/taskInstances/load.write/*", answer)
        ui.open(TRIPS.replace("trips", "fares") + "&tab=Staged")
        ui.page.get_by_role("link", name="running").wait_for()
        told = {row[0]: [row[1], row[2], row[4]] for row in cells(ui, "Staged")}
        command = "onelake reconcile Tables/fares --connection onelake_default"
        vacuum = "If it is not wanted, leave it: a vacuum takes its files."
        ready, reconcile = "in flight complete", "Look at its load's reconcile, which publishes it."
        assert told == {
            f"writer vendor-1 of taxi.load run {RUN}": [
                ready,
                "failed",
                f"Clear its task; or publish its rows: {command}",
            ],
            f"writer vendor-2 of taxi.load run {RUN}": [
                "in flight not complete",
                "failed",
                f"Clear its task. {vacuum}",
            ],
            f"writer vendor-3 of taxi.load run {RUN}": [ready, "running", "Nothing: its task is at work."],
            f"writer vendor-4 of taxi.load run {RUN}": [ready, "success", reconcile],
            f"writer vendor-5 of taxi.load run {RUN}": [
                ready,
                "gone",
                f"Its run is gone: trigger it again; or publish its rows: {command}",
            ],
        }
        link = ui.page.get_by_role("link", name="running").get_attribute("href") or ""
        assert link.endswith(f"/dags/taxi/runs/{RUN}/tasks/load.write/mapped/2")
        ui.shoot("lakehouse-staged", (0, 0, 1280, 560))


def test_health_has_numbers_at_once_and_all_of_them_by_a_click(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        ui.open(TRIPS.replace("trips", "fares") + "&tab=Health")
        assert cells(ui, "Numbers")[0] == ["Rows", "98", "Nothing."]
        ui.page.get_by_role("button", name="Examine the table").click()
        # Not all is well where buffers of failed tasks wait.
        ui.page.get_by_text("Every object of the table was looked at.", exact=True).wait_for()
        numbers = {name: [number, todo] for name, number, todo in cells(ui, "Numbers")}
        whose = "Staged says whose they are, how their tasks are, and what to do."
        assert numbers["Buffers in flight"] == ["5", whose]
        assert numbers["Log entries since the newest checkpoint"] == ["4", "Nothing."]
        ui.shoot("lakehouse-health", (0, 0, 1280, 480))
        ui.page.get_by_role("link", name="Staged").click()
        ui.page.get_by_role("tab", name="Staged", selected=True).wait_for()


def test_what_there_is_not_or_may_not_be_seen_is_said(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        for connection, said in (
            ("empty", "There is no table yet that you may see."),
            ("none", "The connection 'none' has no lakehouse"),
            ("gone", "There is no directory"),
            ("unknown", "The page shows no connection 'unknown'"),
        ):
            shown = text_of(ui, f"plugin/lakehouse?connection={connection}")
            assert said in shown
            # What is wrong elsewhere is nothing to somebody who looks at another lakehouse.
            assert ("has no lakehouse" in shown) is (connection == "none")
        assert "is not JSON" in text_of(ui, TRIPS.replace("trips", "damaged"))
    with browsing(server.url, "reader_of_sales", "reader_of_sales") as ui:
        assert "Tables/trips is written by DAGs that you may not read" in text_of(ui, TRIPS)
        assert "late" not in text_of(ui, f"{TRIPS}&version=2")
    with browsing(server.url, "no_assets", "no_assets") as ui:
        assert "it needs the permission to read assets" in text_of(ui, TRIPS)


NO_LISTS = [{"connection": "onelake_default", "lakehouse": None, "error": "The conn_id isn't defined"}]


def test_a_table_is_shown_whatever_becomes_of_the_lists_to_choose_from(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        ui.page.route("**/onelake/lakehouses", lambda route: route.fulfill(json=NO_LISTS))
        ui.page.route("**/tables", lambda route: route.fulfill(status=409, json={"detail": "no list"}))
        ui.open(TRIPS)
        assert drawn(ui.page) == list(range(10))
        assert ui.page.get_by_role("alert").count() == 0
        ui.open("plugin/lakehouse?connection=onelake_default")
        ui.page.get_by_role("alert").get_by_text("isn't defined").wait_for()


ACCESS = {
    "table": "onelake://w/l/Tables/trips",
    "rights": [
        dict(zip(("right", "allowed", "step", "name", "why", "ask_for"), said, strict=True))
        for said in (
            ("read", True, "probe", None, "The store did it.", None),
            ("write", False, "workspace role", "Viewer", "So.", "more"),
            ("delete", None, "probe", None, "Only a probe.", None),
        )
    ],
    "notes": ["Fabric is away."],
    "command": "onelake access Tables/trips --connection onelake_default",
}


def test_access_is_looked_up_by_a_click_and_only_in_onelake(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        asked = []

        def answer(route: Route) -> None:
            asked.append(route.request.url)
            route.fulfill(json=ACCESS)

        ui.page.route("**/access?*", answer)
        ui.open(f"{TRIPS}&tab=Access")
        assert drawn(ui.page) == list(range(10))
        assert ui.page.get_by_role("tab").all_inner_texts() == ["Versions", "Partitions", "Staged", "Health"]
        known = [{"connection": "onelake_default", "lakehouse": "onelake://w/l", "in_onelake": True, "error": None}]
        ui.page.route("**/onelake/lakehouses", lambda route: route.fulfill(json=known))
        ui.open(f"{TRIPS}&tab=Access")
        button = ui.page.get_by_role("button", name="Look up the access")
        button.wait_for()
        assert asked == []
        button.click()
        rows = ui.page.get_by_role("region", name="Access").locator("tbody tr")
        rows.first.wait_for()
        assert [row.split("\t") for row in rows.all_inner_texts()] == [
            ["read", "yes", "probe", "The store did it.", ""],
            ["write", "no", "workspace role Viewer", "So.", "more"],
            ["delete", "unknown", "probe", "Only a probe.", ""],
        ]
        ui.page.get_by_text("Fabric is away.").wait_for()
        assert ui.page.locator(".lh code").inner_text() == ACCESS["command"]
        assert len(asked) == 1


def test_what_is_not_answered_is_said_and_asked_again(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        said = []

        def answer(route: Route) -> None:
            # What the page says at this time is about the answer before.
            said.append(ui.page.locator(".lh [role=status]").first.inner_text())
            match len(said):
                case 1:
                    route.abort()
                case 2:
                    route.fulfill(status=503, json={"detail": "The store does not answer."})
                case 3:
                    route.fulfill(body='{"commits": [')
                case _:
                    route.continue_()

        ui.page.route("**/commits?*", answer)
        ui.open(TRIPS)
        assert drawn(ui.page) == list(range(10))
    assert said[0] == "Loading …"
    assert said[1].startswith("Airflow's API server gives no answer (")
    assert said[2:] == [
        "The store does not answer. The page asks again.",
        "The answer of Airflow's API server broke off. The page asks again.",
    ]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_can_be_read_in_light_and_dark(server: ViewServer, dark: bool) -> None:
    chromium()

    def contrast(element: Locator, property_: str) -> float:
        found: float = element.evaluate(CONTRAST, property_)
        return found

    with browsing(server.url, "viewer", "viewer", dark=dark) as ui:
        ui.open(f"{TRIPS}&version=2")
        drawn(ui.page)
        ui.page.get_by_role("heading", name="Conflicts").wait_for()
        texts = [
            ".lh h1",
            ".lh td",
            ".lh th",
            ".lh td .muted",
            ".lh p.muted",
            ".lh label",
            ".lh td a",
            ".lh dt",
            ".lh li",
        ]
        for text in texts:
            assert contrast(ui.page.locator(text).first, "color") >= 4.5, text
        for name in (".added", ".removed", ".settled", ".rewritten"):
            assert contrast(ui.page.locator(f".lh svg {name}").first, "fill") >= 3, name
        dot = ui.page.locator(".lh svg .settled").first.bounding_box()
        assert dot is not None
        assert round(dot["width"], 1) == round(dot["height"], 1) == 8
        for name in (".lh input", ".lh button"):
            assert contrast(ui.page.locator(name).first, "borderTopColor") >= 3, name
        ui.shoot("lakehouse-dark" if dark else "lakehouse", (0, 0, 1280, 960))


def test_markup_in_names_and_messages_is_shown_and_does_not_run(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer") as ui:
        table = f"plugin/lakehouse?connection=long&table={quote('Tables/' + MARKUP)}"
        for path in (
            "plugin/lakehouse?connection=long",
            f"{table}&version=1",
            f"{table}&tab=Partitions",
            f"{table}&tab=Staged",
        ):
            assert MARKUP in text_of(ui, path)
            assert ui.page.locator(".lh img").count() == 0
            assert ui.page.evaluate("window.ran") is None


def test_a_narrow_window_and_long_names_need_no_scrolling_of_the_page(server: ViewServer) -> None:
    chromium()
    with browsing(server.url, "viewer", "viewer", width=600) as ui:
        staged, health = (TRIPS.replace("trips", "fares") + f"&tab={tab}" for tab in ("Staged", "Health"))
        of_long = f"plugin/lakehouse?connection=long&table=Tables/{LONG}&version=1"
        for path in ("plugin/lakehouse?connection=long", f"{TRIPS}&version=2", of_long, staged, health):
            text_of(ui, path)
            wide = ui.page.evaluate(
                "[...document.querySelectorAll('.lh, .lh > *, .lh .wide')].every((e) => e.scrollWidth <= e.clientWidth)"
            )
            assert wide, path
