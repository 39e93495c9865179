"""What lineage calls things, and what it finds in a source. What is told of a task: tests/airflow/test_lineage.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_onelake.lineage import Lineage, dataset_of, inputs_of, is_wanted, lineage_of
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.storage.addresses import TableAddress

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("address", "dataset"),
    [
        pytest.param("/data/x*.json", ("file", "/data/x*.json"), id="local"),
        pytest.param("file:///data/x", ("file", "/data/x"), id="file"),
        pytest.param("file:/data/x", ("file", "/data/x"), id="file-one-slash"),
        pytest.param("s3a://bucket/a/b/", ("s3://bucket", "a/b"), id="s3"),
        pytest.param(
            "abfss://c@a.dfs.core.windows.net/a/b", ("abfss://c@a.dfs.core.windows.net", "a/b"), id="container"
        ),
        pytest.param(
            "abfs://w@westeurope-onelake.dfs.fabric.microsoft.com/i/a",
            ("abfss://w@onelake.dfs.fabric.microsoft.com", "i/a"),
            id="regions-of-onelake",
        ),
        pytest.param(
            f"abfss://w@{'0f' * 16}.z0f.dfs.fabric.microsoft.com/i/a",
            ("abfss://w@onelake.dfs.fabric.microsoft.com", "i/a"),
            id="private-links-of-onelake",
        ),
        pytest.param("https://me:pw@x.example/a?sig=abc", ("https://x.example", "a"), id="no-secrets"),
        pytest.param("s3://key:secret@bucket/a", ("s3://bucket", "a"), id="no-keys"),
        pytest.param("s3://bucket/a?X-Amz-Signature=abc", ("s3://bucket", "a"), id="not-signed"),
        pytest.param("s3://bucket/a/day=?/x?.csv", ("s3://bucket", "a/day=?/x?.csv"), id="glob"),
        pytest.param("wasbs://c@a.example/x?sv=1&sig=abc", ("wasbs://c@a.example", "x"), id="no-sas"),
        pytest.param("abfss://me:pw@a.example/x", ("abfss://a.example", "x"), id="no-password-for-a-container"),
    ],
)
def test_names(address: str, dataset: tuple[str, str]) -> None:
    assert dataset_of(address) == dataset


def test_a_table_has_one_name_however_it_is_spelled() -> None:
    spellings = (
        "onelake://taxi/raw.Lakehouse/Tables/trips",
        "abfss://taxi@westeurope-onelake.dfs.fabric.microsoft.com/raw.Lakehouse/Tables/trips",
    )
    for spelling in spellings:
        (output,) = Lineage(table=TableAddress.parse(spelling)).facets().outputs
        assert output.namespace == "abfss://taxi@onelake.dfs.fabric.microsoft.com"
        assert output.name == "raw.Lakehouse/Tables/trips"


def test_what_a_source_reads_as_far_as_it_is_spelled_out() -> None:
    assert inputs_of(FileSource(["/a", "/b"]), {}) == ("/a", "/b")
    query = "SELECT * FROM json.`/data/x.json` JOIN spark_catalog.db.t USING (id)"
    steps = {"joined": "SELECT * FROM source JOIN delta.`s3a://b/t` USING (id)"}
    assert inputs_of(SqlSource(query), steps) == ("/data/x.json", "s3a://b/t")
    assert inputs_of(SqlSource("THIS IS NO SQL ((("), {}) == ()


def test_without_openlineage_nothing_is_wanted_and_nothing_fails() -> None:
    code = (
        "import sys; sys.modules['airflow.providers.openlineage.conf'] = None\n"
        "from airflow_provider_onelake.lineage import facets_of, is_wanted\n"
        "import airflow_provider_onelake.operators.write\n"
        "print(is_wanted(), facets_of(None))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.split() == ["False", "None"]


def test_it_is_wanted_where_events_go_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.openlineage import conf

    monkeypatch.setattr(conf, "is_disabled", lambda: True)
    assert not is_wanted()
    monkeypatch.setattr(conf, "is_disabled", lambda: False)
    assert is_wanted()


def test_lineage_that_cannot_be_made_fails_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> Lineage:
        raise OSError("the store does not answer")

    monkeypatch.setattr("airflow_provider_onelake.lineage.is_wanted", lambda: True)
    assert lineage_of(fails) is None
    assert "the store does not answer" in caplog.text
    monkeypatch.setattr("airflow_provider_onelake.lineage.is_wanted", lambda: False)
    assert lineage_of(fails) is None
    assert len(caplog.records) == 1
