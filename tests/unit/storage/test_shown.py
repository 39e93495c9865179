"""What messages quote of an address: enough to find it, and no secret."""

from __future__ import annotations

import pytest
from airflow.sdk import Asset

from airflow_provider_onelake.assets.uris import asset_uri
from airflow_provider_onelake.exceptions import AddressError
from airflow_provider_onelake.storage.addresses import TableAddress, resolve_table
from airflow_provider_onelake.storage.shown import shown

SECRET = "sv=2024-11-04&sig=c2VjcmV0%3D"


@pytest.mark.parametrize(
    "address",
    [
        f"https://account.dfs.core.windows.net/lake/trips?{SECRET}",
        f"https://account.dfs.core.windows.net/lake/trips%3F{SECRET}",
        f"abfss://lake@account.dfs.core.windows.net/trips#{SECRET}",
        f"wasbs://lake@account.blob.core.windows.net/trips?{SECRET}",
        f"https://example.com/lake/trips?{SECRET}",
        f"/lake/trips?{SECRET}",
        f"Tables/trips?{SECRET}",
        f"s3://AKIA:{SECRET}@lakes/trips",
        f"s3://AKIA:a/{SECRET}@lakes/trips",
        f"s3://{SECRET}@lakes/trips",
        f"ftp://me:{SECRET}@host/trips",
        f"file://me:{SECRET}@host/trips",
        f"abfss://lake:{SECRET}@account.dfs.core.windows.net/trips",
        f"https://me:{SECRET}@account.dfs.core.windows.net/lake/trips",
        f"onelake://me:{SECRET}@taxi/raw.Lakehouse/Tables/trips",
    ],
)
def test_a_refused_address_is_quoted_without_its_secret(address: str) -> None:
    for refusing in (lambda: TableAddress.parse(address), lambda: resolve_table(address, "/lake")):
        with pytest.raises(AddressError) as caught:
            refusing()
        assert "c2VjcmV0" not in str(caught.value)
        assert "refused" in str(caught.value)


def test_so_is_a_refused_uri_of_an_asset() -> None:
    uri = f"delta://s3/lakes/trips?{SECRET}"
    with pytest.raises(ValueError) as caught:
        Asset("trips", uri=uri)
    assert "c2VjcmV0" not in str(caught.value)
    with pytest.raises(AddressError) as caught:
        asset_uri(uri)
    assert "c2VjcmV0" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "quoted"),
    [
        ("abfss://lake@account.dfs.core.windows.net/trips", "abfss://lake@account.dfs.core.windows.net/trips"),
        ("s3://lakes/a@b/trips", "s3://lakes/a@b/trips"),
        ("https://host/lake/trips?sig=x", "https://host/lake/trips?…"),
        ("https://host/lake/trips#x", "https://host/lake/trips#…"),
        ("https://me:x@host/trips", "https://…@host/trips"),
        ("https://token@host/trips", "https://…@host/trips"),
        ("/lake/me:x@y/trips", "/lake/me:x@y/trips"),
        ("file:lake", "file:lake"),
    ],
)
def test_what_is_no_secret_is_left(address: str, quoted: str) -> None:
    assert shown(address) == quoted
