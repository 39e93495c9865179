"""The page **Lakehouse** in Airflow's web UI, and its tabs of a run and of a task (docs/operate/view.md).

The API server imports this module at its start, so nothing heavy is imported at the top.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_onelake.view.routes import PREFIX, app

_NAME = "Lakehouse"
# One bundle with one name: the page's module is evaluated once, and leaves one component for all places.
_BUNDLE = {"name": _NAME, "bundle_url": f"{PREFIX.removeprefix('/')}/static/lakehouse.js"}


class LakehousePlugin(AirflowPlugin):
    """Adds the page to the navigation, and a tab to every run and every task."""

    name = "onelake_lakehouse"
    # Airflow declares both as variables of an instance.
    fastapi_apps: list[Any] = [{"app": app, "url_prefix": PREFIX, "name": _NAME}]  # noqa: RUF012
    react_apps: list[Any] = [  # noqa: RUF012
        {**_BUNDLE, "destination": "nav", "url_route": "lakehouse", "nav_top_level": True},
        {**_BUNDLE, "destination": "dag_run", "url_route": "lakehouse-run"},
        {**_BUNDLE, "destination": "task_instance", "url_route": "lakehouse-task"},
    ]
