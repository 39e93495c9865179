"""Where people look at a Spark application, by its settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_onelake.spark.jobs.application import (
    application,
    condition_of,
    driver_ui,
    lasting_ui,
    settings_of,
)

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


def test_a_session_of_pyspark_3_5_says_its_settings_by_sql() -> None:
    rows = [{"key": "spark.app.id", "value": "app-1"}]
    spark: Any = SimpleNamespace(
        conf=SimpleNamespace(), sql=lambda text: SimpleNamespace(collect=lambda: rows if text == "SET" else [])
    )
    assert settings_of(spark) == {"spark.app.id": "app-1"}
    assert application(spark)["application_id"] == "app-1"


class OldError(Exception):
    """As pyspark 3.5 has them."""

    def getErrorClass(self) -> str | None:  # noqa: N802
        return "PATH_NOT_FOUND" if self.args else None


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        pytest.param(OldError("there is nothing"), "PATH_NOT_FOUND", id="by-its-old-name"),
        pytest.param(ValueError("[PATH_NOT_FOUND] Path does not exist: /t"), "PATH_NOT_FOUND", id="in-the-text"),
        pytest.param(ValueError("\n[A_NAME.AND_MORE] Syntax"), "A_NAME.AND_MORE", id="in-the-second-line"),
        pytest.param(ValueError("of [PATH_NOT_FOUND]"), None, id="not-at-the-beginning"),
        pytest.param(OldError(), None, id="none"),
    ],
)
def test_the_condition_of_an_error(error: Exception, condition: str | None) -> None:
    assert condition_of(error) == condition
