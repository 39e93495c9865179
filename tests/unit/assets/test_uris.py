"""One URI for each table, as Airflow itself makes it of what a DAG says."""

from __future__ import annotations

import json

import pytest
from airflow.sdk import Asset

from airflow_provider_onelake.assets.uris import asset_uri, create_asset
from airflow_provider_onelake.exceptions import AddressError
from airflow_provider_onelake.observability.lineage import Lineage
from airflow_provider_onelake.storage.addresses import TableAddress

ONELAKE = "onelake://taxi/raw.Lakehouse/Tables/trips"


@pytest.mark.parametrize(
    ("table", "uri"),
    [
        (ONELAKE, ONELAKE),
        ("abfss://taxi@onelake.dfs.fabric.microsoft.com/raw.Lakehouse/Tables/trips/", ONELAKE),
        ("https://onelake.dfs.fabric.microsoft.com/taxi/raw.lakehouse/Tables/trips", ONELAKE),
        ("onelake://New York/raw.Lakehouse/Tables/trips", "onelake://New%20York/raw.Lakehouse/Tables/trips"),
        ("s3a://lakes/a/Tables/trips", "delta://s3/lakes/a/Tables/trips"),
        ("abfss://raw@account.dfs.core.windows.net/trips", "delta://adls/raw@account.windows.net/trips"),
        ("/data/lake/Tables/trips", "delta://local/data/lake/Tables/trips"),
        ("file:///data/lake/Tables/trips", "delta://local/data/lake/Tables/trips"),
        ("Tables/trips", "delta://onelake_default/Tables/trips"),
        ("Tables/trips of 2019/", "delta://onelake_default/Tables/trips%20of%202019"),
    ],
)
def test_a_table_has_one_uri_and_airflow_leaves_it_as_it_is(table: str, uri: str) -> None:
    assert asset_uri(table) == uri
    assert Asset("trips", uri=uri).uri == uri
    assert create_asset(table=table).uri == uri


@pytest.mark.parametrize(
    ("said", "uri"),
    [
        ("ONELAKE://taxi/raw.lakehouse/Tables/trips/", ONELAKE),
        ("onelake://New York/raw.Lakehouse/Tables/trips", "onelake://New%20York/raw.Lakehouse/Tables/trips"),
        (f"{ONELAKE}?by=month", f"{ONELAKE}?by=month"),
        ("delta://s3/lakes/trips/", "delta://s3/lakes/trips"),
        ("delta://warehouse/Tables/trips/?by=month,vendor_id", "delta://warehouse/Tables/trips?by=month,vendor_id"),
    ],
)
def test_airflow_brings_what_a_dag_says_into_that_form(said: str, uri: str) -> None:
    assert Asset("trips", uri=said).uri == uri


def test_partition_columns_make_another_asset_of_the_table() -> None:
    assert asset_uri("Tables/trips", "warehouse", "by=month,vendor id") == (
        "delta://warehouse/Tables/trips?by=month,vendor%20id"
    )
    made = asset_uri("Tables/trips", mark="by=vendor id")
    assert Asset("trips", uri=made).uri == made


@pytest.mark.parametrize(
    "uri",
    [
        "onelake://taxi/raw.Lakehouse",
        "onelake://taxi/raw.Lakehouse/Tables/_trips",
        f"{ONELAKE}?version=3",
        "delta:///Tables/trips",
        "delta://s3/lakes",
        "delta://onelake_default/../trips",
        "delta://onelake_default/Tables/trips?version=3",
    ],
)
def test_what_is_no_table_is_refused_when_the_dag_is_parsed(uri: str) -> None:
    with pytest.raises(ValueError):
        Asset("trips", uri=uri)


@pytest.mark.parametrize(("table", "connection"), [("Tables/trips", "s3"), ("Tables/trips", "a b"), ("../x", "lake")])
def test_a_path_that_makes_no_uri_is_refused(table: str, connection: str) -> None:
    with pytest.raises(AddressError):
        asset_uri(table, connection)


# -- lineage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        ONELAKE,
        "onelake://taxi/raw.Lakehouse/Tables/trips of 2019",
        "s3a://lakes/a/Tables/trips",
        "abfss://raw@account.dfs.core.windows.net/trips",
        "/data/lake/Tables/trips",
    ],
)
def test_openlineage_has_one_name_for_an_asset_and_for_the_table_that_a_task_writes(table: str) -> None:
    from airflow.providers.openlineage.utils.utils import translate_airflow_asset

    (written,) = Lineage(table=TableAddress.parse(table)).facets().outputs
    for mark in ("", "by=month"):
        named = translate_airflow_asset(Asset("trips", uri=asset_uri(table, mark=mark)), None)
        assert named is not None
        assert (named.namespace, named.name) == (written.namespace, written.name)


def test_openlineage_knows_a_path_by_the_connections_lakehouse(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.openlineage.utils.utils import translate_airflow_asset

    connection = {"conn_type": "onelake", "extra": {"lakehouse": "s3://lakes/a"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    named = translate_airflow_asset(Asset("trips", uri=asset_uri("Tables/trips of 2019", "lake")), None)
    assert named is not None
    assert (named.namespace, named.name) == ("s3://lakes", "a/Tables/trips of 2019")


def test_an_asset_of_a_connection_that_is_not_there_has_no_name_and_nothing_fails() -> None:
    from airflow.providers.openlineage.utils.utils import translate_airflow_asset

    assert translate_airflow_asset(Asset("trips", uri=asset_uri("Tables/trips", "nowhere")), None) is None
