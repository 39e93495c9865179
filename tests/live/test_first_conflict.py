"""A writer whose rows a policy left out, as a person sees it in Airflow's grid."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.live.browser import chromium, logged_in
from tests.live.harness import LiveStack

DAG = "first_conflict"


@pytest.mark.costs("A browser looks at a load of a live Airflow")
def test_a_writer_that_is_set_aside_is_skipped_in_the_grid(live_stack: LiveStack) -> None:
    chromium()  # before anything is started
    api = live_stack.api
    api.unpause(DAG)
    run = live_stack.run_dag(DAG, conf={"on_conflict": "first_writer_wins", "on_set_aside": "skip"})
    assert run["state"] == "success"
    run_id = str(run["dag_run_id"])
    tasks = {task["task_id"]: task for task in api.task_instances(DAG, run_id)}
    (left_out,) = [name for name in ("north", "south") if tasks[f"load.{name}"]["state"] == "skipped"]
    (first,) = {"north", "south"} - {left_out}
    assert tasks[f"load.{first}"]["state"] == tasks["load.reconcile"]["state"] == "success"
    said = f"{left_out} · set aside: version 0 ({first} of {DAG}.load) came first"
    assert tasks[f"load.{left_out}"]["rendered_map_index"] == said

    with logged_in(live_stack) as ui:
        ui.open(f"dags/{DAG}/runs/{quote(run_id)}")
        # The grid folds a group. Its writers are below it, each with its state.
        ui.page.get_by_role("button", name="Expand all task groups").click()
        ui.page.get_by_role("link", name=left_out, exact=True).first.wait_for()
        ui.page.get_by_text(said).first.wait_for()
        ui.shoot("first-conflict", (0, 0, 1280, 800))
