"""Committers of other processes, and what a reconciliation says."""

from __future__ import annotations

from typing import Any

from airflow_provider_onelake.commit.loop import Backoff
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.stores import Store
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.report import Report
from tests.support.stores import through

AT_ONCE = Backoff(first=0.0, longest=0.0)
NO_WAITS = Backoff(first=0.0, longest=0.0, budget=0.0)


def committer(log: DeltaLog, store: Store | None = None, **changed: Any) -> Committer:
    """Another process that commits."""
    return Committer(through(store or log.store, log), **changed)


def statuses(report: Report) -> dict[str, str]:
    """How far each writer of a load has come."""
    return {outcome.writer: outcome.status for outcome in report.outcomes}
