"""Where a person looks at a table: what the address alone leads to, and what somebody says."""

from __future__ import annotations

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.console import filled
from airflow_provider_onelake.table import Table

WORKSPACE, ITEM = "1b2c0000-0000-0000-0000-00000000000a", "9d8e0000-0000-0000-0000-00000000000b"
BY_GUIDS = f"abfss://{WORKSPACE}@onelake.dfs.fabric.microsoft.com/{ITEM}/Tables/trips"


def page_of(address: str, template: str | None = None, region: str | None = None) -> str | None:
    settings = {"table_page": template, "region": region}
    return Table(TableAddress.parse(address), None, 1.0, settings.get).page()


@pytest.mark.parametrize(
    ("table", "page"),
    [
        pytest.param(
            BY_GUIDS, f"https://app.fabric.microsoft.com/groups/{WORKSPACE}/lakehouses/{ITEM}", id="onelake-guids"
        ),
        # Fabric's portal goes by GUIDs, ADLS Gen2's by the subscription: no honest link.
        pytest.param("onelake://taxi/raw.Lakehouse/Tables/trips", None, id="onelake-names"),
        pytest.param("abfss://data@account.dfs.core.windows.net/lake/trips", None, id="adls"),
        pytest.param("/data/lake/trips", None, id="local"),
        pytest.param(
            "s3://bucket/my lake/trips",
            "https://console.aws.amazon.com/s3/buckets/bucket?prefix=my%20lake/trips/",
            id="s3",
        ),
    ],
)
def test_what_an_address_leads_to(table: str, page: str | None) -> None:
    assert page_of(table) == page


def test_a_bucket_is_looked_for_in_its_region_and_its_cloud() -> None:
    address = "s3://bucket/trips"
    assert page_of(address, region="eu-west-1") == (
        "https://console.aws.amazon.com/s3/buckets/bucket?region=eu-west-1&prefix=trips/"
    )
    assert (page_of(address, region="cn-north-1") or "").startswith("https://console.amazonaws.cn/")
    assert (page_of(address, region="us-gov-east-1") or "").startswith("https://console.amazonaws-us-gov.com/")


def test_somebody_says_how_a_page_is_formed() -> None:
    address = "abfss://data@account.dfs.core.windows.net/my lake/trips"
    assert page_of(address, "https://catalog.example/t/{name}?at={path}") == (
        "https://catalog.example/t/trips?at=my%20lake/trips"
    )
    assert page_of(address, "https://x.example/{authority}") == "https://x.example/data%40account.windows.net"


def test_a_page_needs_all_that_it_is_formed_of() -> None:
    template = "https://history.example/history/{application_id}/"
    assert filled(template, {"application_id": None}) is None
    assert filled(template, {"application_id": "app-1/../x"}) == "https://history.example/history/app-1/../x/"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param("javascript:alert(1)", "begins with https://", id="no-web-address"),
        pytest.param("//host/x", "begins with https://", id="no-scheme"),
        pytest.param("https://x.example/{table.__class__}", "has {table.__class__}", id="no-attribute"),
        pytest.param("https://x.example/{nobody}", "has {nobody}; known are {table}", id="unknown"),
        pytest.param("https://x.example/{table!x}", "has {table}; known are {table}", id="conversion"),
        pytest.param("https://x.example/{table", "malformed", id="open-brace"),
        pytest.param("https://me:pass@x.example/{table}", "looks like a secret", id="password"),
        pytest.param("https://x.example/{table}?sv=1&sig=abc", "looks like a secret", id="sas"),
        pytest.param("https://x.example/{table}?X-Amz-Signature=abc", "looks like a secret", id="signed"),
        pytest.param("https://x.example/{table}?access_token=abc", "looks like a secret", id="token"),
    ],
)
def test_an_address_of_a_page_is_refused_and_a_secret_in_it_is_not_told(template: str, message: str) -> None:
    with pytest.raises(InvalidWriteError, match=message.replace("{", r"\{")) as refused:
        page_of("/data/lake/trips", template)
    assert "abc" not in str(refused.value)
    assert "pass@" not in str(refused.value)
