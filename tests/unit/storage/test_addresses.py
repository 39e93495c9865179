"""Addresses: every spelling of a table is one address; bad ones are refused with the reason, and without a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from airflow.sdk import Asset
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_onelake.assets.uris import asset_uri
from airflow_provider_onelake.exceptions import AddressError
from airflow_provider_onelake.storage.addresses import TableAddress, parse_alias, resolve_table, shown

if TYPE_CHECKING:
    from pathlib import Path
from typing import Any

WS, ITEM = "0f3c8a1e-5b2d-4c6f-9a7b-1d2e3f4a5b6c", "a1b2c3d4-e5f6-4789-8abc-def012345678"
ONELAKE = "onelake.dfs.fabric.microsoft.com"
PRIVATE = f"{WS.replace('-', '')}.z0f"

SAME_TABLE = [
    pytest.param(
        [
            f"abfss://taxi@{ONELAKE}/raw.Lakehouse/Tables/trips",
            f"abfss://taxi@{ONELAKE}/raw.lakehouse/Tables/trips/",
            f"ABFSS://taxi@{ONELAKE.upper()}/raw.Lakehouse/Tables/trips",
            f"abfs://taxi@{ONELAKE}/raw.Lakehouse/Tables/trips",
            "abfss://taxi@onelake.blob.fabric.microsoft.com/raw.Lakehouse/Tables/trips",
            f"abfss://taxi@westeurope-{ONELAKE}/raw.Lakehouse/Tables/trips",
            f"https://{ONELAKE}/taxi/raw.Lakehouse/Tables/trips",
            "https://onelake.blob.fabric.microsoft.com/taxi/raw.Lakehouse/Tables/trips",
            f"https://northeurope-{ONELAKE}/taxi/raw.Lakehouse/Tables/trips",
            "onelake://taxi/raw.Lakehouse/Tables/trips",
        ],
        id="onelake-names",
    ),
    pytest.param(
        [
            f"abfss://{WS}@{ONELAKE}/{ITEM}/Tables/trips",
            f"https://{ONELAKE}/{WS.upper()}/{ITEM.upper()}/Tables/trips",
            f"onelake://{WS}/{ITEM}/Tables/trips",
            f"abfss://{WS}@{PRIVATE}.dfs.fabric.microsoft.com/{ITEM}/Tables/trips",
            f"https://{PRIVATE.upper()}.blob.fabric.microsoft.com/{WS}/{ITEM}/Tables/trips",
            f"https://{PRIVATE}.onelake.fabric.microsoft.com/{WS}/{ITEM}/Tables/trips",
        ],
        id="onelake-guids",
    ),
    pytest.param(
        [
            f"abfss://My%20Taxis@{ONELAKE}/raw.Lakehouse/Tables/trips",
            f"https://{ONELAKE}/My%20Taxis/raw.Lakehouse/Tables/trips",
            "onelake://My Taxis/raw.Lakehouse/Tables/trips",
        ],
        id="onelake-blank-in-workspace",
    ),
    pytest.param(
        [
            "abfss://lake@acct.dfs.core.windows.net/raw/trips",
            "abfss://lake@acct.blob.core.windows.net/raw/trips",
            "https://acct.dfs.core.windows.net/lake/raw/trips",
            "https://acct.blob.core.windows.net/lake/raw/trips/",
        ],
        id="adls",
    ),
    pytest.param(["s3://bucket/raw/trips", "s3a://bucket/raw/trips/"], id="s3"),
    pytest.param(
        [
            "/lake/Tables/my trips",
            "/lake/Tables/my trips/",
            "file:///lake/Tables/my%20trips",
            "file:/lake/Tables/my%20trips",
            "file://localhost/lake/Tables/my%20trips",
        ],
        id="local",
    ),
]


@pytest.mark.parametrize("spellings", SAME_TABLE)
def test_every_spelling_of_a_table_is_one_address(spellings: list[str]) -> None:
    addresses = {TableAddress.parse(text) for text in spellings}
    assert len(addresses) == 1
    assert TableAddress.parse(str(addresses.pop())) == TableAddress.parse(spellings[0])


@pytest.mark.parametrize(
    ("text", "spark", "deltalake"),
    [
        pytest.param("/lake/Tables/a b", "file:///lake/Tables/a b", "/lake/Tables/a b", id="local"),
        pytest.param(
            "onelake://My-Taxis/raw.Lakehouse/Tables/my trips",
            f"abfss://My-Taxis@{ONELAKE}/raw.Lakehouse/Tables/my trips",
            f"abfss://My-Taxis@{ONELAKE}/raw.Lakehouse/Tables/my%20trips",
            id="onelake",
        ),
        pytest.param(
            f"https://{PRIVATE}.blob.fabric.microsoft.com/{WS}/{ITEM}/Tables/trips",
            f"abfss://{WS}@{PRIVATE}.dfs.fabric.microsoft.com/{ITEM}/Tables/trips",
            f"abfss://{WS}@{ONELAKE}/{ITEM}/Tables/trips",
            id="onelake-private-link",
        ),
        pytest.param(
            f"https://westeurope-{ONELAKE}/taxi/raw.Lakehouse/Tables/dbo/trips",
            f"abfss://taxi@westeurope-{ONELAKE}/raw.Lakehouse/Tables/dbo/trips",
            f"abfss://taxi@westeurope-{ONELAKE}/raw.Lakehouse/Tables/dbo/trips",
            id="onelake-keeps-its-region",
        ),
        pytest.param(
            "https://acct.blob.core.windows.net/lake/raw/trips",
            "abfss://lake@acct.dfs.core.windows.net/raw/trips",
            "abfss://lake@acct.dfs.core.windows.net/raw/trips",
            id="adls",
        ),
        pytest.param("s3a://bucket/raw/trips", "s3a://bucket/raw/trips", "s3://bucket/raw/trips", id="s3"),
    ],
)
def test_each_library_gets_its_own_spelling(text: str, spark: str, deltalake: str) -> None:
    address = TableAddress.parse(text)
    assert (address.spark_uri, address.deltalake_uri) == (spark, deltalake)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "relative", id="empty"),
        pytest.param("Tables/trips", "relative", id="relative"),
        pytest.param("~/lake/trips", "home directory", id="home"),
        pytest.param(" /lake/trips", "blanks", id="blanks"),
        pytest.param("/", "no directory", id="root"),
        pytest.param("/lake/../etc", "'..'", id="upwards"),
        pytest.param("/lake/\ud800", "which engines spell differently", id="half a pair of UTF-16"),
        pytest.param("/lake/./trips", "'.'", id="dot"),
        pytest.param("/lake//trips", "empty segment", id="empty-segment"),
        pytest.param("/lake/trips//", "empty segment", id="two-slashes-at-the-end"),
        pytest.param("/lake/_trips", "begins with '_'", id="underscore"),
        pytest.param("/lake/.trips", "begins with '.'", id="hidden"),
        pytest.param("/lake/staged", "buffers", id="staged"),
        pytest.param("/lake/tr*ps", "spell", id="glob"),
        pytest.param("/lake/50%", "spell", id="percent"),
        pytest.param("C:\\lake\\trips", "not followed by //", id="windows"),
        pytest.param("file://server/lake/trips", "host server", id="file-host"),
        pytest.param("file:lake", "relative", id="file-relative"),
        pytest.param("file:///lake/%2e%2e/trips", "'..'", id="encoded-upwards"),
        pytest.param("onelake://taxi", "item is missing", id="no-item"),
        pytest.param("onelake:///raw.Lakehouse/Tables/t", "workspace is missing", id="no-workspace"),
        pytest.param("onelake://taxi/raw/Tables/trips", "raw.Lakehouse", id="no-suffix"),
        pytest.param("onelake://taxi/dw.Warehouse/Tables/trips", "Warehouse", id="warehouse"),
        pytest.param("onelake://taxi/raw.Lakehouse", "lies in Tables", id="no-tables"),
        pytest.param("onelake://taxi/raw.Lakehouse/Tables", "name is missing", id="no-table"),
        pytest.param("onelake://taxi/raw.Lakehouse/Other/trips", "lies in Tables", id="other-directory"),
        pytest.param("onelake://taxi/raw.Lakehouse/Tables/a/b/c", "too deep", id="too-deep"),
        pytest.param("onelake://taxi/raw.Lakehouse/Tables/trips/staged", "buffers", id="inside-a-buffer"),
        pytest.param("onelake://taxi/raw.Lakehouse/Tables/_hidden/t", "begins with '_'", id="hidden-schema"),
        pytest.param(f"onelake://{WS}/raw.Lakehouse/Tables/t", "GUIDs for both", id="guid-workspace-named-item"),
        pytest.param(f"onelake://taxi/{ITEM}/Tables/t", "GUIDs for both", id="named-workspace-guid-item"),
        pytest.param(f"onelake://{WS}/{ITEM}.Lakehouse/Tables/t", "takes no type", id="guid-with-suffix"),
        pytest.param(
            f"abfss://{WS}@{PRIVATE[:-2]}ff.dfs.fabric.microsoft.com/{ITEM}/Tables/t",
            "first two characters",
            id="private-link-of-no-workspace",
        ),
        pytest.param(
            f"abfss://{ITEM}@{PRIVATE}.dfs.fabric.microsoft.com/{ITEM}/Tables/t",
            "another workspace",
            id="private-link-of-another-workspace",
        ),
        pytest.param(f"https://{ONELAKE}/taxi/raw.Lakehouse/Tables/t?sig=1", "query string", id="query"),
        pytest.param(f"https://{ONELAKE}/taxi/raw.Lakehouse/Tables/t#x", "fragment", id="fragment"),
        pytest.param(f"abfss://{ONELAKE}/raw.Lakehouse/Tables/t", "container before the @", id="no-container"),
        pytest.param("abfss://lake@example.com/t", "neither OneLake", id="foreign-host"),
        pytest.param(f"abfss://taxi@evil.{ONELAKE}/raw.Lakehouse/Tables/t", "neither OneLake", id="host-prefix"),
        pytest.param("abfss://Lake_1@acct.dfs.core.windows.net/t", "container", id="bad-container"),
        pytest.param("abfss://lake@acct.dfs.core.windows.net/", "no directory", id="container-only"),
        pytest.param("s3://bucket", "no directory", id="bucket-only"),
        pytest.param("s3://Bucket/t", "bucket", id="bad-bucket"),
        pytest.param("https://bucket.s3.amazonaws.com/t", "s3://bucket/path", id="s3-web-address"),
        pytest.param("wasbs://lake@acct.blob.core.windows.net/t", "abfss://", id="wasbs"),
        pytest.param("gs://bucket/t", "gs:// is not supported. Known forms: /a/local/path", id="gcs"),
        pytest.param("ftp://host/t", "not supported", id="ftp"),
    ],
)
def test_a_bad_address_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(AddressError, match=reason.replace(".", r"\.").replace("*", r"\*")) as caught:
        TableAddress.parse(text)
    assert repr(shown(text)) in str(caught.value)


def test_a_table_below_files_is_a_table() -> None:
    assert TableAddress.parse("onelake://taxi/raw.Lakehouse/Files/a/b/c/trips").name == "trips"


def test_local_directories_above_the_table_may_be_hidden() -> None:
    assert TableAddress.parse("/home/me/.local/lake/Tables/trips").path == "/home/me/.local/lake/Tables/trips"


@pytest.mark.parametrize(
    "lakehouse",
    [
        "onelake://taxi/raw.Lakehouse",
        f"https://{ONELAKE}/taxi/raw.Lakehouse/",
        "/lake",
        "s3://bucket",
        "s3://bucket/raw",
        "abfss://lake@acct.dfs.core.windows.net/",
    ],
)
def test_a_relative_name_lives_inside_the_lakehouse(lakehouse: str) -> None:
    address = resolve_table("Tables/trips", lakehouse)
    root = TableAddress.parse_root(lakehouse)
    assert address.relative_to(root) == "Tables/trips"
    assert resolve_table(str(address), lakehouse) == address
    assert resolve_table(address.spark_uri, lakehouse) == address


@pytest.mark.parametrize(
    ("table", "lakehouse"),
    [
        pytest.param("/elsewhere/trips", "/lake", id="other-directory"),
        pytest.param("/lakes/trips", "/lake", id="same-beginning"),
        pytest.param("s3://bucket/trips", "/lake", id="other-kind"),
        pytest.param("s3://other/raw/trips", "s3://bucket/raw", id="other-bucket"),
        pytest.param("onelake://taxi/other.Lakehouse/Tables/t", "onelake://taxi/raw.Lakehouse", id="other-item"),
        pytest.param(f"onelake://{WS}/{ITEM}/Tables/t", "onelake://taxi/raw.Lakehouse", id="names-and-guids"),
    ],
)
def test_a_path_outside_the_lakehouse_is_refused(table: str, lakehouse: str) -> None:
    with pytest.raises(AddressError, match="outside the lakehouse"):
        resolve_table(table, lakehouse)


@pytest.mark.parametrize("workspace", ["My Taxis", "My%20Taxis", "Sales&EU", "Größe"])
def test_a_workspace_whose_name_abfs_does_not_take_can_be_read_and_is_refused_for_spark(workspace: str) -> None:
    address = TableAddress.parse(f"onelake://{workspace}/raw.Lakehouse/Tables/t")
    assert TableAddress.parse(address.deltalake_uri) == address
    with pytest.raises(AddressError, match=r"Spark cannot reach it.*<workspace GUID>"):
        _ = address.spark_uri


def test_an_address_keeps_the_host_that_it_names() -> None:
    for host in (PRIVATE, "westeurope-onelake"):
        address = TableAddress.parse(f"abfss://{WS}@{host}.dfs.fabric.microsoft.com/{ITEM}/Tables/trips")
        assert (address.host, TableAddress.parse(str(address)).host) == (host, host)
        assert address.kind.blob_endpoint(address) == f"https://{host}.blob.fabric.microsoft.com"
        assert resolve_table("Tables/trips", f"abfss://{WS}@{host}.dfs.fabric.microsoft.com/{ITEM}").host == host


NAMES, GUIDS = "onelake://taxi/raw.Lakehouse", f"onelake://{WS}/{ITEM}"


@pytest.mark.parametrize(("lakehouse", "alias"), [(NAMES, GUIDS), (GUIDS, NAMES)])
def test_a_table_by_either_spelling_is_one_where_both_are_known(lakehouse: str, alias: str) -> None:
    for spelled in ("Tables/trips", f"{lakehouse}/Tables/trips", f"{alias}/Tables/trips"):
        address = resolve_table(spelled, lakehouse, alias)
        assert str(address) == f"{lakehouse}/Tables/trips"
    with pytest.raises(AddressError, match="outside the lakehouse"):
        resolve_table(f"{alias.replace('a1b2', 'ffff').replace('raw', 'other')}/Tables/t", lakehouse, alias)


def test_without_the_other_spelling_it_is_said_which_field_has_it() -> None:
    with pytest.raises(AddressError, match=r"one cannot tell.*lakehouse_alias"):
        resolve_table(f"{GUIDS}/Tables/t", NAMES)


@pytest.mark.parametrize("alias", ["onelake://taxi/other.Lakehouse", "s3://bucket", "/lake"])
def test_what_is_no_other_spelling_is_refused(alias: str) -> None:
    with pytest.raises(AddressError, match="no other spelling"):
        parse_alias(alias, TableAddress.parse_root(NAMES))


@pytest.mark.parametrize(
    "table", ["../trips", "Tables/../../trips", "Tables//trips", "Tables/staged/t", "_x/trips", ".x/trips", "", " "]
)
def test_a_bad_relative_name_is_refused(table: str) -> None:
    with pytest.raises(AddressError):
        resolve_table(table, "/lake")


@pytest.mark.parametrize("table", [None, 5, ["Tables/trips"]])
@pytest.mark.parametrize("lakehouse", [None, "/lake"])
def test_what_is_no_text_names_no_table(table: Any, lakehouse: str | None) -> None:
    with pytest.raises(AddressError, match="it is no text"):
        resolve_table(table, lakehouse)


def test_a_relative_name_needs_a_lakehouse() -> None:
    with pytest.raises(AddressError, match="no lakehouse"):
        resolve_table("Tables/trips", None)


def test_the_lakehouse_itself_is_no_table() -> None:
    with pytest.raises(AddressError, match="outside the lakehouse"):
        resolve_table("/lake", "/lake")


def test_a_symbolic_link_out_of_the_lakehouse_is_refused(tmp_path: Path) -> None:
    lake, outside = tmp_path / "lake", tmp_path / "outside"
    (lake / "Tables").mkdir(parents=True)
    (outside / "trips").mkdir(parents=True)
    (lake / "Tables" / "link").symlink_to(outside)
    with pytest.raises(AddressError, match="symbolic link"):
        resolve_table("Tables/link/trips", str(lake))


def test_the_lakehouse_may_be_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "lake").symlink_to(tmp_path / "real")
    assert resolve_table("Tables/trips", str(tmp_path / "lake")).path == f"{tmp_path}/lake/Tables/trips"


def test_a_child_goes_down_only() -> None:
    address = TableAddress.parse("/lake/Tables/trips")
    assert address.child("staged", "w/1").path == "/lake/Tables/trips/staged/w/1"
    with pytest.raises(AddressError):
        address.child("..", "other")


_NAME = st.text("abcXYZ019 -_=:+.é", min_size=1, max_size=12).filter(
    lambda s: s == s.strip() and not s.startswith(("_", ".")) and s != "staged"
)


@given(
    st.sampled_from(
        [
            "/",
            "s3://bucket/",
            "abfss://lake@acct.dfs.core.windows.net/",
            "onelake://taxi/raw.Lakehouse/Files/",
        ]
    ),
    st.lists(_NAME, min_size=1, max_size=4),
)
def test_the_normal_form_is_stable(prefix: str, parts: list[str]) -> None:
    address = TableAddress.parse(prefix + "/".join(parts))
    assert TableAddress.parse(str(address)) == address
    assert TableAddress.parse(address.deltalake_uri) == address
    assert address.name == parts[-1]


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_an_address_error(text: str) -> None:
    try:
        address = TableAddress.parse(text)
    except AddressError:
        return
    assert TableAddress.parse(str(address)) == address


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
