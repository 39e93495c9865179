"""Audits look at buffers: what they have not agreed to is not published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.choices import PublishMode
from airflow_provider_onelake.exceptions import AuditRefusedError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.writes.audits import Audit
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.reconcile import reconcile
from airflow_provider_onelake.writes.report import Report
from tests.support.tables import LOAD, newest, stage, writer_spec

WRITERS = ("eu", "us")


@pytest.fixture
def staged(log: DeltaLog) -> dict[str, Buffer]:
    return {key: stage(log, spec_of(key), {"2019-01": [1]}) for key in WRITERS}


def spec_of(key: str, **terms: Any) -> Any:
    return writer_spec(key, publish=PublishMode.TOGETHER, **terms)


def agreed(staged: Mapping[str, Buffer], objection: str | None = None) -> Audit:
    return Audit({key: buffer.path for key, buffer in staged.items()}, objection, again="load.staged")


def settle(log: DeltaLog, audit: Audit | None) -> Report:
    return reconcile(Committer(log), LOAD, WRITERS, publish=PublishMode.TOGETHER, audit=audit)


def statuses(report: Report) -> set[str]:
    return {outcome.status for outcome in report.outcomes}


def refusal(report: Report) -> str:
    with pytest.raises(AuditRefusedError) as refused:
        report.raise_for_failures()
    return str(refused.value)


def test_what_all_audits_agreed_to_is_published(log: DeltaLog, staged: dict[str, Buffer]) -> None:
    report = settle(log, agreed(staged))
    report.raise_for_failures()
    assert statuses(report) == {"published"}


def test_an_audit_that_has_not_succeeded_holds_back_the_load(log: DeltaLog, staged: dict[str, Buffer]) -> None:
    report = settle(log, agreed(staged, "load.approve is failed"))
    assert (statuses(report), newest(log).version) == ({"held_back"}, 0)
    assert "was published: of its audits, load.approve is failed. The rows of eu, us stay staged." in refusal(report)
    # Later it agrees.
    assert statuses(settle(log, agreed(staged))) == {"published"}


def test_rows_that_were_staged_after_the_look_are_held_back(log: DeltaLog, staged: dict[str, Buffer]) -> None:
    seen = agreed(staged)
    again = stage(log, spec_of("us", generation=2), {"2019-01": [2]})
    report = settle(log, seen)
    assert (statuses(report), newest(log).version) == ({"held_back"}, 0)
    assert f"writer 'us' has staged rows that no audit has looked at, in {again.path}" in refusal(report)
    assert "clear load.staged with its downstream tasks" in refusal(report)


def test_where_nothing_waits_nobody_has_to_agree(log: DeltaLog, staged: dict[str, Buffer]) -> None:
    settle(log, agreed(staged))
    report = settle(log, agreed({}, "load.approve is skipped"))
    report.raise_for_failures()
    assert statuses(report) == {"already_published"}
