"""The stack of ``make up ONELAKE=1``: the smallest example ends on it, and its rows are in the local OneLake."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import attrs
import pytest

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from include.local import onelake
from include.local.settings import REPOSITORY
from tests.live.harness import make_settings, start, stop


@pytest.mark.costs("It is make up ONELAKE=1, in a stack of its own")
def test_the_smallest_example_ends_on_a_local_onelake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = attrs.evolve(make_settings(tmp_path, REPOSITORY / "dags"), onelake=True)
    try:
        running = start(settings)
        running.api.unpause("two_writers")
        run = running.run_dag("two_writers")
        assert run["state"] == "success", running.api.task_instances("two_writers", str(run["dag_run_id"]))
        connection = onelake.connection(settings)
        assert connection["extra"]["lakehouse"] == onelake.LAKEHOUSE
        monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps(connection))
        rows = OneLakeHook().table("Tables/two_writers").read(["vendor_id"]).read_all()
        # Those of January by these two vendors.
        assert Counter(rows["vendor_id"].to_pylist()) == {1: 3754, 2: 6150}
        assert not (settings.lakehouse / "Tables").exists()
    finally:
        stop(settings)
