"""What lineage calls things, what it finds in a source, and what it tells of checks.

What OpenLineage's own listener sends: tests/airflow/test_observability.py.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from airflow_provider_onelake.checks import rows_like_last
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.observability.lineage import Lineage, dataset_of, inputs_of, is_wanted, lineage_of
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.tables import make_table
from tests.support.versions import needs_named_assertions

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
        "from airflow_provider_onelake.observability.lineage import facets_of, is_wanted\n"
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

    monkeypatch.setattr("airflow_provider_onelake.observability.lineage.is_wanted", lambda: True)
    assert lineage_of(fails) is None
    assert "the store does not answer" in caplog.text
    monkeypatch.setattr("airflow_provider_onelake.observability.lineage.is_wanted", lambda: False)
    assert lineage_of(fails) is None
    assert len(caplog.records) == 1


# -- checks ----------------------------------------------------------------------------------------------------------

CHECKS = {"small ids": "id < 3", "some rows": "count(*) > 1"}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty table, whose tasks' lineage is wanted. One row of ``a`` and two of ``b`` have an id that is not small."""
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    use_engine(monkeypatch, FakeEngine({"a": {"2019-01": [1, 2, 5]}, "b": {"2019-02": [2, 3, 4]}}))
    monkeypatch.setattr("airflow_provider_onelake.observability.lineage.is_wanted", lambda: True)
    make_table(tmp_path / "Tables" / "trips")
    return tmp_path / "Tables" / "trips"


def writer(key: str = "a", **arguments: Any) -> OneLakeWriteOperator:
    given = {"task_id": key, "table": "Tables/trips", "source": SqlSource("SELECT 1"), "where": key, "checks": CHECKS}
    return OneLakeWriteOperator(**{**given, **arguments})


def run(task: Any, **context: Any) -> Any:
    """Run a task, whether it fails or not, and return its context."""
    given = context_of(task, **context)
    with suppress(AirflowFailException):
        task.execute(given)
    return given


def reconciled(**group: Any) -> Any:
    """Run the writers of a group and its reconciliation, and return that."""
    with DAG("taxi", schedule=None) as dag, OneLakeWriteTaskGroup(group_id="load", table="Tables/trips", **group):
        # Of `a`, one row fails the last check; of `b`, none does.
        writers = [writer(key, checks={**CHECKS, "ids": "id < 5"}) for key in ("a", "b")]
    named = [run(task)["ti"].pushed["writer"] for task in writers]
    states = {task.task_id: "success" for task in writers}
    run(dag.get_task("load.reconcile"), states=states, pulled={"writer": named})
    return dag.get_task("load.reconcile")


def outputs(task: Any) -> Any:
    """What OpenLineage's provider is told of a task that has ended, also where it has failed."""
    found = task.get_openlineage_facets_on_complete(None)
    assert found is not None
    return found.outputs


def told(output: Any) -> list[tuple[str, bool, str, str | None]]:
    """What a dataset says of each check: its name, whether it passed, how severe a failure is, what was found."""
    facet = output.facets.get("dataQualityAssertions")
    return [(one.name, one.success, one.severity, one.actual) for one in (facet.assertions if facet else ())]


@needs_named_assertions()
@pytest.mark.parametrize(("asked", "severity", "version"), [("refuse", "error", None), ("warn", "warn", "1")])
def test_a_check_that_failed_is_told_whatever_becomes_of_the_rows(
    table: Path, asked: str, severity: str, version: str | None
) -> None:
    task = writer(on_failed_check=asked)
    run(task)
    output = outputs(task)[0]
    assert output.name == str(table)
    assert told(output) == [("small ids", False, severity, "1"), ("some rows", True, severity, None)]
    told_version = output.facets.get("version")
    assert (told_version and told_version.datasetVersion) == version


def test_without_checks_nothing_is_told_of_them(table: Path) -> None:
    task = writer(checks={})
    run(task)
    (output,) = outputs(task)
    assert "dataQualityAssertions" not in output.facets


def test_a_rerun_that_is_skipped_tells_nothing_of_checks(table: Path) -> None:
    run(writer(on_failed_check="warn"))
    again = writer(on_failed_check="warn", on_rerun="skip")
    assert run(again, clears=1, max_tries=1, try_number=2)["writer_outcome"].startswith("skipped: already in version")
    (output,) = outputs(again)
    assert "dataQualityAssertions" not in output.facets


@needs_named_assertions()
def test_a_check_says_of_what_kind_it_is(table: Path) -> None:
    task = writer(checks={"usual": rows_like_last(), "some rows": "count(*) > 1"})
    run(task)
    (output,) = outputs(task)
    assertions = output.facets["dataQualityAssertions"].assertions
    assert [(one.assertion, one.content, one.contentType) for one in assertions] == [
        ("row_count", "rows_like_last(5, at_least=0.5, at_most=2.0)", "expression"),
        ("custom_sql", "count(*) > 1", "sql"),
    ]
    usual = "no earlier load of this writer is in the table's log, so there is nothing to compare with"
    assert [(one.expected, one.actual) for one in assertions] == [(None, usual), (None, None)]


def test_a_reconciliation_tells_nothing_of_what_the_writers_published(table: Path) -> None:
    (output,) = outputs(reconciled(publish="each", on_failed_check="warn"))
    assert told(output) == []
