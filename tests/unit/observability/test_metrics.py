"""What is reported of results, and that a report fails nobody. What reaches a server: tests/airflow."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_onelake.commit.loop import Tally
from airflow_provider_onelake.observability.metrics import Metrics
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.writes.publish import Publication, PublishStatus
from airflow_provider_onelake.writes.report import Report, WriterOutcome
from tests.support.contexts import FakeTaskInstance

Sent = list[tuple[str, float, dict[str, str]]]
TABLE = TableAddress.parse("abfss://data@account.dfs.core.windows.net/my lake/t")
TAGS = {"table": "data_account.windows.net/my_lake/t", "dag_id": "taxi", "task_id": "load.write"}
METRICS = Metrics.of(FakeTaskInstance(), TABLE)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    from airflow.providers.common.compat.sdk import Stats

    found: Sent = []

    def keep(name: str, value: float, *, tags: dict[str, str]) -> None:
        found.append((name, value, tags))

    monkeypatch.setattr(Stats, "incr", keep)
    monkeypatch.setattr(Stats, "timing", keep)
    return found


def test_a_table_in_a_tag_holds_nothing_that_statsd_reads_otherwise() -> None:
    assert METRICS.tags == TAGS
    assert Metrics.of(None, TABLE).tags == {"table": TAGS["table"]}


def test_a_rebase_is_timed_only_where_there_was_one(sent: Sent) -> None:
    METRICS.published(Publication(PublishStatus.ALREADY, 3, tally=Tally(1)))
    assert sent == [("onelake.commit.attempts", 1, TAGS)]
    sent.clear()
    METRICS.published(Publication(PublishStatus.ALREADY, 3, tally=Tally(3, 2, 1, 0.25)))
    assert sent == [
        ("onelake.commit.attempts", 3, TAGS),
        ("onelake.commit.lost_races", 2, TAGS),
        ("onelake.commit.unanswered", 1, TAGS),
        ("onelake.commit.rebase_time", 250.0, TAGS),
    ]


def test_writers_that_never_said_their_name_are_missing_too(sent: Sent) -> None:
    outcomes = (WriterOutcome(writer="a", status="published"), WriterOutcome(writer="b", status="missing"))
    METRICS.reconciled(Report(load="l", table="t", outcomes=outcomes, missing=("b", "load.write[3] (failed)")))
    assert [(name, value, tags["status"]) for name, value, tags in sent] == [
        ("onelake.reconcile.writers", 1, "published"),
        ("onelake.reconcile.writers", 1, "missing"),
        ("onelake.reconcile.writers", 1, "missing"),
    ]


def test_upkeep(sent: Sent) -> None:
    compaction = {"files_before": 4, "files_after": 1, "bytes_before": 40, "bytes_after": 12, "lost_races": 0}
    METRICS.compacted({"status": "published", "partitions_compacted": 1, "partitions_dropped": 0, **compaction})
    METRICS.vacuumed({"files": 2, "bytes": 30, "left": 0, "logs_deleted": 1})
    assert {name: value for name, value, _ in sent} == {
        "onelake.optimize.runs": 1,
        "onelake.optimize.files_before": 4,
        "onelake.optimize.files_after": 1,
        "onelake.optimize.bytes_before": 40,
        "onelake.optimize.bytes_after": 12,
        "onelake.optimize.partitions_compacted": 1,
        "onelake.vacuum.runs": 1,
        "onelake.vacuum.files": 2,
        "onelake.vacuum.bytes": 30,
        "onelake.vacuum.logs_deleted": 1,
    }


def test_a_report_that_cannot_be_sent_fails_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow.providers.common.compat.sdk import Stats

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("no route to the server")

    monkeypatch.setattr(Stats, "incr", fails)
    METRICS.written({"status": "published", "reruns": 0})
    assert "no route to the server" in caplog.text
