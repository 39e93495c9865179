"""Rows that leave a check to their whole load are published only with its verdict on exactly these rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.choices import OnFailedCheck, PublishMode
from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.commit.report import Report
from airflow_provider_onelake.exceptions import (
    AuditRefusedError,
    BufferIncompleteError,
    BufferInvalidError,
    ChecksFailedError,
    InvalidWriteError,
    TerminalError,
)
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.buffers import Buffer, audited, set_aside
from airflow_provider_onelake.staging.layout import load_verdicts
from airflow_provider_onelake.staging.load_verdict import LoadVerdict, asked_of, awaited, write_load_verdict
from airflow_provider_onelake.staging.verdict import CheckResult, Verdict
from tests.support.tables import LOAD, commit_of, newest, stage, writer_spec

ENOUGH = {"enough rows": "count(*) > 1"}
WRITERS = ("eu", "us")


def staged(log: DeltaLog, key: str, checks: Mapping[str, str] = ENOUGH, **terms: Any) -> Buffer:
    spec = writer_spec(key, publish=PublishMode.TOGETHER, checks=checks, **terms)
    buffer = stage(log, spec, {"2019-01": [1]})
    results = tuple(CheckResult(name=name, sql=sql, each_row=False, met=False) for name, sql in checks.items())
    return audited(log.store, buffer, Verdict(1, results).for_load(checks))


@pytest.fixture
def two(log: DeltaLog) -> list[Buffer]:
    return [staged(log, key) for key in WRITERS]


def judge(
    log: DeltaLog, buffers: Sequence[Buffer], *, met: bool | None = True, there: Sequence[Buffer] = (), **terms: Any
) -> LoadVerdict:
    results = tuple(CheckResult(name=name, sql=sql, each_row=False, met=met) for name, sql in awaited(buffers).items())
    paths = {buffer.spec.identity.key: buffer.path for buffer in (*there, *buffers)}
    verdict = LoadVerdict(rows=len(paths), buffers=paths, results=results, **terms)
    write_load_verdict(log.store, [buffer.path for buffer in buffers], verdict)
    return verdict


def settle(log: DeltaLog, publish: PublishMode = PublishMode.TOGETHER) -> Report:
    return reconcile(Committer(log), LOAD, WRITERS, publish=publish)


def refusal(log: DeltaLog, kind: type[TerminalError]) -> str:
    version = newest(log).version
    report = settle(log)
    assert {outcome.status for outcome in report.outcomes} <= {"held_back", "already_published"}
    assert newest(log).version == version
    with pytest.raises(kind) as refused:
        report.raise_for_failures()
    return str(refused.value)


# Of the reconciliation: its author may have changed it since the rows were staged, and cleared nothing else.
@pytest.mark.parametrize("publish", PublishMode)
def test_a_verdict_that_passed_publishes_the_load_in_one_version(
    log: DeltaLog, two: list[Buffer], publish: PublishMode
) -> None:
    judge(log, two)
    report = settle(log, publish)
    report.raise_for_failures()
    assert [(outcome.status, outcome.version) for outcome in report.outcomes] == [("published", 1)] * 2
    assert report.load_verdict is not None
    assert report.load_verdict.in_words == "1 check passed"


def test_without_a_verdict_nobody_publishes(log: DeltaLog, two: list[Buffer]) -> None:
    said = refusal(log, AuditRefusedError)
    assert "nobody has evaluated its checks 'enough rows' over the rows that its writers eu, us have now" in said
    with pytest.raises(BufferIncompleteError, match="The checks of the load of writer 'eu' were not evaluated"):
        Committer(log).publish(two)


@pytest.mark.parametrize("publishing", PublishMode)
def test_a_part_of_what_the_verdict_is_on_is_not_published(
    log: DeltaLog, two: list[Buffer], monkeypatch: pytest.MonkeyPatch, publishing: PublishMode
) -> None:
    """A retry of other work sets one of the buffers aside when the reconciliation has looked at the verdict."""
    judge(log, two)
    publish = Committer.publish

    def publishes(self: Committer, *args: Any, **named: Any) -> Any:
        set_aside(log.store, two[0].path, "its writer was staged again")
        return publish(self, *args, **named)

    monkeypatch.setattr(Committer, "publish", publishes)
    report = settle(log, publishing)
    assert newest(log).version == 0
    assert [outcome.status for outcome in report.outcomes] == ["set_aside", "refused"]
    with pytest.raises(AuditRefusedError, match="those of 'eu' were set aside meanwhile"):
        report.raise_for_failures()


@pytest.mark.parametrize("met", [pytest.param(False, id="false"), pytest.param(None, id="null")])
def test_a_verdict_that_failed_refuses_the_load(log: DeltaLog, two: list[Buffer], met: bool | None) -> None:
    verdict = judge(log, two, met=met)
    said = refusal(log, ChecksFailedError)
    assert "fails 1 of 1 checks of all its writers together (eu, us): 'enough rows' (count(*) > 1): it is" in said
    assert all(buffer.path in said for buffer in two)
    with pytest.raises(ChecksFailedError):
        Committer(log).publish([attrs.evolve(buffer, load=verdict) for buffer in two])


def test_the_first_verdict_on_the_same_rows_counts(log: DeltaLog, two: list[Buffer]) -> None:
    judge(log, two, met=False)
    judge(log, two, met=True)
    assert "'enough rows'" in refusal(log, ChecksFailedError)


def test_with_warn_what_fails_is_published_and_the_history_says_so(log: DeltaLog) -> None:
    two = [staged(log, key, on_failed_check=OnFailedCheck.WARN) for key in WRITERS]
    judge(log, two, met=False, on_failed_check=asked_of(two))
    settle(log).raise_for_failures()
    commit = commit_of(log, 1)
    assert "eu 1 row, us 1 row. All writers together: 1 of 1 check failed: enough rows" in (commit.user_metadata or "")


def test_a_writer_that_staged_other_rows_since_is_not_covered(log: DeltaLog, two: list[Buffer]) -> None:
    judge(log, two)
    again = staged(log, "us", generation=2)
    refusal(log, AuditRefusedError)
    judge(log, [two[0], again])
    settle(log).raise_for_failures()


def test_a_check_that_is_another_for_another_writer_is_refused(log: DeltaLog, two: list[Buffer]) -> None:
    other = staged(log, "us", {"enough rows": "count(*) > 2"}, generation=2)
    with pytest.raises(InvalidWriteError, match=r"'count\(\*\) > 1' for writer 'eu' and 'count\(\*\) > 2' for writer"):
        awaited([two[0], other])
    assert "take templates out of it" in refusal(log, InvalidWriteError)


@pytest.mark.parametrize("damage", [b"{", b"[]", b'{"rows": 2}'])
def test_a_damaged_verdict_publishes_nothing(log: DeltaLog, two: list[Buffer], damage: bytes) -> None:
    judge(log, two)
    (found,) = log.store.list(load_verdicts(min(buffer.path for buffer in two)))
    log.store.put(found.path, damage)
    assert "is damaged, or not of its checks" in refusal(log, BufferInvalidError)
