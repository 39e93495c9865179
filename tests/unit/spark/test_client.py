"""One version of Spark's packages for Python, or a refusal that names what is installed."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping

import pytest

from airflow_provider_onelake.exceptions import SparkSetUpError
from airflow_provider_onelake.spark import client


def installed(monkeypatch: pytest.MonkeyPatch, packages: Mapping[str, str]) -> None:
    def version(name: str) -> str:
        if name not in packages:
            raise importlib.metadata.PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr(client, "version", version)
    client.check_one_client.cache_clear()


@pytest.mark.parametrize("pyspark", [None, "4.2.0", "4.2.1"])
def test_one_minor_version_is_fine(monkeypatch: pytest.MonkeyPatch, pyspark: str | None) -> None:
    installed(monkeypatch, {"pyspark-client": "4.2.0"} | ({"pyspark": pyspark} if pyspark else {}))
    client.check_one_client()


@pytest.mark.parametrize(
    ("other", "version"), [("pyspark", "4.3.0"), ("pyspark", "3.5.9"), ("databricks-connect", "17.3")]
)
def test_two_clients_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, other: str, version: str) -> None:
    installed(monkeypatch, {"pyspark-client": "4.2.0", other: version})
    with pytest.raises(
        SparkSetUpError, match=rf"has {other} {version} beside pyspark-client 4.2.0.*Nothing was staged"
    ):
        client.check_one_client()
    client.check_one_client.cache_clear()


@pytest.mark.parametrize(("there", "extra"), [("4.1.1", "submit-4-1"), ("4.2.0", "submit")])
def test_a_spark_beside_airflow_is_of_the_clients_version(
    monkeypatch: pytest.MonkeyPatch, there: str, extra: str
) -> None:
    installed(monkeypatch, {"pyspark-client": there})
    assert client.submit_line() == f"pip install 'airflow-provider-onelake[{extra}]'"
