"""Where people look at a Spark application, by its settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_onelake.spark.jobs.application import application, driver_ui, lasting_ui

YARN = "spark.org.apache.hadoop.yarn.server.webproxy.amfilter.AmIpFilter.param.PROXY_URI_BASES"


@pytest.mark.parametrize(
    ("settings", "page"),
    [
        pytest.param({}, None, id="a-driver-alone"),
        pytest.param({YARN: "http://rm1/proxy/app-1,http://rm2/proxy/app-1"}, "http://rm1/proxy/app-1", id="yarn"),
        pytest.param(
            {"spark.ui.reverseProxyUrl": "https://spark.example/", "spark.app.id": "app-1"},
            "https://spark.example/proxy/app-1/",
            id="reverse-proxy",
        ),
        pytest.param({"spark.ui.reverseProxyUrl": "https://spark.example"}, None, id="no-application"),
    ],
)
def test_what_outlives_a_driver(settings: dict[str, str], page: str | None) -> None:
    assert lasting_ui(settings) == page


@pytest.mark.parametrize(
    ("settings", "page"),
    [
        pytest.param({"spark.driver.host": "d"}, "http://d:4040", id="the-default-port"),
        pytest.param({"spark.driver.host": "d", "spark.ui.port": "4050"}, "http://d:4050", id="another-port"),
        pytest.param({"spark.driver.host": "d", "spark.ui.port": "0"}, None, id="any-port"),
        pytest.param({"spark.driver.host": "d", "spark.ui.enabled": "false"}, None, id="no-ui"),
        pytest.param({"spark.ui.port": "4050"}, None, id="no-host"),
    ],
)
def test_what_a_driver_serves_itself(settings: dict[str, str], page: str | None) -> None:
    assert driver_ui(settings) == page


def test_a_job_tells_its_application() -> None:
    spark: Any = SimpleNamespace(conf=SimpleNamespace(getAll={"spark.app.id": "app-1", "spark.driver.host": "d"}))
    # The driver's own UI ends with it.
    assert application(spark) == {"application_id": "app-1", "ui": None}
