"""The bucket and the workspace that docker-compose.yaml's Airflow finds, made on real stores."""

from __future__ import annotations

import pytest

from include.compose.prepare import make_room
from tests.support.object_stores import Lake, azure_credentials, s3_credentials
from tests.support.store_servers import BlobServer, S3Server


def test_a_bucket_is_made_once(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake("s3", "s3://prepared", s3_credentials(s3_server))
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_PREPARED", lake.connection())
    assert [make_room("onelake_prepared") for _ in range(2)] == ["prepared"] * 2
    assert (s3_server.data / "prepared").is_dir()


def test_a_workspace_is_made_once(blob_server: BlobServer, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake("azure", "onelake://prepared/raw.Lakehouse", azure_credentials(blob_server))
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_PREPARED", lake.connection())
    assert [make_room("onelake_prepared") for _ in range(2)] == ["prepared"] * 2
    assert lake.make_table().snapshot_or_none() is not None
