"""A connection of the type onelake_livy: what is read, what is sent, and what is refused when it is read."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import CredentialsError, InvalidWriteError, OneLakeError
from airflow_provider_onelake.get_provider_info import get_provider_info
from airflow_provider_onelake.spark.livy.settings import LivyTarget
from airflow_provider_onelake.storage.spark import SparkAccess, delta_package

FABRIC = (
    "https://api.fabric.microsoft.com/v1/workspaces/0f3c8a1e-5b2d-4c6f-9a7b-1d2e3f4a5b6c"
    "/lakehouses/a1b2c3d4-e5f6-4789-8abc-def012345678/livyapi/versions/2023-12-01"
)
ENVIRONMENT = "11111111-2222-3333-4444-555555555555"
STORE = SparkAccess({"spark.hadoop.a": "b"}, {"SECRET": "s3cr3t"}, ("g:a:1",))


def target(host: str = "http://livy", **fields: Any) -> LivyTarget:
    from airflow.sdk import Connection

    extra = json.dumps(fields.pop("extra", {}))
    return LivyTarget.of(Connection(conn_id="l", conn_type="onelake_livy", host=host, extra=extra, **fields))


def in_fabric(host: str = FABRIC, **extra: Any) -> LivyTarget:
    return target(host, password="token", extra={"sign_in": "token", **extra})


@pytest.mark.parametrize(
    ("host", "fields", "address"),
    [
        pytest.param("livy", {"port": 8998}, "http://livy:8998", id="host and port"),
        pytest.param("livy", {"schema": "https"}, "https://livy", id="a scheme of its own"),
        pytest.param("https://gate/x/livy/", {}, "https://gate/x/livy", id="a path"),
        pytest.param("http://livy:8998/batches", {"port": 1}, "http://livy:8998", id="the collection"),
        pytest.param(f"{FABRIC}/batches", {"password": "t", "extra": {"sign_in": "token"}}, FABRIC, id="fabric"),
        pytest.param(f"{FABRIC}/sessions", {"password": "t", "extra": {"sign_in": "token"}}, FABRIC, id="sessions"),
    ],
)
def test_an_address_in_every_spelling(host: str, fields: dict[str, Any], address: str) -> None:
    found = target(host, **fields)
    assert (found.address, found.in_fabric) == (address, "fabric" in host)


@pytest.mark.parametrize(
    ("host", "extra", "why"),
    [
        ("", {}, "has no host"),
        ("https://user:s3cr3t@livy", {}, "a user or a query"),
        ("https://livy?key=s3cr3t", {}, "a user or a query"),
        ("sc://livy", {}, "another scheme"),
        ("https://api.fabric.microsoft.com/v1/workspaces/Sales/lakehouses/raw/livyapi/versions/1", {}, "the portal"),
        ("https://api.fabric.microsoft.com/v1", {}, "the portal"),
        (
            f"{FABRIC.partition('/lakehouses/')[0]}/sparkJobDefinitions/{ENVIRONMENT}",
            {},
            "Runs of a Spark job definition are gone",
        ),
        ("http://livy", {"environment": ENVIRONMENT}, "goes with an address in Fabric"),
        (FABRIC, {"environment": "mine"}, "is the GUID of an environment"),
        ("http://livy", {"patience": "s3cr3t"}, "no number of seconds"),
        ("http://livy", {"conf": {"spark.x.password": "s3cr3t"}}, "looks like a secret"),
        ("http://livy", {"conf": "{"}, "is no JSON"),
    ],
)
def test_what_is_malformed_is_refused_when_it_is_read(host: str, extra: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidWriteError, match=why) as refused:
        target(host, extra=extra)
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "header"),
    [
        ({}, None),
        ({"password": "t0ken"}, "Bearer t0ken"),
        ({"login": "me", "password": "pw"}, f"Basic {base64.b64encode(b'me:pw').decode()}"),
    ],
)
def test_a_plain_livy_takes_nobody_a_user_or_a_token(fields: dict[str, str], header: str | None) -> None:
    found = target("https://livy", **fields)
    assert found.headers().get("Authorization") == header
    assert "pw" not in repr(found)


def test_fabric_takes_a_token_of_entra() -> None:
    assert in_fabric().headers() == {"Authorization": "Bearer token"}
    with pytest.raises(CredentialsError, match="tokens of Entra only"):
        target(FABRIC, password="no-way-is-said")
    with pytest.raises(CredentialsError, match="lacks tenant_id"):
        target(FABRIC, login="client", password="secret")


@pytest.mark.parametrize("host", ["http://livy", FABRIC.replace("https", "http")])
def test_a_secret_is_not_sent_without_tls(host: str) -> None:
    extra = {"sign_in": "token"} if host != "http://livy" else {}
    with pytest.raises(OneLakeError, match="without TLS"):
        target(host, password="t0ken", extra=extra)
    assert target(host, password="t0ken", extra={**extra, "allow_http": "true"}).headers()


def test_fabrics_spark_gets_the_users_settings_and_nothing_that_it_has_itself() -> None:
    said = in_fabric(conf={"spark.executor.cores": 4}, environment=ENVIRONMENT, jars="abfss://a/b.jar").body(STORE)
    conf = {"spark.sql.session.timeZone": "UTC", "spark.executor.cores": "4"}
    conf["spark.fabric.environmentDetails"] = f'{{"id":"{ENVIRONMENT}"}}'
    assert said == {"conf": conf, "jars": ["abfss://a/b.jar"]}


def test_another_livys_spark_gets_delta_and_what_the_store_needs() -> None:
    conf = target().body(STORE)["conf"]
    assert conf["spark.jars.packages"] == f"{delta_package()},g:a:1"
    assert conf["spark.hadoop.a"] == "b"
    assert "s3cr3t" not in str(conf)
    assert "spark.jars.packages" not in target(extra={"packages": ""}).body(STORE)["conf"]


def test_beside_jars_only_the_packages_that_are_named_are_fetched_as_the_form_says() -> None:
    assert "spark.jars.packages" not in target(extra={"jars": "a.jar"}).body(STORE)["conf"]
    named = target(extra={"jars": "a.jar", "packages": "g:b:2"}).body(STORE)
    assert (named["jars"], named["conf"]["spark.jars.packages"]) == (["a.jar"], "g:b:2")
    (form,) = (c for c in get_provider_info()["connection-types"] if c["connection-type"] == "onelake_livy")
    assert form["conn-fields"]["jars"]["description"].endswith(
        "only those packages are fetched that the field Packages names."
    )
