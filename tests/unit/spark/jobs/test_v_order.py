"""V-Order in the settings of a job's session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_onelake.spark.jobs import change, optimize
from airflow_provider_onelake.spark.jobs.v_order import v_order_settings

NAME = "spark.sql.parquet.vorder.default"


@pytest.mark.parametrize(
    ("job", "settings"),
    [({"v_order": True}, {NAME: "true"}), ({"v_order": False}, {NAME: "false"}), ({"v_order": None}, {}), ({}, {})],
)
def test_the_session_says_what_the_job_asks_for(job: dict[str, Any], settings: dict[str, str]) -> None:
    assert v_order_settings(job) == settings


@pytest.mark.parametrize("run", [optimize.optimize, change.change])
def test_what_rewrites_files_asks_in_its_session_before_it_begins(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, str] = {}
    at_start: dict[str, str] = {}

    def is_untouched(*_: object) -> bool:
        at_start.update(said)
        return False

    for module in (optimize, change):
        monkeypatch.setattr(module, "is_untouched", is_untouched)
    conf = SimpleNamespace(set=said.__setitem__, unset=lambda name: None, getAll={})
    run(SimpleNamespace(conf=conf), {"shadow_uri": "/t", "target_file_size": 1, "v_order": True})
    assert at_start.get(NAME) == "true"
