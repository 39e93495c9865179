"""One table: what is opened when, how a missing one is said, and where people look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.exceptions import TableNotFoundError
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.table import Table
from tests.support.tables import make_table


def table(address: str, **settings: str) -> Table:
    return Table(TableAddress.parse(address), None, 1.0, settings.get)


def test_nothing_is_opened_before_it_is_asked_for(tmp_path: Path) -> None:
    there = table(str(tmp_path / "trips"))
    assert (str(there), there.other_address, there.page()) == (str(tmp_path / "trips"), None, None)
    assert not (tmp_path / "trips").exists()


def test_its_log_is_opened_once_and_its_committer_commits_to_that_log(tmp_path: Path) -> None:
    make_table(tmp_path / "trips")
    there = table(str(tmp_path / "trips"))
    assert there.log is there.log is there.committer().log
    assert there.log.snapshot().version == 0


def test_a_missing_table_is_said_where_it_is_read(tmp_path: Path) -> None:
    missing = table(str(tmp_path / "none"))
    assert missing.log.snapshot_or_none() is None
    with pytest.raises(TableNotFoundError, match=f"There is no Delta table at {missing}"):
        missing.log.snapshot()


def test_a_store_with_an_endpoint_has_no_console_but_may_have_pages() -> None:
    assert "s3/buckets/lake" in str(table("s3://lake/t").page())
    assert table("s3://lake/t", endpoint="http://minio:9000").page() is None
    paged = table("s3://lake/t", endpoint="http://minio:9000", table_page="https://minio/{path}")
    assert paged.page() == "https://minio/t"
